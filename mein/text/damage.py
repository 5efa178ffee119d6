"""One sentence for a file of a store that cannot be used."""

from pathlib import Path

from mein.errors import DamagedFile

LEFT_OUT = "`mein label` and `mein imitate` go on without it with --quarantine"


def damaged(path: Path | str) -> DamagedFile:
    """One sentence for a file that is not what was written."""
    return DamagedFile(f"{path} is damaged; restore it from a copy or make it again; {LEFT_OUT}.")


def missing(path: Path | str) -> DamagedFile:
    """One sentence for a file that is gone."""
    return DamagedFile(f"{path} is missing; restore it from a copy or make it again; {LEFT_OUT}.")
