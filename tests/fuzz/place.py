"""Where hostile commands work: a folder of their own with a finished run, good files, and its answers."""

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from tests.fuzz.trying import Case
from tests.support.shell import Answer, mein, write_csv
from tests.support.tiny import SETTINGS, TEXTS

T = TypeVar("T")
NEW = [*TEXTS.test_texts[:6], "", "word that nobody knows", TEXTS.test_texts[6] * 30]


@dataclass(frozen=True)
class Place:
    """A home folder with a run; every case gets a folder of its own in it, which is removed afterwards."""

    home: Path

    @classmethod
    def make(cls, home: Path) -> "Place":
        """Train the run, and write down what it answers."""
        place = cls(home)
        write_csv(home / "train.csv", TEXTS.labeled_texts, TEXTS.labeled_labels)
        write_csv(home / "raw.csv", TEXTS.unlabeled_texts)
        write_csv(home / "test.csv", TEXTS.test_texts[:20], TEXTS.test_labels[:20])
        write_csv(home / "new.csv", NEW)
        assert mein(*place.training(place.run)).code == 0
        for name, case in place.uses(place.run, home).items():
            answer = mein(*case.words)
            assert answer.code == 0, answer
            (home / f"{name}.answer").write_text(place.told(name, home, answer), encoding="utf-8")
        return place

    @property
    def run(self) -> Path:
        """The finished run."""
        return self.home / "run"

    def training(self, out: Path) -> list[str]:
        """The command line that trains the run."""
        sizes = {**SETTINGS, "mixture.method": "ours", "expert.kind": "average"}
        words = [word for key, value in sizes.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        parts = {"labeled": "train.csv", "unlabeled": "raw.csv", "test": "test.csv"}
        data = [word for part, name in parts.items() for word in (f"--{part}", str(self.home / name))]
        return ["train", *data, "--out", str(out), *words]

    def folder(self, number: int) -> Path:
        """A new folder for one case."""
        path = self.home / f"case-{number}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def uses(self, run: Path, folder: Path) -> dict[str, Case]:
        """What can be done with a run; right where the answers are those of the sound run."""
        words = {
            "predict": ["predict", run, self.home / "new.csv", "--out", folder / "out.parquet"],
            "explain": ["explain", run, TEXTS.test_texts[0], "--json"],
            "evaluate": ["evaluate", run, self.home / "test.csv", "--json"],
            "report": ["report", run, "--out", folder / "page.html"],
        }

        def same(name: str, answer: Answer) -> str | None:
            known = (self.home / f"{name}.answer").read_text(encoding="utf-8")
            return None if self.told(name, folder, answer) == known else f"{name} answers something else"

        return {
            name: Case(tuple(map(str, line)), lambda answer, name=name: same(name, answer))  # type: ignore[misc]
            for name, line in words.items()
        }

    def told(self, name: str, folder: Path, answer: Answer) -> str:
        """What a use of a run answers, without the names of folders."""
        if name == "predict":
            return str(pq.read_table(folder / "out.parquet").to_pylist())
        if name == "evaluate":
            return str({key: value for key, value in json.loads(answer.out).items() if key != "run"})
        return answer.out if name == "explain" else (folder / "page.html").read_text(encoding="utf-8")


def not_finite(name: str, folder: Path, answer: Answer) -> str | None:
    """Whether an answer holds NaN, which no run may give, whatever its files hold."""
    if name == "predict":
        rows: list[dict[str, Any]] = pq.read_table(folder / "out.parquet").to_pylist()
        bad = [row["probability"] for row in rows if not 0 <= row["probability"] <= 1]
        return f"probabilities {bad}" if bad else None
    return "NaN in the answer" if name != "report" and "NaN" in answer.out else None


def picked(chance: random.Random, *choices: T) -> T:
    """One of the choices."""
    return choices[chance.randrange(len(choices))]
