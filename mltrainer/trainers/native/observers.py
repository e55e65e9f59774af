"""Observers of a training, which take no part in it: their protocol, and those of its signals, its progress and its GPU."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from mltrainer.checkpointing.format import Tree
from mltrainer.follow.log import EVENTS_FILE
from mltrainer.records.run import Gpu
from mltrainer.tasks.opening import OpenTask
from mltrainer.tools.program import Events
from mltrainer.trainers.native.data.addresses import Plan, Step
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.recording import EvaluationRow, Recorder
from mltrainer.trainers.native.signals.observing import at_evaluation, is_watched, watch_for
from mltrainer.trainers.native.signals.outputs import Margins, RecentOutputs, StepOutputs
from mltrainer.trainers.native.signals.steps import BATCHES, STEPS, Early, EarlySteps
from mltrainer.workspace import append_json_lines

SAMPLE_S = 0.25
WARM_UP_SAMPLES = 4  # the first second: kernels are loaded, memory is allocated
PROGRESS_S = 0.5  # progress is sent at most twice a second


class Observer:
    """Follows a training in each of its processes; a method does nothing unless a class overrides it."""

    def needs_whole(self, step: int) -> bool:
        """Return True if parameters must be whole before and after a step."""
        return False

    def enter(self, step: int) -> None:
        """A step (from 1) begins, for the first time or again."""

    def prepared(self, step: int, data: Step) -> None:
        """A step's samples are here, and the weights are still those before it."""

    def took(self, step: int, epoch: int, data: Step) -> None:
        """A step was taken in an epoch, from 1; its numbers are still on the device."""

    def fetched(self, recorder: Recorder) -> None:
        """The numbers of the steps so far are on the host."""

    def evaluation(self, row: EvaluationRow) -> None:
        """The history has a new row."""

    def checkpoint(self, step: int) -> None:
        """A checkpoint was handed to its writer."""


