"""`mltrainer rows`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AnyRun, AsJson, Folder, file_name, group, tools
from mltrainer.cli.output import show, warn
from mltrainer.companions.questions.rows import ask
from mltrainer.companions.questions.rows.ask import FoundRows
from mltrainer.errors import InputError
from mltrainer.workspace import write_atomic, write_text

PAGES = (".html", ".md")

app = group()


@app.command(epilog="Example: mltrainer rows baseline --step 120")
def rows(
    run: AnyRun = None,
    step: Annotated[int | None, typer.Option(min=1, metavar="N", help="The samples of a step.")] = None,
    epoch: Annotated[int | None, typer.Option(min=1, metavar="E", help="The hardest samples of an epoch.")] = None,
    finding: Annotated[
        str | None, typer.Option(metavar="ID", help="The samples that a finding is about, such as nan_loss.")
    ] = None,
    hardest: Annotated[
        bool, typer.Option("--hardest", help="The samples with the largest losses, of training and validation.")
    ] = False,
    mislabelled: Annotated[
        bool, typer.Option("--mislabelled", help="The samples whose label is probably wrong, the surest first.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="WHICH", help="best, last or a step; default: the one nearest to the step or epoch, else the best."),
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, max=10_000, metavar="K", help="Number of shown samples; default: 20, for a step all.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=file_name, help="Write a page: .html, or .md with its pictures beside it."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Show which samples a step, an epoch or a finding is about, where they come from, and the model's loss and answer on each.

    Without RUN: the newest phase's run. No gate, no record and no run changes; the test split stays sealed.
    """
    asked = {"step": step, "epoch": epoch, "finding": finding, "hardest": hardest, "mislabelled": mislabelled}
    if sum(value is not None and value is not False for value in asked.values()) != 1:
        raise typer.BadParameter("give exactly one of them.", param_hint=" / ".join(f"'--{name}'" for name in asked))
    if out is not None and out.suffix not in PAGES:
        raise InputError(f"a page's name ends in {' or '.join(PAGES)}, found {out.suffix!r}", where="--out")
    with tools(folder) as running:
        answer = ask.rows(
            running,
            run,
            step=step,
            epoch=epoch,
            finding=finding,
            hardest=hardest,
            mislabelled=mislabelled,
            checkpoint=checkpoint,
            most=most,
        )
    show(answer, ask.text, as_json)
    if out is not None:
        _write(answer, out)
        warn(f"page: {out}")
    return 0


def _write(answer: FoundRows, out: Path) -> None:
    """Write a page of the samples; its name ends in one of `PAGES`."""
    if out.suffix == ".html":
        write_text(out, ask.page(answer))
        return
    pictures = out.with_name(f"{out.stem}_pictures")
    page, files = ask.markdown(answer, pictures.name)
    for name, data in files.items():
        write_atomic(pictures / name, data)
    write_text(out, page)
