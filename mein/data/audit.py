"""What a data set holds and what is wrong with it (`mein check`); which columns were guessed."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mein.data.columns import (
    LABEL_NAMES,
    TEXT_NAMES,
    ColumnsConfig,
    find_label_column,
    find_text_column,
    has_column,
)
from mein.data.files import Source
from mein.data.formats import find_files, source_name
from mein.data.labels import Labels, in_number, listed, none_to_evaluate_on, refuse_textless
from mein.data.readers import Documents, column_names, read_documents, rows_without_label
from mein.data.splits import fingerprint, text_key, word_string
from mein.errors import InputError


def guessed_columns(source: Source, columns: ColumnsConfig, *, labeled: bool) -> Iterator[str]:
    """A sentence for each guessed column that has rivals, or that replaces the named one."""
    roles = [
        ("text", columns.text, TEXT_NAMES, find_text_column),
        ("label", columns.label, LABEL_NAMES, find_label_column),
    ]
    names, called = _first_columns(source), source_name(source)
    for role, wanted, known, find in roles if labeled else roles[:1]:
        alike = [name for name in names if name.casefold() in known]
        if wanted is None and len(alike) > 1:
            taken = find(names, None, called)
            others = [name for name in alike if name != taken]
            yield (
                f"{called} has several columns that look like the {role}: {taken!r} is taken, not "
                f"{listed(others)} (--{role}-column names another)."
            )
    if not labeled:
        yield from replaced_columns(source, columns)


def replaced_columns(source: Source, columns: ColumnsConfig) -> Iterator[str]:
    """A sentence for each guessed column of unlabeled text that lacks the named column."""
    wanted = columns.text
    if wanted is None:
        return
    files_of: dict[str, list[str]] = {}
    for file in find_files(source):
        names = column_names(file) if file.format.has_columns else []
        if names and not has_column(names, wanted):
            taken = find_text_column(names, wanted, file.name, may_guess=True)
            files_of.setdefault(taken, []).append(file.name)
    for taken, (first, *others) in files_of.items():
        files = "file" if len(others) == 1 else "files"
        lack = f"and {len(others):,} more {files} lack" if others else "lacks"
        yield f"{first} {lack} the column {wanted!r}: {taken!r} is taken for the text."


def _first_columns(source: Source) -> list[str]:
    """The names of the columns of a source's first table that has any."""
    tables = (column_names(file) for file in find_files(source) if not file.is_document)
    return next((names for names in tables if names), [])


NAMES = {"labeled": "training", "unlabeled": "unlabeled", "dev": "dev", "test": "test"}
OVERLAPS = (
    ("labeled", "test"),
    ("labeled", "dev"),
    ("unlabeled", "test"),
    ("unlabeled", "labeled"),
    ("dev", "test"),
)

SAMPLED, SAMPLED_OF_CHUNK = 1_000, 100


@dataclass(frozen=True)
class Part:
    """The figures of one part: documents, words in a document, repeated texts."""

    source: str
    documents: int
    characters: int
    class_counts: dict[str, int]  # empty for the unlabeled part
    median_words: int
    words_95th: int  # 95 of 100 documents are no longer
    most_words: int
    empty: int
    duplicates: int  # documents whose text came before in the same part
    conflicts: int  # different texts that occur with more than one label


@dataclass(frozen=True)
class Audit:
    """All parts by name (labeled, unlabeled, dev, test), and notes about them."""

    parts: dict[str, Part]
    overlaps: dict[tuple[str, str], int]  # documents of the second part that the first holds too
    missing_classes: dict[str, list[str]]  # classes of the training labels that a part lacks
    problems: list[str] = field(default_factory=list)  # sentences that stop a training
    notes: list[str] = field(default_factory=list)  # sentences worth knowing
    samples: dict[str, list[str]] = field(default_factory=dict)  # some texts of each part


def audit(
    labeled: Source,
    unlabeled: Source | None,
    dev: Source | None,
    test: Source | None,
    columns: ColumnsConfig,
) -> Audit:
    """Read every part once, keeping 8 bytes a document (and as much for a label)."""
    sources = {"labeled": labeled, "unlabeled": unlabeled, "dev": dev, "test": test}
    parts: dict[str, Part] = {}
    hashes: dict[str, npt.NDArray[np.uint64]] = {}
    problems: list[str] = []
    notes: list[str] = []
    samples: dict[str, list[str]] = {name: [] for name in sources}
    for name, source in sources.items():
        if source is None:
            continue
        is_labeled = name != "unlabeled"
        chunks = read_documents(source, columns, labeled=is_labeled, may_guess=not is_labeled)
        try:
            parts[name], hashes[name] = _examine(source_name(source), chunks, samples[name])
            notes += guessed_columns(source, columns, labeled=is_labeled)
        except InputError as error:
            problems.append(str(error))
            notes += _missing_labels(source, columns) if is_labeled else []
    overlaps = {
        (first, second): _overlap(hashes[first], hashes[second])
        for first, second in OVERLAPS
        if first in hashes and second in hashes
    }
    missing = _missing_classes(parts)
    problems += _label_problems(parts)
    notes += _notes(parts, overlaps, missing)
    if unlabeled is None:
        notes.append("There is no unlabeled text, so training gives the plain expert.")
    return Audit(parts, overlaps, missing, problems, notes, samples)


