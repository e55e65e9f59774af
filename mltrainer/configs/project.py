"""The models of `mltrainer.yaml` and `training_config.yaml`: each option declared once."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from mltrainer import plugins
from mltrainer.configs import yaml
from mltrainer.configs.addresses import REFUSED, holds_secret
from mltrainer.configs.augmenting import Augment
from mltrainer.configs.averaging import Averaging
from mltrainer.configs.conformal import Conformal
from mltrainer.configs.launching import Launching
from mltrainer.configs.loading import NO_BITS, Strict, needs_plugins, read_text, validate, without_defaults
from mltrainer.configs.models import Bag as Bag
from mltrainer.configs.models import Cnn as Cnn
from mltrainer.configs.models import FtTransformer as FtTransformer
from mltrainer.configs.models import Gru as Gru
from mltrainer.configs.models import Linear as Linear
from mltrainer.configs.models import Mlp as Mlp
from mltrainer.configs.models import ModelConfig as ModelConfig
from mltrainer.configs.models import ResNet as ResNet
from mltrainer.configs.models import TableModel as TableModel
from mltrainer.configs.models import TabularMlp as TabularMlp
from mltrainer.configs.models import TextCnn as TextCnn
from mltrainer.configs.models import TextModel as TextModel
from mltrainer.configs.models import Transformer as Transformer
from mltrainer.configs.models import Vit as Vit
from mltrainer.configs.optimizers import AdamW, Optimizer, pattern
from mltrainer.configs.programs import SEED, Argument, leads_out, places, require_command, words_of
from mltrainer.configs.schedules import Cosine, Schedule
from mltrainer.configs.spikes import Spikes
from mltrainer.configs.starting import Start
from mltrainer.configs.strategies import Adversarial, Balancing, Contrastive, Distillation, Strategy
from mltrainer.configs.strategy_limits import excluded, rivals
from mltrainer.configs.tracking import TrackingKey
from mltrainer.errors import InputError, first_repeated
from mltrainer.workspace import digest

ORCHESTRATOR, SCRIPT_RUNNER = "training_orchestrator", "script_runner"  # the shipped tools that train
TaskKind = Literal[
    "image_classification",
    "tabular_classification",
    "tabular_regression",
    "tabular_multitask",
    "text_classification",
    "text_generation",
]
SEVERAL = "tabular_multitask"  # the kind of task with several targets
ColumnKind = Literal["number", "formatted", "decimal_comma", "boolean", "category", "hashed", "date", "date_day_first", "text"]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
TRAINING = "phases/01_planning/training_config.yaml (mltrainer phase run planning --set KEY=VALUE)"
MOST_WORKERS = 64
TEXT, TABULAR = "text_", "tabular_"  # begin the kinds of tasks about texts and about tables
TOKENS: dict[str, dict[str, Any]] = {"text_generation": {"kind": "char", "length": 128}}  # where a task's defaults differ
STOPS = "planning stops there"  # ends a warning that must be answered before planning
ACCEPTED = "accepted: "  # begins a finding that would stop planning, and that the config answers with a reason
PLACEHOLDER = "REASON"  # is in a line that planning prints to be pasted, and is no reason
DELIVERED = ("README.md", "SHA256SUMS", "model.sig")  # are written beside what a program leaves
CRITERION = re.compile(r"^\s*(>=|<=|>|<)\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*$")


class Task(Strict):
    """What is trained: one of the built-in kinds, a class of the user's own, or a program that trains by itself."""

    kind: TaskKind | None = Field(None, description="a built-in task")
    use: str | None = Field(
        None,
        description='a custom task: "module.path:ClassName"; or the name of an installed one',
        pattern=rf"^[\w.]+:\w+$|{plugins.NAME}",
    )
    options: dict[str, Any] = Field({}, description="keyword arguments of the custom task")
    samples_per_epoch: int | None = Field(
        None, ge=1, description="training samples of an epoch, where a custom task's iterable has no length"
    )
    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {}, description="of several targets, how much the loss of each counts beside the others; 1 where it is not named"
    )
    script: str | None = Field(
        None, min_length=1, description='a program that trains by itself, as it is typed: "python train.py --seed {seed}"'
    )
    arguments: dict[str, Argument] = Field(
        {}, description="what the program is given, in place of {name} or else as --name value; a search varies these"
    )
    metrics: str | None = Field(
        None,
        min_length=1,
        description="the file of JSON that the program writes its metrics to: once, or a line per evaluation; null: a callback "
        "reports them",
    )
    outputs: list[str] = Field([], description="files that the program leaves, which must repeat bit for bit and are delivered")
    reads: list[str] = Field(
        [], description="files or folders that the program reads by a library's C code, where nobody sees them opened"
    )
    table: str | None = Field(
        None,
        min_length=1,
        description="the file that describes the table that the program learns from, as `init --model boosting` writes it: "
        "planning judges that table as any other",
    )
    resume: str | None = Field(
        None, min_length=1, description="what goes on with the program after it was killed, as it is typed"
    )

    @field_validator("use")
    @classmethod
    def _is_there(cls, use: str | None, info: ValidationInfo) -> str | None:
        if use is not None and ":" not in use and needs_plugins(info) and plugins.find("tasks", use) is None:
            names = ", ".join(plugins.installed("tasks")) or "none"
            raise ValueError(
                f"no installed task has that name (installed: {names}); a class of the project is written module.path:ClassName"
            )
        return use

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(given is not None for given in (self.kind, self.use, self.script)) != 1:
            raise ValueError(
                "give one of kind (a built-in task), use (your own, as module:Class) and script (a program that trains by itself)"
            )
        if self.use is None and (self.options or self.samples_per_epoch):
            raise ValueError("options and samples_per_epoch belong to a task of your own (use: module:Class)")
        if self.weights and self.kind != SEVERAL:
            raise ValueError(f"weights are those of several targets: they belong to kind: {SEVERAL}")
        return self

    @model_validator(mode="after")
    def _of_a_program(self) -> Self:
        given = [name for name in ("arguments", "metrics", "outputs", "reads", "table", "resume") if getattr(self, name)]
        if self.script is None:
            if given:
                raise ValueError(f"{' and '.join(given)} belong{'s' if len(given) == 1 else ''} to a program (task.script)")
            return self
        for command in filter(None, (self.script, self.resume)):
            require_command(command, {SEED, *self.arguments})
        for path in self.writes:
            if leads_out(path):
                raise ValueError(f"{path!r} must be in the program's folder, which is copied for each run")
        if taken := [path for path in self.outputs if os.path.normpath(path) in DELIVERED]:
            raise ValueError(f"{taken[0]!r} is delivered beside the outputs: let the program write it under another name")
        return self

    def command(self, seed: int) -> tuple[str, ...]:
        """Return the words of the program's command."""
        return words_of(self.script or "", self.arguments, seed)

    def resuming(self, seed: int) -> tuple[str, ...]:
        """Return the words of what goes on with the program after it was killed."""
        return words_of(self.resume or "", self.arguments, seed)

    @property
    def writes(self) -> tuple[str, ...]:
        """The files that the program writes: its metrics, unless a callback reports them, and what it leaves."""
        return (*filter(None, (self.metrics,)), *self.outputs)

    @property
    def is_opaque(self) -> bool:
        """Whether samples, model and schedule are known to the task's trainer alone, and are the business of no other code."""
        return self.script is not None

    @property
    def trainer(self) -> str:
        """The shipped tool that trains it."""
        return SCRIPT_RUNNER if self.script is not None else ORCHESTRATOR

    @property
    def is_seeded(self) -> bool:
        """Whether runs differ by the config's seed."""
        return self.script is None or SEED in places(self.script)


