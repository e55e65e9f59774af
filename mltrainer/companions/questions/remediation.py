"""`mltrainer diagnose --try` and `--apply`: changes that may cure what fired, tried side by side, and one written as a patch.

A trial reads the records and changes none: it needs only planning's gate, and makes nothing stale. Its runs are
ordinary runs, which are reused and continued. An applied change edits files that people write, for planning to read.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mltrainer import handbook
from mltrainer.cli.common import tools
from mltrainer.cli.output import emit, show
from mltrainer.companions.questions.findings import Findings, Value
from mltrainer.companions.questions.variants import (
    ChangedKey,
    MeasuredRun,
    changed_keys,
    planning_of,
    require_one_trainer,
    swap_text,
    trained,
)
from mltrainer.configs import yaml
from mltrainer.configs.components import Swap
from mltrainer.configs.editing import edited
from mltrainer.configs.loading import as_typed, assign, read_text, validate, validate_values
from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import ProjectConfig, TrainingConfig
from mltrainer.configs.templates import BASELINE, TrainingChanges, baseline_template
from mltrainer.diagnostics.remedies import CURES, HELPS, Outcome, candidates, ranked, symptoms_of, verdict
from mltrainer.diagnostics.remedies import Candidate as Change
from mltrainer.diagnostics.rules import changes_to_try, diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.phases.context import Context
from mltrainer.phases.planning import CONFIG_FILE, Plan, config_text, plan_config
from mltrainer.phases.present_config import require_no_secret
from mltrainer.records.common import MetricChoice
from mltrainer.records.reading import sound_record
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, duration, number
from mltrainer.reproducibility import git
from mltrainer.runs.find import config_of, diagnoses_of, find_run, references_of, result_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, locked_project, write_atomic


class LeftOut(Findings):
    """A diagnostic or change that a trial does not judge, and the reason."""

    name: str
    reason: str


class Training(Findings):
    """Outcome of a training.

    Attributes:
        run: The run's id.
        value: The metric; NaN for a failed run.
        reason: Reason of the failure; None without one.
        wall_s: Wall time in seconds.
        fired: The diagnostics that fired.
        critical: The critical ones of them.
        fit: Verdict: good, overfitting, underfitting or unknown.
        samples: Number of rows that the metric is a share of; None if it is no share.
        beats_constant: Whether the metric is better than a constant answer's; None if unknown.
    """

    run: str
    value: Value
    reason: str | None
    wall_s: Value | None
    fired: list[str]
    critical: list[str]
    fit: str
    samples: int | None
    beats_constant: bool | None = None


class Candidate(Training):
    """A training with a change of the config, and the verdict on it.

    Attributes:
        candidate: Name of the change.
        why: Source or purpose of the change.
        changes: New values by dotted key.
        keys: Changed keys with old and new value.
        verdict: Verdict in a word or two.
        because: Reason of the verdict.
        command: Command that adopts the change.
    """

    candidate: str
    why: str
    changes: dict[str, Any]
    keys: list[ChangedKey]
    verdict: str
    because: str
    command: str


class Trial(Findings):
    """Effect of changes on the findings over a run.

    Attributes:
        run: The run.
        epochs: Epochs of each training.
        metric: The metric.
        fired: The diagnostics that fired on the run.
        left_out: Diagnostics and changes that are not judged.
        symptoms: The diagnostics that fire on the trial's unchanged config, too.
        unchanged: Training of the unchanged config; None if nothing was trained.
        rows: The candidates, the best first.
        best: The best candidate; None if none helps.
    """

    run: str
    epochs: int
    metric: MetricChoice
    fired: list[str]
    left_out: list[LeftOut]
    symptoms: list[str]
    unchanged: Training | None
    rows: list[Candidate]
    best: Candidate | None


class WrittenFile(Findings):
    """A file with a written change: its path within the project, and whether it is new."""

    path: str
    is_new: bool


class Applied(Findings):
    """A change that was written: its keys, the files, the unified diff, and the commands to type next."""

    changes: dict[str, Any]
    files: list[WrittenFile]
    diff: str
    next: list[str]


PHASE = "diagnose"  # the phase that its runs name
ON_OWN_SEED = 0
NO_TIMES = "trainings side by side do not show how fast each would be alone"
MODELS: dict[str, Any] = {"template": TrainingChanges, "project": ProjectConfig, "config": TrainingConfig}


# --- trying ---------------------------------------------------------------------------------------


def try_fixes(tools: Tools, run: str = "baseline", *, epochs: int | None = None) -> Trial:
    """Train changes that may cure a run, and its unchanged config, on the same seed; diagnose each, and return its effect.

    No gate and no record changes; earlier runs are reused.

    Args:
        tools: The project's tools.
        run: A run's id, a unique prefix of it, or a phase's name.
        epochs: Epochs of each training; by default the run's planned epochs.

    Returns:
        The candidates, the best first; if nothing fired, nothing is trained and there are none.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: The run has no result, or had no more than `epochs`.
        StoppedError: A signal stopped it; the same call continues.

    Examples:
        >>> found = project.try_fixes()
        >>> [(row["candidate"], row["verdict"]) for row in found["rows"]]
        [('the shipped baseline template', 'cures'), ('optimizer.lr=0.002', 'helps')]
    """
    project = tools.project
    run = find_run(project, run)
    with locked_project(project):
        diagnoses = diagnoses_of(project, run)
        fired = symptoms_of(diagnoses)
        config = _shortened(TrainingConfig.model_validate(config_of(project, run)), epochs)
        asked, left_out = candidates(diagnoses, config, baseline_template(None), is_shorter=epochs is not None)
        left_out += [{"name": row.id, "reason": NO_TIMES} for row in diagnoses if row.state == "fired" and row.id not in fired]
        nothing = Trial(
            run=run,
            epochs=config.epochs,
            metric=MetricChoice.model_validate(config.metric.model_dump()),
            fired=fired,
            left_out=[LeftOut.model_validate(row) for row in left_out],
            symptoms=fired,
            unchanged=None,
            rows=[],
            best=None,
        )
        return _tried(tools, nothing, config, asked) if asked else nothing


def _shortened(config: TrainingConfig, epochs: int | None) -> TrainingConfig:
    """Return the config with fewer epochs.

    Raises:
        InputError: They are not fewer, or the config is not valid with them.
    """
    if epochs is None:
        return config
    if epochs > config.epochs:
        most, hint = (
            f"fewer epochs than the {config.epochs} of the run",
            f"leave --epochs out, or --epochs {config.epochs // 2 or 1}",
        )
        raise InputError("a shorter trial", expected=most, found=epochs, where="--epochs", hint=hint)
    return validate_values(TrainingConfig, {**config.model_dump(), "epochs": epochs}, f"--epochs {epochs}")


def _tried(tools: Tools, trial: Trial, config: TrainingConfig, asked: list[Change]) -> Trial:
    """Return a trial with the effect of the changes."""
    project = tools.project
    # Checked only now: a trial without candidates trains nothing, and needs no gate.
    planning = planning_of(project, "a trial of changes")
    require_one_trainer(project, "a trial of changes")
    require_no_secret([one.changes for one in asked])
    swaps = [Swap(one.name, one.changes) for one in asked]
    tools.note(f"run {trial.run}: {', '.join(trial.fired)} fired; training {len(asked)} changes beside the unchanged config")
    references = references_of(project, trial.run)
    sides = trained(tools, planning, config, swaps, ON_OWN_SEED, PHASE).sides
    unchanged, *others = (_training(project, side, trial.run, references) for (side,) in sides)
    # A symptom that the unchanged config does not reproduce cannot be shown to be cured.
    symptoms = [name for name in trial.fired if name in unchanged.fired]
    rows = [_row(config, one, unchanged, after, symptoms, len(asked)) for one, after in zip(asked, others, strict=True)]
    best = ranked(rows, config.metric.mode)
    helps = best[0].verdict in (CURES, HELPS)
    outcome = {"symptoms": symptoms, "unchanged": unchanged, "rows": best, "best": best[0] if helps else None}
    return trial.model_copy(update=outcome)


def _training(project: Project, side: MeasuredRun, run: str, references: Mapping[str, Any] | None) -> Training:
    """Return the outcome of a training beside a run that plain models were compared with; one that died left no result."""
    result, outcome = result_of(project, side.run), Outcome([], [], "unknown", side.value)
    if result is not None:
        beside = references if side.run == run else _without_verdicts(references)
        judged = Run.of(result, beside, config_of(project, side.run))
        outcome = Outcome.of(diagnose(judged, project.root), judged, side.value)
    return Training(run=side.run, reason=side.reason, wall_s=side.wall_s, **asdict(outcome))


def _without_verdicts(references: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a comparison with plain models without its verdicts, which are on the run that was compared: another has its own."""
    if references is None:
        return None
    return {**references, "rows": [{**row, "lead": None, "verdict": None} for row in references["rows"]]}


