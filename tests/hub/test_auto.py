"""`auto` is one model at a fixed commit, fetched like any other name: here from a server of our own."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mein.config import load_config
from mein.errors import ConfigError
from mein.experts.config import AUTO_MODEL
from mein.hub import fetch
from tests.support.hub_models import build

NAME, COMMIT = "sentence-transformers/all-MiniLM-L6-v2", "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"


class Hub:
    """A server with the files of one model at one commit, at the addresses of the real hub."""

    def __init__(self, files: Path) -> None:
        self.files = files
        self.asked: list[str] = []
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def tree(self) -> list[dict[str, object]]:
        found = (path for path in sorted(self.files.rglob("*")) if path.is_file())
        return [
            {
                "type": "file",
                "path": str(path.relative_to(self.files)),
                "size": path.stat().st_size,
                "oid": hashlib.sha256(path.read_bytes()).hexdigest()[:40],
            }
            for path in found
        ]

    def answer(self, path: str) -> bytes | None:
        """What is at an address; none where nothing is."""
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            return json.dumps(self.tree()).encode()
        if path == f"/api/models/{NAME}/revision/{COMMIT}":  # asked by older versions of the library
            siblings = [{"rfilename": file["path"]} for file in self.tree()]
            return json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode()
        start = f"/{NAME}/resolve/{COMMIT}/"
        file = self.files / path.removeprefix(start)
        return file.read_bytes() if path.startswith(start) and file.is_file() else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                hub.asked.append(path)
                content = hub.answer(path)
                self.send_response(404 if content is None else 200)
                if content is None:
                    self.send_header("X-Error-Code", "RevisionNotFound" if NAME in path else "RepoNotFound")
                else:
                    self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()[:40]}"')
                    self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content or b"")

            do_HEAD = do_GET  # noqa: N815 - as above

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub", reason="the extra mein[transformers] is not installed")
    pytest.importorskip("transformers")
    files = build("Bert", tmp_path / "files", classes=None)
    (files / "onnx").mkdir()
    (files / "onnx/model.safetensors").write_bytes(b"not wanted")
    (files / "pytorch_model.bin").write_bytes(b"never")
    server = Hub(files)
    thread = threading.Thread(target=server.http.serve_forever)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


SCRIPT = (
    "import sys; from pathlib import Path\n"
    "from mein.config import load_config; from mein.errors import ConfigError; from mein.hub import fetch\n"
    "try:\n    fetch(load_config(encoder=sys.argv[1]).expert.model, Path(sys.argv[2]), 2)\n"
    "except ConfigError as problem:\n    print(problem)\n"
)


def fetched(model: str, folder: Path, cache: Path, **environment: str) -> str:
    """What a process of its own prints, for the library reads its settings when it is imported."""
    ours = {"HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    command = [sys.executable, "-c", SCRIPT, model, str(folder)]
    everything = {**os.environ, **ours}
    done = subprocess.run(command, capture_output=True, text=True, env=everything, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_auto_is_fetched_at_its_commit_and_nothing_else_is(hub: Hub, tmp_path: Path) -> None:
    assert fetched("auto", tmp_path / "model", tmp_path / "cache", HF_ENDPOINT=hub.url) == ""
    facts = json.loads((tmp_path / "model/mein.json").read_text(encoding="utf-8"))
    assert facts["model"] == f"{NAME}@{COMMIT}" == AUTO_MODEL
    assert hub.asked
    assert all(COMMIT in path for path in hub.asked)
    assert not [path for path in hub.asked if "onnx" in path or path.endswith(".bin")]
    count = len(hub.asked)
    assert fetched("auto", tmp_path / "again", tmp_path / "cache", HF_HUB_OFFLINE="1") == ""  # from the cache
    assert len(hub.asked) == count
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("model", "again")]
    assert weights[0] == weights[1]


def test_a_cache_of_another_commit_is_not_taken_for_auto(hub: Hub, tmp_path: Path) -> None:
    fetched("auto", tmp_path / "model", tmp_path / "cache", HF_ENDPOINT=hub.url)
    snapshots = next((tmp_path / "cache").rglob("snapshots"))
    (snapshots / COMMIT).rename(snapshots / ("0" * 40))
    said = fetched("auto", tmp_path / "again", tmp_path / "cache", HF_HUB_OFFLINE="1")
    assert said.startswith(
        f"'{AUTO_MODEL}' is no folder here, and as a name on the hub it cannot be reached ("
    )
    assert said.endswith("): go online once, or give a local folder.\n")
    assert said.count("\n") == 1
    assert not (tmp_path / "again").exists()


def test_attempts_to_get_online_are_silent_and_what_the_user_set_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("huggingface_hub", reason="the extra mein[transformers] is not installed")
    logging = library.utils.logging
    before, seen = logging.get_verbosity(), list[int]()

    def offline(*_: object, **__: object) -> None:
        seen.append(logging.get_verbosity())
        raise OSError("Name or service not known")

    monkeypatch.setattr(library, "snapshot_download", offline)
    with pytest.raises(
        ConfigError, match=r"cannot be reached \(Name or service not known\): go online once, or"
    ):
        fetch("some/model", tmp_path / "model", classes=2)
    assert seen == [logging.ERROR]
    assert logging.get_verbosity() == before


def test_a_revision_or_a_name_that_the_hub_lacks_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    places = (tmp_path / "model", tmp_path / "cache")
    assert fetched(f"{NAME}@v9", *places, HF_ENDPOINT=hub.url) == (
        f"The hub has no revision 'v9' of '{NAME}': give one of its commits, or the name only.\n"
    )
    said = fetched("some/body@v9", *places, HF_ENDPOINT=hub.url)
    assert said.startswith("The hub shows no model 'some/body': check its spelling")


@pytest.mark.parametrize("preset", [None, "small", "frozen", "transformer"])
def test_auto_is_the_same_model_with_every_preset(preset: str | None) -> None:
    assert load_config(preset, encoder="auto").expert.model == AUTO_MODEL == f"{NAME}@{COMMIT}"
    assert load_config(preset, encoder="./auto").expert.model == "./auto"  # a folder of this name


def test_without_a_name_the_presets_with_an_encoder_take_the_same_one() -> None:
    assert {load_config(preset).expert.model for preset in ("frozen", "transformer")} == {AUTO_MODEL}


def test_a_file_of_soft_labels_may_be_called_auto() -> None:
    given = {"expert.kind": "given", "expert.model": "auto"}
    assert load_config("small", overrides=given).expert.model == "auto"
