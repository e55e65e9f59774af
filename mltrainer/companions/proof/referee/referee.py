"""`mltrainer referee SOURCE --data FILE`: a project judged by somebody else, from its committed code and config alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import mltrainer
from mltrainer.checkpointing.manifest import START_FOLDER, folder_name
from mltrainer.cli.common import AsJson, group, path_name, share_of_one
from mltrainer.cli.output import show
from mltrainer.companions.proof.audit import audit
from mltrainer.companions.proof.committed import TOOL
from mltrainer.companions.proof.findings import Audit, Score, Scored
from mltrainer.companions.proof.referee.checking import (
    checked_audit,
    checked_digest,
    checked_files,
    checked_gates,
    checked_held,
    checked_judged,
    checked_scores,
    checked_training,
    comparable,
    named_modules,
)
from mltrainer.companions.proof.referee.closing import ASK, closed_tools, empty_state, moved, why_open
from mltrainer.companions.proof.referee.copying import Copy, clean_copy, data_paths, placed_data, remove_own_tools
from mltrainer.companions.proof.referee.rows import TEXTS, row_count, shared_rows, table
from mltrainer.companions.proof.referee.words import document, text
from mltrainer.configs.items import FinalizationSettings
from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import production_template
from mltrainer.errors import InputError, MltrainerError, StoppedError
from mltrainer.follow.progress import Progress
from mltrainer.gates.gate import check_gates
from mltrainer.gates.verdicts import PHASE
from mltrainer.leftovers import scratch
from mltrainer.records.finalization import Finalization
from mltrainer.records.job import ScoreJob
from mltrainer.records.run import RunResult
from mltrainer.records.verdict import VERDICT_FILE, Checked, HeldRows, Sample, Verdict
from mltrainer.reproducibility.fingerprint import CHAIN_FILE
from mltrainer.runs.launcher import Tell, Tools
from mltrainer.runs.recorded import recorded_job
from mltrainer.runs.reproduce import known_differences
from mltrainer.runs.retrain import computes_otherwise
from mltrainer.runs.trainer import trainer_for
from mltrainer.workspace import Project, machine_faults, seal, sha256_file, write_json, write_text

TRAINED = "trained"  # the folder beside the copy that takes the trained checkpoint
AUDITED = (CHAIN_FILE, "checkpoints", START_FOLDER)  # of the author's folder of a run, which holds results, too
UNCHECKED = (
    "numbers of the baseline, the search and the plain models: the referee trains the final run alone",
    "exported formats beside the weights, and times and memory",
)
COMBINED = "the delivered weights and their metrics: several models were combined, and the referee trains the final run alone"
OWN_SPLIT = "the held rows: the author's test split is drawn from the same file, which only split: {held_by: ...} avoids"
NOTHING_RAN = "the training and the weights: nothing runs of a project whose gates or code do not hold"
OF_A_PROGRAM = "the program measures itself, and only it can read its model: the numbers are its own"
OF_A_TASK = "the task is the project's own code, which computes the metrics"
OF_CODE = "code of the project's own takes part where the model is trained or measured"

SHARED_ROWS = "held rows that the author's data has"
UNCOUNTED = "the number of held rows that were judged: the rows of this file cannot be counted without the project's config"

app = group()


@dataclass(frozen=True)
class RefereeRequest:
    """The arguments of `referee`, where they are explained; `share` is that of the steps to train again, None: all of them."""

    source: str
    data: Sequence[Path]
    held: Path | None
    share: float | None
    nonce: str | None
    checkpoints: Path | None
    not_closed_off: bool = False


@app.command(epilog="Example: mltrainer referee ../their-project --data all-author.csv --held all-held.csv")
def referee(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The author's project: a clone, a folder, or a git address.")],
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="FILE", parser=path_name, help="Your own copy of the data that the author had."),
    ] = None,
    held: Annotated[
        Path | None, typer.Option("--held", metavar="FILE", parser=path_name, help="The rows that the author never had.")
    ] = None,
    segments: Annotated[
        float | None,
        typer.Option("--segments", metavar="SHARE", parser=share_of_one, help="Train only a random share again, such as 5%."),
    ] = None,
    nonce: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With --segments: your text that selects them (default: a random one).")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=path_name, help="With --segments: the author's folder of the run, with checkpoints."),
    ] = None,
    not_closed_off: Annotated[
        bool, typer.Option("--not-closed-off", help="Run the author's code also where it cannot be closed off, such as on a GPU.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="PATH", parser=path_name, help="The verdict's file or folder; a .md is beside it."),
    ] = Path(VERDICT_FILE),
    as_json: AsJson = False,
) -> int:
    """Judge a project as somebody who trusts nothing of it but the committed code and config; exit 5 if a value does not hold.

    It copies what is committed, puts your data in its place, and trains the final run again in a process that sees
    no folder `phases`, git history, environment, network or other file. The author's code and other committed files can still
    contain the numbers: read them. It then measures the weights with mltrainer's own evaluator, on --held too,
    and compares each value with the author's record: the same to the last bit, within an interval, or neither.
    Where a gate is closed or the code is not the recorded one, it runs nothing. Where the process cannot be closed off: exit 7.

    With --segments and --checkpoints it trains only a random part of the run again.
    """
    if (segments is None) is not (checkpoints is None):
        raise typer.BadParameter("--segments and --checkpoints belong together.", param_hint="'--segments'")
    if nonce is not None and segments is None:
        raise typer.BadParameter("--nonce needs --segments.", param_hint="'--nonce'")
    checkpoints = checkpoints and checkpoints.resolve()
    out = out / VERDICT_FILE if out.is_dir() else out
    with scratch("referee-") as work, Progress() as tell:
        verdict = judged(
            RefereeRequest(source, data or [], held, segments, nonce, checkpoints, not_closed_off), work / "work", tell
        )
    write_json(out, verdict.written())
    write_text(out.with_suffix(".md"), document(verdict))
    show(verdict, lambda found: text(found, out), as_json)
    return 0 if verdict.holds else 5


def judged(request: RefereeRequest, work: Path, tell: Tell) -> Verdict:
    """Return the verdict on a project.

    Args:
        request: The command's arguments.
        work: The folder of the clean copy, which is made.
        tell: The function that shows an event.

    Raises:
        InputError: There is no project, or a file is missing.
        GateError: It has no sound record of finalization.
        MachineError: Its training cannot be closed off here, and the referee does not allow that.
    """
    copy = clean_copy(request.source, work)
    gates = checked_gates(check_gates(copy.project))  # by the records alone, before the data is here
    remove_own_tools(copy.project)
    data = placed_data(copy, request.data)
    evidence = copy.record.evidence
    config = TrainingConfig.model_validate(evidence.config)
    differences = known_differences(copy.project, evidence.run)
    checked = [gates, *checked_files(differences), *_of_held_file(config, data, request.held)]
    open_, trained, found = None, NOT_RUN, _Scores([], [NOTHING_RAN])
    if gates.outcome != "no" and all(row.kind != "code" for row in differences):
        open_ = why_open(config, request.not_closed_off)
        trained, found = _trained_and_scored(request, copy, data, tell, is_closed=open_ is None)
    checked += [*trained.checked, *found.checked]
    is_measured = found.held is not None or config.split.held_by is None
    unchecked = [
        *UNCHECKED,
        *_of_author(copy, data),
        *_uncompared(data, request.held),
        *trained.unchecked,
        *found.unchecked,
        *([] if is_measured else [_unmeasured(config)]),
    ]
    content: dict[str, Any] = {
        "schema": 1,
        "project": copy.record.project.name,
        "commit": copy.commit,
        "record": copy.record.seal,
        "run": evidence.run.id,
        "made": datetime.now(UTC).date().isoformat(),
        "version": mltrainer.__version__,
        "open": open_,
        "foreign": _foreign(config, copy, trained.imported),
        "sample": trained.sample and trained.sample.written(),
        "checked": [row.written() for row in checked],
        "held": found.held and found.held.written(),
        "unchecked": unchecked,
        "differences": [row.written() for row in differences if row.kind == "environment"],
        "seconds": trained.seconds,
        "recorded_seconds": evidence.run.wall_s,
    }
    return Verdict.model_validate(seal(content))


def _unmeasured(config: TrainingConfig) -> str:
    return f"the rows that {config.split.held_by} holds: give their file as --held"


def _foreign(config: TrainingConfig, copy: Copy, imported: Sequence[str]) -> str | None:
    """Return a sentence on the project's own code that ran, file by file; None if none did."""
    if config.task.is_opaque:
        return OF_A_PROGRAM
    recorded = [row.path for row in copy.record.evidence.run.code_files]
    files = sorted({*imported, *recorded, *named_modules(config.model_dump(), copy.project.root)})
    parts = [OF_A_TASK] if config.task.kind is None else [OF_CODE] if files else []
    return "; ".join([*parts, *([f"read {', '.join(files)}"] if files else [])]) or None


