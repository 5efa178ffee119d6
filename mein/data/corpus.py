"""A corpus: where the labeled, unlabeled, dev and test documents of a run come from."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mein.data.columns import ColumnsConfig
from mein.data.labels import Label
from mein.data.readers import Documents, read_documents
from mein.data.soft_labels import text_keys
from mein.data.splits import KnownTexts

DocumentStream = Callable[[], Iterator[Documents]]  # a stream that can be read again from its start
CHUNK_DOCUMENTS = 1_000


@dataclass(frozen=True)
class Corpus:
    """The parts of a corpus; the labeled one must be there."""

    labeled: DocumentStream
    unlabeled: DocumentStream | None = None
    dev: DocumentStream | None = None
    test: DocumentStream | None = None
    names: dict[str, str] = field(default_factory=dict)
    """What to call each part in messages: its path, usually."""
    sample_weight: np.ndarray | None = None
    """Weight of each labeled document."""
    class_weight: Mapping[Label, float] | None = None
    """Weight of each class, which multiplies it in training; 1 where it has no entry."""

    @cached_property
    def labeled_documents(self) -> tuple[list[str], list[Label]]:
        """The labeled texts and their labels, read once."""
        return read_all(self.labeled)

    @cached_property
    def dev_documents(self) -> tuple[list[str], list[Label]]:
        """The same of dev, where it is given."""
        return ([], []) if self.dev is None else read_all(self.dev)

    @cached_property
    def test_survey(self) -> "Survey":
        """What training may know of the test documents, which are read once; their labels are not kept."""
        return Survey.of(iter(()) if self.test is None else self.test())


@dataclass(frozen=True)
class Survey:
    """What one pass over documents found, without the documents."""

    labels: Mapping[str, int]
    """How many documents there are of each class, by name."""
    known: KnownTexts
    keys: np.ndarray
    """A 64-bit hash of each text (n,)."""
    digest: str
    """Equal for the same texts in the same order."""

    @classmethod
    def of(cls, chunks: Iterator[Documents]) -> "Survey":
        """Read all of a stream."""
        labels, digest, keys = Counter[str](), hashlib.blake2b(digest_size=16), [np.zeros(0, np.uint64)]

        def texts() -> Iterator[list[str]]:
            for chunk in chunks:
                labels.update(map(str, chunk.labels or ()))
                keys.append(text_keys(chunk.texts))
                for text in chunk.texts:
                    content = text.encode("utf-8", "surrogatepass")
                    digest.update(len(content).to_bytes(8, "little"))
                    digest.update(content)
                yield chunk.texts

        known = KnownTexts.of(texts())
        return cls(labels, known, np.concatenate(keys), digest.hexdigest())


def corpus_of_files(
    labeled: str, unlabeled: str | None, dev: str | None, test: str | None, columns: ColumnsConfig
) -> Corpus:
    """The corpus whose parts are files, folders or URLs."""

    def source(path: str | None, is_labeled: bool) -> DocumentStream | None:
        if path is None:
            return None
        return lambda: read_documents(path, columns, labeled=is_labeled, may_guess=not is_labeled)

    paths = {"labeled": labeled, "unlabeled": unlabeled, "dev": dev, "test": test}
    sources = {part: source(path, part != "unlabeled") for part, path in paths.items()}
    names = {part: path for part, path in paths.items() if path is not None}
    return Corpus(names=names, **sources)  # type: ignore[arg-type]


def source_of_lists(texts: Sequence[str], labels: Sequence[Label] | None = None) -> DocumentStream:
    """A source over documents that are already in memory."""

    def read() -> Iterator[Documents]:
        for start in range(0, len(texts), CHUNK_DOCUMENTS):
            part = slice(start, start + CHUNK_DOCUMENTS)
            yield Documents(list(texts[part]), None if labels is None else list(labels[part]))

    return read


def read_all(source: DocumentStream) -> tuple[list[str], list[Label]]:
    """All texts and labels of a labeled source, which is small."""
    texts: list[str] = []
    labels: list[Label] = []
    for chunk in source():
        texts.extend(chunk.texts)
        labels.extend(chunk.labels if chunk.labels is not None else ())
    return texts, labels


def in_chunks(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    """The texts, some at a time."""
    for start in range(0, len(texts), CHUNK_DOCUMENTS):
        yield texts[start : start + CHUNK_DOCUMENTS]
