"""The script that trains a transformer on raw text: its folder is one for `expert.model`."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.support import hub_models
from tests.support.shell import SIZES, mein, refuses, write_csv

SCRIPT = Path(__file__).parents[2] / "scripts/adapt.py"
SMALL = [
    "--preset",
    "transformer",
    *SIZES,
    "--set",
    "words.max_length=12",
    "--set",
    "expert_training.epochs=1",
]


def texts(count: int = 150) -> list[str]:
    """Sentences in which a word predicts its neighbors well; some are longer than a passage."""
    random = np.random.default_rng(0)
    parts = ["the film was very good .", "a plot so dull and long !", "not great , not bad ,"]
    return [" ".join(random.choice(parts, size=random.integers(1, 9))) for _ in range(count)]


@pytest.mark.slow
def test_the_script_adapts_a_model_that_training_takes(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    bert = hub_models.build("Bert", tmp_path / "bert")
    (tmp_path / "raw.txt").write_text("\n".join(texts()), encoding="utf-8")
    command = [sys.executable, str(SCRIPT), str(bert), "raw.txt", "adapted", "12", "3e-3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    losses = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines()]
    assert losses[-1] < 0.8 * losses[0]

    before, after = load_file(bert / "model.safetensors"), load_file(tmp_path / "adapted/model.safetensors")
    same = {name for name, value in after.items() if torch.equal(value, before[f"bert.{name}"])}
    assert same == {"pooler.dense.weight", "pooler.dense.bias"}
    labels = ["good" if "good" in text else "bad" for text in texts()]
    labeled = write_csv(tmp_path / "train.csv", texts(), labels)
    words = ["--labeled", labeled, "--unlabeled", tmp_path / "raw.txt", "--out", tmp_path / "run"]
    answer = mein("train", *words, "--set", f"expert.model={tmp_path / 'adapted'}", *SMALL)
    assert answer.code == 0, answer
    taken = load_file(tmp_path / "run/hub/model.safetensors")
    assert all(torch.equal(taken[f"bert.{name}"], value) for name, value in after.items())


@pytest.mark.parametrize("kind", ["transformer", "frozen"])
def test_pretrain_refuses_a_transformer(tmp_path: Path, kind: str) -> None:
    text = write_csv(tmp_path / "raw.csv", texts(9))
    refuses(
        rf"expert\.kind is '{kind}': mein pre-trains no transformer\. Use scripts/adapt\.py of the .*",
        *("pretrain", "--text", text, "--out", tmp_path / "out", "--preset", kind, *SIZES),
    )
    assert not (tmp_path / "out").exists()
