"""The shipped configs: each loads, reads back, and explains how to use it; `paper` is the paper's table."""

from pathlib import Path

import pytest

import mein
from mein.config import PRESETS, Config, as_toml, load_config
from mein.experts.config import DROPOUT
from mein.imitators.reference import LEAKY_SLOPE
from mein.run.warm_start import stage_1

FOLDER = Path(mein.__file__).parent / "configs"


def test_every_shipped_file_is_a_preset() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_and_round_trips(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    path = tmp_path / "written.toml"
    path.write_text(as_toml(config), encoding="utf-8")
    assert load_config(file=path) == config
    assert load_config(file=FOLDER / f"{name}.toml") == config


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_command_hardware_time_and_result(name: str) -> None:
    lines = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    header = lines[: next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    words = [line.removeprefix("# ").split(":")[0] for line in header]
    assert [word for word in words if word in ("command", "hardware", "time", "expected")] == [
        "command",
        "hardware",
        "time",
        "expected",
    ]
    assert any(f"mein train --preset {name} " in line for line in header)


def test_only_presets_for_few_labels_let_imitators_read_labeled_text() -> None:
    """With many labels it brings nothing, and the paper's do not (log/)."""
    reading = {name for name in PRESETS if load_config(name).imitator_training.reads_labeled}
    assert reading == {"small", "frozen", "transformer"}


def test_full_is_the_defaults() -> None:
    assert load_config("full") == Config()


def test_the_papers_presets_have_no_lexicon() -> None:
    silent = {name for name in PRESETS if not load_config(name).mixture.has_lexicon}
    assert silent == {"paper", "paper-large"}


def test_paper_is_the_papers_table() -> None:
    """The table of hyper-parameters, line by line; M is that of sentiment classification."""
    paper = load_config("paper")
    stages = (paper.expert_training, paper.imitator_training, paper.fine_tuning)
    tuning = paper.fine_tuning.resolved(paper.expert.traits)
    table = {
        "Word Embedding Dim. (D)": paper.expert.embedding_dim,
        "Embedding Dropout Rate": DROPOUT,
        "LSTM Hidden State Dim. (H)": paper.expert.hidden_dim,
        "MLP Dim. (M) for SEC Task": paper.expert.mlp_dim,
        "CNN Kernel Dim. (N)": paper.imitators.channels,
        "Imitator Word Embedding Dim.": paper.imitators.embedding_dim,
        "Number of imitators (I)": len(paper.imitators.windows),
        "Mini-Batch Size": [stage.batch_documents for stage in stages],
        "Initial Learning Rate": [stage.learning_rate for stage in stages[:2]],
        "Fine-tune Learning Rate": paper.fine_tuning.learning_rate,
        "Decay Rate": [how.decay for how in (stage_1(paper), tuning)],
        "Baseline Max Epoch": paper.expert_training.epochs,
        "Fine-tune Max Epoch": paper.fine_tuning.epochs,
        "BPE merge operations": paper.pieces.vocabulary_size,
    }
    assert table == {
        "Word Embedding Dim. (D)": 256,
        "Embedding Dropout Rate": 0.5,
        "LSTM Hidden State Dim. (H)": 1024,
        "MLP Dim. (M) for SEC Task": 30,
        "CNN Kernel Dim. (N)": 512,
        "Imitator Word Embedding Dim.": 512,
        "Number of imitators (I)": 4,
        "Mini-Batch Size": [32, 32, 32],
        "Initial Learning Rate": [0.001, 0.001],
        "Fine-tune Learning Rate": 0.0001,
        "Decay Rate": [0.9998, 0.9998],
        "Baseline Max Epoch": 30,
        "Fine-tune Max Epoch": 30,
        "BPE merge operations": 20_000,
    }


def test_paper_takes_its_predecessors_choices_where_it_is_silent() -> None:
    paper = load_config("paper")
    assert paper.words.model_dump() == {
        "tokenizer": "paper",
        "lowercase": False,
        "max_words": 100_000,
        "max_length": None,
    }
    assert paper.imitators.windows == (1, 2, 3, 4)
    assert LEAKY_SLOPE == 0.2
    assert paper.mixture.method == "paper"
    assert paper.dev_fraction == 0.1
