"""The protocol of the tools that train: a job in, a result out, and what its evidence can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mltrainer.configs.pages import ORCHESTRATOR, ToolPage, tool_page
from mltrainer.errors import InputError
from mltrainer.records.job import TrainingJob
from mltrainer.runs.launcher import Tools


class Tool(Protocol):
    """What does a phase's work."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What its results can show; a gate's item that needs another does not apply."""

    def run(self, job: TrainingJob, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the result of a job, which also stands in the job's folder.

        Args:
            job: What to do.
            variables: Set before the tool's interpreter starts.

        Raises:
            MltrainerError: The tool's own error, with its exit code.
        """


@dataclass(frozen=True)
class Program:
    """A tool that runs as a separate program, started by the launcher as its manifest says.

    Attributes:
        tools: The project's tools.
        page: The manifest.
    """

    tools: Tools
    page: ToolPage

    @property
    def capabilities(self) -> frozenset[str]:
        """As the manifest declares them."""
        return frozenset(self.page.capabilities)

    def run(self, job: TrainingJob, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the result of a job, which notes by which tool it was done."""
        return self.tools.run(self.page.tool, job.model_copy(update={"tool": self.page.tool}), variables)


def tool_for(tools: Tools, name: str, phase: str) -> Tool:
    """Return the tool that a phase's page names.

    Raises:
        InputError: There is no such tool, or its manifest does not list the phase.
    """
    return Program(tools, page_for(tools.project.root, name, phase))


def page_for(root: Path, name: str, phase: str) -> ToolPage:
    """Return the manifest of the tool that a phase's page names.

    Raises:
        InputError: There is no such tool, or its manifest does not list the phase.
    """
    page = tool_page(name, root)
    if phase not in page.phases:
        raise InputError(
            f"the tool {name} serves {', '.join(page.phases) or 'no phase'}, not {phase}",
            where=f"tools/{name}/README.md",
            mend=f"add {phase} to its phases, or name another tool on the phase's page",
        )
    return page


def tool_of(tools: Tools, job: TrainingJob) -> Tool:
    """Return the tool that did a job; jobs that name none are of the training orchestrator."""
    return Program(tools, tool_page(job.tool or ORCHESTRATOR, tools.project.root))
