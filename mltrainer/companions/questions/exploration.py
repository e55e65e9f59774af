"""Questions to the explorer: real steps of the present config, or of a run's, in a scratch folder.

Exploring is free and never evidence: it needs no gate, makes no run, and touches no file of the project outside its scratch
folder, which is checked each time.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from mltrainer.companions.questions.catalogue import EXPLORER
from mltrainer.companions.questions.findings import Explored, ExplorerSettings, State
from mltrainer.configs.loading import Changes, as_assignments, parse_assignment
from mltrainer.configs.pages import tool_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import KilledError, StoppedError
from mltrainer.phases.present_config import present_config
from mltrainer.records.common import Part
from mltrainer.records.job import ExplorationJob
from mltrainer.records.partial import partial
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.runs.launcher import Tell, Tools
from mltrainer.workspace import LOCK_FILE, SERVED_FILE, Project, digest, locked_project, write_json

NO_CHECKPOINT = "lower batch_size or the model's size, or free memory, then type the same command again"

AnyExplored = TypeVar("AnyExplored", bound=Explored)
AnyMeasured = TypeVar("AnyMeasured", bound=Part)


class Exploration:
    """One question to the explorer, asked of the config that planning would write now, or of a run's.

    Args:
        tools: The project's tools; the project is locked meanwhile.
        question: The question's name, such as "lr_find"; also the name of the scratch folder.
        changes: Changes of the config.
        config: A run's config; None: the present config.
        tool: The tool that answers.
    """

    def __init__(
        self, tools: Tools, question: str, changes: Changes | None, config: TrainingConfig | None = None, tool: str = EXPLORER
    ) -> None:
        project = tools.project
        self.tools, self.project, self.question, self.assignments = tools, project, question, as_assignments(changes)
        self.tool = tool
        self.folder = project.state_dir / question
        self.config = present_config(tools, self.assignments) if config is None else config
        self.settings = tool_page(tool, project.root).settings
        self.limits = partial(ExplorerSettings, self.settings)
        self._before = files(project, self.folder)

    def ask(self, kind: type[AnyMeasured], on_event: Tell | None = None, **asked: Any) -> AnyMeasured:
        """Return the tool's measurement; if it was stopped, its folder is removed.

        Args:
            kind: Model of the measurement.
            on_event: Function that takes the events in place of the tools'.
            **asked: Arguments of the measurement.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        job = ExplorationJob(
            run=self.question,
            purpose="explore",
            question=self.question,
            folder=self.project.relative(self.folder),
            config=self.config,
            contract={},
            threads=self.config.threads,
            settings=self.settings,
            asked=asked,
        )
        try:
            return kind.model_validate(self.tools.run(self.tool, job, on_event=on_event))
        except (StoppedError, KeyboardInterrupt):
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        except KilledError as error:
            # The usual advice goes on from a checkpoint, and an exploration has none.
            error.hint = NO_CHECKPOINT
            raise

    def command(self, changes: dict[str, Any]) -> str:
        """Return the planning command with the same `--set` plus some changes, which replace assignments of the same keys."""
        others = [typed for typed in self.assignments if parse_assignment(typed)[0] not in changes]
        values = [*others, *(f"{key}={value}" for key, value in changes.items())]
        return shlex.join(["mltrainer", "phase", "run", "planning", *(part for value in values for part in ("--set", value))])

    def kept(self, answer: AnyExplored) -> AnyExplored:
        """Return the findings with digests of the project's files before and after, and write them to the scratch folder."""
        after = files(self.project, self.folder)
        # A changed file has two different items, a new or deleted one has one: the symmetric difference holds them all.
        changed = sorted({path for path, _ in self._before.items() ^ after.items()})
        state = State(before=digest(self._before), after=digest(after), changed=changed)
        result = answer.model_copy(update={"state": state})
        write_json(self.folder / RESULT_FILE, result.written())
        return result


@contextlib.contextmanager
def exploring(
    tools: Tools, question: str, changes: Changes | None = None, config: TrainingConfig | None = None, tool: str = EXPLORER
) -> Iterator[Exploration]:
    """Lock the project for one question to the explorer, as `Exploration` takes it."""
    project = tools.project
    with locked_project(project):
        yield Exploration(tools, question, changes, config, tool)


def files(project: Project, scratch: Path) -> dict[str, tuple[int, int]]:
    """Return the size and time of last change, in ns, of each file of a project; a rewritten file counts as changed.

    Left out are the scratch folder, locks, a server's answers, what Python compiles, and hidden folders but `.mltrainer`.
    """
    found = {}
    for folder, inner, names in os.walk(project.root):
        place = Path(folder)
        # In place: os.walk then never enters excluded folders.
        inner[:] = [name for name in inner if _counts(project, place / name, scratch)]
        for path in (place / name for name in names):
            is_lock = place == project.state_dir and path.name.endswith(LOCK_FILE)
            if not is_lock and not path.name.startswith(SERVED_FILE):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile by another process
                    stat = path.lstat()  # a link counts as itself, and a broken one must not stop the walk
                    found[project.relative(path)] = (stat.st_size, stat.st_mtime_ns)
    return found


def _counts(project: Project, folder: Path, scratch: Path) -> bool:
    hidden = folder.name.startswith(".") and folder != project.state_dir
    return not hidden and folder.name != "__pycache__" and folder != scratch
