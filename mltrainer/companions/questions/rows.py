"""`mltrainer rows`: the samples of a step, an epoch, a finding or a whole run, with a checkpoint's loss and answer on each.

No log of samples is kept: draws are addressed, so that the samples of any step follow from the config. Nothing of the project
changes but a folder in the state folder.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from typer import Option

from mltrainer.checkpointing.manifest import folders, step_of
from mltrainer.cli.common import file_name
from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.findings import Findings, Value
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, UsageError
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.records.job import RowsJob
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult, SpikeSample
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, cut, number, visible
from mltrainer.runs.find import config_of, diagnoses_of, find_run, result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, locked_project, write_atomic, write_text

Label = bool | int | float | str | None  # a class by its name, or a value; one that is not finite is read as JSON holds it


class Content(Findings):
    """Source and content of a sample.

    Attributes:
        place: The sample's file and line, or a similar place.
        cells: Cells of its source, by column.
        picture: A PNG in base64; None if the sample is not a picture.
        values: The first numbers of a sample without cells and picture.
    """

    place: str
    cells: dict[str, str]
    picture: str | None
    values: list[bool | Value]


class Row(Content):
    """A sample with the model's score on it.

    Attributes:
        sample: Its id.
        split: The sample's split.
        loss: Loss of the sample by itself.
        label: The sample's class or value; None if the target is neither.
        answer: The model's prediction, in the same form; None without one.
        share: Probability that the model gives to the label.
        reason: Reason why it is shown.
        then: Loss in the requested step, in training mode; known for the largest losses of a step with a loss spike.
    """

    sample: int
    split: str
    loss: Value
    label: Label
    answer: Label
    share: Value | None
    reason: str | None
    then: Value | None = None


class Facts(Findings):
    """Facts about all shown samples; only requested ones are set.

    Attributes:
        step: The step that took them.
        epoch: The step's epoch.
        as_recorded: Whether the samples match the run's digest; None without a digest.
        recorded_loss: The step's loss, in training mode.
        notes: Notes on the selection.
    """

    step: int | None = None
    epoch: int | None = None
    as_recorded: bool | None = None
    recorded_loss: Value | None = None
    notes: list[str] | None = None


class Samples(Facts):
    """The shown samples, and the number of all."""

    total: int
    rows: list[Row]


class FoundRows(Samples):
    """The samples of a run.

    Attributes:
        run: The run's id.
        chosen: Kind of selection: a `step`, an `epoch`, the `hardest`, the `mislabelled` or the `nonfinite`.
        number: The step or the epoch.
        because: Reason of the selection.
        checkpoint: Checkpoint of the reported losses and answers, in words.
    """

    run: str
    chosen: str
    number: int | None
    because: str | None
    checkpoint: str


TOOL = "row_inspector"
PAGES = (".html", ".md")
SHOWN = 20  # rows, unless asked otherwise; a step has its batch
Chosen = Literal["step", "epoch", "hardest", "mislabelled", "nonfinite"]
OF_RUN: dict[str, Chosen] = {"label_noise": "mislabelled", "nonfinite_data": "nonfinite"}  # findings of samples, not of a step


@dataclass(frozen=True)
class Question:
    """The requested samples.

    Attributes:
        chosen: Kind of selection.
        number: The step or the epoch.
        because: Reason of the selection that a finding gives.
    """

    chosen: Chosen
    number: int | None = None
    because: str | None = None


def rows(
    tools: Tools,
    run: str | None = None,
    *,
    step: int | None = None,
    epoch: int | None = None,
    finding: str | None = None,
    hardest: bool = False,
    mislabelled: bool = False,
    checkpoint: str | None = None,
    most: int | None = None,
    out: Path | None = None,
) -> FoundRows:
    """Return samples of a run, each with its source, its content, and a checkpoint's loss and answer.

    Args:
        tools: The project's tools.
        run: A run's id, a unique prefix of it, or a phase's name; by default the newest phase's run.
        step: Step whose samples are returned.
        epoch: Epoch whose hardest samples are returned.
        finding: Id of a finding of `diagnose` whose samples are returned.
        hardest: Whether to return the samples with the largest losses, of training and validation.
        mislabelled: Whether to return the samples whose label is probably wrong, the surest first.
        checkpoint: Checkpoint that answers: `best`, `last` or a step; by default the nearest to the step or epoch, else the best.
        most: Largest number of samples, the hardest first; by default 20, for a step all.
        out: File of a page with the samples: HTML, or Markdown with its pictures in a folder beside it.

    Raises:
        UsageError: Not exactly one choice is given.
        InputError: The run has no such step, epoch, finding or checkpoint, or a page has another kind of name.
        GateError: The checkpoint is damaged, or the data is not the run's.

    Examples:
        >>> [(row["place"], row["loss"]) for row in project.rows("baseline", step=40)["rows"]][:1]
        [('data/train.csv:117', 2.41)]
    """
    if out is not None and out.suffix not in PAGES:
        ends, hint = f"one that ends in {' or '.join(PAGES)}", f"--out {out.parent / (out.stem + PAGES[0])}"
        raise InputError("the name of a page", expected=ends, found=repr(out.suffix), where="--out", hint=hint)
    project = tools.project
    run = find_run(project, run)
    question = _question(project, run, step, epoch, finding, hardest, mislabelled)
    config = TrainingConfig.model_validate(config_of(project, run))
    with locked_project(project):
        result = partial(RunResult, result_of(project, run) or {})
        place = _checkpoint(project, run, question, checkpoint, result)
        count = SHOWN if most is None and question.chosen != "step" else most
        answer = tools.run(TOOL, _job(project, run, config, question, place, count, _spiked(question, result)))
    because = question.because or _untaken(question, result)
    samples = Samples.model_validate({key: value for key, value in answer.items() if key != "schema"})
    words = "the untrained model" if place is None else f"step {place}"
    shown = FoundRows.of(samples, run=run, chosen=question.chosen, number=question.number, because=because, checkpoint=words)
    if out is not None:
        _write(shown, out)
        tools.note(f"page: {out}")
    return shown


def _job(
    project: Project,
    run: str,
    config: TrainingConfig,
    question: Question,
    step: int | None,
    most: int | None,
    then: list[SpikeSample],
) -> RowsJob:
    folder = project.runs_dir / run
    place = None if step is None else next(path for path in folders(folder / "checkpoints") if step_of(path) == step)
    job = RowsJob(
        run=run,
        folder="",
        run_folder=project.relative(folder),
        checkpoint=None if place is None else project.relative(place),
        config=config,
        chosen=question.chosen,
        number=question.number,
        most=most,
        then=then,
        threads=config.threads,
    )
    return job.model_copy(update={"folder": project.relative(project.state_dir / "rows" / job.name)})


def _untaken(question: Question, result: RunResult) -> str | None:
    """Return a sentence for the samples of a step that was planned and never taken; None otherwise."""
    steps, step = result.steps, question.number
    if question.chosen != "step" or step is None or steps is None:
        return None
    if spikes := [row.step for row in result.skipped or () if row.leaves_out(step)]:
        return f"the run left step {step} out: the loss or the gradient norm of step {spikes[0]} was a spike"
    return None if step <= steps else f"the run ended after step {steps}: step {step} was planned and never taken"


def _spiked(question: Question, result: RunResult) -> list[SpikeSample]:
    """Return the samples with the largest losses of a step with a loss spike, with their losses in it; none for other steps."""
    spikes = result.signals.spikes if question.chosen == "step" and result.signals else []
    return [row for spike in spikes if spike.step == question.number for row in spike.samples]


# --- which checkpoint -----------------------------------------------------------------------------


def _checkpoint(project: Project, run: str, question: Question, asked: str | None, result: RunResult) -> int | None:
    """Return the step of the checkpoint whose losses are reported; None for the untrained model of a run that keeps none."""
    steps = [step for path in folders(project.runs_dir / run / "checkpoints") if (step := step_of(path)) is not None]
    roles = {role: row.step for row in result.checkpoints for role in row.roles if row.step in steps}
    if asked is not None:
        return _asked(asked, steps, roles)
    if question.number is not None:
        step = question.number if question.chosen == "step" else _last_of_epoch(result, question.number)
        # The earlier one of two that are as near, so that the answer is always the same.
        return min(steps, key=lambda one: (abs(one - step), one), default=None)
    return roles.get("best", max(steps, default=None))


def _last_of_epoch(result: RunResult, epoch: int) -> int:
    """Return the last step of an epoch by the run's plan."""
    return epoch * (result.planned_steps or 0) // (result.planned_epochs or 1)


