"""The trainers: a job in, a result out, and the capabilities of the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mltrainer.configs.forgotten import WHERE
from mltrainer.configs.pages import ORCHESTRATOR, ToolPage, tool_page
from mltrainer.errors import InputError
from mltrainer.observe.renamed_folder import linked
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import ProbeResult, RunResult, UnsoundDataResult, parsed_result
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project

Variables = Mapping[str, str]  # set before the trainer's interpreter starts


@dataclass(frozen=True)
class Trainer:
    """A tool that trains, in a separate process, started as its manifest says.

    Attributes:
        tools: The project's tools.
        page: The manifest.
    """

    tools: Tools
    page: ToolPage

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of its results, as the manifest declares them; a gate's item that needs another does not apply."""
        return frozenset(self.page.capabilities)

    def run(self, job: TrainingJob, variables: Variables | None = None) -> RunResult:
        """Return the result of a run or a reproduction, which is also written to the job's folder.

        Raises:
            MltrainerError: The trainer's own error, with its exit code.
        """
        return parsed_result(self._trained(job, variables), RunResult)

    def probe(self, job: TrainingJob, variables: Variables | None = None) -> ProbeResult:
        """Return the result of a few steps, whose contract is not known yet.

        Raises:
            MltrainerError: The trainer's own error, with its exit code.
        """
        return parsed_result(self._trained(job, variables), ProbeResult)

    def first_probe(self, job: TrainingJob) -> ProbeResult | UnsoundDataResult:
        """Return the result of a few steps, or, if the data has an error, the findings on it before any step.

        Raises:
            MltrainerError: The trainer's own error, with its exit code.
        """
        result = self._trained(job, None)
        if result.get("state") == "unsound_data":
            return parsed_result(result, UnsoundDataResult)
        return parsed_result(result, ProbeResult)

    def _trained(self, job: TrainingJob, variables: Variables | None) -> dict[str, Any]:
        if job.config.forget is not None and self.page.tool != ORCHESTRATOR:
            what = f"{self.page.tool} trains by itself, and nothing shows that it leaves samples out"
            raise InputError(what, where=WHERE, hint="leave the rows out of the data, and train a new run: forget: null")
        own = job.model_copy(update={"tool": self.page.tool})
        if "folder" not in job.disturbances or job.config.task.is_opaque:  # a program runs in a copy of another name
            return self.tools.run(self.page.tool, own, variables)
        with linked(self.tools.project.root) as link:
            elsewhere = replace(self.tools, project=Project(link))
            return elsewhere.run(self.page.tool, own, {**(variables or {}), "TMPDIR": str(link.parent / "tmp")})


def trainer_for(tools: Tools, name: str, phase: str) -> Trainer:
    """Return the trainer that a phase's page names.

    Raises:
        InputError: There is no such tool, or its manifest does not list the phase.
    """
    return Trainer(tools, page_for(tools.project.root, name, phase))


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
            hint=f"add {phase} to its phases, or name another tool on the phase's page",
        )
    return page


def trainer_of(tools: Tools, job: TrainingJob) -> Trainer:
    """Return the trainer that did a job; jobs that name none are of the training orchestrator."""
    return Trainer(tools, tool_page(job.tool or ORCHESTRATOR, tools.project.root))
