"""What is installed: the package alone, without data sets, benchmarks, log, and tests."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(find_spec("hatchling") is None, reason="needs hatchling, which the group dev installs")
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mein"}
    needed = {"mein/py.typed", "mein/configs/small.toml", "mein/serve/page/index.html"}
    assert needed <= names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "mein").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
