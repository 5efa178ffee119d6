"""The imitators' vocabulary V': pieces of words, found by byte-pair encoding (sentencepiece)."""

import heapq
import io
import string
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from mein.errors import InputError, RunError
from mein.runtime.files import write_atomically
from mein.text.config import PiecesConfig
from mein.text.words import LONGEST_WORD, WordCounter

PADDING = 0
UNKNOWN = 1
CHARACTER_COVERAGE = 0.9995  # share of the text's characters that get a piece; rarer ones become unknown
MOST_SPELLED = 5_000  # characters that get a piece, of a script with tens of thousands of them
ALWAYS_SPELLED = frozenset(string.punctuation + string.digits)  # rare or not: where they occur
MAX_LEARNED = 60_000  # words; about 25 MB while learning
SPACE = "▁"  # sentencepiece's sign for the space in front of a word


class Pieces:
    """Cuts words into numbered pieces: 0 padding (never produced), 1 unknown; no begin or end.

    A piece never spans a space, so the pieces of a text are those of its words, one after another.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def from_counts(cls, counter: WordCounter, config: PiecesConfig) -> "Pieces":
        """Learn pieces from the words of a counted corpus.

        Byte-pair encoding uses only words and their frequencies: learning from the counts gives the
        same pieces as learning from the complete text, without a sample of it and without a limit on
        the length of a document. Memory is bounded: of more than `MAX_LEARNED` words the rarest are
        left out.
        """
        if not counter.frequency:
            raise InputError(
                f"The {counter.documents} documents hold no word to learn pieces from; "
                "check the text column and that the texts are not empty."
            )
        learned = dict(_most_frequent(counter, config))
        covered, signs = _covered(learned), _signs(counter, config)
        coverage = CHARACTER_COVERAGE
        is_paper = counter.config.tokenizer == "paper"  # whose pieces are those of the published runs
        if not is_paper and (len(covered) > MOST_SPELLED or not signs.issubset(covered)):
            learned |= {sign: counter.frequency[sign] or 1 for sign in signs}
            learned = _cut(learned, signs.union(covered[: MOST_SPELLED - len(signs)]))
            coverage = 1.0
        # sorted: the same counts give the same bytes, in whatever order words occurred.
        lines = (f"{word}\t{count}" for word, count in sorted(learned.items()))
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            input_format="tsv",
            max_sentence_length=4 * LONGEST_WORD + 32,  # bytes; longer lines would be skipped
            model_writer=model,
            model_type="bpe",
            vocab_size=_vocabulary_size(counter, config),
            hard_vocab_limit=False,  # a small corpus runs out of pairs to merge: then fewer
            character_coverage=coverage,
            # The words are tokenized and cased by then. The default, nmt_nfkc, would also fold
            # signs ("…" to "...", "ﬁ" to "fi"): pieces would no longer spell the text.
            normalization_rule_name="identity",
            pad_id=PADDING,
            unk_id=UNKNOWN,
            bos_id=-1,
            eos_id=-1,
            num_threads=1,  # stored in the model: another number would be another file
            minloglevel=2,
        )
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Pieces":
        """Read pieces back from a .model file of sentencepiece."""
        try:
            pieces = cls(path.read_bytes())
        except OSError as error:
            raise RunError(
                f"{path} cannot be read ({error.strerror}); give a complete run folder."
            ) from error
        except RuntimeError as error:
            raise _damaged(path) from error
        if not pieces._has_specials():
            raise _damaged(path)
        return pieces

    def save(self, path: Path) -> None:
        """Write the .model file, which sentencepiece's own tools can read."""
        write_atomically(path, self.model)

    def __reduce__(self) -> tuple[type["Pieces"], tuple[bytes]]:
        return Pieces, (self.model,)

    @property
    def size(self) -> int:
        """How many numbers there are, padding and unknown included."""
        return int(self._processor.get_piece_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The piece numbers of each text; words are separated by spaces."""
        encoded: list[list[int]] = self._processor.encode(list(texts), num_threads=1)
        return encoded

    def fragments(self, ids: Sequence[int]) -> list[str]:
        """What each piece spells, with a space before the first piece of a word.

        Padding spells nothing, unknown a replacement sign; joined, the fragments are the text.
        """
        spelled = ("", "\N{REPLACEMENT CHARACTER}")
        return [
            spelled[i] if i <= UNKNOWN else self._processor.id_to_piece(i).replace(SPACE, " ")
            for i in map(int, ids)
        ]

    def _has_specials(self) -> bool:
        processor = self._processor
        specials = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        return specials == (PADDING, UNKNOWN, -1, -1) and processor.piece_to_id(SPACE) > UNKNOWN


def _most_frequent(counter: WordCounter, config: PiecesConfig) -> Iterable[tuple[str, int]]:
    """The words to learn from, with their counts; among equal counts, a checksum of the word decides.

    Spelling would be a poor choice where most words occur once, as do clauses of a script without spaces.
    """
    limit = max(MAX_LEARNED, 3 * config.vocabulary_size)
    if len(counter.frequency) <= limit:
        return counter.frequency.items()
    rank = ((count, zlib.crc32(word.encode("utf-8")), word) for word, count in counter.frequency.items())
    return ((word, count) for count, _, word in heapq.nlargest(limit, rank))


def _signs(counter: WordCounter, config: PiecesConfig) -> set[str]:
    """What is spelled however small its share is: marks and digits of ASCII, and emoji and other signs that
    occur `min_count` times."""
    frequent = {
        word
        for word, count in counter.frequency.items()
        if len(word) == 1 and count >= config.min_count and word.isprintable() and not word.isalnum()
    }
    return frequent | (ALWAYS_SPELLED & set("".join(counter.frequency)))


def _covered(learned: Mapping[str, int]) -> list[str]:
    """The characters that sentencepiece would spell, the most frequent ones first."""
    characters: Counter[str] = Counter()
    for word, count in learned.items():
        for character in SPACE + word:
            characters[character] += count
    ranked = sorted(characters, key=lambda character: (-characters[character], character))
    counts = np.array([characters[character] for character in ranked])
    before = ((counts.cumsum() - counts) / counts.sum()).astype(np.float32)
    return ranked[: np.count_nonzero(before < np.float32(CHARACTER_COVERAGE))]


def _cut(learned: Mapping[str, int], spelled: set[str]) -> dict[str, int]:
    """Words of these characters alone: they are cut where others stand."""
    found: Counter[str] = Counter()
    for word, count in learned.items():
        for part in "".join(c if c in spelled else " " for c in word).split():
            found[part] += count
    return found


def _vocabulary_size(counter: WordCounter, config: PiecesConfig) -> int:
    """As many pieces as can each occur a few times; never fewer than the characters need.

    One for every word with `min_count` occurrences, and one more for every word with ten times as many,
    which so becomes a piece itself. Then 6 to 10% of the pieces occur fewer than 5 times, for 20 reviews
    as for 20,000; with a fixed 20,000 pieces it is 74% on the 10,664 short reviews of Rotten Tomatoes.
    """
    characters = min(len(set("".join(counter.frequency))), MOST_SPELLED) + 3  # and space, padding, unknown
    counts = counter.frequency.values()
    frequent = sum(count >= config.min_count for count in counts)
    very_frequent = sum(count >= 10 * config.min_count for count in counts)
    return max(characters, min(config.vocabulary_size, characters + frequent + very_frequent))


def _damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged or not a model of pieces; restore it from a copy or train again.")