def _row(config: TrainingConfig, one: Change, before: Training, after: Training, symptoms: list[str], changes: int) -> Candidate:
    word, why = verdict(_outcome(before), _outcome(after), symptoms, config.metric.mode, changes)
    return Candidate.of(
        after,
        candidate=one.name,
        why=one.why,
        changes=one.changes,
        keys=changed_keys(config, Swap(one.name, one.changes)),
        verdict=word,
        because=why,
        command=command(one.changes),
    )


def _outcome(side: Training) -> Outcome:
    return Outcome(**{one.name: getattr(side, one.name) for one in fields(Outcome)})


def command(changes: Mapping[str, Any]) -> str:
    """Return the command that adopts a change."""
    return f"mltrainer phase run planning {as_typed(changes)}"


# --- applying -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file that a change is written into.

    Attributes:
        path: Path relative to the project.
        kind: Key of its model in `MODELS`.
        old: Present text; for a new file, the text of the shipped file.
        is_new: Whether the file does not exist yet.
    """

    path: str
    kind: str
    old: str
    is_new: bool


def _first_suggestion(project: Project, run: str) -> dict[str, Any]:
    """Return the first change that the diagnostics of a run suggest, critical ones first.

    Raises:
        InputError: No change is suggested, or the run has no result.
    """
    suggested = changes_to_try(diagnoses_of(project, run), config_of(project, run))
    if not suggested:
        message = f"nothing is suggested for run {run}: no diagnostic that fired proposes a change of its config"
        raise InputError(message, hint=f"mltrainer diagnose {run} -v shows each diagnostic with what was measured")
    return suggested[0].set


def apply_fix(tools: Tools, changes: Mapping[str, Any] | None = None, *, run: str = "baseline") -> Applied:
    """Write a change of the config into the project's own files, for a person to review and planning to take up.

    A key is written where its present value comes from: an edited key of `training_config.yaml` or `mltrainer.yaml` there,
    any other into the project's own baseline template, which begins as a copy of the shipped one.

    Args:
        tools: The project's tools.
        changes: Values by dotted key, such as a row's `changes` of `try_fixes`; by default the first suggested change.
        run: Run whose diagnostics suggest the change: its id, a unique prefix of it, or a phase's name.

    Raises:
        InputError: Nothing is suggested, a value does not fit, a file has uncommitted changes, or the values are already
            there; nothing is written then.
    """
    project = tools.project
    changes = _first_suggestion(project, find_run(project, run)) if changes is None else dict(changes)
    with locked_project(project):
        require_no_secret(changes)
        plan = _present(tools)
        texts = {file: text for file, text in _rewritten(project, plan, changes).items() if text != file.old}
        if not texts:
            raise InputError("nothing to apply: the files hold the proposed values already", hint="mltrainer phase run planning")
        # Checked only now: a file that does not change may have uncommitted changes.
        _require_committed(project, [file.path for file in texts if not file.is_new])
        for file, text in texts.items():
            write_atomic(project.root / file.path, text.encode())
    return Applied(
        changes=changes,
        files=[WrittenFile(path=file.path, is_new=file.is_new) for file in texts],
        diff="".join(_diff(file, text) for file, text in texts.items()),
        next=_next([file for file in texts if file.is_new]),
    )


def _present(tools: Tools) -> Plan:
    """Return the plan that planning would make of the present files."""
    project = tools.project
    current = sound_record(project, "planning")
    return plan_config(Context(project, phase_page("planning", project.root), {}, current, None, (), tools.tell, tools.launch))


def _rewritten(project: Project, plan: Plan, changes: Mapping[str, Any]) -> dict[_File, str]:
    """Return the text of each file that holds a key of a change."""
    # The whole config first: each file by itself may be valid where together they are not.
    validate_values(TrainingConfig, assign(plan.config.model_dump(), changes.items()), "--apply")
    parts: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        parts.setdefault(_kind(key.split(".")[0], plan), {})[key] = value
    files = {kind: _file(project, kind) for kind in parts}
    return {file: _with_values(file, parts[kind]) for kind, file in files.items()}


def _kind(group: str, plan: Plan) -> str:
    """Return the kind of file that decides a config group; edits of the training config override project file and template."""
    if any(key.split(".")[0] == group for key in plan.edited):
        return "config"
    if group in ProjectConfig.model_fields:
        return "project"
    return "template" if plan.template == BASELINE else "config"


def _file(project: Project, kind: str) -> _File:
    own = project.phase_dir("planning") / CONFIG_FILE
    path = {"template": project.root / BASELINE, "project": project.file, "config": own}[kind]
    is_new = kind == "template" and not path.exists()
    source = handbook.locate(BASELINE, None)[0] if is_new else path
    # Without the byte order mark, which some editors on Windows write.
    return _File(project.relative(path), kind, read_text(source, "the file").decode("utf-8-sig"), is_new)


def _with_values(file: _File, changes: Mapping[str, Any]) -> str:
    """Return a file's text with other values.

    Raises:
        InputError: A value is not valid, or the file's layout does not allow a change of a single key.
    """
    values = assign(yaml.parse(file.old.encode(), file.path).value, changes.items())
    validate(MODELS[file.kind], yaml.Document(values, {}, file.path))
    # Planning writes the training config, so it may be rewritten; the other files hold a person's comments.
    text = edited(file.old, values) or (config_text(values) if file.kind == "config" else None)
    if text is None:
        raise InputError("the file's layout does not allow a change of a single key", where=file.path, hint=command(changes))
    return text


def _require_committed(project: Project, paths: list[str]) -> None:
    """Refuse to mix a change with others that are not committed; outside a repository this is not checked.

    Raises:
        InputError: The listed files have uncommitted changes.
    """
    try:
        git.locate(project.root)
        dirty = git.run(project.root, "status", "--porcelain", "--", *paths).decode(errors="replace") if paths else ""
    except git.GitError:
        return
    if dirty:
        files = ", ".join(line[3:] for line in dirty.splitlines())
        raise InputError(
            f"{files}: changes that are not committed would mix with the proposed one; nothing was written",
            hint="commit or undo them, then type the same command again",
        )


def _diff(file: _File, text: str) -> str:
    before = f"{file.path} (as shipped)" if file.is_new else f"a/{file.path}"
    lines = difflib.unified_diff(file.old.splitlines(), text.splitlines(), before, f"b/{file.path}", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _next(new: list[_File]) -> list[str]:
    # git diff shows no untracked file.
    added = [f"git add --intent-to-add {file.path}" for file in new]
    return [*added, "git diff", "mltrainer phase run planning"]


def text(trial: Trial) -> str:
    """Return a trial's table as text for the terminal, the best first, with the next command."""
    left_out = [f"not judged: {one.name}: {one.reason}" for one in trial.left_out]
    metric, before = trial.metric, trial.unchanged
    if before is None:
        no_change = f"{_ids(trial.fired)} fired, but no change of its config can be tried"
        why = no_change if trial.fired else "no diagnostic fired that a change of the config could cure"
        return "\n".join([f"run {trial.run}: {why}; nothing was trained", *left_out])
    rows = [
        _cells("the unchanged config", before, ""),
        *(_cells(row.candidate, row, f"{row.verdict}: {row.because}") for row in trial.rows),
    ]
    heads = ["change", "fires with it", metric.name, "fit", "time", "verdict"]
    better = "larger" if metric.mode == "max" else "smaller"
    how = f"each change on the same seed for {counted(trial.epochs, 'epoch')}, measured on validation; {better} is better"
    return "\n".join(
        [
            f"run {trial.run}: {_ids(trial.fired)} fired; {how}",
            "",
            table(rows, heads).rstrip("\n"),
            "",
            *(f"{row.candidate}: {row.why}; {swap_text(row.keys)}" for row in trial.rows),
            *left_out,
            *_unseen(trial),
            *_indistinguishable(trial),
            "no change helps; read the pages of what fired: mltrainer diagnose"
            if trial.best is None
            else f"next: {trial.best.command}",
        ]
    )


