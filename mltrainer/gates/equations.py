"""Equations between the records of a project, and between a record's values.

Each phase's table has equations of `mltrainer.records.equations`, whose paths begin with the phase's name. Values that a phase
computes from its measurements are computed again by the very function that the phase calls: acceptance, findings, the assessment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.ranking import best_row
from mltrainer.configs.loading import assign, differences, each_entry, flatten
from mltrainer.configs.pages import diagnostic_page
from mltrainer.configs.project import Metric, TrainingConfig, config_digest
from mltrainer.configs.schedules import learning_rate, preview
from mltrainer.diagnostics import input_starvation
from mltrainer.diagnostics.rules import acceptance_rows, assess, changes_to_try, final_acceptance, findings, not_fired, recommend
from mltrainer.diagnostics.signals import Run as Judged
from mltrainer.gates.claims import answer
from mltrainer.records.baseline import Baseline
from mltrainer.records.common import MetricChoice, Metrics
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.records.envelope import Envelope
from mltrainer.records.equations import ROUNDING, Between, Equal, Equation, Fault, faults, joined, solved, unequal, values
from mltrainer.records.optimization import Searched
from mltrainer.records.planning import Planning
from mltrainer.records.run import Evaluation, Run, run_id
from mltrainer.reports.views import mistakes_of
from mltrainer.reproducibility.environment import environment_digest
from mltrainer.tasks.statistics import BOUNDS, NORMAL_95, wilson

MOST_FAULTS = 5  # that are named; one number that is wrong contradicts several others
MEASURED_AGAIN = 0.01  # by other batches, whose rounding may tip an answer: one row of a hundred
IN_STEPS = ("own", "plateau")  # schedules whose rate depends on more than the config


@dataclass(frozen=True)
class Records:
    """The records of a project up to one phase, by their evidence; None for a phase without one.

    Attributes:
        envelopes: The records by phase.
        root: The project's folder, whose own pages hold thresholds.
        by_own_rules: Whether this version's rules made the findings; those of an earlier release are taken as recorded.
    """

    envelopes: Mapping[str, Envelope[Any]]
    root: Path
    by_own_rules: bool = True
    planning: Any = None
    baseline: Any = None
    diagnostics: Any = None
    optimization: Any = None
    finalization: Any = None

    equations = ()


def contradictions(envelopes: Mapping[str, Envelope[Any]], phase: str, root: Path, by_own_rules: bool = True) -> Iterator[Fault]:
    """Yield the values of a phase's record that contradict the equations.

    Args:
        envelopes: The records up to that phase, by phase.
        phase: The phase.
        root: The project's folder, whose own pages hold thresholds.
        by_own_rules: Whether this version's rules made the findings.
    """
    records = Records(envelopes, root, by_own_rules, **{name: record.evidence for name, record in envelopes.items()})
    yield from faults(envelopes[phase].evidence, phase)
    for equation in _TABLE[phase]:
        yield from solved(equation, records)


# --- a run ----------------------------------------------------------------------------------------


def _of_run(place: str, config: str) -> tuple[Equation, ...]:
    """Return the equations of a run: with its config, with planning, and with its own measurements.

    Args:
        place: The run's path.
        config: The path of its config.
    """

    def run_of(records: Records) -> Run:
        run: Run = values(records, place)[0][1]
        return run

    def asked(key: str) -> Callable[[Records], Any]:
        # The config does not describe a program's or a custom tool's own doing.
        return lambda records: values(records, joined(config, key))[0][1] if run_of(records).groups else None

    def planned(path: str) -> Callable[[Records], Any]:
        return lambda records: _planned(records, path) if run_of(records).groups else None

    def of_run(compute: Callable[[Run], Any]) -> Callable[[Records], Any]:
        return lambda records: compute(run_of(records))

    return (
        Equal(f"{place}.id", of_run(lambda run: run_id(run.contract))),
        Equal(f"{place}.data_sha256", "planning.data.sha256"),
        Equal(f"{place}.code_sha256", lambda records: records.envelopes["planning"].source.sha256),
        Equal(f"{place}.environment_sha256", lambda records: environment_digest(records.planning.environment)),
        Equal(f"{place}.seed", f"{config}.seed"),
        Equal(f"{place}.metric", _metric(config)),
        Equal(f"{place}.threads", f"{config}.threads"),
        Equal(f"{place}.config_sha256", lambda records: _named(records, run_of(records).config_sha256, config)),
        Equal(f"{place}.batch_size", asked("batch_size")),
        Equal(f"{place}.accumulate", asked("accumulate")),
        Equal(f"{place}.planned_epochs", asked("epochs")),
        Equal(f"{place}.parameters", lambda records: _parameters(records, values(records, config)[0][1])),
        Equal(f"{place}.measured_samples.validation", planned("data.splits.validation.samples")),
        Equal(f"{place}.train_samples", planned("data.splits.train.samples")),
        Equal(f"{place}.best", of_run(_best)),
        Equal(f"{place}.history.*.lr", lambda records: _rates(run_of(records), values(records, config)[0][1]), ROUNDING),
        Equal(
            f"{place}.errors.calibration.bins.*.low",
            of_run(lambda run: [max(0.0, ends[0]) for ends in _intervals(run)]),
            ROUNDING,
        ),
        Equal(
            f"{place}.errors.calibration.bins.*.high",
            of_run(lambda run: [min(1.0, ends[1]) for ends in _intervals(run)]),
            ROUNDING,
        ),
        Equal(f"{place}.metrics", of_run(_of_confusion), ROUNDING),
        Equal(f"{place}.errors.calibration.error", lambda records: _calibration_error(records, place), ROUNDING),
        _Bound(f"{place}.checkpoints.*.files.*"),
        _Bound(f"{place}.program.outputs.*"),
        *_declared(config, (f"{place}.history.*.validation", f"{place}.history.*.train", f"{place}.metrics")),
    )


def _planned(records: Records, path: str) -> Any:
    parameters = values(records.planning, path) if isinstance(records.planning, Planning) else []
    return parameters[0][1] if parameters else None


def _metric(config: str) -> Callable[[Records], MetricChoice]:
    """Return the function that returns a config's metric, with the tie break, which older configs left open."""
    return lambda records: MetricChoice(**values(records, f"{config}.metric")[0][1])


