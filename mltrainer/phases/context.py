"""A phase's context, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.configs.pages import PhasePage, trainer_of
from mltrainer.configs.project import Task, TrainingConfig, load_project
from mltrainer.configs.tracking import Tracking
from mltrainer.plugins import is_file_of_plugin
from mltrainer.records.common import FileRow, InputRow, Part, Source
from mltrainer.records.event import Tell
from mltrainer.records.reading import Record
from mltrainer.runs.contract import planned_files
from mltrainer.runs.launcher import Launch, Tools
from mltrainer.runs.trainer import Trainer, trainer_for
from mltrainer.workspace import Project, sha256_file

if TYPE_CHECKING:
    from mltrainer.records.baseline import Baseline
    from mltrainer.records.diagnostics import Diagnostics
    from mltrainer.records.envelope import Envelope
    from mltrainer.records.optimization import Searched, Skipped
    from mltrainer.records.planning import Planning, Tracker


@dataclass(frozen=True)
class Context:
    """A phase's context: project, policy, earlier records, and functions of its surroundings.

    Attributes:
        project: The project.
        page: The phase's policy.
        earlier: The records of the phases before it, by name; their gates hold, so that they can be trusted.
        current: This phase's own record from an earlier run; None where there is none that can be trusted.
        previous: The digest of the record of the phase before, which this phase's runs carry.
        assignments: The `--set KEY=VALUE` of the command line.
        tell: A function that shows an event (progress, a note) to the user.
        launch: A function that starts a tool.
        template: The template that planning starts from, by path or name; None: the one that it started from last.
        prepare: A function that begins the imports of tools; see `Tools.prepare`.
        try_trackers: A function that begins to try trackers beside the phase, and returns a function that waits for them and
            returns a row for each.
    """

    project: Project
    page: PhasePage
    earlier: Mapping[str, Record]
    current: Envelope[Any] | None
    previous: str | None
    assignments: tuple[str, ...]
    tell: Tell
    launch: Launch
    template: str | None = None
    try_trackers: Callable[[Tracking | None], Callable[[], list[Tracker]]] = lambda _: list
    prepare: Callable[[TrainingConfig, Sequence[str], Sequence[str]], None] = lambda *_: None

    @property
    def tools(self) -> Tools:
        """The project's tools."""
        return Tools(self.project, self.tell, self.launch)

    @property
    def folder(self) -> Path:
        """The phase's folder of artifacts."""
        return self.project.phase_dir(self.page.phase)

    @property
    def planning(self) -> Envelope[Planning]:
        """Planning's record."""
        return self.earlier["planning"].trusted

    @property
    def baseline(self) -> Envelope[Baseline]:
        """The baseline's record."""
        return self.earlier["baseline"].trusted

    @property
    def diagnosis(self) -> Envelope[Diagnostics]:
        """Diagnostics' record."""
        return self.earlier["diagnostics"].trusted

    @property
    def tuning(self) -> Envelope[Searched | Skipped]:
        """Optimization's record."""
        return self.earlier["optimization"].trusted

    @property
    def last(self) -> Any:
        """The evidence of this phase's earlier run; None where there is none."""
        return self.current.evidence if self.current else None

    @cached_property
    def task(self) -> Task:
        """The task that planning recorded; in planning, the project file's."""
        config = self.planned_config() if "planning" in self.earlier else load_project(self.project.file)
        return config.task

    @property
    def trainer(self) -> Trainer:
        """The trainer that this phase's page names; the task's own trainer replaces the shipped one."""
        return self.trainer_reporting_to(self.tell)

    def trainer_reporting_to(self, tell: Tell) -> Trainer:
        """Return the same trainer with another listener of its events."""
        tools = Tools(self.project, tell, self.launch)
        return trainer_for(tools, trainer_of(self.page.tool, self.task.trainer), self.page.phase)

    def note(self, text: str) -> None:
        """Show the user a sentence."""
        self.tools.note(text)

    def planned_config(self) -> TrainingConfig:
        """Return the config that planning's gate holds for."""
        return TrainingConfig.model_validate(self.planning.evidence.config)

    def planned_data(self) -> dict[str, Any]:
        """Return a job's entries for the files that planning saw opened."""
        return planned_files(self.planning.evidence)

    def with_workers(self, config: TrainingConfig) -> TrainingConfig:
        """Return a config for a tool: with the number of loader processes that planning found, where it asks for `auto`."""
        loader = self.planning.evidence.loader
        return config.with_workers(loader.workers if loader else 0)


@dataclass(frozen=True)
class Result:
    """A phase's result.

    Attributes:
        evidence: The evidence that its report and its gate are computed from.
        source: The identity of the code that ran.
        inputs: The files that were read or written.
        handbook: The pages and templates whose declarations it used.
    """

    evidence: Part
    source: Source
    inputs: list[InputRow] = field(default_factory=list)
    handbook: list[str] = field(default_factory=list)


def file_row(project: Project, path: Path, role: str) -> InputRow:
    """Return the row of an input file, which the gate compares later."""
    return InputRow(path=project.relative(path), sha256=sha256_file(path), size=path.stat().st_size, role=role)


def code_rows(rows: Iterable[FileRow]) -> list[InputRow]:
    """Return rows of imported files: of the project, which every clone has, and of plug-ins, which are installed or not."""
    return [InputRow(**dict(row), role="plugin" if is_file_of_plugin(row.path) else "code") for row in rows]


def rows_with_role(rows: Iterable[FileRow], role: str) -> list[InputRow]:
    """Return rows of files with their role, by which the gate treats them."""
    return [InputRow(**dict(row), role=role) for row in rows]