def _asked(asked: str, steps: list[int], roles: Mapping[str, int]) -> int:
    """Return the step of the checkpoint that was named.

    Raises:
        InputError: The run has no such checkpoint.
    """
    wanted = roles.get(asked) if asked in ("best", "last") else int(asked) if asked.isdigit() else None
    if wanted is None or wanted not in steps:
        known = [*(f"{role} (step {step})" for role, step in roles.items()), *steps]
        raise InputError.unknown("checkpoint", asked, known, of="of the run", where="--checkpoint")
    return wanted


# --- questions ------------------------------------------------------------------------------------


def _question(
    project: Project, run: str, step: int | None, epoch: int | None, finding: str | None, hardest: bool, mislabelled: bool
) -> Question:
    """Return the requested choice of samples.

    Raises:
        UsageError: Not exactly one choice is given.
        InputError: The finding is about no samples.
    """
    if [step, epoch, finding].count(None) + (not hardest) + (not mislabelled) != 4:
        what = "expected exactly one of --step, --epoch, --finding, --hardest and --mislabelled"
        raise UsageError(what, hint=f"mltrainer rows {run} --hardest")
    if finding is not None:
        return of_finding(project, run, finding)
    if hardest or mislabelled:
        return Question("hardest" if hardest else "mislabelled")
    return Question("epoch", epoch) if step is None else Question("step", step)


