"""Copies of remote files on this machine, by their checksums: fetched when needed, dropped when old."""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from mein.files import atomic_path, cache_folder, sha256_of

CACHE_BYTES = 10_000_000_000  # about 35 million short documents; the oldest copies make room for new ones


def cached(sha256: str, download: Callable[[Path], None]) -> Path:
    """The copy with this checksum; `download` fills a path where there is none, or a damaged one.

    ValueError where what was downloaded has another checksum.
    """
    path = cache_folder() / "shards" / sha256
    if _is_whole(path):
        os.utime(path)  # it is young again
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        download(temporary)
        if sha256_of(temporary) != sha256:
            raise ValueError(path)
    _make_room(path)
    return path


def _is_whole(path: Path) -> bool:
    try:
        return _proved(path, path.stat().st_ino)
    except OSError:
        return False


@lru_cache(maxsize=100_000)
def _proved(path: Path, inode: int) -> bool:
    """Whether a copy is what its name says, looked at once in a process."""
    return sha256_of(path) == path.name


def _make_room(newest: Path) -> None:
    """Remove the copies that were not used for longest. Who has one mapped keeps what it sees."""
    found = []
    for path in newest.parent.iterdir():
        try:
            status = path.stat()
        except OSError:  # another process has just removed it
            continue
        found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= CACHE_BYTES:
            return
        if path != newest:
            path.unlink(missing_ok=True)
            total -= size
