"""Hostile settings, configs, options, paths, and texts on the command line."""

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mein.config import load_config, names, parse_overrides
from mein.errors import MeinError
from tests.fuzz.place import Place, picked
from tests.fuzz.texts import text
from tests.fuzz.trying import Case
from tests.support.shell import Answer

VALUES = [
    "0",
    "-1",
    "1",
    "1.5",
    "-0.0",
    "1e308",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "true",
    "false",
    "none",
    "''",
    "[]",
    "{}",
    "[1]",
    "[1, 2]",
    "[-1]",
    "[[1]]",
    "['a']",
    "{a = 1}",
    "{a",
    "99999999999999999999",
    "9" * 5_000,
    "[" * 5_000,
    "cpu",
    "cuda",
    "meta",
    "mps",
    "auto",
    "../nowhere",
    "/nowhere",
    "~",
    "\0",
    "\x1b",
    "2020-01-01",
    "0x10",
    "1_000",
    "\n",
    "a" * 500,
    "average",
    "lstm",
    "linear",
    "transformer",
    "frozen",
    "given",
    "vat",
    "adv",
    "ours",
    "paper",
    "words",
    "nope://x/y",
]


def settings(place: Place, chance: random.Random, folder: Path) -> Case:
    """`--set` and `--config` on a folder that is taken, so that no training begins."""
    words = ["train", "--labeled", str(place.home / "train.csv"), "--out", str(place.run)]
    for _ in range(chance.randrange(1, 3)):
        key = picked(
            chance,
            chance.choice(list(names())),
            chance.choice(list(names())),
            text(chance),
            "a.b.c",
            "",
            "expert",
        )
        words += ["--set", f"{key}={chance.choice(VALUES)}"]
    if chance.random() < 0.4:
        words += ["--config", str(_config(chance, folder))]
    if chance.random() < 0.2:
        words += picked(
            chance, ["--preset", text(chance)], ["--seed", chance.choice(VALUES)], ["--encoder", "/x"]
        )
    return Case(tuple(words), lambda answer: "a training began in a folder that is taken")


def kept(place: Place, chance: random.Random, folder: Path) -> Case:
    """A setting that is accepted has the value that was given; checked here, since no training begins."""
    key, value = chance.choice(list(names())), chance.choice(VALUES)
    try:
        given = parse_overrides([f"{key}={value}"])[key]
        config: object = load_config("small", overrides={key: given})
    except MeinError:
        return Case(("--version",))
    for part in key.split("."):
        config = getattr(config, part)
    is_same = _plain(config) == _plain(given) or (given == "none" and config is None)
    return Case(("--version",), lambda answer: None if is_same else f"{key}={value} became {config!r}")


