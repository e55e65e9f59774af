"""The front door for programs and notebooks: a project with what the command line does, as plain calls that return values.

`Project` here is what `import mltrainer` shows; `mltrainer.workspace.Project`, which the engine hands around, is only the places
in its folder.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer import plugins
from mltrainer.configs.launching import EngineName
from mltrainer.configs.loading import Changes, as_assignments
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.follow.progress import shown
from mltrainer.gates.gate import Gate, check_gates
from mltrainer.gates.machine import advice, asked, derive
from mltrainer.phases.present_config import present_config
from mltrainer.project import engine
from mltrainer.project.foreseen import Foreseen, foresee
from mltrainer.project.review import review
from mltrainer.project.start import NETWORK, Script, make_project
from mltrainer.project.views import Comparison, Gates, Predictions, Review, Run, Runs, Status, looks
from mltrainer.records.reading import Record, read_records
from mltrainer.reproducibility.repository import identity
from mltrainer.runs.drift import drifted
from mltrainer.runs.exports import export_run
from mltrainer.runs.find import compare_runs, config_of, describe_run, find_run, result_of, run_ids
from mltrainer.runs.fork import fork as fork_run
from mltrainer.runs.launcher import AS_CONFIGURED, Placement, Tell, Tools, tools_of
from mltrainer.runs.models import best_model, final_model
from mltrainer.runs.predict import Rows, as_file, delivered, predict
from mltrainer.runs.reproduce import reproduce_run
from mltrainer.workspace import PHASES, find_project

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from mltrainer.trainers.native.fitting import Fit

FINAL_MODEL = "final_model"
SHARED = ("baseline", "finalization")  # the phases that train a run which several processes can share
SEARCHES = "optimization"

Found = dict[str, Any]


class Project:
    """A project: its phases, gates, runs and records.

    Progress shows on standard error, as on the command line; a method that takes `tell` calls it with each event in place of
    that: "phase", "note", "progress", "row" (an evaluation), "trial". Changes of the config, `set`, are given by dotted name,
    `{"optimizer.lr": 3e-4, "model.hidden": [256, 256]}`, or as they are typed, `["optimizer.lr=3e-4"]`. Questions are methods,
    too: `rows`, `ablate`, `components`, `seeds`, `try_fixes`, `apply_fix`, `lr_find`, `batch_size`, `plan`, `cost`,
    `profile`, `extrapolate` and `landscape`, each of which takes `tell`, and returns what its command prints with `--json`.

    Calls that only look (`status`, `foresee`, `gates`, `check`, `waive`, `report`, `runs`, `load_run`, `compare`, `records`) open
    the project's own plain files alone, as the commands do, and run nothing of the project.

    Args:
        folder: The folder that holds `mltrainer.yaml`, or one below it; by default the current one.

    Raises:
        InputError: There is no project.

    Examples:
        >>> project = mltrainer.Project("digits")
        >>> ran = project.run(until="baseline")
        >>> project.gates()["baseline"].holds
        True
        >>> project.load_run("baseline").metrics["accuracy"] > 0.9
        True
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._places = find_project(Path(folder) if folder is not None else Path.cwd())

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *,
        example: str | None = None,
        data: str | Path | None = None,
        target: str | None = None,
        validation: str | Path | None = None,
        test: str | Path | None = None,
        model: str = NETWORK,
        script: str | None = None,
        metrics: str = "metrics.json",
        metric: str = "accuracy",
        tell: Tell | None = None,
    ) -> Project:
        """Make a project, as `mltrainer init` does, and return what was inferred and written, in words.

        Args:
            folder: Its folder; made where it is missing.
            example: A built-in example: digits, wine, diabetes, sentiment, textgen or trades.
            data: A table whose task is inferred.
            target: The column of `data` to predict.
            validation: A separate data set to validate on, in the form of `data`.
            test: A separate data set to test on.
            model: The model of a table: "network", or "boosting" (gradient boosting, as a program).
            script: A program that trains by itself, as it is typed.
            metrics: The file where it writes its metrics, as JSON.
            metric: The one of them that it is judged by.
            tell: The function that receives the events.

        Raises:
            InputError: The folder holds a project already, or the arguments do not fit together.
        """
        held_out = {name: None if path is None else Path(path) for name, path in {"validation": validation, "test": test}.items()}
        program = None if script is None else Script(script, metrics, metric)
        with shown(tell) as taker:
            table = None if data is None else Path(data)
            for line in make_project(Path(folder), example, table, target, held_out, program, model=model):
                taker({"event": "note", "text": line})
        return cls(folder)

    @property
    def folder(self) -> Path:
        """The folder that holds `mltrainer.yaml`."""
        return self._places.root

    def __repr__(self) -> str:
        return f"Project({str(self.folder)!r})"

    def _repr_markdown_(self) -> str:
        return self.status()._repr_markdown_()

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    # --- phases and gates ---

    @looks
    def status(self) -> Status:
        """Return each phase's state, and what comes next."""
        states = derive(self._places)
        return Status(tuple(states), advice(states))

    @looks
    def gates(self, *, files: bool = False) -> Gates:
        """Return every phase's gate, recomputed from the committed records; needs no data, no weights, no torch.

        Args:
            files: Demand data and checkpoints too, and hash them whole.
        """
        return Gates(check_gates(self._places, files))

    @looks
    def check(self, phase: str | None = None, *, files: bool = False) -> Gates:
        """Check gates again, as `mltrainer gate check` does: `.hold` of what it returns is true where that would exit with 0.

        Args:
            phase: One phase's gate alone; by default that of planning, and of every phase that has a record or reports.
            files: Demand data and checkpoints too, and hash them whole.

        Raises:
            InputError: There is no such phase.
        """
        states = derive(self._places, demand_files=files)
        return Gates(state.gate for state in asked(states, None if phase is None else _known(phase)))

    @looks
    def foresee(self, until: str | None = None) -> Foreseen:
        """Return the phases that `run` would run, each with the reason, and its stop; nothing is run or written.

        Args:
            until: The phase after which it is to stop.
        """
        return foresee(self._places, None if until is None else _known(until))

    def run(self, until: str | None = None, *, tell: Tell | None = None) -> Gates:
        """Walk the phases from the first that is not done; stop where a person must decide.

        Args:
            until: Stop after this phase.
            tell: The function that receives the events.

        Returns:
            The gates of the phases that ran; the last one may not hold.

        Raises:
            MltrainerError: A phase was refused, failed or was stopped.
        """
        last = None if until is None else _known(until)
        with self._tools(tell) as tools:
            return Gates(engine.walk(tools, last))

    def phase(
        self,
        name: str,
        *,
        set: Changes | None = None,
        template: str | None = None,
        processes: int | None = None,
        launch: EngineName | None = None,
        workers: int | None = None,
        tell: Tell | None = None,
    ) -> Gate:
        """Run one phase and return its gate, recomputed from what was written.

        Args:
            name: planning, baseline, diagnostics, optimization or finalization.
            set: Changes of the config; the baseline's are planning's, which runs again first.
            template: The template that planning starts from, by path or name.
            processes: The number of processes that train the phase's run together, in place of `launch.processes`, or each
                trial of optimization, in place of the tuning template's `trial.processes`.
            launch: The place where optimization trains its trials, in place of the config's `launch.engine`: local, slurm or ray.
            workers: The number of trials that optimization trains at a time, in place of the tuning template's.
            tell: The function that receives the events.

        Raises:
            InputError: There is no such phase, key or template; or the phase trains no run in several processes, or no trials.
            GateError: The gate before it does not hold; the item and the fixing command are named.
            MltrainerError: The phase failed or was stopped.
        """
        phase = _known(name)
        assignments = as_assignments(set)
        if processes is not None and phase == SEARCHES:
            assignments, processes = (*assignments, f"trial.processes={processes}"), None
        if processes is not None and phase not in SHARED:
            what = f"{phase} trains no run in several processes; {', '.join(SHARED)} and {SEARCHES} do"
            hint = f"leave it out, or name it in the config: mltrainer phase run planning --set launch.processes={processes}"
            raise InputError(what, where="processes", hint=hint)
        for option, value in (("launch", launch), ("workers", workers)):
            if value is not None and phase != SEARCHES:
                raise InputError(f"{phase} trains no trials; {SEARCHES} does", where=option, hint="leave it out")
        with self._tools(tell, Placement(processes, launch, workers)) as tools:
            return engine.run_phase(tools, phase, assignments, template)

    @looks
    def waive(self, phase: str, item: str, reason: str) -> Gate:
        """Record a waiver of a failing item under your git identity, and return the gate.

        Raises:
            InputError: There is no such item, it may not be waived, or it does not fail.
        """
        return engine.waive(self._places, _known(phase), item, reason, identity(self.folder))

    @looks
    def report(self, against: str) -> Review:
        """Return the review of a pull request, as `mltrainer report` prints it: every verdict, and the changes against a branch.

        Needs no data, no weights, no torch; the branch's records are read as git holds them, and nothing is checked out.

        Args:
            against: A branch, a tag or another name of a revision of the same repository.

        Raises:
            InputError: There is no repository or no such revision, or nothing is on record, neither there nor here.
        """
        return Review(review(self._places, against))

    # --- runs and records ---

    @looks
    def runs(self) -> Runs:
        """Return every run whose folder is here, the oldest first; a packed one is loaded by its id."""
        return Runs(self._run(name) for name in run_ids(self._places))

    @looks
    def load_run(self, run: str | None = None) -> Run:
        """Return one run.

        Args:
            run: Its id, a unique prefix of it, or a phase's name for its current run; by default the newest phase's.

        Raises:
            InputError: There is no such run, or a prefix fits several.
        """
        return self._run(find_run(self._places, run))

    @looks
    def compare(self, first: str, second: str) -> Comparison:
        """Return the differences of two runs: config keys, digests, metrics, and the first step at which their bits part.

        Args:
            first: The run, as in `load_run`.
            second: The other run, as in `load_run`.

        Examples:
            >>> found = mltrainer.Project("digits").compare("baseline", "finalization")
            >>> found.differences["epochs"], found.same_bits
            ((12, 15), False)
        """
        return Comparison(compare_runs(self._places, find_run(self._places, first), find_run(self._places, second)))

    def load_model(self, run: str = FINAL_MODEL, *, trained: bool = False) -> nn.Module:
        """Return the task's model with the weights that were delivered, or with those of a run; see `mltrainer.load_model`."""
        if run != FINAL_MODEL:
            return best_model(self._places, find_run(self._places, run), trained=trained)
        if trained:
            hint = 'load_model("finalization", trained=True)'
            raise InputError("final_model holds the delivered weights alone", hint=hint)
        return final_model(self._places)

    def _run(self, name: str) -> Run:
        result = result_of(self._places, name) or {}
        return Run(name, describe_run(self._places, name), result, config_of(self._places, name), self._places)

    @looks
    def records(self) -> dict[str, Record]:
        """Return each phase's record, by phase; a phase that has not run is not in it."""
        return read_records(self._places)

    def reproduce(
        self, run: str | None = None, *, steps: int | None = None, processes: int | None = None, tell: Tell | None = None
    ) -> Found:
        """Train a run again in a fresh process and return the comparison, as `mltrainer reproduce --json` prints it.

        Args:
            run: The run, as in `load_run`.
            steps: The number of first steps to compare; of a fork, those after its parent's.
            processes: The number of processes that train it together, whatever number trained it before.
            tell: The function that receives the events.
        """
        with self._tools(tell, Placement(processes)) as tools:
            return reproduce_run(tools, find_run(self._places, run), steps).written()

    def fork(self, run: str, *, step: int | None = None, set: Changes | None = None, tell: Tell | None = None) -> Run:
        """Train a new run from another run's checkpoint and return it; no gate takes it for evidence.

        Args:
            run: The run, as in `load_run`.
            step: The step of the checkpoint; by default the newest intact one.
            set: Changes of the other run's config.
            tell: The function that receives the events.
        """
        with self._tools(tell) as tools:
            return self._run(fork_run(tools, find_run(self._places, run), step, as_assignments(set)).run)

    def export(
        self,
        run: str | None = None,
        *,
        to: str | Path,
        formats: Sequence[str] = (),
        trained: bool = False,
        tell: Tell | None = None,
    ) -> list[Found]:
        """Export a run's best checkpoint, each format compared with the trained model, and return one row for each.

        Args:
            run: The run, as in `load_run`.
            to: The folder to write.
            formats: safetensors, onnx, torch_export, torchscript, onnx_int8_dynamic, onnx_int8_static; by default those of the
                production template.
            trained: The trained weights, where averaged ones are delivered.
            tell: The function that receives the events.
        """
        with self._tools(tell) as tools:
            rows = export_run(tools, find_run(self._places, run), tuple(formats), Path(to), trained=trained)
            return [row.written() for row in rows]

    def predict(self, rows: str | Path | Rows | np.ndarray) -> Predictions:
        """Predict with the delivered model, in a process of its own, after verifying every file of it.

        Args:
            rows: A file or a folder that `mltrainer predict` takes, by its path; or rows as mappings from column to value, a list
                of texts, or an array of what the model reads, samples first.

        Raises:
            InputError: Finalization has delivered no model, or the rows do not suit it; with row and column.
            GateError: A file of the model is not the one that was delivered.

        Examples:
            >>> project = mltrainer.Project("digits")
            >>> found = project.predict(numpy.zeros((2, 1, 8, 8), dtype="float32"))
            >>> len(found.predictions), found.drift
            (2, ())
        """
        folder = delivered(self._places)
        if not isinstance(rows, str | Path) and len(rows) == 0:
            return Predictions((), ())
        with as_file(Path(rows) if isinstance(rows, str) else rows, folder) as path:
            return Predictions(tuple(predict(self._places, path)), tuple(drifted(folder, path)))

    # --- questions ---

    def __getattr__(self, name: str) -> Callable[..., Found]:
        """Return a question's call, which returns what its command prints with `--json`."""
        if name not in plugins.parts("calls"):
            raise AttributeError(f"a project has no {name!r}", name=name, obj=self)
        ask = plugins.part("calls", name)

        @functools.wraps(ask)
        def call(*given: Any, tell: Tell | None = None, **named: Any) -> Found:
            with self._tools(tell) as tools:
                return dict(ask(tools, *given, **named).written())

        call.__dict__.update(__signature__=_of_a_notebook(inspect.signature(ask)))
        return call

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *plugins.parts("calls")]

    def config(self, *, set: Changes | None = None) -> TrainingConfig:
        """Return the config that template, `mltrainer.yaml`, edits and `set` give together; nothing is written."""
        with self._tools(None) as tools:
            return present_config(tools, as_assignments(set))

    def fit(self, *, set: Changes | None = None, tell: Tell | None = None) -> Fit:
        """Train the present config at once in this process, to explore; see `mltrainer.fit`.

        Nothing in the project changes, and no gate takes it for evidence.
        """
        # Here, as it imports torch, for which a caller of the other methods would wait.
        from mltrainer.trainers.native.fitting import train

        return train(self.config(set=set), self.folder, tell=tell)

    @contextlib.contextmanager
    def _tools(self, tell: Tell | None, placement: Placement = AS_CONFIGURED) -> Iterator[Tools]:
        """Yield the project's tools; without `tell` their progress is shown meanwhile."""
        with shown(tell) as taker:
            with tools_of(self._places, taker, placement) as tools:
                yield tools


