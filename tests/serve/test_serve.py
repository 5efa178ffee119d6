"""A served model predicts what the model predicts, refuses with one sentence, and keeps texts to itself."""

import asyncio
import csv
import io
import json
import logging
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="serving needs the extra `serve`")
pytest.importorskip("uvicorn", reason="serving needs the extra `serve`")
from fastapi.openapi.models import OpenAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from mein.cli.serve import greeting, hosts_of, listen, read_token, serve
from mein.errors import ConfigError, InputError, MissingExtra
from mein.model.loading import load_model
from mein.model.model import Model
from mein.serve.app import make_app
from mein.serve.batching import Batcher, Explainer
from mein.serve.guard import JsonLines, Metrics, Refused
from mein.serve.schema import ServeSettings, explained, make_settings
from mein.text.config import WordsConfig
from mein.text.words import tokenize, words_in
from tests.support import serving, tiny
from tests.support.serving import Server, read, request
from tests.support.tiny import TEXTS

SECRET = "unrepeatable-words-of-a-client"
ODD = ["", " ", "<script>alert(1)</script>", "שלום עולם", "😀 good", "a\u0000b", "İstanbul ﬁne", "x" * 4_000]
LIMITS = {
    "body_bytes": 60_000,
    "texts": 50,
    "text_characters": 5_000,
    "body_seconds": 1.0,
    "file_bytes": 200_000,
}
SMALL = make_settings(LIMITS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "run"
    tiny.run(path)
    return path


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return load_model(run, "cpu")


@pytest.fixture(scope="module")
def servers(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two of them, started at once: one to ask and stop, one to kill."""
    logs = tmp_path_factory.mktemp("logs")
    started = [serving.start(run, logs / f"{place}.log", LIMITS) for place in range(2)]
    yield started
    for server in started:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def client(model: Model, servers: list[Server]) -> Iterator[TestClient]:
    with TestClient(make_app(model, SMALL), raise_server_exceptions=False) as client:
        yield client


def probabilities(answer: Any, model: Model) -> np.ndarray:
    names = [str(label) for label in model.labels.classes]
    return np.array([[row["probabilities"][name] for name in names] for row in answer["predictions"]])


def refusal(response: Any, status: int) -> str:
    """The one sentence of a refusal."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    sentence: str = response.json()["error"]
    assert "Traceback" not in sentence
    assert "\n" not in sentence
    return sentence


# What is answered


@pytest.mark.parametrize("text", [*TEXTS.test_texts[:3], *ODD])
def test_one_text_gets_the_model_s_prediction(client: TestClient, model: Model, text: str) -> None:
    answer = client.post("/predict", json={"text": text}).json()
    expected = np.exp(model.log_probs([text]))
    np.testing.assert_allclose(probabilities(answer, model), expected, atol=1e-6)
    (found,) = answer["predictions"]
    assert found["label"] == model.labels.classes[int(expected[0].argmax())]
    assert found["probability"] == max(found["probabilities"].values())


def test_many_texts_get_the_model_s_prediction_of_each(client: TestClient, model: Model) -> None:
    texts = [*TEXTS.test_texts[:40], *ODD]
    answer = client.post("/predict", json={"text": texts}).json()
    singly = np.concatenate([np.exp(model.log_probs([text])) for text in texts])
    np.testing.assert_allclose(probabilities(answer, model), singly, atol=1e-6)


def test_concurrent_requests_are_not_mixed_up(client: TestClient, model: Model) -> None:
    texts = list(TEXTS.unlabeled_texts[:60])
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda text: client.post("/predict", json={"text": text}).json(), texts))
    found = np.concatenate([probabilities(answer, model) for answer in answers])
    np.testing.assert_allclose(found, np.exp(model.log_probs(texts)), atol=1e-6)


