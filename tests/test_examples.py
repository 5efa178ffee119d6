"""The examples in the docstrings hold."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITH_EXAMPLES = sorted(
    path.relative_to(ROOT)
    for place in ("mein", "scripts")
    for path in (ROOT / place).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_the_examples_in_the_docstrings_hold(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    parts = path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts
    module = importlib.import_module(".".join(parts))
    assert doctest.testmod(module).failed == 0
