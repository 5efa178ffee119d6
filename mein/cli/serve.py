"""mein serve: an HTTP server for a trained run. One module per command."""

import gc
import logging.config
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from mein.cli.console import log, open_console
from mein.cli.options import RunPath, option, whole
from mein.errors import ConfigError, InputError, MissingExtra

TOKEN = "MEIN_TOKEN"
GRACE_SECONDS = 5  # beyond the time that an answer may take, until a stop is enforced
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
BACKLOG = 512  # connections that may wait to be accepted


TokenFile = Annotated[
    Path | None,
    option("FILE", "File with the required token. Default: MEIN_TOKEN, if set."),
]
Port = Annotated[
    int,
    option("N", "Port to listen on; 0 chooses a free one. Default: 8000.", parser=whole("--port", 0, 65535)),
]
AllowedHosts = Annotated[
    list[str],
    option("NAME", "Host that requests may name. Repeatable. Default: this machine and --host, if no token."),
]
Limits = Annotated[list[str], option("KEY=VALUE", "Limit, such as texts=100. Repeatable.", names="--set")]


def serve(
    run: RunPath,
    host: Annotated[str, option("NAME", "Address to listen on. Default: 127.0.0.1.")] = "127.0.0.1",
    port: Port = 8000,
    token_file: TokenFile = None,
    allowed_host: AllowedHosts = [],  # noqa: B006 - typer reads the default and never changes it
    device: Annotated[str, option("NAME", "auto, cpu, cuda, ... Default: auto.")] = "auto",
    set_: Limits = [],  # noqa: B006 - typer reads the default and never changes it
) -> None:
    """Serve predictions and explanations over HTTP, with a page.

    By default only this machine can reach it; see --host. Details: docs/serve.md.

    Examples:
      mein serve runs/reviews
      mein serve runs/reviews --host 0.0.0.0 --token-file token.txt --set texts=100
    """
    try:
        import uvicorn

        from mein.serve.app import make_app
        from mein.serve.guard import log_config
        from mein.serve.schema import make_settings
    except ImportError as problem:
        raise MissingExtra(
            f"Serving needs the packages fastapi and uvicorn ({problem}): pip install '.[serve]'"
        ) from problem
    from mein.config import parse_overrides
    from mein.model.loading import load_model

    # oneDNN caches compiled kernels for 1,024 batch shapes, which grows to 100 MB.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    settings, token = make_settings(parse_overrides(set_)), read_token(token_file)
    model = load_model(run, device)
    model.log_probs(["a first text, so that problems of the run are reported now"])
    app = make_app(model, settings, token, hosts_of(host, allowed_host, token))
    logging.config.dictConfig(log_config())
    config = uvicorn.Config(app, **server_options(settings.answer_seconds))
    gc.collect()
    gc.freeze()  # loaded objects stay: collecting them again would delay requests by 0.1 seconds
    with listen(host, port) as listener:
        log(open_console(), greeting(run, host, listener.getsockname()[1], token))
        with suppress(KeyboardInterrupt):  # which uvicorn raises again once all is answered
            uvicorn.Server(config).run(sockets=[listener])


def server_options(answer_seconds: float) -> dict[str, Any]:
    """Options of uvicorn: no logs of its own, no server header, time for requests in flight at the end."""
    return {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "ws": "none",
        "lifespan": "on",
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": int(answer_seconds) + GRACE_SECONDS,
    }


def read_token(file: Path | None) -> str | None:
    """The token from a file, or from the environment; never from the command line, which others can see."""
    if file is None:
        token = os.environ.get(TOKEN)
        source = f"The environment's {TOKEN}"
    else:
        source = str(file)
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise InputError(f"The token file {file} cannot be read ({problem}): check it.") from problem
    if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
        raise InputError(f"{source} holds no usable token: write one line of letters, digits and signs.")
    return token


def hosts_of(host: str, allowed: Sequence[str], token: str | None) -> set[str] | None:
    """The hosts that requests may name; any, where a token is required and no host was given.

    A page from elsewhere whose name is made to point to this machine can so ask nothing.
    """
    if token is not None and not allowed:
        return None
    return {*THIS_MACHINE, host, *allowed}


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port in use is reported first."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as problem:
        raise ConfigError(f"Cannot listen on {host}:{port} ({problem}): choose another --port.") from problem


def greeting(path: Path, host: str, port: int, token: str | None) -> str:
    """The address, with a warning if it is open to everyone."""
    shown = f"[{host}]" if ":" in host else host
    open_to = (
        ""
        if token is not None or is_local(host)
        else " Anyone who can reach it may use it: set a token. Other names for it need --allowed-host."
    )
    return f"Serving {path} on http://{shown}:{port} (Ctrl+C stops it).{open_to}"


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host in ("localhost", "::1") or host.startswith("127.")
