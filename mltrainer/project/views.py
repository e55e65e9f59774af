"""The front door's return values: plain values of a project, which a notebook shows as tables and figures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, SupportsIndex, TypeVar, overload

from mltrainer.errors import InputError
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import Advice, PhaseState
from mltrainer.looking import looking_here
from mltrainer.records.common import dumped
from mltrainer.reports import notebook
from mltrainer.reports import review as reviews
from mltrainer.reports.comment import comment
from mltrainer.reports.frames import frame, history_frame
from mltrainer.reports.runs import RunComparison, RunRow
from mltrainer.reproducibility.git import tracks
from mltrainer.runs.drift import Drift
from mltrainer.runs.find import diagnose_run, steps_of
from mltrainer.runs.models import best_model
from mltrainer.workspace import Project as Places

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn


Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def looks(call: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Return a method, of a project or of a part of it, that may open only the project's own plain files."""

    @functools.wraps(call)
    def limited(*given: Given.args, **named: Given.kwargs) -> Returned:
        part: Any = given[0]
        with looking_here(tracks, str(part._places.root)):
            return call(*given, **named)

    return limited


@dataclass(frozen=True)
class Status:
    """A project's state, derived from its files.

    Attributes:
        phases: Each phase with `name`, `state` (locked, ready, running, failed, passed, skipped or stale), `reasons` and `gate`.
        advice: The next step, with its phase; None when all five gates hold.
    """

    phases: tuple[PhaseState, ...]
    advice: Advice | None

    @property
    def next(self) -> str | None:
        """The next command; None if a person must first do something else, and when all is done."""
        return self.advice.command if self.advice else None

    @property
    def next_why(self) -> str | None:
        """The reason, and what to do if it is no command; None when all is done."""
        return self.advice.explained if self.advice else None

    @property
    def done(self) -> bool:
        """Whether all five gates hold."""
        return all(phase.done for phase in self.phases)

    def _repr_markdown_(self) -> str:
        return notebook.status_markdown(*self._table())

    def _repr_html_(self) -> str:
        return notebook.status_html(*self._table())

    def _table(self) -> tuple[list[tuple[str, str, tuple[str, ...]]], str | None]:
        words = self.advice.why if self.advice else None
        return [(phase.name, phase.state, phase.reasons) for phase in self.phases], words


class Gates(tuple[Gate, ...]):
    """Gates in the order of their phases."""

    def __repr__(self) -> str:
        return f"Gates({', '.join(map(repr, self))})"

    @property
    def hold(self) -> bool:
        """Whether there are any, and all of them hold."""
        return bool(self) and all(gate.holds for gate in self)

    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Gate: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[Gate, ...]: ...

    def __getitem__(self, key: str | SupportsIndex | slice) -> Gate | tuple[Gate, ...]:
        """Return a gate by its place or its phase's name."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        by_phase = {gate.phase: gate for gate in self}
        if key not in by_phase:
            raise InputError.unknown("gate", key, by_phase)
        return by_phase[key]

    def _repr_markdown_(self) -> str:
        return "\n".join(gate._repr_markdown_() for gate in self)

    def _repr_html_(self) -> str:
        return "\n".join(gate._repr_html_() for gate in self)


@dataclass(frozen=True)
class Review:
    """A pull request's verdicts, and the differences from another revision."""

    review: reviews.Review = field(repr=False)

    @property
    def found(self) -> dict[str, Any]:
        """Verdicts and differences, as `mltrainer report --json` prints them."""
        return self.review.written()

    @property
    def holds(self) -> bool:
        """Whether all existing gates hold, planning's among them."""
        return self.review.holds

    @property
    def markdown(self) -> str:
        """The body of a comment."""
        return comment(self.review)

    def _repr_markdown_(self) -> str:
        return self.markdown


