"""An encoded corpus on disk: Arrow shards, memory-mapped, with columns that later stages add.

store.json               version, documents, the length of each shard; written last
shard-00000.arrow        `words` and `pieces`, lists of int32, a row a document
shard-00000.NAME.arrow   the column NAME of that shard
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from mein.errors import RunError
from mein.files import write_atomically, writing_failed
from mein.text.encoder import Encoder
from mein.text.ragged import Ragged, ragged
from mein.text.shards import facts_of, read_batch, read_facts, to_array, to_ragged, write_arrays
from mein.text.worker import Job
from mein.text.workers import run_jobs

__all__ = ["Ragged", "Store", "ragged", "write_store"]

VERSION = 1
MANIFEST = "store.json"
OPEN_FILES = 8  # shards and columns kept mapped; each counts as memory of this process


class Store:
    """A finished store: the words and pieces of each shard, and columns beside them."""

    def __init__(self, path: Path, shard_lengths: Sequence[int], fingerprint: str) -> None:
        self.path = path
        self.shard_lengths = tuple(shard_lengths)
        self.fingerprint = fingerprint
        self._read = lru_cache(maxsize=OPEN_FILES)(read_batch)

    @classmethod
    def open(cls, path: Path) -> "Store":
        """The store in a folder; its shards are read when they are asked for."""
        manifest = path / MANIFEST
        try:
            content = json.loads(manifest.read_text(encoding="utf-8"))
            version, lengths = int(content["version"]), [int(n) for n in content.get("shards", ())]
            fingerprint = str(content.get("encoder"))
        except FileNotFoundError as error:
            raise RunError(
                f"{path} holds no finished store ({MANIFEST} is missing); encode the text again."
            ) from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{manifest} is damaged; restore it from a copy or train again.") from error
        if version > VERSION:
            raise RunError(
                f"{manifest} has version {version}, but this mein reads up to {VERSION}; update mein."
            )
        return cls(path, lengths, fingerprint)

    def __len__(self) -> int:
        """How many documents there are."""
        return sum(self.shard_lengths)

    @property
    def shard_count(self) -> int:
        """How many shards there are."""
        return len(self.shard_lengths)

    def words(self, shard: int) -> Ragged:
        """The word numbers of each document of a shard."""
        return to_ragged(self._batch(shard_path(self.path, shard), shard)["words"])

    def pieces(self, shard: int) -> Ragged:
        """The piece numbers of each document of a shard."""
        return to_ragged(self._batch(shard_path(self.path, shard), shard)["pieces"])

    def column(self, name: str, shard: int) -> np.ndarray:
        """A column of a shard, (n,) or (n, k), as it was written."""
        return to_array(self._batch(self._column_path(name, shard), shard)[name])

    def has_column(self, name: str, shard: int | None = None) -> bool:
        """Whether a shard has a column; without a shard, whether all of them have it."""
        shards = range(self.shard_count) if shard is None else (shard,)
        return all(self._column_path(name, number).exists() for number in shards)

    def write_column(self, name: str, shard: int, array: np.ndarray) -> None:
        """Put a column (n,) or (n, k) of float32 or int64 beside a shard, or replace it."""
        assert len(array) == self.shard_lengths[shard], (array.shape, shard)
        write_arrays(self._column_path(name, shard), {name: array}, {})
        self._read.cache_clear()

    def _column_path(self, name: str, shard: int) -> Path:
        return shard_path(self.path, shard).with_suffix(f".{name}.arrow")

    def _batch(self, path: Path, shard: int) -> pa.RecordBatch:
        batch = self._read(path)
        if len(batch) != self.shard_lengths[shard]:
            raise RunError(
                f"{path} holds {len(batch)} documents where {self.path / MANIFEST} tells "
                f"{self.shard_lengths[shard]}; restore both from a copy or train again."
            )
        return batch


def write_store(
    path: Path,
    encoder: Encoder,
    chunks: Iterable[Sequence[str]],
    *,
    shard_documents: int,
    workers: int,
    shard_characters: int | None = None,
) -> Store:
    """Encode a stream of documents into a store, in parallel.

    A shard ends at `shard_documents`, or where its text reaches `shard_characters`. A store that is
    finished is not read again; after an end in the middle, whole shards are kept and the stream,
    which must be the same, is encoded from there: the files have the same bytes in either case.
    """
    if (path / MANIFEST).exists():
        return _finished(path, encoder)
    _prepare_folder(path)
    lengths: list[int] = []

    def missing() -> Iterator[Job]:
        for texts in _in_shards(chunks, shard_documents, shard_characters):
            characters = sum(map(len, texts))
            facts = {"encoder": encoder.fingerprint, "characters": str(characters)}
            job = Job(shard_path(path, len(lengths)), texts, facts)
            lengths.append(len(texts))
            if not _is_written(job):
                yield job

    try:
        run_jobs(encoder, missing(), workers if encoder.reader is None else 1)
    finally:
        _remove_temporaries(path)  # of workers that were ended in mid-write
    _finish(path, lengths, encoder)
    return Store.open(path)


def shard_path(path: Path, shard: int) -> Path:
    """The file of a shard."""
    return path / f"shard-{shard:05d}.arrow"


def _finished(path: Path, encoder: Encoder) -> Store:
    store = Store.open(path)
    if store.fingerprint != encoder.fingerprint:
        raise RunError(
            f"{path} holds a store that was encoded with other vocabularies; "
            "remove it or choose another folder."
        )
    return store


def _prepare_folder(path: Path) -> None:
    """Make the folder, or clear it of what a killed run left half-written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        _remove_temporaries(path)
    except OSError as error:
        raise writing_failed(path, error) from error


def _remove_temporaries(path: Path) -> None:
    for temporary in path.glob(".*.tmp"):
        temporary.unlink(missing_ok=True)


def _in_shards(
    chunks: Iterable[Sequence[str]], documents: int, characters: int | None
) -> Iterator[list[str]]:
    """Cut a stream into shards; where depends on the documents alone, not on the chunks."""
    limit = math.inf if characters is None else characters
    texts: list[str] = []
    size = 0
    for text in chain.from_iterable(chunks):
        texts.append(text)
        size += len(text)
        if len(texts) == documents or size >= limit:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def _is_written(job: Job) -> bool:
    """Whether a former run left this very shard, whole."""
    try:
        batch = read_batch(job.path)
    except RunError:
        return False
    return len(batch) == len(job.texts) and job.facts.items() <= facts_of(batch.schema).items()


def _finish(path: Path, lengths: Sequence[int], encoder: Encoder) -> None:
    """Remove what belongs to no shard, then write the manifest, which makes it a store."""
    files = [shard_path(path, shard) for shard in range(len(lengths))]
    for leftover in set(path.glob("shard-*.arrow")) - set(files):
        leftover.unlink()
    facts = [read_facts(file) for file in files]
    manifest = {
        "version": VERSION,
        "encoder": encoder.fingerprint,
        "documents": sum(lengths),
        "words": sum(int(fact["words"]) for fact in facts),
        "pieces": sum(int(fact["pieces"]) for fact in facts),
        "shards": list(lengths),
    }
    write_atomically(path / MANIFEST, json.dumps(manifest).encode("utf-8"))
