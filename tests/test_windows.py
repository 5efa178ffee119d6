"""No module needs at import what only Unix has."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = """
import builtins, importlib.util, os, pkgutil, signal, socket, sys

package = importlib.import_module(sys.argv[1])
found = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
not_here = ("mein.imitators.fused",) if importlib.util.find_spec("triton") is None else ()
names = [name for name in found if not name.endswith("__main__") and name not in not_here]
for name in names:  # with all that they need of others, which may be of Unix here
    importlib.import_module(name)
for name in [name for name in sys.modules if name.split(".")[0] in ("mein", "paper")]:
    del sys.modules[name]

unix = "fcntl grp posix pty pwd readline resource syslog termios tty uvloop".split()
plain_import = builtins.__import__
def windows_import(name, globals=None, *rest):
    importer = (globals or {}).get("__name__", "").split(".")[0]
    if importer in ("mein", "paper") and name.split(".")[0] in unix:
        raise ImportError(f"{globals['__name__']} imports {name}")
    return plain_import(name, globals, *rest)
builtins.__import__ = windows_import

kept = ("SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV")
for name in [name for name in dir(signal) if name.startswith("SIG") and name[3] != "_" and name not in kept]:
    delattr(signal, name)
for name in "fork killpg setsid getuid geteuid sched_getaffinity O_NOFOLLOW O_DIRECTORY mkfifo".split():
    delattr(os, name)
del socket.AF_UNIX
sys.platform = "win32"
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.parametrize("package", ["mein", "paper"])
def test_every_module_is_imported_without_what_only_unix_has(package: str) -> None:
    checked = subprocess.run([sys.executable, "-c", CHECK, package], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    files = list((Path(__file__).parents[1] / package).rglob("*.py"))
    assert int(checked.stdout) >= sum(not file.stem.startswith("__") for file in files) - 1
