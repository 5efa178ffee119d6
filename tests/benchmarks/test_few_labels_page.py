"""The page of few labels: its tables by hand, and which problems the picture's means are of."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.draws import PROBLEMS
from benchmarks.few_labels import SHARES, job_of
from benchmarks.few_labels_page import page_of, write_page
from benchmarks.few_labels_picture import picture_of
from benchmarks.standings import Line
from mein.errors import InputError
from tests.benchmarks.test_standings import line as line_of

SVG = "{http://www.w3.org/2000/svg}"


def line(system: str, problem: str, draw: int, wrong: int, **more: Any) -> Line:
    return line_of(system, problem, draw, list(range(wrong)), controls={}, **more)


def page(*lines: Line) -> str:
    return page_of({job_of(one): one for one in lines}, None)


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    table = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", table, re.M)
    ]


def measured(problems: tuple[str, ...] = ("trec", "cr")) -> list[Line]:
    """Two systems of ours and TF-IDF by labels and by text: 20 wrong at most, fewer with more of either."""
    found = []
    for problem in problems:
        for draw in (0, 1):
            for system, less in (("tf-idf", 0), ("mein", 2), ("mein + minilm", 4)):
                for number, size in enumerate((50, 100, 200)):
                    found.append(line(system, problem, draw, 20 - less - number - draw, labels=size))
                for number, share in enumerate(SHARES):
                    if share == 1 or system != "tf-idf":
                        found.append(line(system, problem, draw, 15 - less - number - draw, share=share))
    return found


def test_errors_have_mean_spread_and_the_least_in_bold() -> None:
    text = page(
        line("tf-idf", "trec", 0, 20), line("tf-idf", "trec", 1, 30), line("mein", "trec", 0, 10),
        line("mein", "trec", 1, 10), line("tf-idf", "cr", 0, 5), line("mein", "cr", 0, 7),
    )  # fmt: skip
    assert rows(text, "Errors") == [
        ["problem", "labels", "TF-IDF", "mein"],
        ["---", "---", "---", "---"],
        ["trec", "300", "25.0 ± 7.1", "**10.0 ± 0.0**"],
        ["cr", "300", "**5.0**", "7.0"],
        ["mean", "", "15.0", "8.5"],
    ]
    assert rows(text, "Ratios")[2:] == [["mein / TF-IDF", "0.40", "1.40", "**0.90**"]]
    assert ["mein / tf-idf, mean ratio", "≤ 0.75", "0.9", "2", "**missed**"] in rows(text, "Targets")
    draws = rows(text, "Every draw")
    assert draws[2] == ["trec", "0", "TF-IDF", "20.0", "0.500", "0.500", "0.040", "1", ""]
    # 10 documents that only ours got right, 20 in the other draw, 2 lost: p of 2/2^10, 2/2^20, and 0.5.
    assert [row[-1] for row in draws[4:6]] == ["0.0039", "< 0.0001"]


def test_where_raw_text_helps() -> None:
    controls = {"closed": {"error": 20.0, "p_value": 0.25}}
    text = page(
        line("mein", "cr", 0, 10) | {"controls": controls}, line("mein", "cr", 0, 40, share=0.0),
        line("mein", "cr", 1, 20), line("mein", "cr", 1, 40, share=0.0),
        line("mein", "trec", 0, 10), line("mein", "trec", 0, 11, share=0.0),
        line("mein", "trec", 1, 10),
    )  # fmt: skip
    trec, cr = rows(text, "Where unlabeled text helps")[2:]
    assert cr == ["cr", "mein", "10", "40.0", "15.0", cr[5], "helps", "0.25"]
    assert trec == ["trec", "mein", "10", "11.0", "10.0", trec[5], "no difference", ""]
    assert cr[5] == "0.0002"  # the least that resampling can show


def test_curves_are_tables_too() -> None:
    text = page(*measured(("cr",)))
    assert rows(text, "Error against labels")[0] == ["problem", "", "50", "100", "200"]
    assert rows(text, "Error against labels")[2] == ["cr", "TF-IDF", "19.5 ± 0.7", "18.5 ± 0.7", "17.5 ± 0.7"]
    found = rows(text, "Error against unlabeled text")
    assert found[0] == ["problem", "", "none", "a quarter", "half", "all"]
    assert [row[1] for row in found[2:]] == ["mein", "mein + MiniLM"]


def drawn(lines: list[Line]) -> str | None:
    return picture_of({job_of(one): one for one in lines})


def test_the_picture_has_means_over_the_problems_that_have_every_size() -> None:
    few = [line("mein + minilm", "banking77", draw, 50, labels=200) for draw in (0, 1)]  # none at 50 and 100
    svg = drawn([*measured(), *few])
    assert svg is not None
    root = ElementTree.fromstring(svg)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count("test error, %: mean of 2 problems; bars: range of 2 draws") == 2
    described = root.findtext(f"{SVG}desc")
    assert described is not None
    assert (
        "Test error in % against labels: TF-IDF 19.5, 18.5, 17.5; mein 17.5, 16.5, 15.5; mein + " in described
    )
    assert "against unlabeled text: TF-IDF 11.5, 11.5, 11.5, 11.5; mein 12.5, 11.5, 10.5, 9.5; " in described
    for system in ("TF-IDF", "mein", "mein + MiniLM"):
        assert texts.count(system) == 1
    assert "prefers-color-scheme:dark" in svg
    whiskers = [mark for mark in root.iter(f"{SVG}line") if "whisker" in mark.get("class", "")]
    assert len(whiskers) == 3 * 3 + 4 + 4 + 1  # TF-IDF is measured once on the right


def test_self_training_without_raw_text_is_tfidf() -> None:
    own = [
        line("self-training", problem, draw, 19, share=share)
        for problem in ("trec", "cr")
        for draw in (0, 1)
        for share in SHARES[1:]
    ]
    svg = drawn([*measured(), *own])
    assert svg is not None
    assert "self-training 11.5, 19.0, 19.0, 19.0;" in svg


def test_an_incomplete_system_is_not_drawn() -> None:
    lines = [one for one in measured() if (one["system"], one["labels"], one["draw"]) != ("tf-idf", 100, 1)]
    svg = drawn(lines)
    assert svg is not None
    assert "against labels: mein 17.5" in svg


def test_without_curves_there_is_no_picture(tmp_path: Path) -> None:
    assert drawn([line("mein", "cr", 0, 5), line("tf-idf", "cr", 0, 6)]) is None
    assert list(write_page([line("mein", "cr", 0, 5)], tmp_path / "few.md")) == [tmp_path / "few.md"]
    assert "![" not in (tmp_path / "few.md").read_text(encoding="utf-8")
    written = list(write_page(measured(), tmp_path / "few.md"))
    assert written == [tmp_path / "few.md", tmp_path / "few.svg"]
    assert "](few.svg)" in (tmp_path / "few.md").read_text(encoding="utf-8")
    with pytest.raises(
        InputError, match=r"hold no result: measure with `python -m benchmarks few-labels suite`"
    ):
        list(write_page([line("mein", "cr", 0, 5, error=None)], tmp_path / "none.md"))


def test_every_problem_has_a_place_on_the_page() -> None:
    text = page(*(line("mein", problem, 0, 5) for problem in PROBLEMS))
    assert [row[0] for row in rows(text, "Errors")[2:]] == [*PROBLEMS, "mean"]
