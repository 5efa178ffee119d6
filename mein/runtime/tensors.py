"""Tensors on disk: safetensors with one JSON object beside them, atomic, checksummed, no pickle."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from mein.errors import RunError
from mein.runtime.files import atomic_path, is_special
from mein.runtime.ranks import is_first

if TYPE_CHECKING:  # to verify a file, or to refuse a folder that holds no run, does not need torch
    from torch import Tensor

FORMAT_VERSION = 3  # of a run's files; raised when an older version could not read them


def save_tensors(path: Path, tensors: "dict[str, Tensor]", facts: dict[str, Any]) -> None:
    """Write tensors and JSON-able facts as one file, atomically. Only the first process writes.

    The file carries its own name, so that it cannot stand in the place of another.
    """
    if not is_first():
        return
    from safetensors.torch import save_file

    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    digest = digest_of(path.name, plain, facts)
    header = {"version": FORMAT_VERSION, "name": path.name, "sha256": digest, "facts": facts}
    with atomic_path(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(plain, temporary, metadata={"mein": json.dumps(header)})
        except SafetensorError as problem:  # it hides the system's error in its text
            raise _system_error(problem) from problem
        with suppress(PermissionError):  # not every disk knows modes
            temporary.chmod(mode)  # the library lets nobody but the owner read it


def load_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Read what `save_tensors` wrote; refuse what is damaged, renamed, or of another format."""
    with _opened(path, "pt") as file:
        header = _header(path, file)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts: dict[str, Any] = header["facts"]
        digest = digest_of(path.name, tensors, facts)
    if header.get("sha256") != digest:
        raise _damaged(path)
    return tensors, facts


def digest_in(path: Path) -> str:
    """The checksum in the header of what `save_tensors` wrote; `load_tensors` verifies it."""
    with _opened(path) as file:
        return str(_header(path, file).get("sha256"))


def load_facts(path: Path) -> dict[str, Any]:
    """What stands beside the tensors, without reading them: they may be large."""
    with _opened(path) as file:
        facts: dict[str, Any] = _header(path, file)["facts"]
        return facts


@contextmanager
def _opened(path: Path, framework: str = "np") -> Iterator[Any]:
    if is_special(path):
        raise _damaged(path)
    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except FileNotFoundError as problem:
        raise RunError(f"{path} is missing: restore it from a copy of the run.") from problem
    except (SafetensorError, ValueError, OSError, RecursionError) as problem:  # the last of deep JSON
        raise _damaged(path) from problem


def _header(path: Path, file: Any) -> dict[str, Any]:
    header = json.loads((file.metadata() or {}).get("mein", "null"))
    if not isinstance(header, dict):
        raise _damaged(path)
    check_version(path, header.get("version"))
    if not isinstance(header.get("facts"), dict):
        raise _damaged(path)
    if header.get("name") != path.name:
        raise RunError(
            f"{path} is damaged, or is a copy of {header.get('name')!r}: "
            "restore it from a copy of its own run."
        )
    return header


def check_version(path: Path, version: object) -> None:
    """Refuse a file whose format is not the one that this version of mein reads."""
    if not isinstance(version, int):
        raise _damaged(path)
    if version > FORMAT_VERSION:
        raise RunError(f"{path} has format {version}, this mein reads {FORMAT_VERSION}: upgrade mein.")
    if version < FORMAT_VERSION:
        raise RunError(
            f"{path} has format {version}, this mein reads {FORMAT_VERSION}: train again in another folder, "
            "or use the version of mein that wrote it."
        )


def _damaged(path: Path) -> RunError:
    again = ", or remove it and run `mein train --resume` to make it again"
    return RunError(
        f"{path} is damaged or was changed by another program: restore it from a copy"
        f"{'' if (path.parent / 'done').exists() else again}."
    )


def _system_error(problem: SafetensorError) -> OSError:
    code = re.search(r"os error (\d+)", str(problem))
    number = int(code[1]) if code else errno.EIO
    return OSError(number, os.strerror(number))


def digest_of(file: str, tensors: "dict[str, Tensor]", facts: dict[str, Any]) -> str:
    """The checksum that `save_tensors` writes into the header of a file."""
    import torch

    digest = hashlib.sha256(json.dumps([file, facts], sort_keys=True).encode("utf-8"))
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu")
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():  # torch sees no bytes where there are none
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
