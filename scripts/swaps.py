"""Exchange, rename, change, or delete each artefact of a run, and count what the commands make of it.

usage: scripts/swaps.py [--out counts.json] [--folder DIR]

Trains two small runs of the same sizes for each of several settings. Every file of the first run is then
replaced by the other run's, by each sibling of the same ending, by itself with a bit changed, or deleted, and
predict, explain, evaluate, and report read the folder. Each must refuse in one sentence with exit code 2, or
answer as before. Counted are answers that changed in silence, and tracebacks.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.shell import TINY, Answer, mein, write_csv
from tests.support.tiny import TEXTS

KINDS = {
    "lstm": ["--set", "mixture.method=ours"],
    "average": ["--set", "expert.kind=average"],
    "taught by expert and lexicon": [
        *("--set", "mixture.method=ours", "--set", "imitator_training.reads_labeled=true"),
    ],
}
NOT_READ = ("README.md", "report.html", ".lock", "provenance.json")  # no answer depends on them


def trained(home: Path, kind: str, seed: int, files: dict[str, Path]) -> Path:
    """A small run."""
    path = home / f"{kind}-{seed}"
    words = [word for name in ("labeled", "unlabeled", "test") for word in (f"--{name}", files[name])]
    answer = mein("train", *words, "--out", path, *TINY, *KINDS[kind], "--seed", seed)
    assert answer.code == 0, answer.err
    return path


def commands(run: Path, files: dict[str, Path], out: Path) -> Iterator[tuple[str, Answer, bytes]]:
    """Each command's answer about a run, and the bytes that count."""
    predicted = mein("predict", run, files["unlabeled"], "--out", out / "predicted.jsonl")
    path = out / "predicted.jsonl"
    yield "predict", predicted, path.read_bytes() if path.exists() else b""
    for name, of in (("explain", TEXTS.test_texts[0]), ("evaluate", files["test"])):
        answer = mein(name, run, of, "--json")
        yield name, answer, answer.out.encode()
    report = mein("report", run, "--out", out / "report.html")
    path = out / "report.html"
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    yield "report", report, page.encode()


def harmed(run: Path, other: Path) -> Iterator[tuple[str, Path]]:
    """The run in a folder of its own, with one file exchanged, renamed, changed, or deleted."""
    copy = run.with_name("harmed")
    names = sorted(
        str(path.relative_to(run))
        for path in run.rglob("*")
        if path.is_file() and path.name not in NOT_READ and "encoded" not in path.parts
    )
    for name in names:
        path, whole = run / name, (run / name).read_bytes()
        siblings = [run / each for each in names if each != name and Path(each).suffix == path.suffix]
        changes = {f"{name} of another run": (other / name).read_bytes()} if (other / name).exists() else {}
        changes |= {f"{one.name} in the place of {name}": one.read_bytes() for one in siblings}
        flipped = bytearray(whole)
        flipped[len(whole) * 2 // 3] ^= 4
        changes[f"one bit of {name}"] = bytes(flipped)
        for what, content in [*changes.items(), (f"{name} deleted", None)]:
            if content == whole:
                continue
            shutil.copytree(run, copy)
            (copy / name).unlink()
            if content is not None:
                (copy / name).write_bytes(content)
            yield what, copy
            shutil.rmtree(copy)


def main() -> int:
    """Count, print, and fail where anything is silent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    home = given.folder or Path(tempfile.mkdtemp())
    home.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    problems = []
    files = {
        "labeled": write_csv(home / "labeled.csv", TEXTS.labeled_texts, TEXTS.labeled_labels),
        "unlabeled": write_csv(home / "unlabeled.csv", TEXTS.unlabeled_texts),
        "test": write_csv(home / "test.csv", TEXTS.test_texts, TEXTS.test_labels),
    }
    for kind in KINDS:
        run, other = (trained(home, kind, seed, files) for seed in (0, 1))
        outputs = home / "outputs"
        outputs.mkdir(exist_ok=True)
        untouched = run.with_name("harmed")  # paths are part of some answers
        shutil.copytree(run, untouched)
        wanted = {name: content for name, _, content in commands(untouched, files, outputs)}
        shutil.rmtree(untouched)
        for what, copy in harmed(run, other):
            for path in outputs.iterdir():
                path.unlink()
            for name, answer, content in commands(copy, files, outputs):
                if answer.code == 2 and re.fullmatch(r"Error: [^\n]+\n", answer.err):
                    verdict = "refused"
                elif answer.code == 0 and content == wanted[name]:
                    verdict = "answered as before"
                else:
                    verdict = "silent" if answer.code == 0 else "not one sentence"
                    problems.append(f"{kind}: {what}: {name}: {verdict}: {answer.err[-300:]}")
                counts[f"{name}: {verdict}"] += 1
    for problem in problems:
        print(problem)
    result = {"harms": sum(counts.values()), **dict(sorted(counts.items())), "problems": problems}
    print(json.dumps({name: value for name, value in result.items() if name != "problems"}, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
