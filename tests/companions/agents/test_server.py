"""`mltrainer mcp`, asked by the official client: what looks runs nothing, what trains asks, what a person decides is refused."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

anyio = pytest.importorskip("anyio", reason="pip install 'mltrainer[agents]'")
mcp = pytest.importorskip("mcp", reason="pip install 'mltrainer[agents]'")

from mcp import Client, StdioServerParameters  # noqa: E402
from mcp_types import CallToolResult, ElicitResult  # noqa: E402

from mltrainer.companions.agents.server import server  # noqa: E402
from mltrainer.project.start import make_project  # noqa: E402
from mltrainer.workspace import LOCK_FILE, PHASES, STATE_DIR, locked  # noqa: E402

LOOKING = {"status", "gate", "runs", "diagnose", "report", "guide", "waive"}
MODES = ("legacy", "auto")  # the handshake of 2025, and the protocol of 2026
Talk = Callable[[Client], Awaitable[Any]]


class Person:
    """The person at the client: gives one answer to each question, and remembers the questions."""

    def __init__(self, action: str, train: bool = True) -> None:
        self.action, self.train, self.asked = action, train, []

    async def __call__(self, _context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action=self.action, content={"train": self.train} if self.action == "accept" else None)


def talked(root: Path, talk: Talk, person: Person | None = None, mode: str = "auto", over_stdio: bool = False) -> Any:
    """Return what a conversation with the server of a project returns; the server is in this process, or one of its own."""
    words = ["-P", "-m", "mltrainer", "mcp", "--project", str(root)]
    command = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))

    async def conversation() -> Any:
        async with Client(command if over_stdio else server(root), elicitation_callback=person, mode=mode) as client:
            return await talk(client)

    return anyio.run(conversation)


def called(root: Path, tool: str, person: Person | None = None, mode: str = "auto", **arguments: Any) -> CallToolResult:
    async def talk(client: Client) -> CallToolResult:
        return await client.call_tool(tool, arguments)

    return talked(root, talk, person, mode)


def text(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content)


def files(root: Path) -> dict[str, int]:
    """Return when each file was written; without the cache of digests, which every command that looks may fill."""
    found = {path.relative_to(root).as_posix(): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    return {name: time for name, time in found.items() if not name.startswith(".mltrainer/cache/")}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which nothing was run; no test here changes it."""
    root = tmp_path_factory.mktemp("agents") / "fresh"
    make_project(root, "digits", None, None)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_client_lists_the_tools_and_reads_the_handbook(fresh, mode):
    async def talk(client: Client) -> Any:
        page = await client.read_resource("handbook://diagnostics/nan_loss")
        return (await client.list_tools()).tools, (await client.list_resources()).resources, page.contents[0].text

    tools, pages, page = talked(fresh, talk, mode=mode, over_stdio=True)
    looks = {tool.name: tool.annotations.read_only_hint for tool in tools}
    assert looks == {**dict.fromkeys(LOOKING, True), "run": False}
    assert "handbook://phases/02_baseline/workflow" in {str(found.uri) for found in pages}
    assert page.startswith("# NaN loss")


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        ("runs", {"rum": "baseline"}, "there is no argument 'rum' of the tool runs; did you mean 'run'?"),
        ("gate", {"item": "x"}, "there is no argument 'item' of the tool gate; there is only phase"),
        ("status", {"project": "/"}, "there is no argument 'project' of the tool status; there are none"),
        ("run", {"phase": "planning", "answer": {"train": True}}, "'answer' of the tool run; there are phase, changes"),
    ],
)
def test_an_argument_that_no_tool_has_is_refused_with_the_names_that_exist(fresh, tool, given, message):
    result = called(fresh, tool, Person("accept"), **given)
    assert (result.is_error, message in text(result)) == (True, True), text(result)
    assert not (fresh / "phases/01_planning/record.json").exists()


def test_each_tools_schema_says_that_it_takes_no_other_argument(fresh):
    async def talk(client: Client) -> Any:
        return (await client.list_tools()).tools

    assert {tool.input_schema["additionalProperties"] for tool in talked(fresh, talk)} == {False}


