"""From a benchmark's official layout to train, dev, test and unlabeled.parquet, with counts checked."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mein.data.benchmarks.benchmark import PARTS, Benchmark, Row
from mein.data.writers import Writer, open_writer
from mein.errors import InputError
from mein.files import write_atomically

GROUP_CHARACTERS, GROUP_ROWS = 1 << 24, 1 << 16  # of a row group
RECORD = "data.json"

OnRows = Callable[[int], None]  # so many more documents are read


@dataclass(frozen=True)
class Prepared:
    """What was written: documents of each part, and of each class in it."""

    counts: dict[str, int]
    classes: dict[str, dict[str, int]]


def prepare(
    benchmark: Benchmark,
    source: Path,
    out: Path,
    seed: int = 0,
    any_counts: bool = False,
    on_rows: OnRows = lambda count: None,
) -> Prepared:
    """Write the parts; with counts other than the published ones nothing is written, unless allowed."""
    _refuse_other(benchmark, out)
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        parts = {part: _Part(part, out) for part in PARTS}
        for row in benchmark.read(source, seed):
            part = parts[row.part]
            part.rows.append(row)
            part.characters += len(row.text)
            if part.characters >= GROUP_CHARACTERS or len(part.rows) >= GROUP_ROWS:
                on_rows(part.flush(stack))
        for part in parts.values():
            on_rows(part.flush(stack))
        counts = {name: part.count for name, part in parts.items() if part.count}
        prepared = Prepared(counts, {name: dict(sorted(parts[name].classes.items())) for name in counts})
        if not any_counts:
            check_counts(benchmark, counts, source)
    _write_record(benchmark, out, seed, prepared)
    return prepared


def check_counts(benchmark: Benchmark, counts: dict[str, int], source: Path) -> None:
    """Refuse a source whose parts differ in size from the published ones."""
    wrong = {part: size for part, size in benchmark.counts.items() if counts.get(part, 0) != size}
    if wrong:
        listed = ", ".join(
            f"{counts.get(part, 0):,} {part} instead of {size:,}" for part, size in wrong.items()
        )
        raise InputError(
            f"{source} gives other numbers of documents than {benchmark.name} has ({listed}): it is not "
            "complete, or another version; say --any-counts to take it as it is."
        )


class _Part:
    """The rows of a part that wait to be written, and the file that they go to."""

    def __init__(self, name: str, out: Path) -> None:
        self.name, self.path = name, out / f"{name}.parquet"
        self.rows: list[Row] = []
        self.characters = 0
        self.count = 0
        self.classes: Counter[str] = Counter()
        self.writer: Writer | None = None

    def flush(self, stack: ExitStack) -> int:
        """Write what waits; a part without documents gets no file."""
        written = len(self.rows)
        if not written:
            return 0
        if self.writer is None:
            self.writer = stack.enter_context(open_writer(self.path))
        columns: dict[str, Any] = {"text": _strings([row.text for row in self.rows])}
        if self.name != "unlabeled":
            labels = [str(row.label) for row in self.rows]
            self.classes.update(labels)
            columns["label"] = pa.array(labels, pa.string())
        self.writer.write(pa.table(columns))
        self.count += written
        self.rows, self.characters = [], 0
        return written


def _strings(texts: list[str]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold, becomes "?"
        return pa.array([text.encode("utf-8", "replace").decode("utf-8") for text in texts], pa.string())


def _refuse_other(benchmark: Benchmark, out: Path) -> None:
    """Refuse a folder with parts of something else: they would stand beside ours."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder with --out.")
    if not any((out / f"{part}.parquet").exists() for part in PARTS):
        return
    try:
        held = json.loads((out / RECORD).read_text(encoding="utf-8"))["name"]
    except (OSError, ValueError, KeyError, TypeError):
        held = "something else"
    if held != benchmark.name:
        raise InputError(f"{out} holds {held}, not {benchmark.name}; choose another folder with --out.")


def _write_record(benchmark: Benchmark, out: Path, seed: int, prepared: Prepared) -> None:
    for part in PARTS:
        if part not in prepared.counts:
            (out / f"{part}.parquet").unlink(missing_ok=True)
    record = {"name": benchmark.name, "license": benchmark.license, "seed": seed, "counts": prepared.counts}
    write_atomically(out / RECORD, (json.dumps(record, indent=1) + "\n").encode("utf-8"))
