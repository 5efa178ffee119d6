"""mein init: a config file that explains settings, or the schema of such files. One module per command."""

import json
from pathlib import Path
from typing import Annotated

from mein.cli.console import Output
from mein.cli.options import Preset, argument, flag
from mein.errors import ConfigError


def init(
    path: Annotated[Path, argument("FILE", "Output file. Default: mein.toml.")] = Path("mein.toml"),
    preset: Preset = None,
    every: Annotated[bool, flag("--all", "Write every setting.")] = False,
    schema: Annotated[bool, flag("--schema", "Print the files' JSON schema instead.")] = False,
) -> None:
    """Write a config file with the ten settings people change.

    Examples:
      mein init
      mein init paper.toml --preset paper --all
      mein init --schema > mein.schema.json
    """
    from mein.config import as_toml, default_preset, json_schema, load_config
    from mein.runtime.files import write_atomically

    if schema:
        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    if path.exists():
        raise ConfigError(f"{path} already exists: remove it, or choose another name.")
    chosen = default_preset() if preset is None else preset
    text = as_toml(load_config(chosen), None if every else chosen)
    write_atomically(path, text.encode("utf-8"))
    Output().log(f"Wrote {path}; use it with `mein train --config {path} ...`.")
