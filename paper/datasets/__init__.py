"""The benchmarks by name. Each module reads one official layout; this file only lists them."""

from difflib import get_close_matches

from mein.errors import InputError
from paper.datasets.benchmark import PARTS, Benchmark, Prepared, Row, prepare
from paper.datasets.csv_sets import AG_NEWS, DBPEDIA
from paper.datasets.elec import AMAZON_ELECTRONICS, AMAZON_MOVIES, ELEC, ELECTRONICS
from paper.datasets.imdb import IMDB, IMDB_EXTRA
from paper.datasets.reuters import R52, RCV1, RCV1_TOKENS
from paper.datasets.rotten import ROTTEN

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
