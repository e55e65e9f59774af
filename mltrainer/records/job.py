"""Jobs of the tools: models in memory, dumped where `job.json` is written and parsed once where it is read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError

from mltrainer.configs.launching import EngineName
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.pruning import Pruning
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow, Number, Part
from mltrainer.records.faults import fault_lines
from mltrainer.records.optimization import CountedComparison
from mltrainer.records.run import SkippedStep, SpikeSample, Split
from mltrainer.workspace import digest


class JobBase(Part):
    """The entries of every job.

    Attributes:
        schema_number: The number of this form.
        run: The id of the run, study or probe that is made.
        phase: The phase that asks; None where no phase does.
        folder: The folder of the result, relative to the project.
        config: The training config, with all its keys.
        threads: The number of CPU threads of one operation, set before the interpreter starts.
        launch: The digest of the launcher's mark, without which a tool does not start.
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
        # Only the given entries: a key that a later version adds must not rename jobs.
        return self.model_dump(by_alias=True, include={"schema_number", *self.model_fields_set})

    @property
    def name(self) -> str:
        """A name for the job's folder, a digest of everything else in the job."""
        return digest({key: value for key, value in self.written().items() if key != "folder"})[:12]


class RunJob(JobBase):
    """A job whose result is named by a digest of everything that it is a function of.

    Attributes:
        contract: The digests of config, data, code and environment; empty for a job that trains no run.
        gate: The digest of the record that allowed the phase to begin; None where there is none.
        code_files: The files that planning saw imported.
        data_files: The data files that planning saw a program open; None for a task that mltrainer opens itself.
        input_files: The files that planning saw opened beside data and code; None where that was not observed.
        parent: The id of the run that this one descends from; None where it descends from none.
        tool: The name of the tool that trains, which the result names; None for the shipped one.
    """

    contract: dict[str, str]
    gate: str | None = None
    code_files: list[FileRow] | None = None
    data_files: list[FileRow] | None = None
    input_files: list[FileRow] | None = None
    parent: str | None = None
    tool: str | None = None


class TrainingJob(RunJob):
    """A job that trains a config.

    Attributes:
        purpose: The purpose; a probe ends after `max_steps`, a reproduction begins like a run and is compared with it.
        max_steps: The number of steps after which it ends; None: at the config's own end.
        rungs: Pairs of an epoch, or a fraction, and the metric that the best so far must have reached there, or the run ends.
        data_limits: The limits that the data is judged by; None where it is not judged.
        measure_loader: The settings for measuring how few loader processes are enough; None where that is not measured.
        resumable: Whether its state is saved though it is no run.
        disturbances: The names in `observe.disturbances` of the changes to its process that must not matter.
        rehearse: Whether everything that an evaluation of the whole run adds to its steps is done once.
        trace_from: The step from which each module's output is noted; None where none is.
        compare: The folder of the run whose chain it is compared with.
        start_of: The folder of the run that it begins like.
        expected_numerics: The numerics class of that run.
        to_the_end: Whether it goes on after the first difference.
        delivers_after: The step whose weights were delivered: the digest over all their bytes is taken, too.
        claim: The seal of the claim that planning bound before; None where there is none.
        earlier: The ids of runs that differ from it in the forgotten samples alone, and may have made its first steps.
        splits: The splits of the run that it repeats; None: those that are noted in its own folder.
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
    claim: str | None = None
    earlier: list[str] = Field(default_factory=list)
    splits: list[Split] | None = None


class ExplorationJob(TrainingJob):
    """A job that explores a config without training a run: `asked` is the subject, `settings` are the tool's numbers."""

    purpose: Literal["explore"]
    question: str
    settings: dict[str, Number]
    asked: dict[str, Any]


class ReplayJob(TrainingJob):
    """A job that goes on from a run's checkpoints and is compared with the run.

    Attributes:
        saved: The folder of the run's chain and checkpoints.
        compared: The steps of the checkpoints that are here.
        spikes: The run's spikes, which a part of it cannot find again.
    """

    purpose: Literal["reproduction"]
    saved: str
    compared: list[int]
    spikes: list[SkippedStep] = Field(default_factory=list)


class AuditJob(ReplayJob):
    """A job that trains some segments of a run again, and measures checkpoints again.

    Attributes:
        segments: For each segment the step of the checkpoint that it starts from, and its last step; the first starts the run.
        measured: The steps of the checkpoints to measure on the validation split.
        best: The step of the checkpoint whose delivered weights are digested; None: of none.
    """

    segments: list[Annotated[tuple[int, int], Field(strict=False)]]  # JSON has lists alone
    measured: list[int]
    best: int | None = None


