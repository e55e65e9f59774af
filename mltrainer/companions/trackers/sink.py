"""The interface of trackers, and their list: an adapter is one module with functions `begin` and `check`, and a line here.

A tracker of another distribution is a plug-in, `TrackerPlugin`, with the same two as methods.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mltrainer import plugins
from mltrainer.errors import InputError

KIND = "trackers"
Param = str | int | float | bool


@dataclass(frozen=True)
class Place:
    """The arguments that start a run in a tracker.

    Attributes:
        root: The project's folder, to which paths are relative.
        project: The project's name.
        run: The run's id.
        phase: The phase that trains it.
        known: The tracker's id of the run, if it was started earlier; None for a new run.
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
    """Numbers of one step; `time_s` is the time of reading, in seconds since 1970."""

    step: int
    time_s: float
    values: Mapping[str, float]


class Sink(Protocol):
    """A run in a tracker; a method's arguments are stored once it has returned. an exception means that they were not."""

    @property
    def id(self) -> str:
        """The tracker's id of the run."""

    def params(self, values: Mapping[str, Param]) -> None:
        """Show the config; called for a new run."""

    def metrics(self, points: Sequence[Point]) -> None:
        """Show numbers; no point comes twice, except after an interrupted call."""

    def tags(self, values: Mapping[str, str]) -> None:
        """Show texts, which replace earlier ones of the same names."""

    def figure(self, name: str, path: Path) -> None:
        """Show a figure, an SVG file; a later one of the same name replaces it."""

    def artifact(self, name: str, path: Path) -> None:
        """Keep a copy of a file."""

    def close(self, state: str) -> None:
        """End for now; `state` is "finished", "failed" or "interrupted", after which the run may be continued."""


class Begin(Protocol):
    """The function of an adapter's module."""

    def __call__(self, place: Place, options: Any) -> Sink:
        """Start a run, or continue it."""


class Check(Protocol):
    """The function of an adapter's module that planning calls."""

    def __call__(self, root: Path, project: str, options: Any) -> None:
        """Prove that a run could be started, and leave none; an exception means that it could not.

        Args:
            root: The project's folder.
            project: The project's name.
            options: Section of the tracker in the config.
        """


class TrackerPlugin(Protocol):
    """A tracker of another distribution: a pydantic model of its options, named in the entry points `mltrainer.trackers`."""

    def begin(self, place: Place) -> Sink:
        """Start a run, or continue it."""

    def check(self, root: Path, project: str) -> None:
        """Prove that a run could be started, and leave none; an exception means that it could not."""


@dataclass(frozen=True)
class Adapter:
    """The place of a tracker's adapter.

    Attributes:
        module: Name of the module with `begin` and `check`.
        package: Package that it imports.
        variables: Defaults of environment variables in its process, which stop reports to the tracker's makers.
    """

    module: str
    package: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """Whether the package is installed; it is not imported."""
        return importlib.util.find_spec(self.package) is not None

    def begin(self) -> Begin:
        """Import the adapter, and with it the tracker's own package."""
        function: Begin = importlib.import_module(self.module).begin
        return function

    def check(self) -> Check:
        """Import the adapter, as `begin` does."""
        function: Check = importlib.import_module(self.module).check
        return function


ADAPTERS: dict[str, Adapter] = {  # by the keys of the config
    "tensorboard": Adapter("mltrainer.companions.trackers.sinks.tensorboard", "tensorboard"),
    "mlflow": Adapter(
        "mltrainer.companions.trackers.sinks.mlflow",
        "mlflow",
        {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"},
    ),
    "wandb": Adapter("mltrainer.companions.trackers.sinks.wandb", "wandb", {"WANDB_ERROR_REPORTING": "false"}),
    "trackio": Adapter("mltrainer.companions.trackers.sinks.trackio", "trackio"),
}


@dataclass(frozen=True)
class PluginAdapter:
    """The adapter of a tracker that is a plug-in."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """Whether a distribution adds it; it is not imported."""
        return plugins.find(KIND, self.name) is not None

    def begin(self) -> Begin:
        """Import the plug-in."""
        # Already here, within the time that is given for imports, and not with the first run.
        plugins.load(KIND, self.name, self._where)
        return lambda place, options: self._plugin(options).begin(place)

    def check(self) -> Check:
        """Import the plug-in, as `begin` does."""
        plugins.load(KIND, self.name, self._where)
        return lambda root, project, options: self._plugin(options).check(root, project)

    @property
    def _where(self) -> str:
        return f"tracking.{self.name}"

    def _plugin(self, options: Any) -> TrackerPlugin:
        try:
            made: TrackerPlugin = plugins.made(KIND, self.name, options.options, self._where, ("begin", "check"))
        except ValueError as error:
            message = "; ".join(line.strip() for line in str(error).splitlines())
            raise InputError(message, where=f"{self._where}.options") from None
        return made


def adapter(name: str) -> Adapter | PluginAdapter:
    """Return the adapter of a tracker by its key of the config."""
    return ADAPTERS.get(name) or PluginAdapter(name)
