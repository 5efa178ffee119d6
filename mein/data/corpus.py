"""A corpus: the labeled, unlabeled, dev, and test documents of a run, from files or from Python.

Input from Python: lists, arrays, Series, Arrow arrays, and generators, checked.
"""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mein.data.columns import ColumnsConfig
from mein.data.formats import open_writer
from mein.data.labels import Label, plain_label
from mein.data.readers import Documents, read_documents
from mein.data.soft_labels import text_keys
from mein.data.splits import KnownTexts, empty_texts
from mein.errors import InputError

DocumentStream = Callable[[], Iterator[Documents]]  # a stream that can be read again from its start
CHUNK_DOCUMENTS = 1_000
UnlabeledText = str | os.PathLike[str] | Iterable[str]
UNLABELED = -1  # scikit-learn's sign for "no label", beside None
LARGEST_COUNT = 2**24  # in 32 bits all whole numbers up to it are exact
SURROGATES = re.compile("[\ud800-\udfff]")  # half a character, which no file can hold


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
    empty: int
    """How many texts hold nothing but white space."""

    @classmethod
    def of(cls, chunks: Iterator[Documents]) -> "Survey":
        """Read all of a stream."""
        labels, digest, keys = Counter[str](), hashlib.blake2b(digest_size=16), [np.zeros(0, np.uint64)]
        empty = 0

        def texts() -> Iterator[list[str]]:
            nonlocal empty
            for chunk in chunks:
                empty += empty_texts(chunk.texts)
                labels.update(map(str, chunk.labels or ()))
                keys.append(text_keys(chunk.texts))
                _add_texts(digest, chunk.texts)
                yield chunk.texts

        known = KnownTexts.of(texts())
        return cls(labels, known, np.concatenate(keys), digest.hexdigest(), empty)


def digest_of_texts(texts: Iterable[str]) -> str:
    """The digest of a survey of these texts."""
    digest = hashlib.blake2b(digest_size=16)
    _add_texts(digest, texts)
    return digest.hexdigest()


def _add_texts(digest: "hashlib.blake2b", texts: Iterable[str]) -> None:
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)


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


# Input from Python.


def as_list(values: Iterable[Any], name: str) -> list[Any]:
    """The values of a list, array, Series, Arrow array or generator; any other value is refused."""
    if isinstance(values, str | bytes):
        raise InputError(f"{name} is the single text {values[:40]!r}: give a list, even of one text.")
    if isinstance(values, Mapping):
        raise InputError(f"{name} is a mapping with the keys {list(values)!r:.60}: give one of its values.")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return list(values.to_pylist())
    shape = getattr(values, "shape", ())  # arrays, Series and frames of every library have one
    if len(shape) > 1:
        raise InputError(f"{name} is a table of shape {tuple(shape)}: give one column of it.")
    try:
        return list(values)
    except TypeError as problem:
        raise InputError(f"{name} is {values!r:.40}: give a list, an array or a column.") from problem


def as_texts(values: Iterable[str], name: str = "X", first: int = 0) -> list[str]:
    """The texts among the values, which must be all of them; positions count from `first`."""
    texts = as_list(values, name)
    for position, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise InputError(
                f"{name} holds {text!r:.60} of type {type(text).__name__} at position {position}: "
                "give one text for each document, an empty one where there is none."
            )
    return texts


class GivenWeights(NamedTuple):
    """Weights of texts (n,), float32, and of classes, which multiply them."""

    of_texts: np.ndarray
    of_classes: dict[Any, float] | None


def as_weights(
    sample_weight: Iterable[float] | None, class_weight: Mapping[Any, float] | None, labels: Sequence[Any]
) -> GivenWeights:
    """The given weights; a text whose class has weight 0 has weight 0.

    Those of texts are whole numbers, as given, or at most 1 among texts with a label.
    """
    weights, of_classes = np.ones(len(labels)), None
    if sample_weight is not None:
        weights = _numbers(sample_weight, "sample_weight", len(labels))
    together = weights
    if class_weight is not None:
        _check_keys(class_weight, labels)
        values = _numbers(class_weight.values(), "class_weight", len(class_weight))
        of_classes = dict(zip(class_weight, values.tolist(), strict=True))
        together = weights * np.array([of_classes.get(label, 1.0) for label in labels])
    is_labeled = np.array([not is_unlabeled(label) for label in labels], dtype=bool)
    if is_labeled.any() and not together[is_labeled].any():
        raise InputError("The weight of every text is 0: give some of them a weight above 0.")
    scaled, of_texts = _scaled(together, is_labeled), _scaled(weights, is_labeled)
    weighs = together > 0
    if is_labeled.any() and ((scaled[weighs] == 0).any() or (of_texts[weighs] == 0).any()):
        raise InputError("The weights of texts or classes differ by more than 10**37: give similar ones.")
    of_texts = np.where(scaled > 0, of_texts, np.float32(0))
    return GivenWeights(of_texts, of_classes)