def _of_held_file(config: TrainingConfig, data: Sequence[Path], held: Path | None) -> Iterator[Checked]:
    """Yield rows that compare the held rows with those that the config names and with the author's data."""
    if held is None:
        return
    if not held.is_file():
        raise InputError("no such file", where=str(held), hint="name the held file that mltrainer hold-out wrote")
    if config.split.held_by is not None:
        yield checked_digest("file of the held rows", config.split.held_sha256, sha256_file(held))
    if config.split.held_by is not None and (count := _held_count(config, held)) is not None:
        same = count == config.split.held_rows
        row = {"what": "rows of that file", "recorded": str(config.split.held_rows), "found": str(count)}
        yield Checked.model_validate({**row, "outcome": "same" if same else "no"})
    if others := _comparable(data, held):
        rows = table(held)
        count = sum(shared_rows(rows, table(path)) for path in others)
        yield Checked(what=SHARED_ROWS, recorded="0", found=str(count), outcome="no" if count else "same")


def _of_author(copy: Copy, data: Sequence[Path]) -> list[str]:
    """Return a sentence on each file of the data that the author committed and the referee did not give."""
    return [f"{name} against your own copy: --data names none" for name, path in data_paths(copy).items() if path not in data]


def _held_count(config: TrainingConfig, held: Path) -> int | None:
    """Return the number of rows to judge; None where it is not known, as where texts are cut into samples."""
    return None if config.data is None or config.task.kind == "text_generation" else row_count(held, config.data)


