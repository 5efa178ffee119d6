"""Documents to stores: shard by shard, in parallel processes, and never twice; small stores from rows."""

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from mein.errors import RunError
from mein.runtime.files import sha256_of
from mein.runtime.processes import Worker, answers, start_worker
from mein.runtime.ranks import barrier
from mein.runtime.seeds import numpy_generator
from mein.store.files import (
    EXPERT_COLUMN,
    LABELS,
    MANIFEST,
    VERSION,
    Shard,
    facts_of,
    label_file,
    read_batch,
    read_json,
    seal_labels,
    shard_file,
    write_arrays,
    write_json,
    write_manifest,
    write_soft_labels,
)
from mein.store.place import Place, place_of
from mein.store.store import Store
from mein.store.worker import CONFIG, PIECES, WORDS, ShardJob, send, write_shard
from mein.text.indexer import Indexer
from mein.text.ragged import concatenate

OWN = re.compile(r"shard-\d+(\.\w+)*\.(arrow|parquet)|labels\.json|quarantine")
DIED = (
    "A process that encodes text died (exit code {code}), possibly out of memory; "
    "encode with one worker (runtime.workers = 1): complete shards are kept."
)


def run_jobs(indexer: Indexer, place: Place, jobs: Iterable[ShardJob], workers: int) -> Iterator[Shard]:
    """Encode and write every job, in this process where there is one worker.

    At most `workers + 2` shards of text are in memory: those being encoded or waiting, and the one that
    `jobs` reads.
    """
    jobs = iter(jobs)
    head = list(islice(jobs, 2))
    workers = workers if len(head) > 1 else 1  # one shard is not worth the start of a process
    jobs = chain(head, jobs)
    del head  # subtle: its texts must not stay in memory
    if workers > 1:
        yield from _run_in_processes(indexer, place, jobs, workers)
    else:
        for job in jobs:
            yield write_shard(indexer, place, job)


def _run_in_processes(
    indexer: Indexer, place: Place, jobs: Iterable[ShardJob], workers: int
) -> Iterator[Shard]:
    with tempfile.TemporaryDirectory() as folder:
        _save(indexer, Path(folder))
        started = [_start(folder, str(place)) for _ in range(workers)]
        for found in answers(started, jobs, send, DIED):
            yield Shard(**found["shard"])


def _save(indexer: Indexer, folder: Path) -> None:
    (folder / CONFIG).write_text(indexer.words_config.model_dump_json(), encoding="utf-8")
    indexer.words.save(folder / WORDS)
    indexer.pieces.save(folder / PIECES)


def _start(folder: str, place: str) -> Worker:
    return start_worker("mein.store.worker", [folder, place])


# Writes the missing shards, and yields all.
Spread = Callable[[Indexer, Place, Iterator[ShardJob]], Iterator[Shard]]


def write_store(
    at: Path | str,
    indexer: Indexer,
    chunks: Iterable[Sequence[str]],
    *,
    shard_documents: int,
    workers: int,
    shard_characters: int | None = None,
    facts: Mapping[str, Any] | None = None,
    part: tuple[int, int] = (0, 1),
    spread: Spread | None = None,
) -> Store:
    """Encode a stream of documents into a store, in parallel.

    A shard ends at `shard_documents`, or where its text reaches `shard_characters`. A finished store is
    not read again. After an interruption, complete shards are kept, and the same stream is encoded from
    there: the files have the same bytes as without it.
    facts: where the text came from; a finished store of other text is refused. part: this rank and
    the number of ranks; all must call, and each writes its share of the shards. spread: an engine that
    writes the shards on other machines.
    """
    place, facts = place_of(at), facts or {}
    rank, world = part
    names = place.names()
    if MANIFEST in names:
        return _finished(at, indexer, facts)
    unknown = [name for name in names if not OWN.fullmatch(name)]
    if unknown:
        raise RunError(
            f"{place} exists and is not a store of mein (it holds {unknown[0]!r}): choose an empty folder."
        )
    with place.held() if rank == 0 else nullcontext():
        if world > 1:
            barrier()  # only after it, the folder exists and is cleared
        jobs = _jobs(indexer.fingerprint, chunks, shard_documents, shard_characters, part)
        if spread is not None:
            shards = list(spread(indexer, place, jobs))
        else:
            shards = _write_shards(place, indexer, jobs, workers)
        shards = _gathered(place, shards, part)
        if rank == 0:
            _finish(place, shards, indexer, facts)
        if world > 1:
            barrier()
    return Store.open(at)


def _write_shards(place: Place, indexer: Indexer, jobs: Iterable[ShardJob], workers: int) -> list[Shard]:
    """Encode the texts of each shard that is not complete yet."""
    found: list[Shard] = []
    there = set(place.names())

    def missing_jobs() -> Iterator[ShardJob]:
        for job in jobs:
            shard = kept(place, job) if job.file in there else None
            if shard is None:
                yield job
            else:
                found.append(shard)

    written = list(run_jobs(indexer, place, missing_jobs(), workers if indexer.reader is None else 1))
    return found + written


