"""Few labels: which runs there are, a line for each, a second start, failures, and the command line."""

import csv
import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import few_labels
from benchmarks.draws import PROBLEMS, Cell, Document, load_problem, write_cell
from benchmarks.few_labels import Job, Request, job_of, label_jobs, measure, raw_jobs, read_lines, suite_jobs
from benchmarks.peers import Resources
from benchmarks.standings import Line, correct_of
from mein.data.demo import demo_corpus
from mein.errors import InputError, RunError
from tests.support.shell import SIZES, benchmarks, mein, refuses

DEMO = demo_corpus(seed=5, labeled=300, unlabeled=0, test=0)
ONE = Job("cr", 0, 60, 1.0, "tf-idf")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The suite's folder with 300 documents of two problems: 60 labels, 100 test documents."""
    for name in ("cr", "trec"):
        monkeypatch.setitem(PROBLEMS, name, replace(PROBLEMS[name], labels=60, tests=100))
        path = tmp_path / "data" / PROBLEMS[name].file
        path.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(path, "wt", encoding="utf-8") as file:
            for text, label in zip(DEMO.labeled_texts, DEMO.labeled_labels, strict=True):
                file.write(json.dumps({"text": text, "label": label}) + "\n")
    return tmp_path / "data"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process."""
    monkeypatch.setattr(few_labels, "_in_process", few_labels.run_job)


def request_of(data: Path, *systems: str, **given: object) -> Request:
    folder = data.parent
    usual = {"problems": ("cr",), "draws": (0, 1), "data": data, "work": folder / "work"}
    return Request(**{**usual, "systems": systems, "out": folder / "out.jsonl", **given})  # type: ignore[arg-type]


def shown(jobs: object) -> list[tuple[str, int, int, float, str]]:
    return [(j.problem, j.draw, j.labels, j.share, j.system) for j in jobs]  # type: ignore[attr-defined]


def test_the_suite_has_every_system_on_every_draw(data: Path) -> None:
    request = request_of(data, "tf-idf", "mein", problems=("trec", "cr"))
    assert shown(suite_jobs(request)) == [
        (problem, draw, 60, 1.0, system)
        for problem in ("trec", "cr")
        for draw in (0, 1)
        for system in ("tf-idf", "mein")
    ]


def test_labels_start_at_two_a_class_and_end_with_the_documents(data: Path) -> None:
    request = request_of(data, "mein", draws=(0,), sizes=(3, 4, 150, 200, 201))
    assert [job.labels for job in label_jobs(request)] == [4, 150, 200]


def test_only_what_learns_from_raw_text_is_run_with_less_of_it(data: Path) -> None:
    found = shown(raw_jobs(request_of(data, "tf-idf", "self-training", "mein", draws=(0,))))
    shares = {system: [job[3] for job in found if job[4] == system] for *_, system in found}
    assert shares == {"tf-idf": [1.0], "self-training": [0.25, 0.5, 1.0], "mein": [0.0, 0.25, 0.5, 1.0]}


def test_a_line_has_its_scores_and_answers_are_kept(data: Path, here: None) -> None:
    printed: list[str] = []
    assert measure(request_of(data, "tf-idf", draws=(0,)), "suite", 1, printed.append) == []
    (line,) = read_lines(data.parent / "out.jsonl")
    assert job_of(line) == ONE
    assert (line["raw"], line["documents"]) == (140, 100)
    folder = data.parent / "work/cells/cr-0-60-1"
    assert [path.name for path in folder.iterdir()] == ["tf-idf.npz"], "the draw's own files are gone"
    with np.load(folder / "tf-idf.npz") as kept:
        test = load_problem("cr", data, [0]).test
        assert kept["truth"].tolist() == [d.label for d in test]
        assert kept["answers"].tolist() == kept["classes"][kept["probabilities"].argmax(1)].tolist()
        correct = kept["answers"] == kept["truth"]
    assert correct_of(line).tolist() == correct.tolist()
    assert line["error"] == pytest.approx(100 * np.mean(~correct))
    assert printed[0] == "1 of 1 runs are missing."
    assert printed[1].startswith(f"1 of 1: cr 0, 60 labels, 140 raw, tf-idf: {line['error']:.1f}% error, ")


def test_a_second_start_runs_only_what_is_missing(
    data: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(data, "tf-idf", "self-training")
    measure(replace(request, draws=(0,)), "suite", 1, lambda printed: None)
    with request.out.open("a", encoding="utf-8") as file:
        file.write('{"problem": "cr", "draw": 1')  # cut short by a kill
    ran: list[Job] = []

    def run(job: Job, resources: Resources) -> Line:
        ran.append(job)
        return few_labels.run_job(job, resources)

    monkeypatch.setattr(few_labels, "_in_process", run)
    printed: list[str] = []
    measure(request, "suite", 2, printed.append)
    assert sorted(shown(ran)) == [("cr", 1, 60, 1.0, "self-training"), ("cr", 1, 60, 1.0, "tf-idf")]
    assert printed[0] == "2 of 4 runs are missing."
    assert {job_of(line) for line in read_lines(request.out)} == set(suite_jobs(request))
    assert len(request.out.read_bytes().splitlines()) == 4
    measure(request, "raw", 1, lambda printed: None)  # whose runs with all of the text are there
    assert sorted({(job.share, job.system) for job in ran[2:]}) == [
        (0.25, "self-training"),
        (0.5, "self-training"),
    ]


def test_a_stop_loses_nothing_that_was_done(data: Path, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: Job, resources: Resources) -> Line:
        if job.draw == 1:
            raise KeyboardInterrupt
        return few_labels.run_job(job, resources)

    monkeypatch.setattr(few_labels, "_in_process", run)
    request = request_of(data, "tf-idf", draws=(0, 1, 2))
    with pytest.raises(KeyboardInterrupt):
        measure(request, "suite", 1, lambda printed: None)
    assert [job_of(line) for line in read_lines(request.out)] == [ONE]


def test_a_run_in_a_process_of_its_own_gives_the_same_line(data: Path) -> None:
    request = request_of(data, "tf-idf", draws=(0,))
    measure(request, "suite", 1, lambda printed: None)
    (line,) = read_lines(request.out)
    folder = data.parent / "by-hand"
    write_cell(request.problem("cr").cell(0), folder)
    again = few_labels.run_job(ONE, Resources(None, folder, folder))
    assert {**line, "seconds": 0} == {**vars(ONE), "raw": 140, **again, "seconds": 0}


def test_a_run_that_fails_leaves_its_reason_and_is_run_again(data: Path, here: None) -> None:
    request = request_of(data, "mein", "tf-idf", draws=(0,), options=("--preset", "nonsense"))
    (failed,) = measure(request, "suite", 1, lambda printed: None)
    assert failed.startswith("cr 0, 60 labels, 140 raw, mein: mein train ended with code 2: Error: ")
    line, other = read_lines(request.out)
    assert line["error"] is None
    assert "nonsense" in line["why"]
    assert other["error"] is not None, "the others go on"
    printed: list[str] = []
    measure(request, "suite", 1, printed.append)
    assert printed[0] == "1 of 2 runs are missing."


def test_a_process_that_dies_leaves_a_line(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(data))
    (data / "sitecustomize.py").write_text("import os; os._exit(7)", encoding="utf-8")
    monkeypatch.setattr(few_labels, "own_path", lambda: str(data))
    (failed,) = measure(request_of(data, "tf-idf", draws=(0,)), "suite", 1, lambda printed: None)
    assert failed == "cr 0, 60 labels, 140 raw, tf-idf: its process ended with code 7"
    (data / "sitecustomize.py").write_text("import os; os.kill(os.getpid(), 15)", encoding="utf-8")
    with pytest.raises(RunError, match="The measurement was stopped: give the same command again to contin"):
        measure(request_of(data, "tf-idf", draws=(1,)), "suite", 1, lambda printed: None)


def test_mein_is_trained_and_predicts_as_a_command(
    data: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_labels, "_mein", lambda *words: mein(*words).out)
    options = ("--preset", "small", "--set", "expert.kind=average", *SIZES)
    request = request_of(data, "mein", draws=(0,), options=options)
    assert measure(request, "suite", 1, lambda printed: None) == []
    (line,) = read_lines(request.out)
    assert 0 < line["error"] < 100
    assert line["command"].startswith("mein train --labeled labeled.csv --out run-mein --preset small")
    assert line["command"].endswith("--unlabeled raw.csv")
    assert line["controls"]["mixture"]["error"] == pytest.approx(line["error"])
    assert 0 <= line["controls"]["closed"]["p_value"] <= 1
    folder = data.parent / "work/cells/cr-0-60-1"
    assert [path.name for path in folder.iterdir()] == ["mein.npz"], "the run is gone"
    others = "out.jsonl has results of mein with the options '--preset small .*, and --mein is '': choose ano"
    with pytest.raises(InputError, match=others):
        measure(replace(request, options=()), "suite", 1, lambda printed: None)
    peers = replace(request, options=(), systems=("tf-idf",))
    assert measure(peers, "suite", 1, lambda printed: None) == []


def test_a_class_without_labels_is_always_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def double(*words: object) -> str:
        """Certain of class a, and as strict as mein about unknown classes."""
        if words[0] == "predict":
            Path(str(words[4])).write_text("text,p_a,p_b\n" + "x,1.0,0.0\n" * 4, encoding="utf-8")
        if words[0] == "evaluate":
            assert Path(str(words[2])).read_text(encoding="utf-8") == "text,label\n1,a\n2,b\n4,a\n"
        return '{"systems": [{"system": "closed", "error": 50.0, "p_value": 0.5}]}'

    monkeypatch.setattr(few_labels, "_mein", double)
    test = [Document("1", "a"), Document("2", "b"), Document("3", "c"), Document("4", "a")]
    write_cell(Cell([Document("0", "a"), Document("00", "b")], [], test), tmp_path)
    line = few_labels.run_job(replace(ONE, system="mein"), Resources(None, tmp_path, tmp_path))
    assert (line["error"], line["controls"]) == (50.0, {"closed": {"error": 50.0, "p_value": 0.5}})
    assert correct_of(line).tolist() == [True, False, False, True]
    assert "--unlabeled" not in line["command"]


def test_probabilities_are_read_by_the_names_of_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "predicted.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text", "label", "p_b", "p_a, c"], ["x,\ny", "b", "0.25", "0.75"]])
    found = few_labels._predicted(path)
    assert (found.classes.tolist(), found.probabilities.tolist()) == (["a, c", "b"], [[0.75, 0.25]])


def test_what_cannot_run_is_refused_at_once(data: Path) -> None:
    with pytest.raises(InputError, match=r"'minilm' needs an encoder: name its folder by --encoder\."):
        request_of(data, "tf-idf", "minilm")
    with pytest.raises(InputError, match="'setfit' needs the package setfit, which is not installed: pip in"):
        request_of(data, "setfit", encoder=data)
    (data.parent / "out.jsonl").write_text('{"problem": 1}\n', encoding="utf-8")
    with pytest.raises(
        InputError, match=r"out\.jsonl line 1 is no result line: remove it, and measure again\."
    ):
        read_lines(data.parent / "out.jsonl")


def test_the_commands_pack_measure_and_show(data: Path, here: None, tmp_path: Path) -> None:
    packed = tmp_path / "pack"
    words: list[object] = ["--problems", "cr,trec", "--draws", "0,1"]
    answer = benchmarks("few-labels", "pack", packed, "--data", data, *words)
    assert answer.code == 0, answer
    assert answer.out.startswith(f"{packed} holds 0.0 MB.")
    words += ["--data", packed, "--work", tmp_path / "w", "--out", tmp_path / "r.jsonl"]
    answer = benchmarks("few-labels", "suite", *words, "--only", "tf-idf", "--jobs", "2")
    assert answer.code == 0, answer
    assert json.loads(answer.out)["problems"] == ["cr", "trec"]
    assert "4 of 4 runs are missing." in answer.err
    for command in ("labels", "raw"):
        answer = benchmarks("few-labels", command, *words, "--only", "tf-idf")
        assert answer.code == 0, answer
    assert len(read_lines(tmp_path / "r.jsonl")) == 4 + 2 * 2 * 3  # 50, 100, and 200 labels
    answer = benchmarks("few-labels", "page", tmp_path / "r.jsonl", "--out", tmp_path / "page/few.md")
    assert answer.out == f"Wrote {tmp_path / 'page/few.md'}.\n"


def test_wrong_words_are_refused(tmp_path: Path) -> None:
    def refused(sentence: str, *words: object) -> None:
        refuses(sentence, "few-labels", *words, by=benchmarks)

    refused("--problems 'x' is unknown: choose among trec, cr, .*", "suite", "--problems", "trec,x")
    refused("--only 'svm' is unknown: choose among tf-idf, .*", "raw", "--only", "svm")
    refused("--draws 'a' is no list of numbers: give them as 0,1,2.", "labels", "--draws", "a")
    refused("--sizes '-5' is no list of numbers: give them as 0,1,2.", "labels", "--sizes", "-5")
    refused(r"absent: there is no such folder\. Name the one with the data by --data\.",
            "pack", tmp_path, "--data", "absent")  # fmt: skip
    refused(r"absent\.jsonl: there is no such file\. Measure with `python -m benchmarks few-labels`\.",
            "page", "absent.jsonl")  # fmt: skip