def _parameters(records: Records, config: Mapping[str, Any]) -> int | None:
    """Return the number of parameters of planning's probes; None if the model is another one."""
    planned = records.planning.config
    is_same = all(config.get(name) == planned.get(name) for name in ("model", "task", "strategies"))
    return _planned(records, "probe.runs.0.parameters") if is_same else None


def _named(records: Records, sha256: str, config: str) -> str:
    """Return a digest as it is if it names a config; else words for the digest that would."""
    made = TrainingConfig.model_validate(values(records, config)[0][1])
    return sha256 if config_digest(made) == sha256 else f"the digest of {config}"


def _best(run: Run) -> Evaluation | None:
    """Return the best evaluation; None for a program, which leaves its last state."""
    row = None if run.program else best_row(run.history, Metric(**run.metric.model_dump()))
    return None if row is None else row.alone()


def _rates(run: Run, config: Mapping[str, Any]) -> list[float] | None:
    """Return the learning rate of each evaluation's step; None if the config alone does not decide it."""
    if not run.groups or config["callbacks"] or config["schedule"]["name"] in IN_STEPS:
        return None
    whole, steps = TrainingConfig.model_validate(config), run.planned_steps
    rate = learning_rate(whole.schedule, whole.optimizer.lr, steps, steps // run.planned_epochs)
    return [rate(row.step) for row in run.history]


def _intervals(run: Run) -> list[tuple[float, float]]:
    bins = run.errors.calibration.bins if run.errors and run.errors.calibration else []
    return [wilson(float(row.frequency), row.samples, NORMAL_95) for row in bins]


def _of_confusion(run: Run) -> Metrics:
    """Return a run's metrics with those that follow from its confusion matrices, one for each of several targets."""
    metrics: Metrics = dict(run.metrics)
    for target in (run.task_evaluation, *run.task_evaluation.targets):
        ending = f"_{target.word}" if target.word else ""
        followed = {f"{name}{ending}": value for name, value in _of_matrix(target.confusion).items()}
        metrics |= {name: value for name, value in followed.items() if name in metrics}
    return metrics


def _calibration_error(records: Records, place: str) -> Any:
    """Return the metric of that name, which has an error estimate."""
    error = values(records, f"{place}.metrics.calibration_error")
    return error[0][1] if error else None


def _of_matrix(counts: list[list[int]]) -> dict[str, float]:
    """Return the metrics that follow from a confusion matrix, as `tasks.metrics` measures them; empty for an empty one."""
    if not any(map(sum, counts)):
        return {}
    rows, columns, right = [*map(sum, counts)], [*map(sum, zip(*counts, strict=True))], [row[nr] for nr, row in enumerate(counts)]
    recalls = [hits / row for hits, row in zip(right, rows, strict=True) if row]
    scores = [2 * hits / (row + column) for hits, row, column in zip(right, rows, columns, strict=True) if row + column]
    return {
        "accuracy": sum(right) / sum(rows),
        "balanced_accuracy": sum(recalls) / len(recalls),
        "f1_macro": sum(scores) / len(scores),
    }


def _declared(config: str, places: tuple[str, ...]) -> tuple[Equation, ...]:
    """Return the bounds of built-in metrics; a custom task's metric may have any value, whatever its name."""
    return tuple(_Declared(place, config) for place in places)


def _of_models(*places: str) -> tuple[str, ...]:
    """Return the paths of the metrics of a run and of the plain models beside it."""
    return tuple(f"{place}.{models}.metrics" for place in places for models in ("network", "rows.*"))


@dataclass(frozen=True)
class _Declared:
    """The metrics at a path are between the bounds that `tasks.statistics` declares by name."""

    field: str
    config: str

    def faults(self, part: Records) -> Iterator[Fault]:
        """Yield the faults of the metrics."""
        if not _is_built_in(part, self.config):
            return
        for place, metrics in values(part, self.field):
            for name in metrics:
                kind = name.removeprefix("train_")
                low, high = next((ends for start, ends in BOUNDS.items() if kind.startswith(start)), (None, None))
                path = f"{name}.*" if isinstance(metrics[name], list) else name  # of an interval both ends
                for fault in Between(path, low, high).faults({name: metrics[name]}):
                    yield fault._replace(field=joined(place, fault.field))


def _is_built_in(records: Records, config: str) -> bool:
    return values(records, f"{config}.task.kind")[0][1] is not None


@dataclass(frozen=True)
class _Held:
    """The interval of each built-in metric contains it; a custom metric's may not, such as a number of distinct answers."""

    field: str

    def faults(self, part: Records) -> Iterator[Fault]:
        """Yield the faults of the metrics."""
        test = part.finalization.test
        if not test.intervals or not _is_built_in(part, "finalization.config"):
            return
        for name, (low, high) in test.intervals.bounds.items():
            for fault in Between(name, low, high).faults(test.metrics):
                yield fault._replace(field=joined(self.field, "metrics", fault.field))


@dataclass(frozen=True)
class _Bound:
    """Files that the evidence names have the size and the digest that the record binds."""

    field: str

    def faults(self, part: Records) -> Iterator[Fault]:
        """Yield the faults of the files at the path."""
        phase = self.field.partition(".")[0]
        bound = {row.path: {"path": row.path, "sha256": row.sha256, "size": row.size} for row in part.envelopes[phase].inputs}
        for place, row in values(part, self.field):
            if row.path in bound:
                yield from unequal(place, row.model_dump(include={"path", "sha256", "size"}), bound[row.path])


# --- values that a phase computes -----------------------------------------------------------------------


@dataclass(frozen=True)
class _WorkedOut:
    """Fields of a phase's evidence are the results of the phase's functions of its measurements."""

    phase: str
    config: str
    compute: Callable[[Records, dict[str, Any]], Mapping[str, Any]]

    @property
    def field(self) -> str:
        """The evidence."""
        return self.phase

    def faults(self, part: Records) -> Iterator[Fault]:
        """Yield the faults of all fields."""
        evidence = getattr(part, self.phase)
        for name, expected in self.compute(part, values(part, self.config)[0][1]).items():
            yield from unequal(joined(self.phase, name), getattr(evidence, name), expected, ROUNDING)


def _findings(records: Records, phase: str, judged: Judged, config: dict[str, Any]) -> list[Diagnosis]:
    """Return the findings of the rules that made a phase's record: this version's, or those recorded by an earlier release."""
    recorded: list[Diagnosis] = getattr(records, phase).diagnostics
    return findings(judged, config, records.root) if records.by_own_rules else recorded


def _of_baseline(records: Records, config: dict[str, Any]) -> Mapping[str, Any]:
    baseline = records.baseline
    judged = Judged(baseline.run, baseline.references)
    rows = _findings(records, "baseline", judged, config)
    thresholds = diagnostic_page("input_starvation", records.root).thresholds
    failed = baseline.run.state == "failed"
    return {
        "acceptance": acceptance_rows(config["acceptance"], *_validated(baseline)),
        "waiting": input_starvation.waiting(judged, **thresholds) if records.by_own_rules else baseline.waiting,
        # A page that was changed since makes no stale baseline: the diagnostics alone judge by it.
        "diagnostics": [
            new if new.thresholds == old.thresholds else old for old, new in zip(baseline.diagnostics, rows, strict=True)
        ],
        "changes": changes_to_try(baseline.diagnostics, config) if failed else [],
    }


def _validated(baseline: Baseline) -> tuple[Metrics, str]:
    """Return a baseline's metrics, and the reports' name of the samples that they were measured on."""
    folds = baseline.folds
    return (folds.metrics, f"validation, mean of {folds.count} folds") if folds else (baseline.run.metrics, "validation")


def _of_diagnostics(records: Records, config: dict[str, Any]) -> Mapping[str, Any]:
    baseline = records.baseline
    run, judged = baseline.run, Judged(baseline.run, baseline.references)
    rows = _findings(records, "diagnostics", judged, config)
    assessment, (metrics, split) = assess(rows, judged), _validated(baseline)
    acceptance = acceptance_rows(config["acceptance"], metrics, split)
    warnings = not_fired(records.planning.data.warnings, rows)
    recommendation, reasons = recommend(rows, acceptance, assessment, judged.beaten_by, warnings)
    return {
        "run_id": run.id,
        "evaluations": len(run.history),
        "layers": len(run.layers),
        "metrics": metrics,
        "diagnostics": rows,
        "assessment": assessment,
        "acceptance": acceptance,
        "recommendation": recommendation,
        "reasons": reasons,
        "changes": changes_to_try(rows, config),
        "errors": run.errors,
        "mistakes": mistakes_of(run.task_evaluation),
        "program": run.program,
        "warnings": warnings or None,
        "claim": records.planning.claim and records.planning.claim.hypothesis,
    }


def _of_finalization(records: Records, config: dict[str, Any]) -> Mapping[str, Any]:
    final = records.finalization
    judged = Judged(final.run, final.references)
    rows = _findings(records, "finalization", judged, config)
    return {
        "changed": _in_order(differences(records.planning.config, config), [row.key for row in final.changed]),
        "acceptance": final_acceptance(config["acceptance"], final.validation, final.test),
        "diagnostics": rows,
        "assessment": assess(rows, judged),
        "changes": changes_to_try(rows, config),
    }


def _claimed(phase: str) -> Callable[[Records, dict[str, Any]], Mapping[str, Any]]:
    """Return the function that answers the claim again for a phase."""

    def answered(records: Records, _config: dict[str, Any]) -> Mapping[str, Any]:
        final = records.finalization if phase == "finalization" else None
        return {"claim": answer(records.planning, records.baseline, records.optimization, final)}

    return answered


def _in_order(rows: list[dict[str, Any]], keys: list[str]) -> list[dict[str, Any]]:
    """Return changes of keys in the order of a record, which sorts a config's keys; others come last."""
    return sorted(rows, key=lambda row: keys.index(row["key"]) if row["key"] in keys else len(keys))


# --- between records ------------------------------------------------------------------------------


def _edited(records: Records) -> dict[str, Any]:
    """Return the keys of the config that a person changed."""
    made = flatten(records.planning.generated)
    return {key: value for key, value in flatten(records.planning.config).items() if key not in made or made[key] != value}


def _schedule(records: Records) -> list[list[float]] | None:
    """Return the planned learning rates; None if only the task knows them."""
    planning = records.planning
    if not isinstance(planning, Planning) or not planning.schedule:
        return None
    config, steps = TrainingConfig.model_validate(planning.config), planning.estimate.steps or 0
    per_epoch = round(steps / float(planning.schedule[-1][0]))  # a custom tool may have other epochs than the config
    return preview(config.schedule, config.optimizer.lr, steps, per_epoch)


def _decided(records: Records) -> dict[str, Any]:
    """Return the config that a search decides: the plan's, with the best trial's values if they were promoted."""
    search, planned = records.optimization, dict(records.planning.config)
    if search.promoted == "baseline":
        return planned
    best = next(trial.values for trial in search.trials if trial.nr == search.best)
    return TrainingConfig.model_validate(assign(planned, best.items())).model_dump()


def _trial_seeds(records: Records) -> list[int] | None:
    """Return the seed of each trial: the plan's, since another seed would select luck; None without a search."""
    search, seed = records.optimization, records.planning.config["seed"]
    return [seed for _ in search.trials] if isinstance(search, Searched) else None


def _known_runs(records: Records) -> int:
    """Return the number of runs that the records name, which is the least number of tries."""
    names = {records.baseline.run.id, records.finalization.run.id}
    names |= {row.run for row in records.baseline.folds.rows} if records.baseline.folds else set()
    if isinstance(records.optimization, Searched):
        trials = records.optimization.trials
        names |= {trial.run for trial in trials} | {row.run for trial in trials for row in trial.folds}
    return len(names)


def _is_searched(records: Records) -> bool:
    return isinstance(records.optimization, Searched)


def _setting(records: Records, name: str) -> float | None:
    """Return a setting of finalization's page that its record was made with; None if the page of its version had none."""
    settings: dict[str, float] = records.envelopes["finalization"].policy.get("settings", {})
    return settings.get(name)


def _opened_rows(records: Records) -> list[int | None]:
    """Return the number of rows of each test split that this run opened; None for splits opened before."""
    test, run = records.finalization.test, records.finalization.run.id
    mine = {row.rows_sha256 for row in test.openings if row.run == run}
    return [test.samples if name in mine else None for name in test.splits or {}]


def _taken_back(records: Records) -> dict[str, Any]:
    """Return the values that would make the final training the decided one again, as far as the record names them."""
    decided = each_entry(records.optimization.config)
    back = records.finalization.way_back
    return {key: decided.get(key, value) for key, value in back.set.items()} if back else {}


def _same_run(records: Records) -> Any:
    """Return the baseline's run if finalization took it over: one id is one run."""
    run, again = records.baseline.run, records.finalization.run
    return run.model_copy(update={"phase": again.phase}) if run.id == again.id else None


def _same_start(records: Records) -> Any:
    """Return the baseline's run if finalization's began in the same way: they differ only in the length of training."""
    first, last = records.baseline.run, records.finalization.run
    changed = {row.key.partition(".")[0] for row in records.finalization.changed}
    alike = all(getattr(first, name) == getattr(last, name) for name in OF_START) and changed <= {
        "epochs",
        "checkpoint",
        "budget",
    }
    return first if alike and first.signals and last.signals else None


def _same_models(records: Records) -> list[Any] | None:
    """Return the metrics of the baseline's plain models if the same were fitted to the same data for finalization."""
    before, now = records.baseline, records.finalization
    if not before.references or not now.references or before.run.data_sha256 != now.run.data_sha256:
        return None
    known = {(row.name, row.rows): row.metrics for row in before.references.rows}
    return [known.get((row.name, row.rows)) for row in now.references.rows]


def _same_terms(name: str) -> Callable[[Records], Any]:
    """Return the function that returns a term of the comparison with plain models, which is the baseline's on the same rows."""
    return lambda records: getattr(records.baseline.references, name) if _same_models(records) else None


def _beside(records: Records, phase: str) -> list[dict[str, Any]] | None:
    """Return the figures of gradient boosting beside a run, from the comparison that they come from."""
    evidence = getattr(records, phase)
    sources = {"validation": evidence.references, "test": getattr(evidence, "tested_references", None)}
    figures = []
    for beside in evidence.boosting.beside if evidence.boosting else []:
        source = sources[beside.split]
        row = next(row for row in source.rows if row.title == evidence.boosting.title)
        values_of = {"value": row.metrics[source.metric], "network": source.network.metrics[source.metric]}
        figures.append({"split": beside.split, "samples": source.samples, **values_of, "lead": row.lead, "verdict": row.verdict})
    return figures or None


def _network(records: Records, split: str) -> Metrics | None:
    """Return the metrics beside plain models, equal to the run's metrics of the same name; only in fp32 are the two close."""
    final, tested = records.finalization, split == "test"
    if final.run.precision.chosen != "fp32" or (tested and not final.test.samples):
        return None
    best: Evaluation | None = final.run.best
    own = final.test.metrics if tested else best.validation if best else {}
    references = final.tested_references if tested else final.references
    if not references or not references.network:
        return None
    return {name: own.get(name, value) for name, value in references.network.metrics.items()}


def _same_interval(records: Records) -> dict[str, Any] | None:
    """Return the test metrics' intervals; the choosing metric's comes from the comparison with plain models."""
    test, tested = records.finalization.test.intervals, records.finalization.tested_references
    if not test or not tested or not tested.network or (test.level, test.resamples) != (tested.level, tested.resamples):
        return None
    again = {tested.metric: tested.network.interval} if tested.network.interval and tested.metric in test.bounds else {}
    return {**test.bounds, **again}


def _test_samples(records: Records) -> int:
    """Return the number of samples that an opened test split is measured on: all of it."""
    planned: int = records.planning.data.splits.test.samples
    return planned if records.finalization.test.samples else 0


OF_START = ("init_sha256", "data_sha256", "code_sha256", "numerics_class", "batch_size", "accumulate", "seed")

_TABLE: dict[str, tuple[Equation, ...]] = {
    "planning": (
        Equal("planning.environment.sha256", lambda records: environment_digest(records.planning.environment)),
        Equal("planning.edited", _edited),
        Equal("planning.schedule", _schedule, ROUNDING),
    ),
    "baseline": (
        *_of_run("baseline.run", "planning.config"),
        _WorkedOut("baseline", "planning.config", _of_baseline),
        *_declared("planning.config", _of_models("baseline.references")),
        Equal("baseline.budget_minutes", "planning.config.budget.minutes"),
        Equal("baseline.boosting.beside", lambda records: _beside(records, "baseline")),
    ),
    "diagnostics": (
        _WorkedOut("diagnostics", "planning.config", _of_diagnostics),
        Equal("diagnostics.boosting", "baseline.boosting"),
    ),
    "optimization": (
        _WorkedOut("optimization", "planning.config", _claimed("optimization")),
        Equal("optimization.acceptance", "diagnostics.acceptance"),
        Equal("optimization.boosting", "baseline.boosting"),
        Equal("optimization.config", lambda records: _decided(records) if _is_searched(records) else records.planning.config),
        Equal("optimization.seed", "planning.config.seed"),
        Equal("optimization.trials.*.seed", _trial_seeds),
        Equal("optimization.metric", _metric("planning.config")),
        Equal("optimization.baseline.run", "baseline.run.id"),
        Equal(
            "optimization.baseline.value",
            lambda records: records.diagnostics.metrics.get(records.planning.config["metric"]["name"]),
        ),
    ),
    "finalization": (
        *_of_run("finalization.run", "finalization.config"),
        _WorkedOut("finalization", "finalization.config", _of_finalization),
        _WorkedOut("finalization", "finalization.config", _claimed("finalization")),
        *_declared("finalization.config", ("finalization.test.metrics", "finalization.test.intervals.bounds")),
        *_declared("finalization.config", _of_models("finalization.references", "finalization.tested_references")),
        Equal("finalization.tested_references.level", "finalization.references.level"),
        Equal("finalization.test.intervals.bounds", _same_interval, MEASURED_AGAIN),
        _Bound("finalization.model_files.*"),
        Equal("finalization.baseline_metrics", "diagnostics.metrics"),
        Equal("finalization.data", "planning.data"),
        Equal("finalization.environment", "planning.environment"),
        Equal("finalization.boosting.beside", lambda records: _beside(records, "finalization")),
        Equal("finalization.run", _same_run),
        Equal("finalization.run.groups", lambda records: (run := _same_start(records)) and run.groups),
        Equal("finalization.run.first_loss", lambda records: (run := _same_start(records)) and run.first_loss),
        Equal("finalization.run.signals.start.data", lambda records: (run := _same_start(records)) and run.signals.start.data),
        Equal(
            "finalization.run.signals.start.model.weights",
            lambda records: (run := _same_start(records)) and run.signals.start.model.weights,
        ),
        Equal("finalization.references.rows.*.metrics", _same_models, ROUNDING),
        *(Equal(f"finalization.references.{name}", _same_terms(name)) for name in ("level", "resamples")),
        Equal("finalization.references.network.metrics", lambda records: _network(records, "validation"), MEASURED_AGAIN),
        Equal("finalization.tested_references.network.metrics", lambda records: _network(records, "test"), MEASURED_AGAIN),
        Equal("finalization.test.samples", _test_samples),
        Equal("finalization.test.splits.*.samples", _opened_rows),
        Equal("finalization.test.intervals.level", lambda records: _setting(records, "interval_level")),
        Between("finalization.test.intervals.resamples", 0, lambda records: _setting(records, "interval_resamples")),
        _Held("finalization.test"),
        Between("finalization.runs_tried", _known_runs),
        Equal("finalization.way_back.trials", lambda records: getattr(records.optimization, "planned_trials", None)),
        Equal("finalization.way_back.set", _taken_back),
    ),
}