def _jobs(
    fingerprint: str,
    chunks: Iterable[Sequence[str]],
    documents: int,
    characters: int | None,
    part: tuple[int, int],
) -> Iterator[ShardJob]:
    """A rank's share of the shards to write."""
    rank, world = part
    for number, texts in islice(enumerate(_in_shards(chunks, documents, characters)), rank, None, world):
        yield ShardJob(shard_file(number), texts, fingerprint)


def kept(place: Place, job: ShardJob) -> Shard | None:
    """The shard that an earlier run wrote of the same texts, if it is complete."""
    with place.reading(job.file) as path:
        try:
            batch = read_batch(path)
            facts = facts_of(batch.schema)
        except RunError:
            return None
        if len(batch) != len(job.texts) or not job.facts().items() <= facts.items():
            return None
        counts = {"words": int(facts["words"]), "pieces": int(facts["pieces"])}
        return Shard(job.file, len(batch), **counts, bytes=path.stat().st_size, sha256=sha256_of(path))


def _finished(at: Path | str, indexer: Indexer, facts: Mapping[str, Any]) -> Store:
    store = Store.open(at)
    if store.fingerprint != indexer.fingerprint:
        raise RunError(
            f"{at} holds a store that was encoded with other vocabularies; "
            "remove it or choose another folder."
        )
    for name, value in facts.items():
        if store.manifest.facts.get(name, value) != value:
            raise RunError(
                f"{at} holds a store whose {name} is {store.manifest.facts[name]!r}, not {value!r}; "
                "remove it or choose another folder."
            )
    return store


def _in_shards(
    chunks: Iterable[Sequence[str]], documents: int, characters: int | None
) -> Iterator[list[str]]:
    """Cut a stream into shards, which depend only on the documents, not on the chunks."""
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


def _part(rank: int) -> str:
    """The file with a rank's shards, which the first rank gathers."""
    return f"part-{rank:05d}.json"


def _gathered(place: Place, shards: list[Shard], part: tuple[int, int]) -> list[Shard]:
    """The shards of all ranks, after all are done."""
    rank, world = part
    if world == 1:
        return shards
    write_json(place, _part(rank), {"version": VERSION, "shards": [asdict(shard) for shard in shards]})
    barrier()
    parts = [read_json(place, _part(number)) for number in range(world)] if rank == 0 else []
    return [Shard(**shard) for found in parts for shard in found["shards"]]


def _finish(place: Place, shards: Sequence[Shard], indexer: Indexer, facts: Mapping[str, Any]) -> None:
    """Remove files of no shard, then write the manifest, which makes it a store."""
    files = {shard.file for shard in shards}
    for name in place.names():
        if (name.startswith(("shard-", "part-")) and name not in files) or name == LABELS:
            place.remove(name)
    write_manifest(place, indexer.fingerprint, sorted(shards, key=lambda shard: shard.file), facts)


MOST_SHARDS = 16  # to draw from: a remote store must not be fetched for a few documents


def drawn_from_few_shards(store: Store, count: int, seed: int) -> np.ndarray:
    """`count` rows, numbered over the complete store, drawn at random from some shards drawn at random."""
    draws = numpy_generator(seed, "excerpt")
    starts = np.cumsum([0, *store.shard_lengths])
    pool: list[np.ndarray] = []
    for number, shard in enumerate(draws.permutation(store.shard_count)):
        if number >= MOST_SHARDS and sum(map(len, pool)) >= count:
            break
        pool.append(np.arange(starts[shard], starts[shard + 1]))
    rows: np.ndarray = np.sort(draws.choice(np.concatenate(pool), count, replace=False))
    return rows


def write_excerpt(at: Path, store: Store, rows: np.ndarray, *, is_labeled: bool = True) -> None:
    """Write a store of one shard with these rows, ascending, perhaps with their labels, into a folder."""
    starts = np.cumsum([0, *store.shard_lengths])
    shards = np.searchsorted(starts, rows, side="right") - 1
    parts = [(int(shard), rows[shards == shard] - starts[shard]) for shard in np.unique(shards)]
    words = concatenate(store.words(shard).take(local) for shard, local in parts)
    pieces = concatenate(store.pieces(shard).take(local) for shard, local in parts)
    at.mkdir(parents=True, exist_ok=True)
    place, file = place_of(at), shard_file(0)
    with place.writing(file) as path:
        write_arrays(path, {"words": words, "pieces": pieces}, {"encoder": store.fingerprint})
        size, sha256 = path.stat().st_size, sha256_of(path)
    written = [Shard(file, len(rows), len(words.values), len(pieces.values), size, sha256)]
    write_manifest(place, store.fingerprint, written, {})
    if is_labeled:
        assert store.classes is not None
        probs = np.concatenate([store.column(EXPERT_COLUMN, shard)[local] for shard, local in parts])
        with place.writing(label_file(file)) as path:
            write_soft_labels(path, probs, store.classes)
        seal_labels(place, written, store.classes)