def of_finding(project: Project, run: str, finding: str) -> Question:
    """Return the choice of samples of a finding over a run, with its reason.

    Raises:
        InputError: There is no such finding, it did not fire, or it is about no samples.
    """
    rows = {one.id: one for one in diagnoses_of(project, run)}
    row = rows.get(finding)
    if row is None:
        raise InputError.unknown("diagnostic", finding, rows, where="--finding", hint=f"mltrainer diagnose {run}")
    if row.state != "fired":
        raise InputError(f"{finding} did not fire: {row.reason}", where="--finding", hint=f"mltrainer diagnose {run}")
    if finding in OF_RUN:
        return Question(chosen_of(row), because=row.reason)
    if (step := _step_of(row)) is None:
        hint = f"mltrainer rows {run} --hardest, or name a step: mltrainer rows {run} --step N"
        raise InputError(f"{finding} is about the whole run, not about some of its samples", where="--finding", hint=hint)
    return Question("step", step, row.reason)


def chosen_of(row: Diagnosis) -> Chosen:
    """Return the kind of samples that a finding of `OF_RUN` is about: of noise in quantities those with the largest losses."""
    is_of_quantities = row.id == "label_noise" and row.evidence.get("metric", "accuracy") != "accuracy"
    return "hardest" if is_of_quantities else OF_RUN[row.id]


def has_rows(row: Diagnosis) -> bool:
    """Return True if a finding fired and is about particular samples."""
    return row.state == "fired" and (row.id in OF_RUN or _step_of(row) is not None)


def _step_of(row: Diagnosis) -> int | None:
    step = row.evidence.get("step")
    return step if isinstance(step, int) and step >= 1 else None


LONGEST = 60  # letters of a cell on the terminal
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "article{border-top:1px solid #ccc;padding:.8rem 0;overflow-wrap:anywhere}"
    "img{image-rendering:pixelated;width:96px;float:right}"
    "td{padding:0 1rem 0 0;vertical-align:top}p{margin:.3rem 0}"
)


def text(samples: FoundRows) -> str:
    """Return the samples as a table, under the facts about all of them."""
    heads = ["sample", "split", "loss", "label", "answer", "of label", "where", ""]
    rows = [[*_cells(row), row.reason or _then(row) or _content(row)] for row in samples.rows]
    return "\n".join([*facts(samples), table(rows, heads).rstrip("\n")])


def facts(samples: FoundRows) -> list[str]:
    """Return the facts common to all samples, a sentence each."""
    lines = [_title(samples)]
    lines += [samples.because] if samples.because else []
    if samples.recorded_loss is not None:
        lines.append(f"The step's loss was {number(samples.recorded_loss)}, in training mode.")
    if samples.as_recorded is not None:
        agrees = "are those" if samples.as_recorded else "are NOT those: data, split or seed changed since"
        lines.append(f"The digest of the samples that the run recorded: these {agrees}.")
    lines += [f"Loss and answer of each are those of {samples.checkpoint}, in evaluation mode.", *_apart(samples)]
    return [*lines, *(samples.notes or [])]


def _apart(samples: FoundRows) -> list[str]:
    """Return a sentence on the distance between the requested step and the checkpoint that answers; empty where there is none."""
    words = samples.checkpoint.split()
    if samples.step is None or words[0] != "step" or not (apart := int(words[1]) - samples.step):
        return []
    where = f"{counted(abs(apart), 'step')} {'later' if apart > 0 else 'earlier'} than that"
    return [f"No checkpoint of step {samples.step:,} is kept: this one is {where}, and its answers differ."]


def _title(samples: FoundRows) -> str:
    shown, run, total = len(samples.rows), samples.run, samples.total
    if samples.chosen == "step":
        which = f"its {total} samples, the hardest first" if shown == total else f"the {shown} hardest of its {total} samples"
        return f"Run {run}, step {samples.step} (epoch {samples.epoch}): {which}."
    what = {
        "epoch": f"of the {total} samples of epoch {samples.number}, the {shown} hardest",
        "hardest": f"the {shown} hardest of {total} training and validation samples",
        "mislabelled": f"{shown} samples whose label is probably wrong, of {total} that look so",
        "nonfinite": f"{shown} of the {total} samples that hold NaN or infinity",
    }
    return f"Run {run}: {what[samples.chosen]}."


