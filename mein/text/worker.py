"""One process that encodes shards: `python -m mein.text.worker FOLDER PLACE`, started by workers.py.

A job arrives as a line of JSON (the file, the facts, the length of each text in characters and of
all of them in bytes) and then the texts end to end in UTF-8; a line of JSON is the answer.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from mein.errors import RunError
from mein.files import sha256_of
from mein.processes import answer
from mein.text.encoder import Encoder
from mein.text.manifest import Shard
from mein.text.pieces import Pieces
from mein.text.place import Place, place_of
from mein.text.ragged import offsets_of
from mein.text.shards import write_arrays
from mein.text.words import Words, WordsConfig

CONFIG, WORDS, PIECES = "words.json", "words.txt", "pieces.model"


@dataclass(frozen=True)
class Job:
    """A shard to be: the name of its file, its texts, and facts to write with it."""

    file: str
    texts: Sequence[str]
    facts: dict[str, str]


def write_shard(encoder: Encoder, place: Place, job: Job) -> Shard:
    """Encode one shard and write it."""
    words, pieces = encoder.encode_ragged(job.texts)
    counts = len(words.values), len(pieces.values)
    facts = {**job.facts, "words": str(counts[0]), "pieces": str(counts[1])}
    with place.writing(job.file) as path:
        write_arrays(path, {"words": words, "pieces": pieces}, facts)
        size, sha256 = path.stat().st_size, sha256_of(path)
    return Shard(job.file, len(job.texts), *counts, size, sha256)


def send(job: Job, stream: IO[bytes]) -> None:
    """Write a job into a stream."""
    content = "".join(job.texts).encode("utf-8", "surrogatepass")
    header = {
        "file": job.file,
        "facts": job.facts,
        "bytes": len(content),
        "lengths": [len(text) for text in job.texts],
    }
    stream.write(json.dumps(header).encode("utf-8") + b"\n")
    stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> Job | None:
    """Read a job from a stream; none where the stream ends, also in mid-job."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    header = json.loads(line)
    content = stream.read(header["bytes"])
    if len(content) < header["bytes"]:
        return None
    text = content.decode("utf-8", "surrogatepass")
    offsets = offsets_of(header["lengths"]).tolist()
    texts = [text[start:stop] for start, stop in pairwise(offsets)]
    return Job(header["file"], texts, header["facts"])


def main() -> None:
    """Work on jobs from standard input until it ends."""
    folder, place = Path(sys.argv[1]), place_of(sys.argv[2])
    config = WordsConfig.model_validate_json((folder / CONFIG).read_text(encoding="utf-8"))
    encoder = Encoder(config, Words.load(folder / WORDS), Pieces.load(folder / PIECES))
    while (job := receive(sys.stdin.buffer)) is not None:
        try:
            answer(shard=asdict(write_shard(encoder, place, job)))
        except RunError as problem:
            answer(error=str(problem))


if __name__ == "__main__":
    main()
