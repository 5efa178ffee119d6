"""Highlights of evaluated documents: fragments with the imitators' p, pieces that matter when blanked."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mein.evaluation.systems import EXPERT, MIXTURE
from mein.explain.highlights import (
    FRAGMENTS,
    changed,
    excerpt,
    influence,
    informative_fragments,
    write_highlights,
)
from mein.explain.imitated import piece_scores
from mein.mixture.inference import imitator_alpha
from mein.model.loading import load_model
from mein.model.model import Model
from mein.runtime.run_folder import RunFolder
from mein.text.ragged import ragged
from tests.support import tiny

TEXTS = tiny.TEXTS.test_texts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluated") / "run"
    tiny.run(path)
    return path


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    """The run's, its imitators made to differ: weights far from each other, outputs far from uniform."""
    found = load_model(run, "cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in tiny.networks_of(found).imitators.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    found.gates, found.temperature = np.array([-3.0, 2.0]), 1.0
    return found


def test_a_fragment_has_the_p_of_its_pieces_alone_and_counts_by_hand(model: Model) -> None:
    pieces = model.indexer.pieces_of(TEXTS)
    tables = informative_fragments(model, pieces, np.array([0, 1]))
    assert [(t["window"], t["label"]) for t in tables] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    rows = pieces.to_lists()
    for table in tables:
        c, i = table["window"], model.windows.index(table["window"])
        seen: dict[tuple[int, ...], list[int]] = {}
        for n, row in enumerate(rows):
            padded = [0] * c + row + [0] * c
            for j in range(len(row)):
                seen.setdefault(tuple(padded[j : j + 2 * c + 1]), []).append(n)
        spelled = {"".join(model.indexer.pieces.fragments(f)).strip(): f for f in seen}
        assert 0 < len(table["best"]) <= FRAGMENTS
        for one in table["best"]:
            fragment = spelled[one["text"]]
            with torch.no_grad():
                p = (
                    tiny.networks_of(model)
                    .imitators(torch.tensor(fragment))[i, c, table["label"]]
                    .exp()
                    .item()
                )
            assert one["probability"] == pytest.approx(p, abs=1e-4)
            assert (one["documents"], one["occurrences"]) == (len(set(seen[fragment])), len(seen[fragment]))
        assert [o["probability"] for o in table["best"]] == sorted(
            (o["probability"] for o in table["best"]), reverse=True
        )


def test_a_piece_scores_what_blanking_it_takes_away(model: Model) -> None:
    pieces = model.indexer.pieces_of([TEXTS[0]])
    scores = piece_scores(model, pieces, 1, 0)
    row = pieces.to_lists()[0]

    def log_odds(numbers: list[int]) -> float:
        alpha = imitator_alpha(tiny.networks_of(model).imitators, ragged([numbers]), 2)[:, 0].astype(
            np.float64
        )
        return float(model.weights @ (alpha[:, 1] - alpha[:, 0]))

    wanted = [log_odds(row) - log_odds([*row[:t], 0, *row[t + 1 :]]) for t in range(len(row))]
    np.testing.assert_allclose(scores, wanted, atol=1e-4)
    assert np.abs(scores).max() > 0.01
    assert len(piece_scores(model, ragged([[]]), 1, 0)) == 0


def test_influence_splits_the_log_odds_of_the_mixture(run: Path) -> None:
    model = load_model(run, "cpu")
    documents, log_probs = model.encode(TEXTS), model.log_probs(TEXTS)
    found = influence(model, documents.pieces, log_probs)
    first, second = np.argsort(-log_probs, axis=1)[:, :2].T
    n = np.arange(len(TEXTS))
    z = model.expert_logits(documents)
    assert found["expert"] == pytest.approx(
        np.abs(z[n, first] - z[n, second]).mean() / model.temperature, abs=1e-3
    )


def test_changed_documents_are_sorted_by_kind_and_certainty(model: Model) -> None:
    ids = np.array([0, 0, 1, 1])
    p = {EXPERT: [0.1, 0.9, 0.3, 0.2], MIXTURE: [0.6, 0.2, 0.9, 0.8]}  # of class 0
    systems = {name: np.log(np.stack([of, 1 - np.array(of)], axis=1)) for name, of in p.items()}
    found = changed(model, TEXTS[:4], ids, systems)
    assert [(d["row"], d["kind"]) for d in found] == [
        (0, "corrected"),
        (2, "broken"),
        (3, "broken"),
        (1, "broken"),
    ]
    assert found[0]["log_odds"] == pytest.approx(np.log(0.6 / 0.4), abs=1e-4)


def test_the_file_is_the_same_twice_and_empty_texts_do_no_harm(run: Path) -> None:
    folder, model = RunFolder(run), load_model(run, "cpu")
    texts = ["", *TEXTS[:5], "  "]
    log_probs = model.log_probs(texts)
    systems = {EXPERT: log_probs[:, ::-1], MIXTURE: log_probs}
    ids = np.zeros(len(texts), np.int64)
    contents = []
    for _ in range(2):
        write_highlights(folder, model, texts, ids, systems)
        contents.append((run / "highlights.json").read_bytes())
    assert contents[0] == contents[1]
    write_highlights(folder, model, ["", ""], ids[:2], {name: s[:2] for name, s in systems.items()})
    assert folder.read_json("highlights.json")["fragments"] == []


def test_without_a_mixture_nothing_is_written(model: Model, tmp_path: Path) -> None:
    write_highlights(RunFolder(tmp_path), model, ["a"], np.array([0]), {EXPERT: np.zeros((1, 2))})
    assert list(tmp_path.iterdir()) == []


def test_an_excerpt_keeps_the_most_influential_part() -> None:
    words = [f"word{k}" for k in range(100)]
    text = " ".join(words)
    at = text.index("word70")
    shown, marks = excerpt(text, [[0, 5, 0.1], [at, at + 6, -2.0]], longest=80)
    assert len(shown) <= 80
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert [shown[int(a) : int(b)] for a, b, _ in marks] == ["word70"]
    assert excerpt("short", [], longest=80) == ("short", [])
