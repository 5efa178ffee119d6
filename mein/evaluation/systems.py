"""The systems of a comparison, as values: tables, report, card, charts, and stage 3 iterate over them."""

from dataclasses import dataclass
from typing import Literal

GRAY = ("#7c858d", "#8b959d")


@dataclass(frozen=True)
class System:
    """One row of the comparison: the mixture, or what it is compared with."""

    name: str
    """In files: its artefact, its column in predictions.parquet, its lines in metrics.jsonl."""
    title: str
    """In tables and sentences."""
    meaning: str
    """What it is, in the report."""
    color: tuple[str, str] = GRAY
    """In the report, on a light page and on a dark one."""
    evidence: Literal["imitators", "random", "none"] = "none"
    """What it sees beside the expert's logits: the imitators' alpha, noise of that shape, or nothing."""
    uses_lexicon: bool = False
    """Whether a lexicon is one of its components, where the run has one."""
    is_fine_tuned: bool = False
    """Whether stage 3 tunes it, from the expert of stage 1."""
    title_without_lexicon: str | None = None
    """Its title in a run without a lexicon, if another."""
    is_baseline: bool = False
    """Whether it is what one would use instead: the verdict compares with the best of these."""

    def title_in(self, has_lexicon: bool, *, is_tuned: bool = True) -> str:
        """Its title in a run with or without a lexicon, whose expert stage 3 tunes or leaves as it is."""
        title = self.title if has_lexicon else self.title_without_lexicon or self.title
        return title if is_tuned else title.replace("fine-tuned", "not tuned")

    @property
    def is_prominent(self) -> bool:
        """Whether it has a color of its own, and so a curve in the charts that show a few systems."""
        return self.color != GRAY


TFIDF = "tf-idf"
ENCODER = "encoder"
PREVIOUS_RUN = "previous-run"
EXPERT = "expert"
CLOSED_GATES = "closed"
RANDOM_IMITATORS = "random"
IMITATORS_ONLY = "imitators-only"
MIXTURE = "mixture"

SYSTEMS = {
    system.name: system
    for system in (
        System(
            TFIDF,
            "TF-IDF + logistic regression",
            "a baseline: labels only, words and pairs of words, no network",
            color=("#6b5fa8", "#aaa0e6"),
            is_baseline=True,
        ),
        System(
            ENCODER,
            "encoder + logistic regression",
            "a baseline: labels only, the features of the pre-trained encoder",
            color=("#a3477f", "#e58fc4"),
            is_baseline=True,
        ),
        System(PREVIOUS_RUN, "previous run", "the mixture of the run that it learned from"),
        System(EXPERT, "expert", "by itself, after stage 1", color=("#b3560b", "#f0993e")),
        System(
            CLOSED_GATES,
            "expert + lexicon, fine-tuned",
            "closed gates: trained as the mixture is, without imitators",
            uses_lexicon=True,
            is_fine_tuned=True,
            title_without_lexicon="expert, fine-tuned",
        ),
        System(
            RANDOM_IMITATORS,
            "random imitators",
            "trained as the mixture is, with noise in place of the imitators",
            evidence="random",
            uses_lexicon=True,
            is_fine_tuned=True,
        ),
        System(
            IMITATORS_ONLY,
            "imitators only",
            "their summed evidence, without the expert",
            evidence="imitators",
        ),
        System(
            MIXTURE,
            "mixture",
            "all components: what predict uses",
            color=("#0d6f69", "#3fc7b8"),
            evidence="imitators",
            uses_lexicon=True,
            is_fine_tuned=True,
        ),
    )
}
"""Every system by name, in the order of the tables."""


def control_names() -> tuple[str, ...]:
    """The systems that stage 3 tunes beside the mixture."""
    return tuple(name for name, system in SYSTEMS.items() if system.is_fine_tuned and name != MIXTURE)
