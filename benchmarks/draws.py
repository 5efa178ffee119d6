"""Eight unlike problems with few labels: what is labeled, unlabeled, and test in each draw, bit for bit.

The test documents of a problem are the same in every draw. They come from training files: the official test
sets of IMDB, electronics, and Reuters are not touched.
"""

import csv
import json
import lzma
import random
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mein.errors import InputError
from mein.runtime.files import atomic_path

MOST_LABELS = 1_600
SHUFFLE = 2019  # of the file, before the test documents are cut off
FIRST_DRAW = 100  # the seed of draw 0, for the documents that are left
CLASSES_OF_R52 = 15


class Document(NamedTuple):
    """A labeled text."""

    text: str
    label: str


@dataclass(frozen=True)
class Plan:
    """Where the documents of a problem are, and how many become what."""

    file: str
    labels: int
    tests: int
    raw: str | None = None
    """The file of its unlabeled text; none: there is none, or it is in `file`."""
    raw_documents: int = 0
    """How many of them are taken, from the first."""
    is_short: bool = True
    """Whether its documents are of about a sentence."""
    is_pool_raw: bool = True
    """Whether the labeled documents that are not drawn become unlabeled text."""


PROBLEMS = {
    "trec": Plan("suite/trec.jsonl.xz", 300, 2_000),
    "cr": Plan("suite/cr.jsonl.xz", 300, 1_500),
    "agnews": Plan("suite/agnews.jsonl.xz", 400, 2_000, is_short=False),
    "banking77": Plan("suite/banking77.jsonl.xz", 1_540, 3_000),
    "r52": Plan(
        "reuters21578/r52-train.jsonl.xz",
        500,
        2_000,
        "reuters21578/r52-unlabeled.jsonl.xz",
        10_784,
        is_short=False,
    ),
    "electronics": Plan(
        "electronics/train.jsonl.xz",
        500,
        3_000,
        "electronics/unlabeled.jsonl.xz",
        15_000,
        is_short=False,
    ),
    "rotten": Plan("rotten/rt-polaritydata.tar.gz", 500, 2_000),
    "imdb": Plan(
        "imdb/aclImdb_v1.tar.xz", 400, 3_000, raw_documents=15_000, is_short=False, is_pool_raw=False
    ),
}
"""By name, from those that take seconds to those that take minutes."""


@dataclass(frozen=True)
class Cell:
    """What one system gets: documents that are labeled, unlabeled, and test."""

    labeled: Sequence[Document]
    raw: Sequence[str]
    test: Sequence[Document]


@dataclass(frozen=True)
class Problem:
    """The documents of a problem, and their order in each draw."""

    name: str
    test: Sequence[Document]
    pool: Sequence[Document]
    """The labeled documents that are not in the test set."""
    orders: dict[int, list[int]]
    """Of the pool, by draw; its first documents are the labeled ones."""
    raw: Sequence[str]
    """Unlabeled text beside the pool."""

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len({document.label for document in (*self.test, *self.pool)})

    def cell(self, draw: int, labels: int | None = None, share: float = 1.0) -> Cell:
        """Documents of a draw with so many labels, and with a share of its unlabeled text.

        More labels, or a larger share, hold those of fewer: labels are the first of an order, and a half of
        the text is every second document.
        """
        plan = PROBLEMS[self.name]
        count = plan.labels if labels is None else labels
        order = self.orders[draw]
        if count > len(order):
            raise InputError(
                f"{self.name} has {len(order):,} documents to label, and {count:,} are asked for: "
                "choose fewer with --sizes."
            )
        left = [self.pool[i].text for i in order[count:]] if plan.is_pool_raw else []
        raw = [*left, *self.raw]
        kept = [] if share == 0 else raw[:: round(1 / share)]
        return Cell([self.pool[i] for i in order[:count]], kept, self.test)


