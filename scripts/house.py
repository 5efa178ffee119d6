"""Count what a checkout's mein/ is made of: modules, lines, rooms, and the imports between them.

usage: scripts/house.py [PATH ...]       several checkouts stand side by side in one table
       scripts/house.py --tree [PATH]    the tree of docs/design.md: each module with its first line

A room is a folder of mein/, or a module that stands at its root by itself. Counted are imports anywhere in a
module, also inside functions. mein/__init__.py and __main__.py open and list the others: their imports, and
those of them, count for nothing.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DOORS = ("mein", "mein.__main__")


def modules_of(checkout: Path) -> dict[str, Path]:
    """Every module of mein/ by its full name."""
    paths = sorted((checkout / "mein").rglob("*.py"))
    names = (".".join(path.relative_to(checkout).with_suffix("").parts) for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imported(source: str) -> Iterator[str]:
    """The full name of everything that is imported: a module, or a thing in one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def home(name: str, modules: dict[str, Path]) -> str | None:
    """The module that a full name lies in."""
    parts = name.split(".")
    return next((m for n in range(len(parts), 0, -1) if (m := ".".join(parts[:n])) in modules), None)


def edges_of(modules: dict[str, Path]) -> set[tuple[str, str]]:
    """Which module imports which other."""
    edges = set()
    for module, path in modules.items():
        for name in imported(path.read_text(encoding="utf-8")):
            target = home(name, modules)
            if target is not None and target != module and not {module, target} & set(DOORS):
                edges.add((module, target))
    return edges


def room(module: str) -> str:
    """The room of a module: mein.data.readers -> data."""
    return module.split(".")[1]


def levels(pairs: set[tuple[str, str]]) -> int:
    """How many levels the rooms need so that each imports only those below: their longest chain."""

    @cache
    def level(name: str) -> int:
        return 1 + max((level(below) for above, below in pairs if above == name), default=0)

    return max((level(above) for above, _ in pairs), default=1)


def counts(checkout: Path) -> dict[str, str]:
    """What there is, by what it is called in the table."""
    modules = modules_of(checkout)
    edges = edges_of(modules)
    crossing = {(one, other) for one, other in edges if room(one) != room(other)}
    pairs = {(room(one), room(other)) for one, other in crossing}
    at_root = [name for name in modules if name.count(".") == 1 and modules[name].name != "__init__.py"]
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in modules.values()]
    return {
        "modules": f"{len(modules):,}",
        "lines": f"{sum(lines):,}",
        "longest module, lines": f"{max(lines):,}",
        "modules at the root": f"{len(set(at_root) - set(DOORS)):,}",
        "rooms": f"{len({room(name) for name in modules if name not in DOORS}):,}",
        "levels that the rooms need": f"{levels(pairs):,}",
        "imports between modules": f"{len(edges):,}",
        "of these between rooms": f"{len(crossing):,} ({len(crossing) / max(len(edges), 1):.0%})",
        "pairs of rooms, one importing the other": f"{len(pairs):,}",
    }


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def tree(checkout: Path) -> Iterator[str]:
    """Rooms and modules by name, each with the first line of its docstring."""
    package = checkout / "mein"
    yield f"mein/ {first_line(package / '__init__.py')}"
    rooms = sorted(path.parent for path in package.glob("*/__init__.py"))
    for room in rooms:
        yield f"  {room.name + '/':26}{first_line(room / '__init__.py')}".rstrip()
        modules = sorted(path for path in room.glob("*.py") if path.name != "__init__.py")
        yield from (f"    {path.name:24}{first_line(path)}".rstrip() for path in modules)
    yield from (f"  {path.name:26}{first_line(path)}".rstrip() for path in sorted(package.glob("*.py")))


def main() -> None:
    """Print the table as Markdown, or the tree."""
    words = sys.argv[1:]
    checkouts = [Path(word) for word in words if word != "--tree"] or [Path(__file__).parent.parent]
    missing = [str(checkout) for checkout in checkouts if not (checkout / "mein").is_dir()]
    if missing:
        sys.exit(f"{', '.join(missing)}: no folder mein/ there. Give checkouts of mein.")
    if "--tree" in words:
        print("\n".join(line for checkout in checkouts for line in tree(checkout)))
        return
    tables = [counts(checkout) for checkout in checkouts]
    print("| | " + " | ".join(str(checkout) for checkout in checkouts) + " |")
    print("|---|" + "---:|" * len(checkouts))
    for name in tables[0]:
        print(f"| {name} | " + " | ".join(table[name] for table in tables) + " |")


if __name__ == "__main__":
    main()
