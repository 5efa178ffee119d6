"""Files from the web: resumed after interruptions, verified by size and SHA-256, complete or not there."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from mein.errors import InputError
from mein.runtime.files import held_folder, sha256_of

CHUNK = 1 << 18
ATTEMPTS = 3
TIMEOUT = 60.0  # seconds without a byte
LARGEST = 64 << 30  # bytes, where the size is not known beforehand
HINT = "fetch it elsewhere and name it with --source"

OnProgress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


@dataclass(frozen=True)
class Download:
    """A file at its official address, with its size and digest if known."""

    url: str
    size: int | None = None
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the URL's path.

        >>> Download("https://example.org/data/some.tar.gz?version=1").name
        'some.tar.gz'
        """
        return Path(unquote(urlsplit(self.url).path)).name


def fetch(
    download: Download,
    folder: Path,
    on_progress: OnProgress = lambda done, total: None,
    timeout: float = TIMEOUT,
) -> Path:
    """The file in the folder, downloaded if it is missing; an interrupted download continues.

    A second process waits for the first, and uses its file.
    """
    if urlsplit(download.url).scheme not in ("http", "https"):
        raise InputError(f"{download.url} is neither http nor https; {HINT}.")
    target = folder / download.name
    if _is_there(download, target):
        return target
    with held_folder(folder, waits=True):
        if not _is_there(download, target):
            _fetch(download, target, on_progress, timeout)
    return target


def _is_there(download: Download, target: Path) -> bool:
    return target.exists() and (download.size is None or target.stat().st_size == download.size)


def _fetch(download: Download, target: Path, on_progress: OnProgress, timeout: float) -> None:
    part = target.with_name(f"{target.name}.part")
    if not any(_attempt(download, part, on_progress, timeout) for _ in range(ATTEMPTS)):
        raise InputError(
            f"{download.url} broke off {ATTEMPTS} times, last after {part.stat().st_size:,} bytes; "
            "run the same command again to continue."
        )
    _check(download, part)
    part.replace(target)
    _tag(part).unlink(missing_ok=True)


def _attempt(download: Download, part: Path, on_progress: OnProgress, timeout: float) -> bool:
    """Append to the part file until the connection ends; whether the file is complete then."""
    start, headers = _standing(download, part)
    try:
        request = urllib.request.Request(download.url, headers=headers)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            start = start if _is_rest(answer, start) else 0
            total = _total(answer, start)
            _refuse_size(download, total)
            _tag(part).write_text(_validator(answer), encoding="utf-8")
            return _copy(download, answer, part, start, total, on_progress)
    except urllib.error.HTTPError as problem:
        with problem:
            if problem.code == 416 and start:  # the part is as long as the file, or longer: begin anew
                part.unlink()
                return False
            raise InputError(
                f"{download.url} answers {problem.code} {problem.reason}: it may have moved; {HINT}."
            ) from problem
    except (urllib.error.URLError, OSError, http.client.HTTPException) as problem:
        reason = getattr(problem, "reason", None) or problem
        raise InputError(
            f"{download.url} cannot be reached ({reason}): check the network, or {HINT}."
        ) from problem


def _copy(
    download: Download, answer: Any, part: Path, start: int, total: int | None, on_progress: OnProgress
) -> bool:
    """Write what comes to the part file; whether all came."""
    most = next(size for size in (download.size, total, LARGEST) if size is not None)
    done = start
    on_progress(done, total)
    with part.open("ab" if start else "wb") as file:
        while True:
            try:
                chunk = answer.read(CHUNK)
            except (OSError, http.client.HTTPException):  # what came so far is kept
                return False
            if not chunk:
                return total is None or done == total
            done += len(chunk)
            if done > most:
                raise InputError(f"{download.url} sends more than the {most:,} bytes expected; {HINT}.")
            _write(file, chunk, part)
            on_progress(done, total)


def _write(file: IO[bytes], chunk: bytes, part: Path) -> None:
    try:
        file.write(chunk)
    except OSError as problem:
        raise InputError(f"{part} cannot be written ({problem.strerror}): free some space.") from problem


def _standing(download: Download, part: Path) -> tuple[int, dict[str, str]]:
    """How many bytes are there, and how to ask for the rest, if the file is still the same."""
    headers = {"User-Agent": "mein", "Accept-Encoding": "identity"}
    tag = _tag(part).read_text(encoding="utf-8") if _tag(part).exists() else ""
    start = part.stat().st_size if part.exists() else 0
    if not start or not (tag or download.sha256):  # a change of the file would go unnoticed
        return 0, headers
    return start, headers | {"Range": f"bytes={start}-"} | ({"If-Range": tag} if tag else {})


def _tag(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


def _validator(answer: Any) -> str:
    """A strong ETag or a date, by which the server knows whether its file is still the same."""
    etag = answer.headers.get("ETag", "")
    return str(answer.headers.get("Last-Modified", "") if not etag or etag.startswith("W/") else etag)


def _is_rest(answer: Any, start: int) -> bool:
    """Whether the answer continues at the byte that is missing; otherwise it is the complete file."""
    return bool(
        answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    )


def _total(answer: Any, start: int) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return start + int(length) if length.isdecimal() and len(length) < 20 else None


def _refuse_size(download: Download, total: int | None) -> None:
    if total is not None and download.size is not None and total != download.size:
        raise InputError(
            f"{download.url} has {total:,} bytes instead of {download.size:,}: "
            f"it is not the published file; {HINT}."
        )
    if total is not None and total > LARGEST:
        raise InputError(f"{download.url} has {total:,} bytes, more than a data set has; {HINT}.")


def _check(download: Download, part: Path) -> None:
    """Remove and refuse a file that is not the published one."""
    size = part.stat().st_size
    found = sha256_of(part) if download.sha256 is not None else None
    if (download.size is not None and size != download.size) or found != download.sha256:
        part.unlink()
        _tag(part).unlink(missing_ok=True)
        expected = f"{download.size or size:,} bytes, SHA-256 {download.sha256 or 'unknown'}"
        raise InputError(
            f"{download.url} gave {size:,} bytes with the SHA-256 {found} instead of the published file "
            f"({expected}); it was removed: try again, or {HINT}."
        )
