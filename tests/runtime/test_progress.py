"""Progress: a bar with rate and time left on a terminal, a line now and then in a log."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from mein.run.pipeline import train_and_evaluate
from mein.runtime.progress import Pace, Quiet, Terminal, as_clock
from tests.support import tiny
from tests.support.recording import Recording


class Clock:
    """A clock that tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("mein.runtime.progress.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_log_gets_a_line_now_and_then_not_one_a_batch(clock: Clock) -> None:
    file = io.StringIO()
    with Terminal(Console(file=file)).task("imitators 1/5", 1_000) as task:
        for _ in range(100):
            clock.now += 0.25
            task.advance(10, "loss 0.5")
    assert file.getvalue().splitlines() == [
        "  imitators 1/5: 40%, 40 docs/s, 0:15 left, loss 0.5",
        "  imitators 1/5: 80%, 40 docs/s, 0:05 left, loss 0.5",
    ]


def test_a_short_task_leaves_no_line_in_a_log(clock: Clock) -> None:
    file = io.StringIO()
    with Terminal(Console(file=file)).task("labeling", 10) as task:
        task.advance(10)
    assert file.getvalue() == ""


def test_a_resumed_task_counts_its_rate_from_here(clock: Clock) -> None:
    pace = Pace(1_000, done=600)
    clock.now += 10
    pace.done += 100
    assert pace.words("") == "70%, 10 docs/s, 0:30 left"


def test_where_nobody_knows_the_total_documents_are_counted(clock: Clock) -> None:
    pace = Pace(None, done=0)
    clock.now += 2
    pace.done += 3_000
    assert pace.words("") == "3,000, 1,500 docs/s"


def test_a_terminal_shows_a_bar_that_fits_and_goes_away(clock: Clock) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    with Terminal(console).task("imitators 10/30", 8_000_000) as task:
        clock.now += 100
        task.advance(2_000_000, "loss 0.1234")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    line = max(re.split(r"[\r\n]", shown), key=len)
    assert "25%, 20,000 docs/s, 5:00 left, loss 0.1234" in line
    assert len(line.rstrip()) <= 80
    assert file.getvalue().rstrip().endswith("\x1b[2K")  # the line was erased


def test_a_line_is_printed_unchanged() -> None:
    file = io.StringIO()
    Terminal(Console(file=file, width=20)).log("windows [1, 2] of a path/that/is/long.csv :smile:")
    assert file.getvalue() == "windows [1, 2] of a path/that/is/long.csv :smile:\n"


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    silence = Quiet()
    silence.log("something")
    with silence.task("work", 10) as task:
        task.advance(5, "note")
    assert capsys.readouterr() == ("", "")


def test_time_left_is_a_clock() -> None:
    assert [as_clock(s) for s in (0, 59.4, 60, 3_599.6, 36_000, -1)] == [
        "0:00",
        "0:59",
        "1:00",
        "1:00:00",
        "10:00:00",
        "0:00",
    ]


def test_labeling_reports_every_batch_not_only_complete_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mein.runtime.device.BATCH_TOKENS", 200)
    reporter = Recording()
    train_and_evaluate(tiny.config(), tiny.corpus(), tmp_path / "run", reporter, controls=())
    raw, labeled = 120, 60  # in three shards: the raw text, what is held out of it, and train
    assert sum(reporter.steps["labeling"]) == raw + labeled
    assert len(reporter.steps["labeling"]) > 10
