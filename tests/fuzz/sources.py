"""Hostile sources: every format, sound or damaged; a damaged one is refused, or gives all its documents."""

import csv
import io
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.place import Place, picked
from tests.fuzz.texts import label, text
from tests.fuzz.trying import Case
from tests.support.reading import PACK
from tests.support.shell import TINY, Answer

TRAINED = 0.1  # the share of trainings, which take a second
CHECKED = (".gz", ".bz2", ".xz")  # a flipped bit in them is found by their own checksums


def sound(place: Place, chance: random.Random, folder: Path) -> Case:
    """A source that must be read, in full, or refused."""
    texts, path = _written(chance, folder)
    return _labeled_as(place, folder, path, texts)


def damaged(place: Place, chance: random.Random, folder: Path) -> Case:
    """A compressed or binary file of which a part is damaged."""
    texts, path = _written(chance, folder, damaged_later=True)
    content = bytearray(path.read_bytes())
    is_checked = path.suffix in CHECKED
    match picked(chance, "cut", "append", "zeros", *(["flip", "block"] if is_checked else ["cut", "append"])):
        case "cut":
            content = content[: chance.randrange(len(content))]
        case "append":
            content += chance.randbytes(chance.randrange(1, 60))
        case "zeros":
            content += bytes(chance.choice([1, 4, 18, 36, 512]))
        case "flip":
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        case "block":
            start = chance.randrange(len(content))
            content[start : start + 40] = chance.randbytes(len(content[start : start + 40]))
    path.write_bytes(content)
    return _labeled_as(place, folder, path, texts)


def _written(chance: random.Random, folder: Path, *, damaged_later: bool = False) -> tuple[list[str], Path]:
    """Texts, and the file that holds them: in one stream or in several."""
    texts = [text(chance) for _ in range(chance.randrange(1, 12))]
    suffix = chance.choice([name for name in PACK if name or not damaged_later] + [".parquet"])
    if suffix == ".parquet":
        path = folder / "docs.parquet"
        pq.write_table(pa.table({"text": texts}), path, row_group_size=chance.choice([1, 100]))
        return texts, path
    kind = chance.choice(["csv", "tsv", "jsonl"])
    lines = _lines(kind, texts)
    cut = chance.randrange(len(lines) + 1)
    parts = picked(chance, [lines], [lines[:cut], lines[cut:]], [lines[:cut], [], lines[cut:]])
    path = folder / f"docs.{kind}{suffix}"
    path.write_bytes(b"".join(PACK[suffix]("".join(part).encode()) for part in parts))
    return texts, path


def _lines(kind: str, texts: Sequence[str]) -> list[str]:
    if kind == "jsonl":
        return [
            json.dumps({"text": one, "n": 1}, ensure_ascii=n % 2 == 0) + "\n" for n, one in enumerate(texts)
        ]
    lines = []
    for row in [["text", "n"], *([one, "1"] for one in texts)]:
        line = io.StringIO()
        csv.writer(line, delimiter="," if kind == "csv" else "\t", quoting=csv.QUOTE_ALL).writerow(row)
        lines.append(line.getvalue())
    return lines


def _labeled_as(place: Place, folder: Path, path: Path, texts: list[str]) -> Case:
    def wrong(answer: Answer) -> str | None:
        found = pq.read_table(folder / "out.parquet")["text"].to_pylist()
        return (
            None if found == texts else f"{len(found)} documents of {len(texts)}, or others: {found!r:.200}"
        )

    return Case(("predict", str(place.run), str(path), "--out", str(folder / "out.parquet")), wrong)


def junk(place: Place, chance: random.Random, folder: Path) -> Case:
    """Anything under a name that promises documents."""
    ending = chance.choice(
        [".csv", ".tsv", ".jsonl", ".json", ".txt", ".parquet", ".doc", "", ".csv.gz.gz", ".CSV"]
    )
    stem = chance.choice(["docs", "a b", "é", "-x", "new\nline", "[x]", "q?a=b", "%41"])
    path = folder / f"{stem}{ending}"
    content = picked(
        chance,
        chance.randbytes(chance.randrange(300)),
        text(chance).encode(),
        f"text,label\n{text(chance)},{text(chance)}\n".encode(),
        b'{"text": ' + b"[" * 60_000,
        b'{"text": "a", "label": ' + b"9" * 5_000 + b"}\n",
        b'{"text": NaN, "label": Infinity}\n' * 4,
        b'{"text": {"a": 1}, "label": [1]}\n' * 4,
        b"text,label\na,1\nb,2,3\n",
        b'text,label\n"a,1\n',
        b"text\tlabel\r\n\r\n\r\n",
        b"\xff\xfet\0e\0x\0t\0",
        b"\xef\xbb\xbf",
        b"text,text\na,b\n",
        b"label\npos\nneg\n",
        b"PAR1" + chance.randbytes(50) + b"PAR1",
        b"text,label\n" + b",\n" * 20,
        b"text,label\n" + b",a\n,b\n" * 20,
    )
    path.write_bytes(content)
    return _asked(place, chance, folder, str(path))