class DisputeJob(ReplayJob):
    """A job that takes one step of a run again and notes its operators.

    Attributes:
        disputed_step: The step.
        case_of: The number of the operator of that step that is written into a case; None: none is.
        there: The digests of the other party's results of that operator.
    """

    disputed_step: int
    case_of: int | None = None
    there: list[str] = Field(default_factory=list)


class ScoreJob(JobBase):
    """A job that measures the delivered weights of a checkpoint.

    Attributes:
        checkpoint: The checkpoint's folder.
        scored: The splits that are measured.
        trained: Whether the trained weights are delivered where averaged ones would be.
        recorded_sha256: The digest of the weights in the record; of other weights, validation has intervals, too.
        interval: The settings of the metrics' intervals.
    """

    checkpoint: str
    scored: list[Literal["validation", "test"]]
    trained: bool
    recorded_sha256: str
    interval: dict[str, Any]


class TestOpening(Part):
    """The settings for measuring the test split, which opens it.

    Attributes:
        ledger: The file of its openings.
        openings: The openings before this one.
        splits: The digests of the rows of the splits that they opened.
        salt: The salt of the rows' digests.
        interval: The settings of the metrics' intervals.
    """

    ledger: str
    openings: list[dict[str, Any]]
    splits: dict[str, Any] = Field(default_factory=dict)
    salt: str = ""
    interval: dict[str, Any]


class Ingredient(Part):
    """A model that may be combined with others: the checkpoint of a run.

    Attributes:
        run: The run's id.
        path: The checkpoint's folder.
        files: The checkpoint's files, as the run's result has them.
        config: The run's config; None where it is the job's.
    """

    run: str
    path: str
    files: list[FileRow]
    config: TrainingConfig | None = None


class CombineJob(JobBase):
    """A job that makes one model of several, and measures each and the new one on the validation split.

    Attributes:
        ingredients: The models; the first one is the final run's best, which gives the combination its step and contract.
        how: The kind of combination: all weights averaged, those that do not make it worse, or an ensemble.
        most: The largest number of models to combine, the best ones.
        out: The folder of the combination's checkpoint.
        timed: Whether a forward pass is timed, which gives another result each time.
    """

    ingredients: list[Ingredient]
    how: Literal["uniform", "greedy", "ensemble"]
    most: int
    out: str
    timed: bool


class Combined(Part):
    """A combination that is exported in place of a run's own model.

    Attributes:
        files: The files of its checkpoint.
        how: The kind of combination, as in `CombineJob`.
        configs: The configs that build an ensemble's members; empty for averaged weights.
    """

    files: list[FileRow]
    how: Literal["uniform", "greedy", "ensemble"]
    configs: list[TrainingConfig] = Field(default_factory=list)


class ExportJob(JobBase):
    """A job that exports a checkpoint of a run, or the untrained model.

    Attributes:
        run_folder: The run's folder.
        checkpoint: The folder of its checkpoint; None for the untrained model.
        out: The folder of the files.
        formats: The names of the formats.
        samples: The number of real inputs on which they are compared.
        tolerance: The largest difference allowed, relative to the largest output.
        metric_loss: The share of its value by which a quantized model's metric may be worse on validation.
        calibration_samples: The number of training rows that calibrate a quantized model.
        trained: Whether the trained weights are exported where averaged ones would be delivered.
        test: The settings for measuring the test split; None: it stays sealed.
        combined: The combination that the checkpoint is; None where it is none.
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


class ImportJob(JobBase):
    """A job that brings foreign weights into the form that `start.weights` names.

    Attributes:
        foreign: The path of the file or folder.
        out: The new folder to write, relative to the project.
        rename: Patterns of the file's names, and what takes their place.
    """

    foreign: str
    out: str
    rename: dict[str, str]


class ReferenceSettings(Part):
    """The numbers of the reference models' page, which explains them."""

    max_rows: Number
    max_cells: Number
    fit_seconds: Number
    level: Number
    resamples: Number
    draws: Number


