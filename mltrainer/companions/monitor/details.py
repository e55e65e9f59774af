"""Data of a page's views: layers over time, classes, a search's trials, settings in which runs differ."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mltrainer.companions.monitor.shown import MetricShown, RunSummary
from mltrainer.configs.loading import flatten
from mltrainer.errors import InputError
from mltrainer.follow.live import STUDIES
from mltrainer.follow.log import read_events, read_rows
from mltrainer.records.partial import partial
from mltrainer.records.reading import sound_records
from mltrainer.records.run import TargetEvaluation, TaskEvaluation
from mltrainer.reports.space import dimensions
from mltrainer.reports.views import evenly
from mltrainer.runs.contract import JOB_FILE
from mltrainer.runs.find import config_of, result_of, run_ids
from mltrainer.workspace import Project, plain, read_if_whole

MOST_TIMES = 40  # distributions of a layer: more ridges are too close to distinguish
MOST_CLASSES = 60  # classes of a drawn confusion matrix
NOT_SETTINGS = ("id",)  # keys of a config that name the project


# --- layers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layers:
    """Histograms of some layers at the start and at evaluations, each `[number of the time, low, high, counts]`.

    Attributes:
        times: The epoch and step of each time.
        weights: Histograms of the weights, by layer.
        activations: Histograms of layers' outputs for a validation batch, by layer.
    """

    times: Sequence[tuple[float | None, int]] = ()
    weights: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    activations: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def layers_of(project: Project, run: str) -> Layers:
    """Return a run's recorded histograms; of too many times, the first, the last and evenly spaced ones between."""
    seen = list(_seen(project, run))
    kept = [seen[place] for place in evenly(len(seen), MOST_TIMES)]
    times = [(epoch, step) for epoch, step, _ in kept]
    return Layers(times, *(_by_layer([_at(found, kind) for *_, found in kept]) for kind in ("weights", "activations")))


def _seen(project: Project, run: str) -> Iterator[tuple[float | None, int, Mapping[str, Any]]]:
    """Yield epoch, step and distributions of each time that has some."""
    folder = project.runs_dir / run
    rows: Sequence[Any] = read_rows(folder)
    starts = [event["start"] for event in read_events(folder, ("observed",)) if event.get("start")]
    start: Any = starts[-1] if starts else None
    if not rows:  # a clone has no log of the run
        result = result_of(project, run) or {}
        rows, start = result.get("history") or (), _at(result, "signals", "start")
    yield from ((0.0, 0, distributions) for distributions in [_at(start, "model", "distributions")] if distributions)
    for row in rows:
        if distributions := _at(row, "signals", "validation", "distributions"):
            yield row.get("epoch"), row.get("step", 0), distributions


def _by_layer(seen: Sequence[Any]) -> dict[str, list[Any]]:
    histograms: dict[str, list[Any]] = {}
    for nr, layers in enumerate(seen):
        for name, one in (layers or {}).items():
            if isinstance(one, dict) and {"low", "high", "counts"} <= one.keys():
                histograms.setdefault(name, []).append([nr, one["low"], one["high"], one["counts"]])
    return histograms


def _at(value: Any, *keys: str) -> Any:
    """Return the value behind keys of nested mappings; None if one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


# --- classes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassesShown:
    """The run's best checkpoint's predictions of each class of a target on validation.

    Attributes:
        name: Name of the target, if there are several.
        rows: Label, true samples, predicted samples and correct samples of each class.
        matrix: Counts, a row for each true class; None for more classes than can be drawn.
    """

    name: str | None
    rows: Sequence[tuple[str, int, int, int]]
    matrix: Sequence[Sequence[int]] | None


def classes_of(project: Project, run: str) -> list[ClassesShown]:
    """Return the classes of a run's targets; none before its end, and none for a task without classes."""
    recorded = _at(result_of(project, run), "evaluation")
    evaluation = partial(TaskEvaluation, recorded if isinstance(recorded, dict) else {})
    return [_classes(one) for one in (evaluation, *evaluation.targets) if one.confusion and _is_square(one)]


def _is_square(evaluation: TargetEvaluation) -> bool:
    """Whether the matrix has a row and a column for each label; a custom task may write anything."""
    size = len(evaluation.labels)
    return len(evaluation.confusion) == size and all(len(row) == size for row in evaluation.confusion)


