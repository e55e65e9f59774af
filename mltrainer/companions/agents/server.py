"""The tools and pages of a project over MCP: what looks runs nothing of the project, what trains asks a person first.

Each tool is a command of this program; `calls` runs it. An argument becomes one word of the command line, or the value of an
option, and has a pattern that no option matches.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resources.types import FunctionResource
from mcp_types import CallToolResult, InputRequiredResult, Tool, ToolAnnotations
from pydantic import BaseModel, Field, ValidationError

import mltrainer
from mltrainer import handbook
from mltrainer.companions.agents.calls import followed, looked, looked_up
from mltrainer.companions.agents.skill import RULES
from mltrainer.configs.project import load_project
from mltrainer.errors import InputError, MltrainerError, did_you_mean
from mltrainer.phases.planning import planned_config
from mltrainer.reports.values import visible
from mltrainer.validation import Fault, faults_of
from mltrainer.workspace import PHASES, PhaseName, Project, find_project

# No name or value begins with a hyphen, which the command line would take for an option.
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="a run's id, or a phase for its current run")]
Revision = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./~^-]*$", description="a branch, a tag or a commit")]
PageName = Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9_./-]*$", description="a page's path, such as diagnostics/nan_loss")]
ItemName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", description="an item, as the tool gate names it")]
Assignment = Annotated[
    str,
    Field(
        pattern=r"^[a-z][a-z0-9_]*(\.[A-Za-z0-9_]+)*=",
        description="KEY=VALUE, a change of the config by its dotted key, such as optimizer.lr=3e-4",
    ),
]
ACCEPTANCE = "acceptance"  # the key of the config that no agent changes
LOOKS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
TRAINS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
Here = Context[Path, Any]


# --- tools that look ------------------------------------------------------------------------------


def status(ctx: Here) -> dict[str, Any]:
    """Show each phase, its gate, what is stale and why, and what comes next: `next`, or in `next_why` what a person must do."""
    return looked_up(_root(ctx), "status")


def gate(ctx: Here, phase: PhaseName | None = None) -> dict[str, Any]:
    """Recompute the gates, or that of one phase: each item's verdict with its evidence, and in `mend` what to do."""
    return looked_up(_root(ctx), "gate", "check", *([phase] if phase else []))


def runs(ctx: Here, run: RunName | None = None, other: RunName | None = None) -> dict[str, Any]:
    """List all runs; with `run` show that one; with `other`, too, show in what the two differ."""
    if other is not None and run is None:
        raise ToolError("`other` is compared with `run`: give both")
    names = [name for name in (run, other) if name is not None]
    return looked_up(_root(ctx), "runs", ("list", "show", "compare")[len(names)], *names)


def diagnose(ctx: Here, run: RunName | None = None) -> dict[str, Any]:
    """Show findings over a run, by default the newest phase's, with their pages and the config changes to try."""
    return looked_up(_root(ctx), "diagnose", *([run] if run else []))


def report(ctx: Here, against: Revision) -> dict[str, Any]:
    """Show the changes since a branch, a tag or a commit: every verdict, number and rule."""
    return looked_up(_root(ctx), "report", "--against", against)


def guide(ctx: Here, page: PageName | None = None) -> str:
    """Read a page of the handbook, the project's own where it has one; without `page` list them."""
    return looked(_root(ctx), "guide", *([page] if page else []))


# --- what a person decides ------------------------------------------------------------------------


def waive(ctx: Here, phase: PhaseName, item: ItemName) -> str:
    """Always refused: only a person waives an item. The answer is the command for the person to type."""
    raise ToolError(
        f"refused: only a person waives an item, and answers for the reason; if {item} may be waived, a person types: "
        + _typed(_root(ctx), "gate", "waive", phase, item, "--reason", "TEXT")
    )


class Confirmation(BaseModel):
    """The person's answer before a training."""

    train: bool = Field(title="Train", description="Run this phase now.")


def ask(ctx: Here, phase: PhaseName, changes: list[Assignment] | None) -> Elicit[Confirmation]:
    """Return the question before a training; refuse what no person may be asked through an agent.

    Raises:
        ToolError: The client cannot ask, the change is of an acceptance criterion, or there is no sound project.
    """
    root, words = _root(ctx), _words(phase, changes)
    if any(change.partition("=")[0].partition(".")[0] == ACCEPTANCE for change in changes or ()):
        raise ToolError("refused: only a person changes an acceptance criterion, in mltrainer.yaml")
    asked = ctx.client_capabilities.elicitation if ctx.client_capabilities else None
    if asked is None or (asked.form is None and asked.url is not None):
        raise ToolError(
            "refused: this client cannot ask a person (it declares no elicitation of forms), so nothing was trained; a person "
            f"can type: {_typed(root, *words)}"
        )
    try:
        return Elicit(question(find_project(root), words), Confirmation)
    except MltrainerError as error:
        raise ToolError(str(error)) from error


