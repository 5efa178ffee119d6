"""mein init: a config file that explains every setting. One module per command."""

from pathlib import Path
from typing import Annotated

import typer

from mein.cli.console import log, open_console
from mein.cli.options import Preset
from mein.errors import ConfigError


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Output file. Default: mein.toml.")] = Path(
        "mein.toml"
    ),
    preset: Preset = None,
) -> None:
    """Write a config file that explains every setting.

    Examples:
      mein init
      mein init paper.toml --preset paper
    """
    from mein.config import as_toml, load_config
    from mein.runtime.files import write_atomically

    if path.exists():
        raise ConfigError(f"{path} already exists: remove it, or choose another name.")
    write_atomically(path, as_toml(load_config(preset)).encode("utf-8"))
    log(open_console(), f"Wrote {path}; use it with `mein train --config {path} ...`.")
