"""A name stands for one thing: no two classes or type aliases of mein share one."""

import ast
from collections.abc import Iterator, Mapping

from tests.test_architecture import FILES, module_of

CALLS_OF_ALIASES = {"NewType", "namedtuple", "NamedTuple", "TypedDict"}


def defined(source: str) -> Iterator[str]:
    """The classes anywhere in a module, and the type aliases at its top level."""
    tree = ast.parse(source)
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_type(node.value):
            yield node.targets[0].id
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            yield ast.unparse(node.target)


def is_type(value: ast.expr) -> bool:
    """Whether a value can be a type with arguments, a union of types, or a new type."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in CALLS_OF_ALIASES
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.BitOr) and (is_type(value.left) or is_type(value.right))
    if isinstance(value, ast.Subscript):
        return ast.unparse(value.value)[:1].isupper() or ast.unparse(value.value) in {"dict", "list", "tuple"}
    return isinstance(value, ast.Name) and value.id in {"str", "int", "float", "bool", "bytes"}


def shared_names(sources: Mapping[str, str]) -> list[str]:
    """Complaints about names that several modules define, or one module twice."""
    places: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in defined(source):
            places.setdefault(name, []).append(module)
    return [f"{name} in {', '.join(modules)}" for name, modules in places.items() if len(modules) > 1]


def test_a_name_for_two_things_is_found() -> None:
    sources = {
        "a": "class Source:\n    pass\nRow = list[int]\nLabel = str | int\n",
        "b": "Source = Callable[[], int]\nCell: TypeAlias = dict[str, Any] | pa.RecordBatch\nWORDS = a | b\n",
        "c": "def f():\n    class Row: ...\nCell = NewType('Cell', int)\nWORDS = [1]\n",
        "d": "from a import Label\nT = TypeVar('T')\nclass Other(Label): ...\n",
        "e": "from b import Source\nT = TypeVar('T')\nLabel = Source\n",
    }
    assert shared_names(sources) == ["Source in a, b", "Row in a, c", "Cell in b, c"]


def test_a_name_stands_for_one_thing() -> None:
    sources = {module_of(path): path.read_text(encoding="utf-8") for path in FILES}
    assert shared_names(sources) == []
