"""A small store made of some documents of a labeled one."""

from pathlib import Path

import numpy as np

from mein.runtime.files import sha256_of
from mein.runtime.seeds import numpy_generator
from mein.store.manifest import (
    EXPERT_COLUMN,
    Shard,
    label_file,
    seal_labels,
    shard_file,
    write_labels,
    write_manifest,
)
from mein.store.place import place_of
from mein.store.shards import write_arrays
from mein.store.store import Store
from mein.text.ragged import concatenate

MOST_SHARDS = 16  # that are looked at: a store on object storage must not be fetched for a few documents


def drawn_from_few_shards(store: Store, count: int, seed: int) -> np.ndarray:
    """So many rows, counted over the whole store, drawn at random from some shards drawn at random."""
    draws = numpy_generator(seed, "excerpt")
    starts = np.cumsum([0, *store.shard_lengths])
    pool: list[np.ndarray] = []
    for number, shard in enumerate(draws.permutation(store.shard_count)):
        if number >= MOST_SHARDS and sum(map(len, pool)) >= count:
            break
        pool.append(np.arange(starts[shard], starts[shard + 1]))
    rows: np.ndarray = np.sort(draws.choice(np.concatenate(pool), count, replace=False))
    return rows


def write_excerpt(at: Path, store: Store, rows: np.ndarray) -> None:
    """Make the folder `at` a store of one shard with these rows, ascending, and their labels."""
    assert store.classes is not None
    starts = np.cumsum([0, *store.shard_lengths])
    shards = np.searchsorted(starts, rows, side="right") - 1
    parts = [(int(shard), rows[shards == shard] - starts[shard]) for shard in np.unique(shards)]
    words = concatenate(store.words(shard).take(local) for shard, local in parts)
    pieces = concatenate(store.pieces(shard).take(local) for shard, local in parts)
    probs = np.concatenate([store.column(EXPERT_COLUMN, shard)[local] for shard, local in parts])
    at.mkdir(parents=True, exist_ok=True)
    place, file = place_of(at), shard_file(0)
    with place.writing(file) as path:
        write_arrays(path, {"words": words, "pieces": pieces}, {"encoder": store.fingerprint})
        size, sha256 = path.stat().st_size, sha256_of(path)
    with place.writing(label_file(file)) as path:
        write_labels(path, probs, store.classes)
    written = [Shard(file, len(rows), len(words.values), len(pieces.values), size, sha256)]
    write_manifest(place, store.fingerprint, written, {})
    seal_labels(place, written, store.classes)
