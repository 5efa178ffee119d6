"""The run folder: its names, its owner, its metrics. Of several processes only the first writes into it."""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from mein.errors import RunError
from mein.runtime import ranks
from mein.runtime.files import held_folder, is_temporary, read_regular, write_atomically, writing_failed
from mein.runtime.tensors import FORMAT_VERSION, check_version


class RunFolder:
    """One run on disk. `metrics.jsonl` holds everything that was measured, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._nested = [0.0]  # seconds of the steps inside each step that is being timed

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def is_done(self) -> bool:
        """Whether the run came to its end."""
        return (self / "done").exists()

    @property
    def identity(self) -> str:
        """A digest of what the run is made from: its settings, the names of its data, its labels."""
        names = [name for name in ("config.json", "labels.json") if (self / name).exists()]
        contents = {name: self.read_json(name) for name in names}
        labeled = contents.get("labels.json", {}).get("documents")
        return hashlib.sha256(json.dumps([contents.get("config.json"), labeled]).encode("utf-8")).hexdigest()

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Record how long a step took, less the steps inside it; once, even if a kill makes it end twice."""
        started = time.monotonic()
        self._nested.append(0.0)
        try:
            yield
        finally:
            seconds, inside = time.monotonic() - started, self._nested.pop()
            self._nested[-1] += seconds
        if not any(line["step"] == step for line in self.metrics("steps")):
            self.record("steps", step=step, seconds=round(seconds - inside, 3))

    @contextmanager
    def held(self, *, waits: bool = False) -> Iterator[None]:
        """Hold the folder, so that a second run on it refuses to start, or waits for the first."""
        with held_folder(self.path, waits=waits) if ranks.is_first() else nullcontext():
            yield

    def claim(self, identity: dict[str, Any], resume: bool) -> bool:
        """Make the folder this run's, or check that it already is; whether it is new.

        What a kill left half-written is removed.

        The first process goes ahead; the others find its run, and must have been started for the same.
        """
        if self.refuse_taken(resume):
            self._clear_halves()
            self.write_json("config.json", identity)
            return True
        self.refuse_others(identity)
        if ranks.is_first():
            self._clear_halves()
        return False

    def refuse_taken(self, resume: bool) -> bool:
        """Refuse a folder that is not free for a run; whether a run would be new in it. Writes nothing."""
        if not (self / "config.json").exists():
            self._refuse_unknown_files()
            return True
        if not (resume or ranks.is_restarted() or not ranks.is_first()):
            raise RunError(
                f"{self.path} already holds a run: choose another --out, or continue it with --resume."
            )
        return False

    def release(self, *names: str) -> None:
        """Undo the claim of a new run that cannot begin, with the files that it wrote."""
        for name in ("config.json", "metrics.jsonl", *names):
            self.drop(name)

    def refuse_others(self, identity: dict[str, Any]) -> None:
        """Refuse a folder whose run is not this one."""
        difference = _first_difference(self.read_json("config.json"), json.loads(json.dumps(identity)))
        if difference is not None:
            name, old, new = difference
            raise RunError(
                f"{self.path} holds another run: its {name} is {old!r}, not {new!r}; "
                "choose another --out, or resume with the settings that it was started with."
            )

    def _refuse_unknown_files(self) -> None:
        """A folder without config.json is the run's only if a kill left nothing but that file's beginning."""
        try:
            names = sorted(path.name for path in self.path.iterdir() if path.name != ".lock")
        except FileNotFoundError:
            return
        except OSError as problem:
            raise writing_failed(self.path, problem) from problem
        unknown = [name for name in names if not is_temporary(name, "config.json")]
        if unknown:
            raise RunError(
                f"{self.path} exists and is not a run of mein (it holds {unknown[0]!r}): "
                "choose an empty folder for --out."
            )

    def _clear_halves(self) -> None:
        """Remove temporary files, and the last line of the metrics where a kill cut it."""
        for path in [p for p in self.path.rglob(".*") if is_temporary(p.name)]:
            path.unlink(missing_ok=True)
        path = self / "metrics.jsonl"
        content = path.read_bytes() if path.exists() else b""
        if not content.endswith(b"\n") and content:
            write_atomically(path, content[: content.rfind(b"\n") + 1])

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a small JSON file with the format's version, atomically."""
        if not ranks.is_first():
            return
        text = json.dumps({"mein": FORMAT_VERSION, **content}, indent=2, ensure_ascii=False)
        write_atomically(self / name, (text + "\n").encode("utf-8"))

    def read_json(self, name: str) -> dict[str, Any]:
        """Read what `write_json` wrote, without the version."""
        path = self / name
        try:
            content = json.loads(read_regular(path).decode("utf-8"))
            version = content.pop("mein")
        except (FileNotFoundError, NotADirectoryError) as problem:
            if not self.path.is_dir():
                raise RunError(
                    f"There is no run folder {self.path}: give the one that `mein train --out` wrote."
                ) from problem
            self._refuse_several()
            raise RunError(
                f"{self.path} is not a run of mein: {name} is missing; give the folder that "
                "`mein train --out` wrote."
            ) from problem
        except KeyError as problem:
            raise RunError(
                f"{path} was written by another program, or is damaged: give the folder that "
                "`mein train --out` wrote."
            ) from problem
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as problem:
            raise RunError(f"{path} is damaged: restore it from a copy.") from problem
        check_version(path, version)
        assert isinstance(content, dict)
        return content

    def _refuse_several(self) -> None:
        runs = runs_of_seeds(self.path)
        if runs:
            raise RunError(
                f"{self.path} holds the runs of several seeds: give one of them, such as {runs[0]}."
            )

    def record(self, stage: str, **measured: Any) -> None:
        """Append one line of measurements."""
        if not ranks.is_first():
            return
        line = json.dumps({"stage": stage, **measured}, ensure_ascii=False)
        try:
            with (self / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as problem:
            raise writing_failed(self / "metrics.jsonl", problem) from problem

    def drop(self, name: str) -> None:
        """Remove a file that is of no more use, if it is there."""
        if ranks.is_first():
            (self / name).unlink(missing_ok=True)

    def metrics(self, stage: str | None = None) -> list[dict[str, Any]]:
        """The measurements, of one stage or all; a last line that was cut by a kill is left out."""
        path = self / "metrics.jsonl"
        if not path.exists():
            return []
        try:
            lines = read_regular(path).decode("utf-8", "replace").split("\n")
            complete = [json.loads(line) for line in lines[:-1] if line]
            return [line for line in complete if stage in (None, line["stage"])]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
            raise RunError(f"{path} is damaged ({problem!r}): restore it from a copy.") from problem

    def rewind(self, stage: str, keep: int) -> None:
        """Forget what a stage recorded after its first `keep` lines, because it will happen again."""
        if not ranks.is_first():
            return
        kept, seen = [], 0
        for line in self.metrics():
            seen += line["stage"] == stage
            if line["stage"] != stage or seen <= keep:
                kept.append(json.dumps(line, ensure_ascii=False) + "\n")
        write_atomically(self / "metrics.jsonl", "".join(kept).encode("utf-8"))


def runs_of_seeds(path: Path) -> list[Path]:
    """The run folders that a training over several seeds left in a folder, in the seeds' order."""
    found = [run for run in path.glob("seed-*") if (run / "config.json").exists()]
    return sorted(found, key=lambda run: (len(run.name), run.name))


def _first_difference(
    old: dict[str, Any], new: dict[str, Any], prefix: str = ""
) -> tuple[str, Any, Any] | None:
    for key in [*old, *(k for k in new if k not in old)]:
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            inner = _first_difference(a, b, f"{prefix}{key}.")
            if inner is not None:
                return inner
        elif a != b:
            return f"{prefix}{key}", a, b
    return None