def _cells(name: str, side: Training, verdict: str) -> list[str]:
    value = number(side.value) if side.reason is None else f"failed: {side.reason}"
    return [name, _ids(side.fired), value, side.fit, duration(side.wall_s), verdict]


def _ids(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _unseen(trial: Trial) -> list[str]:
    """Return a line for the findings that the unchanged config does not reproduce, whose cure this trial cannot show."""
    unseen = [name for name in trial.fired if name not in trial.symptoms]
    return [f"not shown by the unchanged config in this trial, so not judged: {_ids(unseen)}"] if unseen else []


def _indistinguishable(trial: Trial) -> list[str]:
    """Return a line on indistinguishable metrics: with one seed only the number of validation rows bounds chance."""
    if not any("no clear difference" in row.because or row.verdict == "no clear difference" for row in trial.rows):
        return []
    samples = trial.unchanged.samples if trial.unchanged else None
    if samples is None:
        return ["no clear difference: one seed shows no interval of this metric; `mltrainer ablate` compares on several"]
    rows, changes = counted(samples, "validation row"), counted(len(trial.rows), "change")
    within = f"within what {rows} leave to chance at 95 % ({changes} compared)"
    return [f"no clear difference: {within}; `mltrainer ablate` compares on several seeds"]


def applied_text(applied: Applied) -> str:
    """Return the diff of an applied change, and the next commands."""
    return "\n".join([applied.diff.rstrip("\n"), "", *(f"next: {line}" for line in applied.next)])


def remedy(folder: Path | None, run: str, is_try: bool, epochs: int | None, is_apply: bool, as_json: bool) -> int:
    """Try changes that may cure a run's findings, or write one into the config files, or both."""
    tried = applied = None
    if is_try:
        with tools(folder) as running:
            tried = try_fixes(running, run, epochs=epochs)
        if not as_json:
            show(tried, text, as_json=False)
    if is_apply:
        applied = _applied(folder, run, tried)
        if not as_json:
            show(applied, applied_text, as_json=False)
    if as_json:
        outcomes = {"tried": tried, "applied": applied}
        emit({name: one.written() for name, one in outcomes.items() if one is not None})
    return 0


def _applied(folder: Path | None, run: str, tried: Trial | None) -> Applied:
    """Write the change of the best candidate; if none were tried, the first suggested one.

    Raises:
        InputError: No candidate helps.
    """
    if tried is not None and tried.best is None:
        message = "nothing to apply: no change was found that cures or helps; nothing was written"
        raise InputError(message, hint=f"mltrainer diagnose {run} -v shows each diagnostic with what was measured")
    with tools(folder) as running:
        return apply_fix(running, tried.best.changes if tried and tried.best else None, run=run)
