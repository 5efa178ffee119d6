"""The files of a store: shards in Arrow, teacher's probabilities in Parquet, store.json, and labels.json.

In label files, rows follow the shard's order and columns have the names of the classes, so that any program
can write such a file. Those that mein wrote also name the teacher, in their metadata.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mein.data.labels import Label, listed
from mein.data.soft_labels import checked
from mein.errors import InputError, RunError
from mein.runtime.files import sha256_of
from mein.store.place import Place, damaged_file, missing_file
from mein.text.ragged import Ragged

VERSION = 2  # version 1 had the length of each shard and no checksums; it is still read
MANIFEST = "store.json"


@dataclass(frozen=True)
class Shard:
    """One file of a store, with its counts and its checksum (none in stores of version 1)."""

    file: str
    documents: int
    words: int = 0
    pieces: int = 0
    bytes: int = 0
    sha256: str | None = None


@dataclass(frozen=True)
class Manifest:
    """The shards of a store, who encoded them, and facts about where they came from."""

    indexer: str
    shards: tuple[Shard, ...]
    pieces: int
    facts: Mapping[str, Any] = field(default_factory=dict)


def shard_file(number: int) -> str:
    """The name of a shard's file."""
    return f"shard-{number:05d}.arrow"


def write_manifest(place: Place, indexer: str, shards: Sequence[Shard], facts: Mapping[str, Any]) -> None:
    """Write store.json, which makes the files a store."""
    content = {
        "version": VERSION,
        "encoder": indexer,
        "documents": sum(shard.documents for shard in shards),
        "words": sum(shard.words for shard in shards),
        "pieces": sum(shard.pieces for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        **facts,
        "shards": [asdict(shard) for shard in shards],
    }
    write_json(place, MANIFEST, content)


def read_manifest(place: Place) -> dict[str, Any]:
    """The content of store.json, of a known version."""
    try:
        content = read_json(place, MANIFEST)
    except FileNotFoundError as problem:
        raise RunError(
            f"{place} holds no finished store ({MANIFEST} is missing); encode the text again."
        ) from problem
    version = content.get("version")
    if not isinstance(version, int):
        raise damaged_manifest(place)
    if version > VERSION:
        raise RunError(
            f"{place}/{MANIFEST} has version {version}, but this mein reads up to {VERSION}; update mein."
        )
    return content


def manifest_of(place: Place, content: Mapping[str, Any]) -> Manifest:
    """The manifest in a store.json of any version."""
    try:
        shards = tuple(_shard(number, shard) for number, shard in enumerate(content.get("shards", ())))
        pieces, indexer = int(content.get("pieces", 0)), str(content.get("encoder"))
    except (TypeError, ValueError, AttributeError) as problem:
        raise damaged_manifest(place) from problem
    known = {"version", "encoder", "documents", "words", "pieces", "bytes", "shards"}
    return Manifest(indexer, shards, pieces, {key: content[key] for key in content if key not in known})


def _shard(number: int, content: int | dict[str, Any]) -> Shard:
    return Shard(**content) if isinstance(content, dict) else Shard(shard_file(number), int(content))


def write_json(place: Place, name: str, content: Mapping[str, Any]) -> None:
    """Write a small JSON file with one shard per line, for people to read."""
    shards = ",\n".join(json.dumps(shard) for shard in content["shards"])
    rest = {key: value for key, value in content.items() if key != "shards"}
    text = json.dumps(rest, ensure_ascii=False)[:-1] + f', "shards": [\n{shards}\n]}}\n'
    with place.writing(name) as path:
        path.write_text(text, encoding="utf-8")


def read_json(place: Place, name: str) -> dict[str, Any]:
    """A small JSON file, an object."""
    try:
        content = json.loads(place.read(name))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as problem:  # the last of deep JSON
        raise damaged_manifest(place, name) from problem
    if not isinstance(content, dict):
        raise damaged_manifest(place, name)
    return content


def damaged_manifest(place: Place, name: str = MANIFEST) -> RunError:
    """The error for a manifest that cannot be read."""
    return RunError(f"{place}/{name} is damaged; restore it from a copy or train again.")


EXPERT_COLUMN = "expert"  # p(y | X, Theta'), beside each shard of the unlabeled text
BY = b"mein.by"
LABELS, LABELS_VERSION = "labels.json", 1


def label_file(shard_file: str) -> str:
    """The name of the label file beside a shard's file."""
    return shard_file.removesuffix(".arrow") + f".{EXPERT_COLUMN}.parquet"


def write_soft_labels(path: Path, probs: np.ndarray, classes: Sequence[Label], by: str | None = None) -> None:
    """Write the probabilities (n, Y) of a shard, and whose they are, if known."""
    columns = {str(label): pa.array(probs[:, y]) for y, label in enumerate(classes)}
    table = pa.table(columns).replace_schema_metadata({} if by is None else {BY: by.encode("utf-8")})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def read_soft_labels(path: Path, name: str, documents: int, classes: Sequence[Label]) -> np.ndarray:
    """The probabilities (n, Y) of a shard, float32, in the classes' order; refuse any other content."""
    names = [str(label) for label in classes]
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        found = file.schema_arrow.names
        absent = [label for label in names if found.count(label) != 1]
        if not absent:
            columns = [file.read([label]).column(0).to_numpy() for label in names]
    except FileNotFoundError as problem:
        raise InputError(f"{name} is missing: label the store with `mein store label`.") from problem
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise InputError(
            f"{name} is damaged or not a Parquet file ({_first_line(problem)}): write it again, "
            "or remove it and label the store again."
        ) from problem
    if absent:
        raise InputError(
            f"{name} has no single column for the class {absent[0]!r} among {listed(found)}: "
            f"give one for each of {listed(names)}."
        )
    rows = file.metadata.num_rows
    if rows != documents:
        raise InputError(
            f"{name} holds {rows} rows, but its shard {documents} documents: "
            "give a row for each, in the shard's order."
        )
    try:
        probs = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    except (TypeError, ValueError) as problem:
        raise InputError(
            f"{name} holds something that is not a number ({problem}): write floats."
        ) from problem
    return checked(probs, documents, len(names), name)


def seal_labels(place: Place, shards: Sequence[Shard], classes: Sequence[Label]) -> None:
    """Write labels.json, which marks the store as completely labeled."""
    sealed = []
    for shard in shards:
        file = label_file(shard.file)
        with place.reading(file) as path:
            read_soft_labels(path, f"{place}/{file}", shard.documents, classes)
            facts = {"documents": shard.documents, "by": labeled_by(path), "sha256": sha256_of(path)}
            sealed.append({"file": file, **facts})
    write_json(place, LABELS, {"version": LABELS_VERSION, "classes": list(classes), "shards": sealed})


def labeled_by(path: Path) -> str | None:
    """Whose labels a file holds; none if mein did not write it, or if it does not exist."""
    try:
        by: bytes | None = (pq.read_schema(path).metadata or {}).get(BY)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return None if by is None else by.decode("utf-8", "replace")


def _first_line(problem: Exception) -> str:
    return str(problem).split("\n", 1)[0].rstrip(".")


# Shards.

CHECKSUM = "checksum"
LIST_LIMIT = 2**31 - 1  # Arrow's lists count their values in 32 bits, its large lists in 64


def write_arrays(path: Path, columns: Mapping[str, Ragged | np.ndarray], facts: Mapping[str, str]) -> None:
    """Write columns of equal length and some facts about them."""
    arrays = {
        name: _from_ragged(column) if isinstance(column, Ragged) else _from_array(column)
        for name, column in columns.items()
    }
    batch = pa.record_batch(arrays)
    schema = batch.schema.with_metadata({**facts, CHECKSUM: str(_checksum(batch))})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def read_batch(path: Path, is_verified: bool = False) -> pa.RecordBatch:
    """The columns of a file, mapped into memory and verified, here or before."""
    with _reading(path) as reader:
        if reader.num_record_batches != 1:
            raise damaged_file(path)
        batch = reader.get_batch(0)
        if not is_verified:
            batch.validate(full=True)
            if facts_of(batch.schema).get(CHECKSUM) != str(_checksum(batch)):
                raise damaged_file(path)
    return batch


def facts_of(schema: pa.Schema) -> dict[str, str]:
    """The facts that were written with the columns."""
    metadata = schema.metadata or {}
    return {key.decode("utf-8"): value.decode("utf-8") for key, value in metadata.items()}


@contextmanager
def _reading(path: Path) -> Iterator[pa.RecordBatchFileReader]:
    try:
        with pa.memory_map(str(path)) as file:
            yield pa.ipc.open_file(file)
    except FileNotFoundError as error:
        raise missing_file(path) from error
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise damaged_file(path) from error


def to_ragged(column: pa.Array) -> Ragged:
    """A column of lists; the values stay in the file."""
    return Ragged(column.values.to_numpy(), column.offsets.to_numpy().astype(np.int64))


def to_array(column: pa.Array) -> np.ndarray:
    """A column of numbers (n,) or of number vectors (n, k); they stay in the file."""
    if not pa.types.is_fixed_size_list(column.type):
        numbers: np.ndarray = column.to_numpy()
        return numbers
    vectors: np.ndarray = column.values.to_numpy().reshape(len(column), column.type.list_size)
    return vectors


def _from_ragged(rows: Ragged) -> pa.Array:
    is_large = len(rows.values) > LIST_LIMIT
    list_array = pa.LargeListArray if is_large else pa.ListArray
    offsets = rows.offsets.astype(np.int64 if is_large else np.int32)
    kind = np.float32 if rows.values.dtype.kind == "f" else np.int32
    return list_array.from_arrays(pa.array(offsets), pa.array(rows.values.astype(kind, copy=False)))


def _from_array(array: np.ndarray) -> pa.Array:
    assert array.dtype in (np.float32, np.int64), array.dtype
    assert array.ndim in (1, 2), array.shape
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    return values if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, array.shape[1])


def _checksum(batch: pa.RecordBatch) -> int:
    checksum = zlib.crc32(str(batch.schema.remove_metadata()).encode("utf-8"))
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None:
                checksum = zlib.crc32(buffer, checksum)
    return checksum
