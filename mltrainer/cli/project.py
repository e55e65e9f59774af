"""`mltrainer init`, `mltrainer doctor` and `mltrainer guide`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mltrainer.cli import completion
from mltrainer.cli.common import AsJson, Folder, Verbose, group, open_project, path_name
from mltrainer.cli.gates import following
from mltrainer.cli.output import emit, printable, say, warn
from mltrainer.configs.loading import without_defaults
from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.gates.machine import advice, derive
from mltrainer.reports.terminal import table
from mltrainer.workspace import Project

app = group()


@app.command(epilog="Example: mltrainer init houses --data houses.csv --target price")
def init(
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", parser=path_name, help="The folder; default: this one.")] = None,
    named: Annotated[
        Path | None, typer.Option("--project", metavar="DIR", parser=path_name, help="Another way to name DIR.")
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Start from a built-in example: digits, wine, diabetes, sentiment, textgen, trades."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=path_name, help="Start from a table, or its Croissant; the task is inferred."),
    ] = None,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column to predict.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column that is no feature; give it once for each.")
    ] = None,
    sheet: Annotated[str | None, typer.Option(metavar="NAME", help="The sheet of a workbook; default: the first.")] = None,
    skip_lines: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="The number of lines above the table; default: those that look like a title."),
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=path_name, help="A separate data set to validate on, in --data's form.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=path_name, help="A separate data set to test on, in --data's form.")
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="What learns from the table of --data: network, or boosting (gradient boosting).")
    ] = "network",
    script: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Start from a program that trains by itself, as you type it.")
    ] = None,
    metrics: Annotated[str, typer.Option(metavar="FILE", help="Where --script writes its metrics, as JSON.")] = "metrics.json",
    metric: Annotated[str, typer.Option(metavar="NAME", help="The metric that --script is judged by.")] = "accuracy",
    arguments: Annotated[
        Path | None,
        typer.Option(
            "--from-training-arguments",
            metavar="FILE",
            parser=path_name,
            help="Plan from TrainingArguments of transformers, as YAML or JSON.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Make a project in DIR: mltrainer.yaml, .gitignore, .gitattributes, and a git repository if it is not inside one."""
    from mltrainer.project.start import Script, make_project

    if folder and named and folder != named:
        raise typer.BadParameter(f"DIR is {str(folder)!r} and --project is {str(named)!r}: name the folder once.")
    program = Script(script, metrics, metric) if script is not None else None
    held_out = {"validation": validation, "test": test}
    place, of_table = folder or named or Path(), (ignore or (), sheet, skip_lines)
    notes = make_project(place, example, data, target, held_out, program, arguments, model, *of_table)
    for line in notes:
        say(line)
    if as_json:
        emit(_made(open_project(place), notes))
    return 0


def _made(project: Project, notes: list[str]) -> dict[str, Any]:
    config = load_project(project.file)
    return {
        "project": config.name,
        "folder": str(project.root.resolve()),
        "task": without_defaults(config.task),
        "metric": config.metric.name,
        "acceptance": config.acceptance,
        "notes": notes,
        **following(advice(derive(project))),
    }


@app.command(epilog="Example: mltrainer doctor --json")
def doctor(
    folder: Folder = None,
    verbose: Verbose = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Compute on the GPU for some seconds, too.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show what this machine can do, what is missing, and how to get it; -v lists the optional packages, too."""
    from mltrainer.project.doctor import examine, extras, gpu_trial

    rows = [*examine(_root(folder)), *([gpu_trial()] if gpu else ()), *(extras() if verbose or as_json else ())]
    if as_json:
        emit({"checks": [row._asdict() for row in rows]})
        return 0
    cells = [line for row in rows for line in ([row.state, row.what, row.found], ["", "", row.get]) if line[-1]]
    say(table(cells, ["", "what", "found, and how to get it"]))
    return 0


@app.command(epilog="Example: mltrainer guide diagnostics/nan_loss")
def guide(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", autocompletion=completion.pages, help="Its path in the handbook.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print the file as it is.")] = False,
    copy: Annotated[bool, typer.Option("--copy", help="Write the page into the project, as a start for its own.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Read a page of the handbook; without PAGE, list them.

    A project's own page, a file at the same path in the project, is read instead.
    """
    from mltrainer import handbook

    if page is None:
        pages = [path.removesuffix(".md") for path in handbook.page_paths()]
        emit({"pages": pages}) if as_json else say("\n".join(pages))
        return 0
    path = page if page.endswith((".md", ".yaml")) else f"{page}.md"
    if copy:
        project = open_project(folder)
        own = project.relative(handbook.copy_page(path, project.root))
        say(f"wrote {own}: from now on this project reads it instead of the handbook's")
        if as_json:
            emit({"page": page, "written": own})
        return 0
    file, root = _page_to_read(path, _root(folder))
    is_whole = raw or path.endswith(".yaml")
    text = handbook.page_text(file) if is_whole else f"{printable(handbook.read_page(path, root).text)}\n"
    emit({"page": page, "text": text}) if as_json else print(text, end="")
    return 0


def _page_to_read(path: str, root: Path | None) -> tuple[Path, Path | None]:
    """Return a page's file and its project, or None for the handbook's; which of the two is said."""
    from mltrainer import handbook

    file, overridden = handbook.locate(path, root)
    if overridden and handbook.is_empty(file):
        warn(f"(this project's own page is empty: this is the handbook's; `mltrainer guide {path} --copy` writes it there)\n")
        return handbook.locate(path, None)[0], None
    if overridden:
        warn(f"(this project's own page, instead of the handbook's {path})\n")
    return file, root


def _root(folder: Path | None) -> Path | None:
    """Return the folder of the named project, or of the one upwards from here, or None outside one."""
    if folder is not None:
        return open_project(folder).root
    try:
        return open_project(None).root
    except InputError:
        return None
