"""`mltrainer forget --rows FILE`: the project trained again without some training samples, as if they had never been there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, path_name, tools
from mltrainer.cli.gates import describe
from mltrainer.cli.output import show
from mltrainer.configs import yaml
from mltrainer.configs.editing import edited
from mltrainer.configs.forgotten import WHERE, read_rows, rows_text
from mltrainer.configs.loading import validate
from mltrainer.configs.project import ProjectConfig, load_project, load_training
from mltrainer.errors import InputError
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import advice, derive
from mltrainer.phases.planning import CONFIG_FILE
from mltrainer.project.engine import walk
from mltrainer.records.common import Number, Part
from mltrainer.records.reading import sound_record
from mltrainer.records.run import Run
from mltrainer.reports.values import counted, duration
from mltrainer.reports.values import share as percent
from mltrainer.runs.find import result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import (
    FORGOTTEN_FOLDER,
    MODEL_CARD,
    MODEL_FOLDER,
    SUPERSEDED_FILE,
    Project,
    locked_project,
    sha256_bytes,
    write_atomic,
)

TRAINING = ("baseline", "finalization")
REASON = "it was trained on rows that were forgotten since"
MARK = f"> **Superseded**: {REASON}. See {SUPERSEDED_FILE}.\n\n"
SUPERSEDED = f"""# Superseded

This model is not to be used: {REASON}. `mltrainer forget` trains the project again without them, and then delivers another
model in its place. Copies of this one elsewhere are not marked: replace them.
"""
_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)

app = group()


class TrainedAgain(Part):
    """A phase's run without the forgotten samples.

    Attributes:
        phase: The phase.
        run: The run's id.
        begun_by: The run whose checkpoint it went on from; None: it was trained from step 0.
        steps_kept: The steps that were not trained again.
        steps: All its steps.
        seconds_kept: The time that those steps took in that run, by its mean time of a step.
    """

    phase: str
    run: str
    begun_by: str | None
    steps_kept: int
    steps: int
    seconds_kept: Number


class Forgetting(Part):
    """The answer of `mltrainer forget`.

    Attributes:
        forgotten: All samples that the project forgets now.
        file: The file that lists them, which mltrainer.yaml names.
        runs: The runs without them.
        superseded: The mark of a delivered model that knows them; None: there is no such model.
        holds: Whether all gates hold.
        next: What to do next; None: nothing.
    """

    forgotten: int
    file: str
    runs: list[TrainedAgain]
    superseded: str | None
    holds: bool
    next: str | None


@app.command(epilog="Example: mltrainer forget --rows rows.txt")
def forget(
    rows: Annotated[
        Path, typer.Option("--rows", metavar="FILE", parser=path_name, help="Numbers of training samples, one a line.")
    ],
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Train again without some training samples, in the bits of a training that never had them.

    FILE has the samples' numbers, as `mltrainer rows` shows them. They are added to those that were forgotten before, in a file
    of the project that `forget` in mltrainer.yaml names, and all phases are walked again; the same command again goes on. The
    old delivered model is marked as superseded until another one takes its place.

    A run goes on from the newest checkpoint of an earlier run before the first of the rows was seen. Each epoch sees all rows, so
    that this saves a part of one epoch at most; where a normalization or a vocabulary was fitted on them, it saves nothing.
    """
    with tools(folder) as running:
        answer, closed = forgotten(running, rows)
    show(answer, lambda one: _text(one, closed), as_json)
    return 0 if answer.holds else 4


def forgotten(tools: Tools, file: Path) -> tuple[Forgetting, Gate | None]:
    """Forget the rows in a file, and walk the phases; return the answer, and the gate that does not hold.

    Raises:
        InputError: A row is no training sample; the project is left as it was.
        MltrainerError: A phase was refused, failed or was stopped.
    """
    project = tools.project
    asked = read_rows(file, str(file))
    earlier, before = {*(project.root / FORGOTTEN_FOLDER).glob("*")}, project.file.read_bytes()
    name, count = _named(project, asked)
    try:
        gates = walk(tools, "planning")
        _require_planned(project, name)
    except InputError:
        write_atomic(project.file, before)
        for path in {project.root / name} - earlier:
            path.unlink()
        raise
    mark(project, name)  # also where the plan does not hold: the rows are to be forgotten from now on
    if not gates or gates[-1].holds:
        gates = [*gates, *walk(tools, None)]
    states = derive(project)
    step = advice(states)
    marked = project.phase_dir("finalization") / MODEL_FOLDER / SUPERSEDED_FILE
    answer = Forgetting(
        forgotten=count,
        file=name,
        runs=[*_trained(project)],
        superseded=project.relative(marked) if marked.exists() else None,
        holds=all(state.done for state in states),
        next=step.why if step else None,
    )
    return answer, next((gate for gate in gates if not gate.holds), None)


