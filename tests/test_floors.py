"""The lowest versions that are declared are those that `make lowest` installs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
DECLARED = re.compile(r"([A-Za-z0-9_-]+)(?:\[.*\])?>=([0-9.]+)")
NOT_INSTALLED = {"torch", "s3fs", "ray"}  # by `make lowest`, at their floor; CONTRIBUTING.md says so


def padded(version: str) -> tuple[int, ...]:
    """A version as numbers: 1.6 is 1.6.0."""
    numbers = [int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))


def pinned(name: str) -> dict[str, str]:
    """The versions in a file of constraints."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==", 1) for line in lines if "==" in line)


def declared() -> dict[str, str]:
    """The lowest version of each dependency of the package and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    of_extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    found = [DECLARED.match(line) for line in [*project["dependencies"], *of_extras]]
    return {match[1]: match[2] for match in found if match is not None}


def test_make_lowest_installs_the_declared_floors() -> None:
    floors = {name: padded(version) for name, version in declared().items() if name not in NOT_INSTALLED}
    lowest = {name: padded(version) for name, version in pinned("lowest.txt").items() if name != "torch"}
    assert lowest == floors


def test_torch_is_the_one_that_is_developed_with() -> None:
    assert pinned("lowest.txt")["torch"] == pinned("constraints.txt")["torch"]


def test_no_pin_is_below_its_floor() -> None:
    pins = pinned("constraints.txt")
    assert [
        name for name, floor in declared().items() if name in pins and padded(pins[name]) < padded(floor)
    ] == []
