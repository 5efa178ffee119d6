"""The documents are true: links lead somewhere, commands and settings exist, examples run.

Each check is a function from text to complaints, and is shown to complain once.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

import benchmarks.__main__
import mein.api
import mein.cli.main
import paper.__main__
from mein.config import Config, load_config
from mein.runtime.settings import Settings
from tests.support.tiny import SETTINGS, TEXTS

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("log/*.md")])
README, GUIDE = ROOT / "README.md", ROOT / "docs/guide.md"
OF_TODAY = [README, GUIDE, *(ROOT / f"docs/{name}.md" for name in ("serve", "data", "scale", "few-labels"))]
"""Documents whose commands exist; a log may name former commands and settings."""

APPS = {
    "mein": mein.cli.main.app,
    "python -m paper": paper.__main__.app,
    "python -m benchmarks": benchmarks.__main__.app,
}

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OURS = r"mein|python -m (?:paper|benchmarks)"
COMMAND = re.compile(rf"^ *(?:\$ |[^#\n]*-m )?((?:{OURS}) .*)$", re.MULTILINE)  # also torchrun ... -m mein
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SECTIONS = {
    name: set(type(field.default).model_fields)
    for name, field in Config.model_fields.items()
    if isinstance(field.default, Settings)
}
SETTING = re.compile(rf"(?<![\w./-])({'|'.join(SECTIONS)})\.(\w+)")
FILES = {"safetensors", "checkpoint", "txt", "model", "py", "json"}  # expert.safetensors is no setting

MODULE = re.compile(r"`((?:[\w.-]+/)*\w+\.(?:py|sh))`")
PLACES = [ROOT, ROOT / "mein", *(path for path in ROOT.glob("tests/**") if path.is_dir())]

Check = Callable[[str], list[str]]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [code for name, code in FENCE.findall(text) if name == language]


def broken_links(text: str, folder: Path = ROOT) -> list[str]:
    """Relative links to files, or to headings in documents, that are not there."""
    return [
        link
        for link in LINK.findall(FENCE.sub("", text))
        if ":" not in link and _is_broken(link, text, folder)
    ]


def _is_broken(link: str, text: str, folder: Path) -> bool:
    target, _, anchor = link.partition("#")
    if not (folder / target).exists():
        return True
    if not anchor:
        return False
    return anchor not in anchors_of((folder / target).read_text(encoding="utf-8") if target else text)


def anchors_of(text: str) -> set[str]:
    """What links may name: headings in lower case, without signs, a hyphen for each space."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCE.sub("", text)))
    return {heading.strip().replace(" ", "-") for heading in kept}


def command_lines(text: str) -> Iterator[str]:
    """Every command of ours in shell blocks, in indented code and in running text; continued lines joined."""
    prose = FENCE.sub("", text)
    indented = "\n".join(re.findall(r"^ {4}.*$", prose, re.MULTILINE))
    for code in [*blocks(text, "sh"), indented]:
        yield from COMMAND.findall(code.replace("\\\n", " "))
    yield from re.findall(rf"`((?:{OURS}) [^`\n]+)`", prose)


def unknown_commands(text: str) -> list[str]:
    """Command lines with a command or an option that does not exist."""
    return [complaint for line in command_lines(text) for complaint in _unknown(line)]


def _unknown(line: str) -> list[str]:
    program = next(name for name in APPS if line.startswith(name))
    command: Any = typer.main.get_command(APPS[program])  # typer brings a click of its own, without types
    known = {"-h", "--help", "--debug"}
    words = shlex.split(line.removeprefix(program), comments=True)
    if words and words[0].startswith("-"):  # `mein --version`
        words, own = [], words
    else:
        own = []
        while hasattr(command, "commands"):
            name = words.pop(0) if words else ""
            if name not in command.commands:
                return [f"{line}: no command {name!r}"]
            command = command.commands[name]
    known |= {name for parameter in command.params for name in parameter.opts}
    options = (word.partition("=")[0] for word in own or words if word.startswith("-"))
    return [f"{line}: no option {option}" for option in options if option not in known]


def unknown_settings(text: str) -> list[str]:
    """Dotted names whose first part is a section of the configuration and whose second is not in it."""
    return [
        f"{section}.{name}"
        for section, name in SETTING.findall(text)
        if name not in SECTIONS[section] | FILES and not _is_code(section, name)
    ]


def _is_code(room: str, name: str) -> bool:
    """Whether a dotted name is one of our own modules or functions: mixture.mix, imitators.reference."""
    if find_spec(f"mein.{room}") is None:
        return False
    homes = [f"mein.{room}", *([f"mein.{room}.{room}"] if find_spec(f"mein.{room}.{room}") else [])]
    return any(hasattr(import_module(home), name) for home in homes)


