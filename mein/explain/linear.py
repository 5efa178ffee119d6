"""What is linear in n-grams is split exactly: a linear expert's words and pairs, a lexicon's entries.

An encoder's features are not: there words are left out, the text is encoded again, and the decrease is
theirs; what these decreases leave over is the part's rest.

T: units of a document (the words that the expert knows, or pieces), K: distinct n-grams in it, W: words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mein.experts.base import LinearWeights
from mein.explain.fragments import POSITIVE, Fragment
from mein.explain.layout import Layout
from mein.mixture.lexicon import LONGEST as LONGEST_ENTRY
from mein.mixture.lexicon import Lexicon
from mein.model.model import Model
from mein.text.features import LONGEST as LONGEST_NGRAM
from mein.text.features import codes_of
from mein.text.indexer import Reader
from mein.text.ragged import Ragged, parted
from mein.text.words import SPECIALS

MOST_WORDS = 40  # of a text that are left out one by one
MOST_GROUPS = 16  # that are left out of a longer text, which takes an encoder longer
LEAST_CHARACTERS = 500  # of a text's beginning, when looking for what an encoder reads of it
SENTENCE_ENDS = frozenset(".!?。！？…")

Pair = tuple[int, int]


class ComponentShare(NamedTuple):
    """What a component's fragments make of its part."""

    fragments: "NgramFragments"
    by_piece: np.ndarray
    """The same contributions (J,), by the pieces that the fragments hold."""


@dataclass(frozen=True, eq=False)
class NgramFragments:
    """The fragments of one component, of several words or pieces each."""

    source: str
    texts: Sequence[str]
    places: Sequence[tuple[int, int]]
    """Their pieces, first and one past the last."""
    contributions: np.ndarray
    """(K,)."""
    times: np.ndarray
    """How often each occurs (K,)."""
    ranks: int = POSITIVE

    def fragment(self, k: int) -> Fragment:
        """The one of that number."""
        share, times = float(self.contributions[k]), int(self.times[k])
        return Fragment(self.texts[k], self.source, None, *self.places[k], share, times)


class Ngrams(NamedTuple):
    """The n-grams of one document's units."""

    codes: np.ndarray
    """Of the distinct ones (K,), ascending."""
    first: np.ndarray
    """The occurrence of each that comes first (K,)."""
    times: np.ndarray
    """Occurrences of each (K,)."""
    which: np.ndarray
    """The distinct n-gram of each occurrence."""
    start: np.ndarray
    """The unit where each occurrence starts."""
    length: np.ndarray
    """The units of each occurrence."""

    def by_unit(self, shares: np.ndarray, units: int) -> np.ndarray:
        """Shares (K,), spread evenly over the occurrences and the units (T,) of each."""
        each = (shares / self.times)[self.which] / self.length
        found = np.zeros(units)
        for step in range(int(self.length.max(initial=0))):
            inside = self.length > step
            found += np.bincount(self.start[inside] + step, each[inside], minlength=units)
        return found


def ngrams_of(units: np.ndarray, vocabulary_size: int, longest: int) -> Ngrams:
    """Every n-gram of units (T,), as `codes_of` finds them."""
    _, codes = codes_of(Ragged(units, np.array([0, len(units)])), vocabulary_size, longest)
    starts, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for length in range(1, longest + 1):  # those of one length after those of another
        size = min(max(0, len(units) - length + 1), len(codes) - sum(map(len, starts)))
        starts.append(np.arange(size))
        lengths.append(np.full(size, length))
    distinct, first, which, times = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    return Ngrams(distinct, first, times, which, np.concatenate(starts), np.concatenate(lengths))


def entry_shares(
    ngrams: Ngrams, entries: np.ndarray, values: np.ndarray, counted: np.ndarray, lead: np.ndarray
) -> np.ndarray:
    """The share of each n-gram (K,) in W' x between two labels, where x has norm 1.

    entries, values (F,): codes, ascending, and their weights in x; lead (F,): of W between the labels;
    counted (K,): what the weight of each n-gram is multiplied by.
    """
    shares = np.zeros(len(ngrams.codes))
    if not len(entries) or not len(shares):
        return shares
    at = np.searchsorted(entries, ngrams.codes).clip(max=len(entries) - 1)
    is_known = entries[at] == ngrams.codes
    at = at[is_known]
    x = values[at].astype(np.float64) * counted[is_known]
    shares[is_known] = x / max(float(np.sqrt(x @ x)), 1e-300) * lead[at]
    return shares


