"""Write docs/settings.md, the reference of every setting, from the classes that declare them.

usage: python scripts/settings_page.py
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mein.config import COMMON, Config, is_section, json_schema, names

PAGE = Path(__file__).parent.parent / "docs/settings.md"
BOUNDS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}
HEAD = """# Settings

Every setting, by section. Written by `make settings` from the code; do not edit it here.

- `--set SECTION.NAME=VALUE` sets one for a command that trains, `settings={"SECTION.NAME": value}` in Python.
- A config file (`mein init`, then `--config FILE`) has a table for each section; there `"none"` stands for no
  value.
- The defaults are those of the preset `full`; `mein init --preset NAME --all` shows those of another.
- `mein init --schema > mein.schema.json` writes the JSON schema of config files, with which editors complete
  and check them: the first line of the TOML file is then `#:schema ./mein.schema.json` (Taplo).

**Bold**: the settings that `mein init` writes.
"""


def page() -> str:
    """The whole page."""
    schema = json_schema()
    tables = ["", *table(schema["properties"], [name for name in names() if "." not in name])]
    for section in filter(is_section, Config.model_fields):
        declared = schema["$defs"][type(Config.model_fields[section].default).__name__]["properties"]
        inside = [name for name in names() if name.startswith(f"{section}.")]
        tables += ["", f"## {section}", "", str(Config.model_fields[section].description), ""]
        tables += table(declared, inside)
    return HEAD + "\n".join(tables) + "\n"


def table(declared: dict[str, Any], wanted: list[str]) -> Iterator[str]:
    """A row for each setting."""
    yield "| setting | default | values | meaning |"
    yield "|---|---|---|---|"
    for name in wanted:
        field = declared[name.partition(".")[2] or name]
        shown = f"**`{name}`**" if name in COMMON else f"`{name}`"
        default = "none" if field["default"] is None else json.dumps(field["default"]).strip('"')
        meaning = field["description"].replace("\n", " ").replace("|", "\\|")
        yield f"| {shown} | `{default}` | {values(field)} | {meaning} |"


def values(field: dict[str, Any]) -> str:
    """What a setting may be, in a few words."""
    if "anyOf" in field:
        return (
            ", ".join(values(one) for one in field["anyOf"] if "type" in one and one["type"] != "null")
            + ", none"
        )
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    if field["type"] == "array":
        return f"list of {values(field['items'])}"
    kind = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text"}
    bounds = [
        text.format(f"{field[name]:,}".removesuffix(".0")) for name, text in BOUNDS.items() if name in field
    ]
    return " ".join([kind[field["type"]], ", ".join(bounds)]).strip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