class Tokens(Strict):
    """How texts become numbers: by a tokenizer that is trained on the training split, or by one's own."""

    kind: Literal["word", "bpe", "char"] = Field(
        "word", description="words in lower case, pieces that spell every text, or characters"
    )
    vocabulary: int = Field(10_000, ge=300, description="most different tokens; the rarer ones are unknown, or spelt by pieces")
    length: int = Field(
        256, ge=1, description="most tokens of a text, which is cut at its end; of text_generation all of a sample"
    )
    file: str | None = Field(
        None, description="a tokenizer.json in place of one that is trained here; a path is relative to the project"
    )
    type: Literal["uint16", "uint32", "int32", "int64"] = Field(
        "uint16", description="what a .bin file of token ids holds, which has no header"
    )


class Image(Strict):
    """How pictures become pixels of one shape, in training and in the delivered `inference.py` alike."""

    size: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=2, max_length=2)] = Field(
        description="[height, width] in pixels"
    )
    fit: Literal["resize", "crop", "pad"] = Field(
        "resize", description="resize: stretched to the size; crop: cut at two edges; pad: black at two edges"
    )
    colour: Literal["rgb", "grey"] = Field("rgb", description="rgb: three channels; grey: one")
    column: str | None = Field(None, description="the column of paths, where data.source is a table; relative to its folder")
    damaged: Literal["stop", "leave_out"] = Field(
        "stop", description="what a file that is no picture does: stop, or be left out and named in the report"
    )


NO_VALUE = ["NA", "NaN", "nan", "null", "None", "?"]  # cells that mean no value where a config names no others


class Data(Strict):
    """Where the samples come from."""

    source: str = Field(description='"sklearn:digits", or a path to a CSV, Parquet, JSONL or NumPy file, or a folder of images')
    validation: str | None = Field(
        None, description="where the samples come with their own splits: the source of those to validate on"
    )
    test: str | None = Field(None, description="the source of those to test on, in the same form")
    target: str | None = Field(None, description="the column to predict, for tables")
    targets: list[str] = Field([], description="the columns to predict together, for tabular_multitask; at least two")
    ignore: list[str] = Field([], description="columns that are not features, such as an id")
    leak_accepted: dict[str, str] = Field(
        {}, description="columns that give the target and are known before it is, each with the reason why"
    )
    sentinel_accepted: dict[str, str] = Field(
        {}, description="targets in which a number far from all others is a value like them, each with the reason why"
    )
    text: str | None = Field(None, description="the column of texts, for text_classification")
    tokens: Tokens | None = Field(None, description="how texts become numbers, for tasks about them")
    columns: dict[str, ColumnKind] = Field(
        {},
        description="what columns hold that are neither plain numbers nor some categories: dates, texts, 1,234.50",
    )
    wrong_cells: Literal["stop", "missing", "drop"] = Field(
        "stop",
        description="cells that are not of their column's kind: stop and say where, take as missing, drop the rows",
    )
    missing: list[str] | None = Field(
        None,
        description='cells that mean no value, beside empty ones, such as "-999"; null: NA, NaN, nan, null, None and ?',
    )
    header: bool = Field(True, description="whether a CSV file's first line holds the columns' names")
    skip_lines: int = Field(0, ge=0, description="lines of a CSV file, or rows of a sheet, above the table, such as a title")
    sheet: str | None = Field(None, description="the sheet of a workbook that is read; null: the first")
    image: Image | None = Field(None, description="for pictures: their size, and how they are brought to it")

    @property
    def all_targets(self) -> list[str]:
        """The columns to predict."""
        return [self.target] if self.target else self.targets

    @property
    def no_value(self) -> list[str]:
        """The cells that mean no value, beside empty ones."""
        return NO_VALUE if self.missing is None else self.missing

    @property
    def reading(self) -> dict[str, Any]:
        """Where in a file the table is: the keys of these that have not their default."""
        return self.model_dump(include={"header", "skip_lines", "sheet"}, exclude_defaults=True)

    @property
    def held_out(self) -> dict[str, str]:
        """The sources of their own that splits have, by split."""
        return {name: source for name in ("validation", "test") if (source := getattr(self, name)) is not None}

    @field_validator("source", "validation", "test")
    @classmethod
    def _is_open(cls, source: str | None) -> str | None:
        if source is not None and holds_secret(source):
            raise PydanticCustomError("secret", REFUSED)
        return source

    @field_validator("leak_accepted", "sentinel_accepted")
    @classmethod
    def _has_reasons(cls, accepted: dict[str, str]) -> dict[str, str]:
        for name, reason in accepted.items():
            if reason.strip() in ("", PLACEHOLDER):
                raise ValueError(f"column {name!r} needs a reason of your own, found {reason!r}: say why it may be used")
        return accepted

    @model_validator(mode="after")
    def _splits_are_apart(self) -> Self:
        # ./a.csv and a.csv are one file: a model would be tested on what it was trained on.
        named = [os.path.normpath(source) for source in (self.source, *self.held_out.values())]
        if len(set(named)) < len(named):
            raise ValueError("source, validation and test must be different files")
        return self


