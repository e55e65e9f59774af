"""Optimization: a search over the tuning template's space, or a recorded skip when the baseline is good enough.

In: the baseline's config and result, the diagnosis. Out: trials, the winner's replay, its comparison with the
baseline over fresh seeds, and `final_config.yaml`.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.loading import assign, each_entry, parse_assignment, validate_values
from mltrainer.configs.pages import ORCHESTRATOR, trained_by
from mltrainer.configs.project import TrainingConfig, config_digest, of_task
from mltrainer.configs.templates import (
    GENETIC,
    TUNING,
    Pruning,
    TuningTemplate,
    applicable_space,
    misfits,
    overlay,
    trial_changes,
    tuning_template,
    why_left_out,
)
from mltrainer.errors import InputError
from mltrainer.gates.claims import answer
from mltrainer.gates.statistics import TEST, improvements, is_better, level_at
from mltrainer.phases.baseline import run_source
from mltrainer.phases.context import Context, Result, file_row
from mltrainer.phases.planning import config_text, planned_config
from mltrainer.records.common import InputRow, KeyChange, MetricChoice
from mltrainer.records.diagnostics import Diagnostics
from mltrainer.records.envelope import partial_record
from mltrainer.records.job import SearchJob
from mltrainer.records.optimization import BaselineValue, Comparison, CountedComparison, Replay, Searched, Skipped
from mltrainer.records.partial import partial
from mltrainer.reproducibility import git
from mltrainer.runs.contract import contract_of, key_changes
from mltrainer.runs.retrain import reproduce
from mltrainer.runs.trainer import page_for
from mltrainer.search.counting import comparisons, ledger
from mltrainer.search.space import mean_of, points
from mltrainer.workspace import Project, digest, without_none, write_atomic

CONFIG_FILE = "final_config.yaml"
TUNER = "hyperparameter_tuner"
SPACE = "space."
NO_ARGUMENTS = (
    "name what a search can vary as the program's arguments, such as task: {arguments: {lr: 0.1}} in mltrainer.yaml, which gives "
    "it --lr 0.1 (tools/script_runner/README.md), and dimensions such as task.arguments.lr there; then plan again: "
    "mltrainer phase run planning; or keep the baseline: lower the criterion in mltrainer.yaml, then mltrainer run"
)
MOST_POINTS = 10_000  # the largest number of trials in a template: no more points are counted
LEARNING = ("tpe", "gp", "cma_es", *GENETIC)
TOLD = ("trials", "best", "lag", "rungs", "search_s", "comparison_s", "forecast", "ended", "minutes", "points")  # by the search
NOT_BITS = {
    "minutes": None,
    "workers": None,
    "silent_minutes": 30.0,
    "storage": None,
}  # keys of the template that decide no trial's values


class Extent(NamedTuple):
    """The extent of a search.

    Attributes:
        strategy: The name of the strategy that draws its trials.
        trials: The number of its trials.
        points: The number of points of its space, where it goes through them one by one; else None.
    """

    strategy: str
    trials: int
    points: int | None = None


def run(ctx: Context) -> Result:
    """Search, or record the rule by which the search is skipped."""
    return _skip(ctx) if is_skipped(ctx.diagnosis.evidence) else _search(ctx)


def is_skipped(diagnosis: Diagnostics) -> bool:
    """Return True if diagnostics recommends to deploy the baseline, and no claim asks for a search."""
    return diagnosis.recommendation == "deploy" and diagnosis.claim is None


def _skip(ctx: Context) -> Result:
    config = ctx.planned_config().model_dump()
    rule = "the baseline meets every acceptance criterion, so there is nothing that tuning must reach"
    ctx.note(f"skipped: {rule}")
    acceptance, boosting = ctx.diagnosis.evidence.acceptance, without_none(boosting=ctx.baseline.evidence.boosting)
    evidence = Skipped(skipped=True, rule=rule, acceptance=acceptance, config=config, **boosting)
    return Result(_answered(ctx, evidence), ctx.diagnosis.source, [_write_config(ctx, config)], [])


def _write_config(ctx: Context, values: dict[str, Any]) -> InputRow:
    path = ctx.folder / CONFIG_FILE
    write_atomic(path, config_text(values).encode())
    return file_row(ctx.project, path, "config")


def _template(ctx: Context) -> tuple[TuningTemplate, dict[str, Any]]:
    """Return the tuning template with the command line's changes, and the same as plain values, by which studies are named.

    In a change, `space.KEY` names one dimension; KEY may contain dots.

    Raises:
        InputError: A change does not fit the template.
    """
    changes = [parse_assignment(assignment) for assignment in ctx.assignments]
    changed = assign(tuning_template(ctx.project.root), (c for c in changes if not c[0].startswith(SPACE)))
    if isinstance(changed["space"], dict):
        dimensions = {key.removeprefix(SPACE): value for key, value in changes if key.startswith(SPACE)}
        changed = {**changed, "space": {**changed["space"], **dimensions}}
    if ctx.task.is_opaque and changed.get("pruning") == tuning_template(None).get("pruning"):
        changed["pruning"] = None  # a program's run does not end at a rung, so that the shipped pruning would save nothing
    own = {key: value for key, value in changed.items() if key != "comparison"}
    where = " ".join(f"--set {assignment}" for assignment in ctx.assignments) or TUNING
    return validate_values(TuningTemplate, own, where), own


def _search(ctx: Context) -> Result:
    _require_one_trainer(ctx)
    config, settings, (template, written) = ctx.planned_config(), _settings(ctx), _template(ctx)
    values = overlay(config.model_dump(), of_task(trial_changes(written), config.task))
    of_trials = _trial_config(ctx, values)
    space = _space(ctx, written["space"], of_trials)
    extent = _extent(ctx, template.strategy, template.trials, space, of_trials.model_dump())
    study = _study(ctx, template, of_trials, space, extent)
    contract = contract_of(ctx.earlier["planning"], config, ctx.project.root)
    # The name covers only keys that decide trials: with other workers or more minutes the same study goes on.
    study_id = digest({**study, **contract, "config": config_digest(of_trials)})[:12]
    tool = page_for(ctx.project.root, ctx.page.tool, "optimization").tool
    of_machine: dict[str, Any] = {key: written.get(key, default) for key, default in NOT_BITS.items()}
    job = SearchJob(
        run=study_id,
        phase="optimization",
        folder=f".mltrainer/studies/{study_id}",
        **study,
        config=of_trials,
        **of_machine,
        processes=template.trial.processes,
        **_expected(ctx, of_trials, space),
        planned=ctx.with_workers(config),
        seeds=_seeds(ctx, settings),
        level=settings.level,
        earlier=known_comparisons(ctx.project, ctx.last),
        # Each trial has its own config, whose digest is added then.
        contract={key: value for key, value in contract.items() if key != "config_sha256"},
        code_files=ctx.planning.source.files,
        **ctx.planned_data(),
        gate=ctx.previous,
        parent=ctx.baseline.evidence.run.id,
        threads=config.threads,
        tool=tool,
    )
    found = {**ctx.tools.run(tool, job), "points": extent.points}
    return _collect(ctx, job, found, key_changes(config.model_dump(), values))


def _trial_config(ctx: Context, values: dict[str, Any]) -> TrainingConfig:
    """Return the config that trials begin with: the plan with the template's changes, in the present place of training."""
    config = ctx.with_workers(validate_values(TrainingConfig, values, f"{TUNING}, trial"))
    # From the file, not the record: the place of training may change after planning, and makes no gate stale.
    # The processes of a trial are on one machine.
    launch = planned_config(ctx.project).launch.model_copy(update={"machines": 1})
    return config.model_copy(update={"launch": launch})


