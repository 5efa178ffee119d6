"""A benchmark that we downloaded ourselves: files that prove unreadable leave the cache again."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mein.data.benchmarks.benchmark import Benchmark, Row
from mein.data.download import HINT
from mein.errors import InputError

REMEDY = re.compile(r"[;:] (fetch|give) [^;:]*$|\.$")  # of the reader, who does not know whose files they are


def downloaded(benchmark: Benchmark) -> Benchmark:
    """The same benchmark, to be read from the folder of its downloads and from no other."""

    def read(folder: Path, seed: int) -> Iterator[Row]:
        try:
            yield from benchmark.read(folder, seed)
        except InputError as problem:
            _remove(benchmark, folder, str(problem))
            raise InputError(
                f"{REMEDY.sub('', str(problem))}: the download was removed; give the same command again to "
                f"fetch it anew, or {HINT}."
            ) from problem

    return replace(benchmark, read=read)


def _remove(benchmark: Benchmark, folder: Path, told: str) -> None:
    """Remove the files that the sentence names, or all of them where it names none."""
    paths = [folder / download.name for download in benchmark.downloads]
    for path in [path for path in paths if str(path) in told] or paths:
        path.unlink(missing_ok=True)
