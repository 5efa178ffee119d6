"""The final comparison as data: a row for each system, and the verdict on what to use."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mein.evaluation.metrics import Scores, evaluate
from mein.evaluation.significance import BootstrapResult, mcnemar, paired_bootstrap, wilson_interval
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE, PREVIOUS_RUN, SYSTEMS

SIGNIFICANT = 0.05
WORTHWHILE = 0.1  # of the baseline's error: a smaller gain is not worth a model that is less simple
FEW_DOCUMENTS = 300  # below, two errors of 20% must differ by 4 to 6 points to be told apart
POWER = (2.8 / 1.96) ** 2  # times the documents at which a difference is at p = 0.05: 80% are found

Outcome = Literal["helped", "hurt", "unclear", "untested", "seen"]
Credited = Literal["unlabeled text", "imitators", "self-training"]
Advice = Literal["model", "baseline", "labels", "unknown"]
EvaluatedPart = Literal["test", "dev", "labeled"]

MUST_BEAT: dict[Credited, tuple[str, ...]] = {
    "unlabeled text": (EXPERT, CLOSED_GATES),
    "imitators": (EXPERT, CLOSED_GATES),
    "self-training": (PREVIOUS_RUN,),
}
"""What the mixture must beat before something gets the credit."""


@dataclass(frozen=True)
class Row:
    """One system: its scores and how it compares with the reference, usually the mixture."""

    name: str
    title: str
    scores: Scores
    interval: tuple[float, float]
    """The 95% interval of Wilson around the error, in %."""
    p_value: float | None
    """Exact McNemar against the reference; None for the reference itself."""
    difference: BootstrapResult | None
    """This error minus the reference's in points, resampled; above 0: the reference is better."""

    @property
    def is_measurable(self) -> bool:
        """Whether its difference from the reference is more than chance."""
        return self.p_value is not None and self.p_value < SIGNIFICANT

    @property
    def gain(self) -> float:
        """By how many points the reference is better."""
        return 0.0 if self.difference is None else self.difference.difference

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data, for JSON."""
        return {
            "system": self.name,
            "title": self.title,
            **self.scores.to_dict(),
            "interval": self.interval,
            "p_value": self.p_value,
            "difference": None if self.difference is None else asdict(self.difference),
        }

    @classmethod
    def from_dict(cls, line: dict[str, Any]) -> "Row":
        """What `to_dict` gave."""
        difference = None if line["difference"] is None else BootstrapResult(**line["difference"])
        low, high = line["interval"]
        scores = Scores.from_dict(line)
        return cls(line["system"], line["title"], scores, (low, high), line["p_value"], difference)


@dataclass(frozen=True)
class Verdict:
    """What to use, and whether something helped: against what, by how much and with which p."""

    outcome: Outcome
    credited: Credited
    result: Row
    """The system that the verdict is about: the mixture, or the last one of the table."""
    against: tuple[Row, ...]
    """The systems that it had to beat for the outcome, with their differences from it."""
    baseline: Row | None = None
    """The baseline with the lowest error, and its difference from the result; none if none was evaluated."""
    part: EvaluatedPart = "test"
    """What was evaluated: a test set, dev, or the labeled documents, each out of fold."""

    @property
    def advice(self) -> Advice:
        """What somebody should do who needs a classifier.

        Use what has measurably the lower error. Without a measurable difference use the baseline, as it is
        simpler. But where a worthwhile gain is likely enough (within the 95% interval of the difference),
        only more labels tell. So they do where the model won on documents that it was selected on.
        """
        if self.baseline is None or self.baseline.difference is None:
            return "unknown"
        if self.baseline.is_measurable and self.baseline.gain < 0:
            return "baseline"
        if self.baseline.is_measurable:
            return "labels" if self.part == "dev" else "model"
        is_possible = self.baseline.difference.high > WORTHWHILE * self.baseline.scores.error
        return "labels" if is_possible else "baseline"

    @property
    def is_approximate(self) -> bool:
        """Whether its p-values are: folds share documents."""
        return self.part == "labeled"

    @property
    def has_few_documents(self) -> bool:
        """Whether only large differences are measurable."""
        return self.result.scores.documents < FEW_DOCUMENTS

    @property
    def enough_documents(self) -> int | None:
        """How many would tell, where more labels are advised: at least twice as many.

        Four times in five they show the difference measured here, or a worthwhile one if that is more.
        """
        if self.advice != "labels" or self.baseline is None or self.baseline.difference is None:
            return None
        documents, difference = self.baseline.scores.documents, self.baseline.difference
        width = (difference.high - difference.low) / 2
        wanted = max(abs(self.baseline.gain), WORTHWHILE * self.baseline.scores.error)
        return int(documents * max(2.0, POWER * (width / wanted) ** 2))

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain data, for JSON."""
        return {
            "outcome": self.outcome,
            "credited": self.credited,
            "result": self.result.to_dict(),
            "against": [row.to_dict() for row in self.against],
            "baseline": None if self.baseline is None else self.baseline.to_dict(),
            "part": self.part,
            "advice": self.advice,
        }

    @classmethod
    def from_dict(cls, line: dict[str, Any]) -> "Verdict":
        """What `to_dict` gave; verdicts of earlier versions name no baseline."""
        if line["outcome"] not in get_args(Outcome) or line["credited"] not in MUST_BEAT:
            raise ValueError(f"unknown verdict: {line['outcome']!r} of {line['credited']!r}")
        against = tuple(Row.from_dict(row) for row in line["against"])
        baseline = None if line.get("baseline") is None else Row.from_dict(line["baseline"])
        result = Row.from_dict(line["result"])
        return cls(line["outcome"], line["credited"], result, against, baseline, line.get("part", "test"))


