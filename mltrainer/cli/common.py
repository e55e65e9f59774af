"""The commands' shared parts: their options and arguments, typed, and the project that they work on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mltrainer.cli import completion
from mltrainer.cli.output import output
from mltrainer.errors import InputError, did_you_mean
from mltrainer.reports.values import cut, visible
from mltrainer.workspace import PHASES, PhaseName, Project, find_project

if TYPE_CHECKING:
    from mltrainer.runs.launcher import Tools


class WrongValueError(typer.BadParameter):
    """Wrong usage: the value of an argument or an option is not what was expected."""

    def __init__(self, expected: str, text: str, more: str = "", param_hint: str | None = None) -> None:
        self.expected, self.found = expected, repr(cut(visible(text), 80))
        super().__init__(f"expected {expected}, found {self.found}{more}", param_hint=param_hint)


def group(name: str | None = None, **settings: Any) -> typer.Typer:
    """Return an empty group of commands in plain text; one with a name shows its help where no command is given."""
    plain: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
    return typer.Typer(name=name, no_args_is_help=name is not None, **plain, **settings)


def open_project(folder: Path | None) -> Project:
    """Return the project that a command works on."""
    return find_project(folder or Path.cwd())


def watched_metrics(project: Project, verbose: bool) -> tuple[str, ...]:
    """Return the metrics that a list shows: the loss and the project's chosen metric; with `verbose` none, which means all."""
    from mltrainer.configs.project import load_project

    if verbose:
        return ()
    with contextlib.suppress(InputError):
        return (load_project(project.file).metric.name, "loss")
    return ("loss",)


@contextlib.contextmanager
def tools(folder: Path | None) -> Iterator[Tools]:
    """Yield the tools of the project that a command works on; their progress is shown meanwhile."""
    from mltrainer.follow.progress import Progress
    from mltrainer.runs.launcher import tools_of

    project = open_project(folder)
    with Progress() as progress:
        with tools_of(project, progress) as tools:
            yield tools


def path_name(text: str) -> Path:
    """Return a path; a text that cannot be a file's name is wrong usage."""
    if "\0" in str(text):
        raise WrongValueError("the name of a file", text)
    return Path(text)


def file_name(text: str) -> Path:
    """Return the path of a file to write; a place that cannot hold a file is wrong usage, reported before any work is done."""
    path = path_name(text)
    if path.is_dir() or any(part.is_file() for part in path.parents):
        raise WrongValueError("a file", text, "; it is a folder" if path.is_dir() else "; it is not in a folder")
    return path


def share_of_one(text: str) -> float:
    """Return a share that is above 0 and at most 1, given as 0.05 or 5%; any other text is wrong usage."""
    number, is_percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        share = float(number) / (100 if is_percent else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise WrongValueError("a share above 0 and at most 1, such as 0.05 or 5%", text)
    return share


def step_or_first(text: str) -> str:
    """Return the number of a step, or `first`; any other text is wrong usage."""
    if text != "first" and not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise WrongValueError("the number of a step, or first", text)
    return text


def one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    """Return a parser of one of some names; another name is wrong usage, answered with the nearest."""

    def read(text: str) -> str:
        if text in names:
            return text
        raise WrongValueError(f"one of {', '.join(names)}", text, did_you_mean(text, names))

    return read


_RUN = "A run's id, a unique prefix of one, or a phase's name for its current run."

Folder = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", parser=path_name, help="The project's folder (default: upwards from here)."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show everything that was measured.")]
AsJson = Annotated[
    bool, typer.Option("--json", is_eager=True, callback=output.be_json, help="Print one JSON object on standard output.")
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The number of processes that train a run, or each trial, together; the bits do not depend on it.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        autocompletion=completion.config_keys,
        help="Change a config value by its dotted name; may be given more than once.",
    ),
]
Phase = Annotated[PhaseName, typer.Argument(metavar="PHASE", parser=one_of(PHASES), help="The phase.")]
AnyPhase = Annotated[PhaseName | None, typer.Argument(metavar="PHASE", parser=one_of(PHASES), help="The phase.")]
Run = Annotated[str, typer.Argument(metavar="RUN", autocompletion=completion.runs, help=_RUN)]
AnyRun = Annotated[str | None, typer.Argument(metavar="RUN", autocompletion=completion.runs, help=_RUN)]