def question(project: Project, words: list[str]) -> str:
    """Return the question to the person: the command, and the criteria by which its result is judged.

    Raises:
        InputError: The project's file, or its plan, is not valid.
    """
    configs = {"mltrainer.yaml": load_project(project.file)}
    if (project.phase_dir("planning") / "training_config.yaml").is_file():
        configs["planned"] = planned_config(project)
    criteria = {name: ", ".join(f"{key} {text}" for key, text in c.acceptance.items()) or "none" for name, c in configs.items()}
    own = handbook.overrides(project.root)
    lines = [
        f"Train? {_typed(project.root, *words)}",
        "It runs the project's own code on this machine.",
        *(f"Acceptance criteria, {name}: {text}" for name, text in criteria.items()),
        *([f"The project's own rules, in place of the handbook's: {', '.join(own)}"] if own else []),
    ]
    return "\n".join(visible(line) for line in lines)


# --- the tool that trains -------------------------------------------------------------------------


async def run(
    ctx: Here,
    phase: PhaseName,
    answer: Annotated[ElicitationResult[Confirmation], Resolve(ask)],
    changes: list[Assignment] | None = None,
) -> dict[str, Any]:
    """Run one phase, after the person at the client has agreed; an interrupted phase goes on where it stopped.

    The gate is checked afterwards; `next` is the next command. An acceptance criterion cannot be among `changes`.
    """
    if not (isinstance(answer, AcceptedElicitation) and answer.data.train):
        raise ToolError("the person did not agree: nothing was trained")
    root, count = _root(ctx), 0

    async def tell(line: str) -> None:
        nonlocal count
        count += 1
        await ctx.report_progress(count, message=line)

    code, lines = await followed(root, _words(phase, changes), tell)
    step = {key: value for key, value in looked_up(root, "status").items() if key.startswith("next")}
    return {"exit_code": code, "output": lines, "gate": looked_up(root, "gate", "check", phase), **step}


def _words(phase: PhaseName, changes: list[Assignment] | None) -> list[str]:
    return ["phase", "run", phase, *(word for change in changes or () for word in ("--set", change))]


def _typed(root: Path, *words: str) -> str:
    return shlex.join(["mltrainer", *words, "--project", str(root)])


def _root(ctx: Here) -> Path:
    return ctx.request_context.lifespan_context


# --- the server -----------------------------------------------------------------------------------


class _Server(MCPServer[Path]):
    """A server whose tools take no argument but their own: by default a misspelt one is dropped, and the tool does more."""

    async def list_tools(self) -> list[Tool]:
        """Return the tools; their schemas name every argument that there is."""
        tools = await super().list_tools()
        return [one.model_copy(update={"input_schema": {**one.input_schema, "additionalProperties": False}}) for one in tools]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Here | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises:
            ToolError: An argument is unknown, with the names that exist, or wrong; or the call failed.
        """
        known = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        if name in known and (unknown := [*arguments.keys() - known[name]]):
            raise ToolError(str(InputError.unknown("argument", unknown[0], known[name], of=f"of the tool {name}")))
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = [_sentence(fault, known[name]) for fault in faults_of(error.__cause__)]
            raise ToolError("; ".join(wrong)) from error.__cause__


def _sentence(fault: Fault, arguments: dict[str, Any]) -> str:
    """Return the fault of an argument, as the command line says it."""
    given = f"found {fault.input!r:.80}"
    if fault.type == "missing":
        return f"{fault.place}: expected a value, found none"
    if fault.type == "literal_error":
        return f"{fault.place}: expected one of {', '.join(PHASES)}, {given}{did_you_mean(str(fault.input), PHASES)}"
    schema = arguments[str(fault.loc[0])]
    forms = [schema, *schema.get("anyOf", ())]  # of an argument that can be left out, the first alternative describes it
    texts = (form.get("description") or form.get("items", {}).get("description") for form in forms)
    return f"{fault.place}: expected {next(filter(None, texts), 'another value')}, {given}"


def server(root: Path) -> MCPServer[Path]:
    """Return the server of a project.

    Args:
        root: The project's folder, or one in which a project will be made.
    """

    @asynccontextmanager
    async def life(_: MCPServer[Path]) -> AsyncIterator[Path]:
        yield root

    rules = handbook.read_page(RULES, None).body
    made = _Server("mltrainer", version=mltrainer.__version__, instructions=rules, lifespan=life, log_level="WARNING")
    for tool in (status, gate, runs, diagnose, report, guide, waive):
        made.tool(annotations=LOOKS)(tool)
    made.tool(annotations=TRAINS)(run)
    for path in handbook.page_paths():
        if path.endswith(".md"):
            name = path.removesuffix(".md")
            read = functools.partial(looked, root, "guide", name)
            made.add_resource(FunctionResource(uri=f"handbook://{name}", name=name, mime_type="text/markdown", fn=read))
    return made


def serve(root: Path) -> None:
    """Answer a client on standard input and output until its input ends."""
    server(root).run("stdio")