@pytest.mark.slow
def test_tools_that_look_say_what_the_commands_say_and_change_nothing(digits, cli):
    before = files(digits.root)

    async def talk(client: Client) -> list[CallToolResult]:
        asked = [("status", {}), ("gate", {"phase": "baseline"}), ("runs", {}), ("runs", {"run": "baseline"})]
        asked += [("runs", {"run": "baseline", "other": "finalization"}), ("diagnose", {"run": "baseline"})]
        asked += [("report", {"against": "HEAD"}), ("guide", {"page": "phases/agents"})]
        return [await client.call_tool(name, arguments) for name, arguments in asked]

    state, gate, listed, one, compared, diagnosed, _, page = talked(digits.root, talk, over_stdio=True)
    assert state.structured_content == cli("status", "--json", "--project", digits.root).json
    assert gate.structured_content["holds"]
    assert one.structured_content in listed.structured_content["runs"]
    assert compared.structured_content["differences"]
    assert diagnosed.structured_content["diagnostics"]
    assert "# Rules for an agent" in text(page)
    assert files(digits.root) == before


@pytest.mark.slow
def test_tools_that_look_run_nothing_of_the_project(digits):
    """A task of one's own, and files named as modules that the commands import, leave a mark where they are executed."""
    mark = digits.root / "executed"
    names = ("digits", "task", "json", "typer", "mltrainer", "sitecustomize", "conftest")
    for name in names:
        (digits.root / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    own = digits.file.read_text().replace("task:", 'task:\n  use: "task:Own"', 1)
    digits.file.write_text(own)

    async def talk(client: Client) -> None:
        for name in ("status", "gate", "runs", "diagnose", "guide"):
            await client.call_tool(name, {})
        await client.call_tool("report", {"against": "HEAD"})

    talked(digits.root, talk, over_stdio=True)
    assert not mark.exists()
    subprocess.run([sys.executable, "task.py"], cwd=digits.root, check=True)
    assert mark.exists(), "executed, the file leaves its mark"


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("runs", {"run": "--help"}, "run: expected a run's id, or a phase for its current run, found '--help'"),
        ("diagnose", {"run": "-v"}, "run: expected a run's id, or a phase for its current run, found '-v'"),
        ("report", {"against": "--out=AGENTS.md"}, "against: expected a branch, a tag or a commit, found '--out=AGENTS.md'"),
        ("guide", {"page": "--copy"}, "page: expected a page's path, such as diagnostics/nan_loss, found '--copy'"),
        ("gate", {"phase": "--files"}, f"phase: expected one of {', '.join(PHASES)}, found '--files'"),
        ("gate", {"phase": "basline"}, f"expected one of {', '.join(PHASES)}, found 'basline'; did you mean 'baseline'?"),
        (
            "waive",
            {"phase": "baseline", "item": "--reason"},
            "item: expected an item, as the tool gate names it, found '--reason'",
        ),
        ("waive", {"phase": "baseline"}, "item: expected a value, found none"),
        ("run", {"phase": "deployment"}, f"phase: expected one of {', '.join(PHASES)}, found 'deployment'"),
        ("run", {"phase": "planning", "changes": ["--template=x"]}, "such as optimizer.lr=3e-4, found '--template=x'"),
    ],
)
def test_an_argument_that_could_be_an_option_is_refused(fresh, tool, arguments, told):
    before, person = files(fresh), Person("accept")
    said = called(fresh, tool, person, **arguments)
    assert said.is_error
    assert (told in text(said), "pydantic" in text(said)) == (True, False), text(said)
    assert (files(fresh), person.asked) == (before, [])


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_cannot_ask_is_refused_with_the_command_for_a_person(fresh, mode):
    before = files(fresh)
    said = called(fresh, "run", mode=mode, phase="planning", changes=["epochs=2"])
    assert said.is_error
    assert f"mltrainer phase run planning --set epochs=2 --project {fresh}" in text(said)
    assert files(fresh) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("action", "train"), [("decline", True), ("cancel", True), ("accept", False)])
def test_a_person_who_does_not_agree_trains_nothing(fresh, mode, action, train):
    before, person = files(fresh), Person(action, train)
    said = called(fresh, "run", person, mode, phase="planning")
    assert said.is_error
    assert "nothing was trained" in text(said)
    assert files(fresh) == before
    assert len(person.asked) == 1


def test_the_question_says_the_criteria_and_the_projects_own_rules(digits):
    (digits.file).write_text(digits.file.read_text().replace(">= 0.95", ">= 0.1"))
    shutil.copy(Path("phases/02_baseline/workflow.md"), digits.root / "phases/02_baseline/workflow.md")
    person = Person("decline")
    called(digits.root, "run", person, phase="baseline")
    (question,) = person.asked
    assert "mltrainer phase run baseline" in question
    assert "mltrainer.yaml: accuracy >= 0.1" in question
    assert "planned: accuracy >= 0.95" in question
    assert "phases/02_baseline/workflow.md" in question


