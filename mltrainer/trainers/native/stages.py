"""The training loop: a small state machine; everything that it works with is handed in."""

from __future__ import annotations

import enum
import functools
import itertools
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from mltrainer.checkpointing.format import Tree
from mltrainer.checkpointing.ranking import best_row
from mltrainer.checkpointing.weights import weights_sha256, weights_tree_sha256
from mltrainer.configs.schedules import Plateau, learning_rate
from mltrainer.follow.splits import accumulated
from mltrainer.records.common import Divergence
from mltrainer.records.partial import partial
from mltrainer.records.run import Interruption, NonFinite, SkippedStep, Split
from mltrainer.reproducibility import fingerprint
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.updating import Length
from mltrainer.tools.life import NOW
from mltrainer.trainers.native.callbacks import Callbacks
from mltrainer.trainers.native.data.addresses import NOTHING, Plan, Step, altered, training_steps
from mltrainer.trainers.native.evaluation import evaluate, measured
from mltrainer.trainers.native.frozen_parameters import Held
from mltrainer.trainers.native.observers import Observer, Signals
from mltrainer.trainers.native.optimization.averages import Average, State, delivered_state, holding
from mltrainer.trainers.native.optimization.gradients import counts_clipped
from mltrainer.trainers.native.ranks import Ranks, require_alike
from mltrainer.trainers.native.recording import EvaluationRow, Interval, NonFiniteError, Recorder
from mltrainer.trainers.native.saving import Checkpoints, Due
from mltrainer.trainers.native.signals.memory import allocated_mb, memory_mb
from mltrainer.trainers.native.signals.steps import Losses, update_ratios
from mltrainer.trainers.native.spikes import SpikeError
from mltrainer.trainers.native.stepping import Stepper
from mltrainer.trainers.native.stopping import epochs_seen, missed_rung, patience_is_over, plateaus

BUFFERS_APART = "a buffer that each process changes by its own samples: train with --processes 1"


class Rewind(enum.Enum):
    """The reason for restoring a trainer from a checkpoint.

    Attributes:
        RESUME: The run goes on: its records are restored as well.
        FORK: A run begins with the weights of another's checkpoint; chain, history and best are its own.
        REPLAY: Steps are taken again; the records stay.
        REPLAY_FORK: Steps are taken again from the beginning of a run that is a fork.
    """

    RESUME = "resume"
    FORK = "fork"
    REPLAY = "replay"
    REPLAY_FORK = "replay a fork"


