"""The architecture: imports point down, files and functions stay short, no pickle; documents show it.

Each check is a function from a module's name and source to complaints, and is shown to complain once.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mein"
FILES = sorted(PACKAGE.rglob("*.py"))

# The rooms from the bottom up: folders of mein/, and the few modules at its root. A room imports only rooms
# of lower levels, so those that share a level do not know each other.
LEVELS = [
    {"errors"},
    {"runtime"},
    {"data", "text", "evaluation", "experts", "imitators"},
    {"store", "mixture", "hub"},
    {"training"},
    {"config"},
    {"model"},
    {"explain"},
    {"run", "predict"},
    {"report", "serve", "engines"},
    {"sharing"},
    {"api", "cli"},
]
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
ROOF = len(LEVELS)  # __init__, which lists the public names, and __main__

NETWORKS = {"experts", "imitators", "mixture"}  # tensors in, tensors out
WITHOUT_TORCH = {"errors", "data", "evaluation"}
OUTSIDE = {"paper", "benchmarks", "tests"}  # beside the package, not in the wheel
PICKLES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LONGEST_FILE, LONGEST_FUNCTION = 400, 50
SMALLEST_FILE = 80  # of a module that a single other one imports, unless its first line gives the reason
REASON = re.compile(r"Not part of|Separate from|apart|One module per command")

Check = Callable[[str, str], list[str]]


def module_of(path: Path) -> str:
    """The name of a module within mein: data/readers.py -> data.readers, data/__init__.py -> data."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room of a module: data.readers -> data, config -> config."""
    return module.split(".")[0]


def imported(source: str) -> Iterator[str]:
    """Every module imported anywhere in the source, also inside functions, by its full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from mein import data` may name a module, `from mein.data import x` a thing in one
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def rooms_imported(source: str) -> set[str]:
    """The rooms of mein that the source imports."""
    parts = [name.split(".") for name in imported(source)]
    return {part[1] for part in parts if part[0] == "mein" and len(part) > 1}


def upward_imports(module: str, source: str) -> list[str]:
    """Imports of a room on the same level, above, or on no level at all; and of what is no part of mein."""
    room = room_of(module)
    others = {
        other for other in rooms_imported(source) - {room, "__version__"} if not reaches_down(room, other)
    }
    outside = {name.split(".")[0] for name in imported(source)} & OUTSIDE
    return [f"{module} imports {other}" for other in sorted(others | outside)]


def reaches_down(room: str, other: str) -> bool:
    """Whether a room may import another."""
    return LEVEL_OF.get(other, ROOF) < LEVEL_OF.get(room, ROOF)


def relative_imports(module: str, source: str) -> list[str]:
    """Relative imports: a full name can be searched for, and is what the other checks read."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return [f"relative import in line {node.lineno}" for node in nodes if node.level > 0]


def forbidden_knowledge(module: str, source: str) -> list[str]:
    """Networks that know documents or files; torch where numpy is enough."""
    names, room = set(imported(source)), room_of(module)
    packages = {name.split(".")[0] for name in names}
    known = rooms_imported(source) & {"data", "store"} if room in NETWORKS else set()
    files = ("mein.runtime.files", "mein.runtime.run_folder") if room in NETWORKS else ()
    known |= {name for name in names if name.startswith(files)} if files else set()
    torch = packages & {"torch"} if room in WITHOUT_TORCH else set()
    return [f"{module} imports {name}" for name in sorted(known | torch)]


def long_parts(module: str, source: str) -> list[str]:
    """Files and functions that no longer fit in one look."""
    lines = len(source.splitlines())
    complaints = [f"{lines} lines"] if lines > LONGEST_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                complaints.append(f"{node.name} has {length} lines")
    return complaints


def importers_of(module: str, sources: dict[str, str]) -> list[str]:
    """The modules that import a module, or a thing in it."""
    name = f"mein.{module}"
    return [
        other
        for other, source in sources.items()
        if other not in (module, "__main__")  # which is an entry, not a user
        and any(found == name or found.startswith(f"{name}.") for found in imported(source))
    ]


def needless_modules(sources: dict[str, str]) -> list[str]:
    """Small modules that one other module imports, whose first line gives no reason for being separate."""
    return [
        module
        for module, source in sources.items()
        if len(source.splitlines()) < SMALLEST_FILE
        and not REASON.search(source.partition("\n")[0])
        and len(importers_of(module, sources)) == 1
    ]


def side_effects(module: str, source: str) -> list[str]:
    """Bare calls and loops that run at import; only a typer app may be put together there."""
    complaints = []
    for node in ast.parse(source).body:
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        is_loop = isinstance(node, ast.For | ast.While | ast.With)
        is_app = ast.unparse(node).startswith(("app.command(", "app.add(", "app.add_typer("))
        if is_loop or (is_call and not is_app):
            complaints.append(f"line {node.lineno} runs at import")
    return complaints


