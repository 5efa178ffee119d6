"""The model card: metadata that the hub reads, the run's own figures, and nothing of the user's folders."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]

from mein.data.corpus import Corpus, source_of_lists
from mein.evaluation.systems import EXPERT, MIXTURE
from mein.model.loading import load_model
from mein.report.card import write_card
from mein.runtime.run_folder import RunFolder
from tests.support import tiny
from tests.support.finished_runs import SCRIPT, fabricated

LABELS = [SCRIPT, "a | b", "---"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wrong = {EXPERT: np.arange(60), MIXTURE: np.arange(12)}
    return fabricated(tmp_path_factory.mktemp("cards") / 'a "run": x', LABELS, 40, wrong)


@pytest.fixture(scope="module")
def card(finished: Path) -> str:
    write_card(finished)
    return (finished / "README.md").read_text(encoding="utf-8")


def head_of(card: str) -> dict[str, Any]:
    _, head, _ = card.split("---\n", 2)
    found = yaml.safe_load(head)
    assert isinstance(found, dict)
    return found


def test_the_head_is_metadata_of_the_hub(finished: Path, card: str) -> None:
    head = head_of(card)
    assert (head["library_name"], head["pipeline_tag"]) == ("mein", "text-classification")
    assert "text-classification" in head["tags"]
    assert "language" not in head
    (index,) = head["model-index"]
    assert index["name"] == finished.name
    (result,) = index["results"]
    assert result["task"] == {"type": "text-classification"}
    assert (result["dataset"]["split"], result["dataset"]["name"]) == ("test", "<b>test.csv")
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    (line,) = [line for line in RunFolder(finished).metrics("verdict") if line.get("system") == MIXTURE]
    assert values["accuracy"] == pytest.approx(0.9)
    assert values["f1"] == pytest.approx(line["macro_f1"], abs=1e-6)


def test_the_hub_library_accepts_it(card: str) -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(card).data
    assert data.library_name == "mein"
    assert {result.metric_type for result in data.eval_results} >= {"accuracy", "f1"}


def test_figures_data_use_and_limits_are_shown(finished: Path, card: str) -> None:
    (line,) = [line for line in RunFolder(finished).metrics("verdict") if line.get("system") == MIXTURE]
    low, high = line["interval"]
    assert f"| mixture | 10.0 | {low:.1f}–{high:.1f} | {line['macro_f1']:.3f} |" in card
    assert "On 120 test documents, seed 0:" in card
    assert "The unlabeled text helped" in card
    assert "| labeled, for training | 18 |" in card
    assert "MeinClassifier.from_pretrained" in card
    for heading in ("## Use", "## Data", "## Figures", "## Limits"):
        assert heading in card


def test_labels_stay_text_and_paths_stay_private(card: str) -> None:
    assert SCRIPT not in card
    assert r"\<script\>" in card
    assert r"a \| b" in card
    for private in ("secret", "/home/me", "key="):
        assert private not in card


def test_rows_of_the_table_have_as_many_cells_as_its_head(card: str) -> None:
    lines = card.split("## Figures")[1].split("## Limits")[0].splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 4
    assert {line.count("|") - line.count(r"\|") for line in rows} == {8}


def test_a_saved_classifier_gets_a_card_without_figures(finished: Path, tmp_path: Path) -> None:
    load_model(finished, "cpu").save(tmp_path / "saved")
    write_card(tmp_path / "saved")
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "model-index" not in head_of(card)
    assert "None are recorded in this folder." in card


def test_the_same_run_gives_the_same_card_elsewhere(finished: Path, card: str, tmp_path: Path) -> None:
    copy = shutil.copytree(finished, tmp_path / finished.name)
    write_card(copy, tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == card


def test_a_run_evaluated_on_dev_has_a_note(tmp_path: Path) -> None:
    labeled = source_of_lists(tiny.TEXTS.labeled_texts, tiny.TEXTS.labeled_labels)
    tiny.run(tmp_path / "dev", Corpus(labeled=labeled))
    write_card(tmp_path / "dev")
    card = (tmp_path / "dev" / "README.md").read_text(encoding="utf-8")
    assert "There was no test set" in card
    assert "It is a plain expert" in card
    assert head_of(card)["model-index"][0]["results"][0]["dataset"]["split"] == "dev"
