"""Verify that a restructuring changed no number: record what small runs measure, and compare two records.

usage: scripts/same_figures.py record --python OLD/bin/python --out old.json [--only NAME ...] [--folder DIR]
       scripts/same_figures.py compare old.json new.json [--exceptions FILE]
       scripts/same_figures.py time --python A/bin/python --python B/bin/python --out seconds.json

Every run goes through the command line of the mein that an interpreter has. Figures are identified by place,
not by name, so that names may change; what was renamed on the command line is in NAMES.
"""

import argparse
import csv
import fnmatch
import gzip
import hashlib
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

# Old names and their new ones: commands, options, settings with or without a value, files of a run folder.
# The new name is used where this mein has it, so an old mein must not use it for anything else.
NAMES = {
    "--teacher": "--soft-labels",
    "--student-of": "--from-run",
    "expert.kind=teacher": "expert.kind=given",
}

SMALL = "--preset small"
HUB = "--set expert.model={bert} --set words.max_length=40"
LM = "--set pretraining.epochs=2"
EXPERTS = {  # the words after `mein train`, for two classes and for eight
    "lstm": SMALL + " --set expert.kind=lstm",
    "lstm-adv": SMALL + " --set expert.kind=lstm --set expert.training=adv",
    "lm-lstm": SMALL + " --set expert.kind=lm-lstm " + LM,
    "lm-lstm-ivat": SMALL + " --set expert.kind=lm-lstm --set expert.training=ivat " + LM,
    "elmo-lstm": SMALL + " --set expert.kind=elmo-lstm " + LM,
    "average": SMALL + " --set expert.kind=average",
    "average-vat": SMALL + " --set expert.kind=average --set expert.training=vat",
    "transformer": "--preset transformer --set expert_training.learning_rate=1e-3 " + HUB,
    "frozen": "--preset frozen " + HUB,
    "soft-labels": SMALL + " --teacher {soft} --set class_weight=balanced",
    "self-training": SMALL + " --student-of {first}",
    "own-lm": SMALL + " --set expert.language_model={first} --set expert.kind=lm-lstm",
    "paper": "--preset paper " + LM,
}
DATA = "--labeled {labeled} --unlabeled {raw} --dev {dev} --test {test}"
FIRST = {  # what such a run needs before it, in the folder {first}
    "self-training": "train " + SMALL + " " + DATA,
    "own-lm": "pretrain " + SMALL + " --text {labeled} --text {raw} --set expert.kind=lm-lstm " + LM,
}
TINY = {
    "words.max_words": 2_000,
    "pieces.vocabulary_size": 400,
    "expert.embedding_dim": 16,
    "expert.hidden_dim": 20,
    "expert.mlp_dim": 8,
    "imitators.embedding_dim": 16,
    "imitators.channels": 16,
    "pretraining.lanes": 8,
    "pretraining.segment": 20,
    "expert_training.epochs": 6,
    "expert_training.learning_rate": 0.01,
    "imitator_training.epochs": 2,
    "fine_tuning.epochs": 3,
    "fine_tuning.learning_rate": 1e-3,
    "runtime.device": "cpu",
    "runtime.workers": 1,
}
CLASSES = {"2": ["bad", "good"], "8": [f"topic {number}" for number in range(1, 9)]}
RUNS = ["demo", *(f"{name}-{size}" for name in EXPERTS for size in CLASSES)]

Figures = dict[str, tuple[Any, str]]  # by place: the value, and what it is called here and now
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