def places(place: Place, chance: random.Random, folder: Path) -> Case:
    """What is no usual file, and mixtures that must be refused."""
    (folder / "set").mkdir()
    (folder / "set/a.csv").write_text("text,label\none,a\ntwo,b\nthree,a\nfour,b\n", encoding="utf-8")
    match picked(
        chance, "mixed", "fifo", "loop", "gone", "bytes", "delimiter", "column", "url", "unreadable"
    ):
        case "mixed":
            (folder / "set" / picked(chance, "README.txt", "pos/1.txt", "b.txt.gz")).parent.mkdir(
                exist_ok=True
            )
            name = picked(chance, "README.txt", "deep.txt")
            (folder / "set" / name).write_text("one", encoding="utf-8")
            return _refused(place, chance, folder, picked(chance, str(folder / "set"), str(folder / "s*")))
        case "fifo":
            os.mkfifo(folder / "set/b.csv")
            return _refused(
                place, chance, folder, str(folder / picked(chance, "set", "set/b.csv", "set/*.csv"))
            )
        case "loop":
            (folder / "set/b.csv").symlink_to("b.csv")
            (folder / "set/c").symlink_to("..")
            return _asked(
                place, chance, folder, str(folder / picked(chance, "set", "set/b.csv", "set/c/set/c"))
            )
        case "gone":
            (folder / "set/b.csv").symlink_to("nothing.csv")
            return _refused(
                place, chance, folder, str(folder / picked(chance, "set/b.csv", "none.csv", "n*"))
            )
        case "bytes":
            (folder / "set" / os.fsdecode(b"bad\xff.csv")).write_bytes(b"text\none\n")
            return _refused(place, chance, folder, str(folder / "set"))
        case "delimiter":
            name, sign = picked(
                chance, ("b.tsv", ","), ("b.tsv", ";"), ("b.csv", "\t"), ("b.csv", ";"), ("b.csv", "|")
            )
            (folder / name).write_text(f"text{sign}label\na{sign}b\nc{sign}d\n", encoding="utf-8")
            return _refused(place, chance, folder, str(folder / name))
        case "column":
            words = ("check", "--labeled", str(folder / "set/a.csv"), "--text-column", "label")
            return Case(words, lambda answer: "one column is the text and the label")
        case "unreadable":
            (folder / "set/a.csv").chmod(0)
            return _asked(place, chance, folder, str(folder / "set/a.csv"))
    scheme = picked(
        chance, "zip://a.csv::", "tar://a::", "memory://", "file://", "reference://", "data:,", "nope://"
    )
    rest = (
        str(folder / "set/a.csv") if scheme == "file://" else chance.choice([str(folder), "x", "", "/", "::"])
    )
    return _asked(place, chance, folder, scheme + rest)


def _asked(place: Place, chance: random.Random, folder: Path, source: str) -> Case:
    """A source in any of its places; what it holds is not known."""
    return Case(_words(place, chance, folder, source))


def _refused(place: Place, chance: random.Random, folder: Path, source: str) -> Case:
    return Case(_words(place, chance, folder, source), lambda answer: f"{source} was read")


def _words(place: Place, chance: random.Random, folder: Path, source: str) -> tuple[str, ...]:
    good = str(place.home / "train.csv")
    return picked(
        chance,
        ("check", "--labeled", source),
        ("check", "--labeled", good, "--unlabeled", source),
        ("check", "--labeled", good, f"--{chance.choice(['dev', 'test'])}", source),
        ("predict", str(place.run), source, "--out", str(folder / "out.csv")),
        ("evaluate", str(place.run), source),
    )


def labels(place: Place, chance: random.Random, folder: Path) -> Case:
    """Labels that nobody would choose come back as they were given; some of them are learned."""
    names = sorted({label(chance) for _ in range(chance.randrange(2, 6))})
    rows = [[f"text {n} {text(chance)}", name] for n, name in enumerate(names * 3)]
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in rows), encoding="utf-8")

    def wrong(answer: Answer) -> str | None:
        found = json.loads(answer.out)["parts"]["labeled"]["class_counts"]
        return None if found == dict.fromkeys(names, 3) or len(names) < 2 else f"classes {found}, not {names}"

    if chance.random() > TRAINED:
        return Case(("check", "--labeled", str(path), "--json"), wrong)
    raw = folder / "raw.jsonl"
    raw.write_text("".join(json.dumps({"text": text(chance)}) + "\n" for _ in range(9)), encoding="utf-8")

    def unlearned(answer: Answer) -> str | None:
        found = json.loads((folder / "new/labels.json").read_text(encoding="utf-8"))["classes"]
        return None if found == names else f"classes {found}, not {names}"

    words = ("train", "--labeled", str(path), "--unlabeled", str(raw), "--out", str(folder / "new"), *TINY)
    return Case(words, unlearned)