def _study(
    ctx: Context, template: TuningTemplate, of_trials: TrainingConfig, space: dict[str, Any], extent: Extent
) -> dict[str, Any]:
    """Return the settings of a search that decide its trials.

    Raises:
        InputError: A trial cannot be measured or shared as the template asks.
    """
    study = {
        "space": space,
        "trials": extent.trials,
        "strategy": extent.strategy,
        **_looking_back(template, extent.strategy),
        **_several_metrics(ctx, template, of_trials),
    }
    if template.pruning is not None:
        _require_measurable(ctx, template.pruning, of_trials)
    _require_sharing(_where(ctx, "trial.processes"), of_trials, template.trial.processes)
    return study


def _expected(ctx: Context, of_trials: TrainingConfig, space: dict[str, Any]) -> dict[str, Any]:
    """Return the baseline's time, and the expected times of a trial's run and of a run of the comparison, in seconds.

    A trial's time is estimated by the mean epochs of the space and the mean number of steps of its batch sizes: a step of a small
    batch takes about as long as one of a large batch, so that small batches make trials slow.
    """
    run, folds = ctx.baseline.evidence.run, ctx.baseline.evidence.folds
    whole_s = run.wall_s
    found = {"baseline_s": sum(row.wall_s for row in folds.rows) if folds else whole_s}
    if ctx.task.is_opaque:
        return {**found, "run_s": whole_s, "planned_s": whole_s}
    per_epoch_s, train_s = whole_s / run.epochs, run.time_s.get("train", 0.0) / run.epochs
    epochs = mean_of(space, "epochs", of_trials.epochs, lambda count: count)
    share = mean_of(space, "batch_size", of_trials.batch_size, lambda size: run.batch_size / size)
    planned = ctx.planned_config().epochs  # the baseline may have ended early
    return {**found, "run_s": epochs * (per_epoch_s + train_s * (share - 1)), "planned_s": planned * per_epoch_s}


