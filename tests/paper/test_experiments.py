"""Experiments: each cell is computed once, resumed, recorded as a line; pages come from the lines alone."""

import json
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mein import __version__
from mein.config import load_config, parse_overrides
from mein.errors import ConfigError, InputError, RunError
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE, RANDOM_IMITATORS
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN
from mein.model.artefacts import seal
from mein.model.loading import Classifiers, load_model, read_config
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.store.store import Store
from paper import cells, tables
from paper.cells import (
    CHOSEN,
    CHOSEN_IN_SELF_TRAINING,
    CHOSEN_ON,
    DATA,
    EXPERTS,
    MAIN_RUN,
    OURS,
    OWNED,
    PREVIOUS_RUNS,
    RESULTS,
    VARIANTS,
    Cell,
)
from paper.column import cells_that_fit, command, commit, encoded_text, run_column
from paper.experiment import Experiment, shared_settings
from paper.lines import append_lines, cell_of, correct_of, line_of, missing, read_lines, seconds_of
from paper.run import Request, reproduce, write_pages
from paper.tables import more_data_figure, speed_table, windows_figure
from tests.support import hub_models, tiny
from tests.support.shell import paper, refuses

FEWER = "imn-w1234-u30"
OWN = {"fine_tuning.epochs": 1, "pretraining.epochs": 2, "imitator_training.reads_labeled": False}
SETTINGS = {name: value for name, value in tiny.SETTINGS.items() if name not in OWNED} | OWN


def put_data(folder: Path, *left_out: str, **others: dict[str, Any]) -> None:
    """The embedded corpus, small, as a data set; parts may be left out, or be others."""
    texts, half = tiny.TEXTS, len(tiny.TEXTS.labeled_texts) // 2
    parts: dict[str, dict[str, Any]] = {
        "train": {"text": texts.labeled_texts[:half], "label": texts.labeled_labels[:half]},
        "dev": {"text": texts.labeled_texts[half:], "label": texts.labeled_labels[half:]},
        "test": {"text": texts.test_texts, "label": texts.test_labels},
        "unlabeled": {"text": texts.unlabeled_texts},
    }
    folder.mkdir(parents=True)
    for name, columns in (parts | others).items():
        if name not in left_out:
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A data set, and folders beside it."""
    folder = tmp_path_factory.mktemp("experiment")
    put_data(folder / "data/toy")
    return Experiment(folder / "data", folder / "work", folder / "results", "small", SETTINGS, Quiet())


@pytest.fixture(scope="module")
def lines(experiment: Experiment) -> list[dict[str, Any]]:
    """The results of one expert: all variants, two more sets of windows, and less text."""
    grid = [Cell("toy", "lm-lstm", variant, 0) for variant in VARIANTS]
    grid += [Cell("toy", "lm-lstm", "imn", 0, (1,)), Cell("toy", "lm-lstm", "imn", 0, unlabeled=30)]
    run_column(experiment, grid)
    return read_lines(experiment.results)


def folder_of(experiment: Experiment, name: str) -> Path:
    return experiment.work / "toy/lm-lstm/seed-0" / name


def test_every_cell_gets_a_line(lines: list[dict[str, Any]]) -> None:
    assert len(lines) == len(VARIANTS) + 2
    for line in lines:
        assert line["documents"] == len(tiny.TEXTS.test_texts)
        assert line["test_error"] == pytest.approx(100 * np.mean(~correct_of(line)))


def test_an_error_is_what_the_run_s_own_model_makes_on_the_test_set(
    experiment: Experiment, lines: list[dict[str, Any]]
) -> None:
    model = load_model(folder_of(experiment, "main"), "cpu")
    predicted = model.labels.decode(model.log_probs(tiny.TEXTS.test_texts).argmax(axis=1))
    wrong = [a != b for a, b in zip(predicted, tiny.TEXTS.test_labels, strict=True)]
    (line,) = [line for line in lines if cell_of(line) == Cell("toy", "lm-lstm", "imn", 0)]
    assert (~correct_of(line)).tolist() == wrong


def test_what_runs_share_is_computed_once(experiment: Experiment, lines: list[dict[str, Any]]) -> None:
    """Expert and text are the same files; the paper's gates take over the imitators, less their offset."""
    main = folder_of(experiment, "main")
    for name in ("imn-paper-w1234-uall", "imn-lexicon-w1234-uall", "imn-w1-uall", FEWER):
        other = folder_of(experiment, name)
        assert (other / "expert.safetensors").samefile(main / "expert.safetensors")
        shard = "encoded/unlabeled/shard-00000.arrow"
        assert (other / shard).samefile(main / shard)
    ours, _ = load_tensors(main / "imitators.safetensors")
    theirs, _ = load_tensors(folder_of(experiment, "imn-paper-w1234-uall") / "imitators.safetensors")
    assert ours["offset"].abs().sum() > 0
    assert theirs.pop("offset").abs().sum() == 0
    assert all(tensor.equal(ours[name]) for name, tensor in theirs.items())
    losses = [
        RunFolder(folder_of(experiment, name)).metrics("imitators")[1]["loss"] for name in ("main", FEWER)
    ]
    assert losses[0] != losses[1]
    assert not (main / "language_model.safetensors").exists()
    assert (experiment.work / "toy/language-model-lm-lstm-6/language_model.safetensors").exists()


