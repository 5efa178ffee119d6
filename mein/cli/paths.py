"""Paths on a command line: expanded once, refused early. Separate from options.py: all commands pass here."""

import inspect
import os
from pathlib import Path
from typing import Any, get_type_hints

from typer.core import TyperCommand

from mein.errors import InputError
from mein.runtime.files import expanded, refuse_irregular

PATHS = ("FILE", "FOLDER", "RUN", "STORE")  # the metavars of paths
GLOB = frozenset("*?[")


class PathCommand(TyperCommand):
    """A command whose options and arguments that are paths are ready when it begins."""

    def invoke(self, ctx: Any) -> Any:
        """Expand each path, refuse what cannot be there, and run the command."""
        hints = get_type_hints(inspect.unwrap(self.callback)) if self.callback else {}
        for param in self.params:
            name, kind = str(param.name), str(param.metavar or "").rstrip(".")
            value = ctx.params.get(name)
            if kind not in PATHS or value is None:
                continue
            make = _path if "Path" in str(hints.get(name)) else _source
            many = isinstance(value, list | tuple)
            ready = [make(str(one), kind, self.name) for one in (value if many else [value])]
            ctx.params[name] = ready if many else ready[0]
        return super().invoke(ctx)


def _path(value: str, kind: str, command: str | None) -> Path:
    """A file or a folder of this machine; a run must be there, and finished."""
    path = Path(expanded(value))
    if kind == "RUN":
        from mein.model.artefacts import read_done
        from mein.runtime.run_folder import RunFolder

        read_done(RunFolder(path))
    if kind == "FILE" and not value.startswith("/dev/"):  # where a shell puts what <(...) prints
        refuse_irregular(path)
    return path


def _source(value: str, kind: str, command: str | None) -> str:
    """Documents or a store, which may be at a URL; local documents must be there."""
    path = expanded(value)
    if kind == "STORE" and not value:
        raise InputError("The path of the store is empty: give a folder or a URL.")
    is_local = path not in ("", "-") and "://" not in path and not GLOB & set(path)
    is_needed = kind == "FILE" and command != "check"  # which reports every problem that it finds
    if is_local and is_needed and not os.path.exists(path):  # noqa: PTH110 - as a Path, "a/." would be "a"
        raise InputError(f"{value} does not exist; check the path.")
    return path
