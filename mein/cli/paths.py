"""Paths on a command line: expanded once, refused early. Separate from options.py: all commands pass here."""

import inspect
import os
from pathlib import Path
from typing import Any, get_type_hints

from typer.core import TyperCommand

from mein.errors import InputError, UsageError
from mein.runtime.files import PIPES, expanded, refuse_irregular

PATHS = ("FILE", "FOLDER", "RUN", "STORE")  # the metavars of paths
GLOB = frozenset("*?[")


class PathCommand(TyperCommand):
    """A command whose options and arguments that are paths are ready when it begins."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an empty path, which as a Path would be the current folder."""
        given, *_ = self.make_parser(ctx).parse_args(args=list(args))
        for param in self.params:
            value = given.get(param.name)
            if _kind(param) in PATHS and "" in (value if isinstance(value, list | tuple) else [value]):
                raise UsageError(f"{named(param)} is empty: give a path.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Expand each path, refuse what cannot be there, and run the command."""
        hints = get_type_hints(inspect.unwrap(self.callback)) if self.callback else {}
        for param in self.params:
            name, kind = str(param.name), _kind(param)
            value = ctx.params.get(name)
            if kind not in PATHS or value is None:
                continue
            make = _path if "Path" in str(hints.get(name)) else _source
            many = isinstance(value, list | tuple)
            ready = [make(str(one), kind, self.name) for one in (value if many else [value])]
            ctx.params[name] = ready if many else ready[0]
        return super().invoke(ctx)


def named(param: Any) -> str:
    """An option by its long name and metavar, an argument by its metavar."""
    if param.param_type_name == "argument":
        return metavar(param)
    long = str(max(param.opts, key=len))
    return long if param.is_flag else f"{long} {metavar(param)}"


def metavar(param: Any) -> str:
    """What stands for a value in help."""
    return str(param.metavar or param.name.upper())


def _kind(param: Any) -> str:
    return metavar(param).rstrip(".")


def _path(value: str, kind: str, command: str | None) -> Path:
    """A file or a folder of this machine; a run must be there, and finished."""
    path = Path(expanded(value))
    if kind == "RUN":
        from mein.model.artefacts import read_done
        from mein.runtime.run_folder import RunFolder

        read_done(RunFolder(path))
    if kind == "FILE" and not value.startswith(PIPES):
        refuse_irregular(path)
    return path


def _source(value: str, kind: str, command: str | None) -> str:
    """Documents or a store, which may be at a URL; local documents must be there."""
    path = expanded(value)
    is_local = path != "-" and "://" not in path and not GLOB & set(path)
    if not is_local or kind != "FILE" or command == "check":  # which reports every problem that it finds
        return path
    if not os.path.exists(path):  # noqa: PTH110 - as a Path, "a/." would be "a"
        raise InputError(f"{value} does not exist; check the path.")
    if not os.path.isdir(path):  # noqa: PTH112 - as above
        refuse_irregular(Path(path))
    return path