# Importing torch takes longer than a tiny run: it is done once, and each command gets a fork of its own.
DRIVER = """
import gc, importlib, json, os, runpy, sys, traceback
for name in ("torch", "torch._dynamo", "transformers", "pyarrow.parquet", "sentencepiece", "scipy.optimize",
             "sklearn.linear_model", "sklearn.feature_extraction.text", "pydantic", "typer", "rich.console",
             "jinja2"):
    importlib.import_module(name)
gc.freeze()
for line in sys.stdin:
    words, log = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, end in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(log + end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv, status = ["mein", *words], 0
        try:
            runpy.run_module("mein", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # tearing everything down would take seconds
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Mein:
    """The command line of the mein that an interpreter has."""

    def __init__(self, python: str, folder: Path, number: int) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.process = subprocess.Popen(
            [python, "-P", "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=environment | ONE_THREAD | OFFLINE,
            text=True,
        )
        self.log = folder / f"log-{number}"

    def run(self, *words: str) -> tuple[int, str, str]:
        """The exit status of `mein WORDS`, and what it wrote to standard output and error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([words, str(self.log)]) + "\n")
        self.process.stdin.flush()
        status = self.process.stdout.readline()
        if not status:
            sys.exit("The interpreter is gone: look above for why.")
        out, err = (self.log.with_suffix(end).read_text(encoding="utf-8") for end in (".out", ".err"))
        return int(status), out, err

    def __call__(self, *words: str) -> str:
        """The standard output of `mein WORDS`, which must succeed."""
        status, out, err = self.run(*words)
        if status != 0:
            sys.exit(f"mein {' '.join(words)}\nended with {status}:\n{out[-2_000:]}\n{err[-2_000:]}")
        return out

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Words:
    """Translates the old names of NAMES into those that a mein knows."""

    def __init__(self, mein: Mein, folder: Path) -> None:
        self.new: dict[str, str] = {}
        self._learn(first_words(mein("--help")))
        for command in ("demo", "train", "pretrain", "predict", "explain"):
            self._learn(first_words(mein(*self(command), "--help")))
        for new in [name for name in NAMES.values() if "=" in name]:
            # A value that is not known is refused before the missing file is.
            tried = self("train", "--labeled", "none.csv", "--out", "none", "--set", new)
            self._learn(set() if new.partition("=")[0] in "".join(mein.run(*tried)[1:]) else {new})

    def __call__(self, *given: str) -> list[str]:
        """Words of a command line, as this mein has them."""
        return [self._word(word) for word in given]

    def file(self, run: Path, name: str) -> Path:
        """A file of a run folder, under its old name or its new one."""
        old, new = run / name, run / NAMES.get(name, name)
        return new if new.exists() else old

    def _learn(self, known: set[str]) -> None:
        self.new |= {old: new for old, new in NAMES.items() if new in known}

    def _word(self, word: str) -> str:
        key, equals, value = self.new.get(word, word).partition("=")
        return self.new.get(key, key) + equals + value


def first_words(text: str) -> set[str]:
    """The first word of each line: of a help, its commands and options."""
    return {line.split()[0] for line in text.splitlines() if line.strip()}


# ---- what the runs read


