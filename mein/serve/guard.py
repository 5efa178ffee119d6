"""Every request is limited, measured, and logged here; no answer holds a traceback.

Logs are one JSON object per line, about requests and never about the texts in them.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mein.serve.schema import ServeSettings

LOGGER = logging.getLogger("mein.serve")
FIELDS = "mein_fields"


class JsonLines(logging.Formatter):
    """A record as one line. An exception is logged with kind and place but no message: it may quote texts."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, event, and the record's own fields."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().partition("\n")[0],
        }
        line |= getattr(record, FIELDS, {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= described(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True)


def described(problem: BaseException) -> dict[str, Any]:
    """An exception's kind and where it was raised."""
    frames = traceback.extract_tb(problem.__traceback__)[-4:]
    return {
        "exception": type(problem).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Write a line with these fields."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={FIELDS: fields})


def log_config() -> dict[str, Any]:
    """Every log of this process, uvicorn's too, as JSON lines on stderr; for logging.config.dictConfig."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonLines}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {"mein.serve": {"level": "INFO"}, "uvicorn": {"level": "INFO", "propagate": True}},
    }


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Metrics:
    """Everything that is counted since the start, for Prometheus; a server has its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("mein_requests", "Requests answered.", ["path", "status"], **here)
        self.texts = Counter("mein_texts", "Texts answered.", ["path"], **here)
        self.seconds = Histogram(
            "mein_request_seconds",
            "From a request's first byte to its answer.",
            ["path"],
            buckets=SECONDS,
            **here,
        )
        self.batch_texts = Histogram(
            "mein_batch_texts", "Texts in a batch of the model.", buckets=SIZES, **here
        )
        self.batch_seconds = Histogram(
            "mein_batch_seconds", "Time that the model took for a batch.", buckets=SECONDS, **here
        )
        self.in_flight = Gauge("mein_requests_in_flight", "Requests that are being answered.", **here)
        self.waiting_texts = Gauge("mein_waiting_texts", "Texts that wait for the model.", **here)
        ProcessCollector(**here)

    def add_request(self, path: str, status: int, seconds: float, texts: int) -> None:
        """Count an answered request."""
        self.requests.labels(path, status).inc()
        self.texts.labels(path).inc(texts)
        self.seconds.labels(path).observe(seconds)

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


OPEN = {"/", "/page.js", "/page.css", "/icon.svg", "/health"}  # need no token
KNOWN = OPEN | {"/predict", "/explain", "/label", "/metrics", "/openapi.json"}
FILES = {"/label"}
DRAINED_BYTES = 65_536  # of a body that are read after a refusal, so that its sender sees the answer
CLIENT_GONE = 499  # in logs and metrics: the client had disconnected
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Refused(HTTPException):
    """A refused request; `detail` gives the reason in one sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(status, sentence, {name.replace("_", "-"): value for name, value in headers.items()})


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        metrics: Metrics,
        token: str | None,
        hosts: Collection[str] | None = None,
    ) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.in_flight = 0
        self.token = None if token is None else _digest(token.encode("utf-8"))
        self.hosts = None if hosts is None else {host_of(name.encode("utf-8")) for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = Visit(scope, receive, send, self.settings)
        try:
            await self._answer(visit)
        except ClientDisconnect:
            visit.is_gone = True
        except Exception as problem:
            log("failure", logging.ERROR, id=visit.id, path=visit.path, **described(problem))
            if visit.status == 0:
                await visit.refuse(Refused(500, "Internal error: see the server's log."))
        finally:
            self._note(visit)

    async def _answer(self, visit: "Visit") -> None:
        try:
            self._admit(visit)
        except Refused as refusal:
            await visit.refuse(refusal, is_cut=visit.is_long)
            return
        if visit.path in OPEN:
            await self.app(visit.scope, visit.receive, visit.send)
            return
        # Only here: whoever needs no token, or has none, takes the place of nobody, however long it lasts.
        self.in_flight += 1
        self.metrics.in_flight.inc()
        try:
            await self._answer_admitted(visit)
        finally:
            self.in_flight -= 1
            self.metrics.in_flight.dec()

    async def _answer_admitted(self, visit: "Visit") -> None:
        try:
            self._check(visit)
        except Refused as refusal:
            await visit.refuse(refusal)
            return
        await self.app(visit.scope, visit.receive, visit.send)

    def _admit(self, visit: "Visit") -> None:
        """Raise for another host and for a missing token."""
        if self.hosts is not None and not visit.hosts <= self.hosts:
            raise Refused(
                421,
                "The request names a host that is not allowed: start the server with --allowed-host NAME.",
            )
        if self.token is not None and visit.path not in OPEN and not self._is_known(visit):
            raise Refused(
                401,
                "A token is required: send it as `Authorization: Bearer TOKEN`.",
                www_authenticate="Bearer",
            )

    def _check(self, visit: "Visit") -> None:
        """Raise for what else can be refused before the body is read."""
        if self.in_flight > self.settings.requests:
            raise Refused(503, "The server is busy: try again in a moment.", retry_after="1")
        declared = visit.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > visit.most_bytes:
            raise visit.too_large()

    def _is_known(self, visit: "Visit") -> bool:
        """Whether the right token was sent, compared in constant time."""
        kind, _, given = visit.headers.get(b"authorization", b"").partition(b" ")
        assert self.token is not None
        return hmac.compare_digest(_digest(given.strip()), self.token) and kind.lower() == b"bearer"

    def _note(self, visit: "Visit") -> None:
        seconds = time.perf_counter() - visit.started
        status = CLIENT_GONE if visit.is_gone or visit.status == 0 else visit.status
        texts = int(visit.scope.get("mein.texts", 0)) if status == 200 else 0
        self.metrics.add_request(visit.path, status, seconds, texts)
        log(
            "request",
            id=visit.id,
            method=visit.method,
            path=visit.path,
            status=status,
            seconds=round(seconds, 6),
            texts=texts,
            bytes_in=visit.bytes_in,
            bytes_out=visit.bytes_out,
        )


class Visit:
    """One request: what came in, what went out, and the limits in between."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: ServeSettings) -> None:
        self.scope = scope
        self.headers: MutableMapping[bytes, bytes] = dict(scope["headers"])
        self.path = scope["path"] if scope["path"] in KNOWN else "other"  # an unknown path is not logged
        self.method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        self.started = time.perf_counter()
        self.id = f"{time.time_ns():x}"
        self.status = self.bytes_in = self.bytes_out = 0
        self.is_gone = False
        is_file = self.path in FILES
        self.most_bytes = settings.file_bytes if is_file else settings.body_bytes
        self.most_seconds = settings.file_seconds if is_file else settings.body_seconds
        self._has_body = self._is_cut = False
        self._receive, self._send = receive, send

    @property
    def hosts(self) -> set[str]:
        """The hosts that it names; one as a rule."""
        found = {host_of(value) for name, value in self.scope["headers"] if name == b"host"}
        return found or {""}

    @property
    def is_long(self) -> bool:
        """Whether its body is too long to be read to the end after a refusal, or of unknown length."""
        declared = self.headers.get(b"content-length", b"0")
        return b"transfer-encoding" in self.headers or not declared.isdigit() or int(declared) > DRAINED_BYTES

    async def receive(self) -> Message:
        """A part of the body, within the limits of size and time."""
        if self._has_body:
            return await self._receive()
        message = await self._in_time(self._receive)
        if message["type"] == "http.disconnect":
            self.is_gone = True
            return message
        self.bytes_in += len(message.get("body", b""))
        self._has_body = not message.get("more_body", False)
        if self.bytes_in > self.most_bytes:
            raise self.too_large()
        return message

    async def _in_time(self, receive: Callable[[], Awaitable[Message]]) -> Message:
        left = self.most_seconds - (time.perf_counter() - self.started)
        try:
            async with asyncio.timeout(left):
                return await receive()
        except TimeoutError as problem:
            raise Refused(
                408,
                f"The body did not arrive within {self.most_seconds:g} seconds: send it faster or in parts.",
            ) from problem

    async def send(self, message: Message) -> None:
        """A part of the answer, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            # uvicorn reads on to the end of a refused body, unless it comes too slowly or not at all
            is_cut = not self._has_body and (self._is_cut or self.status == 408 or b"expect" in self.headers)
            closing = [(b"connection", b"close")] if is_cut else []
            message["headers"] = [
                *message["headers"],
                *HEADERS,
                (b"x-request-id", self.id.encode()),
                *closing,
            ]
        else:
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, refusal: Refused, *, is_cut: bool = False) -> None:
        """Answer with a status and one sentence; if cut, what is left of the body is not read."""
        self._is_cut = is_cut
        body = error_body(refusal.detail)
        headers = [(name.encode(), value.encode()) for name, value in (refusal.headers or {}).items()]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": refusal.status_code, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def too_large(self) -> Refused:
        """The body has more bytes than are allowed."""
        return Refused(413, f"The body is larger than {self.most_bytes:,} bytes: send it in parts.")


def error_body(sentence: str) -> bytes:
    """The JSON of every refusal."""
    return json.dumps({"error": sentence}, ensure_ascii=False).encode("utf-8", "replace")


def host_of(value: bytes) -> str:
    """The name in a Host header, without its port.

    >>> host_of(b"Localhost.:8000"), host_of(b"[::1]:8000"), host_of(b"::1")
    ('localhost', '::1', '::1')
    """
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name = text.partition(":")[0] if text.count(":") == 1 else text
    return name.removesuffix(".")


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