def test_the_lexicon_has_a_run_of_its_own_over_the_main_run_s_imitators(
    experiment: Experiment, lines: list[dict[str, Any]]
) -> None:
    main, own = (
        load_model(folder_of(experiment, name), "cpu") for name in ("main", "imn-lexicon-w1234-uall")
    )
    assert main.lexicon is None
    assert own.lexicon is not None
    pieces = own.encode(tiny.TEXTS.test_texts)
    np.testing.assert_array_equal(own.alpha(pieces), main.alpha(pieces))


def test_the_lexicon_s_control_is_of_its_own_run(experiment: Experiment, lines: list[dict[str, Any]]) -> None:
    own = RunFolder(folder_of(experiment, "imn-lexicon-w1234-uall"))
    assert not (own / "random.safetensors").exists()
    closed = Classifiers(own, read_config(own), torch.device("cpu")).load("closed")
    assert closed.lexicon is not None
    predicted = closed.labels.decode(closed.log_probs(tiny.TEXTS.test_texts).argmax(axis=1))
    wrong = [a != b for a, b in zip(predicted, tiny.TEXTS.test_labels, strict=True)]
    (line,) = [line for line in lines if cell_of(line).variant == "closed-lexicon"]
    assert (~correct_of(line)).tolist() == wrong