@pytest.mark.parametrize("text", [TEXTS.test_texts[0], *ODD[2:]])
def test_an_explanation_adds_up_and_its_segments_are_the_text(
    client: TestClient, model: Model, text: str
) -> None:
    answer = client.post("/explain", json={"text": text, "top": 5}).json()
    assert "".join(answer["segments"]) == text
    assert len(answer["fragments"]) <= 5
    parts = answer["imitators"]
    whole = answer["expert"] + answer["lexicon"] + sum(parts.values())
    assert answer["log_odds"] == pytest.approx(whole, abs=1e-6)
    for window, shares in answer["shares"].items():
        assert 2 * len(shares) + 1 == len(answer["segments"])
        assert sum(shares) == pytest.approx(parts[window], abs=1e-6)


def test_an_explanation_can_speak_for_the_other_label(client: TestClient) -> None:
    text = TEXTS.test_texts[0]
    first = client.post("/explain", json={"text": text}).json()
    other = client.post("/explain", json={"text": text, "label": str(first["alternative"])}).json()
    assert other["label"] == first["alternative"]
    assert other["log_odds"] == pytest.approx(-first["log_odds"])
    sentence = refusal(client.post("/explain", json={"text": text, "label": "nobody"}), 422)
    assert "nobody" in sentence


def test_a_silent_text_is_explained_by_the_shares_in_training(model: Model) -> None:
    found = explained(model, "", 10)
    assert found["is_empty"]
    assert found["segments"] == [""]
    assert list(found["probabilities"].values()) == pytest.approx(model.prior.tolist())


@pytest.mark.parametrize(
    "config", [WordsConfig(), WordsConfig(tokenizer="paper"), WordsConfig(lowercase=False)]
)
@pytest.mark.parametrize("text", [*ODD, "A<BR />b<br>c <b>d</b>", "İİ", "Don't ▁ stop"])
def test_marked_words_are_those_that_the_model_reads(text: str, config: WordsConfig) -> None:
    found = words_in(text, config)
    assert [word for word, _, _ in found] == tokenize(text, config)
    assert all(before <= start <= stop for (_, _, before), (_, start, stop) in pairwise(found))


def test_a_file_comes_back_with_labels(client: TestClient, model: Model) -> None:
    texts = [*TEXTS.test_texts[:30], 'say "so", then\ngo', "", "שלום 😀"]
    made = io.StringIO()
    csv.writer(made).writerows(
        [["id", "text", "label"], *([str(i), text, "?"] for i, text in enumerate(texts))]
    )
    response = client.post("/label", content=made.getvalue().encode(), headers={"content-type": "text/csv"})
    assert response.headers["x-rows"] == str(len(texts))
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert list(rows[0]) == ["id", "text", "label", "predicted_label", "probability"]
    assert [row["text"] for row in rows] == texts
    expected = np.exp(model.log_probs(texts))
    np.testing.assert_allclose([float(row["probability"]) for row in rows], expected.max(axis=1), atol=1e-6)
    best = [str(model.labels.classes[i]) for i in expected.argmax(axis=1)]
    assert [row["predicted_label"] for row in rows] == best


