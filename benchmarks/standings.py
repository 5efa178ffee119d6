"""Scores of one answer, paired tests with Holm's correction, ratios of errors, and the bars of the suite.

Everything is made from result lines: each keeps which test documents it got wrong, a bit each.
"""

import base64
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score

from benchmarks.draws import PROBLEMS
from mein.evaluation.significance import mcnemar

Line = dict[str, Any]

BINS = 15
SMALLEST = 1e-6  # a probability below counts as this
SIGNIFICANT = 0.01
OURS = ("mein", "mein + minilm")
WITHOUT_ENCODER = ("tf-idf", "self-training")
LINEAR = ("tf-idf", "minilm", "tf-idf + minilm")
LONG = ("electronics", "imdb")


def score(probabilities: NDArray[np.floating], classes: NDArray[np.str_], truth: NDArray[np.str_]) -> Line:
    """Error, macro F1, log loss, calibration error, and the wrong documents, of (documents, classes).

    A class that is not among `classes` has the probability 0. Bin b of the calibration error holds
    confidences in [b / 15, (b + 1) / 15).
    """
    answers = classes[probabilities.argmax(1)]
    correct, confidence = answers == truth, probabilities.max(1)
    place = np.searchsorted(classes, truth).clip(max=len(classes) - 1)
    own = np.where(classes[place] == truth, probabilities[np.arange(len(truth)), place], 0.0)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = (
        abs(correct[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean()
        for b in np.unique(bins)
    )
    return {
        "error": 100 * float(np.mean(~correct)),
        "macro_f1": float(f1_score(truth, answers, average="macro")),
        "log_loss": float(-np.log(np.maximum(own, SMALLEST)).mean()),
        "calibration_error": float(sum(gaps)),
        "documents": len(truth),
        "wrong": base64.b64encode(np.packbits(~correct).tobytes()).decode("ascii"),
    }


def correct_of(line: Line) -> NDArray[np.bool_]:
    """Which test documents a line's system got right (documents,)."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(line["wrong"]), np.uint8), count=line["documents"])
    correct: NDArray[np.bool_] = bits == 0
    return correct


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: the k-th smallest of m times m - k + 1, never below a smaller one's.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for k, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - k)))
        adjusted[place] = highest
    return adjusted


@dataclass(frozen=True)
class Pair:
    """Ours and a peer on the same test documents of one draw."""

    problem: str
    draw: int
    peer: str
    p: float
    """McNemar's, exact and two-sided."""
    gained: int
    """Documents that only ours got right."""
    lost: int
    """Documents that only the peer got right."""
    adjusted_p: float = 1.0
    """After Holm's correction over the cells of this peer."""

    @property
    def is_worse(self) -> bool:
        """Whether ours is significantly worse."""
        return self.lost > self.gained and self.adjusted_p < SIGNIFICANT


Suite = Mapping[str, Mapping[str, Mapping[int, Line]]]
"""System, problem, draw."""


def suite_of(lines: Iterable[Line]) -> Suite:
    """The lines with the suite's number of labels and all unlabeled text; failed ones are left out."""
    found: dict[str, dict[str, dict[int, Line]]] = {}
    for line in lines:
        is_suite = line["share"] == 1 and line["labels"] == PROBLEMS[line["problem"]].labels
        if is_suite and line["error"] is not None:
            found.setdefault(line["system"], {}).setdefault(line["problem"], {})[line["draw"]] = line
    return found


def pairs(suite: Suite, ours: str, peer: str) -> list[Pair]:
    """Ours against a peer in each cell that both have, with Holm's correction over these cells."""
    found = []
    for problem, draws in suite.get(ours, {}).items():
        others = suite.get(peer, {}).get(problem, {})
        for draw in sorted(draws.keys() & others.keys()):
            a, b = correct_of(draws[draw]), correct_of(others[draw])
            gained, lost = int((a & ~b).sum()), int((~a & b).sum())
            found.append(Pair(problem, draw, peer, mcnemar(a, b), gained, lost))
    adjusted = holm([pair.p for pair in found])
    return [Pair(**{**asdict(pair), "adjusted_p": p}) for pair, p in zip(found, adjusted, strict=True)]


def mean_of(suite: Suite, system: str, problem: str, figure: str = "error") -> float | None:
    """A figure averaged over draws; none where there is no line."""
    draws = suite.get(system, {}).get(problem, {})
    return statistics.mean(line[figure] for line in draws.values()) if draws else None


def ratios(suite: Suite, ours: str, peers: Sequence[str]) -> dict[str, tuple[str, float]]:
    """For each problem its best peer, and our error over that peer's, each averaged over the same draws."""
    found = {}
    for problem, draws in suite.get(ours, {}).items():
        errors = {}
        for peer in peers:
            others = suite.get(peer, {}).get(problem, {})
            if draws.keys() <= others.keys():
                errors[peer] = statistics.mean(others[draw]["error"] for draw in draws)
        if errors:
            best = min(errors, key=lambda peer: errors[peer])
            own = statistics.mean(line["error"] for line in draws.values())
            found[problem] = (best, own / errors[best] if errors[best] else float(own > 0) + 1)
    return found


@dataclass(frozen=True)
class Bar:
    """What is to be reached, what was, and on how many cells or problems."""

    name: str
    bar: float
    found: float
    count: int
    is_least: bool = False
    """Whether the bar is to be reached from above, such as a number of problems."""

    @property
    def is_met(self) -> bool:
        """Whether it was reached."""
        return self.found >= self.bar if self.is_least else self.found <= self.bar


def bars(suite: Suite) -> list[Bar]:
    """The bars of the suite, those for which there are lines."""
    return [*_bars_without_encoder(suite), *_bars_with_encoder(suite), *_bars_of_probabilities(suite)]


def _bars_without_encoder(suite: Suite) -> Iterable[Bar]:
    found = {problem: ratio for problem, (_, ratio) in ratios(suite, "mein", ["tf-idf"]).items()}
    if not found:
        return
    yield Bar("mein / tf-idf, mean ratio", 0.75, statistics.mean(found.values()), len(found))
    long = [found[problem] for problem in LONG if problem in found]
    if long:
        yield Bar("mein / tf-idf, mean ratio of long texts", 0.8, statistics.mean(long), len(long))
    compared = pairs(suite, "mein", "tf-idf")
    worse = sum(pair.is_worse for pair in compared)
    yield Bar("mein, cells significantly worse than tf-idf", 0, worse, len(compared))


def _bars_with_encoder(suite: Suite) -> Iterable[Bar]:
    ours = "mein + minilm"
    found = ratios(suite, ours, LINEAR)
    if not found:
        return
    name = f"{ours} / best linear peer"
    yield Bar(f"{name}, mean ratio", 0.95, statistics.mean(r for _, r in found.values()), len(found))
    of_encoder = [ratio for peer, ratio in found.values() if "minilm" in peer]
    if of_encoder:
        mean = statistics.mean(of_encoder)
        yield Bar(f"{name}, mean ratio where that has an encoder", 0.97, mean, len(of_encoder))
    better = [problem for problem, (_, ratio) in found.items() if ratio <= 0.9]
    short = [problem for problem in better if PROBLEMS[problem].is_short]
    yield Bar(f"{name}, problems at least 10% better", 3, len(better), len(found), is_least=True)
    yield Bar(f"{name}, short ones among them", 2, len(short), len(found), is_least=True)
    compared = [pair for peer in LINEAR for pair in pairs(suite, ours, peer)]
    compared = [pair for pair in compared if found.get(pair.problem, ("", 0))[0] == pair.peer]
    adjusted = holm([pair.p for pair in compared])
    worse = sum(
        pair.lost > pair.gained and p < SIGNIFICANT for pair, p in zip(compared, adjusted, strict=True)
    )
    yield Bar(f"{ours}, cells significantly worse than that peer", 0, worse, len(compared))


def _bars_of_probabilities(suite: Suite) -> Iterable[Bar]:
    for ours in OURS:
        problems = list(suite.get(ours, {}))
        if not problems:
            continue
        peers = WITHOUT_ENCODER if ours == "mein" else (*WITHOUT_ENCODER, *LINEAR[1:])
        least = [found for peer in peers if (found := overall(suite, peer, "log_loss", problems)) is not None]
        own = overall(suite, ours, "log_loss", problems)
        if least and own is not None:
            yield Bar(f"{ours}, mean log loss, to the best peer's", min(least), own, len(problems))
        mean = overall(suite, ours, "calibration_error", problems)
        cells = [line["calibration_error"] for draws in suite[ours].values() for line in draws.values()]
        assert mean is not None, "it has every problem"
        yield Bar(f"{ours}, mean calibration error", 0.05, mean, len(problems))
        yield Bar(f"{ours}, largest calibration error", 0.08, max(cells), len(cells))


def overall(suite: Suite, system: str, figure: str, problems: Sequence[str]) -> float | None:
    """The mean over problems of a figure averaged over draws; none where a problem is missing."""
    means = [mean_of(suite, system, problem, figure) for problem in problems]
    known = [mean for mean in means if mean is not None]
    return statistics.mean(known) if known and len(known) == len(means) else None


def summary(lines: Iterable[Line]) -> dict[str, Any]:
    """Everything above as JSON: ratios by problem, cells with p, means, and bars."""
    suite = suite_of(lines)
    ours = [system for system in OURS if system in suite]
    peers = [system for system in suite if system not in OURS]
    against = {system: {peer: ratios(suite, system, [peer]) for peer in peers} for system in ours}
    return {
        "problems": sorted({problem for draws in suite.values() for problem in draws}),
        "means": {
            system: {
                figure: overall(suite, system, figure, list(suite[system]))
                for figure in ("error", "macro_f1", "log_loss", "calibration_error", "seconds")
            }
            for system in suite
        },
        "ratios": {
            system: {
                peer: {
                    "mean": statistics.mean(ratio for _, ratio in found.values()),
                    "problems": {problem: ratio for problem, (_, ratio) in found.items()},
                }
                for peer, found in by_peer.items()
                if found
            }
            for system, by_peer in against.items()
        },
        "pairs": {
            system: [asdict(pair) for peer in peers for pair in pairs(suite, system, peer)] for system in ours
        },
        "bars": [{**asdict(bar), "is_met": bar.is_met} for bar in bars(suite)],
    }
