"""Parts that the records of several phases share: numbers as JSON holds them, files, code, criteria."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import core_schema

from mltrainer.records.equations import ROUNDING, Between, Equal, Equation, not_negative, shares
from mltrainer.workspace import sha256_file


@dataclass(frozen=True, eq=False)
class _As:
    """Gives a type a validator that is made once: the two types are used in hundreds of fields, and making one takes time."""

    schema: core_schema.CoreSchema

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return self.schema


def _union(what: str, *schemas: core_schema.CoreSchema) -> _As:
    return _As(core_schema.union_schema([*schemas], custom_error_type="number", custom_error_message=what))


# Strict: else true would count as 1, and a text of digits as a number.
_NUMBERS = (core_schema.int_schema(strict=True), core_schema.float_schema(strict=True, allow_inf_nan=False))
_NOT_FINITE = core_schema.literal_schema(["nan", "inf", "-inf"])
Number = Annotated[int | float, _union("Input should be a number", *_NUMBERS)]
Measured = Annotated[  # a measured value may not be finite, and JSON has no number for that
    int | float | Literal["nan", "inf", "-inf"],
    _union("Input should be a number, 'nan', 'inf' or '-inf'", *_NUMBERS, _NOT_FINITE),
]
Metrics = dict[str, Measured]


class Part(BaseModel):
    """Base of every part of a record: frozen, exact types, unknown fields refused.

    Attributes:
        equations: The rules that its values must satisfy, by its other values: see `records.equations`.
    """

    equations: ClassVar[tuple[Equation, ...]] = ()

    # Built when they are first used: a command reads a record or two, and building all models takes a while.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    def written(self) -> dict[str, Any]:
        """Return the part as its file holds it, with the entries that it was read with."""
        # A default that is not in the file would give it another seal.
        return self.model_dump(by_alias=True, exclude_unset=True)


def dumped(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return parts as plain data."""
    return [part.model_dump() for part in parts]


class FileRow(Part):
    """A file by its content.

    Attributes:
        path: The path relative to the project, with forward slashes.
        sha256: The digest of its content.
        size: Its size in bytes.
    """

    path: str
    sha256: str
    size: int

    equations = not_negative("size")

    @staticmethod
    def of(file: Path, path: str) -> "FileRow":
        """Return the row of a file as it is now; `path` is its name in the record."""
        return FileRow(path=path, sha256=sha256_file(file), size=file.stat().st_size)


def digests_by_name(rows: Iterable[FileRow]) -> dict[str, str]:
    """Return the digests of a folder's files by their names."""
    return {Path(row.path).name: row.sha256 for row in rows}


class InputRow(FileRow):
    """A file that a phase read or wrote; `role` says how the gate treats it, `mend` is the hint for a file that changed."""

    role: str
    mend: str | None = None


class Skipped(Part):
    """A file that a snapshot left out."""

    path: str
    reason: str


class Source(Part):
    """The code that ran: its files with their digest, the commit, uncommitted changes, and what could not be known."""

    files: list[FileRow]
    sha256: str
    commit: str | None
    branch: str | None
    dirty: bool | None
    diff_sha256: str | None
    untracked: int
    snapshot: str | None
    note: str | None
    snapshot_skipped: list[Skipped] | None = None
    imported: list[FileRow] | None = None


class MetricChoice(Part):
    """The metric that chooses the best checkpoint, its direction, and the rule that decides between equals."""

    name: str
    mode: Literal["max", "min"]
    ties: Literal["first", "loss"] = "first"


class Acceptance(Part):
    """One criterion and the value that it was compared with; None where it was not measured."""

    metric: str
    criterion: str
    value: Measured | None
    met: bool
    split: str | None = None
    interval: list[Measured] | None = None


class KeyChange(Part):
    """A config key whose value differs; None where there is no such key."""

    key: str
    before: Any
    after: Any


class Divergence(Part):
    """The first step at which two chains differ, the kind of value that differs, and the first tensor that does, where known."""

    step: int
    what: str
    expected: str
    found: str
    tensor: str | None = None


