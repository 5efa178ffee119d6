"""The house keeps its plan: imports point down, files and functions stay short, no pickle.

Each check is a function from source to complaints, and is shown to complain once.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mein"
FILES = sorted(PACKAGE.rglob("*.py"))

# The rooms from the bottom up. A room imports only rooms of lower floors, so those that share a
# floor do not know each other. A new module at the top of mein/ must be given a floor here.
FLOORS = [
    {"errors", "seeds", "settings"},
    {"files", "progress", "provenance", "processes", "ranks"},
    {"data"},
    {"text"},
    {"experts", "imitators"},
    {"hub", "mixture"},
    {"inference"},
    {"label"},
    {"training", "evaluation"},
    {"config", "lexicon"},
    {"config_file", "building", "artefacts", "labeled", "unlabeled"},
    {"model"},
    {"loading"},
    {"prepare"},
    {"adapt", "pretrain"},
    {"workspace"},
    {"starting", "student", "tutor"},
    {"run", "label_worker"},
    {"voices"},
    {"judged"},
    {"judge"},
    {"steps"},
    {"export", "imitate"},
    {"engines"},
    {"explain", "predict_parts"},
    {"labeler"},
    {"predict"},
    {"bench"},
    {"report", "serve"},
    {"experiments", "sharing"},
    {"api"},
    {"shell"},
    {"cli_options"},
    {"cli_bench", "cli_data", "cli_serve", "cli_use", "cli_reproduce", "cli_steps", "cli_train"},
    {"cli"},
    {"__main__"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ROOF = len(FLOORS)  # mein/__init__.py, which lists the public names

NETWORKS = {"experts", "imitators", "mixture"}  # tensors in, tensors out
WITHOUT_TORCH = {"errors", "settings", "data", "evaluation"}
PICKLES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LONGEST_FILE, LONGEST_FUNCTION = 250, 40

Check = Callable[[str, str], list[str]]


def room_of(path: Path) -> str:
    """The top-level name of a file: mein/data/readers.py -> data, mein/cli.py -> cli."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


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


def upward_imports(room: str, source: str) -> list[str]:
    """Imports of a room on the same floor, above, or on no floor at all."""
    return [
        f"{room} imports {other}"
        for other in sorted(rooms_imported(source) - {room, "__version__"})
        if FLOOR_OF.get(other, ROOF) >= FLOOR_OF.get(room, ROOF)
    ]


def relative_imports(room: str, source: str) -> list[str]:
    """Relative imports: a full name can be searched for, and is what the other checks read."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return [f"relative import in line {node.lineno}" for node in nodes if node.level > 0]


def forbidden_knowledge(room: str, source: str) -> list[str]:
    """Networks that know text or files; torch where numpy is enough."""
    packages = {name.split(".")[0] for name in imported(source)}
    known = rooms_imported(source) & {"data", "text", "files"} if room in NETWORKS else set()
    torch = packages & {"torch"} if room in WITHOUT_TORCH else set()
    return [f"{room} imports {name}" for name in sorted(known | torch)]


def long_parts(room: str, source: str) -> list[str]:
    """Files and functions that no longer fit in one look."""
    lines = len(source.splitlines())
    complaints = [f"{lines} lines"] if lines > LONGEST_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                complaints.append(f"{node.name} has {length} lines")
    return complaints


def side_effects(room: str, source: str) -> list[str]:
    """Bare calls and loops that run at import; only a typer app may be put together there."""
    complaints = []
    for node in ast.parse(source).body:
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        is_loop = isinstance(node, ast.For | ast.While | ast.With)
        is_app = any(word in ast.unparse(node) for word in ("app.add_typer", "app.command()"))
        if is_loop or (is_call and not is_app):
            complaints.append(f"line {node.lineno} runs at import")
    return complaints


def pickling(room: str, source: str) -> list[str]:
    """Ways to run a stranger's code by loading a file."""
    names = {name.split(".")[0] for name in imported(source)} & PICKLES
    names |= set(imported(source)) & {"torch.load", "torch.save"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
            names.add(ast.unparse(node))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names.add("allow_pickle")
    return sorted(names)


def unnamed_encodings(room: str, source: str) -> list[str]:
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
    ],
    relative_imports: [("data", "from . import labels"), ("data", "from ..text import words")],
    forbidden_knowledge: [
        ("data", "import torch.nn"),
        ("evaluation", "from torch import Tensor"),
        ("experts", "from mein.text.batches import pad_words"),
    ],
    long_parts: [
        ("data", "x = 1\n" * 251),
        ("data", "def f():\n" + "    x = 1\n" * 40),
        ("data", "class A:\n    async def f(self):\n" + "        x = 1\n" * 40),
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
app.add_typer(bench)
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
    room, source = room_of(path), path.read_text(encoding="utf-8")
    assert [complaint for check in CHECKS for complaint in check(room, source)] == []


def floors_of(document: str) -> list[set[str]]:
    """The rooms of each row of the first table of a document."""
    rows = re.findall(r"^\| (`[^|]*) \|", document.split("## The rooms")[1].split("\n\n## ")[0], re.MULTILINE)
    return [set(re.findall(r"`([^`]+)`", row)) for row in rows]


def test_the_table_of_rooms_is_read() -> None:
    table = "| room | what |\n|---|---|\n| `a`, `b` | `x` |\n| `c` | z |\n"
    assert floors_of(f"## The rooms\n\n{table}\n\n## Data\n\n| `d` | |\n") == [{"a", "b"}, {"c"}]


def test_design_tells_the_same_floors() -> None:
    document = PACKAGE.parent / "docs" / "design.md"
    assert floors_of(document.read_text(encoding="utf-8")) == FLOORS


def test_every_module_has_a_floor() -> None:
    unknown = {room_of(path) for path in FILES} - set(FLOOR_OF) - {"__init__"}
    assert unknown == set(), "decide where it stands and add it to FLOORS"
