"""How help looks and how a wrong command line is refused: headings, aligned columns, examples, one sentence.

Separate from console.py: it is rendered here, because what typer prints differs between its versions.
"""

import difflib
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from mein.cli.paths import PathCommand, metavar, named
from mein.errors import UsageError

WIDTH = 100  # of help, on a terminal that is at least as wide
EXAMPLES = "\n\nExamples:\n"

ClickException: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""What typer raises for a wrong command line: its own click's, or the package's in older versions."""

HelpRows = list[tuple[str, str]]


class App(typer.Typer):
    """An app whose commands and groups render their help here."""

    def __init__(self, about: str | None = None) -> None:
        """An app without commands."""
        super().__init__(
            help=about,
            cls=Group,
            add_completion=False,
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
        )

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        """Register a command; `rich_help_panel` is its heading."""
        return super().command(name, **{"cls": Command} | given)

    def add(self, heading: str, *commands: Callable[..., None]) -> None:
        """Register commands under a heading."""
        for command in commands:
            self.command(rich_help_panel=heading)(command)


class Command(PathCommand):
    """A command with its options under headings, and its examples."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, meaning, arguments, options by heading, examples."""
        shown = _visible(self, ctx)
        arguments = [param for param in shown if param.param_type_name == "argument"]
        options = [param for param in shown if param.param_type_name == "option"]
        needed = [named(param) for param in options if param.required]
        formatter.write_usage(ctx.command_path, " ".join([*map(_usage, arguments), *needed, "[OPTIONS]"]))
        about, _, examples = (self.help or "").partition(EXAMPLES)
        _write_prose(formatter, about)
        sections: dict[str, HelpRows] = {
            "Arguments": [(metavar(param), _meaning(param)) for param in arguments]
        }
        for param in options:
            _under(sections, param).append((_flags(param), _meaning(param)))
        sections["Options"] = sections.pop("Options")  # last, with --help
        _write_sections(formatter, sections)
        if examples:
            formatter.write("\nExamples:\n" + textwrap.indent(textwrap.dedent(examples), "  ") + "\n")


class Group(TyperGroup):
    """Commands under headings."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, meaning, commands by heading, options."""
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS]")
        _write_prose(formatter, self.help or "")
        sections: dict[str, HelpRows] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            meaning = (command.help or "").partition("\n")[0]
            _under(sections, command, "Commands").append((name, meaning))
        _write_sections(formatter, sections)
        options = [(_flags(param), _meaning(param)) for param in _visible(self, ctx)]
        _write_sections(formatter, {"Options": options})
        _write_prose(
            formatter, f"`{ctx.command_path} COMMAND --help` has the options and examples of a command."
        )

    def list_commands(self, ctx: Any) -> list[str]:
        """As they were added; typer puts groups last, where completion belongs."""
        return sorted(self.commands, key=lambda name: name == "completion")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without any word, show the help as an error."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Refuse an unknown command and offer the nearest, also of a group."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], list(_paths(self)), n=2)
            offer = (
                f"did you mean {' or '.join(map(repr, near))}?"
                if near
                else f"see `{ctx.command_path} --help`."
            )
            raise UsageError(f"`{ctx.command_path}` has no command {args[0]!r}: {offer}")
        return super().resolve_command(ctx, args)


def usage_sentence(problem: Any) -> str:
    """One sentence about a command line that typer refused."""
    path = "mein" if problem.ctx is None else problem.ctx.command_path
    see = f"see `{path} --help`."
    match type(problem).__name__:
        case "MissingParameter":
            params = problem.ctx.command.get_params(problem.ctx)
            needed = ", ".join(named(param) for param in params if param.required)
            return f"{named(problem.param)} is missing: `{path}` needs {needed}; {see}"
        case "NoSuchOption":
            offer = f"did you mean {problem.possibilities[0]!r}?" if problem.possibilities else see
            return f"`{path}` has no option {problem.option_name!r}: {offer}"
        case "BadOptionUsage":
            is_flag = "not take" in problem.message
            wish = "takes no value: remove it." if is_flag else "needs a value: give one behind it."
            return f"{problem.option_name} {wish}"
        case "BadParameter" if problem.param is not None:
            return f"{named(problem.param)}: {problem.message.rstrip('.')}; {see}"
    surplus = re.search(r"extra arguments?(?:\(s\))? \((.*)\)", problem.format_message())
    what = problem.format_message().rstrip(".") if surplus is None else f"Surplus words {surplus[1]!r}"
    return f"{what}: {see}"


def _paths(group: Any, before: str = "") -> Iterator[str]:
    """Every command by what follows `mein`, those of groups included."""
    for name, command in group.commands.items():
        yield before + name
        yield from _paths(command, f"{before}{name} ") if isinstance(command, Group) else ()


def _visible(command: Any, ctx: Any) -> list[Any]:
    return [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]


def _under(sections: dict[str, HelpRows], what: Any, otherwise: str = "Options") -> HelpRows:
    return sections.setdefault(getattr(what, "rich_help_panel", None) or otherwise, [])


def _usage(argument: Any) -> str:
    return metavar(argument) if argument.required else f"[{metavar(argument)}]"


def _flags(option: Any) -> str:
    """Such as `-o, --out FOLDER`, with room for a short form where there is none."""
    short = next((name for name in option.opts if len(name) == 2), None)
    return ("    " if short is None else f"{short}, ") + named(option)


def _meaning(param: Any) -> str:
    is_marked = param.required and param.param_type_name == "option"  # an argument is in the usage
    return f"{param.help or ''}{' Required.' if is_marked else ''}"


def _write_prose(formatter: Any, text: str) -> None:
    for paragraph in filter(None, text.strip().split("\n\n")):
        formatter.write("\n" + textwrap.fill(" ".join(paragraph.split()), formatter.width) + "\n")


def _write_sections(formatter: Any, sections: dict[str, HelpRows]) -> None:
    """Headings with rows of two columns, which are aligned over all sections."""
    wide = max(len(name) for rows in sections.values() for name, _ in rows)
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{wide}}", meaning) for name, meaning in rows], col_max=wide)
