"""The program: its commands by name, each imported when it is typed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]  # the only place that has the former
from typer.main import get_command

from mltrainer import __version__, plugins
from mltrainer.cli.catalogue import ABOUT, COMMANDS, EXAMPLE, MEANT, PROGRAM, program_help
from mltrainer.cli.output import emit_error, output
from mltrainer.errors import FaultAt, UsageError
from mltrainer.validation import faults_of

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
        return _built(plugins.load(QUESTIONS, cmd_name, cmd_name)) if plugins.find(QUESTIONS, cmd_name) else None

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
    typer_command = _built(module.app)  # of a module with one command that command itself
    return typer_command.commands[name] if isinstance(typer_command, TyperGroup) else typer_command


def _built(typer_app: typer.Typer) -> Any:
    """Return an app's command or group, with the options that every command has."""
    built = get_command(typer_app)
    _add_shared_options(built)
    return built


def _add_shared_options(command: Any) -> None:
    for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
        _add_shared_options(inner)
    if not isinstance(command, TyperGroup):
        command.params.append(_quiet_option())


def _quiet_option() -> Any:
    """Return the option `--quiet`, which acts when it is read, as typer builds it for a command."""
    sample = typer.Typer(add_completion=False)

    @sample.command()
    def _(
        quiet: Annotated[
            bool,
            typer.Option(
                *("--quiet", "-q"),
                is_eager=True,
                expose_value=False,
                callback=output.be_quiet,
                help="Print no text but errors; what --json prints, answers and files stay.",
            ),
        ] = False,
    ) -> None: ...

    return get_command(sample).params[0]


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
        return _refused(error, arguments)
    return int(code or 0)


def _refused(error: Any, arguments: Sequence[str]) -> int:
    """Report wrong usage; the option `--json` itself may not have been read."""
    output.close()
    error.show()
    output.be_json("--json" in arguments)
    path = error.ctx.command_path if getattr(error, "ctx", None) else PROGRAM
    fault = FaultAt(path, *_compared(error, arguments[len(path.split()) - 1 :]))
    refused = UsageError(error.format_message(), where=path, hint=f"{path} --help", faults=[fault])
    emit_error(refused)
    return refused.exit_code


def _compared(error: Any, words: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the expected and the found value of a wrong usage; None for what is not one value.

    Args:
        error: The error of typer.
        words: The words behind the command's name.
    """
    command, cause = getattr(error, "cmd", None), error.__cause__
    if hasattr(error, "expected"):
        return error.expected, error.found
    if hasattr(cause, "errors"):  # pydantic's, which read the value of an argument or an option
        fault = faults_of(cause)[0]
        return fault.msg, repr(fault.input)
    if hasattr(error, "possibilities") and command is not None:
        known = [name for parameter in command.params for name in parameter.opts if name.startswith("-")]
        return f"one of {', '.join(known)}", repr(error.option_name)
    if isinstance(command, TyperGroup):
        return f"one of {', '.join(command.commands)}", repr(words[0]) if words else None
    return error.param.get_error_hint() if hasattr(error, "param_type") else None, None  # a value is missing