def _scaled(weights: np.ndarray, is_labeled: np.ndarray) -> np.ndarray:
    largest = weights[is_labeled].max(initial=1e-300)
    is_whole = largest <= LARGEST_COUNT and not (weights[is_labeled] % 1).any()
    scaled: np.ndarray = np.minimum(weights, largest) / (1.0 if is_whole else largest)
    return scaled.astype(np.float32)


def _numbers(values: Iterable[float], name: str, size: int) -> np.ndarray:
    try:
        weights = np.array(as_list(values, name), dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name} holds something that is not a number: give finite numbers.") from problem
    if weights.shape != (size,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError(
            f"{name} of shape {weights.shape} does not fit: give {size} finite weights of 0 or more."
        )
    return weights


def _check_keys(class_weight: Mapping[Any, float], labels: Sequence[Any]) -> None:
    found = set(labels)
    for label in class_weight:
        if label not in found:
            raise InputError(f"class_weight names {label!r}, which y lacks: name the classes as y does.")


def is_unlabeled(label: Any) -> bool:
    """None, or the number -1, also as a float. NaN is an error, which Labels reports."""
    is_number = isinstance(label, int | float | np.integer | np.floating) and not isinstance(label, bool)
    return label is None or bool(is_number and label == UNLABELED)


def check_signs(labels: Sequence[Any]) -> None:
    """Refuse -1 beside a single class: it means "no label", but was surely meant as a class."""
    classes = {label for label in labels if not is_unlabeled(label)}
    if len(classes) == 1 and any(label is not None and is_unlabeled(label) for label in labels):
        raise InputError(
            f"y holds the single class {classes.pop()!s} beside -1, which marks texts without a label: "
            "use other names for the classes, for example 0 and 1."
        )


def corpus_of_lists(
    texts: Sequence[str],
    labels: Sequence[Any],
    weights: GivenWeights,
    unlabeled: UnlabeledText | None,
    columns: ColumnsConfig,
    folder: Path,
) -> Corpus:
    """The labeled texts with a weight above 0, and the unlabeled texts; a weight of 0 removes a text."""
    for label in labels:
        if not is_unlabeled(label):
            plain_label(label, "y")  # refuses what is none
    check_signs(labels)
    raw = [text for text, label in zip(texts, labels, strict=True) if is_unlabeled(label)]
    kept = [i for i, label in enumerate(labels) if weights.of_texts[i] > 0 and not is_unlabeled(label)]
    return Corpus(
        labeled=source_of_lists([texts[i] for i in kept], [labels[i] for i in kept]),
        unlabeled=unlabeled_source(raw, unlabeled, columns, folder),
        names={"labeled": "y"},
        sample_weight=weights.of_texts[kept],
        class_weight=weights.of_classes,
    )


def unlabeled_source(
    texts: list[str], unlabeled: UnlabeledText | None, columns: ColumnsConfig, folder: Path
) -> DocumentStream | None:
    """The texts without a label in y, then those of `unlabeled`, as one stream that can be read again.

    A generator is written to a file in the folder, because it can be read only once.
    """
    sources = [source_of_lists(texts)] if texts else []
    if isinstance(unlabeled, str | os.PathLike):
        sources.append(lambda: read_documents(unlabeled, columns, labeled=False, may_guess=True))
    elif isinstance(unlabeled, Sized):
        sources.append(source_of_lists(as_texts(unlabeled, "unlabeled")))
    elif unlabeled is not None:
        sources.append(_spooled(unlabeled, folder / "unlabeled.parquet"))
    if not sources:
        return None
    return lambda: chain.from_iterable(source() for source in sources)


def _spooled(texts: Iterable[str], path: Path) -> DocumentStream:
    documents = 0
    with open_writer(path) as writer:
        for chunk in _chunks(texts):
            checked = as_texts(chunk, "unlabeled", first=documents)
            storable = [SURROGATES.sub(" ", text) for text in checked]
            writer.write(pa.table({"text": pa.array(storable, pa.large_string())}))
            documents += len(chunk)
    if not documents:
        raise InputError(
            "unlabeled is an iterator without a text in it: one that was read before is empty; "
            "give a list or a path."
        )
    return lambda: read_documents(path, ColumnsConfig(text="text"), labeled=False)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    try:
        iterator = iter(texts)
    except TypeError as problem:
        raise InputError(f"unlabeled is {texts!r:.40}: give texts, a path or a glob.") from problem
    while chunk := list(islice(iterator, CHUNK_DOCUMENTS)):
        yield chunk