class Corpus:
    """Documents of some classes, each with words of its own among those that all share, from a seed."""

    def __init__(self, classes: Sequence[str], seed: int) -> None:
        self.classes = classes
        self.chance = random.Random(seed)
        self.shared = [self._new_word() for _ in range(300)]
        self.own = [[self._new_word() for _ in range(30)] for _ in classes]

    def documents(self, count: int) -> list[tuple[str, str]]:
        """Texts with their labels, of which some are wrong."""
        return [self._document(number % len(self.classes)) for number in range(count)]

    def soft_label(self, label: str) -> list[float]:
        """Probabilities of the classes, of which the label's is often, not always, the highest."""
        odds = [math.exp(2.5 * self.chance.random() + 1.5 * (label == name)) for name in self.classes]
        return [number / sum(odds) for number in odds]

    @property
    def vocabulary(self) -> list[str]:
        """Every word, once."""
        return sorted({word for words in (self.shared, *self.own) for word in words})

    def _document(self, y: int) -> tuple[str, str]:
        words = []
        for place in range(12 + self._below(30)):
            of = y if self.chance.random() < 0.8 else self._below(len(self.classes))
            words.append(self._common(self.own[of] if self.chance.random() < 0.15 else self.shared))
            words += ["."] if place % 9 == 8 else []
        is_wrong = self.chance.random() < 0.04
        return " ".join(words).replace(" .", "."), self.classes[(y + is_wrong) % len(self.classes)]

    def _new_word(self) -> str:
        letters = (
            "bdfgklmnprstvz"[self._below(14)] + "aeiou"[self._below(5)] for _ in range(2 + self._below(2))
        )
        return "".join(letters)

    def _common(self, words: Sequence[str]) -> str:
        """The first words the most often: a fourth of all are among the first 0.4%."""
        return words[int(len(words) * self.chance.random() ** 4)]

    def _below(self, end: int) -> int:
        """subtle: random() alone draws the same numbers in every version of Python."""
        return int(end * self.chance.random())


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as csv or jsonl.gz, depending on the ending."""
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(gzip.compress(lines.encode("utf-8"), mtime=0))


def write_inputs(folder: Path, size: str) -> dict[str, str]:
    """Write the files of a corpus; their paths by the names that commands use."""
    names = CLASSES[size]
    corpus = Corpus(names, seed=len(names))
    is_small = size == "2"
    ends = {"labeled": "csv", "raw": "jsonl.gz"} if is_small else {"labeled": "jsonl.gz", "raw": "csv"}
    counts = {"labeled": 200, "raw": 700 if is_small else 1_200, "dev": 80, "test": 200}
    documents = {part: corpus.documents(count) for part, count in counts.items()}
    documents["raw"] += [*documents["test"][:10], ("", names[0])]  # in the test set as well; empty
    paths: dict[str, Path] = {}
    soft: dict[str, list[float]] = {}
    for part, of_part in documents.items():
        paths[part] = folder / f"{part}-{size}.{ends.get(part, 'csv')}"
        rows = [{"text": text} if part == "raw" else {"text": text, "label": y} for text, y in of_part]
        write_rows(paths[part], rows)
        soft |= {text: corpus.soft_label(y) for text, y in of_part}
    paths["soft"] = folder / f"soft-{size}.jsonl.gz"
    of_documents = {text: dict(zip(names, p, strict=True)) if is_small else p for text, p in soft.items()}
    write_rows(paths["soft"], [{"text": text, "probabilities": p} for text, p in of_documents.items()])
    paths["bert"] = folder / f"bert-{size}"
    write_bert(paths["bert"], corpus.vocabulary)
    return {name: str(path) for name, path in paths.items()}


def write_bert(folder: Path, vocabulary: Sequence[str]) -> None:
    """A tiny BERT with random weights, and its tokenizer."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    numbers = {word: number for number, word in enumerate([*specials, ".", *vocabulary])}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    roles = dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), specials, strict=True)
    )
    transformers.utils.logging.disable_progress_bar()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = transformers.BertConfig(vocab_size=len(numbers), max_position_embeddings=48, **sizes)
    config.initializer_range = 0.2  # the usual range leaves every document with nearly the same features
    torch.manual_seed(1)
    transformers.BertModel(config).save_pretrained(folder)


# ---- what the runs measured


def leaves(value: Any, name: str = "", *, strings: bool = False) -> Iterator[tuple[str, Any]]:
    """Numbers and nulls in nested values, in order, with their dotted names; strings too if wanted."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from leaves(inner, f"{name}.{key}".lstrip("."), strings=strings)
    elif strings or not isinstance(value, str):
        yield name, value


def digest(values: Any) -> str:
    """Equal only for equal values, floats to their last bit."""
    return hashlib.sha256(repr(values).encode("utf-8")).hexdigest()


def figures_of_metrics(path: Path) -> Figures:
    """Every number of metrics.jsonl but times: by stage, line of the stage, and place in the line."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        kept = {name: value for name, value in line.items() if "second" not in name and name != "stage"}
        if any(leaves(kept)):
            lines.setdefault(line["stage"], []).append(kept)
    found: Figures = {}
    for number, (stage, of_stage) in enumerate(lines.items()):
        for row, line in enumerate(of_stage):
            title = " ".join([stage, *(value for value in line.values() if isinstance(value, str))])
            for place, (name, value) in enumerate(leaves(line)):
                found[f"metrics {number}.{row}.{place}"] = (value, f"{title} {name}")
    return found


