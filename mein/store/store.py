"""An encoded corpus: Arrow shards, memory-mapped, with a teacher's probabilities for each document.

store.json                    counts and checksums of the shards; written last
shard-00000.arrow             `words` and `pieces`, lists of int32, a row for each document
shard-00000.expert.parquet    a float column for each class, a row for each document
labels.json                   the classes, and checksums of the label files; written last
shard-00000.NAME.arrow        any other column of that shard

A store.json may also name another store and rows of it to leave out (see link_store).
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mein.data.labels import Label
from mein.errors import DamagedFile, RunError
from mein.store.files import (
    EXPERT_COLUMN,
    LABELS,
    MANIFEST,
    VERSION,
    Manifest,
    Shard,
    damaged_manifest,
    label_file,
    manifest_of,
    read_batch,
    read_json,
    read_manifest,
    read_soft_labels,
    to_array,
    to_ragged,
    write_arrays,
    write_json,
)
from mein.store.place import Place, place_of
from mein.text.ragged import Ragged, concatenate

OPEN_FILES = 8  # shards and columns kept mapped; each counts as memory of this process


class Store:
    """A finished store: the words and pieces of each shard, and columns beside them.

    `left_out` are rows, counted over the complete store, that are never read.
    """

    def __init__(self, place: Place, manifest: Manifest, left_out: Sequence[int] = ()) -> None:
        self.place = place
        self.manifest = manifest
        self.shards: tuple[Shard, ...] = manifest.shards
        starts = np.cumsum([0, *(shard.documents for shard in self.shards)])
        at = np.searchsorted(starts, np.sort(left_out), side="right") - 1
        self._left_out = {int(n): np.sort(left_out)[at == n] - starts[n] for n in np.unique(at)}
        self.shard_lengths = tuple(
            shard.documents - len(self._left_out.get(number, ())) for number, shard in enumerate(self.shards)
        )
        self._labels = _labels_of(place)
        self._read = lru_cache(maxsize=OPEN_FILES)(read_batch)
        self._read_labels = lru_cache(maxsize=OPEN_FILES)(self._checked_labels)

    @classmethod
    def open(cls, at: Path | str) -> "Store":
        """The store in a folder or at a URL; its shards are read on demand."""
        place = place_of(at)
        content = read_manifest(place)
        if "store" in content:
            return _linked(place, content)
        return cls(place, manifest_of(place, content))

    def __len__(self) -> int:
        """How many documents there are."""
        return sum(self.shard_lengths)

    @property
    def fingerprint(self) -> str:
        """That of the indexer."""
        return self.manifest.indexer

    @property
    def shard_count(self) -> int:
        """How many shards there are."""
        return len(self.shards)

    def look_for_labels(self) -> None:
        """Find labels that were written after the store was opened."""
        self._labels = _labels_of(self.place)
        self._read_labels.cache_clear()

    @property
    def classes(self) -> tuple[Label, ...] | None:
        """The classes of the labels, in order; none if the store is not completely labeled."""
        return None if self._labels is None else tuple(self._labels["classes"])

    @property
    def label_digests(self) -> dict[str, str]:
        """The checksum of each label file by its name; none if the store is not completely labeled."""
        return {} if self._labels is None else dict(self._labels["sha256"])

    @property
    def label_authors(self) -> dict[str, str | None]:
        """Whose labels each label file holds, if it names them; none if not completely labeled."""
        return {} if self._labels is None else dict(self._labels["by"])

    @property
    def labeled_by(self) -> frozenset[str | None]:
        """Whose labels there are, as far as the files name them; none if not completely labeled."""
        return frozenset(self.label_authors.values())

    def words(self, shard: int | None = None) -> Ragged:
        """The word numbers of each document of a shard, or of all of them."""
        return self._rows("words", shard)

    def pieces(self, shard: int | None = None) -> Ragged:
        """The piece numbers of each document of a shard, or of all of them."""
        return self._rows("pieces", shard)

    def column(self, name: str, shard: int) -> np.ndarray:
        """A column of a shard, (n,) or (n, k)."""
        if name == EXPERT_COLUMN and self._labels is not None:
            array = self._read_labels(shard)
        else:
            array = to_array(self._batch(self._column_file(name, shard), None, shard)[name])
        return array[self._kept(shard)] if shard in self._left_out else array

    def has_column(self, name: str, shard: int | None = None) -> bool:
        """Whether a shard has a column; without a shard, whether all of them have it."""
        if name == EXPERT_COLUMN and self._labels is not None:
            return True
        there = set(self.place.names())
        shards = range(self.shard_count) if shard is None else (shard,)
        return all(self._column_file(name, number) in there for number in shards)

    def write_column(self, name: str, shard: int, array: np.ndarray) -> None:
        """Put a column (n,) or (n, k) of float32 or int64 beside a shard, or replace it."""
        assert len(array) == self.shard_lengths[shard], (array.shape, shard)
        with self.place.writing(self._column_file(name, shard)) as path:
            write_arrays(path, {name: array}, {})
        self._read.cache_clear()

    def _rows(self, name: str, shard: int | None) -> Ragged:
        if shard is None:
            return concatenate(self._rows(name, number) for number in range(len(self.shards)))
        file = self.shards[shard]
        rows = to_ragged(self._batch(file.file, file.sha256, shard)[name])
        return rows.take(self._kept(shard)) if shard in self._left_out else rows

    def _kept(self, shard: int) -> np.ndarray:
        return np.delete(np.arange(self.shards[shard].documents), self._left_out[shard])

    def _column_file(self, name: str, shard: int) -> str:
        return self.shards[shard].file.removesuffix(".arrow") + f".{name}.arrow"

    def _checked_labels(self, shard: int) -> np.ndarray:
        assert self._labels is not None
        file = label_file(self.shards[shard].file)
        try:
            path = self.place.fetch(file, self._labels["sha256"].get(file))
        except DamagedFile as problem:
            remedy = (
                f"`mein store label {self.place} --by RUN` makes it again, or `mein train --resume` in a run"
            )
            raise DamagedFile(f"{self.place}/{file} is damaged or missing: {remedy}.") from problem
        return read_soft_labels(
            path, f"{self.place}/{file}", self.shards[shard].documents, self._labels["classes"]
        )

    def _batch(self, file: str, sha256: str | None, shard: int) -> pa.RecordBatch:
        path = self.place.fetch(file, sha256)
        batch = self._read(path, is_verified=sha256 is not None)
        if len(batch) != self.shards[shard].documents:
            raise RunError(
                f"{path} holds {len(batch)} documents where {self.place}/{MANIFEST} lists "
                f"{self.shards[shard].documents}; restore both from a copy or train again."
            )
        return batch


def _labels_of(place: Place) -> dict[str, Any] | None:
    """The classes, and for each label file its checksum and teacher; none if not completely labeled."""
    try:
        content = read_json(place, LABELS)
        sha256 = {shard["file"]: shard["sha256"] for shard in content["shards"]}
        by = {shard["file"]: shard.get("by") for shard in content["shards"]}
        return {"classes": content["classes"], "sha256": sha256, "by": by}
    except FileNotFoundError:
        return None
    except (KeyError, TypeError) as problem:
        raise damaged_manifest(place, LABELS) from problem


def link_store(at: Path, store: Store, left_out: Sequence[int]) -> None:
    """Make the folder `at` a link to a store in its present state, without some rows."""
    content = {
        "version": VERSION,
        "store": store.place.address,
        "sha256": _digest(store.place),
        "left_out": sorted(int(row) for row in left_out),
        "shards": [],
    }
    at.mkdir(parents=True, exist_ok=True)
    write_json(place_of(at), MANIFEST, content)


def _linked(place: Place, content: dict[str, Any]) -> Store:
    """The store that a link names, unless it has changed since."""
    try:
        there, sha256, left_out = place_of(content["store"]), content["sha256"], content["left_out"]
    except (KeyError, TypeError) as problem:
        raise damaged_manifest(place) from problem
    manifest = manifest_of(there, read_manifest(there))
    if _digest(there) != sha256:
        raise RunError(
            f"The store {there} has changed since {place} was made from it: "
            "restore it, or start again in another folder."
        )
    return Store(there, manifest, left_out)


def _digest(place: Place) -> str:
    """Changes with the shards and the labels of a store."""
    digest = hashlib.sha256(place.read(MANIFEST))
    digest.update(place.read(LABELS) if LABELS in place.names() else b"")
    return digest.hexdigest()