def _comparable(data: Sequence[Path], held: Path) -> list[Path]:
    """Return the files of the author's data whose rows can be compared with the held ones, byte for byte."""
    suffix = held.suffix.lower()
    return [path for path in data if path.suffix.lower() == suffix] if suffix in TEXTS else []


def _uncompared(data: Sequence[Path], held: Path | None) -> list[str]:
    """Return a sentence on held rows that cannot be compared with the data, as the files are of other kinds; else nothing."""
    if held is None:
        return []
    others = [path.name for path in data if path not in _comparable(data, held)]
    if data and not others:
        return []
    why = f"{held.name} and {', '.join(others) or 'no file of --data'} are not of one format of text ({', '.join(TEXTS)})"
    return [f"{SHARED_ROWS}: {why}"]


# --- training ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """What the referee trained.

    Attributes:
        checked: What was compared.
        checkpoint: The folder of the best checkpoint; None: there is none to measure.
        seconds: The time of the training.
        sample: The part that was trained; None: all.
        unchecked: What could not be compared on this machine.
        imported: The files of the project's own code that the training imported.
        is_elsewhere: Whether the author's machine is of another numerics class.
    """

    checked: list[Checked]
    checkpoint: Path | None
    seconds: float
    sample: Sample | None = None
    unchecked: list[str] = field(default_factory=list)
    imported: list[str] = field(default_factory=list)
    is_elsewhere: bool = False


NOT_RUN = Trained([Checked(what="the training", recorded="finished", found="not run: see above", outcome="no")], None, 0.0)


def _trained_and_scored(
    request: RefereeRequest, copy: Copy, data: list[Path], tell: Tell, *, is_closed: bool
) -> tuple[Trained, _Scores]:
    visible = [*data, copy.work / TRAINED, *_audited(request.checkpoints)]
    with closed_tools(copy.project, tell, visible, is_closed=is_closed) as tools:
        trained = _trained(tools, copy, request)
        empty_state(copy.project)
        return trained, _scores(tools, copy, trained, request.held)


def _trained(tools: Tools, copy: Copy, request: RefereeRequest) -> Trained:
    """Train the final run again, or a part of it; what cannot be trained does not hold."""
    try:
        if request.share is None or request.checkpoints is None:
            return _whole(tools, copy)
        return _part(tools, copy, request.share, request.nonce, request.checkpoints)
    except StoppedError:
        raise
    except MltrainerError as error:
        # The referee's own mistake, such as a wrong folder, is found before anything is trained.
        if isinstance(error, InputError) and error.where == str(request.checkpoints):
            raise
        return Trained([_failed("the training", error)], None, 0.0)


def _failed(what: str, error: MltrainerError) -> Checked:
    return Checked(what=what, recorded="finished", found=str(error).partition("\n")[0], outcome="no")


def _whole(tools: Tools, copy: Copy) -> Trained:
    project, recorded = tools.project, copy.record.evidence.run
    folder = project.runs_dir / recorded.id
    job = recorded_job(project, PHASE, recorded, folder).model_copy(update={"purpose": "train"})
    again: RunResult = trainer_for(tools, job.config.task.trainer, PHASE).run(job)
    best = again.best_checkpoint
    checkpoint = None if best is None else moved(project, best.path, copy.work / TRAINED)
    is_elsewhere = computes_otherwise(recorded, again)
    checked, apart = comparable(checked_training(recorded, again), is_elsewhere=is_elsewhere)
    imported = [row.path for row in again.code_files]
    return Trained(checked, checkpoint, again.wall_s, unchecked=apart, imported=imported, is_elsewhere=is_elsewhere)


def _part(tools: Tools, copy: Copy, share: float, nonce: str | None, saved: Path) -> Trained:
    recorded = copy.record.evidence.run
    found: Audit = audit(tools, recorded.id, share, nonce, saved)
    best = saved / "checkpoints" / folder_name(recorded.best.step) if recorded.best is not None else None
    sample = Sample(steps=found.steps, replayed=found.replayed, nonce=found.nonce, missed=found.missed[0].probability)
    return Trained([*checked_audit(found)], best if best and best.is_dir() else None, found.seconds, sample)


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scores:
    checked: list[Checked]
    unchecked: list[str]
    held: HeldRows | None = None


def _scores(tools: Tools, copy: Copy, trained: Trained, held: Path | None) -> _Scores:
    """Measure the weights that were trained and compare; that they cannot be measured does not hold.

    Code of the project's own can end the process in any way, so the kind of an error says nothing.
    """
    try:
        return _measured(tools, copy, trained, held)
    except StoppedError:
        raise
    except MltrainerError as error:
        return _Scores([_failed("the measuring", error)], [])


def _measured(tools: Tools, copy: Copy, trained: Trained, held: Path | None) -> _Scores:
    """Measure the weights that were trained, on the author's splits and on the held rows, and compare."""
    evidence = copy.record.evidence
    config = TrainingConfig.model_validate(evidence.config)
    if evidence.delivered_combination is not None:
        return _Scores([], [COMBINED])
    if trained.checkpoint is None or config.task.is_opaque:
        return _Scores([], ["the weights: there is no checkpoint to measure"])
    if held is None or config.task.kind is None or config.split.test > 0:
        splits = ["validation", *(["test"] if evidence.test.samples else [])]
        scored = _scored(tools, evidence, config, trained.checkpoint, splits)
        checked, apart = comparable(checked_scores(evidence, scored), is_elsewhere=trained.is_elsewhere)
        return _Scores(checked, [*apart, *([] if held is None else [OWN_SPLIT])])
    assert config.data is not None
    place, count = _placed(tools.project, held), _held_count(config, held)
    with_held = config.model_copy(update={"data": config.data.model_copy(update={"test": place})})
    scored = _scored(tools, evidence, with_held, trained.checkpoint, ["validation", "test"])
    of_author = scored.model_copy(update={"splits": {"validation": scored.splits["validation"]}})
    of_weights, apart = comparable(checked_scores(evidence, of_author), is_elsewhere=trained.is_elsewhere)
    rows = _held_rows(config, held, scored.splits["test"])
    checked = [
        *of_weights,
        *checked_judged(rows.sha256, count, place, scored),
        *checked_held(config, evidence.validation, scored.splits["validation"], scored.splits["test"]),
    ]
    return _Scores(checked, [*apart, *([] if count is not None else [UNCOUNTED])], rows)


