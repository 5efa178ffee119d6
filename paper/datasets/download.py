"""Files from the web, by pooch: verified by size and SHA-256 where they are known, complete or not there."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mein.errors import InputError, MissingExtra
from mein.runtime.files import held_folder, sha256_of

TIMEOUT = 60.0  # seconds without a byte
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


def fetch(download: Download, folder: Path, on_progress: OnProgress = lambda done, total: None) -> Path:
    """The file in the folder, downloaded if it is missing.

    A second process waits for the first, and uses its file.
    """
    if urlsplit(download.url).scheme not in ("http", "https"):
        raise InputError(f"{download.url} is neither http nor https; {HINT}.")
    target = folder / download.name
    if _is_there(download, target):
        return target
    with held_folder(folder, waits=True):
        if not _is_there(download, target):
            target.unlink(missing_ok=True)
            _fetch(download, target, on_progress)
    return target


def _is_there(download: Download, target: Path) -> bool:
    return target.exists() and (download.size is None or target.stat().st_size == download.size)


def _fetch(download: Download, target: Path, on_progress: OnProgress) -> None:
    try:
        import pooch
        from requests.exceptions import HTTPError, RequestException
    except ImportError as problem:
        raise MissingExtra(f"Downloads need the package pooch ({problem}): pip install pooch") from problem
    pooch.get_logger().setLevel("ERROR")
    # subtle: a server may declare a .gz to be the encoding of a tar, which requests would then decode
    headers = {"User-Agent": "mein", "Accept-Encoding": "identity"}
    downloader = pooch.HTTPDownloader(_Progress(on_progress), timeout=TIMEOUT, headers=headers)
    arrived = target.with_name(f"{target.name}.part")
    try:
        pooch.retrieve(download.url, None, arrived.name, arrived.parent, downloader=downloader)
        _check(download, arrived)
        arrived.replace(target)
    except HTTPError as problem:
        if problem.response is not None:
            problem.response.close()
        answer = str(problem).partition(" for url")[0]  # such as: 404 Client Error: Not Found
        raise InputError(f"{download.url} answers {answer}: it may have moved; {HINT}.") from problem
    except RequestException as problem:
        reason = next((getattr(cause, "reason", None) for cause in problem.args), None) or problem
        raise InputError(
            f"{download.url} cannot be fetched ({reason}): check the network and try again, or {HINT}."
        ) from problem
    except OSError as problem:
        raise InputError(f"{target} cannot be written ({problem.strerror}): free some space.") from problem
    finally:
        arrived.unlink(missing_ok=True)


def _check(download: Download, arrived: Path) -> None:
    """Refuse a file that is not the published one."""
    size, found = arrived.stat().st_size, sha256_of(arrived)
    if download.size not in (None, size) or download.sha256 not in (None, found):
        expected = f"{download.size or size:,} bytes, SHA-256 {download.sha256 or 'unknown'}"
        raise InputError(
            f"{download.url} gave {size:,} bytes with the SHA-256 {found} instead of the published file "
            f"({expected}); it was removed: try again, or {HINT}."
        )


class _Progress:
    """What pooch expects of a progress bar."""

    total = 0  # pooch sets it; 0 where it is not known

    def __init__(self, report: OnProgress) -> None:
        self.report, self.done = report, 0

    def update(self, count: int) -> None:
        """Count as many bytes more; the last chunk is counted as a full one."""
        self.done = min(self.done + count, self.total or self.done + count)
        self.report(self.done, self.total or None)

    def reset(self) -> None:
        """Begin anew: pooch does so before it reports the total."""
        self.done = 0

    def close(self) -> None:
        """Nothing is left open."""