def _of_a_notebook(asked: inspect.Signature) -> inspect.Signature:
    """Return the signature of a question's call, with `tell` in place of the tools."""
    _, *own = asked.parameters.values()
    tell = inspect.Parameter("tell", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Tell | None")
    return asked.replace(parameters=sorted([*own, tell], key=lambda one: one.kind), return_annotation="Found")


def _known(phase: str) -> str:
    """Return a phase's name.

    Raises:
        InputError: There is no such phase; with the nearest name.
    """
    if phase in PHASES:
        return phase
    raise InputError.unknown("phase", phase, PHASES)


def load_run(project: str | Path | Project, run: str | None = None) -> Run:
    """Return a run of a project.

    Args:
        project: The project, or its folder.
        run: The run's id, a unique prefix of it, or a phase's name; by default the newest phase's run.

    Raises:
        InputError: There is no such project or run.

    Examples:
        >>> run = mltrainer.load_run("digits", "baseline")
        >>> run.state, run.phase
        ('finished', 'baseline')
        >>> run.curves[0].title  # a notebook shows the figure itself
        'Learning curves: loss'
    """
    return _opened(project).load_run(run)


def load_model(project: str | Path | Project, run: str = FINAL_MODEL, *, trained: bool = False) -> nn.Module:
    """Return the task's model with weights that are, byte for byte, those that the records name.

    Needs the data and the code of the task, from which the model is built.

    Args:
        project: The project, or its folder.
        run: `final_model` for the one that finalization delivered; or a run's id, a unique prefix, or a phase's name, for the
            run's best checkpoint.
        trained: The trained weights of a run, where averaged ones are delivered.

    Returns:
        The model on the CPU, in evaluation mode.

    Raises:
        InputError: There is no such run, or its weights are not here.
        GateError: A file is not what its record says.

    Examples:
        >>> model = mltrainer.load_model("digits", "baseline")
        >>> model(torch.zeros(1, 1, 8, 8)).shape
        torch.Size([1, 10])
    """
    return _opened(project).load_model(run, trained=trained)


def _opened(project: str | Path | Project) -> Project:
    return project if isinstance(project, Project) else Project(project)