def figures_of_predictions(path: Path) -> Figures:
    """A checksum of each column of the test documents' log-probabilities."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    columns = enumerate(zip(table.column_names, table.columns, strict=True))
    return {f"predictions {n}": (digest(column.to_pylist()), name) for n, (name, column) in columns}


def figures_of_labels(path: Path) -> Figures:
    """A checksum of the rows that `mein predict` wrote, without the header, and its probabilities' sum."""
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    numbers = []
    for row in rows:
        for cell in row[1:]:
            try:
                numbers.append(float(cell))
            except ValueError:
                continue
    return {
        "predict rows": (digest(rows), ", ".join(names)),
        "predict sum": (math.fsum(numbers), f"{len(numbers)} numbers"),
    }


def run_and_measure(mein: Mein, words: Words, name: str, folder: Path, inputs: dict[str, Any]) -> Figures:
    """Train, label the test documents, explain the first of them, and gather every figure."""
    run, first, labeled = folder / name, folder / f"{name}-first", folder / f"{name}.csv"
    kind, _, size = name.rpartition("-")
    paths = inputs[size if kind else "2"] | {"first": str(first)}
    tiny = " ".join(f"--set {key}={value}" for key, value in TINY.items())

    def go(line: str, *more: str) -> str:
        return mein(*words(*(word.format(**paths) for word in line.split()), *more))

    if name == "demo":
        go("demo --out", str(run))
    else:
        if kind in FIRST:
            go(f"{FIRST[kind]} {tiny}", "--out", str(first))
        go(f"train {DATA} {tiny} {EXPERTS[kind]}", "--out", str(run))
    table = "--teacher {soft}" if kind == "soft-labels" else ""
    go(f"predict --all-probabilities {table}", "--out", str(labeled), str(run), paths["test"])
    with Path(paths["test"]).open(encoding="utf-8", newline="") as file:
        text = next(csv.DictReader(file))["text"]
    explained = json.loads(go(f"explain --json {table}", str(run), text))
    numbers = [value for _, value in leaves(explained)]
    found = figures_of_metrics(words.file(run, "metrics.jsonl"))
    found |= figures_of_predictions(words.file(run, "predictions.parquet"))
    found |= figures_of_labels(labeled)
    found["explain"] = (digest(numbers), f"{len(numbers)} numbers")
    return found


# ---- the commands


def record(python: str, out: Path, only: Sequence[str], folder: Path, jobs: int) -> None:
    """Run everything, and write every figure."""
    os.environ.update(ONE_THREAD | OFFLINE)  # before torch is imported here
    started = time.monotonic()
    every = [Mein(python, folder, number) for number in range(jobs)]
    inputs = {size: write_inputs(folder, size) for size in CLASSES}
    words = Words(every[0], folder)
    free: SimpleQueue[Mein] = SimpleQueue()
    for mein in every:
        free.put(mein)

    def measured(name: str) -> tuple[Figures, float]:
        mein, since = free.get(), time.monotonic()
        try:
            found = run_and_measure(mein, words, name, folder, inputs)
        finally:
            free.put(mein)
        print(f"{name}: {len(found)} figures, {time.monotonic() - since:.1f} s", flush=True)
        return found, round(time.monotonic() - since, 1)

    with ThreadPoolExecutor(jobs) as pool:
        results = dict(zip(only or RUNS, pool.map(measured, only or RUNS), strict=True))
    for mein in every:
        mein.close()
    files = sorted(path for paths in inputs.values() for path in map(Path, paths.values()))
    files = [file for path in files for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    figures: Figures = {
        f"inputs {number}": (hashlib.sha256(file.read_bytes()).hexdigest(), str(file.relative_to(folder)))
        for number, file in enumerate(files)
    }
    figures |= {
        f"{name} {place}": figure for name, (of, _) in results.items() for place, figure in of.items()
    }
    about = {
        "python": python,
        "renamed": words.new,
        "hardware": hardware(),
        "seconds": round(time.monotonic() - started, 1),
        "seconds_of_runs": {name: seconds for name, (_, seconds) in results.items()},
    }
    out.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(figures)} figures of {len(results)} runs in {about['seconds']} s: {out}")