@dataclass(frozen=True)
class Run:
    """A recorded run, as it was trained here or as a phase's record has it.

    Attributes:
        id: Twelve hex digits, named by what decided its bits.
        shown: The run, as far as it came.
        result: All that was measured; empty where the run has not ended.
        config: The training config, every key of it.
    """

    id: str
    shown: RunRow = field(repr=False)
    result: Mapping[str, Any] = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    _places: Places = field(repr=False)

    @property
    def row(self) -> dict[str, Any]:
        """The run as `mltrainer runs show --json` prints it."""
        return self.shown.written()

    @property
    def phase(self) -> str | None:
        """The phase that trained it."""
        return self.shown.phase

    @property
    def state(self) -> str:
        """`running`, `finished`, `interrupted` or `failed`."""
        return self.shown.state

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the best evaluation; those of the training set begin with `train_`."""
        return dict(self.shown.metrics or {})

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row for each evaluation: `epoch`, `step`, `lr`, `train_loss`, `train`, `validation` and more."""
        return list(self.result.get("history", []))

    @property
    @looks
    def steps(self) -> list[dict[str, Any]]:
        """One row for each step: `step`, `loss`, `grad_norm`, as float32; empty if the run's folder is not here."""
        return steps_of(self._places, self.id)

    def frame(self, *, steps: bool = False) -> pd.DataFrame:
        """Return the history as a pandas frame, nested values as columns such as `validation.accuracy`.

        Args:
            steps: One row for each step, in place of each evaluation.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(self.steps, "step") if steps else history_frame(self.history)

    @property
    def curves(self) -> notebook.Curves:
        """The figures of the run, which a notebook shows."""
        return notebook.curves(self.result)

    @looks
    def diagnose(self) -> list[dict[str, Any]]:
        """Return every diagnostic's row, with config changes to try for those that fired.

        Raises:
            InputError: The run has no result yet.
        """
        return dumped(diagnose_run(self._places, self.id))

    def model(self, *, trained: bool = False) -> nn.Module:
        """Return the task's model with the weights of the run's best checkpoint; see `mltrainer.load_model`."""
        return best_model(self._places, self.id, trained=trained)

    def _repr_markdown_(self) -> str:
        return notebook.run_markdown(self.shown)

    def _repr_html_(self) -> str:
        return notebook.run_html(self.shown, self.curves)


class Runs(tuple[Run, ...]):
    """Runs, the oldest first."""

    def frame(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each run: its state, metrics and digests, and the config's keys, `config.KEY`.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(({**run.row, "config": run.config} for run in self), "id")

    def _repr_markdown_(self) -> str:
        return notebook.runs_markdown([run.shown for run in self])

    def _repr_html_(self) -> str:
        return notebook.runs_html([run.shown for run in self])


@dataclass(frozen=True)
class Comparison:
    """The differences of two runs.

    Attributes:
        compared: The comparison.
    """

    compared: RunComparison = field(repr=False)

    @property
    def found(self) -> dict[str, Any]:
        """The comparison as `mltrainer runs compare --json` prints it.

        That is `first`, `second`, `differences`, `first_divergence` (step and what; None: they do not part), `steps_compared`,
        0 where one of the two is not here, `metric` and `speed`: whether the difference is beyond chance.
        """
        return self.compared.written()

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Config keys, digests and metrics whose values differ, with both."""
        return {row.what: (row.first, row.second) for row in self.compared.differences}

    @property
    def same_bits(self) -> bool | None:
        """Whether all steps that both made gave the same bits; None if they could not be compared."""
        return self.compared.first_divergence is None if self.compared.steps_compared else None

    def _repr_markdown_(self) -> str:
        return notebook.comparison_markdown(self.compared)

    def _repr_html_(self) -> str:
        return notebook.comparison_html(self.compared)


@dataclass(frozen=True)
class Predictions:
    """The delivered model's answers, one for each row, text or picture.

    Attributes:
        answers: The answers as `mltrainer predict` prints them: `prediction` and, of classes, `probabilities`; a `set` or an
            `interval` where the config asks for them (`conformal`); `output` where the task says
            no more; `file` of a picture; `continuation` of a text that is continued.
        drift: The columns whose values are of another population than the training rows', the worst first; empty for fewer than
            50 rows, and where the model reads no table.
    """

    answers: tuple[Mapping[str, Any], ...]
    drift: tuple[Drift, ...] = ()

    @property
    def predictions(self) -> list[Any]:
        """The class or value of each row; its outputs or continuation if there is neither."""
        return [next(answer[key] for key in ("prediction", "output", "continuation") if key in answer) for answer in self.answers]

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.answers)

    def _repr_markdown_(self) -> str:
        return notebook.predictions_markdown(self.answers, self.drift)
