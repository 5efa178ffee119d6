"""python -m paper: help, the list of data sets, pages."""

from pathlib import Path

import pytest

from paper.datasets import BENCHMARKS
from tests.support.shell import paper, refuses, unexplained


@pytest.mark.parametrize("name", ["", "data", "run", "page"])
def test_help_fits_and_explains_every_option(name: str) -> None:
    answer = paper(*name.split(), "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"Usage: python -m paper {name}")
    assert unexplained(answer.out) == []


def test_data_without_a_name_lists_every_set() -> None:
    answer = paper("data")
    assert (answer.code, answer.err) == (0, "")
    assert all(name in answer.out for name in BENCHMARKS)


def test_a_user_s_mistake_is_one_sentence(tmp_path: Path) -> None:
    sentence = f"There is no folder {tmp_path}/none of results: name it with --results\\."
    refuses(sentence, "page", tmp_path / "page.md", "--results", tmp_path / "none", by=paper)


def test_a_page_is_made_from_no_lines(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    answer = paper("page", tmp_path / "docs/page.md", "--results", tmp_path / "results")
    assert (answer.code, answer.err) == (0, "")
    text = (tmp_path / "docs/page.md").read_text(encoding="utf-8")
    assert text.startswith("# Results\n\nMade by `python -m paper page` from the lines")