@pytest.mark.parametrize("change", ['acceptance.accuracy=">= 0.1"', "acceptance={}"])
def test_an_acceptance_criterion_is_no_agents_to_change(fresh, change):
    before, person = files(fresh), Person("accept")
    said = called(fresh, "run", person, phase="planning", changes=["epochs=2", change])
    assert "only a person changes an acceptance criterion" in text(said)
    assert (files(fresh), person.asked) == (before, [])


def test_a_waiver_is_refused_with_the_command_for_a_person(fresh):
    before, person = files(fresh), Person("accept")
    said = called(fresh, "waive", person, phase="baseline", item="within_time_budget")
    assert said.is_error
    assert "only a person waives" in text(said)
    assert "mltrainer gate waive baseline within_time_budget --reason TEXT" in text(said)
    assert (files(fresh), person.asked) == (before, [])


def test_what_a_command_refuses_is_an_error_with_the_next_step(fresh):
    said = called(fresh, "diagnose")
    assert said.is_error
    assert "the project has no run yet\n  next: mltrainer run" in text(said)


@pytest.mark.slow
def test_outside_a_project_the_handbook_is_read_and_the_rest_says_what_to_do(tmp_path):
    assert "mltrainer init" in text(called(tmp_path, "status"))
    assert "# NaN loss" in text(called(tmp_path, "guide", page="diagnostics/nan_loss"))
    assert "mltrainer init" in text(called(tmp_path, "run", Person("accept"), phase="planning"))


def test_a_mistyped_folder_is_refused_before_anything_is_served(tmp_path, cli):
    cli("mcp", "--project", tmp_path / "nowhere", code=1, err="nowhere: no such folder")


@pytest.mark.slow
def test_the_server_does_not_import_torch():
    code = "import sys, mltrainer.companions.agents.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_the_package_the_command_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "mltrainer.companions.agents.server")
    monkeypatch.delitem(sys.modules, "mltrainer.companions.agents.calls")
    cli("mcp", code=1, err="pip install 'mltrainer[agents]'")


@pytest.mark.slow
def test_a_training_ends_with_the_client_that_asked_for_it(tmp_path, cli):
    root = tmp_path / "left"
    cli("init", root, "--example", "digits", code=0)
    began = anyio.Event()

    async def tell(*_: object) -> None:
        began.set()

    async def talk(client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("run", {"phase": "planning"}, progress_callback=tell))
            await began.wait()
            group.cancel_scope.cancel()

    talked(root, talk, Person("accept"), over_stdio=True)
    late = time.monotonic() + 30
    with locked(root / STATE_DIR / LOCK_FILE, "the project", lambda: time.monotonic() < late):
        assert not (root / "phases/01_planning/record.json").exists()


@pytest.mark.slow
def test_from_a_table_to_five_gates_without_a_person_but_for_confirmations(tmp_path, cli):
    draw = random.Random(7)
    rows = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(400)]
    table = tmp_path / "t.csv"
    table.write_text(
        "a,b,label\n" + "".join(f"{a:.4f},{b:.4f},{'yes' if a + b + draw.gauss(0, 0.5) > 0 else 'no'}\n" for a, b in rows)
    )
    root = tmp_path / "t"
    cli("init", root, "--data", table, "--target", "label", code=0)
    (root / "mltrainer.yaml").write_text((root / "mltrainer.yaml").read_text() + '\nacceptance: {accuracy: ">= 0.6"}\n')
    person, progress = Person("accept"), []

    async def tell(_done: float, _total: float | None, message: str | None) -> None:
        progress.append(message)

    async def talk(client: Client) -> dict[str, Any]:
        changes: dict[str, Any] = {"changes": ["epochs=8"]}
        while (state := (await client.call_tool("status", {})).structured_content)["next_phase"]:
            ran = await client.call_tool("run", {"phase": state["next_phase"], **changes}, progress_callback=tell)
            assert ran.structured_content["gate"]["holds"], ran.structured_content
            changes = {}
        return (await client.call_tool("gate", {})).structured_content

    gates = talked(root, talk, person, over_stdio=True)
    assert [phase["name"] for phase in gates["phases"]] == ["planning", "baseline", "diagnostics", "optimization", "finalization"]
    assert gates["holds"]
    assert len(person.asked) == 5
    assert any(line.startswith("probing") for line in progress)
