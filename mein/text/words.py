"""The expert's vocabulary V: how a text becomes words, and which words have a number."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mein.errors import RunError
from mein.runtime.files import write_atomically
from mein.text.config import WordsConfig

PADDING = 0
END = 1  # end of sequence: appended to every document
SPECIALS = 2
MIN_DOCUMENTS = 2  # that a word occurs in, to be kept; if none does, every word is kept

VERSION = 1
HEADER = "mein words"

# Longer runs of word characters (base64, a text without spaces) are cut, so that tables of words and the
# BPE learner, which crashes at 65,536 characters, hold no huge word.
LONGEST_WORD = 1000
# subtle: "▁" is sentencepiece's own sign for a space and half a surrogate pair is no UTF-8: both
# are skipped here, so that no later code meets them.
SIGN = r"[^\w\s▁\ud800-\udfff]"
PATTERNS = {
    "words": re.compile(rf"\w{{1,{LONGEST_WORD}}}|{SIGN}"),
    "paper": re.compile(rf"\w{{1,{LONGEST_WORD}}}"),
}
# Scripts that set no space between words, by their blocks in Unicode. Korean does.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"  # Thai, Lao; Burmese; Khmer
    r"\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f"  # kana, Bopomofo
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Chinese characters
)
# Vowels and tones that are written above, below, or beside the letter in front of them.
MARKS = (
    r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059"
    r"\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d"
    r"\u17b4-\u17d3\u17dd\u3099\u309a\ua9e5\uaa7b-\uaa7d"
)
LETTER = f"[{UNSPACED}][{MARKS}]{{0,9}}"
WORD = rf"{LETTER}|[^\W{UNSPACED}]{{1,{LONGEST_WORD}}}"  # without signs, for all scripts
OF_ALL_SCRIPTS = re.compile(f"{WORD}|{SIGN}")  # slower, and the same where no script is unspaced
LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Words:
    """A numbered vocabulary: 0 padding, 1 end of sequence, then words by falling frequency.

    `words[i]` has the number `i + 2`; `counts` and `document_counts` are indexed by that number, so
    they have `size` entries: 0 for padding, the number of documents for end of sequence.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    document_counts: np.ndarray

    @classmethod
    def from_counts(cls, counter: "WordCounter") -> "Words":
        """Choose and number the words of a counted corpus; ties in frequency go by spelling."""
        config, in_documents = counter.config, counter.in_documents
        kept = [word for word, n in in_documents.items() if n >= MIN_DOCUMENTS]
        frequency = counter.frequency
        ranked = sorted(kept or in_documents, key=lambda word: (-frequency[word], word))
        words = ranked[: config.max_words]
        return cls(
            tuple(words),
            np.array([0, counter.documents, *(frequency[word] for word in words)], np.int64),
            np.array([0, counter.documents, *(in_documents[word] for word in words)], np.int64),
        )

    @classmethod
    def load(cls, path: Path) -> "Words":
        """Read a vocabulary back from the file that `save` wrote."""
        try:
            lines = path.read_bytes().decode("utf-8").split("\n")
        except OSError as error:
            raise RunError(
                f"{path} cannot be read ({error.strerror}); give a complete run folder."
            ) from error
        except UnicodeDecodeError as error:
            raise _damaged(path, "it is not UTF-8") from error
        documents = _read_header(path, lines)
        return cls._from_lines(path, lines[1:-1], documents)

    @classmethod
    def _from_lines(cls, path: Path, lines: list[str], documents: int) -> "Words":
        words, counts, document_counts = [], [0, documents], [0, documents]
        for number, line in enumerate(lines, start=2):
            fields = line.split("\t")
            if len(fields) != 3 or not fields[0] or not all(_is_count(n) for n in fields[1:]):
                raise _damaged(path, f"line {number} is not `word<TAB>count<TAB>documents`")
            words.append(fields[0])
            counts.append(int(fields[1]))
            document_counts.append(int(fields[2]))
        if len(set(words)) < len(words):
            raise _damaged(path, "a word occurs in it twice")
        return cls(tuple(words), np.array(counts, np.int64), np.array(document_counts, np.int64))

    def save(self, path: Path) -> None:
        """Write a line for each word with its counts, below a line of version, documents, and words."""
        lines = [f"{HEADER}\t{VERSION}\t{self.counts[END]}\t{len(self.words)}"]
        columns = zip(self.words, self.counts[SPECIALS:], self.document_counts[SPECIALS:], strict=True)
        lines += [f"{word}\t{count}\t{documents}" for word, count, documents in columns]
        write_atomically(path, ("\n".join(lines) + "\n").encode("utf-8"))

    @property
    def size(self) -> int:
        """How many numbers there are, padding and end of sequence included."""
        return SPECIALS + len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words, start=SPECIALS)}

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Number the words; unknown ones are deleted, end of sequence is appended.

        >>> counter = WordCounter(WordsConfig())
        >>> counter.add(["good film", "a good one"])
        >>> Words.from_counts(counter).encode(["a", "good", "good", "play"])
        [2, 2, 1]
        """
        return [*filter(None, map(self.numbers.get, tokens)), END]


class WordCounter:
    """Counts words and the documents they are in, as a stream.

    Memory is bounded: above `limit` distinct words the rarest are dropped (those of one document
    first) until half the limit is left. A dropped word counts from 0 when it occurs again, so the count of a
    rare word may be a little low; that of a word that is frequent throughout is exact.
    The default takes about 60 MB; 20,000 film reviews have 68,000 distinct words.
    """

    def __init__(self, config: WordsConfig, limit: int = 500_000) -> None:
        self.config = config
        self.limit = limit
        self.documents = 0
        self.tokens = 0
        self.frequency: Counter[str] = Counter()
        self.in_documents: Counter[str] = Counter()

    def add(self, texts: Sequence[str]) -> None:
        """Count the words of some more documents."""
        for text in texts:
            tokens = tokenize(text, self.config)
            self.documents += 1
            self.tokens += len(tokens)
            self.frequency.update(tokens)
            self.in_documents.update(set(tokens))
            if len(self.frequency) > self.limit:
                self._drop_rarest()

    def _drop_rarest(self) -> None:
        floor = 1
        while len(self.in_documents) > self.limit // 2:
            floor += 1
            kept = {word: n for word, n in self.in_documents.items() if n >= floor}
            self.in_documents = Counter(kept)
        # subtle: rebuilt, because a dict that only loses keys never frees memory.
        self.frequency = Counter({word: self.frequency[word] for word in self.in_documents})


def tokenize(text: str, config: WordsConfig) -> list[str]:
    """Cut a text into words. Where a script sets no spaces, each letter with its marks is one.

    >>> tokenize("Don't stop!<br />", WordsConfig())
    ['don', "'", 't', 'stop', '!']
    >>> tokenize("3D电影", WordsConfig())
    ['3d', '电', '影']
    >>> tokenize("Don't stop!<br />", WordsConfig(tokenizer="paper", lowercase=False))
    ['Don', 't', 'stop', 'br']
    """
    if config.lowercase:
        text = text.lower()
    if config.tokenizer == "words" and "<" in text:
        text = LINE_BREAK.sub(" ", text)
    return _pattern(text, config).findall(text)


def _pattern(text: str, config: WordsConfig) -> re.Pattern[str]:
    if config.tokenizer == "words" and not text.isascii():
        return OF_ALL_SCRIPTS
    return PATTERNS[config.tokenizer]


def _read_header(path: Path, lines: list[str]) -> int:
    """The number of documents, after the version and the number of lines are verified."""
    fields = lines[0].split("\t")
    if len(fields) < 2 or fields[0] != HEADER or not _is_count(fields[1]):
        raise _damaged(path, f"its first line is not `{HEADER}<TAB>version`")
    if int(fields[1]) > VERSION:
        raise RunError(f"{path} has version {fields[1]}, but this mein reads up to {VERSION}; update mein.")
    if len(fields) != 4 or not all(_is_count(n) for n in fields[2:]) or lines[-1]:
        raise _damaged(path, "it was cut short")
    if int(fields[3]) != len(lines) - 2:
        raise _damaged(path, f"it should hold {fields[3]} words but holds {len(lines) - 2}")
    return int(fields[2])


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _damaged(path: Path, reason: str) -> RunError:
    return RunError(f"{path} is damaged: {reason}; restore it from a copy or train again.")


def words_in(text: str, config: WordsConfig) -> list[tuple[str, int, int]]:
    """The words that `tokenize` finds, each with its place in the text.

    >>> words_in("So<br>GOOD!", WordsConfig())
    [('so', 0, 2), ('good', 6, 10), ('!', 10, 11)]
    """
    seen, places = _lowered(text) if config.lowercase else (text, range(len(text)))
    if config.tokenizer == "words":
        seen = LINE_BREAK.sub(lambda found: " " * len(found.group()), seen)
    words, end = [], 0
    for found in _pattern(seen, config).finditer(seen):
        start, stop = places[found.start()], places[found.end() - 1] + 1
        words.append((found.group(), max(start, end), stop))  # two words may come from one letter
        end = stop
    return words


def _lowered(text: str) -> tuple[str, Sequence[int]]:
    """The text in lower case, and each character's place in the original: some letters become two."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered, range(len(text))
    return lowered, [place for place, letter in enumerate(text) for _ in letter.lower()]