def test_files_leave_nothing_behind(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for content in (b"text\ngood\n", b"text\n'\"bad", b""):
        client.post("/label", content=content, headers={"content-type": "text/csv"})
    assert list(tmp_path.iterdir()) == []


def test_a_stop_leaves_nothing_of_a_file_in_hand(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there when the lifespan ends stays: the signal ends the process then."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("mein.serve.files.label_csv", lambda *parts: time.sleep(0.5))
    headers = [(b"content-type", b"text/csv")]
    scope = {"type": "http", "method": "POST", "path": "/label", "query_string": b"", "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"text\ngood\n"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    async def left() -> list[Path]:
        app = make_app(model, SMALL)
        async with app.router.lifespan_context(app):
            visit = asyncio.ensure_future(app(scope, receive, send))
            while not list(tmp_path.glob("*/upload.csv")):
                await asyncio.sleep(0.01)
            visit.cancel()  # as uvicorn does when its patience is at an end
        return list(tmp_path.iterdir())

    assert asyncio.run(left()) == []


# What is refused


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "The body: Field required"),
        (b"{", "The body: Invalid JSON: Expecting property name"),
        (b'{"text": "\xff"}', "The body: Invalid JSON"),
        (b'{"text": "\\ud800"}', "text: Input should be a valid string, unable to parse raw data"),
        (b"[" * 50_000, "The body: Invalid JSON"),
        (b"[]", "The body: Input should be a valid dictionary or object"),
        (b"{}", "text: Field required"),
        (b'{"text": 3}', "text: Input should be a valid string"),
        (b'{"text": null}', "text: Input should be a valid string"),
        (b'{"text": ["a", 3]}', "text.1: Input should be a valid string"),
        (b'{"text": []}', "text: List should have at least 1 item"),
        (b'{"text": false}', "text: Input should be a valid string"),
        (b'{"text": "a", "model": "b"}', "model: Extra inputs are not permitted"),
        (json.dumps({"text": "a" * 5_001}).encode(), "text: String should have at most 5000 characters"),
        (json.dumps({"text": ["a"] * 51}).encode(), "text: List should have at most 50 items"),
    ],
)
def test_a_body_of_another_shape_is_refused(client: TestClient, body: bytes, sentence: str) -> None:
    response = client.post("/predict", content=body, headers={"content-type": "application/json"})
    assert refusal(response, 422).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "The file is empty; give"),
        (
            b"id,name\n1,2\n",
            "The file has no column that looks like the text among 'id', 'name'; name it with ?text_column=",
        ),
        (b'text\n"open\n', "The file is malformed"),
        (b"text\na,b\n", "The file is malformed in line 2"),
        (b"text\n" + b"a" * 5_001 + b"\n", "Row 1 holds a text of more than 5,000 characters"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(client: TestClient, content: bytes, sentence: str) -> None:
    response = client.post("/label", content=content, headers={"content-type": "text/csv"})
    found = refusal(response, 422)
    assert found.startswith(sentence)
    assert "/tmp" not in found
    assert "upload.csv" not in found


def test_another_kind_of_body_is_refused(client: TestClient) -> None:
    for path in ("/predict", "/label"):
        response = client.post(path, content=b"x", headers={"content-type": "text/plain"})
        assert "send it with `Content-Type: " in refusal(response, 415)


def test_unknown_paths_and_methods_are_refused(client: TestClient) -> None:
    assert refusal(client.get("/nowhere"), 404) == "Unknown path: see /openapi.json."
    assert refusal(client.get("/predict"), 405) == "This path does not allow the method."
    assert client.get("/predict").headers["allow"] == "POST"
    for path in ("/predict/", "/explain/", "/label/"):  # and are led nowhere
        assert refusal(client.post(path, json={"text": "a"}, follow_redirects=False), 404).startswith("Unkn")


@pytest.mark.parametrize("top", ["false", "true", "-1", '"3"x', "1.5", "null"])
def test_the_number_of_fragments_is_a_number(client: TestClient, top: str) -> None:
    body = f'{{"text": "a", "top": {top}}}'.encode()
    response = client.post("/explain", content=body, headers={"content-type": "application/json"})
    assert refusal(response, 422).startswith(("top: Input should be", "The body: Invalid JSON"))


def test_what_takes_too_long_is_refused_and_the_server_goes_on(model: Model) -> None:
    app = make_app(_slow(model, 0.6), ServeSettings(answer_seconds=0.2))
    with TestClient(app) as client:
        assert "took over 0.2 seconds" in refusal(client.post("/predict", json={"text": "a"}), 503)
        time.sleep(0.5)
        assert client.get("/health").json()["status"] == "ok"


def test_more_requests_than_are_allowed_are_refused(model: Model) -> None:
    app = make_app(_slow(model, 0.3), ServeSettings(requests=2))
    with TestClient(app) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/predict", json={"text": "a"}), range(8)))
    assert {answer.status_code for answer in answers} == {200, 503}
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refusal(refused, 503) == "The server is busy: try again in a moment."
    assert refused.headers["retry-after"] == "1"


def test_a_mistake_of_ours_shows_no_traceback(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    def fail(texts: list[str]) -> np.ndarray:
        raise ZeroDivisionError(f"about {texts}")

    with TestClient(make_app(_double(model, fail)), raise_server_exceptions=False) as client:
        response = client.post("/predict", json={"text": SECRET})
        assert refusal(response, 500) == "Internal error: see the server's log."
        assert client.get("/health").status_code == 200
    written = [JsonLines().format(record) for record in caplog.records]
    assert any("ZeroDivisionError" in line and "test_serve.py" in line for line in written)
    assert not any(SECRET in line for line in written)


class _Double:
    """A model with another log_probs."""

    def __init__(self, model: Model, log_probs: Any) -> None:
        self.log_probs = log_probs
        self.labels, self.config, self.indexer = model.labels, model.config, model.indexer


def _double(model: Model, log_probs: Any) -> Any:
    return _Double(model, log_probs)


def _slow(model: Model, seconds: float) -> Any:
    def log_probs(texts: list[str]) -> np.ndarray:
        time.sleep(seconds)
        return model.log_probs(texts)

    return _double(model, log_probs)


# Explanations have a thread of their own


def test_explanations_have_a_limit_and_hold_up_nobody(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(*_: Any) -> dict[str, Any]:
        begun.release()
        assert go_on.wait(30)
        return {"slow": True}

    monkeypatch.setattr("mein.serve.app.explained", slow)
    app = make_app(model, ServeSettings(explanations=2))
    with TestClient(app) as client, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(client.post, "/explain", json={"text": "a"}) for _ in range(2)]
        assert begun.acquire(timeout=30)
        try:
            deadline = time.monotonic() + 10
            while "mein_requests_in_flight 3.0\n" not in client.get("/metrics").text:  # itself among them
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.1)
            third = client.post("/explain", json={"text": "a"})
            assert client.post("/predict", json={"text": "a"}).status_code == 200
        finally:
            go_on.set()
        assert refusal(third, 503) == "2 texts are being explained: try again in a moment."
        assert third.headers["retry-after"] == "1"
        assert [answer.result().json() for answer in both] == [{"slow": True}] * 2
        assert client.post("/explain", json={"text": "a"}).status_code == 200


def test_an_explanation_whose_caller_has_gone_counts_until_it_ends() -> None:
    go_on, seen = threading.Event(), list[str]()

    def work(name: str) -> str:
        seen.append(name)
        assert go_on.wait(30)
        return name

    async def ask() -> tuple[str, str]:
        explainer = Explainer(2)
        running, waiting = (asyncio.create_task(explainer.call(partial(work, name))) for name in "ab")
        while not seen:
            await asyncio.sleep(0.01)
        running.cancel()
        waiting.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        await asyncio.sleep(0.05)
        third = asyncio.create_task(explainer.call(partial(work, "c")))  # in place of the one that waited
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="2 texts are being explained") as refused:
            await explainer.call(partial(work, "d"))
        go_on.set()
        found = await third
        await explainer.stop()
        return found, str(refused.value.status_code)

    assert asyncio.run(ask()) == ("c", "503")
    assert seen == ["a", "c"]