def _examine(
    source: str, chunks: Iterator[Documents], sample: list[str]
) -> tuple[Part, npt.NDArray[np.uint64]]:
    """The figures of a part and the sorted hashes of its texts, the empty ones left out.

    The sample takes in the first texts of each chunk.
    """
    lengths: Counter[int] = Counter()
    characters = 0
    counts: Counter[str] = Counter()
    ids: dict[str, int] = {}
    hashes, label_ids = array("Q"), array("q")  # grow in place: 8 bytes an entry
    for chunk in chunks:
        sample += chunk.texts[: min(SAMPLED_OF_CHUNK, SAMPLED - len(sample))]
        characters += sum(map(len, chunk.texts))
        words = (word_string(text) for text in chunk.texts)
        lengths.update(text.count(" ") + 1 if text else 0 for text in words)
        hashes.extend(fingerprint(text_key(text)) for text in chunk.texts)
        names = [str(label) for label in chunk.labels] if chunk.labels is not None else []
        counts.update(names)
        label_ids.extend(ids.setdefault(name, len(ids)) for name in names)
    texts = np.frombuffer(hashes, dtype=np.uint64)
    conflicts = _conflicts(texts, np.frombuffer(label_ids, dtype=np.int64))
    texts.sort()
    empty = int(np.searchsorted(texts, np.uint64(1)))  # the hash of an empty text is 0
    texts = texts[empty:]
    part = Part(
        source=source,
        documents=lengths.total(),
        characters=characters,
        class_counts=dict(sorted(counts.items())),
        median_words=_percentile(lengths, 0.5),
        words_95th=_percentile(lengths, 0.95),
        most_words=max(lengths),
        empty=empty,
        duplicates=int((texts[1:] == texts[:-1]).sum()),
        conflicts=conflicts,
    )
    return part, texts


def _percentile(lengths: Counter[int], share: float) -> int:
    """The smallest length that at least this share of the documents does not exceed."""
    wanted, seen = share * lengths.total(), 0
    for length in sorted(lengths):
        seen += lengths[length]
        if seen >= wanted:
            return length
    raise AssertionError("a part has at least one document")


def _conflicts(texts: npt.NDArray[np.uint64], label_ids: npt.NDArray[np.int64]) -> int:
    """How many different texts occur with more than one label."""
    if not len(label_ids):
        return 0
    order = np.lexsort((label_ids, texts))
    texts, label_ids = texts[order], label_ids[order]
    is_new_label = (texts[1:] == texts[:-1]) & (label_ids[1:] != label_ids[:-1]) & (texts[1:] != 0)
    return len(np.unique(texts[1:][is_new_label]))


def _overlap(first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64]) -> int:
    """How many entries of the second sorted array the first holds too."""
    if not len(first):
        return 0
    places = np.minimum(np.searchsorted(first, second), len(first) - 1)
    return int((first[places] == second).sum())


def _missing_classes(parts: dict[str, Part]) -> dict[str, list[str]]:
    if "labeled" not in parts:
        return {}
    known = parts["labeled"].class_counts
    return {
        name: sorted(set(known) - set(parts[name].class_counts)) for name in ("dev", "test") if name in parts
    }


def _missing_labels(source: Source, columns: ColumnsConfig) -> list[str]:
    """The number of missing labels in a source, of which reading stopped at the first."""
    try:
        count = rows_without_label(source, columns)
    except InputError:  # already reported
        return []
    return [f"{count:,} rows of {source_name(source)} have no label."] if count > 1 else []


def _label_problems(parts: dict[str, Part]) -> list[str]:
    """The sentences with which training would refuse these labels."""
    if "labeled" not in parts:
        return []
    problems = []
    labeled, counts = parts["labeled"], parts["labeled"].class_counts
    try:
        Labels.from_counts(counts, counts, labeled.source, once_is_enough=True)
        refuse_textless(labeled.documents, labeled.empty, labeled.source)
        if set(counts.values()) == {1} and not {"dev", "test"} & parts.keys():
            raise none_to_evaluate_on(labeled.source)
    except InputError as error:
        problems.append(str(error))
    for name in ("dev", "test"):
        if name in parts:
            try:
                part = parts[name]
                Labels(tuple(counts)).refuse_unseen(part.class_counts, part.source)
                refuse_textless(part.documents, part.empty, part.source)
            except InputError as error:
                problems.append(str(error))
    return problems


def _notes(
    parts: dict[str, Part], overlaps: dict[tuple[str, str], int], missing: dict[str, list[str]]
) -> list[str]:
    notes = []
    for part in parts.values():
        sentences = {
            "holds {n} empty {documents}, which {are} kept.": part.empty,
            "repeats {n} {documents}.": part.duplicates,
            "gives different labels to {n} {texts}.": part.conflicts,
        }
        notes += [f"{part.source} {in_number(text, n)}" for text, n in sentences.items() if n]
    for (first, second), count in overlaps.items():
        if count:
            documents, are = in_number("{documents} {are}", count).split()
            notes.append(f"{count:,} {NAMES[second]} {documents} {are} also in the {NAMES[first]} part.")
    once = [name for name, n in parts["labeled"].class_counts.items() if n == 1] if "labeled" in parts else []
    if once:
        notes.append(
            f"{parts['labeled'].source} holds one example of {listed(once)}: it teaches, but nothing tells "
            "how well its class is recognized. Experts that learn by gradients need two, or dev documents."
        )
    notes += [
        f"The labels {listed(names)} differ in case or spaces only: they are {len(names)} classes."
        for names in _much_alike(parts)
    ]
    for name, classes in missing.items():
        if classes:
            notes.append(f"{parts[name].source} holds no document of {listed(classes)}.")
    return notes


def _much_alike(parts: dict[str, Part]) -> list[list[str]]:
    """Groups of labels that differ only in case and white space."""
    groups: dict[str, list[str]] = {}
    for name in sorted({name for part in parts.values() for name in part.class_counts}):
        groups.setdefault(" ".join(name.casefold().split()), []).append(name)
    return [names for names in groups.values() if len(names) > 1]
