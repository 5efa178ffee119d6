"""The settings of the mixture, apart from its gates: to read settings takes no torch."""

from typing import Literal

from mein.runtime.settings import Settings


class MixtureConfig(Settings):
    """How the imitators' evidence is added to the expert's logits."""

    method: Literal["ours", "no-lexicon", "paper"] = "ours"
    """ours: gates are any numbers, fitted on dev before fine-tuning; evidence is centered; a lexicon (n-gram
    log-odds, learned from the labels) gets a gate too. no-lexicon: the same without the lexicon. paper: gates
    within (0, 1) that only fine-tuning moves; no centering, no lexicon."""

    @property
    def centers_evidence(self) -> bool:
        """Whether the mean of alpha over unlabeled text is subtracted.

        This removes a common bias of expert and imitators towards one label; it is a class bias, so the form
        of z' is unchanged.
        """
        return self.method != "paper"

    @property
    def has_lexicon(self) -> bool:
        """Whether the lexicon has a gate, which has to be fitted on dev."""
        return self.method == "ours"