def compare(old: Path, new: Path, exceptions: Path | None) -> int:
    """Print what differs; patterns of figures that may are the lines of the file of exceptions."""
    a, b = (json.loads(path.read_text(encoding="utf-8"))["figures"] for path in (old, new))
    listed = [] if exceptions is None else exceptions.read_text(encoding="utf-8").splitlines()
    patterns = [line.strip() for line in listed if line.strip() and not line.startswith("#")]
    equal = differ = excepted = 0
    for place in {**a, **b}:
        values = [figures.get(place, [None, "missing"]) for figures in (a, b)]
        if place in a and place in b and same(values[0][0], values[1][0]):
            equal += 1
        elif any(fnmatch.fnmatchcase(place, pattern) for pattern in patterns):
            excepted += 1
        else:
            differ += 1
            shown = (f"{value!r} ({title})" for value, title in values)
            print(f"{place}: {' | '.join(shown)}")
    rest = f", {excepted} differ as expected" if patterns else ""
    print(f"{equal} figures equal, {differ} differ{rest}")
    return int(differ > 0)


def same(a: Any, b: Any) -> bool:
    """Whether two figures are the same; not a number is the same as itself."""
    return bool(a == b or (a != a and b != b))


def time_both(pythons: Sequence[str], documents: int, turns: int, out: Path, folder: Path) -> None:
    """Train with one mein and the other by turns, and write how long each took."""
    corpus = Corpus(CLASSES["2"], seed=2)
    paths = {
        part: folder / name for part, name in (("labeled", "labeled.csv"), ("unlabeled", "raw.jsonl.gz"))
    }
    write_rows(paths["labeled"], [{"text": text, "label": y} for text, y in corpus.documents(300)])
    write_rows(paths["unlabeled"], [{"text": text} for text, _ in corpus.documents(documents)])
    command = ["-m", "mein", "train", "--preset", "small"]
    command += [word for part, path in paths.items() for word in (f"--{part}", str(path))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    seconds: list[list[float]] = [[] for _ in pythons]
    for turn in range(turns):
        for number, python in enumerate(pythons):
            words, since = [*command, "--out", str(folder / f"run-{turn}-{number}")], time.monotonic()
            subprocess.run(
                [python, *words], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
            )
            seconds[number].append(round(time.monotonic() - since, 2))
            print(f"{python}: {seconds[number][-1]} s", flush=True)
    medians = [statistics.median(of) for of in seconds]
    found = {
        "command": " ".join(command),
        "documents": documents,
        "hardware": hardware(),
        "pythons": list(pythons),
        "seconds": seconds,
        "medians": medians,
        "ratio": round(medians[1] / medians[0], 4),
    }
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"medians {medians[0]} s and {medians[1]} s: the second takes {found['ratio']} of the first")


def hardware() -> dict[str, Any]:
    """The machine, and the cores that this process may use."""
    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> int:
    """Read the command line and run its command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="run everything, and write every figure")
    one.add_argument("--python", required=True, help="the interpreter that has mein")
    one.add_argument(
        "--only", nargs="+", choices=RUNS, default=[], metavar="NAME", help="of: " + " ".join(RUNS)
    )
    one.add_argument("--jobs", type=int, default=2, help="runs at a time")
    two = commands.add_parser("compare", help="print what differs")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    two.add_argument("--exceptions", type=Path, help="patterns of figures that may differ, one a line")
    three = commands.add_parser("time", help="train with one and the other by turns")
    three.add_argument("--python", action="append", required=True, help="an interpreter that has mein; twice")
    three.add_argument("--documents", type=int, default=20_000, help="raw documents")
    three.add_argument("--turns", type=int, default=3)
    for command in (one, three):
        command.add_argument("--out", type=Path, required=True, help="the JSON file to write")
        command.add_argument("--folder", type=Path, help="an empty folder to work in, which is kept")
    given = parser.parse_args()
    if given.command == "compare":
        return compare(given.old, given.new, given.exceptions)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if given.folder is None else given.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if given.command == "record":
            record(given.python, given.out, given.only, folder, given.jobs)
        elif len(given.python) != 2:
            three.error("give --python twice")
        else:
            time_both(given.python, given.documents, given.turns, given.out, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
