"""The benchmarks by name. Each module reads one official layout; this file only lists them."""

from difflib import get_close_matches

from mein.data.benchmarks.amazon import AMAZON_ELECTRONICS, AMAZON_MOVIES
from mein.data.benchmarks.benchmark import PARTS, Benchmark, Row
from mein.data.benchmarks.csv_sets import AG_NEWS, DBPEDIA
from mein.data.benchmarks.elec import ELEC, ELECTRONICS
from mein.data.benchmarks.imdb import IMDB, IMDB_EXTRA
from mein.data.benchmarks.prepare import Prepared, prepare
from mein.data.benchmarks.rcv1 import RCV1, RCV1_TOKENS
from mein.data.benchmarks.reuters import R52
from mein.data.benchmarks.rotten import ROTTEN
from mein.errors import InputError

__all__ = ["BENCHMARKS", "PARTS", "Benchmark", "Prepared", "Row", "find_benchmark", "prepare"]

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        IMDB,
        IMDB_EXTRA,
        ELEC,
        ELECTRONICS,
        ROTTEN,
        RCV1,
        RCV1_TOKENS,
        R52,
        AMAZON_MOVIES,
        AMAZON_ELECTRONICS,
        AG_NEWS,
        DBPEDIA,
    )
}


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of this name; the nearest is offered for one that there is not."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    nearest = get_close_matches(name.lower(), BENCHMARKS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(BENCHMARKS)}."
    raise InputError(f"There is no benchmark {name!r}; {hint}")