# The token


def test_only_those_with_the_token_are_answered(model: Model) -> None:
    with TestClient(make_app(model, SMALL, token="a-token")) as client:
        for given in (
            {},
            {"authorization": "Bearer other"},
            {"authorization": "Basic a-token"},
            {"authorization": "Bearer"},
        ):
            response = client.post("/predict", json={"text": "a"}, headers=given)
            assert refusal(response, 401).startswith("A token is required")
            assert response.headers["www-authenticate"] == "Bearer"
            assert client.get("/metrics", headers=given).status_code == 401
        known = {"authorization": "Bearer a-token"}
        assert client.post("/predict", json={"text": "a"}, headers=known).status_code == 200
        assert client.get("/metrics", headers=known).status_code == 200
        for path in ("/", "/page.js", "/page.css", "/icon.svg", "/health"):
            assert client.get(path).status_code == 200
        schema = client.get("/openapi.json", headers=known).json()
        assert schema["paths"]["/predict"]["post"]["security"] == [{"token": []}]


def test_requests_without_the_token_take_nobody_s_place(model: Model) -> None:
    """Their clients do not even read the answer; nor do those of the page, which needs no token."""
    app = make_app(model, ServeSettings(requests=1), token="a-token")

    async def receive() -> Any:
        raise AssertionError("whoever is refused is not read from")

    async def send(_: Any) -> None:
        await asyncio.sleep(60)

    async def asked() -> int:
        async with app.router.lifespan_context(app):
            held = [
                asyncio.create_task(app(_scope(method, path), receive, send))
                for method, path in (("POST", "/predict"), ("POST", "/label"), ("GET", "/"), ("GET", "/x"))
                * 5
            ]
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in held)
            status = await _status(app, {"text": "a"}, authorization="Bearer a-token")
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            return status

    assert asyncio.run(asked()) == 200


