"""A transformer of a run as a Hugging Face folder: it predicts the same there, and can be trained further."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mein.hub.networks import transformers_quietly
from mein.model.loading import Classifiers, read_config
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.sharing import TEMPORARY
from tests.support import hub_models, tiny
from tests.support.shell import mein, refuses

TEXTS = ["the film was very good .", "a plot so dull and long !", "not great , not bad"]
SETTINGS: dict[str, Any] = {
    "expert__kind": "transformer",
    "words__max_length": 12,
    "expert_training__learning_rate": 1e-3,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose expert is a tiny transformer; its documents' words are not the model's."""
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    folder = tmp_path_factory.mktemp("export")
    model = hub_models.build("Bert", folder / "bert", classes=None)
    tiny.run(folder / "run", **SETTINGS, expert__model=str(model))
    return folder / "run"


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    out = run.parent / "models/exported"
    answer = mein("export", run, "--out", out)
    assert answer.code == 0, answer
    assert f"--encoder {out}" in answer.out.replace("\n", "")
    return out


def test_transformers_predicts_what_the_expert_predicts(run: Path, exported: Path) -> None:
    with transformers_quietly() as transformers, torch.no_grad():
        network = transformers.AutoModelForSequenceClassification.from_pretrained(exported).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
        found = network(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    folder = RunFolder(run)
    model = Classifiers(folder, read_config(folder), torch.device("cpu")).load("expert")
    np.testing.assert_allclose(found.numpy(), model.expert_logits(model.encode(TEXTS)), atol=1e-5)
    names = [str(label) for label in model.labels.classes]
    assert network.config.id2label == dict(enumerate(names))
    assert network.config.label2id == {name: number for number, name in enumerate(names)}


def test_a_text_that_is_too_long_for_the_network_is_cut_where_asked(run: Path, exported: Path) -> None:
    text = " ".join(TEXTS * 10)
    with transformers_quietly() as transformers:
        classify = transformers.pipeline("text-classification", str(exported))
        (predicted,) = classify(text, truncation=True, max_length=SETTINGS["words__max_length"])
        assert classify(text, truncation=True)  # as much as the network can read
    folder = RunFolder(run)
    model = Classifiers(folder, read_config(folder), torch.device("cpu")).load("expert")
    z = model.expert_logits(model.encode([text]))[0]
    p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    assert predicted == {
        "label": str(model.labels.classes[p.argmax()]),
        "score": pytest.approx(p.max(), abs=1e-5),
    }


def test_a_killed_export_can_be_repeated(run: Path, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "x" / TEMPORARY).mkdir(parents=True)
    assert mein("export", run, "--out", tmp_path / "x").code == 0
    assert {path.name for path in (tmp_path / "x").iterdir()} == {path.name for path in exported.iterdir()}
    assert len({path.stat().st_mode for path in (tmp_path / "x").iterdir() if path.is_file()}) == 1


def test_a_folder_of_hugging_face_is_no_run(exported: Path, tmp_path: Path) -> None:
    sentence = f"{exported / 'config.json'} was written by another program, or is damaged: give the folder .*"
    refuses(sentence, "export", exported, "--out", tmp_path / "x")


def test_another_run_goes_on_from_there_head_included(run: Path, exported: Path, tmp_path: Path) -> None:
    tiny.run(tmp_path / "next", **SETTINGS, expert__model=str(exported), expert_training__epochs=0)
    before, after = (load_tensors(path / "expert-of-all.safetensors")[0] for path in (run, tmp_path / "next"))
    assert all(torch.equal(before[name], value) for name, value in after.items())


def test_nothing_is_written_over(run: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine", encoding="utf-8")
    sentence = f"{tmp_path} exists and is no empty folder: empty it, or choose another --out."
    refuses(sentence, "export", run, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_other_experts_are_refused(tmp_path: Path) -> None:
    tiny.run(tmp_path / "lstm")
    run, out = tmp_path / "lstm", tmp_path / "x"
    sentence = f"The expert of {run} is 'lstm', which is no Hugging Face model: export a run of --preset .*"
    refuses(sentence, "export", run, "--out", out)
    assert not out.exists()
