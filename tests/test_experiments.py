"""Experiments: each cell is computed once, resumed, recorded as a line; pages come from the lines alone."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.errors import ConfigError, InputError
from mein.experiments import cells, tables
from mein.experiments.cells import EXPERTS, VARIANTS, Cell
from mein.experiments.column import Experiment, run_column
from mein.experiments.figures import more_data_figure
from mein.experiments.lines import append_lines, cell_of, correct_of, line_of, missing, read_lines
from mein.experiments.published import RESULTS
from mein.experiments.speed import speed_table
from mein.model import load_model
from mein.progress import Silence
from mein.shell.reproduce import Request, reproduce, write_pages
from mein.training.checkpoint import load_tensors
from mein.training.folder import RunFolder
from tests import tiny

FEWER = "imn-w1234-u30"
SETTINGS = tiny.SETTINGS | {"imitators.windows": [1, 2, 3, 4], "fine_tuning.epochs": 1}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """The embedded corpus, small, as a data set, and folders beside it."""
    folder = tmp_path_factory.mktemp("experiment")
    texts, half = tiny.TEXTS, len(tiny.TEXTS.labeled_texts) // 2
    parts: dict[str, dict[str, Any]] = {
        "train": {"text": texts.labeled_texts[:half], "label": texts.labeled_labels[:half]},
        "dev": {"text": texts.labeled_texts[half:], "label": texts.labeled_labels[half:]},
        "test": {"text": texts.test_texts, "label": texts.test_labels},
        "unlabeled": {"text": texts.unlabeled_texts},
    }
    (folder / "data/toy").mkdir(parents=True)
    for name, columns in parts.items():
        pq.write_table(pa.table(columns), folder / f"data/toy/{name}.parquet")
    return Experiment(folder / "data", folder / "work", folder / "results", "small", SETTINGS, Silence())


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
    wanted = {"dev_error", "test_error", "seconds", "command", "commit", "hardware", "windows", "unlabeled"}
    for line in lines:
        assert wanted <= set(line)
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
    for name in ("imn-paper-w1234-uall", "imn-w1-uall", FEWER):
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


def test_a_second_run_computes_nothing(experiment: Experiment, lines: list[dict[str, Any]]) -> None:
    before = {path: path.stat().st_mtime_ns for path in experiment.work.rglob("*.safetensors")}
    done = {cell_of(line).key for line in lines}
    run_column(experiment, [Cell("toy", "lm-lstm", "imn", 0)])
    assert {path: path.stat().st_mtime_ns for path in experiment.work.rglob("*.safetensors")} == before
    assert {cell_of(line).key for line in read_lines(experiment.results)} == done


def test_missing_cells_are_those_without_a_line(lines: list[dict[str, Any]]) -> None:
    grid = cells.results("toy", ("lm-lstm",), range(2))
    assert {cell.seed for cell in missing(grid, lines)} == {1}


def test_the_grids_are_the_paper_s() -> None:
    assert len(list(cells.results("imdb", tuple(EXPERTS), range(5)))) == 7 * 5 * 5
    assert {cell.windows for cell in cells.windows("imdb", ("lstm",), range(1))} >= {
        (1,),
        (1, 2),
        (3, 4),
        (4,),
    }
    assert [cell.unlabeled for cell in cells.more_data("imdb", ("lstm",), range(1))][:2] == [5_000, 20_000]
    assert set(RESULTS) == set(EXPERTS)


def test_a_line_keeps_which_documents_were_wrong(tmp_path: Path) -> None:
    correct = np.array([True, False, True, True, False, False, True, True, False])
    cell = Cell("toy", "lstm", "plain", 3, (1, 2), 7)
    append_lines(tmp_path / "toy.jsonl", [line_of(cell, {"test_error": 1.0}, correct)])
    (line,) = read_lines(tmp_path)
    assert correct_of(line).tolist() == correct.tolist()
    assert cell_of(line) == cell


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "toy.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"toy\.jsonl line 1 is no result .*: mend or remove it\."):
        read_lines(tmp_path)


def made_up(expert: str, variant: str, seed: int, wrong: int, documents: int = 1_000) -> dict[str, Any]:
    correct = np.arange(documents) >= wrong
    figures = {"test_error": 100 * wrong / documents, "seconds": 60.0, "hardware": "a", "commit": "c"}
    return line_of(Cell("imdb", expert, variant, seed), figures, correct)


def test_the_page_shows_mean_spread_number_and_the_paper_s_figure() -> None:
    lines = [made_up("lstm", "plain", seed, wrong) for seed, wrong in ((0, 100), (1, 110))]
    page = tables.results_page(lines)
    assert "| lstm | 10.50 ± 0.71 [2] (10.98) |" in page
    assert "34 of 35 cells are empty." in page


@pytest.mark.parametrize(("imn", "is_starred"), [(40, True), (99, False), (120, False)])
def test_a_star_is_for_what_beats_every_rival_beyond_chance(imn: int, is_starred: bool) -> None:
    lines = [made_up("lstm", rival, 0, 100) for rival in ("plain", "closed", "random")]
    page = tables.results_page([*lines, made_up("lstm", "imn", 0, imn)])
    assert (f"{imn / 10:.2f} [1]\\*" in page) == is_starred


def test_a_star_needs_all_rivals() -> None:
    lines = [made_up("lstm", "plain", 0, 100), made_up("lstm", "imn", 0, 10)]
    assert "\\*" not in tables.results_page(lines).split("## imdb")[1]


def test_the_page_is_made_from_the_lines_alone(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    copy = tmp_path / "results"
    append_lines(copy / "toy.jsonl", lines)
    write_pages(copy, tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert page.startswith(tables.results_page(json.loads(json.dumps(lines))))
    assert "### Windows" in page
    figure = ElementTree.parse(tmp_path / "results-windows-toy.svg").getroot()
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


def test_missing_data_is_named(experiment: Experiment) -> None:
    with pytest.raises(InputError, match=r"nowhere/train\.parquet is missing: make it with `mein data"):
        reproduce(request(experiment, datasets=("nowhere",)), jobs=1)


def test_the_table_of_speed_comes_from_the_benches(tmp_path: Path) -> None:
    rate = {"median": 2_000_000.0, "lowest": 1_900_000.0, "highest": 2_100_000.0}
    plain = {"median": 500_000.0, "lowest": 400_000.0, "highest": 600_000.0}
    training = {"adv": {"ours_tokens_per_second": rate, "plain_tokens_per_second": plain}}
    (tmp_path / "bench-experts.json").write_text(json.dumps({"device": "a", "training": training}))
    rates = {"ours 64": plain, "ours 256": rate, "plain float32": plain}
    row = {"windows": [1, 2], "paper": 236_065, "tokens_per_second": rates}
    (tmp_path / "bench-imitators.json").write_text(json.dumps({"device": "a", "rows": [row]}))
    table = speed_table(tmp_path)
    told = "2,000,000 (1,900,000 to 2,100,000) | 500,000 (400,000 to 600,000) | 4.0"
    assert f"| adv-lm-lstm | {told} | 13,791 |" in table
    assert f"| c = 1, 2 | {told} | 236,065 |" in table
    (tmp_path / "bench-experts.json").write_text("[]")
    with pytest.raises(InputError, match=r"bench-experts\.json is no result of a bench"):
        speed_table(tmp_path)


def test_without_a_bench_there_is_no_table_of_speed(tmp_path: Path) -> None:
    assert speed_table(tmp_path) == ""
