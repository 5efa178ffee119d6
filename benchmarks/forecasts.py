"""How near the forecast of a training is: what `mein check` expects beside what `mein train` takes."""

import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import hardware, peak_memory
from mein.config import load_config
from mein.data.audit import audit
from mein.data.columns import ColumnsConfig
from mein.run.forecast import forecast, measured, measured_pace
from mein.run.plan import amounts_of

POLL_SECONDS = 0.1
OF_ONE_CORE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def bench_forecast(labeled: str, unlabeled: str | None, test: str | None) -> dict[str, Any]:
    """Both, and their ratio, in CPU seconds on one core, as others may keep a machine busy."""
    import torch

    torch.set_num_threads(1)
    config, found = load_config("small"), audit(labeled, unlabeled, None, test, ColumnsConfig())
    amounts, clock = amounts_of(config, found), time.process_time
    costs = forecast(config, amounts, measured(config, amounts, clock), measured_pace(config, clock))
    expected = {
        "cpu_seconds": costs.total,
        "memory_megabytes": costs.memory_bytes / 1e6,
        "disk_megabytes": costs.disk_bytes / 1e6,
    }
    given = {"--labeled": labeled, "--unlabeled": unlabeled, "--test": test}
    words = [word for name, value in given.items() if value is not None for word in (name, value)]
    took = _train([*words, "--preset", "small", "--set", "runtime.workers=1"])
    ratio = {name: expected[name] / took[name] for name in expected}
    parts = {name: round(seconds, 2) for name, seconds in costs.seconds.items()}
    return {"hardware": hardware(), "expected": expected, "took": took, "ratio": ratio, "parts": parts}


def _train(words: Sequence[str]) -> dict[str, float]:
    """What a training in a process of its own takes."""
    with tempfile.TemporaryDirectory() as folder, _largest(Path(folder)) as largest:
        before = _cpu_seconds()
        arguments = [sys.executable, "-m", "mein", "train", *words, "--out", f"{folder}/run"]
        peak = peak_memory(arguments, OF_ONE_CORE)
        return {
            "cpu_seconds": _cpu_seconds() - before,
            "memory_megabytes": peak["process_megabytes"][0],
            "disk_megabytes": largest() / 1e6,
        }


def _cpu_seconds() -> float:
    """Of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _largest(folder: Path) -> Iterator[Callable[[], float]]:
    """The largest size of a folder so far, watched by a thread."""
    sizes, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(POLL_SECONDS):
            sizes[0] = max(sizes[0], _size(folder))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: float(sizes[0])
    finally:
        is_over.set()
        thread.join()


def _size(folder: Path) -> int:
    """Bytes of all files, of which some may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
