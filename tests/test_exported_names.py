"""The public names: what `mein` lists, what it gives, and that asking for it costs nothing before."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mein

PUBLIC = ["MeinClassifier", "MeinError", "__version__"]


def run(code: str) -> str:
    """What a fresh Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_all_is_what_is_public() -> None:
    assert sorted(mein.__all__) == PUBLIC
    assert dir(mein) == PUBLIC


def test_every_public_name_can_be_had() -> None:
    for name in mein.__all__:
        assert getattr(mein, name) is not None
    with pytest.raises(AttributeError, match="module 'mein' has no attribute 'Classifier'"):
        _ = mein.Classifier


def test_type_checkers_see_every_lazy_name() -> None:
    assert mein.__file__ is not None
    tree = ast.parse(Path(mein.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname for node in imports for alias in node.names}
    assert imported == set(PUBLIC) - {"__version__"}


def test_importing_mein_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'sklearn', 'numpy', 'pyarrow', 'rich', 'typer', 'pydantic'}"
    assert run(f"import sys, mein; print({heavy} & set(sys.modules))") == "set()"


def test_star_import_gives_the_public_names() -> None:
    code = "from mein import *; print(sorted(set(globals()) & {'MeinClassifier', 'MeinError'}))"
    assert run(code) == "['MeinClassifier', 'MeinError']"


def test_documents_can_be_read_without_torch() -> None:
    assert run("import sys, mein.data.corpus, mein.data.audit; print('torch' in sys.modules)") == "False"


def test_settings_can_be_read_and_refused_without_torch() -> None:
    code = """import sys
from mein.config import load_config
from mein.errors import ConfigError

load_config("full")
try:
    load_config(overrides={"imitators.windos": [1]})
except ConfigError as problem:
    print(problem, "torch" in sys.modules)"""
    assert run(code) == "Unknown setting 'imitators.windos': did you mean 'imitators.windows'? False"