def _plain(value: object) -> object:
    """A value as JSON has it; numbers by size, paths as they are absolute."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return os.path.abspath(os.path.expanduser(value)) if isinstance(value, str) else value  # noqa: PTH100, PTH111
    return float(value)


def _config(chance: random.Random, folder: Path) -> Path:
    path = folder / picked(chance, "c.toml", "c.json", "c.json", "c", "c.toml")
    match picked(chance, "bytes", "deep", "list", "table", "run", "folder", "fifo", "none", "section"):
        case "bytes":
            path.write_bytes(chance.randbytes(60))
        case "deep":
            path.write_text(
                picked(chance, "[" * 50_000, "a = " + "[" * 5_000, '{"a":' * 5_000), encoding="utf-8"
            )
        case "list":
            path.write_text(picked(chance, "[1, 2]", "null", "3", '"a"'), encoding="utf-8")
        case "run":
            path.write_text(
                json.dumps({"mein": picked(chance, 0, 99, "a", None), "config": {}}), encoding="utf-8"
            )
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "none":
            pass
        case _:
            key, value = chance.choice(list(names())), chance.choice(VALUES[:20])
            path.write_text(
                f"{key} = {value}\npreset = {picked(chance, '3', '[]', chr(39) + 'x' + chr(39))}",
                encoding="utf-8",
            )
    return path


def options(place: Place, chance: random.Random, folder: Path) -> Case:
    """Options with values that they do not have."""
    run, new, out = str(place.run), str(place.home / "new.csv"), str(folder / "out.csv")
    value = chance.choice([*VALUES, text(chance)])
    line = picked(
        chance,
        ("predict", run, new, "--out", out, "--abstain-below", value),
        ("predict", run, new, "--out", out, "--fragments", picked(chance, "0", "3", "-1", value)),
        ("predict", run, new, "--out", out, "--text-column", value),
        ("predict", run, new, "--out", out, "--format", value),
        ("predict", run, new, "--out", out, "--soft-labels", value),
        ("explain", run, "good", "--label", value),
        ("explain", run, "good", "--against", value),
        ("explain", run, "good", "--top", value),
        ("evaluate", run, str(place.home / "test.csv"), "--label-column", value),
        (value, run),
        ("predict", value, new, "--out", out),
        ("report", run, run, run, "--out", out + ".html"),
        ("store", "label", value, "--by", run),
        ("store", "encode", "--like", run, "--text", value, "--out", str(folder / "store")),
        ("train", "--labeled", value, "--out", str(folder / "new")),
        ("export", value, "--out", out),
        (picked(chance, "predict", "report", "store", "explain"), f"--{value}"),
    )
    return Case(tuple(line))


NAMES = [
    "",
    ".",
    "..",
    "a.csv",
    "a",
    "a/b.csv",
    "none/a.csv",
    "~/a.csv",
    "~",
    "a\nb.csv",
    "a\x1bb.csv",
    "é.csv",
    "x" * 300,
    "x" * 251 + ".csv",
    "*.csv",
    "[a].csv",
    "a?.csv",
    "a b.csv",
    "a.csv.gz",
    "a.csv.gz.gz",
    "a.parquet",
    "a.jsonl.xz",
    "a.txt",
    "\udcff.csv",
    "set",
    "fifo.csv",
    "loop.csv",
    "file://a.csv",
    "memory://a.csv",
    "a.html",
    "a/",
    "-a.csv",
    "none/" * 1_000 + "a.csv",
]


def paths(place: Place, chance: random.Random, folder: Path) -> Case:
    """Outputs under absurd names: written exactly there, or refused, with nothing else left."""
    (folder / "set").mkdir()
    os.mkfifo(folder / "fifo.csv")
    (folder / "loop.csv").symlink_to("loop.csv")
    name = chance.choice(NAMES)
    is_url, is_home = "://" in name, name.startswith("~")
    given = name if is_url or is_home else str(folder / name) if name not in ("", "*.csv") else name
    if name == "file://a.csv":
        given = f"file://{folder}/a.csv"
    before = {path.name for path in folder.iterdir()}
    run, new = str(place.run), str(place.home / "new.csv")
    words = picked(
        chance,
        ("predict", run, new, "--out", given),
        ("report", run, "--out", given),
        ("explain", run, "good film", "--html", given),
        ("init", given),
        ("export", run, "--out", given),
    )

    def wrong(answer: Answer) -> str | None:
        left = {path.name for path in folder.iterdir()} - before
        if is_url:
            return None
        target = Path(os.path.expanduser(given))  # noqa: PTH111 - as a shell does
        return (
            None
            if target.is_file() and len(left) <= 1
            else f"{given!r:.100} is not there; left {sorted(left)}"
        )

    return Case(words, wrong)


def texts(place: Place, chance: random.Random, folder: Path) -> Case:
    """Texts that nobody would write, explained or labeled: finite shares of 1, and the texts unchanged."""
    if chance.random() < 0.5:
        one = text(chance, halves=True)

        def unexplained(answer: Answer) -> str | None:
            total = sum(json.loads(answer.out)["probabilities"])
            return None if abs(total - 1) < 1e-6 else f"probabilities add up to {total}"

        return Case(("explain", "--json", str(place.run), "--", one), unexplained)
    many = [text(chance) for _ in range(5)]
    kind = chance.choice(["parquet", "jsonl"])
    pq.write_table(pa.table({"text": many}), folder / "in.parquet")
    out = folder / f"out.{kind}"

    def changed(answer: Answer) -> str | None:
        if kind == "parquet":
            rows = pq.read_table(out).to_pylist()
        else:
            rows = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
        sums = [row["p_negative"] + row["p_positive"] for row in rows]
        is_right = [row["text"] for row in rows] == many and all(abs(one - 1) < 1e-6 for one in sums)
        return None if is_right else f"texts changed, or shares of {sums}"

    words = ["predict", str(place.run), str(folder / "in.parquet"), "--out", str(out), "--all-probabilities"]
    return Case((*words, *picked(chance, (), ("--fragments", "2"))), changed)
