"""A data set: where it comes from, how its layout is read, and its parts as Parquet, with counts checked.

Unreadable downloads are removed from the cache.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mein.data.columns import ColumnsConfig
from mein.data.formats import Writer, find_files, open_writer
from mein.data.labels import Label
from mein.data.readers import read_documents
from mein.data.splits import fingerprint, split_dev, word_string
from mein.errors import InputError
from mein.runtime.files import write_atomically
from paper.datasets.archive import Member, bounded_lines
from paper.datasets.download import HINT, Download

PARTS = ("train", "dev", "test", "unlabeled")
NEGATIVE, POSITIVE = "neg", "pos"
MOST_HELD = 1 << 29  # bytes; the largest labeled set, RCV1, has a tenth of it


class Row(NamedTuple):
    """A document and the part that it belongs to; the unlabeled part has no labels."""

    part: str
    text: str
    label: Label | None = None


@dataclass(frozen=True)
class Benchmark:
    """A published data set."""

    name: str
    description: str
    where: str
    """Where to get it, in words, for those who fetch it by hand."""
    license: str
    read: Callable[[Path, int], Iterator[Row]]
    """From a folder, archive or file in the official layout, and a seed, to its documents."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many documents each part has, where that is published."""
    classes: int | None = None
    """How many classes it has; None where it is raw text."""
    downloads: tuple[Download, ...] = ()
    """Official addresses for free downloads; empty if there are none."""
    dress: Callable[[Iterable[str]], Iterable[str]] = iter
    """What makes further raw text look like the set's own."""


def check_held(size: int, where: object) -> None:
    """Refuse labeled text of a size that no benchmark has; it is held in memory until it is parted."""
    if size > MOST_HELD:
        raise InputError(
            f"{where} holds more than {MOST_HELD:,} bytes of text that is not raw: it is not read."
        )


def held_lines(member: Member) -> list[str]:
    """All lines of a labeled file, in UTF-8 or Latin-1."""
    lines, size = [], 0
    for line in bounded_lines(member.stream, member.where):
        size += len(line)
        check_held(size, member.where)
        lines.append(utf8_or_latin1(line))
    return lines


def with_dev(rows: Iterable[Row], seed: int, source: object) -> Iterator[Row]:
    """The rows with a random tenth of the training part turned into dev: floor(0.9 n) stay.

    Each class is parted in proportion and keeps a document to train on. Training rows are held and
    come last; the others stream by.
    """
    train: list[Row] = []
    size = 0
    for row in rows:
        if row.part == "train":
            train.append(row)
            size += len(row.text)
            check_held(size, source)
        else:
            yield row
    _, ids = np.unique([str(row.label) for row in train], return_inverse=True)
    _, dev = split_dev(ids, 0.1, seed)
    chosen = set(dev.tolist())
    yield from (row._replace(part="dev") if place in chosen else row for place, row in enumerate(train))


def decoded(content: bytes, where: str) -> str:
    """UTF-8 text; another encoding is refused."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{where} is not UTF-8 ({problem.reason}): it is not the published file."
        ) from problem


def utf8_or_latin1(content: bytes) -> str:
    """Text of files that were published in Latin-1 and of copies that were made UTF-8 since."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def json_rows(member: Member) -> Iterator[dict[str, Any]]:
    """The objects of a JSON lines file."""
    for number, line in enumerate(bounded_lines(member.stream, member.where), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise InputError(f"{member.where} is malformed in line {number} ({problem}).") from problem
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise InputError(f"{member.where} has no text in line {number}: it is not the published file.")
        yield row


def label_of(number: object, names: Sequence[str], where: str) -> str:
    """The name of a class that a file gives by its number, from 0."""
    if not isinstance(number, int) or not 0 <= number < len(names):
        raise InputError(f"{where} has the class {number!r}, which is none of the {len(names)} published.")
    return names[number]


def not_found(source: Path, expected: Iterable[str]) -> InputError:
    """One sentence for a source without the files of the layout."""
    return InputError(f"{source} holds no {' and no '.join(expected)}: give the folder or archive that does.")


GROUP_CHARACTERS, GROUP_ROWS = 1 << 24, 1 << 16  # of a row group
RECORD = "data.json"

OnRows = Callable[[int], None]  # this many more documents are read


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
    find_files(more)  # reports missing files before anything is read
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
    """The texts of more files in the style of the set, without those with the words of a labeled one."""
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
            f"{source} has other numbers of documents than {benchmark.name} ({listed}): it is "
            "incomplete, or another version. Add --any-counts to accept it."
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
    """Refuse a folder with parts of something else: they would mix with the new ones."""
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


REMEDY = re.compile(r"[;:] (fetch|give) [^;:]*$|\.$")  # of the reader, who does not know whose files they are


def downloaded(benchmark: Benchmark) -> Benchmark:
    """The same benchmark, to be read from the folder of its downloads and from no other."""

    def read(folder: Path, seed: int) -> Iterator[Row]:
        try:
            yield from benchmark.read(folder, seed)
        except InputError as problem:
            _remove(benchmark, folder, str(problem))
            raise InputError(
                f"{REMEDY.sub('', str(problem))}: the download was removed. Run the same command again to "
                f"fetch it again, or {HINT}."
            ) from problem

    return replace(benchmark, read=read)


def _remove(benchmark: Benchmark, folder: Path, sentence: str) -> None:
    """Remove the files that the sentence names, or all of them where it names none."""
    paths = [folder / download.name for download in benchmark.downloads]
    for path in [path for path in paths if str(path) in sentence] or paths:
        path.unlink(missing_ok=True)