class Stage(enum.Enum):
    """The stages of a run; each handler returns the next."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"
    STOP = "stop"


@dataclass
class Outcome:
    """The end of a run: its reason, findings and times."""

    reason: str = "epochs"
    divergence: Divergence | None = None
    nonfinite: NonFinite | None = None
    skipped: list[SkippedStep] | None = None
    seen: dict[str, Any] | None = None  # the model's signals, if a number that was not finite ended the run
    evaluate_s: float = 0.0
    checkpoint_s: float = 0.0
    train_s: float = 0.0
    interruptions: list[Interruption] = field(default_factory=list)


@dataclass(frozen=True)
class Until:
    """The conditions that end training before its plan does.

    Attributes:
        last_step: The last step; that of the plan, or an earlier one for a probe or a short reproduction.
        difference: Whether the first difference from another run ends it.
        rungs: Epochs, or fractions of one, each with the value that the best so far must reach to go on.
        stop_signal: A function that returns the name of the signal that asked for a stop, or None.
        time_is_over: A function that says whether the run has taken its time, after which it ends at an evaluation.
    """

    last_step: int
    difference: bool
    rungs: Sequence[tuple[float, float]]
    stop_signal: Callable[[], str | None]
    time_is_over: Callable[[], bool]


@dataclass(eq=False)
class Trainer:
    """Trains a task's model from step to step; its step number alone decides its position.

    Args:
        task: The opened task.
        model: The model, on its device.
        plan: The run's plan, with the place of each step.
        ranks: The processes that take the steps together.
        held: The frozen parameters.
        callbacks: The user's callbacks, some of which take part in each step.
        make_stepper: A function of callbacks and processes that makes a stepper with a new optimizer.
        stepper: The stepper.
        average: The average of the weights.
        recorder: The recorder, which writes the chain.
        divergence: A function of the chain's new lines, which returns the first divergence from another run, or None.
        checkpoints: The run's checkpoints.
        until: The conditions that end training before its plan does.
        signals: The signals, whose state is part of a checkpoint.
        observers: The observers of the training, the signals among them.
        delivers_after: The step whose weights were delivered, according to the reproduced record.
        splits: The steps from which there are more micro-batches, because memory ran out.

    Attributes:
        delivered_sha256: The digest over all bytes of the weights after that step.
        refused: The step whose update was refused because it would have spoiled the weights.
    """

    task: OpenTask
    model: nn.Module
    plan: Plan
    ranks: Ranks
    held: Held
    callbacks: Callbacks
    make_stepper: Callable[[Callbacks, Ranks], Stepper]
    stepper: Stepper
    average: Average
    recorder: Recorder
    divergence: Callable[[list[str]], Divergence | None]
    checkpoints: Checkpoints
    until: Until
    signals: Signals
    observers: Sequence[Observer]
    delivers_after: int | None
    splits: Sequence[Split] = ()

    delivered_sha256: str | None = field(default=None, init=False)
    refused: int | None = field(default=None, init=False)
    step: int = field(default=0, init=False)
    history: list[EvaluationRow] = field(default_factory=list, init=False)
    stage: Stage = field(default=Stage.STOP, init=False)
    outcome: Outcome = field(default_factory=Outcome, init=False)
    _noted_tree: tuple[int, str] | None = field(default=None, init=False)  # the last tree digest, with its step
    _steps: Iterator[Step] = field(default_factory=lambda: iter(()), init=False)
    _samples_seen: int = field(default=0, init=False)
    _waited: float = field(default=0.0, init=False)
    _is_time: int = field(default=0, init=False)  # whether `every_minutes` have passed
    _is_late: int = field(default=0, init=False)  # whether the run has taken its time
    _delivered: State | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        config, plan = self.task.config, self.plan
        self.config = config
        self.length = Length(plan.steps, plan.steps_per_epoch)
        self.scheduled = learning_rate(config.schedule, config.optimizer.lr, plan.steps, plan.steps_per_epoch)
        self.parameters = self.stepper.parameters
        self.layer_places = [place for place, p in enumerate(self.parameters) if p.dim() >= 2]
        self.layers = [[*self.stepper.parallel.trained][place] for place in self.layer_places]
        self._row_started = self._saved_at = time.perf_counter()
        self._buffers_are_alike = self.ranks.size == 1
        self.ranks.polls = (self._signal, self._minutes_passed, self.until.time_is_over)

    def _enter(self, number: int) -> None:
        """Announce the step (from 1) that is trained next."""
        self.held.enter(self.plan.place(number)[0] + 1)
        self.task.task.enter(number, self.length)
        self.stepper.objective.batch_size = self.plan_at(number).batch_size
        if self.stepper.own is not None:
            self.stepper.own.enter(number, self.history)
        for observer in self.observers:
            observer.enter(number)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: a function of the step, and for a plateau's schedule also of the history."""
        schedule = self.config.schedule
        if not isinstance(schedule, Plateau):
            return self.scheduled(step)
        reductions = plateaus(self.history, self.config.metric, schedule.patience, schedule.min_delta)
        return self.scheduled(step) * schedule.reduced(reductions)

    # --- state that resuming needs ---

    def state_tree(self) -> Tree:
        """Return the state that resuming needs; without generators, because random draws follow from the position."""
        return {
            "model": self.model.state_dict(),
            **self.stepper.state_dict(),
            "average": self.average.state_dict(),
            **({"strategies": state} if (state := self.task.strategies.state_dict()) else {}),
            **({"splits": splits} if (splits := [one.written() for one in self.splits if one.step <= self.step]) else {}),
            "callbacks": self.callbacks.state_dict(),
            "delivered": self._delivered,
            "step": self.step,
            "history": list(self.history),
            "first_loss": self.recorder.first_loss,
            "interval": self.recorder.interval.tree(),
            "chain": asdict(self.recorder.head),
            "gradients": self.recorder.gradients_sha256,
            "signals": {"losses": self.recorder.losses.tree(), **self.signals.tree()},
        }

    def rewind(self, tree: Tree, reason: Rewind) -> None:
        """Restore model, optimizer and callbacks from a checkpoint, even in the middle of an epoch.

        Raises:
            RuntimeError: The model's state does not fit.
            ValueError: The optimizer's state does not fit.
        """
        is_of_another = reason in (Rewind.FORK, Rewind.REPLAY_FORK)
        self.model.load_state_dict(tree["model"], strict=True)
        self.stepper.partition.adopt()
        (self.stepper.take_over if is_of_another else self.stepper.load_state_dict)(tree)
        self.average.load_state_dict(tree["average"])
        self.task.strategies.load_state_dict(tree.get("strategies", {}))
        self.callbacks.load_state_dict(tree["callbacks"])
        self.step = tree["step"]
        if reason is Rewind.RESUME:
            self._rewind_records(tree)
        elif reason is Rewind.FORK:
            self.recorder.begin(self._gradients_size())

    def _rewind_records(self, tree: Tree) -> None:
        self.history = [EvaluationRow(row) for row in tree["history"]]
        self.recorder.first_loss = tree["first_loss"]
        self.recorder.losses = Losses(**tree["signals"]["losses"])
        self.signals.restore(tree["signals"])
        head = fingerprint.Head(**tree["chain"])
        self.recorder.rewind(head, Interval(**tree["interval"]), tree["gradients"], self._gradients_size())

    def _gradients_size(self) -> int:
        """Return the size in bytes of the gradients' file up to the present step."""
        return self.step * len(self.parameters) * 4

    def restart(self, state: dict[str, Any], callbacks: Callbacks) -> None:
        """Reset model and optimizer to their state before the first step; the records stay.

        Args:
            state: The untrained model's state.
            callbacks: New callbacks.
        """
        # First: a new stepper takes the parameters that require a gradient, as at the run's beginning.
        self.held.begin()
        self.model.load_state_dict(state, strict=True)
        self.task.strategies.load_state_dict({})
        self.stepper, self.step = self.make_stepper(callbacks, self.ranks), 0

    # --- the machine ---

    def run(self) -> Outcome:
        """Train until the plan, early stopping, a signal, a divergence or a number that is not finite ends it."""
        self.model.train()
        # A resumed chain has its first line already; an undisturbed run's chain has no second one.
        if not self.recorder.head.entries and self._note_weights():
            return self.outcome
        self._steps = self._training_steps()
        self._row_started = self._saved_at = time.perf_counter()  # preparation does not count as training time
        handlers = {Stage.TRAIN: self._train, Stage.EVALUATE: self._evaluate, Stage.CHECKPOINT: self._checkpoint}
        (self._is_late, *_) = self.ranks.gather(self.until.time_is_over())
        self.stage = Stage.TRAIN if self._more_to_do() else Stage.STOP
        try:
            while self.stage is not Stage.STOP:
                self.stage = handlers[self.stage]()
        except NonFiniteError as error:
            self.stage = Stage.STOP
            epoch, _ = self.plan.place(error.step)
            self.outcome.reason = "nonfinite"
            found = {"step": error.step, "epoch": epoch + 1, "what": error.what, "samples": error.ids, "recent": error.recent}
            self.outcome.nonfinite = partial(NonFinite, found)  # not validated: its last numbers are not finite
            self.stepper.parallel.gather()  # in all processes, because the number is the same in each
            self.outcome.seen = self.signals.of_model() if self.signals.is_on else None
        self.outcome.skipped = self.stepper.skipped_steps(self.plan.steps)
        self.stepper.parallel.gather()
        self._steps = iter(())  # ends the loader's processes
        return self.outcome

    def _training_steps(self) -> Iterator[Step]:
        """Yield the steps after the present one, each with the micro-batches that this process computes; none if left out."""
        for number, step in enumerate(self._planned_steps(), self.step + 1):
            guard = self.stepper.guard
            yield NOTHING if guard is not None and guard.leaves_out(number) else step

    def _planned_steps(self) -> Iterator[Step]:
        begins = sorted({self.step, *(split.step - 1 for split in self.splits if split.step - 1 > self.step)})
        for begin, end in itertools.pairwise([*begins, self.plan.steps]):
            yield from itertools.islice(self._steps_of(self.plan_at(begin + 1), begin), end - begin)

    def _steps_of(self, plan: Plan, begin: int) -> Iterator[Step]:
        train, parallel = self.task.split("train"), self.stepper.parallel
        steps = training_steps(train, plan, self.config, begin, lambda count: parallel.shards(count, plan.accumulate))
        return altered(steps, plan, begin, self.task.alterations)

    def plan_at(self, step: int) -> Plan:
        """Return the plan with the micro-batches of a step, which are the config's but after a split."""
        accumulate = accumulated(self.splits, step, self.plan.accumulate)
        return replace(self.plan, batch_size=self.plan.step_samples // accumulate, accumulate=accumulate)

    def _more_to_do(self) -> bool:
        if patience_is_over(self.history, self.config):
            self.outcome.reason = "early_stopping"
            return False
        if self._is_pruned():
            self.outcome.reason = "pruned"
            return False
        if self._is_out_of_time():
            self.outcome.reason = "budget"
            return False
        return self.step < self.until.last_step

    def _is_out_of_time(self) -> bool:
        """Return True if the run, whose time is over, was measured after this step and has steps left."""
        is_measured = bool(self.history) and self.history[-1].step == self.step
        # Not before the spike itself: a reproduction that ended there would not see why steps were left out.
        is_ahead = self.stepper.guard is not None and self.stepper.guard.is_ahead(self.step)
        return bool(self._is_late) and is_measured and not is_ahead and self.step < self.until.last_step

    def _is_pruned(self) -> bool:
        epochs_at = functools.partial(epochs_seen, steps_per_epoch=self.plan.steps_per_epoch)
        return missed_rung(self.history, self.until.rungs, self.config.metric, epochs_at) is not None

    def _train(self) -> Stage:
        """Train up to the next step at which something else is due."""
        started = time.perf_counter()
        self._delivered = None
        boundary = self._next_boundary()
        while self.step < boundary:
            if self.recorder.full and self._fetch():
                return Stage.STOP
            compares = self.step + 1 == boundary and self._evaluation_due(boundary)
            whole = compares or any(observer.needs_whole(self.step + 1) for observer in self.observers)
            self._train_step(whole, compares)
            if (guard := self.stepper.guard) is not None and guard.is_over:
                self.outcome.reason = "spikes"
                break
            if guard is not None and guard.goes_back:
                self.outcome.train_s += time.perf_counter() - started
                raise SpikeError(guard.skipped)
            # Decided after every step by all processes: one that asked only if something is due would leave the others waiting.
            signal_number, self._is_time, self._is_late = self.ranks.decided()
            if signal_number:
                self.outcome.reason = "signal"
                cause = signal.Signals(signal_number).name
                self.outcome.interruptions.append(Interruption(step=self.step, cause=cause))
                break
            if self._is_time:
                break
        # Before a row or a checkpoint: otherwise its interval and chain would lack the steps that are still on the device.
        self.stepper.parallel.gather()
        diverged = self._fetch()
        self.outcome.train_s += time.perf_counter() - started
        if diverged or self.outcome.reason == "spikes":
            return Stage.STOP
        return Stage.EVALUATE if self._evaluation_due(self.step) else Stage.CHECKPOINT

    def _require_alike_buffers(self) -> None:
        """Refuse a model whose buffers differ among processes, such as running statistics: its weights would depend on them.

        Raises:
            InputError: A buffer differs; with its name.
        """
        require_alike(self.ranks, {name: weights_sha256({name: b}) for name, b in self.model.named_buffers()}, BUFFERS_APART)
        self._buffers_are_alike = True

    def leave_ranks(self) -> None:
        """Take all further steps in this process alone, after `rewind` or `restart`."""
        self.ranks = Ranks()
        if self.stepper.parallel.splits or self.stepper.partition.is_shared:
            self.stepper = self.make_stepper(self.callbacks, self.ranks)
        self.stepper.parallel.ranks = self.ranks

    def _signal(self) -> int:
        cause = self.until.stop_signal()
        return 0 if cause is None else signal.Signals[cause].value

    def _train_step(self, whole: bool = False, compares: bool = False) -> None:
        """Take the next step.

        Args:
            whole: Whether parameters are whole before and after it.
            compares: Whether their values before it are kept.
        """
        begun = time.perf_counter()
        step = next(self._steps)
        loaded = time.perf_counter()
        self.step += 1
        NOW.take(self.step)
        self._enter(self.step)
        step = self.stepper.parallel.prepare(self.stepper.objective, self.step, step, whole)
        if compares:
            self._remember_weights()
        for observer in self.observers:
            observer.prepared(self.step, step)
        measured = self.stepper.take(self.step, self.rate(self.step), step)
        if whole:
            self.stepper.parallel.gather()
        # Once, after the first step that processes share: no forward pass has changed a buffer before it.
        if step.count > 1 and not self._buffers_are_alike:
            self._require_alike_buffers()
        if measured.taken:
            self.average.update(self.step)
            epoch = self.plan.place(self.step)[0] + 1
            for observer in self.observers:
                observer.took(self.step, epoch, step)
        numbers = (measured.loss, measured.norms, measured.total, measured.terms)
        self.recorder.note(self.step, step.ids, *numbers, counts=not measured.skipped)
        self._samples_seen += len(step.ids)
        self._waited += loaded - begun
        if len(step.ids):  # one without samples computes nothing
            self.recorder.timings.samples.append(len(step.ids))
            self.recorder.timings.wait_s.append(loaded - begun)
            self.recorder.timings.step_s.append(time.perf_counter() - begun)
        if not (measured.taken or measured.skipped):
            self.refused = self.step
            self._fetch()  # raises

    def replay(self, until: int) -> Step:
        """Repeat the steps up to a given one without recording; return that step's samples; it is not taken.

        Args:
            until: The step's number; the trainer is at an earlier step, after `rewind` or `restart`.
        """
        self.model.train()
        later = [row for row in self.history if row.step > self.step]
        self.history = [row for row in self.history if row.step <= self.step]
        for number, step in enumerate(self._training_steps(), self.step + 1):
            if number == until:
                self.held.enter(self.plan.place(number)[0] + 1)
                break
            while later and later[0].step < number:
                self.history.append(later.pop(0))  # a plateau's rate depends on it
            self._enter(number)
            self.stepper.take(number, self.rate(number), step)
            self.step = number
        self.history += later
        return step

    def _next_boundary(self) -> int:
        """Return the next step after which to evaluate or to save."""
        # Every end of an epoch is a boundary: anything due in certain epochs is checked only there.
        every = (self.plan.steps_per_epoch, self.config.evaluate.every_n_steps, self.config.checkpoint.every_n_steps)
        ends = (step for step in self.checkpoints.segment_ends if step > self.step)
        return min(self.until.last_step, *((self.step // steps + 1) * steps for steps in every if steps), *ends)

    def _evaluation_due(self, step: int) -> bool:
        """Return True if the validation set is measured after a step; it always is after the planned last step."""
        return step == self.plan.steps or step % self.config.evaluate.interval(self.plan.steps_per_epoch) == 0

    def _fetch(self) -> bool:
        """Bring the numbers to the host; return whether they differ from the reproduced run."""
        lines = self.recorder.fetch(self.stepper.may_overflow())
        for observer in self.observers:
            observer.fetched(self.recorder)
        return self._differs(lines)

    def _differs(self, lines: list[str]) -> bool:
        if self.outcome.divergence is None:
            self.outcome.divergence = self.divergence(lines)
        found, guard = self.outcome.divergence, self.stepper.guard
        if found is None or not self.until.difference:
            return False
        # A step that the reproduced run left out differs until the spike is found here, too.
        if guard is not None and not guard.is_settled(found.step, self.step):
            return False
        self.outcome.reason = "diverged"
        return True

    def _note_weights(self) -> bool:
        state = self.model.state_dict()
        if self.ranks.size > 1:
            self._require_alike_buffers()
            self.stepper.parallel.require_alike(state)
        if self.step == self.delivers_after:
            self.delivered_sha256 = weights_sha256(state)
        digest = weights_tree_sha256(state, self.ranks, self.config.threads)
        self._noted_tree = (self.step, digest)
        return self._differs(self.recorder.note_weights(self.step, digest))

    def noted_tree(self) -> str | None:
        """Return the tree digest of the present weights from the chain; None if the chain has none after this step."""
        return self._noted_tree[1] if self._noted_tree is not None and self._noted_tree[0] == self.step else None

    # --- evaluation ---

    def _remember_weights(self) -> None:
        self._before = [self.parameters[place].detach().clone() for place in self.layer_places]

    def _update_ratios(self) -> list[float] | list[None]:
        """Return |update| / |weight| of each layer for the last step; None for each if that changed nothing."""
        if self.stepper.guard is not None and self.stepper.guard.changed_nothing(self.step):
            return [None] * len(self.layer_places)
        after = [self.parameters[place].detach() for place in self.layer_places]
        return [float(value) for value in update_ratios(self._before, after).tolist()] if after else []

    def _evaluate(self) -> Stage:
        started = time.perf_counter()
        ratios = self._update_ratios()
        self._delivered = delivered_state(self.task, self.model, self.config, self.average, self.stepper.own_average())
        # Only for evaluation and delivery; training continues with the trained weights, and these enter the chain.
        with holding(self.model, self._delivered):
            spread = self.task.split("train").spread(len(self.task.split("validation")))
            row = self._row(started, ratios, self._measure("train", spread), self._measure("validation"))
            if self.signals.is_due(self.step, len(self.history) + 1):
                row["signals"] = self.signals.of_model()
        if self._delivered is not None and not self.task.strategies.adapts:
            row["trained"] = self._measure("validation")
        self.history.append(EvaluationRow(row))  # complete now: from here on it is only read
        self.recorder.interval = Interval()
        for observer in self.observers:
            observer.evaluation(self.history[-1])
        # Before the checkpoint: if its chain lacked this line, a resumed run would too, as the evaluation is not repeated.
        diverged = self._note_weights()
        self.outcome.evaluate_s += time.perf_counter() - started
        self._row_started, self._samples_seen, self._waited = time.perf_counter(), 0, 0.0
        return Stage.STOP if diverged else Stage.CHECKPOINT

    def rehearsed_row(self, measured: dict[str, float]) -> dict[str, Any]:
        """Return a row like that of an evaluation after the present step, with metrics that were measured before.

        Args:
            measured: The metrics, of few samples.
        """
        row = self._row(time.perf_counter(), [0.0] * len(self.layer_places), measured, measured)
        return row | ({"signals": self.signals.of_model()} if self.config.signals else {})

    def _row(
        self, now: float, ratios: list[float] | list[None], of_train: dict[str, float], of_validation: dict[str, float]
    ) -> dict[str, Any]:
        seconds = now - self._row_started
        return {
            "epoch": self.plan.place(self.step)[0] + 1,
            "step": self.step,
            "lr": self.stepper.used_rate(),
            **self.recorder.interval.row(self.layer_places),
            **({} if counts_clipped(self.config) else {"clipped": None}),
            "update_ratios": ratios,
            "train": of_train,
            "validation": of_validation,
            "seconds": seconds,
            "samples_per_s": self._samples_seen / seconds if seconds > 0 else 0.0,
            "data_wait": self._waited / seconds if seconds > 0 else 0.0,
            **self._memory(),
        }

    def _memory(self) -> dict[str, Any]:
        """Return the loss scale and the memory in use, if signals are observed."""
        if not self.config.signals:
            return {}
        return {**self.stepper.scaled(), "memory_mb": memory_mb(), "allocated_mb": allocated_mb()}

    def measured_samples(self) -> dict[str, int]:
        """Return the number of samples of each split in an evaluation."""
        train, validation = self.task.split("train"), len(self.task.split("validation"))
        return {"train": len(train.spread(validation)), "validation": validation}

    def _measure(self, split: str, positions: np.ndarray | None = None) -> dict[str, float]:
        samples = self.task.split(split)
        if split == "train":  # for comparison with the validation split, and without attacks
            return evaluate(self.task.task, self.model, self.config, samples, split, positions, ranks=self.ranks).metrics
        return measured(self.task, self.model, samples, split, positions, ranks=self.ranks).metrics

    # --- checkpoints ---

    def _checkpoint(self) -> Stage:
        started = time.perf_counter()
        if (due := self._due()) is not None:
            if self.checkpoints.submit(self.state_tree(), self.step, self.history, due, self.noted_tree()):
                for observer in self.observers:
                    observer.checkpoint(self.step)
            self._saved_at = time.perf_counter()
        self.outcome.checkpoint_s += time.perf_counter() - started
        if self.outcome.reason == "signal" or not self._more_to_do():
            return Stage.STOP
        return Stage.TRAIN

    def _due(self) -> Due | None:
        """Return the reason why a checkpoint is due here; None if none is."""
        # First of the three, because a checkpoint that is due only as the best may be replaced by a better one.
        if self._must_be_kept():
            return Due.KEPT
        if self._is_best():
            return Due.BEST
        every = self.config.checkpoint.every_n_steps
        # Decided with the others, because all of them provide their part of the optimizer's state.
        return Due.GO_ON if self._is_time or (every and self.step % every == 0) else None

    def _minutes_passed(self) -> bool:
        """Return True if the last checkpoint is older than `every_minutes`; the step at which that happens decides no bit."""
        minutes = self.config.checkpoint.every_minutes
        return minutes is not None and time.perf_counter() - self._saved_at >= 60 * minutes

    def _must_be_kept(self) -> bool:
        """Return True if a checkpoint is due by the calendar, or because a segment or the run ends, or stops here."""
        epoch, rest = divmod(self.step, self.plan.steps_per_epoch)
        periodic = rest == 0 and epoch % self.config.checkpoint.every_n_epochs == 0
        return (
            periodic
            or self.step in self.checkpoints.segment_ends
            or self.outcome.reason == "signal"
            or self.step == self.until.last_step
            or patience_is_over(self.history, self.config)
            or self._is_pruned()
            or self._is_out_of_time()
        )

    def _is_best(self) -> bool:
        best = best_row(self.history, self.config.metric)
        return self.config.checkpoint.save_best and best is not None and best.step == self.step
