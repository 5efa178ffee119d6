"""From a benchmark's official layout to train, dev, test and unlabeled.parquet, with counts checked."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mein.data.benchmarks.benchmark import PARTS, Benchmark, Row
from mein.data.files import find_files
from mein.data.readers import ColumnsConfig, read_documents
from mein.data.splits import fingerprint, word_string
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
    more: Sequence[str] = (),
) -> Prepared:
    """Write the parts, and the texts of more files after the raw ones.

    With counts other than the published ones nothing is written, unless allowed.
    """
    _refuse_other(benchmark, out)
    find_files(more)  # what is missing is told before anything is read
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        parts = {part: _Part(part, out, stack, on_rows) for part in PARTS}
        labeled: set[int] = set()
        for row in benchmark.read(source, seed):
            parts[row.part].add(row)
            if more and row.part != "unlabeled":
                labeled.add(fingerprint(word_string(row.text)))
        if not any_counts:
            check_counts(benchmark, {name: part.count for name, part in parts.items()}, source)
        for text in _further(benchmark, more, labeled):
            parts["unlabeled"].add(Row("unlabeled", text))
        for part in parts.values():
            part.flush()
        counts = {name: part.count for name, part in parts.items() if part.count}
        prepared = Prepared(counts, {name: dict(sorted(parts[name].classes.items())) for name in counts})
    _write_record(benchmark, out, seed, more, prepared)
    return prepared


def _further(benchmark: Benchmark, more: Sequence[str], labeled: set[int]) -> Iterator[str]:
    """The texts of more files in the set's own dress, less those with the words of a labelled one."""
    if not more:
        return
    chunks = read_documents(more, ColumnsConfig(), labeled=False)
    for text in benchmark.dress(text for chunk in chunks for text in chunk.texts):
        if fingerprint(word_string(text)) not in labeled:
            yield text


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

    def __init__(self, name: str, out: Path, stack: ExitStack, on_rows: OnRows) -> None:
        self.name, self.path = name, out / f"{name}.parquet"
        self.stack, self.on_rows = stack, on_rows
        self.rows: list[Row] = []
        self.characters = 0
        self.count = 0
        self.classes: Counter[str] = Counter()
        self.writer: Writer | None = None

    def add(self, row: Row) -> None:
        """Take one more row."""
        self.rows.append(row)
        self.count += 1
        self.characters += len(row.text)
        if self.characters >= GROUP_CHARACTERS or len(self.rows) >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits; a part without documents gets no file."""
        if not self.rows:
            return
        if self.writer is None:
            self.writer = self.stack.enter_context(open_writer(self.path))
        columns: dict[str, Any] = {"text": _strings([row.text for row in self.rows])}
        if self.name != "unlabeled":
            labels = [str(row.label) for row in self.rows]
            self.classes.update(labels)
            columns["label"] = pa.array(labels, pa.string())
        self.writer.write(pa.table(columns))
        self.on_rows(len(self.rows))
        self.rows, self.characters = [], 0


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


def _write_record(
    benchmark: Benchmark, out: Path, seed: int, more: Sequence[str], prepared: Prepared
) -> None:
    for part in PARTS:
        if part not in prepared.counts:
            (out / f"{part}.parquet").unlink(missing_ok=True)
    record = {
        "name": benchmark.name,
        "license": benchmark.license,
        "seed": seed,
        "more": list(more),
        "counts": prepared.counts,
    }
    write_atomically(out / RECORD, (json.dumps(record, indent=1) + "\n").encode("utf-8"))