def load_problem(name: str, folder: Path, draws: Iterable[int]) -> Problem:
    """A problem from the original files of a folder, or from what `write_packed` wrote there."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder. Name the one with the data by --data.")
    packed = folder / f"{name}.jsonl.xz"
    return _read_packed(packed, draws) if packed.is_file() else _read_original(name, folder, draws)


def _read_original(name: str, folder: Path, draws: Iterable[int]) -> Problem:
    """Shuffle, cut off the test documents, and order the others anew for each draw."""
    plan = PROBLEMS[name]
    for file in filter(None, (plan.file, plan.raw)):
        if not (folder / file).is_file():
            raise InputError(f"{folder / file}: the file of {name} is missing. Put it there, or set --data.")
    documents, raw = _read(name, folder)
    random.Random(SHUFFLE).shuffle(documents)
    test, pool = documents[: plan.tests], documents[plan.tests :]
    orders = {}
    for draw in draws:
        order = list(range(len(pool)))
        random.Random(FIRST_DRAW + draw).shuffle(order)
        orders[draw] = order if plan.is_pool_raw else order[:MOST_LABELS]
    return Problem(name, test, pool, orders, raw)


def _read(name: str, folder: Path) -> tuple[list[Document], list[str]]:
    """The labeled documents of a problem, and unlabeled text, in the order of the files."""
    plan = PROBLEMS[name]
    if name == "rotten":
        return list(_sentences(folder / plan.file)), []
    if name == "imdb":
        return _reviews(folder / plan.file, plan.raw_documents)
    documents = [Document(row["text"], str(row["label"])) for row in _rows(folder / plan.file)]
    if name == "r52":
        counts = Counter(document.label for document in documents)
        largest = {label for label, _ in counts.most_common(CLASSES_OF_R52)}
        documents = [document for document in documents if document.label in largest]
    if plan.raw is None:
        return documents, []
    found = zip(range(plan.raw_documents), _rows(folder / plan.raw), strict=False)
    return documents, [row["text"] for _, row in found]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _sentences(path: Path) -> Iterator[Document]:
    """Rotten Tomatoes: a sentence per line of a file per class."""
    for member, content in _members(path, lambda name: name.endswith((".pos", ".neg"))):
        lines = (line.strip() for line in content.decode("latin-1").split("\n"))
        yield from (Document(line, member[-3:]) for line in lines if line)


def _reviews(path: Path, most: int) -> tuple[list[Document], list[str]]:
    """IMDB: a file per review, train/pos/*.txt, train/neg/*.txt, and the first of train/unsup/*.txt."""

    def is_wanted(name: str) -> bool:
        return "/train/" in name and name.count("/") == 3 and name.endswith(".txt")

    documents: list[Document] = []
    raw: list[str] = []
    for member, content in _members(path, is_wanted):
        kind = member.split("/")[2]
        if kind in ("pos", "neg"):
            documents.append(Document(content.decode("utf-8"), kind))
        elif kind == "unsup" and len(raw) < most:
            raw.append(content.decode("utf-8"))
    return documents, raw


def _members(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and is_wanted(member.name):
                file = archive.extractfile(member)
                assert file is not None, member.name
                yield member.name, file.read()


def write_packed(problem: Problem, folder: Path) -> Path:
    """Write what the draws of a problem need as one compressed file: each text once, orders as numbers."""
    used = sorted({i for order in problem.orders.values() for i in order})
    place = {i: number for number, i in enumerate(used)}
    orders = {draw: [place[i] for i in order] for draw, order in problem.orders.items()}
    pool = [problem.pool[i] for i in used]
    head = {"name": problem.name, "tests": len(problem.test), "pool": len(pool), "orders": orders}
    lines: list[Any] = [head, *problem.test, *pool, *([text] for text in problem.raw)]
    path = folder / f"{problem.name}.jsonl.xz"
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, lzma.open(temporary, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return path


def _read_packed(path: Path, draws: Iterable[int]) -> Problem:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        head = json.loads(file.readline())
        lines = [json.loads(line) for line in file]
    orders = {int(draw): order for draw, order in head["orders"].items()}
    missing = sorted(set(draws) - set(orders))
    if missing:
        raise InputError(
            f"{path} holds draws {', '.join(map(str, sorted(orders)))} and not {missing[0]}: "
            "pack it again with --draws."
        )
    cut = head["tests"] + head["pool"]
    documents = [Document(*line) for line in lines[:cut]]
    test, pool = documents[: head["tests"]], documents[head["tests"] :]
    return Problem(head["name"], test, pool, orders, [text for (text,) in lines[cut:]])


def write_cell(cell: Cell, folder: Path) -> None:
    """labeled.csv, raw.csv, and test.csv, as a user would have them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "labeled.csv", Document._fields, cell.labeled)
    write_table(folder / "raw.csv", ["text"], [[text] for text in cell.raw])
    write_table(folder / "test.csv", Document._fields, cell.test)


def write_table(path: Path, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A csv file, byte for byte as pandas writes it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def read_cell(folder: Path) -> Cell:
    """The cell that `write_cell` wrote."""
    labeled, test = (
        [Document(*row) for row in _table(folder / f"{name}.csv")] for name in ("labeled", "test")
    )
    return Cell(labeled, [text for (text,) in _table(folder / "raw.csv")], test)


def _table(path: Path) -> list[list[str]]:
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]
