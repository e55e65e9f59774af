"""The interface of trackers, and their list: an adapter is one module with functions `begin` and `check`, and a line here."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Param = str | int | float | bool


@dataclass(frozen=True)
class Place:
    """The arguments with which a run is begun in a tracker.

    Attributes:
        root: The project's folder, to which paths are relative.
        project: The project's name.
        run: The run's id.
        phase: The phase that trains it.
        known: The tracker's own id of the run, where it was begun earlier; None: it is new.
        step: The last step that the tracker has.
    """

    root: Path
    project: str
    run: str
    phase: str
    known: str | None
    step: int


@dataclass(frozen=True)
class Point:
    """Numbers of one step; `time_s` is when they were read, in seconds since 1970."""

    step: int
    time_s: float
    values: Mapping[str, float]


class Sink(Protocol):
    """A run in a tracker; a method's arguments are stored once it has returned. Any exception means that they were not."""

    @property
    def id(self) -> str:
        """The tracker's own id of the run."""

    def params(self, values: Mapping[str, Param]) -> None:
        """Show the config; called where the run is new."""

    def metrics(self, points: Sequence[Point]) -> None:
        """Show numbers; no point comes twice, but for those of a call that was cut off."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Show words, which replace those of earlier calls by the same names."""

    def figure(self, name: str, path: Path) -> None:
        """Show a figure, an SVG file; a later one by the same name takes its place."""

    def artifact(self, name: str, path: Path) -> None:
        """Keep a copy of a file."""

    def close(self, state: str) -> None:
        """End for now; `state` is "finished", "failed" or "interrupted", after which the run may be gone on with."""


class Begin(Protocol):
    """The function of an adapter's module."""

    def __call__(self, place: Place, options: Any) -> Sink:
        """Begin a run, or go on with it."""


class Check(Protocol):
    """The function of an adapter's module that planning calls."""

    def __call__(self, root: Path, project: str, options: Any) -> None:
        """Prove that a run could be begun, and leave none; any exception means that it could not.

        Args:
            root: The project's folder.
            project: The project's name.
            options: The tracker's section of the config.
        """


@dataclass(frozen=True)
class Adapter:
    """The place of a tracker's adapter.

    Attributes:
        module: The module with `begin` and `check`.
        package: The package that it imports.
        variables: Set in its process, where the user has not: nothing is told to the tracker's makers.
    """

    module: str
    package: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """True where the package is installed; it is not imported."""
        return importlib.util.find_spec(self.package) is not None

    def begin(self) -> Begin:
        """Import the adapter, and with it the tracker's own package."""
        found: Begin = importlib.import_module(self.module).begin
        return found

    def check(self) -> Check:
        """Import the adapter, as `begin` does."""
        found: Check = importlib.import_module(self.module).check
        return found


ADAPTERS: dict[str, Adapter] = {  # by the keys of the config
    "tensorboard": Adapter("mltrainer.trackers.sinks.tensorboard", "tensorboard"),
    "mlflow": Adapter(
        "mltrainer.trackers.sinks.mlflow",
        "mlflow",
        {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"},
    ),
    "wandb": Adapter("mltrainer.trackers.sinks.wandb", "wandb", {"WANDB_ERROR_REPORTING": "false"}),
    "trackio": Adapter("mltrainer.trackers.sinks.trackio", "trackio"),
}
