"""mein serve: the command that answers over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from mein.cli.options import Run


def serve(
    run: Run,
    host: Annotated[str, typer.Option(metavar="NAME", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, metavar="N", help="0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Holds the token to ask for; else MEIN_TOKEN does, if set."),
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda ...")] = "auto",
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="A limit, such as texts=100; repeatable.")
    ] = [],  # noqa: B006 - typer reads the default and never changes it
) -> None:
    """Answer over HTTP: predictions, explanations, files, and a page.

    Only this machine can reach it unless --host says otherwise. docs/serve.md tells the rest.
    """
    from mein.cli.run_serve import serve_run
    from mein.config import parse_overrides

    serve_run(run, host, port, token_file, parse_overrides(set_), device)
