"""Jobs of the tools: models in memory, dumped where `job.json` is written and parsed once where it is read."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError

from mltrainer.configs.launching import EngineName
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.pruning import Pruning
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow, Number, Part
from mltrainer.records.faults import fault_lines
from mltrainer.records.optimization import CountedComparison
from mltrainer.records.run import SpikeSample
from mltrainer.workspace import digest


class JobBase(Part):
    """What every job has.

    Attributes:
        schema_number: Of this form.
        run: The name of what is made: a run, a study, a probe.
        phase: Who asks; None where no phase does.
        folder: Where the result goes, relative to the project.
        config: The training config, with all its keys.
        threads: CPU threads of one operation, set before the interpreter starts.
        launch: Digest of the launcher's mark, without which a tool does not start.
    """

    schema_number: Literal[1] = Field(1, alias="schema")
    run: str
    phase: str | None = None
    folder: str
    config: TrainingConfig
    threads: int
    launch: str | None = None

    def written(self) -> dict[str, Any]:
        """Return the job as its file holds it: the entries that were given, the config in full."""
        # Only what was given: a key that a later version adds must not rename jobs.
        return self.model_dump(by_alias=True, include={"schema_number", *self.model_fields_set})

    @property
    def name(self) -> str:
        """A name for the job's folder, by everything else in the job."""
        return digest({key: value for key, value in self.written().items() if key != "folder"})[:12]


class RunJob(JobBase):
    """A job whose result is named by what it is a function of.

    Attributes:
        contract: Digests of config, data, code and environment; empty for what is no run.
        gate: Digest of the record by which the phase was allowed to begin.
        code_files: The files that planning saw imported.
        data_files: The data that planning saw a program open; None for a task that mltrainer opens itself.
        input_files: The files that planning saw opened beside data and code; None where nobody looked.
        parent: The run that this one descends from.
        tool: The tool that trains, which a result is told to be of.
    """

    contract: dict[str, str]
    gate: str | None = None
    code_files: list[FileRow] | None = None
    data_files: list[FileRow] | None = None
    input_files: list[FileRow] | None = None
    parent: str | None = None
    tool: str | None = None


class TrainingJob(RunJob):
    """Train a config.

    Attributes:
        purpose: A probe ends after `max_steps`; a reproduction begins like a run and is compared with it.
        max_steps: Where it ends; None: at the config's own end.
        rungs: Epochs or fractions of one, each with the metric that the best so far must have reached there, or it ends.
        data_limits: By what the data is judged; None: it is not.
        measure_loader: How long, and how few loader processes are enough.
        resumable: Whether its state is saved though it is no run.
        disturbances: What is changed in its process that must not matter, by the names of `observe.disturbances`.
        rehearse: Whether all is done once that an evaluation of the whole run adds to its steps.
        trace_from: The step from which each module's output is noted.
        compare: The folder of the run whose chain it is compared with.
        start_of: The folder of the run that it begins like.
        expected_numerics: The numerics class of that run.
        to_the_end: Whether it goes on after the first difference.
        delivers_after: The step whose weights were delivered: of them the digest over all bytes is taken, too.
    """

    purpose: Literal["probe", "train", "reproduction", "explore"]
    max_steps: int | None = None
    rungs: list[Annotated[tuple[Number, Number], Field(strict=False)]] | None = None  # JSON has lists alone
    data_limits: dict[str, Number] | None = None
    measure_loader: dict[str, Number] | None = None
    resumable: bool = False
    disturbances: list[str] = Field(default_factory=list)
    rehearse: bool = False
    trace_from: int | None = None
    compare: str | None = None
    start_of: str | None = None
    expected_numerics: str | None = None
    to_the_end: bool = False
    delivers_after: int | None = None


class ExplorationJob(TrainingJob):
    """Answer a question about a config without training a run: `asked` is about what, `settings` are the tool's numbers."""

    purpose: Literal["explore"]
    question: str
    settings: dict[str, Number]
    asked: dict[str, Any]


