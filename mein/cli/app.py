"""How a command line is built, run, and ended: mein, python -m paper, python -m benchmarks."""

import sys

import typer

from mein.errors import MeinError, explaining_full_gpu
from mein.runtime import ranks

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended


def new_app(about: str | None = None) -> typer.Typer:
    """An app without commands, whose help fits into 80 columns."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    )


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line; a user's error is one sentence and exit code 2, or a traceback with --debug."""
    is_debugging = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        with explaining_full_gpu():
            ranks.join()
            app(prog_name=name)
    except (MeinError, OSError) as problem:
        if is_debugging:
            raise
        from mein.cli.console import complain

        if ranks.may_complain():
            complain(str(problem) if isinstance(problem, MeinError) else _of_system(problem))
        sys.exit(2)
    except KeyboardInterrupt:
        _show_how_to_resume()
        sys.exit(INTERRUPTED)
    except SystemExit as ended:  # subtle: typer turns Ctrl-C into this
        if ended.code == INTERRUPTED:
            _show_how_to_resume()
        raise
    finally:
        ranks.leave()


def _show_how_to_resume() -> None:
    if not ranks.is_first():
        return
    sys.stderr.write(
        "\nStopped. Run the same command again to continue; add --resume to train and predict.\n"
    )


def _of_system(problem: OSError) -> str:
    """One sentence for an unexpected system error."""
    what = "Something" if problem.filename is None else str(problem.filename)
    return f"{what} cannot be read or written ({problem.strerror or problem}): check it, or run with --debug."
