"""What is asked of batch sizes, what each of them gave, and what is suggested."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mltrainer.questions.findings import Explored, Findings, Value


class Asked(Findings):
    """From which batch size on, and after how many minutes no size is begun; None: they do not count."""

    first: int
    minutes: Value | None


class Size(Findings):
    """A batch size: the time of a step in microseconds, the throughput, and the peak memory in MiB."""

    batch_size: int
    step_us: Value
    samples_per_s: Value
    peak_mb: Value


class SizeTest(Findings):
    """The memory limit in MiB, None where it is not known, and the reason why no larger size was tried."""

    limit_mb: Value | None
    stopped: str


class Present(Findings):
    """The batch size of the present config, and over how many of them gradients accumulate."""

    batch_size: int
    accumulate: int


class Adaptation(Findings):
    """Changes of the config, by dotted key, that train with another batch size, and what they mean."""

    changes: dict[str, Any] = Field(serialization_alias="set")
    why: str


class AdoptedBy(Adaptation):
    """An adaptation with the command that adopts it."""

    command: str


class FoundSize(SizeTest, Explored):
    """Every size that was measured, the largest that fits, the suggested one or None, and the reason."""

    sizes: list[Size]
    largest: int | None
    present: Present
    suggestion: Value | None
    reason: str
    changes: list[AdoptedBy]