def test_lexicons_are_learned_once_for_all_experts_and_seeds(
    experiment: Experiment, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    cell, first = Cell("toy", "lstm", "imn-lexicon", 1), folder_of(experiment, "imn-lexicon-w1234-uall")
    runs = experiment.work / "toy/lstm/seed-1"
    run_column(replace(experiment, results=tmp_path), [cell, Cell("toy", "lstm", "imn", 1)])
    for name in (LEXICON, LEXICON_OF_TRAIN):
        assert (runs / cell.run / name).samefile(first / name)
        assert not (runs / "main" / name).exists()


def test_labels_may_be_weighed_if_all_runs_in_a_folder_do(
    experiment: Experiment, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    weighed = replace(experiment, settings=experiment.settings | {"class_weight": "balanced"})
    cell = Cell("toy", "lstm", "plain", 0)
    run_column(replace(weighed, work=tmp_path / "work", results=tmp_path), [cell])
    assert [cell_of(line) for line in read_lines(tmp_path)] == [cell]
    with pytest.raises(RunError, match=r"text holds another run: its config\.class_weight is None, not 'bal"):
        run_column(weighed, [cell])


def test_each_variant_reports_its_own_system(
    experiment: Experiment, lines: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = (EXPERT, CLOSED_GATES, RANDOM_IMITATORS, MIXTURE)
    count = len(tiny.TEXTS.test_texts)
    shown = {system: np.arange(count) != at for at, system in enumerate(systems)}
    monkeypatch.setattr("paper.column.read_correct", lambda folder: shown)
    again = replace(experiment, results=tmp_path)
    run_column(again, [Cell("toy", "lm-lstm", variant, 0) for variant in VARIANTS])
    found = {line["variant"]: systems[int((~correct_of(line)).argmax())] for line in read_lines(tmp_path)}
    assert found == {
        **{
            "plain": EXPERT,
            "closed": CLOSED_GATES,
            "random": RANDOM_IMITATORS,
            "closed-lexicon": CLOSED_GATES,
        },
        **dict.fromkeys(("imn", "imn-paper", "imn-lexicon"), MIXTURE),
    }


def test_others_branch_off_while_the_main_run_is_at_stage_3(experiment: Experiment, tmp_path: Path) -> None:
    own = replace(experiment, work=tmp_path / "work", results=tmp_path / "results")
    ours, paper = (Cell("toy", "lstm", variant, 0) for variant in ("imn", "imn-paper"))
    run_column(own, [ours, paper])
    before = {cell_of(line): correct_of(line).tolist() for line in read_lines(own.results)}
    main, branched = (RunFolder(tmp_path / "work/toy/lstm/seed-0" / cell.run) for cell in (ours, paper))
    for name in ("done", "mixture.safetensors"):
        (main / name).unlink()
    shutil.rmtree(branched.path)
    shutil.rmtree(own.results)
    with main.held():  # as the process does that tunes its mixture
        run_column(own, [paper])
    assert {cell_of(line): correct_of(line).tolist() for line in read_lines(own.results)} == {
        paper: before[paper]
    }
    assert not (main / "mixture.safetensors").exists()
    others = replace(own, settings=own.settings | {"expert.mlp_dim": 7})
    with pytest.raises(RunError, match=r"main holds another run: its config\.expert\.mlp_dim is"):
        run_column(others, [paper])


def test_the_paper_s_gates_have_imitators_that_learned_as_the_paper_s(
    experiment: Experiment, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Where ours also read the labeled text, they are not taken over, and become what they are above."""
    settings = experiment.settings | {"imitator_training.reads_labeled": True}
    run_column(
        replace(experiment, work=tmp_path / "work", results=tmp_path / "results", settings=settings),
        [Cell("toy", "lm-lstm", "imn", 0), Cell("toy", "lm-lstm", "imn-paper", 0)],
    )
    ours, theirs = (
        load_tensors(tmp_path / "work/toy/lm-lstm/seed-0" / name / "imitators.safetensors")[0]
        for name in ("main", "imn-paper-w1234-uall")
    )
    as_above, _ = load_tensors(folder_of(experiment, "main") / "imitators.safetensors")
    name = "outputs.0.weight"
    assert not theirs[name].equal(ours[name])
    assert theirs[name].allclose(as_above[name], atol=1e-6)


def test_a_second_run_computes_nothing(experiment: Experiment, lines: list[dict[str, Any]]) -> None:
    before = {path: path.stat().st_mtime_ns for path in experiment.work.rglob("*.safetensors")}
    done = {cell_of(line) for line in lines}
    run_column(experiment, [Cell("toy", "lm-lstm", "imn", 0)])
    assert {path: path.stat().st_mtime_ns for path in experiment.work.rglob("*.safetensors")} == before
    assert {cell_of(line) for line in read_lines(experiment.results)} == done


def test_transformers_that_are_cut_elsewhere_share_no_text(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    model = hub_models.build("Bert", tmp_path / "bert", classes=None)
    put_data(tmp_path / "data/toy")
    cell = Cell("toy", "transformer", "plain", 0)
    for layers in (None, 1):
        settings = SETTINGS | {"expert.model": str(model), "expert_training.learning_rate": 1e-3}
        own = replace(elsewhere(tmp_path), settings=settings | {"expert.layers": layers})
        text = encoded_text(own, cell, own.work, own.corpus("toy", 0))
        config = json.loads((text / "hub/config.json").read_text(encoding="utf-8"))
        assert config["num_hidden_layers"] == (2 if layers is None else 1)


def test_a_transformer_has_a_row_by_its_own_tokens_which_a_page_shows_once_it_has_results(
    tmp_path: Path,
) -> None:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    model = hub_models.build("Bert", tmp_path / "bert", classes=None)
    put_data(tmp_path / "data/toy")
    settings = SETTINGS | {"expert.model": str(model), "words.max_length": 12}
    settings |= {"expert_training.learning_rate": 1e-3}
    own = replace(elsewhere(tmp_path), settings=settings)
    reproduce(request(own, experts=("transformer",), settings=settings), jobs=1)
    lines = read_lines(own.results)
    assert {line["variant"] for line in lines} == set(VARIANTS)
    work = own.work / "toy"
    assert sorted(path.name for path in work.iterdir()) == ["text-transformer", "transformer"]
    weights = {path.stat().st_ino for path in work.rglob("hub/model.safetensors")}
    assert len(weights) == 1  # fetched once, and linked
    tokens = Store.open(work / "text-transformer/encoded/train").words(0)
    assert tokens.values.max() < len(hub_models.word_pieces())
    rows = {row.split(" | ")[0] for row in tables.results_page(lines).splitlines()}
    assert "| transformer" in rows
    assert "| transformer" not in tables.results_page([made_up("lstm", "plain", 0, 100)])
    with pytest.raises(ConfigError, match=r"'transformer' but expert\.model is not set"):
        reproduce(request(elsewhere(tmp_path / "no-model"), experts=("transformer",)), jobs=1)


def test_missing_cells_are_those_without_a_line(lines: list[dict[str, Any]]) -> None:
    grid = cells.results("toy", ("lm-lstm",), range(2))
    assert {cell.seed for cell in missing(grid, lines)} == {1}


def test_the_grids_are_the_paper_s() -> None:
    assert len(list(cells.results("imdb", tuple(EXPERTS), range(5)))) == 7 * 7 * 5
    assert {cell.windows for cell in cells.windows("imdb", ("lstm",), range(1))} >= {
        (1,),
        (1, 2),
        (3, 4),
        (4,),
    }
    assert [cell.unlabeled for cell in cells.more_data("imdb", ("lstm",), range(1))][:2] == [5_000, 20_000]
    assert set(RESULTS) == set(EXPERTS)


def made_up(expert: str, variant: str, seed: int, wrong: int, documents: int = 1_000) -> dict[str, Any]:
    correct = np.arange(documents) >= wrong
    figures: dict[str, Any] = {
        "dev_error": 1.0,
        "test_error": 100 * wrong / documents,
        "seconds": 60.0,
        "shared_seconds": 90.0,
    }
    figures |= {"settings": "d", "command": "mein", "hardware": "a", "commit": "c"}
    return line_of(Cell("imdb", expert, variant, seed), figures, correct)


def test_the_page_shows_mean_spread_number_and_the_paper_s_figure() -> None:
    lines = [made_up("lstm", "plain", seed, wrong) for seed, wrong in ((0, 100), (1, 110))]
    page = tables.results_page(lines)
    assert "| lstm | 10.50 ± 0.71 [2] (10.98) |" in page
    assert "48 of 49 cells are empty." in page


def test_the_page_names_rows_without_any_figure_in_one_sentence() -> None:
    page = tables.results_page([made_up("lstm", "plain", 0, 100) | {"dataset": "r52"}])
    assert page.count("\n| lstm |") == 1
    assert "\n| lm-lstm |" not in page
    assert "are omitted: lm-lstm, adv-lm-lstm, vat-lm-lstm, ivat-lstm, elmo-lstm, adv-lm-lstm-large." in page
    page = tables.results_page([made_up("lstm", "plain", 0, 100)])
    assert "\n| ivat-lstm | (5.66) |" in page
    assert "are omitted" not in page


@pytest.mark.parametrize(("imn", "is_starred"), [(40, True), (99, False), (120, False)])
def test_a_star_is_for_what_beats_every_rival_beyond_chance(imn: int, is_starred: bool) -> None:
    lines = [made_up("lstm", rival, 0, 100) for rival in ("plain", "closed", "random")]
    page = tables.results_page([*lines, made_up("lstm", "imn", 0, imn)])
    assert (f"{imn / 10:.2f} [1]\\*" in page) == is_starred


@pytest.mark.parametrize(("closed", "is_starred"), [(40, True), (10, False), (None, False)])
def test_a_star_with_a_lexicon_is_for_what_also_beats_closed_gates_with_one(
    closed: int | None, is_starred: bool
) -> None:
    lines = [made_up("lstm", rival, 0, 100) for rival in ("plain", "closed", "random", "imn")]
    lines += [] if closed is None else [made_up("lstm", "closed-lexicon", 0, closed)]
    page = tables.results_page([*lines, made_up("lstm", "imn-lexicon", 0, 11)])
    assert ("1.10 [1]\\*" in page) == is_starred


def test_a_star_needs_all_rivals() -> None:
    lines = [made_up("lstm", "plain", 0, 100), made_up("lstm", "imn", 0, 10)]
    assert "\\*" not in tables.results_page(lines).split("## imdb")[1]


def test_the_page_is_made_from_the_lines_alone(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    copy = tmp_path / "results"
    append_lines(copy / "toy.jsonl", lines)
    write_pages(copy, tmp_path / "a/page/results.md")
    page = (tmp_path / "a/page/results.md").read_text(encoding="utf-8")
    assert page.startswith(tables.results_page(json.loads(json.dumps(lines))))
    assert "### Windows" in page
    figure = ElementTree.parse(tmp_path / "a/page/results-windows-toy.svg").getroot()
    assert "![windows, toy](results-windows-toy.svg)" in page
    described = next(part.text for part in figure if part.tag.endswith("desc"))
    errors = {tuple(line["windows"]): line["test_error"] for line in lines if line["variant"] == "imn"}
    assert described is not None
    assert f"{errors[(1,)]:.2f}" in described


def test_more_data_is_drawn_beside_the_paper_s_curve() -> None:
    lines = [
        made_up("adv-lm-lstm", "imn", 0, 60) | {"unlabeled": n, "dataset": "elec"} for n in (5_000, 50_000)
    ]
    figure = more_data_figure("elec", lines)
    assert figure is not None
    assert "adv-lm-lstm + IMN: 6.00, 6.00; ADV-LM-LSTM + IMN, paper: 5.36, 5.28" in figure
    assert ">50,000<" in figure
    assert more_data_figure("elec", []) is None


def request(experiment: Experiment, **others: Any) -> Request:
    named: dict[str, Any] = {"grid": "results", "datasets": ("toy",), "experts": ("lstm",), "seeds": range(1)}
    named |= {"data": experiment.data, "work": experiment.work, "results": experiment.results}
    named |= {"preset": "small", "settings": SETTINGS, "only": None, "arguments": ()}
    return Request(**named | others)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"grid": "speed"}, "Unknown grid 'speed': choose one of results, windows, more-data."),
        ({"experts": ("lstn",)}, "Unknown expert 'lstn': choose among lstm, lm-lstm, .*"),
    ],
)
def test_what_is_unknown_is_refused(experiment: Experiment, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        reproduce(request(experiment, **wrong), jobs=1)


def test_an_unknown_data_set_is_named_beside_those_that_are_there(experiment: Experiment) -> None:
    for name in ("nowhere", "", "toy/.."):
        with pytest.raises(InputError, match=f"no data set '{name}' .* under .*data: choose among toy"):
            reproduce(request(experiment, datasets=(name,)), jobs=1)


def test_a_set_without_raw_text_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    put_data(tmp_path / "data/rotten", "unlabeled")
    remedy = "put it there, or make the set with `python -m paper data rotten --more"
    sentence = rf"unlabeled\.parquet is missing, .*: {remedy}"
    with pytest.raises(InputError, match=sentence):
        reproduce(request(elsewhere(tmp_path), datasets=("rotten",)), jobs=1)
    assert not (tmp_path / "work").exists()


def elsewhere(folder: Path) -> Experiment:
    return Experiment(folder / "data", folder / "work", folder / "results", "small", SETTINGS, Quiet())


def test_without_a_dev_part_all_seeds_choose_on_the_same_and_one_failure_stops_no_other(
    tmp_path: Path,
) -> None:
    put_data(tmp_path / "data/bad", dev={"text": ["a"], "label": ["of no class"]})
    put_data(tmp_path / "data/nodev", "dev")
    others = elsewhere(tmp_path)
    with pytest.raises(RunError, match=r"6 of 12 runs failed. The first: .*of no class"):
        reproduce(request(others, datasets=("bad", "nodev"), seeds=range(2)), jobs=1)
    lines = read_lines(others.results)
    assert {(line["dataset"], line["seed"]) for line in lines} == {("nodev", 0), ("nodev", 1)}
    assert len(lines) == 2 * len(VARIANTS)
    seeds = [
        RunFolder(others.work / f"nodev/lstm/seed-{seed}/main").read_json("labels.json") for seed in (0, 1)
    ]
    assert seeds[0] == seeds[1]


def test_a_gpu_that_is_full_fails_one_run_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")

    put_data(tmp_path / "data/toy")
    monkeypatch.setattr("paper.column.train_and_evaluate", fail)
    with pytest.raises(RunError, match=r"3 of 3 runs failed. The first: The GPU's memory is full \(CUDA"):
        reproduce(request(elsewhere(tmp_path)), jobs=1)


class KeptLines(Quiet):
    """A reporter that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


def test_no_amount_of_text_is_reported_that_does_not_exist(
    experiment: Experiment, lines: list[dict[str, Any]]
) -> None:
    """120 unlabeled documents, of which 12 are held out."""
    asked = [Cell("toy", "lm-lstm", "imn", 0, unlabeled=amount) for amount in (30, 120, 121, 5_000)]
    reporter = KeptLines()
    assert cells_that_fit(replace(experiment, reporter=reporter), asked) == asked[:2]
    assert reporter.lines[-1] == "toy has 108 unlabeled documents to learn from: 121, 5,000 are left out."


@pytest.mark.parametrize(
    "name",
    [
        *(
            "seed",
            "expert.kind",
            "expert.training",
            "expert.language_model",
            "imitators.windows",
            "imitators",
        ),
        *("imitator_training.documents", "mixture.method"),
    ],
)
def test_what_the_grid_sets_is_refused(experiment: Experiment, name: str) -> None:
    value = {"windows": [1]} if name == "imitators" else 1
    with pytest.raises(ConfigError, match=rf"{name}.* is the grid's own to set: leave out --set {name}"):
        reproduce(request(experiment, settings={name: value}), jobs=1)


@pytest.mark.parametrize("preset", ["small", "paper"])
def test_a_row_matches_its_title_whatever_the_preset(experiment: Experiment, preset: str) -> None:
    config = replace(experiment, preset=preset).config("toy", "lstm", 3)
    assert (config.expert.kind, config.expert.training, config.seed) == ("lstm", "plain", 3)
    assert config.mixture.method == "no-lexicon"
    assert config.imitators.windows == cells.WINDOWS


def test_results_of_other_settings_are_neither_taken_nor_joined(
    experiment: Experiment, lines: list[dict[str, Any]]
) -> None:
    wanted = {"experts": ("lm-lstm",), "seeds": range(1, 2)}
    sentence = (
        rf"{len(lines)} cells have results of other settings \(lm-lstm on toy\): .* another --results\."
    )
    for name, value in (("expert_training.epochs", 3), ("expert.mlp_dropout", 0.1)):
        with pytest.raises(ConfigError, match=sentence):
            reproduce(request(experiment, **wanted, settings=SETTINGS | {name: value}), jobs=1)
    shown = SETTINGS | {"runtime.checkpoint_seconds": 5.0}
    reproduce(request(experiment, experts=("lm-lstm",), settings=shown), jobs=1)


def test_runs_of_other_settings_are_not_taken_for_these(
    experiment: Experiment, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    for name in ("expert_training.epochs", "pretraining.epochs"):
        other = replace(experiment, results=tmp_path, settings=SETTINGS | {name: 7})
        with pytest.raises(RunError, match=rf"its config\.{name} is 2, not 7; choose another --work"):
            run_column(other, [Cell("toy", "lm-lstm", "imn", 0)])


def test_settings_of_a_language_model_do_not_part_results_without_one(experiment: Experiment) -> None:
    other = replace(experiment, settings=SETTINGS | {"pretraining.epochs": 7})
    assert other.digest("toy", "lstm") == experiment.digest("toy", "lstm")
    assert other.digest("toy", "lm-lstm") != experiment.digest("toy", "lm-lstm")


def test_the_page_shows_where_settings_differ() -> None:
    lines = [made_up("lstm", "plain", 0, 100), made_up("lm-lstm", "plain", 0, 100) | {"settings": "e"}]
    assert "different settings" not in tables.results_page(lines)
    page = tables.results_page([*lines, made_up("lstm", "imn", 1, 100) | {"settings": "e"}])
    assert "**Results of lstm come from different settings** (d, e)." in page


def test_full_has_what_was_chosen_on_dev_and_a_setting_wins_over_it(experiment: Experiment) -> None:
    full = replace(experiment, preset="full", settings={})
    for expert, rate, dropout, epochs in (
        ("lstm", 1e-3, 0.0, 12),
        ("lm-lstm", 5e-4, 0.5, 10),
        ("adv-lm-lstm", 1e-3, 0.5, 15),
        ("adv-lm-lstm-large", 1e-3, 0.5, 10),
        ("vat-lm-lstm", 1e-3, 0.0, 10),
    ):
        config = full.config("toy", expert, 0)
        training = config.expert_training
        assert (training.learning_rate, training.epochs, training.averaging) == (rate, epochs, 0.999)
        assert config.expert.mlp_dropout == dropout
        assert config.pretraining.patience is None
    assert full.shared_config("toy", ("pretraining",)).pretraining.patience is None
    settings = {"expert_training.learning_rate": 2e-3, "expert_training.epochs": 4, "pretraining.patience": 2}
    given = replace(full, settings=settings)
    training = given.config("toy", "lm-lstm", 0).expert_training
    assert (training.learning_rate, training.epochs, training.averaging) == (2e-3, 4, 0.999)
    assert given.shared_config("toy", ("pretraining",)).pretraining.patience == 2


def test_a_data_set_has_its_own_choices_and_a_setting_wins_over_them(experiment: Experiment) -> None:
    full = replace(experiment, preset="full", settings={})
    of_r52 = full.config("r52", "adv-lm-lstm", 0)
    assert (of_r52.expert.mlp_dim, of_r52.expert.mlp_dropout, of_r52.expert_training.epochs) == (128, 0.5, 20)
    assert of_r52.pretraining == full.shared_config("r52", ("pretraining",)).pretraining
    assert of_r52.pretraining.epochs == 20
    given = replace(full, settings={"pretraining.epochs": 3, "expert_training.epochs": 4})
    assert given.config("r52", "lstm", 0).expert_training.epochs == 4
    assert given.shared_config("r52", ("pretraining",)).pretraining.epochs == 3


def test_runs_their_language_model_and_their_lines_have_the_choices_of_their_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = {"expert_training.epochs": 3, "pretraining.epochs": 1}
    monkeypatch.setitem(CHOSEN_ON, "toy", epochs)
    put_data(tmp_path / "data/toy")
    settings = {name: value for name, value in SETTINGS.items() if name not in epochs}
    full = replace(elsewhere(tmp_path), preset="full", settings=settings)
    asked = request(full, experts=("lm-lstm",), preset="full", settings=settings, only="main")
    reproduce(asked, jobs=1)
    for name, stage in (("lm-lstm/seed-0/main", "expert_training"), ("language-model-*", "pretraining")):
        (path,) = (full.work / "toy").glob(f"{name}/config.json")
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
        assert config[stage]["epochs"] == epochs[f"{stage}.epochs"]
    lines = read_lines(full.results)
    assert {line["settings"] for line in lines} == {full.digest("toy", "lm-lstm")}
    reproduce(asked, jobs=1)  # nothing is missing, and nothing refused
    monkeypatch.delitem(CHOSEN_ON, "toy")
    with pytest.raises(ConfigError, match=f"{len(lines)} cells have results of other settings"):
        reproduce(asked, jobs=1)


def test_published_rows_have_the_choices_of_the_grid() -> None:
    """But for a few: ADV at another learning rate, and experts that read less of a document.

    What a row of ours started from is shown by its command alone.
    """
    others = {("rotten", "adv-lm-lstm")}
    others |= {("imdb-400", "adv-lm-lstm"), ("imdb-150k", "lstm")}
    full = Experiment(DATA, DATA, DATA, "full", {}, Quiet())
    lines = read_lines(Path(__file__).parents[2] / "results")
    lines = [line for line in lines if line["expert"] not in OURS]
    rows = {(line["dataset"], line["expert"]): line["settings"] for line in lines}
    assert {row for row, digest in rows.items() if full.digest(*row) != digest} == others


@pytest.mark.parametrize("preset", ["small", "paper"])
def test_other_presets_are_taken_at_their_word(experiment: Experiment, preset: str) -> None:
    own = replace(experiment, preset=preset, settings={})
    for expert in EXPERTS:
        expected = load_config(preset, overrides=MAIN_RUN | EXPERTS[expert] | {"seed": 3})
        assert own.config("r52", expert, 3) == expected
    sections = tuple({name.split(".")[0] for name in CHOSEN})
    assert own.shared_config("r52", sections) == load_config(preset)


def test_the_published_lines_can_be_continued_by_their_own_commands() -> None:
    results = Path(__file__).parents[2] / "results"
    lines = [line for place in ("", "waiting", "withdrawn") for line in read_lines(results / place)]
    assert len(lines) >= 30
    for line in lines:
        words = shlex.split(line["command"])
        given = parse_overrides([after for word, after in pairwise(words) if word == "--set"])
        settings = shared_settings(given)
        preset = words[words.index("--preset") + 1]
        made = Experiment(DATA, DATA, DATA, preset, settings, Quiet())
        assert made.digest(line["dataset"], line["expert"]) == line["settings"], line["command"]


def test_two_at_the_same_run_wait_for_each_other_and_record_once(
    experiment: Experiment, lines: list[dict[str, Any]]
) -> None:
    cell = Cell("toy", "lm-lstm", "imn", 0, (2, 3, 4))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: run_column(experiment, [cell]), range(2)))
    written = (experiment.results / "toy.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum(cell_of(json.loads(line)) == cell for line in written) == 1


def test_time_outlives_a_kill(tmp_path: Path) -> None:
    """The expert was resumed: its step knows the last 1 s alone, its epochs 5 s."""
    folder = RunFolder(tmp_path)
    for epoch, seconds in enumerate((0.0, 2.0, 3.0)):
        folder.record("expert", epoch=epoch, seconds=seconds)
    folder.record("steps", step="expert", seconds=1.0)
    folder.record("mixture", epoch=1, seconds=1.5)
    folder.record("steps", step="mixture", seconds=2.0)
    assert seconds_of(folder) == 7.0


def test_a_line_has_the_time_of_what_it_shares(experiment: Experiment, lines: list[dict[str, Any]]) -> None:
    shared = [RunFolder(experiment.work / "toy" / name) for name in ("text", "language-model-lm-lstm-6")]
    assert min(map(seconds_of, shared)) > 0
    shown = {line["shared_seconds"] for line in lines}
    assert shown == {round(sum(map(seconds_of, shared)), 1)}
    page = tables.results_page([made_up("lstm", variant, 0, 100) for variant in ("plain", "imn")])
    assert "; 1 minutes of runs. " in page  # both cells are of one run
    assert "minutes of encoding, language models, and previous runs: lstm 1.5." in page


def test_a_command_makes_its_cell_anew(experiment: Experiment) -> None:
    settings = {
        "expert_training.patience": None,
        "words.lowercase": True,
        "words.tokenizer": "paper",
    }
    words = shlex.split(command(replace(experiment, settings=settings), Cell("toy", "lstm", "imn", 2)))
    assert words[words.index("--data") + 1] == str(experiment.data)
    assert parse_overrides(words[words.index("--set") + 1 :: 2]) == settings | {
        "expert_training.patience": "none"
    }
    assert "--data " not in command(replace(experiment, data=DATA), Cell("toy", "lstm", "imn", 2))


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_the_commit_is_that_of_the_package_s_own_files(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        asked = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    for name in ("package", "installed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    git("init")
    git("add", "package")
    git("commit", "-m", "a")
    head = git("rev-parse", "--short", "HEAD")
    assert commit(tmp_path / "package") == head
    (tmp_path / "package/__init__.py").write_text("x = 1\n", encoding="utf-8")
    assert commit(tmp_path / "package") == f"{head}+"
    assert commit(tmp_path / "installed") == __version__


def test_the_table_of_speed_comes_from_the_benches(tmp_path: Path) -> None:
    rate = {"median": 2_000_000.0, "lowest": 1_900_000.0, "highest": 2_100_000.0}
    plain = {"median": 500_000.0, "lowest": 400_000.0, "highest": 600_000.0}
    training = {"adv": {"ours_tokens_per_second": rate, "plain_tokens_per_second": plain}}
    (tmp_path / "bench-experts.json").write_text(json.dumps({"device": "a", "training": training}))
    rates = {"ours 64": plain, "ours 256": rate, "plain float32": plain}
    row = {"windows": [1, 2], "paper": 236_065, "tokens_per_second": rates}
    (tmp_path / "bench-imitators.json").write_text(json.dumps({"device": "a", "rows": [row]}))
    table = speed_table(tmp_path)
    shown = "2,000,000 (1,900,000 to 2,100,000) | 500,000 (400,000 to 600,000) | 4.0"
    assert f"| adv-lm-lstm | {shown} | 13,791 |" in table
    assert f"| c = 1, 2 | {shown} | 236,065 |" in table
    (tmp_path / "bench-experts.json").write_text("[]")
    with pytest.raises(InputError, match=r"bench-experts\.json is no result of a bench"):
        speed_table(tmp_path)


def test_without_a_bench_there_is_no_table_of_speed(tmp_path: Path) -> None:
    assert speed_table(tmp_path) == ""


def test_a_seed_without_its_split_is_refused_with_how_to_make_it(tmp_path: Path) -> None:
    put_data(tmp_path / "data/rotten/seed-0")
    put_data(tmp_path / "data/rotten/seed-1")
    own = elsewhere(tmp_path)
    assert own.place("rotten", 1) == "rotten/seed-1"
    remedy = r"make the set with `python -m paper data rotten --seed 2 --out .*data/rotten/seed-2`"
    with pytest.raises(InputError, match=rf"rotten/seed-2/train\.parquet is missing, .*{remedy}"):
        reproduce(request(own, datasets=("rotten",), seeds=range(3)), jobs=1)


def test_a_student_has_its_teacher_from_the_same_grid(
    experiment: Experiment, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    own = replace(experiment, results=tmp_path)
    teacher = folder_of(experiment, "imn-lexicon-w1234-uall")
    before = tiny.artefacts(teacher)
    run_column(own, [Cell("toy", "lm-lstm-student", variant, 0) for variant in ("plain", "imn-paper")])
    assert tiny.artefacts(teacher) == before  # it was there already
    found = read_lines(tmp_path)
    assert [(line["expert"], line["variant"]) for line in found] == [
        ("lm-lstm-student", "plain"),
        ("lm-lstm-student", "imn-paper"),
    ]
    folder = RunFolder(experiment.work / "toy/lm-lstm-student/seed-0/main")
    assert read_config(folder).expert.from_run == str(teacher)
    taught = [seconds_of(RunFolder(path)) for path in (teacher, folder_of(experiment, "main"))]
    assert found[0]["shared_seconds"] == pytest.approx(lines[0]["shared_seconds"] + sum(taught), abs=0.11)


def test_a_student_whose_teacher_is_not_there_yet_has_it_trained(
    experiment: Experiment, tmp_path: Path
) -> None:
    own = replace(experiment, work=tmp_path / "work", results=tmp_path / "results")
    run_column(own, [Cell("toy", "lm-lstm-student", "plain", 0)])
    assert (tmp_path / "work/toy/lm-lstm/seed-0/imn-lexicon-w1234-uall/done").exists()
    assert [line["expert"] for line in read_lines(own.results)] == ["lm-lstm-student"]


def test_students_have_no_place_in_the_grid_of_more_data(experiment: Experiment, tmp_path: Path) -> None:
    words = ["run", "--grid", "more-data", "--experts", "lm-lstm-student", "--data", experiment.data]
    words += ["--work", tmp_path / "work", "--results", tmp_path / "results"]
    refuses(
        r"lm-lstm-student has learned from all unlabeled text: choose others for the grid more-data\.",
        *words,
        by=paper,
    )


def test_students_are_rows_of_ours_with_settings_of_their_teachers(experiment: Experiment) -> None:
    full = replace(experiment, preset="full", settings={})
    for student, teacher in PREVIOUS_RUNS.items():
        named = {} if "lstm" in student else {"expert.model": "x"}
        ours, theirs = (full.config("rotten", name, 0, **named) for name in (student, teacher))
        own = CHOSEN_IN_SELF_TRAINING.get(student, {})
        wanted = full.config("rotten", teacher, 0, **named | own)
        assert ours == wanted
        assert (ours == theirs) == (not own)
    assert set(PREVIOUS_RUNS.values()) <= {*EXPERTS, *OURS}


@pytest.fixture
def finished(experiment: Experiment, lines: list[dict[str, Any]], tmp_path: Path) -> Experiment:
    """A copy of what was run, whose results are yet to be recorded."""
    for name in ("data", "work"):
        shutil.copytree(experiment.data.parent / name, tmp_path / name)
    own = elsewhere(tmp_path)
    for path in tmp_path.rglob("config.json"):  # data goes by its name
        text = path.read_text(encoding="utf-8").replace(str(experiment.data.parent), str(tmp_path))
        path.write_text(text, encoding="utf-8")
        if (path.parent / "done").exists():
            seal(RunFolder(path.parent))
    return own


@pytest.mark.parametrize("part", ["unlabeled", "test"])
def test_text_that_was_replaced_is_refused(finished: Experiment, part: str) -> None:
    run_column(finished, [Cell("toy", "lm-lstm", "plain", 0)])
    path = finished.data / f"toy/{part}.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(
        InputError, match=rf"{part}\.parquet differs from the file of the runs .* another --work"
    ):
        run_column(finished, [Cell("toy", "lm-lstm", "plain", 1)])
    assert len(read_lines(finished.results)) == 1


@pytest.mark.parametrize("name", ["expert.safetensors", "closed.safetensors", "predictions.parquet"])
def test_a_finished_run_that_lost_a_file_is_named(finished: Experiment, name: str) -> None:
    main = finished.work / "toy/lm-lstm/seed-0/main"
    (main / name).unlink()
    with pytest.raises(RunError, match=rf"main/{name} is missing: restore it from a copy of the run\."):
        run_column(finished, [Cell("toy", "lm-lstm", variant, 0) for variant in ("plain", "closed")])
    assert read_lines(finished.results) == []
    shutil.rmtree(main)
    run_column(finished, [Cell("toy", "lm-lstm", variant, 0) for variant in ("plain", "closed")])
    assert len(read_lines(finished.results)) == 2


def test_windows_are_compared_by_the_seeds_that_have_them_all() -> None:
    one = [made_up("lstm", "imn", seed, wrong) for seed, wrong in ((0, 50), (1, 90))]
    fewer = made_up("lstm", "imn", 0, 60) | {"windows": [1]}
    page = tables.results_page([*one, fewer])
    assert "| D: 1, 2, 3, 4 | 5.00 [1] |" in page
    assert "| A: 1 | 6.00 [1] |" in page
    assert " 7.00 ± 2.83 [2] |" in page  # the table of results has all seeds
    figure = windows_figure("imdb", [*one, fewer])
    assert figure is not None
    assert "lstm + IMN: 6.00, 5.00" in figure


def test_results_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    put_data(tmp_path / "data/toy")
    (tmp_path / "results").write_text("a file", encoding="utf-8")
    with pytest.raises(RunError, match=r"Cannot write .*results: File exists"):
        reproduce(request(elsewhere(tmp_path)), jobs=1)
    assert not list(tmp_path.glob("work/**/expert.safetensors"))


def test_several_at_a_time_report_which_have_ended_and_why_one_failed(tmp_path: Path) -> None:
    put_data(tmp_path / "data/bad", dev={"text": ["a"], "label": ["of no class"]})
    put_data(tmp_path / "data/toy")
    (tmp_path / "mein.py").write_text("1 / 0", encoding="utf-8")  # of no interest to the processes
    words = ["run", "--datasets", "bad,toy", "--experts", "lstm", "--preset", "small", "--jobs", "2"]
    for name, value in SETTINGS.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "paper", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    shown = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 2, shown
    assert "toy, lstm, seed 0, main has ended." in shown
    assert "6 of 6: " in shown
    assert "bad, lstm, seed 0, main failed." in shown
    assert shown.count("Error: ") == 1
    assert "3 of 6 runs failed. The first: " in shown
    assert {line["dataset"] for line in read_lines(tmp_path / "results")} == {"toy"}