def _extent(ctx: Context, strategy: str, trials: int, space: dict[str, Any], config: dict[str, Any]) -> Extent:
    """Return the extent of a search of a space: where it has few points, none is tried twice."""
    found = points(space, config, strategy, MOST_POINTS)
    if found is None or (found > trials and strategy != "grid"):
        return Extent(strategy, trials)
    if found > trials:
        more = "more than " if found > MOST_POINTS else ""
        ctx.note(f"the grid has {more}{min(found, MOST_POINTS):,} points: {trials} are tried, {more}{found - trials:,} left out")
        return Extent(strategy, trials, found)
    if found < trials:
        ctx.note(f"the space has {found} points: {found} trials, each of them once, and not {trials}")
    return Extent("grid", found, found)


def _looking_back(template: TuningTemplate, strategy: str) -> dict[str, Any]:
    """Return the settings for older trials to decide later ones; empty where none do, so that such a study keeps its name."""
    found: dict[str, Any] = {"pruning": template.pruning.model_dump()} if template.pruning else {}
    found |= {"patience": template.terminator.patience} if template.terminator else {}
    return {**found, "lag": template.lag} if found or strategy in LEARNING else {}


def _several_metrics(ctx: Context, template: TuningTemplate, config: TrainingConfig) -> dict[str, Any]:
    """Return the further metrics and the constraints; empty without any, so that such a study keeps its name.

    Raises:
        InputError: The baseline's run has not measured one of them, or trials are ranked by it already.
    """
    known = [name for name in ctx.baseline.evidence.run.metrics if not name.startswith("train_")]
    asked: dict[str, dict[str, Any]] = {"objectives": template.objectives, "constraints": template.constraints}
    further = [name for name in known if name != config.metric.name]
    _require_known(_where(ctx, "objectives"), template.objectives, further, "further metric")
    _require_known(_where(ctx, "constraints"), template.constraints, known, "metric")
    return {key: metrics for key, metrics in asked.items() if metrics}


def _where(ctx: Context, key: str) -> str:
    """Return the place of a template's key: the changes on the command line that name it, else the file."""
    changes = [one for one in ctx.assignments if one.partition("=")[0].split(".")[0] == key.split(".")[0]]
    return f"{' '.join(f'--set {one}' for one in changes) or TUNING}, key {key}"


def _require_known(where: str, names: Iterable[str], known: list[str], kind: str) -> None:
    """Refuse a metric that trials do not record.

    Raises:
        InputError: A name is none of those that are known.
    """
    for name in names:
        if name not in known:
            raise InputError.unknown(kind, name, sorted(known), of="that a trial records", where=where)


def _require_sharing(where: str, config: TrainingConfig, processes: int) -> None:
    """Refuse a number of processes that cannot share a trial's steps; one whose own values share fewer is trained in fewer.

    Raises:
        InputError: Trials have nothing to share, or are trained by a tool that uses one process.
    """
    if processes > 1 and config.task.trainer != ORCHESTRATOR:
        raise InputError(
            f"{config.task.trainer} trains in one process, not in {processes}", where=where, hint="leave the key out"
        )
    try:
        config.require_processes(processes)
    except InputError as error:
        raise InputError(error.message, where=where, hint=error.hint) from None