class Signals(Observer):
    """The signals of a run besides its history: its first steps, the margins of its samples, the samples of spikes, the model.

    Args:
        task: The opened task; if its config has no `signals`, nothing is observed.
        model: The model.
        plan: The run's plan.
        ranks: The processes that take the steps together.
        layers: The weights whose updates are measured.
    """

    def __init__(self, task: OpenTask, model: nn.Module, plan: Plan, ranks: Ranks, layers: Sequence[Tensor]) -> None:
        self._task, self._model, self._plan, self._ranks, config = task, model, plan, ranks, task.config
        self.is_on = config.signals and ranks.writes
        self.watch = watch_for(plan)
        self.margins = Margins(config, plan.epochs, task.split("train").ids)
        self._recent = RecentOutputs(config.signals)
        self.outputs = StepOutputs(self.margins, self._recent, ranks)
        self.early = EarlySteps([*layers] if self.is_on else [], task.target_kind)

    def needs_whole(self, step: int) -> bool:
        """Return True for the steps whose updates are measured."""
        return self._task.config.signals and step in STEPS

    def enter(self, step: int) -> None:
        """Forget the passes of the step before."""
        self.outputs.begin()

    def prepared(self, step: int, data: Step) -> None:
        """Note the targets and the weights of an early step."""
        if self.is_on and step <= BATCHES and data.micro_batches:
            self.early.before(step, self._task.task.targets_of(data.micro_batches[0]))

    def took(self, step: int, epoch: int, data: Step) -> None:
        """Note a step's update and outputs."""
        self.early.after(step)
        self.outputs.took(step, epoch, data)

    def fetched(self, recorder: Recorder) -> None:
        """Bring the signals to the host, and add the responsible samples to new spikes."""
        self.outputs.hand_on()
        losses = {step: loss for step, loss, _ in recorder.fetched}
        for spike in recorder.losses.spikes:
            # With several small batches, the one with the largest loss may be of an earlier fetch, and its outputs are gone.
            if (loss := losses.get(spike["step"])) is not None:
                spike["samples"] = self._recent.largest(spike["step"], loss, self._task.task, self._ranks)
        self._recent.forget()
        self.early.fetch()
        self.margins.fetch(self._ranks)

    def of_model(self) -> dict[str, Any]:
        """Return the model's signals."""
        return at_evaluation(self._task, self._model, self._task.config, self.watch)

    def is_due(self, step: int, evaluations: int) -> bool:
        """Return True if an evaluation observes the model: some do, chosen by the plan alone.

        Args:
            step: The step that the evaluation follows.
            evaluations: The number of evaluations so far, with this one.
        """
        planned = max(1, self._plan.steps // (step // evaluations))
        return self.is_on and is_watched(evaluations, planned, self.watch.evaluations)

    def tree(self) -> Tree:
        """Return the state for a checkpoint."""
        return {"early": self.early.early.tree(), "margins": self.margins.tree()}

    def restore(self, tree: Tree) -> None:
        """Continue from a checkpoint."""
        self.early.early = Early(**tree["early"])
        self.margins.restore(tree["margins"])


class Reporter(Observer):
    """Sends a run's progress, and appends its evaluations to the run's own log.

    Args:
        metric: The name of the run's metric.
        plan: The run's plan.
        last_step: The last step of this training.
        folder: The run's folder.
        events: The destination of progress.
        recorder: The recorder, with the losses and the pace of the steps.
        signals: The signals, with which rules are checked while the run goes on.
        writes: Whether this process writes files.
        began: The value of `time.perf_counter()` when the process began to work on the run.
        compared: The numbers of the steps that this process saw computed twice, as they become known.
        tokens: The tokens of a sample; None where samples differ in it, or have none.

    Attributes:
        at_start: The signals of model and data before the first step; None if they were not observed.
    """

    def __init__(
        self,
        metric: str,
        plan: Plan,
        last_step: int,
        folder: Path,
        events: Events,
        recorder: Recorder,
        signals: Signals,
        writes: bool,
        began: float,
        compared: Collection[int],
        tokens: int | None,
    ) -> None:
        self._metric, self._plan, self._last_step = metric, plan, last_step
        self._folder, self._events, self._recorder, self._signals, self._writes = folder, events, recorder, signals, writes
        self.at_start: dict[str, Any] | None = None
        self._began, self._compared, self._tokens = began, compared, tokens
        self._sent_at = 0.0

    def fetched(self, recorder: Recorder) -> None:
        """Send the progress."""
        now = time.perf_counter()
        if recorder.fetched and now - self._sent_at >= PROGRESS_S:
            self._sent_at = now
            step, loss, _ = recorder.fetched[-1]
            place = {"epoch": self._plan.place(step)[0] + 1, "epochs": self._plan.epochs, "step": step}
            rate, samples = recorder.timings.rates()
            measured: dict[str, Any] = {"loss": loss, "steps_per_s": rate, "samples_per_s": samples}
            if self._tokens is not None:
                measured["tokens_per_s"] = self._tokens * samples
            self._events.send("progress", **place, steps=self._last_step, **measured)

    def evaluation(self, row: EvaluationRow) -> None:
        """Log an evaluation with the signals so far, and send its metrics."""
        # The rules read the signals under the keys of the run's result.
        seen = {key: value for key, value in (self.signals() or {}).items() if key != "start"}
        self.log({"event": "row", **row}, {"event": "signals", "first_loss": self._recorder.first_loss, **seen}, self.worked())
        place = {"epoch": row["epoch"], "epochs": self._plan.epochs, "step": row.step, "steps": self._plan.steps}
        self._events.send("row", **place, train_loss=row["train_loss"], metric=self._metric, validation=row.validation)

    def signals(self, stop: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the signals observed besides the history; None if the start was not observed.

        Args:
            stop: The model's signals at the end, if a number that was not finite ended the run.
        """
        if self.at_start is None:
            return None
        early, spikes = self._signals.early.early.tree(), self._recorder.losses.spikes
        return {"start": self.at_start, "early": early, "spikes": spikes, "stop": stop}

    def worked(self) -> dict[str, Any]:
        """Return the event with what this process did: a later process that continues the run adds it to its own."""
        compared = {"compared": len(self._compared)} if self._compared else {}
        return {"event": "worked", "seconds": time.perf_counter() - self._began, **compared}

    def log(self, *events: dict[str, Any]) -> None:
        """Append to the run's own log; a full disk stops the run here too."""
        if self._writes:
            append_json_lines(self._folder / EVENTS_FILE, events)


# --- the GPU ---------------------------------------------------------------------------------------


class GpuWatch:
    """Samples a GPU's utilization while a block runs.

    Args:
        device: "cuda" to watch it, anything else to do nothing.
        is_stepping: The test whether training steps run now; evaluations and checkpoints are not sampled.
    """

    def __init__(self, device: str, is_stepping: Callable[[], bool]) -> None:
        self._is_cuda = device == "cuda"
        self._is_stepping = is_stepping
        self._stop = threading.Event()
        self._samples: list[int] = []
        self._name: str | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> GpuWatch:
        if self._is_cuda:
            import torch

            # Read here: each thread has its own current device, and a new thread's is the first GPU.
            device = torch.cuda.get_device_properties()
            self._name = device.name
            self._thread = threading.Thread(target=self._watch, args=(f"GPU-{device.uuid}",), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, uuid: str) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            # By its UUID: NVML and torch number GPUs in different orders.
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        # A missing package or driver leaves the utilization unknown, and must not end a training.
        except Exception:
            return
        while not self._stop.wait(SAMPLE_S):
            if self._is_stepping():
                self._samples.append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    def summary(self) -> Gpu | None:
        """Return the median utilization of the GPU after warm-up; None without a GPU."""
        if not self._is_cuda:
            return None
        steady = self._samples[WARM_UP_SAMPLES:]
        return Gpu(name=self._name, utilization=statistics.median(steady) if steady else None, samples=len(steady))