class Split(Strict):
    """The shares of the samples that are held out, as fractions of all."""

    validation: float = Field(0.2, gt=0, lt=1, description="for choosing the best epoch and the best config")
    test: float = Field(0.1, ge=0, lt=1, description="sealed until finalization")
    stratify: bool = Field(True, description="keep the class shares in every split (classification only)")
    seed: int | None = Field(None, ge=0, le=2**32 - 1, description="which samples fall where; null: the run's seed")
    repeats: Literal["anywhere", "together"] = Field(
        "anywhere", description="where rows fall whose features are equal: anywhere, or together in one split"
    )
    largest_repeat: float | None = Field(
        None,
        gt=0,
        le=1,
        description="with `repeats: together`, a row whose copies are a larger share of all rows is trained on, so that it fills "
        "no other split; null: it falls where it is drawn",
    )
    group: str | None = Field(
        None, description="the column, no feature, whose rows of equal value fall into one split together, such as a patient's"
    )
    time: str | None = Field(
        None, description="the column of dates or numbers by which the earliest rows are trained on and the latest are tested on"
    )
    column: str | None = Field(
        None,
        description='the column, no feature, that says of each row "train", "validation" or "test", or yes and no as is_train',
    )

    folds: int = Field(
        0,
        ge=0,
        le=100,
        description="k-fold cross-validation: the number of folds, in place of `validation`; by time, each is trained "
        "on what came before it; 0: none",
    )
    fold: int = Field(0, ge=0, description="the fold that validates, from 0; by time, 0 is the latest")
    held_by: str | None = Field(
        None,
        pattern=NAME,
        description="who holds rows that this project never had, as `mltrainer hold-out` divides a table; there is no test split "
        "then: a referee measures the model on these rows",
    )
    held_rows: int | None = Field(None, ge=1, description="the number of these rows")
    held_sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="the digest of the file with these rows")

    @model_validator(mode="before")
    @classmethod
    def _without_test_rows(cls, values: Any) -> Any:
        """Leave no test split where somebody else holds the rows to test on."""
        return {"test": 0.0, **values} if isinstance(values, dict) and values.get("held_by") is not None else values

    @model_validator(mode="after")
    def _is_held(self) -> Self:
        given = [value is not None for value in (self.held_by, self.held_rows, self.held_sha256)]
        if any(given) and not all(given):
            raise ValueError("give held_by, held_rows and held_sha256 together, as mltrainer hold-out prints them")
        if self.held_by is not None and self.test > 0:
            raise ValueError(f"the rows to test on are held by {self.held_by}; remove test: {self.test}")
        return self

    @model_validator(mode="after")
    def _has_folds(self) -> Self:
        if self.folds == 1:
            raise ValueError("folds: 1 leaves nothing to train on; at least 2, or 0 for none")
        if self.fold and not self.folds:
            raise ValueError(f"fold {self.fold} of no folds; give their number as split.folds")
        if self.fold >= max(self.folds, 1):
            raise ValueError(f"fold {self.fold} of {self.folds}, which are 0 to {self.folds - 1}")
        if self.folds and self.column is not None:
            raise ValueError("give one of folds and column, which says itself which rows validate")
        return self

    @model_validator(mode="after")
    def _leaves_training_data(self) -> Self:
        if sum(name is not None for name in (self.group, self.time, self.column)) > 1:
            raise ValueError("give one of group, time and column")
        if self.validation + self.test >= 1:
            raise ValueError(f"validation {self.validation} + test {self.test} leave no training data")
        return self


METRIC_NAME = r"[A-Za-z][A-Za-z0-9_@./:()%+ -]*(?<! )"  # recall@5, F1 (macro), mAP50, top-5, val/acc


class Metric(Strict):
    """The metric that chooses the best checkpoint; its direction must be said, there is no default."""

    name: str = Field(
        json_schema_extra={"pattern": f"^{METRIC_NAME}$"},
        description="accuracy, balanced_accuracy, f1_macro, roc_auc, average_precision, log_loss, calibration_error; "
        "r2, rmse, mae; loss; or one of your own task's",
    )
    mode: Literal["max", "min"] = Field(description="whether larger or smaller is better")
    ties: Literal["first", "loss"] = Field(
        "loss", description="of evaluations with the same value, the best is that with the smallest validation loss, or the first"
    )

    @field_validator("name")
    @classmethod
    def _can_be_written(cls, value: str) -> str:
        if not re.fullmatch(METRIC_NAME, value):
            near = re.sub(r"[^A-Za-z0-9_@./:()%+ -]+", "_", value).strip("_ ").lstrip("0123456789@./:()%+ -") or "score"
            raise ValueError(
                f"{value!r} was found; a metric's name is of letters, digits and _ @ . / : ( ) % + -, "
                f"a letter first, such as {near!r}; the task must measure it by that name too"
            )
        return value


class Budget(Strict):
    """What a run may cost."""

    minutes: float = Field(60, gt=0, description="wall-clock time of one training run")
    action: Literal["judge", "stop"] = Field(
        "judge", description="judge: a gate judges the time afterwards; stop: the run ends at the first evaluation after it, too"
    )


class Clip(Strict):
    """Gradient clipping, by one of three measures."""

    norm: float | None = Field(None, gt=0, description="largest L2 norm of all gradients together")
    value: float | None = Field(None, gt=0, description="largest size of a single gradient")
    adaptive: float | None = Field(None, gt=0, description="largest norm of a unit's gradient, as a share of its weights' norm")

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if sum(limit is not None for limit in (self.norm, self.value, self.adaptive)) != 1:
            raise ValueError("give one of norm, value and adaptive, such as {norm: 1.0}; null for no clipping")
        return self


class Noise(Strict):
    """Gaussian noise on gradients, of variance eta / step ** gamma (Neelakantan et al., 2015, arXiv 1511.06807)."""

    eta: float = Field(0.01, gt=0, description="variance at the start")
    gamma: float = Field(0.55, ge=0, description="how fast it fades")

    def deviation(self, step: int) -> float:
        """Return the standard deviation at a step (from 1)."""
        return float((self.eta / step**self.gamma) ** 0.5)


class Gradients(Strict):
    """What is done to gradients beside clipping: normalized before it, made noisy after it."""

    normalize: bool = Field(False, description="scale all gradients together to norm 1 (Hazan, Levy and Shalev-Shwartz, 2015)")
    noise: Noise | None = Field(None, description="noise that is added, such as {eta: 0.01, gamma: 0.55}")


class EarlyStopping(Strict):
    """Stop when the metric has not improved for a while."""

    patience: int = Field(10, ge=1, description="evaluations without improvement before stopping")
    min_delta: float = Field(0.0, ge=0, description="smallest change that counts as improvement")


class Evaluate(Strict):
    """When the validation set is measured."""

    every_n_epochs: int | None = Field(None, ge=1, description="the number of epochs between evaluations")
    every_n_steps: int | None = Field(None, ge=1, description="the number of steps between evaluations")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.every_n_epochs is None) == (self.every_n_steps is None):
            raise ValueError("give either every_n_epochs or every_n_steps")
        return self

    def interval(self, steps_per_epoch: int) -> int:
        """Return the number of steps between evaluations."""
        return self.every_n_steps or (self.every_n_epochs or 1) * steps_per_epoch


def _is_whole(value: Any) -> bool:
    """Return True for a whole number; asked before a union sees a value, of which pydantic reports a fault for each member."""
    return isinstance(value, int) and not isinstance(value, bool)


