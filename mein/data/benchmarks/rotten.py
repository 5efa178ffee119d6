"""Rotten Tomatoes (Pang & Lee 2005): rt-polarity.pos and .neg; every seed gives another split."""

from collections.abc import Iterator
from pathlib import Path

from mein.data.benchmarks.benchmark import (
    NEGATIVE,
    POSITIVE,
    Benchmark,
    Row,
    held_lines,
    not_found,
    with_dev,
)
from mein.data.benchmarks.snippets import snippets
from mein.data.download import Download
from mein.data.unpack import members
from mein.seeds import numpy_generator

FILES = {"rt-polarity.neg": NEGATIVE, "rt-polarity.pos": POSITIVE}


def read_rotten(source: Path, seed: int) -> Iterator[Row]:
    """A tenth for test, a tenth of the rest for dev: 10,662 -> 8,636 + 960 + 1,066."""
    texts: dict[str, list[str]] = {}
    for member in members(source):
        name = member.name.rpartition("/")[2]
        if name in FILES:
            texts[name] = [line.strip() for line in held_lines(member)]
    if set(texts) != set(FILES):
        raise not_found(source, sorted(set(FILES) - set(texts)))
    rows = [Row("train", text, label) for name, label in FILES.items() for text in texts[name]]
    order = numpy_generator(seed, "rotten", "test").permutation(len(rows))
    in_test = set(order[: len(rows) // 10].tolist())
    parted = (row._replace(part="test") if place in in_test else row for place, row in enumerate(rows))
    yield from with_dev(parted, seed, source)


ROTTEN = Benchmark(
    name="rotten",
    description="film sentences",
    where="Bo Pang's page of movie review data at Cornell: sentence polarity dataset v1.0",
    license="research use; cite Pang & Lee 2005",
    read=read_rotten,
    counts={"train": 8_636, "dev": 960, "test": 1_066},
    classes=2,
    downloads=(Download("https://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz"),),
    dress=snippets,
)