def _require_measurable(ctx: Context, pruning: Pruning, config: TrainingConfig) -> None:
    """Refuse a rung within an epoch where nothing is measured there, and note where evaluations are further apart.

    Raises:
        InputError: The trials are measured only at the ends of epochs.
    """
    if pruning.first >= 1:
        return
    samples = ctx.baseline.evidence.run.slots
    steps = math.ceil(samples / (config.batch_size * config.accumulate))
    wanted, every = max(1, round(pruning.first * steps)), config.evaluate.every_n_steps
    if every is None:
        raise InputError(
            f"the first rung is at {pruning.first} of an epoch, and trials are measured at the ends of epochs alone",
            where=_where(ctx, "pruning.first"),
            hint=f"write `evaluate: {{every_n_steps: {wanted}}}` under `trial` there, or take a `first` of 1 or more",
        )
    if every > wanted:
        ctx.note(f"the first rung, at {pruning.first} of an epoch, is measured after {every} of its {steps} steps")


def _require_one_trainer(ctx: Context) -> None:
    """Refuse a search whose trials would be trained by another tool than their baseline.

    Raises:
        InputError: The shipped search trains with the shipped trainer only.
    """
    trained = trained_by("baseline", ctx.project.root, ctx.task.trainer).tool
    if ctx.page.tool == TUNER and trained != ctx.task.trainer:
        hint = "name a search tool of your own on the page of optimization"
        raise InputError(f"{TUNER} trains with {ORCHESTRATOR}, and the baseline was trained by {trained}", hint=hint)


def _space(ctx: Context, space: dict[str, Any], of_trials: TrainingConfig) -> dict[str, Any]:
    """Return the dimensions that apply to the config.

    Raises:
        InputError: No dimension applies.
    """
    config = of_trials.model_dump()
    found = applicable_space(space, config)
    left_out = _left_out(sorted(set(space) - set(found)), config)
    if not found:
        own = [f"task.arguments.{name}" for name in of_trials.task.arguments]
        hint = f"name dimensions for {' and '.join(own)} there" if own else NO_ARGUMENTS if of_trials.task.script else None
        raise InputError(f"nothing to search, {'; '.join(left_out)}", where=_where(ctx, "space"), hint=hint)
    for reason in left_out:
        ctx.note(f"not searched, {reason}")
    wrong = misfits(found, config)
    for key, values in wrong.items():
        ctx.note(f"not searched, because the rest of the config does not go with it: {key} of {', '.join(map(str, values))}")
    kept = {key: _without(dimension, wrong.get(key, [])) for key, dimension in found.items()}
    return {key: dimension for key, dimension in kept.items() if dimension.get("choice") != []}


def _left_out(keys: Iterable[str], config: dict[str, Any]) -> list[str]:
    """Return the reasons why dimensions do not apply to the config, each with the keys that it is about."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(why_left_out(key, config), []).append(key)
    return [f"because {reason}: {', '.join(about)}" for reason, about in found.items()]


def _without(dimension: dict[str, Any], values: list[Any]) -> dict[str, Any]:
    return {**dimension, "choice": [value for value in dimension["choice"] if value not in values]} if values else dimension


def _settings(ctx: Context) -> ImprovementSettings:
    """Return the settings of the comparison's gate item."""
    item = next(item for item in ctx.page.items if item.id == "improvement_validated")
    return ImprovementSettings.model_validate(item.settings)


def _seeds(ctx: Context, settings: ImprovementSettings) -> int:
    """Return the number of seeds of the comparison: as many as the gate asks for, or as the claim states, if those are more."""
    found = ctx.planning.evidence.claim
    return max(settings.seeds, found.claim.seeds if found is not None and not found.removed else 0)


def _answered(ctx: Context, evidence: Searched | Skipped) -> Searched | Skipped:
    """Return the evidence with the answer to the claim, where one was made."""
    found = answer(ctx.planning.evidence, ctx.baseline.evidence, evidence)
    return evidence if found is None else evidence.model_copy(update={"claim": found})


