"""The reference models' job: plain models fitted on a run's training rows, measured on held-out rows beside the run's model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import delivered
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.common import Metrics
from mltrainer.records.job import ReferenceSettings, ReferencesJob
from mltrainer.records.partial import partial
from mltrainer.records.references import Network, Reference, References
from mltrainer.redaction import shortened
from mltrainer.references.models import PlainModel, fit, predict, references, stand_ins
from mltrainer.references.packages import Setting
from mltrainer.reproducibility import seeds
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tasks.builtin import BuiltinTask, ReferenceInputs
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.samples import Samples
from mltrainer.tools.loading import check_data, open_untrained, recorded_files
from mltrainer.tools.program import Events
from mltrainer.trainers.native.evaluation import as_numbers, evaluate
from mltrainer.trainers.native.intervals import ends
from mltrainer.workspace import locked, plain, read_json, write_json

Measure = Callable[[Tensor, Tensor], float]
LEAST_RESAMPLES = 100  # percentiles of fewer are unreliable


@dataclass(frozen=True)
class Asked:
    """The settings of a comparison of models.

    Attributes:
        level: The share of resamples between an interval's two ends, such as 0.95.
        resamples: The greatest number of resamples.
        draws: The greatest number of rows drawn in all resamples together; `LEAST_RESAMPLES` are made even above it.
        sign: 1 if a larger metric is better, -1 if a smaller one is.
        seed: The run's seed.
    """

    level: float
    resamples: int
    draws: int
    sign: int
    seed: int

    def resamples_of(self, rows: int) -> int:
        """Return the number of resamples for a number of rows; it never depends on time, so that intervals are reproducible."""
        return min(self.resamples, max(LEAST_RESAMPLES, self.draws // rows))


Ends = list[float] | None  # an interval's low and high end; None if the metric of some resample is not a number


@dataclass(frozen=True)
class Lead:
    """The network's lead over another model (above zero: the network is better), and that model's own interval."""

    interval: Ends = None
    lead: Ends = None
    verdict: Literal["ahead", "level", "behind"] | None = None


@dataclass(frozen=True)
class Comparison:
    """The network's interval, its lead over each other model by name, and the number of resamples."""

    resamples: int
    network: Ends
    others: dict[str, Lead]


def compare(network: Tensor, others: Mapping[str, Tensor], targets: Tensor, measure: Measure, asked: Asked) -> Comparison:
    """Return the network's interval, and each other model's interval with the network's lead over it.

    Args:
        network: The network's outputs for the held-out rows.
        others: Each other model's outputs, by the model's name.
        targets: The targets of the same rows.
        measure: The compared metric, a function of outputs and targets.
        asked: The comparison's settings.
    """
    count = asked.resamples_of(len(targets))
    draws = seeds.generator(asked.seed, "bootstrap")
    drawn: dict[str | None, list[float]] = {name: [] for name in (None, *others)}
    for _ in range(count):
        rows = torch.from_numpy(draws.integers(0, len(targets), len(targets)))
        for name in drawn:
            drawn[name].append(measure((network if name is None else others[name])[rows], targets[rows]))
    mine = np.array(drawn[None])
    leads = {name: _against(mine, np.array(drawn[name]), asked) for name in others}
    return Comparison(count, ends(drawn[None], asked.level), leads)


def _against(network: np.ndarray, other: np.ndarray, asked: Asked) -> Lead:
    leads, interval = asked.sign * (network - other), ends(other.tolist(), asked.level)
    # A resample may lack a class; some metrics are not a number then.
    if not np.isfinite(leads).all():
        return Lead(interval)
    low, high = np.quantile(leads, [(1 - asked.level) / 2, (1 + asked.level) / 2])
    return Lead(interval, [float(low), float(high)], "ahead" if low > 0 else "behind" if high < 0 else "level")


def work(job: ReferencesJob, root: Path, events: Events) -> int:
    """Run one job; the tool's entry point.

    Args:
        job: The job.
        root: The project's folder.
        events: The destination of progress.
    """
    with locked(root / job.kept / "lock", "the reference models"):
        write_json(root / job.folder / RESULT_FILE, {"schema": 1, **compared(job, root, events).written()})
    return 0


