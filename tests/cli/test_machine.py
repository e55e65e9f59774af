"""A disk that is full or read-only, a project in use, a killed workflow: exit code, message, what stays, and how it goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltrainer.workspace import Project, is_locked
from tests.cli.conftest import contents, leftovers, start, train_until
from tests.conftest import Said
from tests.projects import results, write_rings
from tests.waiting import until

PLAN = ("phase", "run", "planning", "--set", "epochs=2", "--project")
COMMANDS = {"init": ("init",), "planning": PLAN, "baseline": ("phase", "run", "baseline", "--project")}
FULL, READ_ONLY = "No space left on device", "Read-only file system"


def _mount(*arguments: str | Path) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no disk can be mounted here, which takes root on Linux: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB; a real one, because permissions do not bind root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", folder)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, left: int = 0) -> None:
    """Fill a disk up to some bytes; a training may take the last ones in between."""
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        filler.write(bytes(max(0, shutil.disk_usage(disk).free - left)))


def free(disk: Path) -> None:
    (disk / "filler").unlink()


def project_for(command: str, planned: Path, disk: Path) -> Project:
    """Return what a command needs to find: nothing for `init`, files for planning, a plan for the baseline."""
    if command == "planning":
        return write_rings(disk / "rings")
    return Project(disk / "rings" if command == "init" else Path(shutil.copytree(planned, disk / "rings")))


def failed(said: Said, reason: str, disk: Path) -> bool:
    """Return whether a command told the machine's failure: its reason, a path on the disk, a fix, and no traceback."""
    told = [f"error: {disk}/", reason, "\n  next: ", "type the same command again"]
    return said.code == 7 and all(part in said.err for part in told) and "Traceback" not in said.err


def bits(project: Project) -> list[tuple[str, str]]:
    """Return what each run's training came to."""
    return [(result["weights_sha256"], result["chain"]["head"]) for result in results(project).values()]


@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.slow
def test_on_a_full_disk_a_command_says_so_and_works_once_there_is_space(rings, disk, cli, command):
    project = project_for(command, rings / "planned", disk)
    before = contents(project.root)
    fill(disk)
    said = cli(*COMMANDS[command], project.root)
    assert failed(said, FULL, disk), said
    assert contents(project.root) == before
    free(disk)
    cli(*COMMANDS[command], project.root, code=0)
    assert leftovers(disk) == []


@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.slow
def test_on_a_read_only_disk_a_command_says_so_and_works_once_it_may_write(rings, disk, cli, command):
    project = project_for(command, rings / "planned", disk)
    before = contents(project.root)
    _mount("-o", "remount,ro", disk)
    said = cli(*COMMANDS[command], project.root)
    assert failed(said, READ_ONLY, disk), said
    assert contents(project.root) == before
    _mount("-o", "remount,rw", disk)
    cli(*COMMANDS[command], project.root, code=0)
    assert leftovers(disk) == []


@pytest.mark.parametrize("line", ["status", "gate check planning", "runs list", "runs show baseline", "diagnose baseline"])
def test_commands_that_only_look_work_on_a_read_only_disk(rings, disk, cli, line):
    project = project_for("trained", rings / "trained", disk)
    _mount("-o", "remount,ro", disk)
    cli(*line.split(), "--project", project.root, code=0)


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a tool's own process would have ended
def test_however_little_space_is_left_planning_again_damages_nothing(rings, disk, cli):
    project = project_for("baseline", rings / "planned", disk)
    config = project.phase_dir("planning").relative_to(project.root).as_posix() + "/training_config.yaml"
    before = contents(project.root)
    for left in (4096, 16384, 24576, 32768):
        fill(disk, left)
        said = cli(*PLAN, project.root)
        assert failed(said, FULL, disk), (left, said)
        now = contents(project.root)
        assert {**now, config: before[config]} == before
        free(disk)
    cli(*PLAN, project.root, code=0)
    assert leftovers(disk) == []


@pytest.mark.slow
def test_a_training_whose_disk_fills_goes_on_to_the_same_bits(rings, disk):
    project = project_for("baseline", rings / "planned", disk)
    before = contents(project.root)
    code, said = train_until(project, lambda _: fill(disk))
    assert failed(Said(code, "", said), FULL, disk), said
    assert (contents(project.root), leftovers(disk)) == (before, [])
    free(disk)
    with start(project, "phase", "run", "baseline") as again:
        said = again.communicate()[1]
    assert (again.returncode, leftovers(disk)) == (0, []), said
    assert bits(project) == bits(Project(rings / "trained"))


@pytest.mark.slow
def test_a_second_process_is_told_who_works_on_the_project_and_disturbs_nothing(rings, tmp_path, cli):
    project = Project(Path(shutil.copytree(rings / "planned", tmp_path / "rings")))

    def meddle(first: subprocess.Popen[str]) -> None:
        for command in ("planning", "baseline"):
            cli(*COMMANDS[command], project.root, code=6, err=f"rings is in use by process {first.pid} on ")
        assert '"state": "running"' in cli("runs", "list", "--json", "--project", project.root).out

    code, said = train_until(project, meddle)
    assert code == 0, said
    assert bits(project) == bits(Project(rings / "trained"))


@pytest.mark.slow
def test_when_the_workflow_is_killed_its_tool_saves_and_ends_and_the_same_command_goes_on(rings, tmp_path):
    project = Project(Path(shutil.copytree(rings / "planned", tmp_path / "rings")))
    before = contents(project.root)
    assert train_until(project, subprocess.Popen.kill)[0] == -signal.SIGKILL
    (lock,) = project.runs_dir.glob("*/lock")
    until(lambda: not is_locked(lock), seconds=120)
    assert (contents(project.root), leftovers(project.root)) == (before, [])
    assert [result["state"] for result in results(project).values()] == ["interrupted"]
    code, said = train_until(project, lambda _: None)
    assert code == 0, said
    assert bits(project) == bits(Project(rings / "trained"))


@pytest.mark.slow
def test_a_command_waits_for_the_tool_of_one_that_was_killed_just_before(rings, tmp_path):
    project = Project(Path(shutil.copytree(rings / "planned", tmp_path / "rings")))
    tools: list[int] = []

    def kill(process: subprocess.Popen[str]) -> None:
        (lock,) = project.runs_dir.glob("*/lock")
        tools.append(int(lock.read_text().split()[1]))  # process N on HOST (...)
        os.kill(tools[0], signal.SIGSTOP)  # as slow to end as a step may be
        process.kill()

    train_until(project, kill)
    with start(project, "phase", "run", "baseline") as again:
        assert again.stderr is not None
        said = next(line for line in again.stderr if "waiting for" in line)
        os.kill(tools[0], signal.SIGCONT)
        again.communicate()
    assert "is in use by a process whose command has died: waiting for its end" in said
    assert again.returncode == 0
    assert bits(project) == bits(Project(rings / "trained"))
