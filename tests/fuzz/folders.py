"""Hostile run folders: files damaged, exchanged, or replaced; and sound ones whose content is absurd."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from mein.model.artefacts import seal
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors, save_tensors
from tests.fuzz.place import Place, not_finite, picked
from tests.fuzz.texts import text
from tests.fuzz.trying import Case
from tests.support.shell import Answer

ABSURD: list[Any] = [
    None,
    True,
    0,
    -1,
    10**9,
    10**30,
    -0.5,
    float("nan"),
    float("inf"),
    "",
    "none",
    "../../../etc/passwd",
    [],
    {},
    [[]],
    [1, "a"],
    {"a": {}},
    [None] * 3,
    "\x1b[31m",
    "a" * 10_000,
    [0.1] * 1_000,
]
ENCODED = "encoded"  # what was prepared for training, which no use of a finished run reads


def damaged(place: Place, chance: random.Random, folder: Path) -> Case:
    """A run with one file that is no longer what was written: refused, or of no account."""
    run = folder / "run"
    shutil.copytree(place.run, run, ignore=shutil.ignore_patterns(ENCODED))
    files = sorted(path for path in run.iterdir() if path.is_file() and path.name != ".lock")
    victim = chance.choice(files)
    damage(victim, chance, files)
    return chance.choice(list(place.uses(run, folder).values()))


def resumed(place: Place, chance: random.Random, folder: Path) -> Case:
    """A run that was stopped, with one damaged file: resumed to the same weights, or refused."""
    run = folder / "run"
    shutil.copytree(place.run, run)
    lost = chance.choice(
        [[], ["mixture"], ["mixture", "closed", "random"], ["imitators", "mixture", "closed", "random"]]
    )
    for name in ["done", *(f"{name}.safetensors" for name in lost)]:
        (run / name).unlink()
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    damage(chance.choice(files), chance, files)

    def wrong(answer: Answer) -> str | None:
        names = [path.name for path in place.run.glob("*.safetensors")]
        other = [name for name in names if (run / name).read_bytes() != (place.run / name).read_bytes()]
        return f"{other} differ" if other else None

    return Case((*place.training(run), "--resume"), wrong)


def damage(victim: Path, chance: random.Random, others: list[Path]) -> None:
    """Do something to a file."""
    content = bytearray(victim.read_bytes())
    match picked(
        chance, "flip", "flip", "cut", "zero", "append", "lose", "folder", "fifo", "loop", "swap", "junk"
    ):
        case "flip" if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            victim.write_bytes(content)
        case "cut":
            victim.write_bytes(content[: chance.randrange(len(content) + 1)])
        case "zero":
            start = chance.randrange(len(content) + 1)
            content[start : start + 512] = bytes(len(content[start : start + 512]))
            victim.write_bytes(content)
        case "append":
            victim.write_bytes(content + chance.randbytes(9))
        case "swap":
            victim.write_bytes(chance.choice(others).read_bytes())
        case "junk":
            victim.write_bytes(
                picked(chance, b"null", b"[]", b"{}", b"[" * 50_000, b"\xff\xfe", b'{"mein": 3}')
            )
        case "lose":
            victim.unlink()
        case "folder":
            folder_free(victim).mkdir()
        case "fifo":
            os.mkfifo(folder_free(victim))
        case "loop":
            folder_free(victim).symlink_to(victim.name)


def folder_free(path: Path) -> Path:
    """The path, at which there is nothing any more."""
    path.unlink(missing_ok=True)
    return path


def absurd(place: Place, chance: random.Random, folder: Path) -> Case:
    """A run whose digests are right and whose content is not: no NaN, whatever it holds."""
    run = folder / "run"
    shutil.copytree(place.run, run, ignore=shutil.ignore_patterns(ENCODED))
    changes: list[Callable[[RunFolder, random.Random], None]] = [
        _json,
        _json,
        _classes,
        _facts,
        _facts,
        _tensors,
        _tensors,
        _metrics,
        _predictions,
        _vocabulary,
        _hub,
        _done,
    ]
    change, run_folder = chance.choice(changes), RunFolder(run)
    change(run_folder, chance)
    if change is not _done:
        seal(run_folder)
    name, case = chance.choice(list(place.uses(run, folder).items()))
    return Case(case.words, lambda answer: not_finite(name, folder, answer))


def _changed(value: Any, chance: random.Random) -> Any:
    """A value with one of its leaves replaced by an absurd one."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        return value | {key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        at = chance.randrange(len(value))
        return [*value[:at], _changed(value[at], chance), *value[at + 1 :]]
    return chance.choice(ABSURD)


def _json(run: RunFolder, chance: random.Random) -> None:
    names = sorted(p.name for p in run.path.glob("*.json"))
    path = run / chance.choice([*names, "config.json", "config.json", "labels.json"])
    if chance.random() < 0.1:
        path.write_text('{"mein": 3, "config": ' + "[" * 100_000 + "]" * 100_000 + "}", encoding="utf-8")
        return
    path.write_text(
        json.dumps(_changed(json.loads(path.read_text(encoding="utf-8")), chance)), encoding="utf-8"
    )