def _cells(row: Row) -> list[str]:
    share = "" if row.share is None else f"{100 * row.share:.3g} %"
    return [
        str(row.sample),
        row.split,
        number(row.loss),
        _value(row.label),
        _value(row.answer),
        share,
        row.place,
    ]


def _then(row: Row) -> str:
    return "" if row.then is None else f"loss {number(row.then)} in that step"


def _value(value: Label) -> str:
    return "" if value is None else value if isinstance(value, str) else number(value)


def _content(row: Row) -> str:
    """Return a sample's content in one line."""
    cells = ", ".join(f"{name}={value}" for name, value in row.cells.items())
    return cut(cells or " ".join(map(number, row.values)), LONGEST)


# --- pages ----------------------------------------------------------------------------------------


def markdown(samples: FoundRows, folder: str) -> tuple[str, dict[str, bytes]]:
    """Return a page in Markdown, and its pictures by file name.

    Args:
        samples: Samples of `mltrainer rows`.
        folder: Folder of the pictures, relative to the page.
    """
    pictures = {f"{row.sample}.png": base64.b64decode(row.picture) for row in samples.rows if row.picture}
    blocks = [f"# {md.text(_title(samples))}", *(md.text(line) for line in facts(samples)[1:])]
    for row in samples.rows:
        blocks += [f"## Sample {row.sample}", md.text(_sentence(row))]
        blocks += [f"![sample {row.sample}]({folder}/{row.sample}.png)"] if row.picture else []
        blocks += [md.facts((md.text(name), md.text(value)) for name, value in _held(row).items())] if _held(row) else []
    return md.document(blocks), pictures


def _write(samples: FoundRows, out: Path) -> None:
    """Write a page of the samples; its name ends in one of `PAGES`."""
    if out.suffix == ".html":
        write_text(out, page(samples))
        return
    folder = out.with_name(f"{out.stem}_pictures")
    shown, pictures = markdown(samples, folder.name)
    for name, data in pictures.items():
        write_atomic(folder / name, data)
    write_text(out, shown)


def page(samples: FoundRows) -> str:
    """Return a page in HTML with its pictures in it; it has no script, and its policy allows none."""
    articles = "\n".join(_article(row) for row in samples.rows)
    lines = "\n".join(f"<p>{_escaped(line)}</p>" for line in facts(samples)[1:])
    title = _escaped(_title(samples))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{lines}\n{articles}\n</body></html>\n"
    )


def _article(row: Row) -> str:
    source = f"data:image/png;base64,{row.picture}"
    picture = f'<img src="{source}" alt="sample {row.sample}">' if row.picture else ""
    cells = "".join(f"<tr><td>{_escaped(name)}</td><td>{_escaped(value)}</td></tr>" for name, value in _held(row).items())
    held = f"<table>{cells}</table>" if cells else ""
    return f"<article>{picture}<h2>Sample {row.sample}</h2><p>{_escaped(_sentence(row))}</p>{held}</article>"


def _sentence(row: Row) -> str:
    _, split, loss, label, answer, share, place = _cells(row)
    description = f"{place} ({split}): loss {loss}"
    description += f", label {label}" if label else ""
    description += f", answer {answer}" if answer else ""
    description += f", {share} for its label" if share else ""
    return description + "".join(f"; {more}" for more in (row.reason, _then(row)) if more)


def _held(row: Row) -> dict[str, str]:
    """Return a sample's cells, or its first numbers."""
    values = {"values": ", ".join(map(number, row.values))} if row.values else {}
    return {name: visible(cell) for name, cell in row.cells.items()} or values


def _escaped(value: object) -> str:
    return html.escape(visible(value))


app = command(
    rows,
    text,
    name="rows",
    help="Show which samples a step, an epoch or a finding is about, where they come from, and the model's loss and answer "
    "on each.\n\nWithout RUN: the newest phase's run. No gate, no record and no run changes; the test split stays sealed.",
    example="mltrainer rows baseline --step 120",
    step=Option(min=1, metavar="N", help="The samples of a step."),
    epoch=Option(min=1, metavar="E", help="The hardest samples of an epoch."),
    finding=Option(metavar="ID", help="The samples that a finding is about, such as nan_loss."),
    hardest=Option("--hardest", help="The samples with the largest losses, of training and validation."),
    mislabelled=Option("--mislabelled", help="The samples whose label is probably wrong, the surest first."),
    checkpoint=Option(
        metavar="WHICH", help="best, last or a step; default: the one nearest to the step or epoch, else the best."
    ),
    most=Option(min=1, max=10_000, metavar="K", help="Number of shown samples; default: 20, for a step all."),
    out=Option(metavar="FILE", parser=file_name, help="Write a page: .html, or .md with its pictures beside it."),
)
