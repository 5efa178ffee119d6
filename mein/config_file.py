"""The configuration as a commented file: every setting, with its value and what it means."""

import json
import textwrap

from mein.config import Config, is_section
from mein.settings import Settings


def as_toml(config: Config) -> str:
    """The configuration as a commented file that `load_config` reads back."""
    lines = [
        "# A configuration of mein: every setting, with its value and what it means.",
        '# "none" stands for no value. Use it with `mein train --config`; what is left',
        "# out keeps its default.",
        "",
    ]
    names = list(Config.model_fields)
    lines += _toml_fields(config, [name for name in names if not is_section(name)])
    for name in filter(is_section, names):
        section = getattr(config, name)
        lines += ["", f"[{name}]  # {Config.model_fields[name].description}"]
        lines += _toml_fields(section, list(type(section).model_fields))
    return "\n".join(lines) + "\n"


def _toml_fields(section: Settings, names: list[str]) -> list[str]:
    lines = []
    for name in names:
        value = getattr(section, name)
        shown = json.dumps("none" if value is None else value, ensure_ascii=False)
        meaning = str(type(section).model_fields[name].description)
        lines += textwrap.wrap(
            meaning, 80, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
        )
        lines.append(f"{name} = {shown}")
    return lines