def expert_share(
    weights: LinearWeights, layout: Layout, model: Model, words: np.ndarray, pair: Pair, scale: float
) -> ComponentShare:
    """The share of each word and pair of words in a linear expert's z, all occurrences together.

    words (T,): the numbers that the expert read; scale: what z is multiplied by.
    """
    a, b = pair
    number = model.indexer.words.numbers
    known = np.array([at for at, (word, _, _) in enumerate(layout.words) if word in number], np.int64)
    place = known[len(known) - len(words) :]  # of a long text it reads the end
    ngrams = ngrams_of(words, weights.vocabulary_size, LONGEST_NGRAM)
    lead = weights.ngrams[:, a].astype(np.float64) - weights.ngrams[:, b]
    shares = entry_shares(ngrams, weights.codes, weights.idf, 1 + np.log(ngrams.times), lead)
    start, length = ngrams.start[ngrams.first], ngrams.length[ngrams.first]
    is_word = length == 1
    vectors = weights.words[:, a].astype(np.float64) - weights.words[:, b]
    shares[is_word] += (ngrams.times * vectors[words[start]])[is_word] / np.sqrt(max(1, len(words)))
    shares *= scale
    kept = np.flatnonzero(shares)
    spans = [place[s : s + n] for s, n in zip(start[kept], length[kept], strict=True)]
    texts = [" ".join(layout.words[at][0] for at in span.tolist()) for span in spans]
    by_word = np.bincount(place, ngrams.by_unit(shares, len(words)), minlength=len(layout.words))
    places = [layout.words_of(span) for span in spans]
    spread = NgramFragments("expert", texts, places, shares[kept], ngrams.times[kept])
    return ComponentShare(spread, layout.by_piece(by_word))


def lexicon_share(
    lexicon: Lexicon, layout: Layout, pieces: np.ndarray, pair: Pair, scale: float
) -> ComponentShare:
    """The share of each entry in a lexicon's logits, times its gate and `scale`; pieces (T,) of a text."""
    a, b = pair
    ngrams = ngrams_of(pieces, lexicon.vocabulary_size, LONGEST_ENTRY)
    lead = lexicon.weights[:, a].astype(np.float64) - lexicon.weights[:, b]
    once = np.ones(len(ngrams.codes))  # an entry is present or not, however often
    shares = lexicon.gate * scale * entry_shares(ngrams, lexicon.entries, lexicon.informativeness, once, lead)
    kept = np.flatnonzero(shares)
    start = ngrams.start[ngrams.first[kept]]
    places = list(zip(start.tolist(), (start + ngrams.length[ngrams.first[kept]]).tolist(), strict=True))
    texts = [layout.letters(*span).strip() for span in places]
    spread = NgramFragments("lexicon", texts, places, shares[kept], ngrams.times[kept])
    by_piece = np.zeros(len(layout.which))
    by_piece[: len(pieces)] = ngrams.by_unit(shares, len(pieces))
    return ComponentShare(spread, by_piece)


def encoder_share(
    reader: Reader, text: str, layout: Layout, features: np.ndarray, lead: np.ndarray
) -> ComponentShare:
    """What features f . lead (F,) lose when a word, a sentence, or several are left out of a text.

    At most `MOST_WORDS` short texts or `MOST_GROUPS` longer ones are encoded, all at once. Of a long text
    only what the encoder reads, its beginning as a rule, is left out; as much again moves up.
    """
    read = _read_characters(reader, text, features)
    groups = _left_out(layout, read)
    without = [_without(text[: 2 * read], layout, first, last) for first, last in groups]
    rows = reader(without)
    left = rows.values.reshape(len(without), -1).astype(np.float64) @ lead if without else np.zeros(0)
    falls = float(features @ lead) - left
    by_word = np.zeros(len(layout.words))
    texts, places = [], []
    for (first, last), fall in zip(groups, falls.tolist(), strict=True):
        by_word[first:last] = fall / (last - first)
        texts.append(text[layout.words[first][1] : layout.words[last - 1][2]])
        places.append(layout.words_of(np.array([first, last - 1])))
    spread = NgramFragments("encoder", texts, places, falls, np.ones(len(groups), np.int64))
    return ComponentShare(spread, layout.by_piece(by_word))


def _read_characters(reader: Reader, text: str, features: np.ndarray) -> int:
    """How many characters an encoder reads of a text, at most twice as many as it has to."""
    size = LEAST_CHARACTERS
    while size < len(text):
        found = reader([text[:size]]).values
        if np.allclose(found, features, atol=1e-3):
            return size
        size *= 2
    return len(text)


def _left_out(layout: Layout, read: int) -> list[tuple[int, int]]:
    """Groups of words, first and one past the last, among those that begin before a character.

    Single words if there are few enough of them, else sentences, else neighboring sentences or words.
    """
    words = sum(start < read for _, start, _ in layout.words)
    if words <= MOST_WORDS:
        return [(w, w + 1) for w in range(words)]
    ends = [w + 1 for w in range(words) if layout.words[w][0] in SENTENCE_ENDS]
    edges = [0, *ends] if ends and ends[-1] == words else [0, *ends, words]
    if len(edges) < MOST_GROUPS // 4:  # sentences would be too long to tell much
        edges = list(range(words + 1))
    chosen = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), MOST_GROUPS + 1)).astype(int))
    at = [edges[k] for k in chosen.tolist()]
    return list(pairwise(at))


def _without(text: str, layout: Layout, first: int, last: int) -> str:
    """A text without some words, and without what is between them."""
    return text[: layout.words[first][1]] + text[layout.words[last - 1][2] :]


def parts_of_row(weights: LinearWeights, words: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """The encoder's features (F,) and the words (T,) of one document, as the expert reads them."""
    dense, rest = parted(words, len(weights.features))
    return dense[0], rest.values[rest.values >= SPECIALS]
