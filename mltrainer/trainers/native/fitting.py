"""`mltrainer.fit`: a training in this process, to explore; the same loop and the same bits as a run's, but never evidence.

It needs no project and no gate, and leaves nothing behind: its files are in a temporary folder that is removed, and torch's
switches and all random generators are restored afterwards.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from mltrainer.checkpointing.ranking import best_row
from mltrainer.checkpointing.weights import delivered
from mltrainer.configs.loading import assign, validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import overlay, shipped_template
from mltrainer.diagnostics.rules import diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.follow.progress import shown
from mltrainer.leftovers import scratch
from mltrainer.records.event import Tell
from mltrainer.records.job import TrainingJob
from mltrainer.reports import notebook
from mltrainer.reports.frames import history_frame
from mltrainer.reproducibility import determinism, seeds
from mltrainer.tasks.task import Task
from mltrainer.tools.program import Events
from mltrainer.trainers.native.result import build_result
from mltrainer.trainers.native.session import Session

if TYPE_CHECKING:
    import pandas as pd

NAME = "exploration"
MOST_SHOWN = 4  # metrics in the one-line summary
CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS has no deterministic form (PyTorch's notes on randomness)


@dataclass(frozen=True, repr=False)
class Fit:
    """The result of an exploring training; no gate accepts it as evidence.

    Attributes:
        config: The config that decided the training.
        result: The measurements, as in a run's `result.json`.
        model: The model with the weights of the best evaluation, ready to use.
    """

    config: TrainingConfig
    result: dict[str, Any]
    model: nn.Module
    is_evidence: ClassVar[bool] = False

    @property
    def state(self) -> str:
        """`finished`, or `failed` if a loss, a metric or a gradient was not finite."""
        return str(self.result["state"])

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row for each evaluation: `epoch`, `step`, `lr`, `train_loss`, `train`, `validation` and more."""
        return list(self.result["history"])

    def frame(self) -> pd.DataFrame:
        """Return the history as a pandas frame, nested values as columns such as `validation.accuracy`.

        Raises:
            InputError: pandas is not installed.
        """
        return history_frame(self.history)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the best evaluation; those of the training set begin with `train_`."""
        return dict(self.result["metrics"])

    @property
    def curves(self) -> notebook.Curves:
        """The figures of the training, which a notebook shows."""
        return notebook.curves(self.result)

    def diagnose(self) -> list[dict[str, Any]]:
        """Return every diagnostic's row: `id`, `state`, `reason` and more."""
        return [row.model_dump() for row in diagnose(Run.of(self.result, config=self.config.model_dump()), None)]

    def __repr__(self) -> str:
        """Return a one-line summary of the model and its training; `result` and `config` have the rest."""
        best = ", ".join(f"{name} {value:.4g}" for name, value in [*self.metrics.items()][:MOST_SHOWN])
        steps, model = int(self.result["steps"]), type(self.model).__name__
        return f"Fit({self.state}, {steps:,} steps of {model}; {best or 'no metrics'})"

    def _repr_markdown_(self) -> str:
        return notebook.fit_markdown(self.result, str(self.config.task.use or self.config.task.kind))


def fit(
    task: Task | Mapping[str, Any],
    *,
    set: Mapping[str, Any] | None = None,
    tell: Tell | None = None,
    **keys: Any,
) -> Fit:
    """Train at once, in this process, to explore: no project, no gate, no evidence.

    Missing keys have the baseline template's values. The loss chooses the best weights unless `metric` is given.

    Args:
        task: A custom task, also one whose class is defined in a notebook; or the value of `task` in
            `mltrainer.yaml`, such as `{"kind": "image_classification"}`.
        set: Changes by dotted name, as after `--set`: `{"optimizer.lr": 3e-4}`.
        tell: A function that receives the events instead of the progress display: "progress", "row" (an evaluation), "note".
        **keys: Keys of `mltrainer.yaml` and `training_config.yaml` with their values, such as `epochs=5` or
            `metric={"name": "accuracy", "mode": "max"}`. Paths are relative to the current folder.

    Returns:
        The history, the metrics and the model.

    Raises:
        InputError: A key, the data or the task has a mistake.

    Examples:
        >>> import mltrainer
        >>> found = mltrainer.fit(
        ...     {"kind": "image_classification"},
        ...     data={"source": "sklearn:digits"},
        ...     model={"name": "mlp", "hidden": [32]},
        ...     metric={"name": "accuracy", "mode": "max"},
        ...     epochs=2,
        ... )
        >>> len(found.history), found.is_evidence
        (2, False)
    """
    given, named = (task, {"use": _name_of(task)}) if isinstance(task, Task) else (None, dict(task))
    metric = {"name": "loss", "mode": "min", "ties": "loss"}
    start = {**shipped_template(named.get("use")), "name": NAME, "metric": metric, "task": named}
    values = assign(overlay(start, keys), (set or {}).items())
    config = validate_values(TrainingConfig, values, "fit")
    if config.tracking is not None:
        raise InputError(
            "fit leaves nothing behind, so that trackers have nothing to read", where="tracking", hint="leave it out"
        )
    return train(config, Path.cwd(), given, tell)


def _name_of(task: Task) -> str:
    """Return the name of a task's class in the form of a config; exploring does not import it from there."""
    return f"{type(task).__module__}:{type(task).__name__}"


def train(config: TrainingConfig, root: Path, task: Task | None = None, tell: Tell | None = None) -> Fit:
    """Train a config in this process and return the result.

    Args:
        config: The config of the training.
        root: The folder to which the config's paths are relative, and from which its modules are imported.
        task: An existing task, in place of the one that the config names.
        tell: A function that receives the events; without it, standard error shows the progress.
    """
    started = time.perf_counter()
    with _alone() as folder, shown(tell) as taker:
        session = Session(_job(config, folder), folder, _Told(taker), lambda: None, root, task)
        session.prepare()
        outcome = session.train()
        # Before the best weights are loaded: the result's digest is that of the final weights.
        result = build_result(session, outcome, started)
        _take_best(session)
        session.task.close()
    return Fit(config, result, session.model)


@contextlib.contextmanager
def _alone() -> Iterator[Path]:
    """Yield a scratch folder; afterwards, this process's settings and random generators are restored."""
    name, value = CUBLAS
    before = os.environ.get(name)
    with scratch("fit-") as folder, determinism.kept(), seeds.kept():
        os.environ[name] = value
        try:
            yield folder
        finally:
            os.environ.pop(name)
            os.environ.update({} if before is None else {name: before})


def _job(config: TrainingConfig, folder: Path) -> TrainingJob:
    """Return a job that belongs to no phase: it has no contract, so that no run can have its name."""
    return TrainingJob(
        run=NAME,
        phase=NAME,
        purpose="explore",
        folder=str(folder),
        config=config,
        contract={},
        threads=config.threads,
        resumable=True,
    )


class _Told(Events):
    """Passes events to a function in this process."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(None)
        self._tell = tell

    def send(self, event: str, **values: Any) -> None:
        """Pass on one event."""
        self._tell({"event": event, **values})


def _take_best(session: Session) -> None:
    """Load the weights of the best evaluation into the model, if they were kept, and set it to evaluation mode."""
    best = best_row(session.trainer.history, session.config.metric)
    if best is not None and session.checkpoints.path(best.step).is_dir():
        session.model.load_state_dict(delivered(session.checkpoints.load(best.step)[0]), strict=True)
    session.task.strategies.release(session.model)
    session.model.eval()