def _audited(run: Path | None) -> list[Path]:
    """Return the paths in the author's folder of a run that a process that audits sees."""
    return [path for name in AUDITED if run is not None and (path := run / name).exists()]


def _placed(project: Project, held: Path) -> str:
    """Copy the held file, now that nothing trains which could see it, and return its path, relative to the project."""
    place = project.state_dir / "held" / held.name
    with machine_faults(str(place)):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(held, place)
    return os.path.relpath(place, project.root)


def _held_rows(config: TrainingConfig, held: Path, score: Score) -> HeldRows:
    return HeldRows(
        by=config.split.held_by or "the referee",
        samples=score.samples,
        sha256=sha256_file(held),
        metrics=score.metrics,
        intervals=score.intervals,
        level=_interval()["level"],
    )


def _scored(tools: Tools, evidence: Finalization, config: TrainingConfig, checkpoint: Path, splits: list[str]) -> Scored:
    project = tools.project
    job = ScoreJob.model_validate(
        {
            "run": evidence.run.id,
            "folder": project.relative(project.state_dir / "scores" / evidence.run.id),
            "config": config,
            "threads": config.threads,
            "checkpoint": str(checkpoint),
            "scored": splits,
            "trained": production_template(project.root)["export"].get("trained", False),
            "recorded_sha256": evidence.delivered_sha256,
            "interval": {**_interval(), "loss": "loss" in config.acceptance},
        }
    )
    try:
        scored = Scored.model_validate(tools.run(TOOL, job))
    except (TypeError, ValueError) as error:
        raise InputError("the process that measured left no scores", hint=ASK) from error
    if lacking := [split for split in splits if split not in scored.splits]:
        raise InputError(f"the process that measured left no score of {', '.join(lacking)}", hint=ASK)
    return scored


def _interval() -> dict[str, Any]:
    """Return the settings of intervals: the shipped ones, since with its own a project could have wider ones."""
    shipped = FinalizationSettings.model_validate(phase_page(PHASE, None).settings)
    return {"level": shipped.interval_level, "resamples": shipped.interval_resamples, "numbers": shipped.interval_numbers}