def compare(
    labels: NDArray[np.integer],
    systems: dict[str, NDArray[np.float64]],
    *,
    seed: int,
    reference: str | None = None,
    has_lexicon: bool = False,
    is_tuned: bool = True,
) -> list[Row]:
    """A row for each system, in the order given, from its log-probabilities (n, Y).

    Each is compared with the reference. Default: the mixture, or the expert where there is none.
    is_tuned: whether stage 3 tuned the expert.
    """
    reference = (MIXTURE if MIXTURE in systems else EXPERT) if reference is None else reference
    correct = {name: log_probs.argmax(axis=1) == labels for name, log_probs in systems.items()}
    rows = []
    for name, log_probs in systems.items():
        scores, p_value, difference = evaluate(log_probs, labels), None, None
        if reference in systems and name != reference:
            p_value = mcnemar(correct[name], correct[reference])
            difference = paired_bootstrap(correct[name], correct[reference], seed)
        interval = wilson_interval(int(np.sum(~correct[name])), len(labels))
        title = SYSTEMS[name].title_in(has_lexicon, is_tuned=is_tuned)
        rows.append(Row(name, title, scores, interval, p_value, difference))
    return rows


def verdict_of(
    rows: Sequence[Row],
    credited: Credited = "unlabeled text",
    part: EvaluatedPart = "test",
    *,
    has_seen: bool = False,
) -> Verdict:
    """How the model does beside the best baseline, and whether what is credited helped or hurt.

    The mixture must beat the expert, or nothing was gained, and closed gates, or the gain came from
    fine-tuning. It helped where it beats both with p < 0.05 (as both must hold, two tests at 5%
    do not add up), it hurt where either beats it with p < 0.05. Without closed gates it is untested.
    Where the expert itself was trained on the unlabeled text, credit the imitators: only their effect
    is visible. A self-training round, whose expert has also seen that text, is compared with the
    previous run instead; the comparison does not show why they differ.
    Where soft labels have seen the labels they are evaluated on, nothing is compared.
    """
    by_name = {row.name: row for row in rows if row.p_value is not None}
    against = tuple(by_name[name] for name in MUST_BEAT[credited] if name in by_name)
    result = next((row for row in rows if row.name == MIXTURE), rows[-1])
    if has_seen:
        return Verdict("seen", credited, result, (), part=part)
    outcome = _outcome(against) if len(against) == len(MUST_BEAT[credited]) else "untested"
    baselines = [row for row in rows if row.name in SYSTEMS and SYSTEMS[row.name].is_baseline]
    baseline = min(baselines, key=lambda row: row.scores.error, default=None)
    return Verdict(outcome, credited, result, against, baseline, part)


def _outcome(against: Sequence[Row]) -> Outcome:
    if all(row.is_measurable and row.gain > 0 for row in against):
        return "helped"
    if any(row.is_measurable and row.gain < 0 for row in against):
        return "hurt"
    return "unclear"
