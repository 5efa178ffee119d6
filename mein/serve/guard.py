"""The door: every request is limited, measured and logged here, and no answer holds a traceback."""

import asyncio
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mein.serve.logs import described, log
from mein.serve.metrics import Metrics
from mein.serve.settings import ServeSettings

OPEN = {"/", "/page.js", "/page.css", "/icon.svg", "/health"}  # need no token
KNOWN = OPEN | {"/predict", "/explain", "/label", "/metrics", "/openapi.json"}
FILES = {"/label"}
CLIENT_GONE = 499  # in logs and metrics: nobody was there to be answered
DRAINED_SECONDS = 1.0  # how long the body of a refused request is read on, so that its sender hears why
DRAINED_BYTES = 32_000_000
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
    """A request that is not answered as it wished; `detail` is the one sentence that says why."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(status, sentence, {name.replace("_", "-"): value for name, value in headers.items()})


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics, token: str | None) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.token = None if token is None else _digest(token.encode("utf-8"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = Visit(scope, receive, send, self.settings)
        self.metrics.in_flight += 1
        try:
            await self._answer(visit)
        except ClientDisconnect:
            visit.is_gone = True
        except Exception as problem:
            log("failure", logging.ERROR, id=visit.id, path=visit.path, **described(problem))
            if visit.status == 0:
                await visit.refuse(Refused(500, "The server made a mistake: its log tells where."))
        finally:
            self.metrics.in_flight -= 1
            self._note(visit)

    async def _answer(self, visit: "Visit") -> None:
        try:
            self._check(visit)
        except Refused as refusal:
            await visit.refuse(refusal)
            return
        await self.app(visit.scope, visit.receive, visit.send)

    def _check(self, visit: "Visit") -> None:
        """Raise for what can be refused before the body is read."""
        is_busy = self.metrics.in_flight > self.settings.requests
        if is_busy and visit.path not in OPEN:
            raise Refused(503, "The server is busy: try again in a moment.", retry_after="1")
        if self.token is not None and visit.path not in OPEN and not self._is_known(visit):
            raise Refused(
                401, "A token is needed: send it as `Authorization: Bearer TOKEN`.", www_authenticate="Bearer"
            )
        declared = visit.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > visit.most_bytes:
            raise visit.too_large()

    def _is_known(self, visit: "Visit") -> bool:
        """Whether the right token came along; takes as long for a nearly right one."""
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
        self.path = scope["path"] if scope["path"] in KNOWN else "other"  # a stranger's path is not logged
        self.method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        self.started = time.perf_counter()
        self.id = f"{time.time_ns():x}"
        self.status = self.bytes_in = self.bytes_out = 0
        self.is_gone = False
        is_file = self.path in FILES
        self.most_bytes = settings.file_bytes if is_file else settings.body_bytes
        self.most_seconds = settings.file_seconds if is_file else settings.body_seconds
        self._has_body = False
        self._receive, self._send = receive, send

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
                408, f"The body was not here after {self.most_seconds:g} seconds: send it faster or in parts."
            ) from problem

    async def send(self, message: Message) -> None:
        """A part of the answer, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status >= 400 and self.status != 408 and b"expect" not in self.headers:
                await self._drain()
            closing = [] if self._has_body or self.method == "GET" else [(b"connection", b"close")]
            message["headers"] = [
                *message["headers"],
                *HEADERS,
                (b"x-request-id", self.id.encode()),
                *closing,
            ]
        else:
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)

    async def _drain(self) -> None:
        """Read on for a while: a sender that is cut off in the middle would never see the answer."""
        left = DRAINED_BYTES
        try:
            async with asyncio.timeout(DRAINED_SECONDS):
                while left > 0 and not self._has_body and self.method != "GET":
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._has_body = not message.get("more_body", False)
        except TimeoutError:
            return

    async def refuse(self, refusal: Refused) -> None:
        """Answer with a status and one sentence."""
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


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