class Difference(Part):
    """A difference from a record: of the environment, the data or the code."""

    kind: str
    what: str
    expected: str
    found: str

    @property
    def words(self) -> str:
        """The difference in words."""
        return f"{self.kind} differs: {self.what}: {self.expected} -> {self.found}"


class Call(Part):
    """A line of the project's code that likely makes steps differ; or an attribute that no checkpoint holds, at its class."""

    kind: str
    call: str
    where: str
    function: str


class Cause(Part):
    """The cause of two runs of the same config differing: the first difference, its step, and the likely culprits."""

    kind: str
    step: int
    what: str
    calls: list[Call]


class CalibrationRows(Part):
    """The training rows by which the ranges of a quantized model's activations were chosen.

    Attributes:
        samples: The number of rows that were read.
        of: The number of all training rows.
        places_sha256: The digest of the rows' positions in the training split, which the seed decides: see `drawn.drawn`.
    """

    samples: int
    of: int
    places_sha256: str

    equations = (Between("samples", 1, "of"),)


class Cost(Part):
    """The size of a model, and the time of its forward pass in milliseconds: of one sample, and of a batch."""

    parameters: int
    one_ms: Measured
    batch_ms: Measured
    batch: int

    equations = not_negative("parameters", "one_ms", "batch_ms", "batch")


class Quantized(Part):
    """A quantized model beside the trained one, on validation, and beside its fp32 ONNX file.

    Attributes:
        share: The share of the weights that it holds in 8 bits.
        size: The size of its files in bytes.
        original_size: The size of the same model's ONNX file in fp32, in bytes.
        latency_ms: The median time for one sample by ONNX Runtime on the CPU.
        original_latency_ms: The same time of the file in fp32; the two models are timed in turns.
        calibration: The rows that calibrated it; None where there is nothing to calibrate.
        metric: The metric that chose the checkpoint; None of an untrained model, where none was measured.
        value: The quantized model's value of the metric on validation.
        original: The trained model's value of the metric.
        loss: The share of the original value by which the metric is worse; below 0 where it is better.
        allowed: The largest share by which the metric may be worse.
    """

    share: Number
    size: int
    original_size: int
    latency_ms: Number
    original_latency_ms: Number
    calibration: CalibrationRows | None = None
    metric: str | None = None
    value: Measured | None = None
    original: Measured | None = None
    loss: Measured | None = None
    allowed: Number | None = None

    equations = (
        *shares("share"),
        *not_negative("size", "original_size", "latency_ms", "original_latency_ms"),
    )


def lost_share(original: Any, value: Any, mode: str) -> float:
    """Return the share of its original value by which a metric is worse: NaN where one is no number; of 0 the difference itself.

    Args:
        original: The metric of the trained model.
        value: The metric of the model made of it.
        mode: "max" where larger is better, else "min".
    """
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in (original, value)):
        return math.nan
    worse = original - value if mode == "max" else value - original
    return float(worse / abs(original) if original else worse)


def _relative_difference(row: "Export") -> float | None:
    """Return the difference of outputs relative to the largest output; None where that is not known, or 0."""
    found, scale = row.max_difference, row.scale
    return found / scale if isinstance(found, int | float) and isinstance(scale, int | float) and scale else None


class Export(Part):
    """One export format: its state, and its outputs' difference from the trained model's; `quantized`: of a quantized format."""

    format: str
    file: str
    state: Literal["written", "failed", "not_available"]
    reason: str | None
    agrees: bool | None
    max_difference: Measured | None = None
    scale: Measured | None = None
    relative_difference: Measured | None = None
    tolerance: Number | None = None
    samples: int | None = None
    batch_sizes: list[int] | None = None
    quantized: Quantized | None = None

    equations = (
        *not_negative("max_difference", "scale", "relative_difference", "tolerance", "samples"),
        Equal("relative_difference", _relative_difference, ROUNDING),
    )