def compared(job: ReferencesJob, root: Path, events: Events) -> References:
    """Return the measurements of the run's model and the plain models on the job's split, which must be unsealed by now.

    Without a run, the better smooth model replaces the network. There are no rows if a plain model cannot read the task's inputs.
    """
    config = job.config
    opened, run = _run(job, root, config)
    task, limits = opened.task, partial(ReferenceSettings, job.settings)
    assert isinstance(task, BuiltinTask)
    fits = _fits(opened, task, job, limits, root, events)
    held = {fit.name: fit.outputs for fit in fits if fit.outputs is not None}
    sign = 1 if config.metric.mode == "max" else -1
    found, targets = run or _stand_in(task, held, _held_out(opened, job.split), config.metric.name, sign)
    asked = Asked(limits.level, int(limits.resamples), int(limits.draws), sign, config.seed)
    against = compare(found, held, targets, lambda o, t: task.metric(config.metric.name, o, t), asked)
    return References(
        metric=config.metric.name,
        samples=len(targets),
        train_samples=len(opened.split("train")),
        level=asked.level,
        resamples=against.resamples,
        network=Network(metrics=_metrics(task, found, targets), interval=against.network),
        rows=[_row(task, fit, targets, against.others.get(fit.name, Lead())) for fit in fits],
        reason=None,
    )


def _run(job: ReferencesJob, root: Path, config: TrainingConfig) -> tuple[OpenTask, tuple[Tensor, Tensor] | None]:
    """Return the task, and the outputs and targets of the run's model for the job's rows, None if there is no run yet."""
    if job.checkpoint is None or job.run_folder is None:
        return open_task(config, root), None
    tree, manifest = load(root / job.checkpoint, recorded_files(root, job.run_folder, job.checkpoint))
    opened, model = open_untrained(config, root)
    check_data(opened, manifest)
    model.load_state_dict(delivered(tree), strict=True)
    found = evaluate(opened.task, model.to(config.device), config, _held_out(opened, job.split), job.split, hold=True)
    return opened, (found.outputs, found.targets)


def _stand_in(task: BuiltinTask, held: Mapping[str, Tensor], rows: Samples, metric: str, sign: int) -> tuple[Tensor, Tensor]:
    """Return the outputs of the better smooth model, which replaces the missing run's, and the targets.

    Raises:
        InputError: No smooth model could be fitted.
    """
    smooth = [held[one.name] for one in stand_ins(classification=task.classes is not None) if one.name in held]
    if not smooth:
        raise InputError("no smooth model could be fitted to judge gradient boosting against")
    targets = task.rows(np.asarray(rows.ids))[1]
    return max(smooth, key=lambda outputs: sign * task.metric(metric, outputs, targets)), targets


def _held_out(opened: OpenTask, split: str) -> Samples:
    return opened.open_test() if split == "test" else opened.split(split)


def _metrics(task: BuiltinTask, found: Tensor, targets: Tensor) -> Metrics:
    return dict(plain({"loss": float(task.loss(found, targets)), **as_numbers(task.metrics(found, targets))}))


def _row(task: BuiltinTask, fit: Fit, targets: Tensor, against: Lead) -> Reference:
    measured = {} if fit.outputs is None else _metrics(task, fit.outputs, targets)
    row = {key: value for key, value in vars(fit).items() if key != "outputs"}
    return Reference(**row, metrics=measured, **vars(against))