def _collect(ctx: Context, job: SearchJob, content: dict[str, Any], cheaper: list[KeyChange]) -> Result:
    """Return the phase's result, after the best trial was trained once more.

    Args:
        ctx: The phase's context.
        job: The search's job.
        content: The result of the search tool, as plain data.
        cheaper: The changes of trials against the plan.
    """
    found, settings, planned, diagnosis = partial(Searched, content), _settings(ctx), ctx.planned_config(), ctx.diagnosis
    best = next((trial for trial in found.trials if trial.nr == found.best), None)
    if best:
        ctx.note("the best trial once more, in a fresh process")
    replay = reproduce(ctx.tools, best.run) if best else None
    differences = improvements(found.comparison.candidate, found.comparison.baseline, planned.metric.mode)
    level = level_at(found.comparison.number, settings.level)
    promoted = best is not None and is_better(differences, settings.seeds, level)
    # On the plan's values, not the trials': changes that made a trial cheaper are no part of the candidate.
    values = assign(planned.model_dump(), best.values.items() if best and promoted else ())
    config = validate_values(TrainingConfig, values, f"{TUNING}, the candidate")
    baseline = BaselineValue(
        run=ctx.baseline.evidence.run.id,
        value=diagnosis.evidence.metrics.get(planned.metric.name),
        values={key: value for key, value in each_entry(planned.model_dump()).items() if key in job.space},
    )
    evidence = Searched(
        **{key: content[key] for key in TOLD if key in content},
        skipped=False,
        strategy=job.strategy,
        seed=planned.seed,
        space=job.space,
        cheaper=cheaper,
        planned_trials=content.get("planned", job.trials),
        metric=MetricChoice(**config.metric.model_dump()),
        baseline=baseline,
        replay=Replay(run=best.run if best else None, identical=replay is not None and replay.row.identical),
        comparison=judged(found.comparison, differences),
        promoted="candidate" if promoted else "baseline",
        acceptance=diagnosis.evidence.acceptance,
        config=config.model_dump(),
        **without_none(boosting=ctx.baseline.evidence.boosting),
    )
    asked = {"objectives": job.objectives, "constraints": job.constraints, "patience": job.patience}
    evidence = evidence.model_copy(update={key: value for key, value in asked.items() if value})
    source = run_source(ctx, replay.result) if replay else diagnosis.source
    return Result(_answered(ctx, evidence), source, [_write_config(ctx, evidence.config)], [TUNING])


def judged(comparison: Comparison, differences: list[float]) -> Comparison:
    """Return a comparison with the values computed from its differences, for reports; the gate computes them again."""
    mean = statistics.fmean(differences) if differences else None
    worst = min(differences, default=None)
    return comparison.model_copy(
        update={"test": TEST, "differences": differences, "mean_difference": mean, "worst_difference": worst}
    )


RECORD = "record.json"
MOST_VERSIONS = 500  # of the record in git: more searches than anyone runs of one plan


def known_comparisons(project: Project, last: Any) -> list[CountedComparison]:
    """Return all comparisons in the project's ledger, its record, or any version of the record in git.

    Args:
        project: The project.
        last: The evidence of optimization's record here; None where there is none.
    """
    # All three: a search's share of the level stays spent when the state folder is emptied, or its branch is dropped.
    comparisons = [*ledger(project.root), *_of_search(last), *_committed(project)]
    return [row for nr, row in enumerate(comparisons) if row not in comparisons[:nr]]


def _of_search(evidence: Any) -> list[CountedComparison]:
    """Return a search's comparison, and those before it; empty for a skip, or for a version that did not count them."""
    if not isinstance(evidence, Searched):
        return []
    found = evidence.comparison
    row = {key: getattr(found, key) for key in CountedComparison.model_fields}
    return comparisons([row, *({**row, "study": None, **dict(one)} for one in found.earlier)])


def _committed(project: Project) -> Iterator[CountedComparison]:
    """Yield the comparisons of the record's versions in all branches; nothing where there is no repository."""
    path = project.relative(project.phase_dir("optimization") / RECORD)
    try:
        root = git.locate(project.root)
        commits = git.run(project.root, "log", "--all", f"--max-count={MOST_VERSIONS}", "--format=%H", "--", path).split()
        names = "".join(f"{commit.decode()}:{root.prefix}{path}\n" for commit in commits)
        # Asked first: a commit that removed the record has no such blob, and reading it would fail.
        blobs = git.run(project.root, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=names.encode())
        held = dict.fromkeys(line.split()[0].decode() for line in blobs.splitlines() if line.endswith(b" blob"))
        texts = [git.run(project.root, "cat-file", "blob", blob) for blob in held]
    except git.GitError:
        return
    for text in texts:
        try:
            yield from _of_search(partial_record(json.loads(text), "optimization").evidence)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):  # no record of any version
            continue
