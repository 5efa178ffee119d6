"""A process that encodes shards: `python -m mein.store.worker FOLDER PLACE`, started by writing.py.

A job is a line of JSON (the file, the indexer, the sizes of the two parts that follow), the length of each
text in characters, and the texts end to end in UTF-8. The answer is a line of JSON.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from mein.errors import RunError
from mein.runtime.files import sha256_of
from mein.runtime.processes import answer
from mein.store.files import Shard, write_arrays
from mein.store.place import Place, place_of
from mein.text.config import WordsConfig
from mein.text.indexer import Indexer
from mein.text.pieces import Pieces
from mein.text.ragged import offsets_of
from mein.text.words import Words

CONFIG, WORDS, PIECES = "words.json", "words.txt", "pieces.model"
LENGTH = np.dtype("<i8")


@dataclass(frozen=True)
class ShardJob:
    """A shard to write: the name of its file, its texts, and the fingerprint of the indexer."""

    file: str
    texts: Sequence[str]
    indexer: str

    def packed(self) -> tuple[bytes, bytes]:
        """The length of each text, in characters, and all texts end to end."""
        lengths = np.fromiter(map(len, self.texts), LENGTH, len(self.texts))
        return lengths.tobytes(), "".join(self.texts).encode("utf-8", "surrogatepass")

    def facts(self) -> dict[str, str]:
        """Facts to write with the shard: equal only for the same texts and indexer."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self.packed():
            digest.update(part)
        return {"encoder": self.indexer, "text": digest.hexdigest()}


def write_shard(indexer: Indexer, place: Place, job: ShardJob) -> Shard:
    """Encode one shard and write it."""
    words, pieces = indexer.encode_ragged(job.texts)
    counts = len(words.values), len(pieces.values)
    facts = {**job.facts(), "words": str(counts[0]), "pieces": str(counts[1])}
    with place.writing(job.file) as path:
        write_arrays(path, {"words": words, "pieces": pieces}, facts)
        size, sha256 = path.stat().st_size, sha256_of(path)
    return Shard(job.file, len(job.texts), *counts, size, sha256)


def send(job: ShardJob, stream: IO[bytes]) -> None:
    """Write a job into a stream."""
    parts = job.packed()
    header = {"file": job.file, "encoder": job.indexer, "bytes": [len(part) for part in parts]}
    stream.write(json.dumps(header).encode("utf-8") + b"\n")
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes]) -> ShardJob | None:
    """Read a job from a stream; none at the end of the stream, also within a job."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    header = json.loads(line)
    lengths, content = (stream.read(size) for size in header["bytes"])
    if [len(lengths), len(content)] != header["bytes"]:
        return None
    text = content.decode("utf-8", "surrogatepass")
    offsets = offsets_of(np.frombuffer(lengths, LENGTH)).tolist()
    texts = [text[start:stop] for start, stop in pairwise(offsets)]
    return ShardJob(header["file"], texts, header["encoder"])


def main() -> None:
    """Work on jobs from standard input until it ends."""
    folder, place = Path(sys.argv[1]), place_of(sys.argv[2])
    config = WordsConfig.model_validate_json((folder / CONFIG).read_text(encoding="utf-8"))
    indexer = Indexer(config, Words.load(folder / WORDS), Pieces.load(folder / PIECES))
    while (job := receive(sys.stdin.buffer)) is not None:
        try:
            answer(shard=asdict(write_shard(indexer, place, job)))
        except RunError as problem:
            answer(error=str(problem))


if __name__ == "__main__":
    main()