class ReferencesJob(JobBase):
    """A job that fits plain models on a run's rows, and measures them beside it.

    Attributes:
        run_folder: The run's folder; None before there is a run.
        checkpoint: The folder of its best checkpoint; None before there is a run.
        boosting: The gradient boosting that is compared, before there is a run, with the models that stand in for a network;
            None: all models.
        split: The split whose rows they are measured on; the test split only after the run's own look at it.
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
    """A job that shows samples of a run.

    Attributes:
        run_folder: The run's folder.
        checkpoint: The checkpoint whose losses are shown; None for the untrained model.
        chosen: The kind of samples: those of a `step` or an `epoch`, the `hardest`, the `mislabelled`, or the `nonfinite` ones.
        number: The number of the step or the epoch.
        most: The largest number of samples to show; None: all.
        then: The samples of the step whose losses in it are known.
    """

    run_folder: str
    checkpoint: str | None
    chosen: Literal["step", "epoch", "hardest", "mislabelled", "nonfinite"]
    number: int | None = None
    most: int | None
    then: list[SpikeSample] = Field(default_factory=list)


class PooledJob(RunJob):
    """A job that trains many runs, several at a time.

    Attributes:
        workers: The number of runs at a time; None: as many as there are cores or GPUs, on other machines a few.
        silent_minutes: The minutes of silence after which a worker counts as hung.
        engine: The engine that trains them; None: the config's `launch.engine`.
        processes: The most processes that train one of them together.
    """

    workers: int | None = None
    silent_minutes: Number = 30
    engine: EngineName | None = None
    processes: int = 1


class SearchJob(PooledJob):
    """A job that searches a space: `trials` by a `strategy`, then the best one on `seeds` fresh seeds beside the baseline.

    Attributes:
        lag: The distance in trials: trial n is chosen by the trials up to n - `lag`.
        objectives: The further metrics with their direction, by which the best is chosen, too.
        constraints: The criteria that the best must meet, by metric.
        pruning: The rule that ends trials early that are behind; None: none ends early.
        patience: The number of trials in a row without a better one after which none begins; None: all begin.
        minutes: The minutes after which no trial begins; None: the project's budget less the baseline's time, where known.
        baseline_s: The wall time of the baseline in seconds; None where unknown.
        run_s: The expected seconds of a trial's run; None where unknown.
        storage: The database that several machines share, as the tuning template has it; None: there is one machine.
        planned: The config of both sides of the comparison; None: the config of the trials.
        planned_s: The expected seconds of a run of it; None: as of a trial's.
        level: The significance level that all comparisons with this plan's baseline share; None: they are not counted.
        earlier: The comparisons that were begun before this study.
    """

    space: dict[str, Any]
    trials: int
    strategy: str
    seeds: int
    lag: int = 1
    objectives: dict[str, Literal["max", "min"]] = Field(default_factory=dict)
    constraints: dict[str, str] = Field(default_factory=dict)
    pruning: Pruning | None = None
    patience: int | None = None
    minutes: Number | None = None
    baseline_s: Number | None = None
    run_s: Number | None = None
    storage: str | None = None
    planned: TrainingConfig | None = None
    planned_s: Number | None = None
    level: Number | None = None
    earlier: list[CountedComparison] = Field(default_factory=list)


class Variant(Part):
    """A config with some keys changed: its name, and each dotted key with its value."""

    name: str
    changes: dict[str, Any]


class AblationJob(PooledJob):
    """A job that trains a config and variants of it on the same seeds.

    Attributes:
        variants: The variants.
        seeds: The number of fresh seeds; 0: on the config's own seed alone.
    """

    variants: list[Variant]
    seeds: int


# A key that only one kind has decides: trying the kinds one by one, the union would report the faults of every kind.
def _kind(job: Any) -> str:
    marks = {"question": "exploring", "formats": "exporting", "kept": "comparing", "chosen": "inspecting"}
    marks |= {"trials": "searching", "variants": "ablating", "ingredients": "combining", "foreign": "importing"}
    marks |= {"segments": "auditing", "disputed_step": "disputing", "scored": "scoring"}
    return next((kind for mark, kind in marks.items() if isinstance(job, Mapping) and mark in job), "training")


@functools.cache
def adapter() -> TypeAdapter[Any]:
    """Return the validator of any tool's job."""
    kinds = (
        Annotated[TrainingJob, Tag("training")]
        | Annotated[ExplorationJob, Tag("exploring")]
        | Annotated[AuditJob, Tag("auditing")]
        | Annotated[DisputeJob, Tag("disputing")]
        | Annotated[ScoreJob, Tag("scoring")]
        | Annotated[ExportJob, Tag("exporting")]
        | Annotated[CombineJob, Tag("combining")]
        | Annotated[ImportJob, Tag("importing")]
        | Annotated[ReferencesJob, Tag("comparing")]
        | Annotated[RowsJob, Tag("inspecting")]
        | Annotated[SearchJob, Tag("searching")]
        | Annotated[AblationJob, Tag("ablating")]
    )
    return TypeAdapter(Annotated[kinds, Discriminator(_kind)])


def parsed(content: Any, where: str) -> JobBase:
    """Return a job's content as the model of its kind.

    Raises:
        InputError: The content is no job; the message names missing and malformed entries, each by its path.
    """
    try:
        found: JobBase = adapter().validate_python(content)
    except ValidationError as error:
        raise InputError(f"it is no job: {'; '.join(fault_lines(error)[:5])}", where=where) from error
    return found