def _scope(method: str, path: str, **headers: str) -> dict[str, Any]:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "query_string": b"", "headers": named}


async def _status(app: Any, body: Any, **headers: str) -> int:
    """The status of the answer to a prediction."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(_scope("POST", "/predict", content_type="application/json", **headers), receive, send)
    status: int = sent[0]["status"]
    return status


def test_a_long_body_without_the_token_is_not_read_to_its_end(model: Model) -> None:
    with TestClient(make_app(model, SMALL, token="a-token")) as client:
        short = client.post("/predict", content=b"x" * 60_000)
        assert "connection" not in short.headers
        for body in (b"x" * 70_000, iter([b"x"] * 3)):  # the second of unknown length
            cut = client.post("/predict", content=body)
            assert refusal(cut, 401).startswith("A token is required")
            assert cut.headers["connection"] == "close"


def test_half_sent_bodies_without_the_token_shut_out_nobody(run: Path, tmp_path: Path) -> None:
    server = serving.start(run, tmp_path / "log", {"requests": 4, "files": 1}, token="a-token")
    try:
        held = [server.connect() for _ in range(40)]
        for place, connection in enumerate(held):
            path, kind = ("/label", "text/csv") if place % 2 else ("/predict", "application/json")
            connection.sendall(request(path, b"{", content_length="5000", content_type=kind))
        for path, body, kind in (
            ("/predict", {"text": "a"}, "application/json"),
            ("/label", b"text\ngood\n", "text/csv"),
        ):
            answer = server.ask(path, body, content_type=kind, authorization="Bearer a-token")
            assert answer.status == 200, answer
        assert {read(connection).status for connection in held} == {401}
        for connection in held:
            connection.close()
    finally:
        server.stop()


# The host


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8000", 200),
        ("localhost.", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("example.org", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8000", 421),
        ("127.0.0.1.evil.example", 421),
        ("[::2]", 421),
        ("", 421),
    ],
)
def test_only_allowed_hosts_are_answered(model: Model, host: str, status: int) -> None:
    """Else a page whose name is made to point here may ask the model: DNS rebinding."""
    with TestClient(make_app(model, SMALL, hosts=hosts_of("::1", ["Example.org"], None))) as client:
        for answer in (
            client.post("/predict", json={"text": "a"}, headers={"host": host}),
            client.get("/metrics", headers={"host": host}),
            client.get("/", headers={"host": host}),
        ):
            assert answer.status_code == status
            if status == 421:
                assert refusal(answer, 421).endswith("start the server with --allowed-host NAME.")


def test_every_host_that_a_request_names_is_checked(model: Model) -> None:
    app = make_app(model, SMALL, hosts={"localhost"})
    with TestClient(app) as client:
        twice = [("host", "evil.example"), ("host", "localhost")]
        assert client.get("/health", headers=twice).status_code == 421


def test_the_hosts_are_those_of_this_machine_or_given() -> None:
    here = {"localhost", "127.0.0.1", "::1"}
    assert hosts_of("127.0.0.1", [], None) == here
    assert hosts_of("192.0.2.7", [], None) == here | {"192.0.2.7"}
    assert hosts_of("0.0.0.0", ["a.example"], None) == here | {"0.0.0.0", "a.example"}
    assert hosts_of("0.0.0.0", [], "a-token") is None  # whoever has the token may use any name
    assert hosts_of("0.0.0.0", ["a.example"], "a-token") == here | {"0.0.0.0", "a.example"}


def test_a_process_checks_the_host(servers: list[Server]) -> None:
    answer = servers[0].ask("/predict", {"text": "a"}, host="evil.example")
    assert answer.status == 421
    assert "--allowed-host" in answer.json["error"]


# Where the token comes from


def test_the_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEIN_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("MEIN_TOKEN", "from-there")
    assert read_token(None) == "from-there"
    file = tmp_path / "token"
    file.write_text("from-here\n", encoding="utf-8")
    assert read_token(file) == "from-here"
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="token holds no usable token: write one line of letters"):
        read_token(file)
    with pytest.raises(InputError, match=r"The token file .* cannot be read"):
        read_token(tmp_path / "nowhere")


# The start


def test_a_port_in_use_is_reported() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Cannot listen on 127.0.0.1:{port} .*choose another --port"):
            listen("127.0.0.1", port)


def test_an_open_address_is_reported() -> None:
    assert "set a token" in greeting(Path("runs/a"), "0.0.0.0", 80, None)
    assert "--allowed-host" in greeting(Path("runs/a"), "0.0.0.0", 80, None)
    assert "set a token" not in greeting(Path("runs/a"), "0.0.0.0", 80, "a-token")
    assert greeting(Path("runs/a"), "::1", 80, None) == "Serving runs/a on http://[::1]:80 (Ctrl+C stops it)."


def test_a_missing_extra_is_reported(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match=r"Serving needs the packages fastapi and uvicorn .*'\.\[serve\]'"):
        serve(run)


def test_unknown_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Unknown setting 'text': did you mean 'texts'\?"):
        make_settings({"text": 3})
    with pytest.raises(
        ConfigError, match="The setting texts is 0, but input should be greater than or equal"
    ):
        make_settings({"texts": 0})


# Batches


def test_requests_that_come_together_are_read_together(model: Model) -> None:
    sizes: list[int] = []

    def predict(texts: list[str]) -> np.ndarray:
        sizes.append(len(texts))
        return np.arange(len(texts), dtype=float)[:, None] + 100 * len(sizes)

    async def ask() -> list[Any]:
        batcher = Batcher(predict, ServeSettings(batch_texts=8, gather_seconds=0.2), Metrics())
        batcher.start()
        found = await asyncio.gather(*(batcher.log_probs(["a"] * n) for n in (1, 2, 3, 2, 5, 20)))
        await batcher.stop()
        return list(found)

    found = asyncio.run(ask())
    assert sizes[0] == 8  # 1 + 2 + 3 + 2, full: nobody waits for the time to pass
    assert sum(sizes) == 33
    assert max(sizes) == 8
    assert [len(rows) for rows in found] == [1, 2, 3, 2, 5, 20]
    assert np.concatenate(found[:4]).ravel().tolist() == [100 + i for i in range(8)]


def test_a_batch_does_not_wait_for_those_who_have_gone() -> None:
    seen: list[str] = []

    def predict(texts: list[str]) -> np.ndarray:
        time.sleep(0.05)
        seen.extend(texts)
        return np.zeros((len(texts), 2))

    async def ask() -> None:
        batcher = Batcher(predict, ServeSettings(batch_texts=1), Metrics())
        batcher.start()
        tasks = [asyncio.create_task(batcher.log_probs([name])) for name in "abc"]
        await asyncio.sleep(0.02)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.stop()

    asyncio.run(ask())
    assert seen == ["a", "c"]


def test_what_waits_is_finished_at_the_stop() -> None:
    def predict(texts: list[str]) -> np.ndarray:
        time.sleep(0.02)
        return np.zeros((len(texts), 2))

    async def ask() -> list[Any]:
        batcher = Batcher(predict, ServeSettings(batch_texts=2, gather_seconds=0.0), Metrics())
        batcher.start()
        tasks = [asyncio.create_task(batcher.log_probs(["a", "b"])) for _ in range(5)]
        await asyncio.sleep(0)
        await batcher.stop()
        return list(await asyncio.gather(*tasks))

    assert [found.shape for found in asyncio.run(ask())] == [(2, 2)] * 5


# What is counted


def test_metrics_count_requests_and_texts(model: Model) -> None:
    with TestClient(make_app(model, SMALL)) as client:
        client.post("/predict", json={"text": ["a", "b", "c"]})
        client.post("/predict", json={"text": 3})
        client.get("/" + SECRET)
        text = client.get("/metrics").text
    assert 'mein_requests_total{path="/predict",status="200"} 1.0' in text
    assert 'mein_requests_total{path="/predict",status="422"} 1.0' in text
    assert 'mein_requests_total{path="other",status="404"} 1.0' in text
    assert 'mein_texts_total{path="/predict"} 3.0' in text
    assert 'mein_request_seconds_count{path="/predict"} 2.0' in text
    assert 'mein_request_seconds_bucket{le="30.0",path="/predict"} 2.0' in text
    assert "\nmein_waiting_texts 0.0\n" in text
    assert "\nprocess_resident_memory_bytes " in text
    assert "mein_batch_texts_sum 3.0\n" in text
    assert SECRET not in text
    assert {family.name for family in text_string_to_metric_families(text)} >= {"mein_requests", "mein_texts"}


# The page and the schema


def test_every_tag_of_the_page_is_closed(client: TestClient) -> None:
    html = client.get("/").text
    assert len(re.findall(r"</\w+", html)) == len(re.findall(r"</\w+>", html)) > 10


def test_the_page_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert (
        "default-src 'none'; script-src 'self'; style-src 'self'" in page.headers["content-security-policy"]
    )
    assert page.headers["x-content-type-options"] == "nosniff"
    together = page.text + client.get("/page.js").text + client.get("/page.css").text
    assert re.findall(r"https?://|@import|//[a-z]+\.", together) == []
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", together)
    assert not re.search(r"<script(?! src)|<style| style=| on[a-z]+=", page.text)


def test_the_schema_is_valid_and_has_the_limits(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    OpenAPI.model_validate(schema)
    assert set(schema["paths"]) == {"/predict", "/explain", "/label", "/health", "/metrics"}
    texts = schema["components"]["schemas"]["Texts"]["properties"]["text"]["anyOf"]
    assert [part.get("maxLength", part.get("maxItems")) for part in texts] == [5_000, 50]
    file = schema["paths"]["/label"]["post"]["requestBody"]["content"]["text/csv"]["schema"]
    assert file == {"type": "string", "format": "binary", "minLength": 1}  # an empty one is a 422


# A real process


def test_a_process_answers_as_the_model_does(servers: list[Server], model: Model) -> None:
    texts = list(TEXTS.test_texts[:24])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: servers[0].ask("/predict", {"text": text}), texts))
    found = np.concatenate([probabilities(answer.json, model) for answer in answers])
    np.testing.assert_allclose(found, np.exp(model.log_probs(texts)), atol=1e-6)
    assert "server" not in answers[0].headers


def test_bodies_that_are_too_large_are_refused(servers: list[Server]) -> None:
    declared = servers[0].ask("/predict", {"text": "a" * 100_000})
    assert declared.status == 413
    assert declared.json == {"error": "The body is larger than 60,000 bytes: send it in parts."}
    with servers[0].connect() as connection:  # without a length, in chunks
        head = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(7):
            connection.sendall(b"2710\r\n" + b"a" * 10_000 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert read(connection).status == 413
    with servers[0].connect() as connection:  # which can be used again
        for length, status in ((100_000, 413), (1, 200)):
            connection.sendall(request("/predict", {"text": "a" * length}))
            assert read(connection).status == status
    file = servers[0].ask("/label", b"text\n" + b"good\n" * 50_000, content_type="text/csv")
    assert file.json == {"error": "The body is larger than 200,000 bytes: send it in parts."}


def test_slow_bodies_are_refused_and_do_not_hold_up_others(servers: list[Server]) -> None:
    with servers[0].connect() as connection:
        connection.sendall(request("/predict", b'{"text": ', content_length="500"))
        started = time.monotonic()
        assert servers[0].ask("/predict", {"text": "quick"}).status == 200
        assert time.monotonic() - started < 0.9
        answer = read(connection)
    assert answer.status == 408
    assert answer.json["error"] == "The body did not arrive within 1 seconds: send it faster or in parts."


def test_a_client_that_goes_in_the_middle_is_forgotten(servers: list[Server]) -> None:
    for part in (
        request("/predict", b'{"te', content_length="50"),
        request("/predict", {"text": "a"}),
        b"POST /pre",
    ):
        connection = servers[0].connect()
        connection.sendall(part)
        connection.close()
    rows = b"text\n" + b"a few words\n" * 10_000
    connection = servers[0].connect()
    connection.sendall(request("/label", rows, content_type="text/csv"))
    time.sleep(0.05)
    connection.close()
    deadline = time.monotonic() + 10
    while "mein_requests_in_flight 1.0\n" not in servers[0].ask("/metrics").body.decode():
        assert time.monotonic() < deadline, "somebody is still waited for"
        time.sleep(0.1)
    assert servers[0].ask("/predict", {"text": "still here"}).status == 200
    assert 'status="499"' in servers[0].ask("/metrics").body.decode()


def test_nonsense_on_the_line_is_survived(servers: list[Server]) -> None:
    with servers[0].connect() as connection:
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"400" in connection.recv(1_000)
    assert servers[0].ask("/health").json["status"] == "ok"


def test_a_kill_in_the_middle_frees_the_port(servers: list[Server]) -> None:
    with servers[1].connect() as connection:
        connection.sendall(request("/predict", b'{"text": ', content_length="500"))
        time.sleep(0.1)
        assert servers[1].stop(signal.SIGKILL) == -signal.SIGKILL
        assert _rest(connection) == b""
    listen("127.0.0.1", servers[1].port).close()


def _rest(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1_000)
    except ConnectionResetError:
        return b""


def test_a_stop_waits_for_requests_in_flight_and_logs_hold_no_text(servers: list[Server]) -> None:
    server, body = servers[0], json.dumps({"text": [SECRET] * 50}).encode()
    server.ask("/explain", {"text": SECRET})
    server.ask(f"/{SECRET}")
    server.ask("/label", f"text\n{SECRET}\n".encode(), content_type="text/csv")
    server.ask("/predict", {"text": {"not": SECRET}})
    with server.connect() as connection:
        connection.sendall(request("/predict", body)[:-10])
        time.sleep(0.2)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        time.sleep(0.3)
        connection.sendall(body[-10:])
        answer = read(connection)
    stopping.join()
    assert answer.status == 200
    assert len(answer.json["predictions"]) == 50
    assert server.process.returncode in (0, -signal.SIGTERM)
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    assert SECRET not in server.log.read_text(encoding="utf-8")
    lines = server.lines()
    requests = [line for line in lines if line["event"] == "request"]
    assert requests[-1]["texts"] == 50
    assert {"id", "path", "status", "seconds", "bytes_in", "bytes_out"} <= set(requests[-1])
    assert not [line for line in lines if line["level"] in ("error", "critical")]
    assert logging.getLevelName(requests[-1]["level"].upper()) == logging.INFO
