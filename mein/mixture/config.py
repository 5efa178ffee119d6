"""The settings of the mixture, apart from its gates: to read settings takes no torch."""

from typing import Literal

from mein.runtime.settings import Settings


class MixtureConfig(Settings):
    """How the imitators' evidence is added to the expert's logits."""

    gates: Literal["free", "sigmoid"] = "free"
    """free: any number, fitted on dev before fine-tuning; sigmoid: within (0, 1), as in the paper."""
    centers_evidence: bool = True
    """Whether the mean of alpha over unlabeled text is subtracted, which removes a common bias of expert and
    imitators towards one label; it is a class bias, so the form of z' is unchanged."""
    has_lexicon: bool = False
    """Whether a lexicon (n-gram log-odds, learned from the labels) gets a gate too, if gates are free; the
    paper has none."""

    @property
    def uses_lexicon(self) -> bool:
        """Whether the lexicon has a gate, which has to be fitted on dev."""
        from mein.mixture.gates import GATES

        return self.has_lexicon and GATES[self.gates].is_fitted
