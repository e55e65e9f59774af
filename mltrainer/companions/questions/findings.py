"""Base of the questions' requests and answers: models in memory, which are dumped for files and `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator

from mltrainer.figures.figure import Figure
from mltrainer.records.common import Part
from mltrainer.workspace import plain, write_text

_NOT_FINITE = ("nan", "inf", "-inf")


def _from_json(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value


Value = Annotated[int | float, BeforeValidator(_from_json)]  # a measurement may not be finite, and JSON has no number for that


class Findings(Part):
    """A question's request, measurement or answer."""

    @classmethod
    def of(cls, measured: Findings, **values: Any) -> Self:
        """Return findings that are a measurement with further values."""
        return cls(**{name: getattr(measured, name) for name in measured.model_fields_set}, **values)

    def written(self) -> dict[str, Any]:
        """Return the findings as JSON values: only the entries that were set."""
        return dict(plain(self.model_dump(by_alias=True, exclude_unset=True)))


class ExplorerSettings(Findings):
    """The explorer's settings, from its page of the handbook."""

    smoothing: Value
    divergence: Value
    margin: Value
    clear_fall: Value
    memory_share: Value
    near_best: Value
    minutes: Value


class State(Findings):
    """Digests of the project's files before and after an exploration, and the files that changed meanwhile."""

    before: str
    after: str
    changed: list[str]


class Explored(Findings):
    """An exploration's answer; `state` is set once it has ended."""

    state: State | None = None


def changed_files(answer: object) -> list[str]:
    """Return a warning if files of the project changed meanwhile: not by the explorer, so by the user or their code."""
    changed = answer.state.changed if isinstance(answer, Explored) and answer.state else []
    return [f"these files changed meanwhile, by somebody else or by your code: {', '.join(changed)}"] if changed else []


@dataclass(frozen=True)
class Suggestion:
    """A value to try, or None, and why."""

    value: float | None
    reason: str


def rounded(rate: float) -> float:
    """Return a learning rate to two significant digits."""
    return float(f"{rate:.2g}")


def write_page(path: Path, text: str, figures: Sequence[Figure]) -> None:
    """Write a page after its figures, which lie beside it."""
    for figure in figures:
        write_text(path.with_name(figure.file), figure.content)
    write_text(path, text)