def pickling(module: str, source: str) -> list[str]:
    """Ways to run unknown code by loading a file."""
    names = {name.split(".")[0] for name in imported(source)} & PICKLES
    names |= set(imported(source)) & {"torch.load", "torch.save"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
            names.add(ast.unparse(node))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names.add("allow_pickle")
    return sorted(names)


def unnamed_encodings(module: str, source: str) -> list[str]:
    """Text files opened without encoding="utf-8"."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and opens_text(node)
        and not any(k.arg == "encoding" and ast.unparse(k.value) == "'utf-8'" for k in node.keywords)
    ]


def opens_text(call: ast.Call) -> bool:
    """Whether a call opens a file as text: read_text, write_text, or open without a "b"."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    if name != "open":
        return name in {"read_text", "write_text"}
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "mode")]
    texts = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    modes = [text for text in texts if set(text) <= set("rwxabt+")]
    if modes:
        return "b" not in modes[-1]
    # Without a mode the built-in open and Path.open() mean text; others, such as Store.open(path)
    # or gzip.open(path), do not.
    return isinstance(call.func, ast.Name) or not call.args


CHECKS: dict[Check, list[tuple[str, str]]] = {
    upward_imports: [
        ("data", "from mein.text.words import Words"),
        ("experts", "import mein.imitators.reference"),
        ("imitators", "def f():\n    from mein import experts"),
        ("training", "from mein.unheard_of import x"),
        ("run.steps", "from mein.predict import predict"),
        ("sharing", "from mein.api import MeinClassifier"),
        ("cli.main", "from paper.__main__ import data"),
    ],
    relative_imports: [("data", "from . import labels"), ("data", "from ..text import words")],
    forbidden_knowledge: [
        ("data", "import torch.nn"),
        ("evaluation", "from torch import Tensor"),
        ("experts.lstm", "from mein.store.store import Store"),
        ("mixture.gates", "from mein.data.labels import Labels"),
        ("imitators.windows", "from mein.runtime.files import write_atomically"),
        ("imitators.windows", "from mein.runtime import run_folder"),
    ],
    long_parts: [
        ("data", "x = 1\n" * 401),
        ("data", "def f():\n" + "    x = 1\n" * 50),
        ("data", "class A:\n    async def f(self):\n" + "        x = 1\n" * 50),
    ],
    side_effects: [
        ("data", "import logging\nlogging.basicConfig()"),
        ("data", "for x in range(3):\n    y = x"),
    ],
    pickling: [
        ("data", "import pickle"),
        ("data", "def f():\n    from pickle import loads"),
        ("data", "import torch\nx = torch.load('a')"),
        ("data", "from torch import load"),
        ("data", "x = np.load('a', allow_pickle=True)"),
    ],
    unnamed_encodings: [
        ("data", "x = open('rows')"),
        ("data", "x = open(name, 'w')"),
        ("data", "x = path.open()"),
        ("data", "x = path.open('a', newline='')"),
        ("data", "x = path.read_text()"),
        ("data", "x = path.write_text(text, encoding='latin-1')"),
        ("data", "x = gzip.open(path, mode='rt')"),
    ],
}
HARMLESS = """
from mein.errors import InputError
app = typer.Typer()
app.command()(train)
if __name__ == "__main__":
    main()
def f(path):
    x = [open(path, "rb"), path.open("wb"), gzip.open(path), Store.open(path), fs.open(path)]
    y = [open(path, encoding="utf-8"), path.read_text(encoding="utf-8"), path.read_bytes()]
"""


@pytest.mark.parametrize(
    ("check", "room", "source"),
    [(check, *example) for check, examples in CHECKS.items() for example in examples],
)
def test_each_check_sees_what_it_forbids(check: Check, room: str, source: str) -> None:
    assert check(room, source) != []


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_lets_the_harmless_pass(check: Check) -> None:
    assert check("cli", HARMLESS) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_keeps_the_plan(path: Path) -> None:
    module, source = module_of(path), path.read_text(encoding="utf-8")
    assert [complaint for check in CHECKS for complaint in check(module, source)] == []


# The rooms on disk.

DOORS = {"__init__", "__main__"}


def test_every_room_has_a_level_and_is_there() -> None:
    rooms = {room_of(module_of(path)) for path in FILES} - DOORS
    assert rooms == set(LEVEL_OF), "decide where it stands and add it to LEVELS"


