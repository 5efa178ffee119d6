"""The command line for tests: in this process, or as a real one; and small files to give it."""

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from benchmarks.__main__ import main as benchmarks_main
from mein.cli.main import main as mein_main
from paper.__main__ import main as paper_main
from tests.support.tiny import SETTINGS, TEXTS

ROOT = Path(__file__).parents[2]
SIZES = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={json.dumps(value)}")]
TINY = ["--set", "expert.kind=average", *SIZES]  # it learns by steps, as most kinds do


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str


def mein(*words: object) -> Answer:
    """Run `mein` in this process."""
    return answer_of(mein_main, *words)


def paper(*words: object) -> Answer:
    """Run `python -m paper` in this process."""
    return answer_of(paper_main, *words)


def benchmarks(*words: object) -> Answer:
    """Run `python -m benchmarks` in this process."""
    return answer_of(benchmarks_main, *words)


def answer_of(main: Callable[[], None], *words: object) -> Answer:
    """What a command line prints, and how it ends."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        patch.object(sys, "argv", ["command", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return Answer(code, out.getvalue(), err.getvalue())


def fits(text: str, width: int = 80) -> bool:
    """Whether no line of a table or a help text is wider than the terminal."""
    return max(map(len, text.splitlines())) <= width


def unexplained(help_text: str, width: int = 80) -> list[str]:
    """Lines of a help that are too wide, or name an option or a command without its whole meaning."""
    help_text, _, examples = help_text.partition("\nExamples:\n")
    complaints = [line for line in [*help_text.splitlines(), *examples.splitlines()] if len(line) > width]
    for line in help_text.splitlines():
        if re.match(r"  (    |-\w, )?(-|[a-z])", line):
            is_explained = re.search(r"\S {2,}[^ -]", line.strip())
            complaints += [] if is_explained and not line.endswith("...") else [line]
    return complaints


def mein_process(*words: object) -> Answer:
    """Run the command line as a process of its own."""
    return python("from mein.cli.main import main; main()", *words)


def python(code: str, *words: object) -> Answer:
    """Run code as a process of its own, with these words on its line."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


def refuses(sentence: str, *words: object, by: Callable[..., Answer] = mein) -> None:
    """The command ends with code 2 and this one sentence (a pattern) on stderr."""
    answer = by(*words)
    assert answer.code == 2, answer
    assert re.fullmatch(f"Error: {sentence}\n", answer.err), answer.err


def write_csv(path: Path, texts: Sequence[str], labels: Sequence[object] | None = None) -> Path:
    """A csv with the columns text and label, or with text alone."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"] if labels is None else ["text", "label"])
        writer.writerows([text] for text in texts) if labels is None else writer.writerows(
            zip(texts, labels, strict=True)
        )
    return path


def write_corpus(folder: Path) -> list[str]:
    """The embedded corpus as files; returns the words that name them."""
    train = write_csv(folder / "train.csv", TEXTS.labeled_texts, TEXTS.labeled_labels)
    test = write_csv(folder / "test.csv", TEXTS.test_texts, TEXTS.test_labels)
    raw = write_csv(folder / "raw.csv", [*TEXTS.unlabeled_texts, *TEXTS.test_texts[:3]])
    return ["--labeled", str(train), "--unlabeled", str(raw), "--test", str(test)]
