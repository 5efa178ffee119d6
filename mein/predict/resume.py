"""Finished parts of a stopped prediction, in a folder beside the output.

OUT.parts/
├── manifest.json   what the parts depend on: source, model, options
├── 000000.arrow    predictions of the first chunk of documents, without their texts and other columns:
│                   an Arrow stream, followed by a digest of the manifest, the part's number, and the stream
└── ...

A part with another digest is damaged or belongs elsewhere, and is computed again.

The output is written anew from the source and the parts, so it does not depend on interruptions. The folder
takes 8 bytes per document and class, more with fragments; it is removed when the output is complete.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from mein.data.formats import find_files
from mein.data.writers import UnfitError
from mein.errors import InputError, RunError
from mein.model.model import Model
from mein.runtime.files import is_temporary, refuse_irregular, refuse_nameless, write_atomically
from mein.runtime.run_folder import RunFolder

MANIFEST = "manifest.json"
PART = re.compile(r"\d{6,}\.arrow")
DIGEST_BYTES = 16


@contextmanager
def open_parts(
    target: Path, identity: dict[str, Any], resume: bool, log: Callable[[str], None]
) -> Iterator["Parts"]:
    """The parts of a prediction into `target`; at a clean exit they are removed.

    They are also removed if no restart can use them: if none is complete, or if the source is at fault. If
    the output's format is at fault, another format can use them.
    """
    refuse_nameless(target)
    refuse_irregular(target)
    if not target.parent.is_dir():
        raise InputError(
            f"{target} cannot be written (No such file or directory); "
            "check the folder, its permissions and the free space."
        )
    parts = Parts(target, identity, log)
    with parts.folder.held():
        parts.claim(resume)
        try:
            yield parts
        except UnfitError as problem:
            raise InputError(
                f"{str(problem).removesuffix('.')} (finished parts are kept: rename {parts.folder.path} to "
                "NEW.parts, after the new --out, and add --resume)."
            ) from problem
        except BaseException as problem:
            is_at_fault = isinstance(problem, InputError) and not isinstance(problem.__cause__, OSError)
            if is_at_fault or not parts.done():
                parts.remove()
            raise
        _settle(target)
        parts.remove()


class NoParts:
    """The parts of a prediction from or to a stream, none of which is kept."""

    def table(self, number: int, make: Callable[[], pa.Table]) -> pa.Table:
        """A new part."""
        return make()


class Parts:
    """Tables of predictions by number, in a folder beside the output."""

    def __init__(self, target: Path, identity: dict[str, Any], log: Callable[[str], None]) -> None:
        self.target = target
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))  # as the manifest holds it
        self.log = log
        self.folder = RunFolder(target.with_name(f"{target.name}.parts"))

    def claim(self, resume: bool) -> None:
        """Use the folder for this prediction; parts are kept if they belong to it."""
        found, identity = self._found(), self.identity
        is_same = found == identity
        if is_same and self.done() and not resume:
            raise RunError(
                f"{self.folder.path} holds {self.done()} parts of this prediction, which was stopped: "
                "add --resume to continue, or delete the folder to start again."
            )
        if found is not None and not is_same and resume and self.done():
            name = next(key for key in {**found, **identity} if found.get(key) != identity.get(key))
            raise RunError(
                f"{self.folder.path} belongs to another prediction ({name} differs): repeat that command, "
                "or omit --resume to start again."
            )
        self._clear(keeps_parts=is_same)
        if not is_same:
            self.folder.write_json(MANIFEST, identity)

    def table(self, number: int, make: Callable[[], pa.Table]) -> pa.Table:
        """A finished part, if it is verified; otherwise a new one, which is kept."""
        path = self.folder / f"{number:06}.arrow"
        if path.is_file():
            part = path.read_bytes()
            content = part[:-DIGEST_BYTES]
            if part == content + self._digest(number, content):
                return pa.ipc.open_stream(content).read_all()
            self.log(f"{path} is damaged or belongs elsewhere: predicting its documents again")
        made, sink = make(), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, made.schema) as writer:
            writer.write_table(made)
        content = sink.getvalue().to_pybytes()
        write_atomically(path, content + self._digest(number, content))
        return made

    def _digest(self, number: int, content: bytes) -> bytes:
        """The digest of a part at its place in this prediction."""
        place = json.dumps([self.identity, number], sort_keys=True).encode("utf-8")
        return hashlib.blake2b(place + content, digest_size=DIGEST_BYTES).digest()

    def done(self) -> int:
        """How many parts there are."""
        return len(self._parts())

    def remove(self) -> None:
        """Remove the folder, its parts first: without a manifest they would be unknown files.

        What somebody else put there is left.
        """
        self._clear(keeps_parts=False)
        with suppress(OSError):
            for name in (MANIFEST, ".lock"):
                (self.folder / name).unlink(missing_ok=True)
            self.folder.path.rmdir()

    def _parts(self) -> list[Path]:
        return [path for path in self.folder.path.glob("*.arrow") if PART.fullmatch(path.name)]

    def _found(self) -> dict[str, Any] | None:
        """The manifest, if there is one; refuses a folder with unknown files."""
        if (self.folder / MANIFEST).exists():
            try:
                return self.folder.read_json(MANIFEST)
            except RunError as problem:
                raise RunError(
                    f"{self.folder / MANIFEST} is damaged or of another version of mein: "
                    f"delete {self.folder.path}, and run the command without --resume."
                ) from problem
        names = sorted(path.name for path in self.folder.path.iterdir() if path.name != ".lock")
        unknown = [name for name in names if not is_temporary(name)]
        if unknown:
            raise RunError(
                f"{self.folder.path} is not a folder of mein (it holds {unknown[0]!r}): choose another --out."
            )
        return None

    def _clear(self, *, keeps_parts: bool) -> None:
        """Remove incomplete files, also of the output, and, unless they are kept, parts."""
        beside = [
            path for path in self.target.parent.glob(".*.tmp") if is_temporary(path.name, self.target.name)
        ]
        inside = [path for path in self.folder.path.iterdir() if is_temporary(path.name)]
        unwanted = [] if keeps_parts else self._parts()
        for path in [*beside, *inside, *unwanted]:
            path.unlink(missing_ok=True)


def identity_of(model: Model, source: str, **options: Any) -> dict[str, Any]:
    """What parts depend on: the source's files, the model, and options."""
    files = [(file.path, file.filesystem.info(file.path)) for file in find_files(source)]
    stamps = [
        (path, info.get("size"), str(info.get("mtime") or info.get("LastModified") or info.get("ETag")))
        for path, info in files
    ]
    checksum = hashlib.blake2b(json.dumps(stamps).encode("utf-8"), digest_size=16).hexdigest()
    sizes = sum(size or 0 for _, size, _ in stamps)
    return {
        "source": {"name": source, "files": len(files), "bytes": sizes, "checksum": checksum},
        "model": model.fingerprint,
        **options,
    }


def _settle(target: Path) -> None:
    """Wait until the output is on disk: only then may the parts be removed."""
    with target.open("rb") as written:
        os.fsync(written.fileno())
