"""The command line's two ends: the typed arguments come in, an exit code of the contract goes out.

Nothing heavy is imported before a command needs it, so that help is quick.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from mltrainer.cli.catalogue import PROGRAM, program_help
from mltrainer.cli.output import output, refuse
from mltrainer.errors import InputError, MltrainerError, interrupted, interruption_of, raise_terminated

COMPLETION = "_MLTRAINER_COMPLETE"  # the shell sets it where it asks for completions
HELP = (["-h"], ["--help"])
LOOKING = (
    "status",
    "gate",
    "report",
    "monitor",
    "runs",
    "checkpoints",
    "diagnose",
    "guide",
    "doctor",
    "watch",
    "lineage",
)  # run no tool
DELIVERED = ("predict", "serve", "store", "registry")  # they check their files against digests, and they may read large files
TRAINING = {"--try", "--apply", "--custom-checks", "export", "import", "average"}  # what makes one of them a command that does


def main() -> None:
    """Run the command line and exit with the contract's code."""
    # As an exception: by default SIGTERM ends the process at once, and leaves its children and its temporary files.
    signal.signal(signal.SIGTERM, raise_terminated)
    if hasattr(signal, "SIGCHLD"):  # Windows has none; a program that ignores it hands that on, and no child's exit code is kept
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _answer_quickly()
    if os.environ.get(COMPLETION):
        from mltrainer.cli.app import cli

        cli(prog_name=PROGRAM)
    code = run(sys.argv[1:])
    gc.freeze()  # the objects end with the process; the interpreter would collect them once more
    sys.exit(code)


def _answer_quickly() -> None:
    """Skip work that only delays an answer: collecting garbage while modules load, and a search for pydantic's plugins.

    The search reads the metadata of every installed package; a plugin could change the validation of records.
    """
    gc.set_threshold(500_000)
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; every failure ends here.

    Args:
        arguments: Without the program's name.
    """
    try:
        with output:
            _require_folder()
            return _answered(arguments)
    except KeyboardInterrupt as error:
        return refuse(interrupted(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: say nothing more
        return 0
    except MltrainerError as error:
        return refuse(error)
    except Exception as error:
        signalled = interruption_of(error)
        return refuse(interrupted(signalled) if signalled is not None else _reported(error))


def _require_folder() -> None:
    """Refuse to start in a folder that was removed, to which no path can be relative.

    Raises:
        InputError: It is gone.
    """
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("the current folder was removed", hint="cd to one that exists") from error


def _answered(arguments: list[str]) -> int:
    try:
        if arguments in HELP or not (arguments or _inside_a_project()):
            print(program_help())
            return 0
        from mltrainer.cli.app import invoke

        with _limits(arguments or ["status"]):
            return invoke(arguments or ["status"])
    finally:
        sys.stdout.flush()  # a reader that has gone shows here, not when the interpreter ends


def _limits(arguments: list[str]) -> AbstractContextManager[None]:
    """Return the context in which a read-only command may open only the project's own plain files."""
    only_looks = arguments[0] in LOOKING and not TRAINING & set(arguments[1:])
    if not only_looks and arguments[0] not in DELIVERED:
        return nullcontext()
    from mltrainer.looking import looking

    return looking(_tracks, only_looks=only_looks)


def _tracks(root: str, path: str) -> bool:
    from mltrainer.reproducibility.git import tracks  # here, because hardly any project has a link that leads out

    return tracks(root, path)


def _inside_a_project() -> bool:
    from mltrainer.workspace import find_project

    try:
        return bool(find_project(Path.cwd()))
    except MltrainerError:
        return False


def _reported(error: Exception) -> MltrainerError:
    from mltrainer.cli.faults import reported  # here, because hardly any command fails so

    return reported(error)