# --- fits -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """The outcome of fitting a plain model.

    Attributes:
        name: The model's name.
        title: The model's title in reports.
        rows: The number of training rows in the fit.
        seconds: CPU seconds of the fit and of the prediction of the held-out rows.
        outputs: The outputs for the held-out rows; None if the fit failed or was skipped.
        reason: The reason for missing outputs, else None.
    """

    name: str
    title: str
    rows: int
    seconds: float
    outputs: Tensor | None
    reason: str | None


def _fits(
    opened: OpenTask, task: BuiltinTask, job: ReferencesJob, limits: ReferenceSettings, root: Path, events: Events
) -> list[Fit]:
    """Return every plain model's fit; fits stored by an earlier job are reused."""
    train, config = np.asarray(opened.split("train").ids), job.config
    rows = task.reference_inputs(train[:1])
    if rows is None:
        return []
    train = _some(train, rows, limits, config.seed)
    found = []
    data: tuple[Setting, ReferenceInputs] | None = None
    for reference in _plain_models(rows.form, job, classification=task.classes is not None):
        place = root / job.kept / (reference.name if job.split == "validation" else f"{reference.name}-{job.split}")
        if (kept := _stored_fit(place)) is None:
            data = data or _data(task, train, np.asarray(_held_out(opened, job.split).ids), config)
            events.send("note", text=f"{reference.title}, to compare with: {len(train):,} training rows")
            kept = _fitted(reference, *data, len(task.classes or []), limits.fit_seconds)
            _store_fit(place, kept)
        found.append(kept)
    return found


def _plain_models(form: str, job: ReferencesJob, *, classification: bool) -> list[PlainModel]:
    """Return the plain models of a job; without a run, the boosting model that it names and the stand-ins for a network."""
    found = references(form, classification=classification)
    if job.boosting is None:
        return found
    return [*stand_ins(classification=classification), *(one for one in found if one.name == job.boosting)]


def _some(train: np.ndarray, one: ReferenceInputs, limits: ReferenceSettings, seed: int) -> np.ndarray:
    """Return the training rows for plain models: all, or as many as the limits allow, drawn with the seed."""
    width = 1 if isinstance(one.inputs, list) else one.inputs.shape[1]
    most = max(1, int(min(limits.max_rows, limits.max_cells // width)))
    return train if len(train) <= most else np.sort(seeds.generator(seed, "references").permutation(train)[:most])


def _data(task: BuiltinTask, train: np.ndarray, held_out: np.ndarray, config: TrainingConfig) -> tuple[Setting, ReferenceInputs]:
    rows, others = task.reference_inputs(train), task.reference_inputs(held_out)
    assert rows is not None
    assert others is not None
    weights = None if config.class_weights == "none" else config.class_weights
    # scikit-learn takes seeds of 32 bits.
    return Setting(rows, seeds.key(config.seed, "references") & 0x7FFFFFFF, weights), others


def _fitted(reference: PlainModel, asked: Setting, held_out: ReferenceInputs, classes: int, seconds: float) -> Fit:
    """Fit a plain model; if the fit would take too long or fails, the result has the reason instead of outputs."""
    began, found, reason = time.process_time(), None, None
    try:
        if reference.seconds(asked.plain, classes) > seconds:
            reason = f"this number of rows, columns and classes would take it longer than {seconds:g} s"
        else:
            model = reference.make(asked)
            fit(model, asked.plain)
            found = predict(model, held_out.inputs, classes)
    except Exception as error:  # any error of a library: the phase does not depend on it
        reason = shortened(f"{type(error).__name__}: {error}", 300)
    return Fit(reference.name, reference.title, len(asked.plain.targets), time.process_time() - began, found, reason)


# --- stored fits ----------------------------------------------------------------------------------


def _store_fit(place: Path, fit: Fit) -> None:
    """Store a fit for other runs on the same rows: outputs first, because a fit counts only once its description exists."""
    if fit.outputs is not None:
        np.save(place.with_suffix(".npy"), fit.outputs.numpy())
    write_json(place.with_suffix(".json"), {**asdict(fit), "outputs": fit.outputs is not None})


def _stored_fit(place: Path) -> Fit | None:
    """Return a stored fit; None if it is missing or unreadable."""
    try:
        stored = read_json(place.with_suffix(".json"))
        # Without pickles: loading one can run code.
        found = torch.from_numpy(np.load(place.with_suffix(".npy"), allow_pickle=False)) if stored["outputs"] else None
        return Fit(**{**stored, "outputs": found})
    except (InputError, OSError, ValueError, TypeError, KeyError):
        return None
