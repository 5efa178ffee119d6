"""A server for tests: as a process of its own, and asked byte by byte."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.shell import ROOT


@dataclass
class Server:
    """A server in a process of its own."""

    process: "subprocess.Popen[str]"
    log: Path
    _port: int | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def port(self) -> int:
        """Where it listens; waits until it does."""
        with self._turn:  # it prints its port once
            if self._port is None:
                assert self.process.stdout is not None
                line = self.process.stdout.readline()
                found = re.search(r"http://127\.0\.0\.1:(\d+) ", line)
                assert found is not None, (line, self.log.read_text(encoding="utf-8"))
                self._port = int(found.group(1))
            return self._port

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self, seconds: float = 20.0) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def ask(self, path: str, body: Any = None, **headers: str) -> "Reply":
        """One request on a connection of its own; a body is sent as JSON unless it is bytes."""
        with self.connect() as connection:
            connection.sendall(request(path, body, **headers))
            return read(connection)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return how it ended."""
        self.process.send_signal(how)
        code = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


def start(
    run: Path, log: Path, settings: Mapping[str, Any] | None = None, token: str | None = None
) -> Server:
    """Start a server of a run; it may not listen yet."""
    environment = {name: value for name, value in os.environ.items() if name != "MEIN_TOKEN"}
    environment |= {} if token is None else {"MEIN_TOKEN": token}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-u", "-m", "mein", "serve", str(run), "--port", "0"]
    command += [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")]
    with log.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8", env=environment
        )
    return Server(process, log)


def request(path: str, body: Any = None, **headers: str) -> bytes:
    """The bytes of a request."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"host": "localhost", "content-type": "application/json", "content-length": str(len(content))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    method = "GET" if body is None else "POST"
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content


def read(connection: socket.socket) -> Reply:
    """A whole answer."""
    with connection.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        headers = {}
        while line := stream.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") != "chunked":
            return Reply(status, headers, stream.read(int(headers["content-length"])))
        body = b""
        while size := int(stream.readline(), 16):
            body += stream.read(size)
            stream.readline()
        return Reply(status, headers, body)
