"""Paths on a command line: expanded once, refused early. Separate from options.py: all commands pass here."""

import os
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from mein.errors import InputError
from mein.runtime.files import expanded

PATHS = ("FILE", "FOLDER", "RUN", "STORE")  # the metavars of paths
GLOB = frozenset("*?[")


class PathCommand(TyperCommand):
    """A command whose options and arguments that are paths are ready when it begins."""

    def invoke(self, ctx: Any) -> Any:
        """Expand each path, refuse what cannot be there, and run the command."""
        for param in self.params:
            kind, value = str(param.metavar or "").rstrip("."), ctx.params.get(param.name)
            if kind in PATHS and value is not None:
                many = isinstance(value, list | tuple)
                ready = [usable(one, kind, self.name) for one in (value if many else [value])]
                ctx.params[param.name] = ready if many else ready[0]
        return super().invoke(ctx)


def usable(value: str | Path, kind: str, command: str | None) -> str | Path:
    """A path as the user means it; a source of documents (a string) and a run must be there."""
    path = expanded(value)
    if kind == "RUN":
        from mein.model.artefacts import read_done
        from mein.runtime.run_folder import RunFolder

        read_done(RunFolder(Path(path)))
    is_local = isinstance(path, str) and path != "-" and "://" not in path and not GLOB & set(path)
    is_source = kind == "FILE" and is_local and command != "check"  # which reports every problem it finds
    if is_source and not os.path.exists(path):  # noqa: PTH110 - as a Path, "a/." would be "a"
        raise InputError(f"{value} does not exist; check the path.")
    return path
