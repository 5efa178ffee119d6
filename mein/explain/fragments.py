"""RankedFragments of a text with their contributions: of any number, ranked, and made when they are read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

import numpy as np

POSITIVE, CORRECTS, SILENT = 0, 1, 2
"""In this order fragments are ranked: those of components that add their evidence, of those that subtract it,
of those without weight. A negative share of an imitator with a negative gate does not mean that the fragment
supports the other label."""


@dataclass(frozen=True)
class Fragment:
    """A part of the text that one component reads, and how much it moved the log-odds."""

    text: str
    source: str
    """`expert` (a word or pair of words of a linear expert), `encoder` (words that were left out), `lexicon`
    (up to three pieces), or `imitator` (a window)."""
    window: int | None
    """c of an imitator, whose window has 2 c + 1 pieces; none for other components."""
    start: int
    """The first of its pieces, counted from the text's first."""
    stop: int
    """One past the last of its pieces."""
    contribution: float
    """Its share of its component's part; positive for the label, negative for the alternative."""
    times: int = 1
    """How often it occurs. A share of expert or lexicon is that of all occurrences, placed at the first."""
    probabilities: tuple[float, ...] = ()
    """Of an imitator's fragment p_ij, its prediction for the fragment, in the order of the labels. Where the
    gate is negative, a fragment that the imitator assigns to one label supports the other."""


class FragmentSource(Protocol):
    """The fragments of one component."""

    @property
    def contributions(self) -> np.ndarray:
        """Of each fragment (K,)."""

    @property
    def ranks(self) -> np.ndarray | int:
        """`POSITIVE`, `CORRECTS` or `SILENT`, of each fragment (K,) or of all."""

    def fragment(self, k: int) -> Fragment:
        """The fragment of that number."""


class RankedFragments(Sequence[Fragment]):
    """The fragments of all components, the strongest first."""

    def __init__(self, sources: Sequence[FragmentSource]) -> None:
        self._sources = sources
        shares = [np.asarray(source.contributions) for source in sources] or [np.zeros(0)]
        ranks = [np.broadcast_to(source.ranks, source.contributions.shape) for source in sources]
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in shares])])
        # stable, so that equal ones keep the order of their components
        self._order = np.lexsort((-np.abs(np.concatenate(shares)), np.concatenate([*ranks, []])))

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Fragment: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Fragment, ...]: ...

    def __getitem__(self, index: int | slice) -> Fragment | tuple[Fragment, ...]:
        if isinstance(index, slice):
            return tuple(self._made(self._order[index]))
        return next(self._made(self._order[[index]]))

    def __iter__(self) -> Iterator[Fragment]:
        return self._made(self._order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RankedFragments | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} fragments, the strongest {self[:1]}>"

    def _made(self, numbers: np.ndarray) -> Iterator[Fragment]:
        places = np.searchsorted(self._starts, numbers, side="right") - 1
        inside = numbers - self._starts[places]
        for place, k in zip(places.tolist(), inside.tolist(), strict=True):
            yield self._sources[place].fragment(k)
