"""What the front door hands out: plain values of a project, which a notebook shows as tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mltrainer.errors import InputError
from mltrainer.gates.gate import Gate
from mltrainer.gates.machine import Advice, PhaseState
from mltrainer.reports import notebook
from mltrainer.reports.review import comment
from mltrainer.runs.drift import Drift
from mltrainer.runs.find import diagnose_run
from mltrainer.runs.models import best_model
from mltrainer.workspace import Project as Places

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Status:
    """Where a project stands, derived from its files.

    Attributes:
        phases: Each phase with `name`, `state` (locked, ready, running, failed, passed, skipped or stale), `reasons` and `gate`.
        advice: What comes next, with its phase; None when all five gates hold.
    """

    phases: tuple[PhaseState, ...]
    advice: Advice | None

    @property
    def next(self) -> str | None:
        """The command that comes next; None where a person has something else to do first, and when all is done."""
        return self.advice.command if self.advice else None

    @property
    def next_why(self) -> str | None:
        """Why, and what to do where it is no command; None when all is done."""
        return self.advice.explained if self.advice else None

    @property
    def done(self) -> bool:
        """Whether all five gates hold."""
        return all(phase.done for phase in self.phases)

    def _repr_markdown_(self) -> str:
        words = self.advice.why if self.advice else None
        return notebook.status_markdown([(phase.name, phase.state, phase.reasons) for phase in self.phases], words)


class Gates(tuple[Gate, ...]):
    """Gates in the order of their phases."""

    def __repr__(self) -> str:
        told = (f"{gate.phase} {'holds' if gate.holds else 'does not hold'}" for gate in self)
        return f"Gates({', '.join(told)})"

    @property
    def hold(self) -> bool:
        """Whether there are any, and each of them holds."""
        return bool(self) and all(gate.holds for gate in self)

    def __getitem__(self, key: Any) -> Any:
        """Return a gate by its place or its phase's name."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        found = {gate.phase: gate for gate in self}
        if key not in found:
            raise InputError(f"there is no gate {key!r} here; there are {', '.join(found) or 'none'}")
        return found[key]

    def _repr_markdown_(self) -> str:
        return "\n".join(gate._repr_markdown_() for gate in self)


@dataclass(frozen=True)
class Review:
    """What a pull request brings.

    Attributes:
        found: Verdicts and differences, as `mltrainer report --json` prints them.
    """

    found: Mapping[str, Any] = field(repr=False)

    @property
    def holds(self) -> bool:
        """Whether every gate that there is holds, and planning's is there."""
        return bool(self.found["holds"])

    @property
    def markdown(self) -> str:
        """The body of a comment."""
        return comment(self.found)

    def _repr_markdown_(self) -> str:
        return self.markdown


@dataclass(frozen=True)
class Run:
    """A recorded run, as it was trained here or as a phase's record tells of it.

    Attributes:
        id: Twelve hex digits, named by what decided its bits.
        row: The run as `mltrainer runs show --json` prints it.
        result: All that was measured; empty where the run has not ended.
        config: The training config, every key of it.
    """

    id: str
    row: Mapping[str, Any] = field(repr=False)
    result: Mapping[str, Any] = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    places: Places = field(repr=False)

    @property
    def phase(self) -> str | None:
        """The phase that trained it."""
        return None if self.row["phase"] is None else str(self.row["phase"])

    @property
    def state(self) -> str:
        """`running`, `finished`, `interrupted` or `failed`."""
        return str(self.row["state"])

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the best evaluation; those of the training set begin with `train_`."""
        return dict(self.row["metrics"] or {})

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row for each evaluation: `epoch`, `step`, `lr`, `train_loss`, `train`, `validation` and more."""
        return list(self.result.get("history", []))

    @property
    def curves(self) -> notebook.Curves:
        """The figures of the run, which a notebook shows."""
        return notebook.curves(self.result)

    def diagnose(self) -> list[dict[str, Any]]:
        """Return every diagnostic's row, with config changes to try for those that fired.

        Raises:
            InputError: The run has no result yet.
        """
        return diagnose_run(self.places, self.id)

    def model(self, *, trained: bool = False) -> nn.Module:
        """Return the task's model with the weights of the run's best checkpoint; see `mltrainer.load_model`."""
        return best_model(self.places, self.id, trained=trained)

    def _repr_markdown_(self) -> str:
        return notebook.run_markdown(self.row)


class Runs(tuple[Run, ...]):
    """Runs, the oldest first."""

    def _repr_markdown_(self) -> str:
        return notebook.runs_markdown([run.row for run in self])


@dataclass(frozen=True)
class Predictions:
    """What the delivered model answers, one for each row, text or picture.

    Attributes:
        answers: As `mltrainer predict` prints them: `prediction` and, of classes, `probabilities`; `output` where the task says
            no more; `file` of a picture; `continuation` of a text that is continued.
        drift: The columns whose values are of another population than the training rows', the worst first; empty for fewer than
            50 rows, and where the model reads no table.
    """

    answers: tuple[Mapping[str, Any], ...]
    drift: tuple[Drift, ...] = ()

    @property
    def predictions(self) -> list[Any]:
        """The class or value of each row; its outputs or continuation where there is neither."""
        return [next(answer[key] for key in ("prediction", "output", "continuation") if key in answer) for answer in self.answers]

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.answers)

    def _repr_markdown_(self) -> str:
        return notebook.predictions_markdown(self.answers, self.drift)