class TestOpening(Part):
    """How the test split is measured, which opens it.

    Attributes:
        ledger: The file of its openings.
        openings: Those before.
        splits: Digests of the rows of the splits that they opened.
        salt: Of the rows' digests.
        interval: Settings of the metrics' intervals.
    """

    ledger: str
    openings: list[dict[str, Any]]
    splits: dict[str, Any] = Field(default_factory=dict)
    salt: str = ""
    interval: dict[str, Any]


class Ingredient(Part):
    """A model that may be combined with others: the checkpoint of a run.

    Attributes:
        run: The run.
        path: The checkpoint's folder.
        files: Its files, as the run's result has them.
        config: The run's config; None where it is the job's.
    """

    run: str
    path: str
    files: list[FileRow]
    config: TrainingConfig | None = None


class CombineJob(JobBase):
    """Make one model of several, and measure each and it on the validation split.

    Attributes:
        ingredients: The models; the first one is the final run's best, which gives the combination its step and contract.
        how: Weights averaged, all or as many as do not make it worse; or an ensemble.
        most: Of so many, the best.
        out: The folder where the combination's checkpoint goes.
        timed: Whether a forward pass is timed, which no repetition repeats.
    """

    ingredients: list[Ingredient]
    how: Literal["uniform", "greedy", "ensemble"]
    most: int
    out: str
    timed: bool


class Combined(Part):
    """A combination that is exported in place of a run's own model.

    Attributes:
        files: Of its checkpoint.
        how: As of `CombineJob`.
        configs: Of an ensemble's members, by which they are built; none of averaged weights.
    """

    files: list[FileRow]
    how: Literal["uniform", "greedy", "ensemble"]
    configs: list[TrainingConfig] = Field(default_factory=list)


class ExportJob(JobBase):
    """Export a checkpoint of a run, or the untrained model.

    Attributes:
        run_folder: The run's folder.
        checkpoint: Its checkpoint; None for the untrained model.
        out: Where the files go.
        formats: Which are made.
        samples: On how many real inputs they are compared.
        tolerance: The largest difference, relative to the largest output.
        metric_loss: By which share of its value a quantized model's metric may be worse on validation.
        calibration_samples: How many training rows calibrate a quantized model.
        trained: Whether the weights are the trained ones, where averaged ones are delivered.
        test: How the test split is measured; None: it stays sealed.
        combined: The combination that the checkpoint is, where it is one.
    """

    run_folder: str
    checkpoint: str | None
    out: str
    formats: list[str]
    samples: int
    tolerance: Number
    metric_loss: Number = 0.0
    calibration_samples: int = 0
    trained: bool = False
    test: TestOpening | None
    combined: Combined | None = None


class ReferenceSettings(Part):
    """The numbers of the reference models' page, which says what they are."""

    max_rows: Number
    max_cells: Number
    fit_seconds: Number
    level: Number
    resamples: Number
    draws: Number


class ReferencesJob(JobBase):
    """Fit plain models on a run's rows, and measure them beside it.

    Attributes:
        run_folder: The run's folder; None before there is a run.
        checkpoint: Its best checkpoint; None likewise.
        boosting: Before there is a run, the gradient boosting that is compared with what stands for a network; None: all models.
        split: On whose rows they are measured; of the test split only after the run's own look at it.
        kept: The folder of the fits, which runs on the same rows share.
        settings: The numbers of the tool's page.
    """

    run_folder: str | None
    checkpoint: str | None
    boosting: str | None = None
    split: Literal["validation", "test"] = "validation"
    kept: str
    settings: dict[str, Number]


class RowsJob(JobBase):
    """Show samples of a run.

    Attributes:
        run_folder: The run's folder.
        checkpoint: The checkpoint whose losses are told; None for the untrained model.
        chosen: Which samples: those of a `step` or an `epoch`, the `hardest`, the `mislabelled`, or those that are `nonfinite`.
        number: The step or the epoch.
        most: How many are shown; None: all.
        then: Samples of the step whose losses in it are known.
    """

    run_folder: str
    checkpoint: str | None
    chosen: Literal["step", "epoch", "hardest", "mislabelled", "nonfinite"]
    number: int | None = None
    most: int | None
    then: list[SpikeSample] = Field(default_factory=list)


