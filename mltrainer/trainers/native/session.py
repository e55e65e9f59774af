"""One process's work on one run: seeds, task, model, what the loop works with, and the checkpoint to continue from."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from mltrainer.checkpointing.format import Tree, load
from mltrainer.checkpointing.inventory import protected_steps
from mltrainer.checkpointing.ledger import LEDGER_FILE
from mltrainer.checkpointing.manifest import START_FOLDER, folders, newest_intact, start_of
from mltrainer.configs.items import DataLimits
from mltrainer.diagnostics.causes import causes_of
from mltrainer.diagnostics.nan_loss import located_text
from mltrainer.diagnostics.rules import warning_of
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.follow.log import interruptions, seconds_worked, steps_compared
from mltrainer.follow.splits import read_splits
from mltrainer.observe.file_rows import require_as_recorded
from mltrainer.observe.opened_files import OpenedFiles
from mltrainer.records.common import Call
from mltrainer.records.job import TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.planning import Loader
from mltrainer.records.run import Interruption, Located, Rehearsal, RepeatDifference, Split
from mltrainer.reproducibility import determinism, fingerprint, seeds
from mltrainer.reproducibility.numerics import libraries, numerics_class
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.opening import OpenTask, check_model, make_model, open_task
from mltrainer.tasks.strategy import Reading
from mltrainer.tasks.task import Task
from mltrainer.tasks.updating import Length
from mltrainer.tasks.value_checks import ONE_TARGET
from mltrainer.tools.program import Events
from mltrainer.trainers.native.beginning import take_over
from mltrainer.trainers.native.callbacks import Callbacks
from mltrainer.trainers.native.data.addresses import Plan, plan_for
from mltrainer.trainers.native.data.reading import readers
from mltrainer.trainers.native.data.workers import Limits, workers_needed
from mltrainer.trainers.native.evaluation import measured, writes
from mltrainer.trainers.native.frozen_parameters import Held
from mltrainer.trainers.native.held_state import Attributes, attributes, changed, not_restored
from mltrainer.trainers.native.last_batch import single_samples_named, try_last_batch
from mltrainer.trainers.native.locating import locate
from mltrainer.trainers.native.loss_parts import require_mean
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.observers import PROGRESS_S, GpuWatch, Reporter, Signals
from mltrainer.trainers.native.optimization.averages import Average
from mltrainer.trainers.native.optimization.custom import own_updates
from mltrainer.trainers.native.optimization.gradients import BY_ROWS, clipped_above
from mltrainer.trainers.native.optimization.offloading import NOTHING_TO_DO, is_offloaded
from mltrainer.trainers.native.out_of_memory import memory_watched
from mltrainer.trainers.native.parallel.kinds import parallelism_for
from mltrainer.trainers.native.preparing import compiled_with, prepare_model
from mltrainer.trainers.native.ranks import Ranks, measure_alone, require_alike, require_no_synchronized_norm
from mltrainer.trainers.native.recording import GRADIENTS_FILE, Recorder
from mltrainer.trainers.native.repeats import Repeats
from mltrainer.trainers.native.reproduced import Reproduced, note_initial
from mltrainer.trainers.native.saving import Checkpoints
from mltrainer.trainers.native.signals.data import as_given, of_data
from mltrainer.trainers.native.signals.observing import at_start, looks_at_targets
from mltrainer.trainers.native.signals.tokens import copy_findings
from mltrainer.trainers.native.spikes import Row, SpikeError
from mltrainer.trainers.native.stages import Outcome, Rewind, Stage, Trainer, Until
from mltrainer.trainers.native.stepping import Stepper
from mltrainer.trainers.native.tracing import Tracer
from mltrainer.trainers.result import UnsoundDataError, has_error, require_planned_data, resident_mb
from mltrainer.workspace import OF_MANY, Project, plain, read_json, write_json

UNTRIED = "{} was never tried on a GPU, only on CPUs"
SCALED = ("sgd",)  # optimizers whose steps grow with the gradients
REHEARSAL_SAMPLES = 512
CHANGED_FILE = "changed.json"  # the state of the user's own objects that a probe's first half changed


class Session:
    """One process's work on one run.

    Args:
        job: The run's config and contract, and the purpose of this process.
        folder: The run's folder.
        events: The destination of progress.
        stop_signal: The function that returns the name of a caught SIGINT or SIGTERM, or None.
        root: The project's folder.
        task: An existing task, in place of the one that the config names.
        ranks: The processes that train together; None: this one alone.
    """

    def __init__(
        self,
        job: TrainingJob,
        folder: Path,
        events: Events,
        stop_signal: Callable[[], str | None],
        root: Path,
        task: Task | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.job, self.folder, self.events, self.stop_signal = job, folder, events, stop_signal
        self.root, self._given_task = root, task
        self.ranks = ranks or Ranks()
        self.config = job.config
        self.earlier_causes: list[Interruption] = []
        self.not_restored: list[Call] = []  # in a resumed probe
        self.facts: dict[str, Any] = {}  # planning's record of the data, if the job asks for it
        self.setup_findings: list[Finding] = []  # in a probe with a rehearsal
        self.earlier_compared = 0  # steps that earlier processes computed twice
        self.earlier_s = 0.0  # seconds that earlier processes worked on this run
        self.spikes: Sequence[Row] = ()  # those that are known
        self._spike: int | None = None  # the step of the last one at which this process went back
        self._began = time.perf_counter()

    def prepare(self) -> None:
        """Seed, open the task, build the model, and continue from the newest intact checkpoint if there is one.

        Raises:
            UnsoundDataError: The job asks for planning's record of the data, and the data has an error.
        """
        config = self.config
        _refuse_other_team(config.tensor_parallel, self.ranks.size)
        determinism.switch_on(config.threads, fill_memory="memory" in self.job.disturbances)
        self._tracer = self._begin_trace()
        self.opened = self._observe_files()
        # Seeded again before the task and before the model: the draws of one must not shift those of the other.
        seeds.seed_everything(seeds.key(config.data_seed, "task"))
        self.task: OpenTask = self.open()
        self.start_mb = resident_mb()
        self.callbacks = Callbacks(config, self.root)
        self.draws = seeds.first_draws(config.seed)
        held = self._make_model()
        self._note_contract()
        # Now, because training makes a copy differ.
        is_own = self.job.data_limits is not None and not isinstance(self.task.task, BuiltinTask)
        self.copies = copy_findings(self.model) if is_own else []
        self._make_trainer(held)
        if self._tracer is not None:
            self._tracer.attach(self.task, self.model, lambda: self.trainer.step)
        self._rehearse_evaluation()
        # Before a checkpoint is restored: a resumed run's start signals are those of the new model too.
        self.reporter.at_start = self._observe_start()
        self._restore()
        # After restoring: the common step to continue from is one of the facts.
        self._require_alike_ranks()
        self._note_sharing()
        self.gpu = GpuWatch(config.device, lambda: self.trainer.stage is Stage.TRAIN)

    def _make_model(self) -> Held:
        """Make the model ready for an optimizer; return its frozen parameters."""
        config = self.config
        seeds.seed_everything(seeds.key(config.seed, "model"))
        self.model: nn.Module = make_model(self.task)
        check_model(self.task, self.model)
        self._judge_data()
        # Before the model is called: on a CPU, such a norm fails with an error that gives no way out.
        require_no_synchronized_norm(self.ranks, self.model)
        measure_alone(self.ranks, self.model, self.task.task)
        self._send_start()
        # Before the optimizer is made, which takes the parameters that require a gradient at that moment.
        held = Held(self.model, config.start, is_adapted=self.task.strategies.holds)
        self.model.to(config.device)  # before the optimizer is made, which holds these parameters
        self.init_sha256 = note_initial(self.model, self.folder if self.ranks.writes else None)
        prepare_model(self.model, config)
        for line in self.task.strategies.begin(self.task.training(self.model)):
            self.events.send("note", text=line)
        reading = Reading(self.task.split("train"), self.task.data_sha256, self._reads())
        for line in self.task.strategies.read(self.task.training(self.model), reading):
            self.events.send("note", text=line)
        return held

    def _judge_data(self) -> None:
        """Check the data if the job gives limits, once the model's outputs have shown the kind of its targets."""
        if self.job.data_limits is None:
            return
        if self.ranks.writes:
            self.facts = self._judged(self.task.facts(DataLimits.model_validate(self.job.data_limits)))
        if any(self.ranks.gather(has_error(self.facts))):
            raise UnsoundDataError

    def _judged(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return planning's record of the data, without findings on targets that the loss ignores."""
        void = [row for row in facts["findings"] if row["what"].startswith(ONE_TARGET)]
        if not void or self.ranks.size > 1 or looks_at_targets(self.task, self.config) is not False:
            return facts
        return {**facts, "findings": [row for row in facts["findings"] if row not in void]}

    def _reads(self) -> Callable[[int, int], None]:
        """Return a function that sends the progress of reading the training samples before the steps."""
        begun = sent = time.perf_counter()

        def send(done: int, count: int) -> None:
            nonlocal sent
            now = time.perf_counter()
            if now - sent >= PROGRESS_S:
                sent = now
                self.events.send("progress", step=done, steps=count, loss=None, steps_per_s=done / (now - begun))

        return send

    def _note_contract(self) -> None:
        """Complete the contract with facts that only this process knows."""
        # After the model was prepared, which gives a clear error if no compiler is installed.
        compiler = compiled_with(self.config)
        self.libraries = {**libraries(), **compiler}
        # The CPU's kernels compute an offloaded optimizer's update, and their last bits may differ.
        offload = ("offload",) if is_offloaded(self.config) else ()
        self.numerics_class = numerics_class(self.config.device, *compiler.values(), *offload)
        observed = {"numerics_class": self.numerics_class, "data_sha256": self.task.data_sha256}
        self.contract = {**self.job.contract, **observed}
        require_planned_data(self.job, self.task.data_sha256)

    def _make_trainer(self, held: Held) -> None:
        """Make all that the loop works with, and the trainer."""
        config, job, folder, ranks = self.config, self.job, self.folder, self.ranks
        self.repeats = Repeats(self.task, self._note_difference)
        self.plan: Plan = plan_for(config, self.task.split("train"))
        # The plan stays that of the whole run: schedules and orders follow from it, and a short run makes the same first steps.
        last_step = min(self.plan.steps, job.max_steps or self.plan.steps)
        stepper = self._stepper(self.callbacks, ranks)
        full, terms = self.plan.batch_size * self.plan.accumulate, self.task.strategies.terms
        recorder = Recorder(folder, len(stepper.parameters), self.plan.steps, clipped_above(config), full, ranks.writes, terms)
        layers = [p for p in stepper.parameters if p.dim() >= 2]
        self.signals = Signals(self.task, self.model, self.plan, ranks, layers)
        if config.signals:
            stepper.objective.saw = self.signals.outputs.saw
        if job.purpose == "probe":  # a probe takes all steps that are compared, even with numbers that are not finite
            stepper.looks = False
        self.reporter = self._make_reporter(last_step, recorder)
        self.checkpoints = self._make_checkpoints(stepper.partition.is_shared)
        self.trainer = Trainer(
            task=self.task,
            model=self.model,
            plan=self.plan,
            ranks=ranks,
            held=held,
            callbacks=self.callbacks,
            make_stepper=self._stepper,
            stepper=stepper,
            average=Average(self.model, config, self.plan, stepper.partition),
            recorder=recorder,
            divergence=Reproduced(job, folder, self.root, recorder).divergence,
            checkpoints=self.checkpoints,
            until=Until(last_step, self._stops_at_difference(), job.rungs or (), self.stop_signal, self._time_is_over),
            signals=self.signals,
            observers=[self.signals, self.reporter, self.callbacks],
            delivers_after=job.delivers_after,
            splits=read_splits(folder) if job.splits is None else job.splits,
        )

    @property
    def tokens_per_sample(self) -> int | None:
        """The tokens that a sample of a built-in task predicts; None where samples differ in it, or have none."""
        return self.task.task.tokens_per_sample if isinstance(self.task.task, BuiltinTask) else None

    def _time_is_over(self) -> bool:
        """Return True once all processes of the run together have taken the time after which the config stops it."""
        budget = self.config.budget
        if budget.action == "judge" or self.job.purpose != "train" or self.job.phase in OF_MANY:
            return False
        return self.earlier_s + time.perf_counter() - self._began >= 60 * budget.minutes

    def _note_difference(self, found: RepeatDifference) -> None:
        # With what this process did, because the run stops here.
        self.reporter.log({"event": "differed", **found.written()}, self.reporter.worked())

    def _make_reporter(self, last_step: int, recorder: Recorder) -> Reporter:
        return Reporter(
            self.config.metric.name,
            self.plan,
            last_step,
            self.folder,
            self.events,
            recorder,
            self.signals,
            self.ranks.writes,
            self._began,
            self.repeats.compared,
            self.tokens_per_sample,
        )

    def _make_checkpoints(self, is_shared: bool) -> Checkpoints:
        job, place = self.job, self.folder / "checkpoints"
        protected = protected_steps(Project(self.root), job.run)  # no more can be added meanwhile: the project is locked
        keeps = job.purpose == "train" or job.resumable
        return Checkpoints(place, self.config, self.plan, self.contract, job.run, protected, self.ranks, is_shared, keeps)

    def _stepper(self, callbacks: Callbacks, ranks: Ranks) -> Stepper:
        """Return a stepper with a new optimizer."""
        config, task = self.config, self.task.task
        length = Length(self.plan.steps, self.plan.steps_per_epoch)
        objective = Objective(task, self.model, config, self.task.strategies)
        own = own_updates(task, self.model, config, length, self.root)
        stepper = Stepper(objective, parallelism_for(config, self.model, ranks), own, self.spikes)
        callbacks.attach(stepper)
        self.repeats.attach(stepper)
        return stepper

    def open(self) -> OpenTask:
        """Return the opened task of the config."""
        return open_task(self.config, self.root, self._given_task)

    def _send_start(self) -> None:
        """Send a note with the counts of tensors loaded, new and unused, if the config names weights to begin with."""
        if (start := self.task.start) is not None:
            counts = f"{len(start.loaded)} tensors loaded, {len(start.new)} begin as new ones"
            self.events.send("note", text=f"begins with {start.weights}: {counts}, {len(start.unused)} of the file's not used")

    def _note_sharing(self) -> None:
        """Send a note if a `launch` option changes nothing here, or was never tried on this device."""
        launch, is_cuda = self.config.launch, self.config.device == "cuda"
        notes = {
            NOTHING_TO_DO: launch.offload is not None and not is_cuda,
            UNTRIED.format("launch.offload: optimizer"): is_offloaded(self.config),
            UNTRIED.format("launch.parallel: pipeline"): is_cuda and launch.parallel == "pipeline",
            UNTRIED.format("tensor_parallel"): is_cuda and self.config.tensor_parallel > 1,
            f"launch.parallel: {launch.parallel} shares nothing: no matrix has more than {BY_ROWS:,} numbers": (
                launch.parallel in ("zero1", "fsdp") and self.ranks.size > 1 and not self.trainer.stepper.partition.is_shared
            ),
        }
        for text in (text for text, is_so in notes.items() if is_so):
            self.events.send("note", text=text)

    def _begin_trace(self) -> Tracer | None:
        """Begin to trace before the user's module is imported, if this process searches for the cause of a difference."""
        first_step = self.job.trace_from
        return None if first_step is None or not self.ranks.writes else Tracer(self.folder, self.root, first_step)

    def _observe_files(self) -> OpenedFiles | None:
        """Begin to record opened files, before the user's module is imported; not in searches and ablations."""
        self._refuse_other_inputs()
        is_evidence = self.job.purpose in ("probe", "train") and self.job.phase not in OF_MANY
        return OpenedFiles(self.folder, self.root) if is_evidence else None

    def _refuse_other_inputs(self) -> None:
        """Refuse other input files than planning recorded; a reproduction goes on, and shows the effect of other files.

        Raises:
            GateError: A file is gone, or changed.
        """
        if self.job.purpose != "reproduction":
            require_as_recorded(self.job.input_files or (), self.root)

    def _stops_at_difference(self) -> bool:
        """Return True if equal bits can be expected: not on another machine or with other packages."""
        same = self.job.expected_numerics in (None, self.numerics_class)
        return same and not self.job.to_the_end

    def _rehearse_evaluation(self) -> None:
        """Measure a few validation samples first, so that a missing or failing metric is found before training.

        Raises:
            InputError: The config's metric, or one of its criteria, is not among the task's metrics.
        """
        validation = self.task.split("validation")
        positions = np.arange(min(len(validation), REHEARSAL_SAMPLES))
        begun = time.perf_counter()
        task = self.task.task
        found = measured(self.task, self.model, validation, "validation", positions, hold=writes(task, "evaluation"))
        metrics = self._measured = found.metrics
        seconds = time.perf_counter() - begun
        self.rehearsal = Rehearsal(samples=len(positions), seconds=seconds, held_bytes=found.held_bytes)
        own = [name for name in metrics if name not in found.beside]  # only these have values of other models
        _refuse_unmeasured("metric.name", [self.config.metric.name], own)
        _refuse_unmeasured("acceptance", list(self.config.acceptance), [*metrics, *(f"train_{name}" for name in own)])

    def _observe_start(self) -> dict[str, Any] | None:
        """Return the signals of model and data before the first step; in one of many runs on the same data, only the model's."""
        if not (self.config.signals and self.ranks.writes) or self.job.purpose not in ("train", "explore"):
            return None
        return self._observed_start()

    def _observed_start(self) -> dict[str, Any]:
        is_alone = self.job.phase not in OF_MANY
        data = of_data(self.task) if is_alone else None
        model = at_start(self.task, self.model, self.config, self.signals.watch, compares=is_alone)
        # With other optimizers, the step's length does not depend on the gradients' size.
        clip = self.config.clip.norm if self.config.clip is not None and self.config.optimizer.name in SCALED else None
        given = as_given(self.task, self.model, self.config) if is_alone else None
        return {"model": model, "data": data, "clip_norm": clip, "as_given": given}

    def _restore(self) -> None:
        is_new = self._spike is None
        if is_new and not self.checkpoints.keeps:
            self._take_over_start()
            return
        if is_new:
            self._take_over_beginning()
            # Both read before this process writes to the log: otherwise its own lines would count as an earlier one's.
            self.earlier_causes = interruptions(self.folder)
            self.earlier_s, self.earlier_compared = seconds_worked(self.folder), steps_compared(self.folder)
        found = self.checkpoints.newest(self.events)
        if found is None:
            self._start_afresh()
            return
        tree, manifest = found
        if self.job.purpose == "train":
            self.checkpoints.refuse_other_contract(manifest)
        self.checkpoints.go_on(tree)
        self._go_on_from(tree)
        if is_new and (now := self._attributes()):
            self.not_restored = not_restored(read_json(self.folder / CHANGED_FILE), now, self.root)
        if not (is_new and self.earlier_causes and self.earlier_causes[-1].step == self.trainer.step):
            self.earlier_causes.append(self._interrupted(manifest.run))
        self._log_resumption()
        self.events.send("note", text=f"continues from step {self.trainer.step} of {self.plan.steps}")

    def _take_over_beginning(self) -> None:
        """Begin with another run's checkpoints that are this one's as well, if the job names such a run."""
        if not self.job.earlier:
            return
        if self.ranks.writes and not folders(self.folder / "checkpoints"):
            take_over(self)
        self.ranks.gather(None)  # the others read the checkpoints once they are all there

    def _interrupted(self, run: str | None) -> Interruption:
        """Return the interruption at a checkpoint of a run that no process noted: it was killed, went back, or is another's."""
        if self._spike is not None:
            return Interruption(step=self.trainer.step, cause=f"back from the spike in step {self._spike}")
        if run is None or run == self.job.run:
            return Interruption(step=self.trainer.step, cause="killed")
        return Interruption(step=self.trainer.step, cause=f"begun by run {run}", run=run)

    def _log_resumption(self) -> None:
        """Log where the run goes on, and after a spike the first and the last step that it leaves out."""
        ends = {} if self._spike is None else dict(zip(("first", "last"), self._left_out(self._spike), strict=True))
        self.reporter.log({"event": "resume", **self.earlier_causes[-1].written(), **ends})

    def _left_out(self, spike: int) -> tuple[int, int]:
        """Return the first and the last step that are left out because of a spike."""
        assert self.config.spikes is not None
        steps = self.config.spikes.left_out(spike)
        return steps[0], min(steps[-1], self.plan.steps)

    def _go_on_from(self, tree: Tree) -> None:
        """Restore a checkpoint of this run.

        Raises:
            InputError: A new model has other tensors than the trained one.
        """
        made, trained = ({k: t.shape for k, t in state.items()} for state in (self.model.state_dict(), tree["model"]))
        if others := sorted(name for name in made | trained if made.get(name) != trained.get(name)):
            raise InputError(
                f"a new model does not have the tensors of the trained one: {', '.join(others[:3])}",
                where="task.use",
                hint="let model() register every parameter and buffer as a tensor of the shape that it keeps in training",
            )
        # Those of the checkpoint's steps, whatever became of the file since: the record is to name each.
        later = (split for split in self.trainer.splits if split.step > tree["step"])
        self.trainer.splits = [*(partial(Split, row) for row in tree.get("splits", ())), *later]
        self.trainer.rewind(tree, Rewind.RESUME)

    def _start_afresh(self) -> None:
        """Begin at step 0; files of a process that died before its first checkpoint, or of steps left behind, are removed."""
        # After going back without a look at the file: the first process may have removed it by now.
        if self._spike is not None or (self.folder / fingerprint.CHAIN_FILE).exists():
            self.earlier_causes.append(self._interrupted(None))
        if self._spike is not None:
            self._log_resumption()
            self.events.send("note", text="begins again: no checkpoint of the steps before is here")
        for name in (fingerprint.CHAIN_FILE, GRADIENTS_FILE, LEDGER_FILE) if self.ranks.writes else ():
            (self.folder / name).unlink(missing_ok=True)
        self._take_over_start()

    def _take_over_start(self) -> None:
        """Begin a fork from a checkpoint of its parent, under the fork's contract.

        Raises:
            InputError: The checkpoint does not fit the config.
            GateError: The checkpoint is damaged, or not the one that the contract names.
        """
        path = start_of(self.root / (self.job.start_of or self.job.folder), self.job.contract)
        if path is None:
            return
        tree, manifest = load(path, None)
        step = tree["step"]
        epoch = self.plan.place(step)[0] + 1
        if step >= self.plan.steps and epoch == manifest.epoch:
            raise InputError(
                f"step {step} of the parent leaves nothing to train: the config ends after epoch {self.plan.epochs}",
                where="epochs",
                hint=f"fork with more epochs, such as --set epochs={2 * epoch}, or with an earlier --step",
            )
        if step >= self.plan.steps or epoch != manifest.epoch:
            raise InputError(
                f"step {step} was in epoch {manifest.epoch} of the parent and would be in epoch {epoch} of "
                f"{self.plan.epochs} here: number of samples, batch size and accumulation must be the parent's",
                hint="fork with the parent's batch_size and accumulate, or train a new run",
            )
        try:
            self.trainer.rewind(tree, Rewind.FORK)
        except (RuntimeError, ValueError, KeyError) as error:
            raise InputError(
                f"the parent's checkpoint does not fit this config: {error}", hint="fork without changing that"
            ) from error
        self.events.send("note", text=f"begins with step {step} of run {manifest.run}")

    def _require_alike_ranks(self) -> None:
        facts = {
            **self.contract,
            "the weights' digest": self.init_sha256,
            "the step to go on from": self.trainer.step,
        }
        require_alike(self.ranks, facts, "give every process the same code, data, packages and files of the run")

    # --- the run ---

    def train(self) -> Outcome:
        """Train to the end, a stop or a failure, with every checkpoint on the disk afterwards."""
        while True:
            try:
                return self._trained()
            except SpikeError as found:
                spikes = found.spikes
            self._begin_again(spikes)  # not above, where the error's frames hold the model

    def _begin_again(self, spikes: Sequence[Row]) -> None:
        """Prepare again, as a new process would, to leave out the steps around the last of some spikes."""
        spike = spikes[-1]
        first, last = self._left_out(spike["step"])
        found = f"loss {spike['loss']:.6g}" if spike["what"] == "loss" else f"gradient norm {spike['norm']:.6g}"
        steps = f"steps {first} to {last}"
        self.events.send("note", text=f"step {spike['step']}: {found} is a spike; goes back, and leaves out {steps}")
        self.checkpoints.leave(first, self.trainer.history)
        self.ranks.gather(None)  # after this the others look for the newest checkpoint
        self.spikes, self._spike = spikes, spike["step"]
        compared, spent = self.repeats.compared, self.trainer.outcome
        self.task.close()
        del self.task, self.model, self.callbacks, self.repeats, self.signals, self.reporter, self.checkpoints, self.trainer
        self.ranks.polls = ()  # the trainer's own
        gc.collect()  # before the memory of another model is taken
        self.prepare()
        self.repeats.compared.update(compared)
        self.trainer.outcome = Outcome(evaluate_s=spent.evaluate_s, checkpoint_s=spent.checkpoint_s, train_s=spent.train_s)

    def _trained(self) -> Outcome:
        trainer, last_step = self.trainer, self.trainer.until.last_step
        self.events.send("start", run=self.job.run, step=trainer.step, steps=last_step, epochs=self.plan.epochs)
        begun = self._attributes()
        observed = {"layers": self.trainer.layers, "train_samples": self.plan.samples, "start": self.reporter.at_start}
        if self.tokens_per_sample is not None:
            observed["tokens_per_sample"] = self.tokens_per_sample
        began = [{"event": "began", "step": self.trainer.step}] if self._spike is None else []
        self.reporter.log(*began, {"event": "observed", **observed})
        self.callbacks.start(self._facts())
        watched = memory_watched(trainer, self.job, self.folder)
        with self.checkpoints, self.gpu, contextlib.closing(self._tracer or contextlib.ExitStack()), watched:
            samples, forgets = len(self.task.split("train")), self.task.forgotten is not None
            with single_samples_named(samples, lambda: trainer.plan_at(trainer.step).batch_size, forgets):
                outcome = self.trainer.run()
            if self.opened is not None and not self.ranks.writes:
                # Its notes stay, because the first process reads those of all.
                self.opened.end()
            self.ranks.gather(None)  # after this the first process removes the notes of all
            self.trainer.leave_ranks()
            self._rehearse_row(outcome)
        if not self.ranks.writes:
            return outcome
        if begun:
            write_json(self.folder / CHANGED_FILE, changed(begun, self._attributes()))
        if outcome.nonfinite is not None and self.job.purpose in ("train", "explore") and self.job.phase not in OF_MANY:
            # Only here, with every checkpoint on the disk: going back to a step before that one reads the newest of them.
            located = self._located(outcome.nonfinite.step)
            outcome.nonfinite = outcome.nonfinite.model_copy(update={"located": located})
        if outcome.reason == "budget" and not any(one.step == trainer.step for one in self.earlier_causes):
            outcome.interruptions.append(Interruption(step=trainer.step, cause="budget"))
        self.signals.margins.write(self.folder)
        stopped = [{"event": "stopped", **interruption.written()} for interruption in outcome.interruptions]
        self.reporter.log(*stopped, self.reporter.worked())
        nonfinite = None if outcome.nonfinite is None else outcome.nonfinite.written()
        self.callbacks.end({"reason": outcome.reason, "step": self.trainer.step, "nonfinite": nonfinite})
        return outcome

    def _attributes(self) -> Attributes:
        """Return the state of the user's own objects; a probe reports the part missing in checkpoints. {} for other jobs."""
        is_asked = self.job.purpose == "probe" and self.job.resumable and self.ranks.writes
        return attributes(self.task, self.model) if is_asked else {}

    def _rehearse_row(self, outcome: Outcome) -> None:
        """Rehearse an evaluation on a few samples, with all that it adds to the steps, if a job asks for it.

        Only errors and findings of it are kept; it follows the steps, so that it cannot affect them.
        """
        if not self.job.rehearse or outcome.reason == "signal" or outcome.nonfinite is not None:
            return
        begun = time.perf_counter()
        if self.config.signals:
            self.setup_findings = self._wrong_setup(self._observed_start())
        if not self.trainer.history:
            self.callbacks.evaluation(self.trainer.rehearsed_row(self._measured))
        samples = self.task.split("train")
        self.setup_findings += require_mean(self.task.task, self.model, samples, self.config)
        self.trainer.held.enter(1)  # evaluations leave all modules in training mode
        with single_samples_named(len(samples), lambda: self.config.batch_size):
            try_last_batch(self.task.task, self.model, samples, self.config)
        outcome.evaluate_s += time.perf_counter() - begun

    def _wrong_setup(self, start: dict[str, Any]) -> list[Finding]:
        """Return a warning for each cause of a bad training that is wrong in itself, according to config and untrained model."""
        plan = {"planned_steps": self.plan.steps, "planned_epochs": self.plan.epochs, "signals": {"start": plain(start)}}
        config = self.config.model_dump()
        causes = causes_of(Run.of(plan, config=config))
        return [Finding("warning", warning_of(one, config)) for one in causes if one.cause.is_wrong]

    def _located(self, step: int) -> Located | None:
        """Return the origin of the number that was not finite; a failure here loses no result, because the run has ended."""
        try:
            values = locate(self.trainer, step, lambda: self._go_back(step), self.root)
        except Exception as error:
            self.events.send("note", text=f"step {step} could not be taken again to see what was not finite: {error}")
            return None
        found = None if values is None else partial(Located, values)
        what = "all is finite when it is taken again" if found is None else located_text(found)
        self.events.send("note", text=f"step {step}, taken again: {what}")
        return found

    def _go_back(self, step: int) -> None:
        """Put weights and optimizer back to the newest good checkpoint before a step, or to the run's beginning."""
        newest, _ = newest_intact(self.folder / "checkpoints")
        tree = None if newest is None else load(newest, None)[0]
        if tree is not None and tree["step"] < step:
            self.trainer.rewind(tree, Rewind.REPLAY)
            return
        begun = folders(self.folder / START_FOLDER)
        seeds.seed_everything(seeds.key(self.config.seed, "model"))
        # Drawn again at their address: of the first weights a run keeps only digests.
        state = make_model(self.task).state_dict()
        self.trainer.restart(state, Callbacks(self.config, self.root))
        if begun:
            self.trainer.rewind(load(begun[0], None)[0], Rewind.REPLAY_FORK)

    def _facts(self) -> dict[str, Any]:
        """Return the run's facts for a callback's `on_start`."""
        job = self.job
        of_job = {"run": job.run, "phase": job.phase, "purpose": job.purpose, "config": job.config.model_dump()}
        return {**of_job, "step": self.trainer.step, "steps": self.trainer.until.last_step, "epochs": self.plan.epochs}

    @property
    def readers(self) -> int:
        """The number of processes that read the training samples; 0 for samples in memory."""
        return readers(self.task.split("train"), self.config)

    def measure_loader(self, limits: Limits) -> Loader:
        """Return the measurement of the number of loader processes that keep this training's steps supplied."""
        busy = self.trainer.recorder.timings.busy_s()
        step_s = statistics.median(busy) if busy else 0.0
        return workers_needed(self.task.split("train"), self.config, step_s, limits)


def _refuse_other_team(planned: int, found: int) -> None:
    """Refuse to compute a model that is split by its plan in another number of processes, which would give other bits.

    Raises:
        InputError: The numbers differ; with both.
    """
    if planned not in (1, found):
        what = f"the model is computed by {planned} processes together, and here by {found}, which gives other bits"
        hint = "train it as a run (baseline, finalization, reproduce): searches, ablations and explorations have one process each"
        raise InputError(what, where="tensor_parallel", hint=hint)


def _refuse_unmeasured(key: str, wanted: list[str], known: list[str]) -> None:
    for name in wanted:
        if name not in known:
            raise InputError.unknown(
                "metric", name, sorted(known), of="of the task", where=key, hint=f"change {key} in mltrainer.yaml"
            )
