"""Result lines: what is no result is named in one sentence; what a kill cut short heals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mein.errors import InputError, RunError
from paper.cells import Cell
from paper.lines import Line, append_lines, cell_of, correct_of, line_of, read_lines

FIGURES = {"dev_error": 1.0, "test_error": 50.0, "seconds": 2.0, "shared_seconds": None}
WORDS = {"settings": "d", "command": "mein \u2028", "commit": "c", "hardware": "h"}
CORRECT = np.array([True, False, True, True, False, False, True, True, False, False])


def result(seed: int = 3, correct: np.ndarray = CORRECT) -> Line:
    return line_of(Cell("toy", "lstm", "plain", seed, (1, 2), 7), FIGURES | WORDS, correct)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of one result."""
    append_lines(tmp_path / "toy.jsonl", [result()])
    return tmp_path / "toy.jsonl"


def test_a_line_keeps_which_documents_were_wrong(path: Path) -> None:
    (line,) = read_lines(path.parent)
    assert line == result()
    assert correct_of(line).tolist() == CORRECT.tolist()
    assert cell_of(line) == Cell("toy", "lstm", "plain", 3, (1, 2), 7)


@pytest.mark.parametrize("name", list(result()))
def test_a_line_without_a_field_is_refused(path: Path, name: str) -> None:
    line = {key: value for key, value in result(4).items() if key != name}
    refuses(path, json.dumps(line).encode(), rf"\({name}: Field required\)")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"test_error": float("nan")}, "test_error: Input should be .*"),
        ({"seconds": float("nan")}, "seconds: Input should be a finite number"),
        ({"test_error": 101.0}, "test_error: Input should be less than or equal to 100"),
        ({"seed": "0"}, "seed: Input should be a valid integer"),
        ({"windows": "12"}, "windows: Input should be a valid list"),
        ({"wrong": "no base64"}, ".*base64.*"),
        ({"wrong": "AAAA"}, "wrong is not of 10 documents"),
        ({"documents": 0}, "documents: .*"),
    ],
)
def test_a_field_of_another_kind_is_refused(path: Path, wrong: dict[str, Any], reason: str) -> None:
    refuses(path, json.dumps(result(4) | wrong).encode(), rf"\({reason}\)")


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"", b"7", b"\xff", b'{"a": "\xff"}', b"[" * 100_000],
    ids=lambda line: repr(line[:9]),
)
def test_what_is_no_result_is_named(path: Path, line: bytes) -> None:
    refuses(path, line, r"\(.+\)")


def refuses(path: Path, line: bytes, reason: str) -> None:
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(
        InputError, match=rf"toy\.jsonl line 2 is no result {reason}: fix or remove it\.$"
    ) as caught:
        read_lines(path.parent)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["toy.jsonl", "toy-2.jsonl"])
def test_results_on_different_test_sets_are_refused(path: Path, file: str) -> None:
    with path.with_name(file).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(result(5, CORRECT[:9])) + "\n")
    with pytest.raises(InputError, match=r"line . was evaluated on (9|10) test documents .*: remove it\."):
        read_lines(path.parent)


def test_results_on_another_test_set_are_not_written(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"^toy has 9 test documents now .* are of 10, .*: give another"):
        append_lines(path, [result(4), result(5, CORRECT[:9])])
    assert path.read_bytes() == before


def test_a_line_that_was_cut_is_dropped_and_then_written_anew(path: Path) -> None:
    whole = path.read_bytes()
    cut = (json.dumps(result(4), ensure_ascii=False) + "\n").encode("utf-8")
    for length in range(1, len(cut) - 1):  # the last would only lack its newline
        path.write_bytes(whole + cut[:length])
        assert read_lines(path.parent) == [result()]
    append_lines(path, [result(4)])
    assert path.read_bytes() == whole + cut


def test_a_line_without_its_newline_is_kept_and_not_glued_to(path: Path) -> None:
    path.write_bytes(path.read_bytes().rstrip())
    assert read_lines(path.parent) == [result()]
    append_lines(path, [result(4)])
    assert read_lines(path.parent) == [result(), result(4)]


def test_a_cell_is_written_once(path: Path) -> None:
    before = path.read_bytes()
    append_lines(path, [result()])
    assert path.read_bytes() == before


def test_of_a_cell_that_was_run_again_the_last_line_counts(path: Path) -> None:
    again = json.dumps(result() | {"dev_error": 9.0}) + "\n"
    path.write_bytes(path.read_bytes() + again.encode())
    assert [line["dev_error"] for line in read_lines(path.parent)] == [9.0]


def test_lines_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    (tmp_path / "toy.jsonl").mkdir()
    with pytest.raises(RunError, match=r"Cannot write .*toy\.jsonl: .*: choose a folder"):
        append_lines(tmp_path / "toy.jsonl", [result()])