def _named(project: Project, rows: list[int]) -> tuple[str, int]:
    """Write the rows, with those forgotten before, to a file that mltrainer.yaml names; return its name and their number."""
    with locked_project(project):
        already = load_project(project.file).forget
        rows = sorted({*rows, *(read_rows(project.root / already, already) if already else ())})
        data = rows_text(rows).encode()
        # Named by its content: an earlier run's file stays, without which that run could not be reproduced.
        name = f"{FORGOTTEN_FOLDER}/{sha256_bytes(data)[:12]}.txt"
        if name != already:
            text = _with_key(project, name)
            (project.root / FORGOTTEN_FOLDER).mkdir(exist_ok=True)
            write_atomic(project.root / name, data)
            write_atomic(project.file, text.encode())
    return name, len(rows)


def _with_key(project: Project, name: str) -> str:
    """Return the text of mltrainer.yaml with another value of `forget`.

    Raises:
        InputError: The value does not fit the others, or the file's layout does not allow a change of a single key.
    """
    old = project.file.read_text("utf-8-sig")
    values = {**yaml.parse(old, project.file.name).value, WHERE: name}
    validate(ProjectConfig, yaml.Document(values, {}, project.file.name))
    if (text := edited(old, values)) is None:
        hint = f"write into it: {WHERE}: {name}"
        raise InputError("its layout does not allow a change of a single key", where=project.file.name, hint=hint)
    return text


def _require_planned(project: Project, name: str) -> None:
    """Refuse to go on with a plan that forgets other rows, as an edit of the training config can make it.

    Raises:
        InputError: The plan has another value.
    """
    path = project.phase_dir("planning") / CONFIG_FILE
    planned = load_training(path, project.relative(path)).forget
    if planned != name:
        what = f"forget is {planned!r} there, and {name!r} in {project.file.name}"
        raise InputError(what, where=project.relative(path), hint="undo the edit there, then type the same command again")


def mark(project: Project, name: str) -> None:
    """Mark the delivered model, in its folder and on its card, unless it was trained without the rows that a file lists."""
    folder = project.phase_dir("finalization") / MODEL_FOLDER
    record = sound_record(project, "finalization")
    is_new = record is not None and record.evidence.config.get(WHERE) == name
    if is_new or not folder.is_dir():
        return
    with locked_project(project):
        write_atomic(folder / SUPERSEDED_FILE, SUPERSEDED.encode())
        card = folder / MODEL_CARD
        if card.is_file() and MARK not in (text := card.read_text("utf-8")):
            begun = match.end() if (match := _FRONT_MATTER.match(text)) else 0
            write_atomic(card, f"{text[:begun]}{MARK}{text[begun:]}".encode())


def superseded(project: Project) -> list[str]:
    """Return a line on the delivered model if it is marked; for `gate check`."""
    folder = project.phase_dir("finalization") / MODEL_FOLDER
    if not (folder / SUPERSEDED_FILE).exists():
        return []
    return [f"{project.relative(folder)}: superseded, because {REASON}; next: mltrainer run"]


def _trained(project: Project) -> Iterator[TrainedAgain]:
    """Yield the runs of the present plan."""
    planned, known = sound_record(project, "planning"), set[str]()
    for phase in TRAINING:
        record = sound_record(project, phase)
        run = record.evidence.run if record is not None else None
        if planned is None or run is None or run.data_sha256 != planned.evidence.data.sha256 or run.id in known:
            continue
        known.add(run.id)  # the final run may be the baseline's
        yield _trained_again(project, phase, run)


def _trained_again(project: Project, phase: str, run: Run) -> TrainedAgain:
    begun = next((row for row in run.interruptions if row.run is not None), None)
    kept = begun.step if begun is not None else 0
    earlier = (result_of(project, begun.run) if begun is not None and begun.run is not None else None) or {}
    steps, seconds = earlier.get("steps") or 1, earlier.get("time_s", {}).get("train") or 0.0
    return TrainedAgain(
        phase=phase,
        run=run.id,
        begun_by=begun.run if begun is not None else None,
        steps_kept=kept,
        steps=run.steps,
        seconds_kept=seconds * kept / steps,
    )


# --- in words -----------------------------------------------------------------------------------


def _text(answer: Forgetting, closed: Gate | None) -> str:
    lines = [f"{counted(answer.forgotten, 'row')} forgotten in all: {answer.file}, which mltrainer.yaml names; commit both"]
    lines += [f"{one.phase}: {_of_run(one)}" for one in answer.runs]
    if answer.superseded is not None:
        lines.append(f"the delivered model knows the rows, and is marked: {answer.superseded}")
    if closed is not None:
        return "\n".join([*lines, describe(closed)])
    if answer.holds:
        lines.append("all gates hold, and the delivered model never saw the rows; replace copies of the old one elsewhere")
        lines.append("earlier runs still hold what was learned from them: mltrainer runs list, mltrainer runs delete RUN")
    return "\n".join([*lines, *([f"next: {answer.next}"] if answer.next else [])])


def _of_run(one: TrainedAgain) -> str:
    if one.begun_by is None:
        return f"run {one.run} was trained from step 0: no step was saved"
    kept = f"{one.steps_kept} of {one.steps} steps ({percent(one.steps_kept / max(1, one.steps))})"
    return f"run {one.run} goes on from run {one.begun_by}: {kept} were not trained again, about {duration(one.seconds_kept)}"
