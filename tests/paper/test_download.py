"""Downloads against a server on this machine: checked, and refused with one sentence."""

import gzip
import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mein.cli.console import open_console
from mein.errors import InputError
from mein.runtime.files import cache_folder
from paper.commands import fetch_benchmark, prepare_benchmark
from paper.datasets import BENCHMARKS, find_benchmark
from paper.datasets.benchmark import downloaded
from paper.datasets.download import Download, fetch

CONTENT = random.Random(0).randbytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """A server of one file, whose vices can be chosen; it counts the requests."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.status: int | None = None
        self.sends_length = True
        self.cuts: list[int] = []  # how many bytes to send before hanging up, a request each
        self.asked = 0
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}/set.bin"

    def _handler(server: "Server") -> type[BaseHTTPRequestHandler]:  # noqa: N805 - self is the handler's
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                if server.status is not None:
                    self.send_error(server.status)
                    return
                assert self.headers["Accept-Encoding"] == "identity"
                self.send_response(200)
                if server.sends_length:
                    self.send_header("Content-Length", str(len(server.content)))
                self.end_headers()
                self.wfile.write(server.content[: server.cuts.pop(0)] if server.cuts else server.content)

            def log_message(self, *words: object) -> None:
                pass

        return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def refuses(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_file_comes_once_and_with_progress(server: Server, tmp_path: Path) -> None:
    reported: list[tuple[int, int | None]] = []
    download = Download(server.url, len(CONTENT), SHA)
    path = fetch(download, tmp_path / "cache", lambda done, total: reported.append((done, total)))
    assert path == tmp_path / "cache" / "set.bin"
    assert path.read_bytes() == CONTENT
    assert 0 < reported[0][0] < 300_000
    assert reported[-1] == (300_000, 300_000)
    assert fetch(download, tmp_path / "cache") == path
    assert server.asked == 1
    assert {entry.name for entry in path.parent.iterdir()} == {"set.bin", ".lock"}


def test_what_breaks_off_is_refused_and_begun_anew_the_next_time(server: Server, tmp_path: Path) -> None:
    server.cuts = [100_000]
    sentence = (
        r"set\.bin cannot be fetched \(.*100000 bytes read.*\): check the network and try again, or fetch"
    )
    refuses(lambda: fetch(Download(server.url), tmp_path), sentence)
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]
    assert fetch(Download(server.url), tmp_path).read_bytes() == CONTENT


def test_a_file_of_another_size_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(bytes(400_000))
    assert fetch(Download(server.url, len(CONTENT)), tmp_path).read_bytes() == CONTENT


def test_a_file_without_a_length_ends_where_it_ends(server: Server, tmp_path: Path) -> None:
    server.sends_length = False
    assert fetch(Download(server.url), tmp_path).read_bytes() == CONTENT
    server.cuts = [10]
    refuses(
        lambda: fetch(Download(server.url, sha256=SHA), tmp_path / "b"),
        "gave 10 bytes with the SHA-256 .* removed",
    )


def test_another_checksum_is_refused_and_the_file_removed(server: Server, tmp_path: Path) -> None:
    wrong = "0" * 64
    sentence = f"gave 300,000 bytes with the SHA-256 {SHA} instead of the published file .*{wrong}.*removed"
    refuses(lambda: fetch(Download(server.url, 300_000, wrong), tmp_path), sentence)
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_another_size_is_refused(server: Server, tmp_path: Path) -> None:
    sentence = r"gave 300,000 bytes with .* instead of the published file \(5 bytes, SHA-256 unknown\)"
    refuses(lambda: fetch(Download(server.url, 5), tmp_path), sentence)
    assert not (tmp_path / "set.bin").exists()


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "404 Client Error: Not Found"), (503, "503 Server Error: Service .*")],
)
def test_an_answer_that_is_no_file(server: Server, tmp_path: Path, status: int, words: str) -> None:
    server.status = status
    sentence = f"answers {words}: it may have moved; fetch it elsewhere and name it with --source"
    refuses(lambda: fetch(Download(server.url), tmp_path), sentence)


def test_no_network_is_one_clear_sentence(server: Server, tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/set.bin"  # nobody listens there
    sentence = (
        r"set.bin cannot be fetched \(.*refused.*\): check the network and try again, or fetch it elsewhere"
    )
    refuses(lambda: fetch(Download(url), tmp_path), sentence)
    refuses(
        lambda: fetch(Download("http://no.such.invalid/a"), tmp_path),
        "cannot be fetched .*: check the network",
    )


def test_a_benchmark_is_fetched_into_the_cache_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEIN_CACHE", str(tmp_path / "mein"))
    free = replace(find_benchmark("rotten"), downloads=(Download(server.url, sha256=SHA),))
    for _ in range(2):
        folder = fetch_benchmark(free, open_console())
        assert folder == tmp_path / "mein" / "data" / "rotten"
        assert (folder / "set.bin").read_bytes() == CONTENT
    assert server.asked == 1
    assert capsys.readouterr().out == f"Downloading {server.url} to {folder}.\n"


def test_of_two_at_once_the_second_waits_and_finds_the_file(server: Server, tmp_path: Path) -> None:
    begun = threading.Event()

    def on_progress(done: int, total: int | None) -> None:
        begun.set()
        time.sleep(0.1)  # for the second, which would fetch too if it did not wait

    thread = threading.Thread(target=fetch, args=(Download(server.url), tmp_path, on_progress))
    thread.start()
    assert begun.wait(10)
    assert fetch(Download(server.url), tmp_path).read_bytes() == CONTENT
    thread.join()
    assert server.asked == 1
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (b"<html>moved</html>", "rotten holds no rt-polarity.neg and no rt-polarity.pos"),
        (gzip.compress(CONTENT)[:100], r"set.bin is truncated or damaged \(.*\)"),
    ],
    ids=["a page", "a part"],
)
def test_a_download_that_cannot_be_read_is_fetched_anew_and_a_source_stays(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, reported: str
) -> None:
    monkeypatch.setenv("MEIN_CACHE", str(tmp_path / "mein"))
    free = replace(find_benchmark("rotten"), downloads=(Download(server.url),))
    monkeypatch.setitem(BENCHMARKS, "rotten", free)
    server.content, server.sends_length = body, False
    sentence = f"{reported}: the download was removed. Run the same command again to fetch it again, or fetch"
    for _ in range(2):
        refuses(lambda: prepare_benchmark("rotten", None, tmp_path / "out"), sentence)
        assert not (tmp_path / "mein" / "data" / "rotten" / "set.bin").exists()
    assert server.asked == 2
    own = tmp_path / "own" / "rotten" / "set.bin"
    own.parent.mkdir(parents=True)
    own.write_bytes(body)
    refuses(lambda: prepare_benchmark("rotten", own.parent, tmp_path / "out"), f"{reported}[:;] (give|fetch)")
    assert own.read_bytes() == body


def test_only_the_file_that_is_damaged_is_removed(tmp_path: Path) -> None:
    urls = (f"https://example.org/{name}" for name in ("elec2.tar.gz", "unlab_data.tar.gz"))
    elec = replace(find_benchmark("elec"), downloads=tuple(map(Download, urls)))
    (tmp_path / "elec2.tar.gz").write_bytes(gzip.compress(b"")[:5])
    (tmp_path / "unlab_data.tar.gz").write_bytes(gzip.compress(b""))
    refuses(lambda: list(downloaded(elec).read(tmp_path, 0)), r"elec2.tar.gz is truncated .* was removed")
    assert [path.name for path in tmp_path.iterdir()] == ["unlab_data.tar.gz"]


def test_only_the_web_is_fetched_from(tmp_path: Path) -> None:
    refuses(lambda: fetch(Download("file:///etc/passwd"), tmp_path), "is neither http nor https")


def test_the_cache_is_where_the_system_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEIN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "mein"
    for ignored in ("", "relative/path"):  # the XDG rule: a relative path is as none
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_folder() == tmp_path / ".cache" / "mein"
    monkeypatch.setenv("MEIN_CACHE", "~/other")
    assert cache_folder() == tmp_path / "other"
