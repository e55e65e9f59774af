"""The command line: parse, call, print. Commands are loaded when they are typed, so that `--help` is quick."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import click
from click.exceptions import NoSuchCommand

from mltrainer import __version__
from mltrainer.errors import MltrainerError, interrupted, raise_terminated

# name: (module, attribute, one-line help); the modules import what they need, this one stays light
COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("project", "init", "Make a project from an example or from your data."),
    "run": ("phases", "run", "Walk the phases from wherever the project stands."),
    "phase": ("phases", "phase", "Run one phase."),
    "status": ("gates", "status", "Show each phase, its gate, what is stale and what comes next."),
    "gate": ("gates", "gate", "Check gates, or waive an item with a reason."),
    "lr-find": ("exploring", "lr_find", "Find a learning rate, on a copy."),
    "batch-size": ("exploring", "batch_size", "Find a batch size by memory and throughput."),
    "profile": ("exploring", "profile", "Where a step's time goes."),
    "reproduce": ("runs", "reproduce", "Train a run again in a fresh process and compare bit for bit."),
    "fork": ("runs", "fork", "Train a new run from another run's checkpoint."),
    "runs": ("runs", "runs", "List, show and compare runs."),
    "checkpoints": ("checkpoints", "checkpoints", "List, verify and export checkpoints."),
    "diagnose": ("runs", "diagnose", "Findings over a recorded run, with suggested changes."),
    "doctor": ("project", "doctor", "What this machine can do, what is missing, and how to get it."),
    "guide": ("project", "guide", "Read a page of the handbook."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used; their help lines stand in the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"mltrainer.cli.{module}"), attribute)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; a misspelled one is answered with the nearest of the table.

        Raises:
            NoSuchCommand: There is none of that name.
        """
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, _, help_line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: mltrainer init demo --example digits && cd demo && mltrainer run",
)
@click.version_option(__version__, prog_name="mltrainer")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Training runs that can be trusted: five gated phases, each with measured evidence."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(get("status")) if _inside_a_project() else click.echo(ctx.get_help())


def _inside_a_project() -> bool:
    from mltrainer.workspace import find_project

    try:
        return bool(find_project(Path.cwd()))
    except MltrainerError:
        return False


def get(name: str) -> click.Command:
    """Return a top-level command by name."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def main() -> None:
    """Run the command line and exit with the contract's code."""
    signal.signal(signal.SIGTERM, raise_terminated)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; every failure ends here.

    Args:
        arguments: Without the program's name.
    """
    try:
        result = cli.main(arguments, prog_name="mltrainer", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt) as error:
        return _fail(interrupted(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: say nothing more
        return 0
    except MltrainerError as error:
        return _fail(error)
    except Exception as error:
        return _fail(_fault(error))


def _fail(error: MltrainerError) -> int:
    click.echo(f"error: {printable(str(error))}", err=True)
    return error.exit_code


def _fault(error: Exception) -> MltrainerError:
    """Return a machine's failure and an impossible path as such, and any other as a fault of ours with its traceback saved."""
    from mltrainer.errors import InputError, MachineError
    from mltrainer.reproducibility.secrets import redact
    from mltrainer.workspace import MACHINE_ERRNOS, NAME_ERRNOS

    if isinstance(error, OSError) and error.errno in NAME_ERRNOS:
        return InputError(error.strerror or str(error), where=str(error.filename or "")[:200])
    if isinstance(error, OSError) and error.errno in MACHINE_ERRNOS:
        mend = "check the disk and its permissions, then type the same command again"
        return MachineError(error.strerror or str(error), where=str(error.filename or "") or None, mend=mend)
    text = redact("".join(traceback.format_exception(error)))
    state = Path.cwd() / ".mltrainer"
    path = (state if state.is_dir() else Path(tempfile.gettempdir())) / "mltrainer-fault.txt"
    with contextlib.suppress(OSError):
        path.write_text(f"mltrainer {__version__}, Python {sys.version}\n\n{text}", "utf-8")
    return MltrainerError(f"a fault of mltrainer's own: {type(error).__name__}: {error}", mend=f"report it with {path}")


def printable(text: str) -> str:
    """Return a text's lines with nothing in them that could move a terminal's cursor or hide."""
    from mltrainer.reports.values import visible

    return "\n".join(visible(line) for line in text.split("\n"))


def emit(value: Any) -> None:
    """Print one JSON object on standard output."""
    from mltrainer.workspace import pretty_json

    sys.stdout.write(pretty_json(value).decode())