def _classes(run: RunFolder, chance: random.Random) -> None:
    content = run.read_json("labels.json")
    count = picked(chance, 0, 1, 3, 1_000, 300_000)
    content["classes"] = picked(
        chance, list(range(count)), [text(chance) for _ in range(2)], ["a", "a"], [1, "1"]
    )
    shares = [1 / max(count, 1)] * count
    content["prior"] = picked(chance, shares, [0.0, 1.0], [float("nan"), 1.0], [2.0, -1.0], content["prior"])
    run.write_json("labels.json", content)


def _some_tensors(run: RunFolder, chance: random.Random) -> Path:
    return Path(chance.choice(sorted(run.path.glob("*.safetensors"))))


def _facts(run: RunFolder, chance: random.Random) -> None:
    path = run / picked(chance, "mixture.safetensors", "imitators.safetensors", "expert.safetensors")
    tensors, facts = load_tensors(path)
    if "gates" in facts and chance.random() < 0.5:
        facts[picked(chance, "gates", "temperature", "lexicon_weight")] = picked(
            chance,
            [float("nan")] * 2,
            float("nan"),
            0.0,
            -1.0,
            1e-300,
            [1e300, -1e300],
            1e308,
            [[0.0], [1.0]],
            "1",
        )
    else:
        facts = _changed(facts, chance)
    save_tensors(path, tensors, facts if isinstance(facts, dict) else {"facts": facts})


def _tensors(run: RunFolder, chance: random.Random) -> None:
    path = _some_tensors(run, chance)
    tensors, facts = load_tensors(path)
    name = chance.choice(sorted(tensors))
    tensor = tensors[name]
    with torch.random.fork_rng(devices=[]):
        match picked(chance, "nan", "inf", "huge", "type", "shape", "lose", "more", "negative"):
            case "nan" if tensor.is_floating_point():
                tensors[name] = torch.full_like(tensor, torch.nan)
            case "inf" if tensor.is_floating_point():
                tensors[name] = torch.full_like(tensor, torch.inf)
            case "huge" if tensor.is_floating_point():
                tensors[name] = torch.full_like(tensor, chance.choice([3e38, -3e38, 1e-45]))
            case "type":
                kinds = [torch.float64, torch.float16, torch.int64, torch.bool, torch.uint8]
                tensors[name] = tensor.to(chance.choice(kinds))
            case "shape":
                tensors[name] = picked(
                    chance, tensor[None], tensor.flatten(), torch.zeros(0), torch.zeros(())
                )
            case "lose":
                del tensors[name]
            case "more":
                tensors[text(chance) or "x"] = torch.zeros(3)
            case _:
                tensors[name] = -tensor.to(torch.float32).to(tensor.dtype)
    save_tensors(path, tensors, facts)


def _metrics(run: RunFolder, chance: random.Random) -> None:
    path = run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for _ in range(chance.randrange(1, 4)):
        lines = _changed(lines, chance) if isinstance(lines, list) else lines
    rows = lines if isinstance(lines, list) else [lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in rows), encoding="utf-8")


def _predictions(run: RunFolder, chance: random.Random) -> None:
    path = run / "predictions.parquet"
    table = pq.read_table(path)
    name, n = chance.choice(table.column_names), table.num_rows
    column = picked(
        chance,
        pa.array(["a"] * n),
        pa.array([10**12] * n),
        pa.array([-1] * n),
        pa.nulls(n),
        pa.array([[0.5, 0.5]] * n),
        pa.array([[float("nan")] * 2] * n, pa.list_(pa.float32(), 2)),
        pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(n * 3, np.float32)), 3),
    )
    table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table.slice(0, picked(chance, n, n, 0, 1)), path)


def _vocabulary(run: RunFolder, chance: random.Random) -> None:
    """Other words, with the digests that go with them."""
    path = run / "words.txt"
    lines = path.read_text(encoding="utf-8").split("\n")
    at = chance.randrange(len(lines))
    lines[at] = picked(
        chance, "", text(chance), f"{text(chance)}\t1\t1", "new\t" + "9" * 30 + "\t1", "a\t-1\t\u0663"
    )
    path.write_text("\n".join(lines), encoding="utf-8")
    if chance.random() < 0.3:
        (run / "pieces.model").write_bytes(picked(chance, b"", b"\0" * 100, chance.randbytes(200)))
    from mein.model.artefacts import VOCABULARIES
    from mein.runtime.files import sha256_of

    facts = run.read_json("vocabularies.json")
    facts["sha256"] = {name: sha256_of(run / name) for name in VOCABULARIES}
    run.write_json("vocabularies.json", facts)


def _hub(run: RunFolder, chance: random.Random) -> None:
    """Files of a Hugging Face model that no expert of this kind reads."""
    (run / "hub").mkdir()
    (run / "hub/config.json").write_bytes(picked(chance, b"{}", b"[" * 10_000, b'{"vocab_size": 1e18}'))
    (run / "hub/model.py").write_text(
        "raise SystemExit('code of a run folder was executed')", encoding="utf-8"
    )


def _done(run: RunFolder, chance: random.Random) -> None:
    content = json.loads((run / "done").read_text(encoding="utf-8"))
    for _ in range(chance.randrange(1, 3)):
        content = _changed(content, chance)
    if isinstance(content, dict) and isinstance(content.get("required"), dict) and chance.random() < 0.3:
        content["required"][
            picked(chance, "../../../../etc/passwd", "/dev/zero", "a\0b", "", ".", "x" * 300)
        ] = "0"
    (run / "done").write_text(json.dumps(content), encoding="utf-8")
