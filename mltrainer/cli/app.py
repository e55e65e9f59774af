"""The program: its commands by name, each imported when it is typed."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]  # the only place that has the former
from typer.main import get_command

from mltrainer import __version__, plugins
from mltrainer.cli.catalogue import ABOUT, COMMANDS, EXAMPLE, MEANT, PROGRAM, program_help

QUESTIONS = "questions"  # the plug-ins that are commands, each a `typer.Typer`


class LazyGroup(TyperGroup):
    """The program's commands, imported when they are typed; their help lines are in the catalogue."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)  # names alone, of which the nearest is suggested

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command after importing its module; None if no command, built in or installed, has the name."""
        # First: no plug-in takes the place of a built-in command.
        if cmd_name in COMMANDS:
            return command(cmd_name)
        return get_command(plugins.load(QUESTIONS, cmd_name, cmd_name)) if plugins.find(QUESTIONS, cmd_name) else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the typed command; refuse a word of other programs with its name here."""
        word = args[0] if args else ""
        if word in MEANT and self.get_command(ctx, word) is None:
            ctx.fail(f"No such command {word!r}; did you mean `{PROGRAM} {MEANT[word]}`?")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """Return the program's help without importing any command."""
        return program_help()

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the commands, or the options, that begin with the typed text; without importing any command."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)  # no command begins so
        return [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]


app = typer.Typer(
    cls=LazyGroup,
    help=ABOUT,
    epilog=EXAMPLE,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"{PROGRAM}, version {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")] = False,
) -> None:
    """Take the program's own options; each acts when it is read."""


cli = get_command(app)


def command(name: str) -> Any:
    """Return a command of the catalogue."""
    module = importlib.import_module(COMMANDS[name].module)
    typer_command = get_command(module.app)  # of a module with one command that command itself
    return typer_command.commands[name] if isinstance(typer_command, TyperGroup) else typer_command


def invoke(arguments: list[str]) -> int:
    """Run one command line and return its exit code; wrong usage is reported on standard error.

    The program's own `main` is not called: it takes every interruption for the keyboard's.
    """
    try:
        with cli.make_context(PROGRAM, list(arguments)) as context:
            code = cli.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.TyperException as error:
        return _refused(error)
    return int(code or 0)


def _refused(error: Any) -> int:
    error.show()
    return 2