def _classes(evaluation: TargetEvaluation) -> ClassesShown:
    labels, counts = [str(label) for label in evaluation.labels], evaluation.confusion
    taken = [sum(column) for column in zip(*counts, strict=True)]
    rows = [(label, sum(counts[nr]), taken[nr], counts[nr][nr]) for nr, label in enumerate(labels)]
    return ClassesShown(evaluation.name, rows, counts if len(labels) <= MOST_CLASSES else None)


# --- configs --------------------------------------------------------------------------------------


class Configs:
    """The configs of a project's runs by dotted key, each read once.

    Args:
        project: The project.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[str, Mapping[str, Any]] = {}

    def differing(self) -> dict[str, dict[str, Any]]:
        """Return by run the config's dotted keys in which the runs differ, with its values."""
        configs = {run: self.of(run) for run in run_ids(self._project)}
        keys = sorted({key for config in configs.values() for key in config if key not in NOT_SETTINGS})
        kept = [key for key in keys if len({repr(config.get(key)) for config in configs.values()}) > 1]
        return {run: {key: config[key] for key in kept if key in config} for run, config in configs.items()}

    def of(self, run: str) -> Mapping[str, Any]:
        """Return a run's config; empty if it cannot be read now."""
        values = self._known.get(run, {})
        if not values:
            with contextlib.suppress(InputError):
                values = self._known[run] = plain(flatten(config_of(self._project, run)))
        return values


# --- a search -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialShown:
    """A trial: its number, run, state, metric, and value of each searched key."""

    nr: int
    run: str
    state: str
    value: float | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class SearchShown:
    """A search: its metric, its space (key, form, and choices or ends), and its trials."""

    metric: MetricShown
    space: Sequence[tuple[str, str, Sequence[Any]]]
    trials: Sequence[TrialShown]


def search_of(project: Project, runs: Sequence[RunSummary], configs: Configs, is_running: bool) -> SearchShown | None:
    """Return the recorded search, or the trials so far of a running or interrupted one; None without a search.

    Args:
        project: The project.
        runs: The summaries of all runs.
        configs: Configs of these runs.
        is_running: Whether a search runs now.
    """
    records = [] if is_running else [record for record in sound_records(project) if hasattr(record.evidence, "trials")]
    if not records:
        return _running_search(project, runs, configs)
    found = plain(records[-1].evidence.written())
    trials = [TrialShown(**{key: one.get(key) for key in ("nr", "run", "state", "value", "values")}) for one in found["trials"]]
    return SearchShown(_metric(found["metric"]), _space(found["space"]), trials)


def _running_search(project: Project, runs: Sequence[RunSummary], configs: Configs) -> SearchShown | None:
    """Return the newest study's trials: the runs whose configs differ from the study's only in the searched keys."""
    jobs = sorted(project.state_dir.glob(f"{STUDIES}/*/{JOB_FILE}"), key=lambda path: path.stat().st_mtime)
    job = read_if_whole(jobs[-1]) if jobs else {}
    space, config = job.get("space"), job.get("config")
    if not isinstance(space, dict) or not isinstance(config, dict):
        return None
    of_study = _without(flatten(config), space)
    trials: list[TrialShown] = []
    for run in runs:
        values = configs.of(run.id) if run.phase == "optimization" and not run.parent else {}
        if values and _without(values, space) == of_study:
            value = run.metrics.get(run.metric.name)
            searched = {key: values[key] for key in space if key in values}
            trials.append(TrialShown(len(trials) + 1, run.id, run.state, value, searched))
    return SearchShown(_metric(config.get("metric")), _space(space), trials)


def _without(values: Mapping[str, Any], space: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in values.items()
        if key != "seed" and not any(f"{key}.".startswith(f"{searched}.") for searched in space)
    }


def _metric(found: Any) -> MetricShown:
    return MetricShown(**{key: str(found[key]) for key in ("name", "mode")}) if isinstance(found, dict) else MetricShown()


def _space(space: Mapping[str, Any]) -> list[tuple[str, str, Sequence[Any]]]:
    return [(one.key, one.form, one.values) for one in dimensions(space)]