class Checkpoint(Strict):
    """What is kept of a run."""

    every_n_epochs: int = Field(5, ge=1, description="the number of epochs between checkpoints")
    every_n_steps: int | None = Field(
        None, ge=1, description="the number of steps between further checkpoints, in mid-epoch too; null: none"
    )
    every_minutes: float | None = Field(
        None, gt=0, description="the minutes after which a checkpoint is made in any case; null: none"
    )
    save_best: bool = Field(True, description="keep the checkpoint with the best metric")
    save_last: bool = Field(True, description="keep the newest checkpoint")
    keep: int = Field(3, ge=0, description="periodic checkpoints kept beside best and last")
    segments: Annotated[int, Field(ge=1)] | Literal["evaluations"] | None = Field(
        None,
        description="the number of equal parts of the run that keep a checkpoint at their end, for an audit; evaluations: each "
        "evaluation keeps one; null: none",
    )

    @field_validator("segments", mode="before")
    @classmethod
    def _evaluations_or_a_number(cls, value: Any) -> Any:
        if value not in ("evaluations", None) and not (_is_whole(value) and value >= 1):
            raise ValueError("evaluations, or a whole number of at least 1, was expected")
        return value

    @model_validator(mode="after")
    def _keeps_what_to_go_on_from(self) -> Self:
        given = [name for name in ("every_n_steps", "every_minutes") if getattr(self, name) is not None]
        if given and not self.save_last:
            raise ValueError(f"{given[0]} saves what an interrupted run goes on from, which needs save_last: true")
        return self


class Replay(Strict):
    """Compute a part of a step twice, to find a device that computes wrong now and then."""

    every: int = Field(
        ge=1,
        description="steps from one to the next of which a micro-batch is computed twice and compared",
    )


class Loader(Strict):
    """How samples that are not in memory reach the model; nothing here changes the bits."""

    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=MOST_WORKERS)] = Field(
        "auto", description="loader processes; auto: as few as planning finds to keep the steps fed"
    )
    prefetch: int = Field(2, ge=1, le=1024, description="batches that each loader process reads ahead")
    pin_memory: bool = Field(True, description="where the device is a GPU: copy to it from memory that stays in place")

    @field_validator("workers", mode="before")
    @classmethod
    def _auto_or_a_number(cls, value: Any) -> Any:
        if value != "auto" and not (_is_whole(value) and 0 <= value <= MOST_WORKERS):
            raise ValueError(f"auto, or a whole number from 0 to {MOST_WORKERS}, was expected")
        return value

    @property
    def processes(self) -> int:
        """The loader processes; none while `auto` has not been measured."""
        return 0 if self.workers == "auto" else self.workers


class Callback(Strict):
    """A class of the user's own that watches a run, or takes part in it: see `mltrainer.callbacks`."""

    use: str = Field(description='the class: "module.path:ClassName"', pattern=r"^[\w.]+:\w+$")
    options: dict[str, Any] = Field({}, description="keyword arguments of the class")
    watch: bool = Field(
        False,
        description="the class only watches, so that a run with it has the name of one without; one that takes part is refused",
    )


def _spelled_out(given: Any) -> Any:
    return {"use": given} if isinstance(given, str) else given


UPDATED_BY_NUMBER = (
    "sgd", "adam", "adamw", "adagrad", "nadam", "radam", "adamax", "rmsprop", "lion", "ranger", "schedule_free",
)  # fmt: skip

REPEATED = "replay, by which one process computes a micro-batch again with the whole model"
NEEDS_WHOLE_ROWS = ("ranger", "schedule_free")  # of these, what centers gradients by rows, or is measured by another average


def require_power_of_two(processes: int) -> None:
    """Refuse a number of processes whose sums no tree over all of them gives.

    Raises:
        InputError: The number is no power of two; the hint has the nearest ones.
    """
    if processes & (processes - 1):
        lower = 1 << (processes.bit_length() - 1)
        what = f"{processes} processes cannot share the sum of a step without changing its bits; a power of two can"
        raise InputError(what, where="processes", hint=f"take {lower} or {2 * lower}")


def require_shared_steps(processes: int, accumulate: int, batch_size: int) -> None:
    """Refuse a number of processes that cannot share the steps of a config.

    Each takes a block of the micro-batches of a step, of which there are `accumulate`, padded to a power of two: the sum over all
    processes is then the sum of one process, bit for bit.

    Raises:
        InputError: The number does not fit; the hint says what to type instead.
    """
    require_power_of_two(processes)
    if processes > 1 << (accumulate - 1).bit_length():
        what = (
            f"{processes} processes share the micro-batches of a step, and accumulate: {accumulate} gives fewer; each computes "
            "whole ones, so that the sum does not depend on how many processes there are"
        )
        changes = f"--set accumulate={processes} --set batch_size={max(1, batch_size * accumulate // processes)}"
        raise InputError(what, where="processes", hint=f"keep the samples of a step: mltrainer phase run planning {changes}")


def _needs_one_target(strategy: Strategy) -> bool:
    return isinstance(strategy, Distillation | Contrastive) or (isinstance(strategy, Adversarial) and strategy.method == "trades")


OF_CLASSES = ("class_weights", "label_smoothing")  # the keys that a built-in classification alone has
OF_PROGRAMS = frozenset(  # the keys that mean something where the task is a program; all others are the program's own affair
    ("name", "id", "seed", "task", "metric", "acceptance", "budget", "tracking", "threads", "numerics", "signals")
)


def _with_direction(value: Any) -> Any:
    for metric, bound in value.items() if isinstance(value, dict) else ():
        if isinstance(bound, int | float):
            raise ValueError(f'{metric}: say on which side, such as {metric}: ">= {bound}", or "<= {bound}" where less is better')
    return value


def _criteria(value: dict[str, str]) -> dict[str, str]:
    for metric, text in value.items():
        if not CRITERION.match(text):
            raise ValueError(f'{metric}: {text!r} is not a criterion such as ">= 0.95"')
    return value


Criteria = Annotated[dict[str, str], BeforeValidator(_with_direction), AfterValidator(_criteria)]