def missing_files(text: str) -> list[str]:
    """Modules, scripts, and tests by name that are not in the checkout."""
    return [name for name in MODULE.findall(text) if not any((place / name).exists() for place in PLACES)]


def uncompilable(text: str) -> list[str]:
    """Python blocks with a mistake in their syntax."""
    complaints = []
    for block in blocks(text, "python"):
        try:
            compile(block, "block", "exec")
        except SyntaxError as problem:
            complaints.append(f"{problem.msg}: {problem.text}")
    return complaints


CHECKS: dict[Check, list[str]] = {
    broken_links: [
        "see [it](docs/nowhere.md)",
        "[a](README.md#two-commands) and [b](nowhere.md#part)",
        "[a](README.md#three-commands)",
        "# Here\n[b](#there)",
    ],
    unknown_commands: [
        "```sh\nmein trian --out runs/a\n```",
        "```sh\nmake demo\n$ mein train \\\n  --labelled a.csv\n```",
        "```sh\ntorchrun --nproc-per-node 2 -m mein trian --out runs/a\n```",
        "```sh\ntorchrun \\\n    -m mein train --labelled a.csv\n```",
        "```sh\nfor seed in 0 1; do\n    python -m paper data rotten --sed $seed\ndone\n```",
        "so:\n\n    mein trian --out runs/a\n",
        "use `mein --verison`",
        "use `python -m benchmarks speed`",
        "use `mein bench encode`",
        "use `mein explain run text --json=1 --best 3`",
    ],
    unknown_settings: ["`words.lower`", "--set imitators.window=[1]", '{"expert.hidden": 3}'],
    missing_files: ["see `run/nowhere.py`", "`test_nothing.py`", "`mein/run.py`"],
    uncompilable: ["```python\nmodel.fit(\n```"],
}
HARMLESS = """
# Here
[a](README.md#two-commands), [b](#here), [c](https://example.org/nowhere.md)
```sh
# mein fly
mein train --labeled a.csv --set words.lowercase=false \\
    --out runs/a  # --like this
mein explain runs/a "it is --good" --top=3
python -m benchmarks encode --workers 2
PYTHONPATH=. python -m paper run --jobs 2
torchrun --nproc-per-node 2 -m mein train --out runs/a
```

    mein train --labeled a.csv \\
        --out runs/a  # of an entry

`mein --version`, `mein`, `expert.safetensors`, `mein.words.anything`, ../words.html
`mixture.mix`, `imitators.reference.Imitators`, `run/algorithm.py`, `scripts/house.py`, `test_docs.py`
```python
model.fit(texts, labels)
```
"""


@pytest.mark.parametrize(
    ("check", "text"), [(check, text) for check, texts in CHECKS.items() for text in texts]
)
def test_each_check_sees_what_it_forbids(check: Check, text: str) -> None:
    assert check(text) != []


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_lets_the_harmless_pass(check: Check) -> None:
    assert check(HARMLESS) == []


def test_anchors_are_headings_without_signs() -> None:
    text = "# A `b`\n```sh\n# no heading\n```\n## 2026-11-18: 12.2 % on two cores\n"
    assert anchors_of(text) == {"a-b", "2026-11-18-122--on-two-cores"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_document_is_true(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    complaints = broken_links(text, path.parent) + uncompilable(text)
    if path.parent.name != "log":
        complaints += missing_files(text)
        if path.name != "CHANGELOG.md":  # which names settings that are gone
            complaints += unknown_settings(text)
    if path in OF_TODAY:
        complaints += unknown_commands(text)
    assert complaints == []


@pytest.mark.parametrize("path", OF_TODAY, ids=lambda path: path.name)
def test_there_is_something_to_check(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert list(command_lines(text)) != []
    if path in (README, GUIDE):
        assert blocks(text, "python") != []


def with_expert(text: str) -> str:
    """The example with a classifier of the user's."""
    (block,) = (block for block in blocks(text, "python") if "expert=" in block)
    return f"from mein import MeinClassifier\n{block}"


def first(text: str) -> str:
    """The first example."""
    return blocks(text, "python")[0]


@pytest.mark.parametrize(
    ("path", "example"),
    [(README, first), (GUIDE, first), (GUIDE, with_expert)],
    ids=["README.md", "guide.md", "expert"],
)
def test_the_examples_run(
    path: Path, example: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They find texts, labels and more_texts where they do not make them, and networks are tiny."""

    def tiny_config(preset: str | None, overrides: dict[str, Any], encoder: str | None) -> Config:
        return load_config(preset, overrides=SETTINGS | overrides)

    monkeypatch.setattr(mein.api, "load_config", tiny_config)
    monkeypatch.chdir(tmp_path)
    given = {"texts": TEXTS.labeled_texts, "labels": TEXTS.labeled_labels}
    exec(  # noqa: S102
        example(path.read_text(encoding="utf-8")),
        {**given, "more_texts": TEXTS.unlabeled_texts},
    )