class PooledJob(RunJob):
    """Train many runs, several at a time.

    Attributes:
        workers: Runs at a time; None: as many as there are cores or GPUs, on other machines a few.
        silent_minutes: A worker that says nothing for so long is taken for hung.
        engine: Where they are trained, in place of the config's `launch.engine`.
    """

    workers: int | None = None
    silent_minutes: Number = 30
    engine: EngineName | None = None


class SearchJob(PooledJob):
    """Search a space: `trials` by a `strategy`, then the best one on `seeds` fresh seeds beside the baseline.

    Attributes:
        lag: A trial is chosen by those before it, but for the last so many.
        objectives: Further metrics with their direction, by which the best is chosen, too.
        pruning: How trials that are behind end early; None: none does.
        minutes: After so many, no trial begins; None: what the project's budget leaves, where it is known what the baseline took.
        baseline_s: Wall time of the baseline.
        run_s: What a trial's run will take.
        storage: The database that several machines share, as the tuning template has it; None: there is one machine.
        planned: What both sides of the comparison are trained by; None: the config of the trials.
        planned_s: What a run of it will take; None: as a trial's.
        level: That all comparisons with this plan's baseline may spend; None: they are not counted.
        earlier: The comparisons that were begun before this study.
    """

    space: dict[str, Any]
    trials: int
    strategy: str
    seeds: int
    lag: int = 1
    objectives: dict[str, Literal["max", "min"]] = Field(default_factory=dict)
    pruning: Pruning | None = None
    minutes: Number | None = None
    baseline_s: Number | None = None
    run_s: Number | None = None
    storage: str | None = None
    planned: TrainingConfig | None = None
    planned_s: Number | None = None
    level: Number | None = None
    earlier: list[CountedComparison] = Field(default_factory=list)


class Variant(Part):
    """A config with some keys changed: what it is called, and each dotted key with its value."""

    name: str
    changes: dict[str, Any]


class AblationJob(PooledJob):
    """Train a config and variants of it on the same seeds.

    Attributes:
        variants: The variants.
        seeds: How many fresh seeds; 0: on the config's own seed alone.
    """

    variants: list[Variant]
    seeds: int


# Told apart by a key that one kind alone has: tried one by one, the union would report the faults of every kind.
def _kind(job: Any) -> str:
    marks = {"question": "exploring", "formats": "exporting", "kept": "comparing", "chosen": "inspecting"}
    marks |= {"trials": "searching", "variants": "ablating", "ingredients": "combining"}
    return next((kind for mark, kind in marks.items() if isinstance(job, Mapping) and mark in job), "training")


@functools.cache
def adapter() -> TypeAdapter[Any]:
    """Return the validator of any tool's job."""
    kinds = (
        Annotated[TrainingJob, Tag("training")]
        | Annotated[ExplorationJob, Tag("exploring")]
        | Annotated[ExportJob, Tag("exporting")]
        | Annotated[CombineJob, Tag("combining")]
        | Annotated[ReferencesJob, Tag("comparing")]
        | Annotated[RowsJob, Tag("inspecting")]
        | Annotated[SearchJob, Tag("searching")]
        | Annotated[AblationJob, Tag("ablating")]
    )
    return TypeAdapter(Annotated[kinds, Discriminator(_kind)])


def parsed(content: Any, where: str) -> JobBase:
    """Return a job's content as the model of its kind.

    Raises:
        InputError: With the missing and malformed entries, each by its path.
    """
    try:
        found: JobBase = adapter().validate_python(content)
    except ValidationError as error:
        raise InputError(f"it is no job: {'; '.join(fault_lines(error)[:5])}", where=where) from error
    return found


def file_rows(rows: Iterable[Mapping[str, Any]]) -> list[FileRow]:
    """Return rows of files as models."""
    return [FileRow.model_validate(row) for row in rows]