class ProjectConfig(Strict):
    """`mltrainer.yaml`: the one file a user must write."""

    name: Annotated[str, NO_BITS] = Field(pattern=NAME, description="the project's name")
    id: Annotated[str | None, NO_BITS] = Field(
        None, pattern=r"^[0-9a-f]{8,32}$", description="made by `init`; distinguishes projects of equal content"
    )
    seed: int = Field(42, ge=0, le=2**32 - 1, description="the one seed from which every random draw is derived")
    task: Task
    data: Data | None = Field(None, description="not needed by a task of your own that makes its data")
    split: Split = Field(default_factory=lambda: Split())
    model: ModelConfig | None = Field(None, description="a built-in model; a task of your own brings its own")
    start: Start | None = Field(
        None, description="weights that the model begins with, and parameters that are held; null: drawn weights"
    )
    strategies: list[Strategy] = Field(
        [], description="what the training does beside the task, such as to follow a teacher: see configs/strategies"
    )
    forget: str | None = Field(
        None,
        description="a file of training samples, a number a line, that are not trained on; their slots in each epoch stay empty, "
        "so that all others keep their steps; null: none",
    )
    metric: Metric
    acceptance: Annotated[Criteria, NO_BITS] = Field({}, description='metric: criterion, such as accuracy: ">= 0.95"')
    conformal: Annotated[Conformal | None, NO_BITS] = Field(
        None,
        description="whether the delivered model answers with a set of classes or an interval, such as {coverage: 0.9}; null: no",
    )
    budget: Annotated[Budget, NO_BITS] = Field(default_factory=lambda: Budget())
    tracking: Annotated[TrackingKey, NO_BITS] = Field(
        None,
        description="where runs are shown beside: tensorboard, mlflow, wandb, trackio, a list or options of each; null: nowhere",
    )

    @field_validator("acceptance")
    @classmethod
    def _criterion_has_the_metrics_direction(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        metric = info.data.get("metric")
        if metric is None:  # it is not valid itself
            return value
        match = CRITERION.match(value.get(metric.name, ""))
        if match is not None and match[1].startswith("<" if metric.mode == "max" else ">"):
            raise ValueError(f"{metric.name}: {match[0]!r} asks for the worse side, as metric.mode is {metric.mode}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _texts_have_tokens(cls, values: Any) -> Any:
        """Say explicitly how texts become numbers, also where the defaults were taken."""
        task, data = (values.get(key) for key in ("task", "data")) if isinstance(values, dict) else (None, None)
        kind = str(task.get("kind")) if isinstance(task, dict) else ""
        if not (kind.startswith(TEXT) and isinstance(data, dict) and data.get("tokens") is None):
            return values
        return {**values, "data": {**data, "tokens": TOKENS.get(kind, {})}}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.task.kind and self.data is None:
            raise ValueError(f"task {self.task.kind} needs data: {{source: ...}}")
        if self.task.kind and self.model is None:
            raise ValueError(f"task {self.task.kind} needs model: {{name: {'text_cnn' if self.of_texts else 'mlp'}}}, or another")
        if self.task.kind and self.model and self.of_texts != isinstance(self.model, TextModel):
            what = "reads texts" if isinstance(self.model, TextModel) else "reads no texts"
            raise ValueError(f"model {self.model.name} {what}, which does not suit {self.task.kind}")
        if self.split.column and self.data and self.data.held_out:
            raise ValueError("give either split.column, or data.validation and data.test")
        if self.task.use and self.model is not None:
            raise ValueError("a task of your own makes its own model; pass what it needs in task.options")
        return self

    @model_validator(mode="after")
    def _forgets_what_it_trains(self) -> Self:
        if self.forget is None:
            return self
        if self.split.folds:
            raise ValueError("forget does not go with split.folds, where every sample validates: leave the rows out of the data")
        if Path(self.forget).is_absolute() or ".." in Path(self.forget).parts:
            raise ValueError(f"forget: {self.forget} is outside of the project; copy it there, so that the run can be reproduced")
        return self

    @model_validator(mode="after")
    def _targets_suit_the_task(self) -> Self:
        targets = self.data.targets if self.data else []
        if self.task.kind != SEVERAL:
            if targets:
                raise ValueError(f"data.targets belongs to task.kind {SEVERAL}; another task has one column, in data.target")
            return self
        if self.data and self.data.target is not None:
            raise ValueError(f"data.target is of tasks with one target; name all columns of {SEVERAL} in data.targets")
        if len(targets) < 2:
            raise ValueError(f"{SEVERAL} needs data.targets: [COLUMN, ...], at least two; one column is a task of another kind")
        if repeated := first_repeated(targets):
            raise ValueError(f"data.targets: {repeated!r} is listed twice; task.weights has it count more")
        if unknown := next((name for name in self.task.weights if name not in targets), None):
            raise ValueError(f"task.weights: {unknown!r} is no target; data.targets has {', '.join(map(repr, targets))}")
        if refused := next((one for one in self.strategies if _needs_one_target(one)), None):
            raise ValueError(f"strategies: {refused.name} compares the outputs of one target, and {SEVERAL} has several")
        return self

    @model_validator(mode="after")
    def _strategies_suit_the_task(self) -> Self:
        names = [strategy.name for strategy in self.strategies]
        if repeated := first_repeated(names):
            raise ValueError(f"strategies: {repeated} is listed twice; each has a term of the loss that is named by it")
        if "progressive" in names and str(self.task.kind).startswith(TABULAR):
            raise ValueError(
                f"strategies: progressive begins with smaller images or texts, and {self.task.kind} has rows of one size"
            )
        if "masked" in names:
            self._require_states()
        if "lora" in names and self.task.kind and self.start is None:
            raise ValueError("strategies: lora trains beside frozen weights: name them under start")
        if "lora" in names and self.start is not None and (self.start.freeze or self.start.unfreeze):
            raise ValueError("strategies: lora freezes all that its key train does not name; leave start.freeze and unfreeze out")
        for number, strategy in enumerate(self.strategies):
            if isinstance(strategy, Distillation):
                self._require_teacher(f"strategies.{number}.teacher.model", strategy.teacher.model)
                self._require_sayings(f"strategies.{number}", strategy)
        return self

    @model_validator(mode="after")
    def _balances_several_losses(self) -> Self:
        if not any(isinstance(one, Balancing) for one in self.strategies):
            return self
        if self.task.kind and self.task.kind != SEVERAL:
            raise ValueError(f"strategies: balancing weighs several losses, and {self.task.kind} has one; {SEVERAL} has several")
        if self.task.weights:
            raise ValueError("strategies: balancing finds the weights of the targets, and task.weights fixes them: leave one out")
        if whole := next((one.name for one in self.strategies if getattr(one, "weight", 0) == 1), None):
            raise ValueError(f"strategies: {whole} with weight: 1 leaves nothing of the task's own loss for balancing to weigh")
        return self

    def _require_states(self) -> None:
        """Refuse a text's model without a state for each token that knows of the others, and inputs of several sizes."""
        if self.task.kind == "text_generation":
            raise ValueError("strategies: masked hides tokens among others, and text_generation sees those before alone")
        if isinstance(self.model, Bag | TextCnn):
            what = f"strategies: masked needs a state for each token that knows of the others, and {self.model.name} has none"
            raise ValueError(f"{what}: model: {{name: transformer}}, or gru")
        if any(one.name == "progressive" for one in self.strategies):
            raise ValueError(
                "strategies: masked needs inputs of one size, and progressive changes their size: leave one of them out"
            )

    def _require_teacher(self, key: str, model: ModelConfig | None) -> None:
        if model is None:
            return
        if self.task.use:
            raise ValueError(f"{key} is of built-in tasks: a task of your own makes its teacher in teacher(self)")
        if self.of_texts != isinstance(model, TextModel):
            what = "reads texts" if isinstance(model, TextModel) else "reads no texts"
            raise ValueError(f"{key} {model.name} {what}, which does not suit {self.task.kind}")

    def _require_sayings(self, key: str, strategy: Distillation) -> None:
        """Refuse to keep of a teacher what the task has not, or what has no room."""
        if strategy.keep and self.task.kind == "text_generation":
            raise ValueError(f"{key}.keep would hold a score of each token of the vocabulary for each token of the text")
        if strategy.texts is None:
            return
        if self.task.kind != "text_generation":
            raise ValueError(f"{key}.texts are what a teacher of text_generation writes, and this task is another one")
        length = self.data.tokens.length if self.data and self.data.tokens else 0
        if strategy.texts.prompt > length:
            raise ValueError(f"{key}.texts.prompt: {strategy.texts.prompt} is more than a sample's {length} tokens")

    @model_validator(mode="after")
    def _doubt_suits_the_task(self) -> Self:
        if self.conformal is None:
            return self
        if self.task.is_opaque:
            raise ValueError("conformal needs the model's outputs, which a program does not give: let it write its sets")
        if self.task.kind == "text_generation":
            raise ValueError(
                "conformal gives sets of classes or intervals, and text_generation continues a text: conformal: null"
            )
        if self.task.kind == SEVERAL:
            raise ValueError(f"conformal gives a set or an interval of one target, and {SEVERAL} has several: conformal: null")
        if self.task.kind == "tabular_regression" and self.conformal.score is not None:
            raise ValueError(f"conformal.score: {self.conformal.score} makes sets of classes, not intervals: leave it out")
        return self

    @model_validator(mode="after")
    def _stops_one_run(self) -> Self:
        if self.budget.action == "judge":
            return self
        if self.task.is_opaque:
            raise ValueError("budget.action: stop ends a run at an evaluation, and a program ends by itself: give it the time")
        if self.split.folds:
            raise ValueError("budget.action: stop does not go with split.folds: a fold that ended early has no comparable metric")
        return self

    @model_validator(mode="after")
    def _programs_decide_the_rest(self) -> Self:
        if not self.task.is_opaque:
            return self
        for name, field in type(self).model_fields.items():
            if name not in OF_PROGRAMS and getattr(self, name) != field.get_default(call_default_factory=True):
                raise ValueError(f"{name} is decided by the program: pass its options in task.arguments")
        return self

    @property
    def of_texts(self) -> bool:
        """Whether the task is one about texts."""
        return str(self.task.kind).startswith(TEXT)


class TrainingConfig(ProjectConfig):
    """`training_config.yaml`: everything that decides a run, complete and explicit."""

    epochs: int = Field(20, ge=1, description="passes over the training data")
    batch_size: int = Field(64, ge=1, description="samples per step and micro-batch")
    accumulate: int = Field(1, ge=1, description="micro-batches per step")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: samples of rare classes count more in the loss, so that every class counts alike"
    )
    on_out_of_memory: Literal["stop", "split"] = Field(
        "stop",
        description="split: where memory runs out in a step, the run goes on from it with twice the micro-batches, of half "
        "the samples each; stop: it ends",
    )
    tensor_parallel: int = Field(
        1,
        ge=1,
        le=64,
        description="processes that compute each micro-batch together, each with its parts of the matrices in the model's "
        "`tp_plan`: their number decides the bits; 1: nothing is split",
    )
    optimizer: Optimizer = Field(default_factory=lambda: AdamW())
    schedule: Schedule = Field(default_factory=lambda: Cosine(warmup_epochs=1))
    clip: Clip | None = Field(default_factory=lambda: Clip(norm=1.0))
    gradients: Gradients = Field(default_factory=lambda: Gradients())
    spikes: Spikes | None = Field(
        None,
        description="what is done about a step whose loss or gradient norm is far above those before, such as {action: skip}",
    )
    averaging: Averaging | None = Field(None, description="averaged weights, which are measured and delivered; null: none")
    precision: Literal["fp32", "bf16", "fp16", "auto"] = Field(
        "fp32", description="arithmetic of forward and backward, weights stay fp32; auto: the fastest that the device can do well"
    )
    augment: Augment | None = Field(
        None,
        description="what training does to images: crop, flip, affine, colour, randaugment, erase, mixup, cutmix",
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of a training target that all classes share (Szegedy et al., 2016, arXiv 1512.00567)"
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="where the model is trained")
    threads: int = Field(1, ge=1, le=256, description="CPU threads of one operation; part of what decides the bits")
    numerics: Literal["native", "portable"] = Field(
        "native", description="native: this CPU's fastest kernels; portable: the same kernels on every CPU, slower, one thread"
    )
    compile: bool = Field(False, description="compile the model's forward and backward pass; other bits than uncompiled ones")
    channels_last: bool = Field(False, description="images in memory pixel by pixel, all channels of one together")
    gradient_checkpointing: list[str] = Field(
        [],
        description="modules whose activations are computed again in the backward pass, as patterns of their names: less memory",
    )
    early_stopping: EarlyStopping | None = Field(default_factory=lambda: EarlyStopping())
    evaluate: Evaluate = Field(default_factory=lambda: Evaluate(every_n_epochs=1))
    checkpoint: Annotated[Checkpoint, NO_BITS] = Field(default_factory=lambda: Checkpoint())
    loader: Annotated[Loader, NO_BITS] = Field(default_factory=lambda: Loader())
    launch: Annotated[Launching, NO_BITS] = Field(default_factory=lambda: Launching())
    replay: Annotated[Replay | None, NO_BITS] = Field(
        None, description="compute a micro-batch of each Nth step twice, and stop where bits differ; null: never"
    )
    signals: Annotated[bool, NO_BITS] = Field(
        True, description="whether the model is observed beside its training, which the diagnostics read; the bits are the same"
    )
    callbacks: list[Annotated[Callback, BeforeValidator(_spelled_out, json_schema_input_type=str | Callback)]] = Field(
        [], description='classes of your own: "module.path:Class", or {use: ..., options: {...}}'
    )

    @property
    def untaught(self) -> Self:
        """The config without a teacher."""
        return self.model_copy(update={"strategies": [one for one in self.strategies if not isinstance(one, Distillation)]})

    @property
    def _may_scale_the_loss(self) -> bool:
        """Whether the precision is fp16, or may be once the GPU is known."""
        return self.precision == "fp16" or (self.precision == "auto" and self.device == "cuda")

    @model_validator(mode="after")
    def _strategies_suit_the_rest(self) -> Self:
        found = {
            "compile": self.compile,
            "tensor_parallel": self.tensor_parallel > 1,
            "gradient_checkpointing": bool(self.gradient_checkpointing),
            "augment": self.augment is not None,
            "progressive": any(strategy.name == "progressive" for strategy in self.strategies),
            "averaged weights": self.averaging is not None or self.optimizer.name == "schedule_free",
            "precision: fp16": self._may_scale_the_loss,
        }
        clash = excluded(self.strategies, self.task.kind, [key for key, is_on in found.items() if is_on])
        if clash is not None:
            raise ValueError(f"strategies: {clash[0]}, does not go with {clash[1]}; leave one of them out")
        names = rivals(self.strategies, self.task.kind)
        if len(names) > 1:
            raise ValueError(f"strategies: {' and '.join(names)} both change or freeze the model's parameters; leave one out")
        return self

    @model_validator(mode="after")
    def _processes_share_steps(self) -> Self:
        try:
            self.require_processes(self.processes)
        except InputError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None
        return self

    def require_processes(self, count: int) -> None:
        """Refuse a number of processes that cannot share the steps of the config, or what `launch.parallel` has them share.

        Raises:
            InputError: The number does not fit; the hint says what to type instead.
        """
        if count > 1 and count % self.launch.machines:
            what = f"{count} processes cannot be shared equally by {self.launch.machines} machines"
            hint = f"take a number of machines that divides {count}, such as --set launch.machines=2"
            raise InputError(what, where="launch.machines", hint=hint)
        if self.tensor_parallel > 1:
            self._require_team(count)
            return
        require_shared_steps(count, self.accumulate, self.batch_size)
        unshared = self._unshared if count > 1 and self.launch.parallel != "ddp" else None
        if unshared is not None:
            what, hint = unshared
            raise InputError(
                f"launch.parallel: {self.launch.parallel} does not go with {what}", where="launch.parallel", hint=hint
            )

    @property
    def processes(self) -> int:
        """How many processes train together, where no command names another number."""
        return self.tensor_parallel if self.launch.processes == 1 else self.launch.processes

    def _require_team(self, count: int) -> None:
        """Refuse other processes than those that compute each micro-batch together, and what cannot be split among them.

        Raises:
            InputError: The processes or a key do not fit; the message has the reason.
        """
        planned = self.tensor_parallel
        if planned & (planned - 1):
            what, hint = f"{planned} is no power of two, as every number of processes is", "take 2, 4 or another one"
            raise InputError(what, where="tensor_parallel", hint=hint)
        if count != planned:
            what = (
                f"tensor_parallel: {planned} has {planned} processes compute each micro-batch together; {count} give other bits"
            )
            hint = f"leave their number out; with another one it is another run: --set tensor_parallel={count} of planning"
            raise InputError(what, where="processes", hint=hint)
        if (refused := self._unsplit) is not None:
            hint = "change that, or take tensor_parallel: 1, which computes whole matrices"
            raise InputError(f"tensor_parallel: {planned} does not go with {refused}", where="tensor_parallel", hint=hint)

    @property
    def _unsplit(self) -> str | None:
        """What keeps processes from computing with parts of matrices; None: nothing."""
        name, launch = self.optimizer.name, self.launch
        found = {
            f"launch.parallel: {launch.parallel}, which shares parameters in a way of its own": launch.parallel != "ddp",
            f"optimizer.name: {name}, which looks at whole parameters": name not in UPDATED_BY_NUMBER or name in NEEDS_WHOLE_ROWS,
            "optimizer.sam, which looks at all parameters together": self.optimizer.sam is not None,
            "optimizer.lookahead, which keeps whole parameters": self.optimizer.lookahead is not None,
            "averaging, which keeps whole parameters": self.averaging is not None,
            "start.unfreeze, which changes what is trained while the model is split": bool(self.start and self.start.unfreeze),
            "clip.adaptive, which measures whole units": self.clip is not None and self.clip.adaptive is not None,
            "gradients.noise, which is drawn for whole gradients": self.gradients.noise is not None,
            f"precision: {self.precision}, whose loss scale follows from all gradients": self._may_scale_the_loss,
            "compile: true, whose code holds whole parameters": self.compile,
            REPEATED: self.replay is not None,
        }
        return next((what for what, is_there in found.items() if is_there), None)

    @property
    def _unshared(self) -> tuple[str, str] | None:
        """What keeps processes from updating some rows each, with what to do about it; None: nothing."""
        optimizer = self.optimizer
        wrapper = "sam" if optimizer.sam is not None else "lookahead" if optimizer.lookahead is not None else None
        if optimizer.name not in UPDATED_BY_NUMBER:
            return f"{optimizer.name}, which looks at whole parameters", f"ddp, or one of {', '.join(UPDATED_BY_NUMBER)}"
        if wrapper is not None:
            return f"optimizer.{wrapper}, which looks at all parameters together", "ddp"
        if self._may_scale_the_loss:
            what = f"precision: {self.precision}, whose loss scale follows from all gradients"
            return what, "precision: bf16 or fp32, or launch.parallel: ddp"
        if self.gradients.noise is not None:
            return "gradients.noise, which is drawn for whole gradients", "ddp"
        if self.launch.parallel in ("fsdp", "pipeline") and self.compile:
            return "compile: true, whose code holds whole parameters", "zero1, or compile: false"
        if self.launch.parallel in ("fsdp", "pipeline") and self.replay is not None:
            return REPEATED, "ddp or zero1, or replay: null"
        if (clash := excluded(self.strategies, self.task.kind, [self.launch.parallel])) is not None:
            return f"the strategy {clash[0]}", "zero1"
        return None

    @model_validator(mode="after")
    def _splits_what_it_can(self) -> Self:
        clashes = {
            f"batch_size: {self.batch_size}, which has no half": self.batch_size % 2 == 1,
            f"launch.parallel: {self.launch.parallel}; take ddp": self.launch.parallel != "ddp",
            "tensor_parallel": self.tensor_parallel > 1,
            "strategies, some of which compare the samples of a micro-batch": bool(self.strategies),
        }
        clash = next((what for what, is_there in clashes.items() if is_there), None)
        if self.on_out_of_memory == "split" and clash is not None:
            raise ValueError(f"on_out_of_memory: split does not go with {clash}")
        return self

    @model_validator(mode="after")
    def _offloads_what_it_can(self) -> Self:
        optimizer, launch = self.optimizer, self.launch
        clashes = {
            f"optimizer.name: {optimizer.name}; take adamw or sgd": optimizer.name not in ("adamw", "sgd"),
            "optimizer.sam": optimizer.sam is not None,
            "optimizer.lookahead": optimizer.lookahead is not None,
            f"launch.parallel: {launch.parallel}; take ddp": launch.parallel != "ddp",
            "tensor_parallel": self.tensor_parallel > 1,
            "start.unfreeze": self.start is not None and bool(self.start.unfreeze),
            f"precision: {self.precision}, under which the loss may be scaled; take bf16 or fp32": self._may_scale_the_loss,
        }
        clash = next((what for what, is_there in clashes.items() if is_there), None)
        if launch.offload is not None and clash is not None:
            raise ValueError(f"launch.offload: {launch.offload} does not go with {clash}")
        return self

    @field_validator("gradient_checkpointing")
    @classmethod
    def _are_patterns(cls, value: list[str]) -> list[str]:
        return [pattern(one) for one in value]

    @model_validator(mode="after")
    def _weights_need_classes(self) -> Self:
        if self.class_weights != "none" and not has_classes(self.task.kind):
            what = "weigh classes in your task's own loss()" if self.task.use else f"{self.task.kind} has no classes"
            what = "task.weights weighs the targets of this one" if self.task.kind == SEVERAL else what
            raise ValueError(f"class_weights: {self.class_weights} belongs to a built-in classification: {what}")
        return self

    @model_validator(mode="after")
    def _portable_means_one_thread(self) -> Self:
        if self.numerics == "portable" and (self.threads != 1 or self.device != "cpu" or self.compile):
            raise ValueError("numerics: portable needs threads: 1 and device: cpu, and compile: false")
        return self

    @property
    def averages(self) -> bool:
        """Whether averaged weights are measured beside those that are trained."""
        return self.averaging is not None or self._optimizer_averages

    @property
    def _optimizer_averages(self) -> bool:
        return self.optimizer.lookahead is not None or self.optimizer.name == "schedule_free"

    @model_validator(mode="after")
    def _alters_what_it_knows(self) -> Self:
        if self.augment is not None and self.task.kind != "image_classification":
            raise ValueError("augment belongs to task.kind image_classification; your own data set alters its samples")
        if self.label_smoothing and not has_classes(self.task.kind):
            raise ValueError("label_smoothing belongs to a built-in classification; in a task of your own, smooth in its loss")
        return self

    @model_validator(mode="after")
    def _own_updates_are_a_tasks(self) -> Self:
        if self.optimizer.name == "own" and self.task.use is None:
            raise ValueError("optimizer.name: own belongs to a task of your own (task.use) that makes its optimizer")
        if self.schedule.name == "own" and self.optimizer.name != "own":
            raise ValueError(f"schedule.name: own goes with optimizer.name: own; with {self.optimizer.name}, name a schedule")
        return self

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.averaging is not None and self._optimizer_averages:
            raise ValueError("averaging does not go with lookahead or schedule_free, which average the weights themselves")
        if self.precision == "fp16" and self.optimizer.sam is not None:
            raise ValueError("precision: fp16 does not go with sam: take bf16")
        if self.spikes is not None and self._may_scale_the_loss:
            what = f"spikes does not go with precision: {self.precision}, whose loss scale skips steps by a rule of its own"
            raise ValueError(f"{what}: take bf16 or fp32")
        if self.goes_back and self.on_out_of_memory == "split":
            what = "spikes.action: rollback does not go with on_out_of_memory: split"
            raise ValueError(f"{what}: take spikes.action: skip, or on_out_of_memory: stop")
        return self

    @property
    def goes_back(self) -> bool:
        """Whether a run goes back to a checkpoint at a spike."""
        return self.spikes is not None and self.spikes.goes_back

    @property
    def folds(self) -> list[int]:
        """The folds in the order in which they are trained: the config's own first; without folds that one alone."""
        count = max(1, self.split.folds)
        return [(self.split.fold + nr) % count for nr in range(count)]

    def on_fold(self, fold: int) -> Self:
        """Return the config with a fold to validate on."""
        return self.model_copy(update={"split": self.split.model_copy(update={"fold": fold})})

    def with_workers(self, found: int) -> Self:
        """Return the config with what planning found in place of `loader.workers: auto`."""
        if self.loader.workers != "auto" or self.task.is_opaque:
            return self
        return self.model_copy(update={"loader": self.loader.model_copy(update={"workers": found})})

    def with_processes(self, count: int) -> Self:
        """Return the config with another number of processes that train together."""
        return self.model_copy(update={"launch": self.launch.model_copy(update={"processes": count})})

    @property
    def data_seed(self) -> int:
        """The seed that decides the samples and their splits; the run's seed, unless the splits have one of their own."""
        return self.seed if self.split.seed is None else self.split.seed


def meaningful(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a recorded config that mean something for its task, as `of_task` does."""
    return {key: value for key, value in config.items() if not is_opaque(config) or key in OF_PROGRAMS}


def has_classes(kind: str | None) -> bool:
    """Return True if a task's kind is a built-in classification, which alone has the keys `OF_CLASSES`."""
    return kind is not None and kind.endswith("_classification")


def is_opaque(config: Mapping[str, Any]) -> bool:
    """Return `Task.is_opaque` of a recorded config."""
    return (config.get("task") or {}).get("script") is not None


def of_task(values: dict[str, Any], task: Task) -> dict[str, Any]:
    """Return the values of a config that apply to a task; an external program has a few, its own options decide the rest."""
    return {key: value for key, value in values.items() if key in OF_PROGRAMS} if task.is_opaque else values


def bits_config(config: TrainingConfig) -> dict[str, Any]:
    """Return the part of a config that decides a run's bits: not its names, what is kept of it, or who only watches it."""
    return _taking_part(config).model_dump(exclude=no_bits())


def config_digest(config: TrainingConfig) -> str:
    """Return the digest that a run of this config is named by: of the keys that decide its bits and have not their defaults."""
    deciding = without_defaults(_taking_part(config))
    return digest({name: value for name, value in deciding.items() if name not in no_bits()})


def no_bits() -> set[str]:
    """Return the keys of a training config that decide no bit of a run."""
    return {name for name, field in TrainingConfig.model_fields.items() if NO_BITS in field.metadata}


def _taking_part(config: TrainingConfig) -> TrainingConfig:
    return config.model_copy(update={"callbacks": [callback for callback in config.callbacks if not callback.watch]})


def meets(value: float, criterion: str) -> bool:
    """Return True if a value meets a criterion such as `>= 0.95`; NaN meets none."""
    return excess(value, criterion) <= 0


def excess(value: float, criterion: str) -> float:
    """Return by how much a value misses a criterion, 0 or less where it meets it; NaN of NaN."""
    match = CRITERION.match(criterion)
    if match is None:
        raise ValueError(f"{criterion!r} is not a criterion")
    limit = float(match[2])
    found = limit - value if match[1].startswith(">") else value - limit
    return found if found or match[1].endswith("=") else math.ulp(limit)


def load_project(path: Path) -> ProjectConfig:
    """Read and validate `mltrainer.yaml`.

    Raises:
        InputError: The file has faults; the message has file, line and key of each.
    """
    elsewhere = {key: TRAINING for key in TrainingConfig.model_fields if key not in ProjectConfig.model_fields}
    return validate(ProjectConfig, yaml.parse(read_text(path, "the project file"), path.name), elsewhere)


def load_training(path: Path, name: str) -> TrainingConfig:
    """Read and validate a training config; `name` is its path in messages.

    Raises:
        InputError: The file has faults; the message has file, line and key of each.
    """
    return validate(TrainingConfig, yaml.parse(read_text(path, "the training config"), name))
