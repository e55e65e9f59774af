"""`mltrainer init`, `mltrainer doctor` and `mltrainer guide`."""

from __future__ import annotations

from pathlib import Path

import click

from mltrainer.cli.common import PATH, json_option, open_project, project_option
from mltrainer.cli.main import emit, printable
from mltrainer.errors import InputError
from mltrainer.reports.terminal import table


@click.command(epilog="Example: mltrainer init houses --data houses.csv --target price")
@click.argument("folder", type=PATH, required=False, metavar="[DIR]")
@click.option("--project", "named", type=PATH, default=None, help="Another way to name DIR.")
@click.option("--example", default=None, help="Start from a built-in example: digits, wine, diabetes.")
@click.option("--data", type=PATH, default=None, help="Start from a table; the task is inferred.")
@click.option("--target", default=None, help="The column to predict.")
def init(folder: Path | None, named: Path | None, example: str | None, data: Path | None, target: str | None) -> int:
    """Make a project in DIR: mltrainer.yaml, .gitignore, .gitattributes, and a git repository if it is not inside one."""
    from mltrainer.project.start import make_project

    if folder and named and folder != named:
        raise click.UsageError(f"DIR is {str(folder)!r} and --project is {str(named)!r}: name the folder once.")
    for line in make_project(folder or named or Path(), example, data, target):
        click.echo(printable(line))
    return 0


@click.command(epilog="Example: mltrainer doctor --json")
@project_option
@json_option
def doctor(folder: Path | None, as_json: bool) -> int:
    """Show what this machine can do, what is missing, and how to get it."""
    from mltrainer.project.doctor import examine

    rows = examine(_root(folder))
    if as_json:
        emit({"checks": rows})
        return 0
    click.echo(table([[r["state"], r["what"], r["found"], r["get"] or ""] for r in rows], ["", "what", "found", "how to get it"]))
    return 0


@click.command(epilog="Example: mltrainer guide diagnostics/nan_loss")
@click.argument("page", required=False)
@click.option("--raw", is_flag=True, help="Print the whole file with its front matter, as a start for a page of your own.")
@project_option
def guide(page: str | None, raw: bool, folder: Path | None) -> int:
    """Read a page of the handbook; without PAGE, list them. A project's own page of the same path comes first."""
    from mltrainer import handbook

    root = _root(folder)
    if page is None:
        click.echo("\n".join(path.removesuffix(".md") for path in handbook.page_paths()))
        return 0
    path = page if page.endswith((".md", ".yaml")) else f"{page}.md"
    file, overridden = handbook.locate(path, root)
    if overridden:
        click.echo(f"(this project's own page, instead of the handbook's {path})\n", err=True)
    click.echo(file.read_text("utf-8") if raw or path.endswith(".yaml") else printable(handbook.read_page(path, root).body))
    return 0


def _root(folder: Path | None) -> Path | None:
    """Return the folder of the named project, or of the one upwards from here, or None outside one."""
    if folder is not None:
        return open_project(folder).root
    try:
        return open_project(None).root
    except InputError:
        return None