def test_at_the_root_stand_only_these_files() -> None:
    found = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py"}
    assert found == {"__init__.py", "__main__.py", "errors.py", "config.py", "api.py", "sharing.py"}


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Rooms that import each other in a circle, or none."""

    def walk(room: str, path: list[str]) -> list[str]:
        if room in path:
            return path[path.index(room) :]
        return next(
            (found for other in sorted(edges.get(room, ())) if (found := walk(other, [*path, room]))), []
        )

    return next((found for room in sorted(edges) if (found := walk(room, []))), [])


def test_a_cycle_is_found() -> None:
    assert cycle({"a": {"b", "d"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_rooms_import_each_other_in_no_cycle() -> None:
    edges: dict[str, set[str]] = {}
    for path in FILES:
        room = room_of(module_of(path))
        known = rooms_imported(path.read_text(encoding="utf-8")) & set(LEVEL_OF)
        edges.setdefault(room, set()).update(known - {room})
    assert cycle({room: others for room, others in edges.items() if room not in DOORS}) == []


# The same in the documents.


def levels_in(document: str) -> list[set[str]]:
    """The rooms of each row of the table below the heading `The rooms`."""
    section = document.split("## The rooms\n")[1].split("\n## ")[0]
    return [
        set(re.findall(r"`([^`]+)`", row)) for row in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    ]


def tree_in(document: str) -> list[str]:
    """The files and folders of the first tree that begins with mein/, by their paths within it."""
    lines = re.findall(r"^```text\nmein/[^\n]*\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)[
        0
    ].splitlines()
    found, folder = [], ""
    for line in lines:
        indent, name = re.findall(r"^( *)(\S+)", line)[0]
        folder = "" if len(indent) == 2 else folder
        found.append(folder + name)
        folder = name if len(indent) == 2 and name.endswith("/") else folder
    return found


def on_disk() -> list[str]:
    """The rooms and, in each, the modules that hold something."""
    modules = [path for path in FILES if path.name != "__init__.py" or path.parent == PACKAGE]
    rooms = {f"{path.parent.relative_to(PACKAGE)}/" for path in modules if path.parent != PACKAGE}
    return sorted([*(str(path.relative_to(PACKAGE)) for path in modules), *rooms])


def test_tables_and_trees_are_read() -> None:
    table = "| room | what |\n|---|---|\n| `a`, `b` | `x` |\n| `c` | z |\n"
    assert levels_in(f"## The rooms\n\n{table}\n\n## Data\n\n| `d` | |\n") == [{"a", "b"}, {"c"}]
    tree = "```text\nmein/\n  a/    of a\n    b.py  of b\n  c.py    of c\n```\n"
    assert tree_in(tree) == ["a/", "a/b.py", "c.py"]


def test_design_has_the_same_levels() -> None:
    assert levels_in((ROOT / "docs/design.md").read_text(encoding="utf-8")) == LEVELS


def test_a_small_module_of_one_importer_is_noticed() -> None:
    user, small = "from mein.data.small import x\n", '"""Small."""\n'
    assert needless_modules({"data.user": user, "data.small": small}) == ["data.small"]
    assert (
        needless_modules({"data.user": user, "data.small": '"""Not part of user.py, as it is fast."""\n'})
        == []
    )
    assert needless_modules({"data.user": user, "run.user": user, "data.small": small}) == []
    assert needless_modules({"data.user": user, "data.small": small + "x = 1\n" * SMALLEST_FILE}) == []


def test_no_module_is_smaller_than_it_needs_to_be() -> None:
    sources = {
        module_of(path): path.read_text(encoding="utf-8") for path in FILES if path.name != "__init__.py"
    }
    assert needless_modules(sources) == []


def test_design_has_the_tree_on_disk() -> None:
    found = tree_in((ROOT / "docs/design.md").read_text(encoding="utf-8"))
    assert sorted(found) == on_disk(), "put in what scripts/house.py --tree prints"


def test_the_readme_has_every_room() -> None:
    found = tree_in((ROOT / "README.md").read_text(encoding="utf-8"))
    rooms = [path for path in on_disk() if path.endswith("/")]
    assert sorted(path for path in found if path.endswith("/")) == rooms
    assert set(found) <= set(on_disk())


COUNT = re.compile(r"^\| ([^|]+) \|.* ([\d,]+) \|$", re.MULTILINE)  # what is counted, and the last column


def test_the_counts_of_the_design_are_those_of_now() -> None:
    counted = subprocess.run(
        [sys.executable, "scripts/house.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    section = (ROOT / "docs/design.md").read_text(encoding="utf-8").split("## Counts\n")[1].split("\n## ")[0]
    written, now = dict(COUNT.findall(section)), dict(COUNT.findall(counted.stdout))
    names = ("modules", "modules at the root", "rooms", "levels that the rooms need")
    assert {name: written[name] for name in names} == {name: now[name] for name in names}
    assert written["levels that the test enforces"] == str(len(LEVELS))
