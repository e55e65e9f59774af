"""What another machine is given: the committed project and its data go there, and the records come back."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mltrainer.companions.cluster import remote_scripts
from mltrainer.companions.cluster.remote_scripts import PINS, remote_script
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.project import syncing
from mltrainer.records.common import FileRow
from mltrainer.workspace import Project, sha256_bytes
from tests.conftest import commit
from tests.projects import PROJECT, kept, write_rings

# In place of the machine: it keeps what it is told, writes a report, and ends with a code of its own.
PROGRAM = """#!/bin/bash
echo "$@" >> told
sleep {seconds}
mkdir -p phases/02_baseline .mltrainer/runs/{run}
echo trained > phases/02_baseline/baseline_results.md
exit {code}
"""
SSH = '#!/bin/bash\nshift\nexec bash -c "$*"\n'


@pytest.fixture
def planned(tmp_path: Path) -> Project:
    """A planned project of which all is committed."""
    folder = kept("0.9/digits", tmp_path / "a project").root
    shutil.rmtree(folder / ".mltrainer", ignore_errors=True)
    (folder / PINS).write_text("# none\n")
    commit(folder)
    return Project(folder)


SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
CLIENT = shutil.which("ssh")  # before one stands in its place
HAS_SSHD = SSHD is not None and shutil.which("ssh-keygen") is not None and os.geteuid() == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A server of SSH on this machine, with keys of its own; the command that reaches it."""
    for name in ("host", "own"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    Path("/run/sshd").mkdir(exist_ok=True)
    options = {
        "ListenAddress": "127.0.0.1",
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "own.pub",
        "PidFile": "none",
    }
    given = [word for name, value in (options | {"StrictModes": "no"}).items() for word in ("-o", f"{name}={value}")]
    assert SSHD is not None
    with subprocess.Popen([SSHD, "-D", "-e", "-p", port, *given], stderr=subprocess.DEVNULL) as process:
        hosts = f"-o UserKnownHostsFile={tmp_path / 'known'} -o StrictHostKeyChecking=accept-new"
        yield f"{CLIENT} -F none -p {port} -i {tmp_path / 'own'} {hosts} -o LogLevel=ERROR -o BatchMode=yes"
        process.terminate()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of another machine, which `ssh` reaches."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH)
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("MLTRAINER", "/nowhere/mltrainer.whl")
    return tmp_path / "another machine"


def equip(there: Path, pins: str = "# none\n", seconds: float = 0, code: int = 0) -> None:
    """Let a machine have the environment already, with a program in place of mltrainer."""
    (there / ".venv/bin").mkdir(parents=True)
    (there / ".venv/.pins").write_text(pins)
    (there / ".venv/bin/mltrainer").write_text(PROGRAM.format(seconds=seconds, code=code, run="0123456789ab"))
    (there / ".venv/bin/mltrainer").chmod(0o755)


def started(
    project: Project, there: Path, phase: str | None = None, host: str = "me@host", store: str | None = None
) -> subprocess.Popen[str]:
    script = remote_script(project, "ssh", phase, store=store)
    command = ["bash", "-c", script, "there.sh", host, str(there)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a script, and all that it said."""
    with process:
        said, _ = process.communicate(timeout=120)
    return process.returncode, said


@pytest.mark.slow
def test_over_ssh_the_project_goes_there_and_the_records_come_back(planned, machine):
    equip(machine)
    code, said = ended(started(planned, machine, "baseline"))
    assert code == 0, said
    assert (machine / "told").read_text() == "phase run baseline\n"
    assert (machine / "mltrainer.yaml").read_text() == planned.file.read_text()
    assert (planned.root / "phases/02_baseline/baseline_results.md").read_text() == "trained\n"
    assert (planned.root / ".mltrainer/runs/0123456789ab").is_dir()
    assert not (planned.root / ".mltrainer/remote").exists()
    assert "planning: holds" in said or "planning: " in said  # the gates are checked here


@pytest.mark.slow
def test_the_phases_end_is_the_scripts_end(planned, machine):
    equip(machine, code=4)
    code, said = ended(started(planned, machine))
    assert code == 4, said
    assert (planned.root / "phases/02_baseline/baseline_results.md").exists()  # came back all the same


@pytest.mark.slow
def test_a_lost_connection_ends_nothing_and_the_same_command_follows_on(planned, machine):
    equip(machine, seconds=4)
    first = started(planned, machine)
    told = machine / "told"
    while not told.exists():
        assert first.poll() is None
    os.killpg(first.pid, signal.SIGKILL)
    ended(first)
    code, said = ended(started(planned, machine))
    assert code == 0, said
    assert told.read_text() == "run\n"  # once


def test_changes_that_are_not_committed_do_not_go_there(planned, machine):
    equip(machine)
    planned.file.write_text(planned.file.read_text() + "\n")
    code, said = ended(started(planned, machine))
    assert (code, "not committed" in said) == (1, True)
    assert not (machine / "told").exists()


@pytest.mark.slow
def test_a_new_commit_goes_there_though_reports_were_written_meanwhile(planned, machine):
    equip(machine)
    assert ended(started(planned, machine))[0] == 0
    commit(planned.root)
    code, said = ended(started(planned, machine))
    assert code == 0, said
    assert (machine / "told").read_text() == "run\nrun\n"


@pytest.fixture
def with_data(planned: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The same with a file of data that git does not have."""
    (planned.root / "rows.csv").write_text("a,b\n1,2\n")
    (planned.root / ".gitignore").write_text("rows.csv\n.mltrainer/\n")
    commit(planned.root)
    digest = "3b7f9c2c" * 8
    monkeypatch.setattr(remote_scripts, "_data", lambda _: {"rows.csv": digest})
    return planned


def test_of_a_folder_of_data_each_file_goes_along(planned, monkeypatch):
    for name in ("a.png", "b.png"):
        (planned.root / "pictures").mkdir(exist_ok=True)
        (planned.root / "pictures" / name).write_text(name)
    row = FileRow(path="pictures", sha256="0" * 64, size=10)
    monkeypatch.setattr(remote_scripts, "data_rows", lambda _: [row])
    script = remote_script(planned, "ssh")
    for name in ("a.png", "b.png"):
        assert f"{sha256_bytes(name.encode())}  pictures/{name}" in script
    commit(planned.root)
    assert "pictures/" not in remote_script(planned, "ssh")


@pytest.mark.slow
def test_data_goes_along_and_is_compared_by_its_digest(with_data, machine, monkeypatch):
    equip(machine)
    code, said = ended(started(with_data, machine))
    assert code == 1, said  # the digest on record is another one
    assert "rows.csv: FAILED" in said
    assert not (machine / "told").exists()
    found = subprocess.run(["sha256sum", with_data.root / "rows.csv"], capture_output=True, text=True, check=True).stdout[:64]
    monkeypatch.setattr(remote_scripts, "_data", lambda _: {"rows.csv": found})
    code, said = ended(started(with_data, machine))
    assert code == 0, said
    assert (machine / "rows.csv").read_text() == "a,b\n1,2\n"


@pytest.mark.slow
def test_other_pins_are_installed_anew(planned, machine):
    equip(machine, pins="numpy==1\n")
    code, said = ended(started(planned, machine))
    assert (code, "/nowhere/mltrainer.whl" in said) == (1, True), said
    assert not (machine / "told").exists()


@pytest.mark.slow
def test_an_index_is_never_asked_for_mltrainer_itself(planned, machine, monkeypatch):
    (planned.root / PINS).write_text("mltrainer==0.9.0\n")
    commit(planned.root)
    equip(machine, pins="numpy==1\n")
    code, said = ended(started(planned, machine))
    assert (code, "/nowhere/mltrainer.whl" in said) == (1, True), said
    assert (machine / ".venv/others.txt").read_text() == ""
    monkeypatch.delenv("MLTRAINER")
    code, said = ended(started(planned, machine))
    assert (code, "MLTRAINER: what pip installs there" in said) == (1, True), said


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.skipif(not HAS_SSHD, reason="there is no sshd here, or no right to start it: make test-services")
def test_a_server_of_ssh_is_reached_as_a_user_reaches_it(planned, machine, server, tmp_path):
    equip(machine, code=4)
    (tmp_path / "bin/ssh").write_text(f'#!/bin/bash\nexec {server} "$@"\n')
    process = started(planned, machine, host="127.0.0.1")
    code, said = ended(process)
    assert code == 4, said
    assert (machine / "told").read_text() == "run\n"
    assert (planned.root / "phases/02_baseline/baseline_results.md").read_text() == "trained\n"


# --- through an object store ----------------------------------------------------------------------

KEPT = ".mltrainer/runs/0123456789ab/chain.txt"
STORING = """#!/bin/bash
if [ "$1" = store ]; then exec {python} -m mltrainer "$@"; fi
echo "$@ $AWS_SESSION_TOKEN" >> told
if [ -f {kept} ]; then echo went on >> told; exit 4; fi
mkdir -p "$(dirname {kept})"
echo weights > {kept}
sleep {seconds}
"""


def equip_with_store(there: Path, seconds: float) -> None:
    """Let a machine have the environment, with a program that trains until it is killed, or goes on from a checkpoint."""
    equip(there)
    program = STORING.format(python=sys.executable, kept=KEPT, seconds=seconds)
    (there / ".venv/bin/mltrainer").write_text(program)


@pytest.mark.slow
@pytest.mark.long
def test_a_machine_that_is_gone_is_followed_by_another_that_goes_on_from_the_store(with_data, machine, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_scripts, "PUSH_EVERY_S", 0.2)
    monkeypatch.setattr(syncing, "data_rows", lambda _: [])
    store = tmp_path / "store"
    equip_with_store(machine, seconds=100)
    first = started(with_data, machine, store=f"file://{store}")
    while not ((listed := store / "manifest.json").exists() and KEPT in listed.read_text()):
        assert first.poll() is None
        time.sleep(0.1)
    os.killpg(int((machine / ".mltrainer/remote/pid").read_text()), signal.SIGKILL)
    os.killpg(first.pid, signal.SIGKILL)
    ended(first)
    shutil.rmtree(machine)
    another = tmp_path / "a second machine"
    equip_with_store(another, seconds=0)
    code, said = ended(started(with_data, another, store=f"file://{store}"))
    assert (code, (another / "told").read_text().split("\n")[1]) == (4, "went on"), said
    assert (with_data.root / KEPT).read_text() == "weights\n"
    assert not (with_data.root / ".mltrainer/remote").exists()


@pytest.mark.slow
@pytest.mark.long
def test_keys_of_a_store_reach_the_phases_and_stand_in_no_file(planned, machine, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a $key' of\ntwo lines")
    equip_with_store(machine, seconds=0)
    script = remote_script(planned, "ssh", store=f"file://{tmp_path}/store")
    code, said = ended(started(planned, machine, store=f"file://{tmp_path}/store"))
    assert (code, (machine / "told").read_text()) == (0, "run a $key' of\ntwo lines\n"), said
    (machine / "told").unlink()
    files = [path for folder in (machine, planned.root, tmp_path / "store") for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"two lines" in path.read_bytes()]
    assert "two lines" not in script


def test_the_package_of_a_store_is_no_part_of_the_environment(planned):
    script = remote_script(planned, "ssh", store="s3://bucket/digits/")
    assert ".venv/bin/python -m pip install --quiet --upgrade --target .venv/store s3fs" in script
    assert "store push s3://bucket/digits\n" in script
    assert "pip install --quiet --upgrade" not in remote_script(planned, "ssh", store="file:///shared/digits")
    assert "store push" not in remote_script(planned, "ssh")


def test_a_task_of_skypilot_and_an_app_of_modal_copy_from_a_store_and_to_it(with_data):
    task = yaml.safe_load(remote_script(with_data, "skypilot", store="s3://bucket/digits"))
    assert "file_mounts" not in task
    assert "store pull || exit" in task["run"]
    for script in (task["setup"], task["run"]):
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    app = ast.parse(remote_script(with_data, "modal", store="s3://bucket/digits"))
    given = next(node for node in ast.walk(app) if isinstance(node, ast.List) and ast.unparse(node).startswith("['bash', '-c'"))
    assert "store push" in ast.literal_eval(given)[2]
    assert "secrets=[modal.Secret.from_dict(KEYS)]" in ast.unparse(app)
    assert "pip install --quiet --upgrade --target /store s3fs" in ast.unparse(app)


def test_a_store_is_for_what_does_not_see_the_folder_and_has_no_password(planned, cli):
    said = cli("launch", "print", "--for", "slurm", "--store", "s3://bucket/x", "--project", planned.root)
    assert (said.code, "--store belongs to ssh, modal and skypilot" in said.err) == (2, True)
    said = cli("launch", "print", "--for", "ssh", "--store", "s3://me:hunter2hunter2@bucket/x", "--project", planned.root)
    assert (said.code, "the address contains a key, password or token" in said.err) == (1, True)
    assert "hunter2" not in said.err


# --- platforms --------------------------------------------------------------------------------------


def test_a_task_of_skypilot_asks_for_what_planning_measured(planned):
    found = yaml.safe_load(remote_script(planned, "skypilot"))
    assert (found["workdir"], found["resources"]["cpus"]) == (str(planned.root), "1+")
    assert found["run"].strip() == ".venv/bin/mltrainer run"
    assert subprocess.run(["bash", "-n"], input=found["setup"], text=True, check=False).returncode == 0


def test_an_app_of_modal_is_python_that_runs_the_phases(planned):
    text = remote_script(planned, "modal", "baseline")
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert {"phases", "main"} <= names
    assert '["mltrainer", "phase", "run", "baseline"]' in text


def test_a_gpu_is_asked_for_by_its_kind(planned, monkeypatch):
    values = {**PROJECT, "accumulate": 2, "device": "cuda", "launch": {"processes": 2}}
    monkeypatch.setattr(remote_scripts, "planned_config", lambda _: TrainingConfig.model_validate(values))
    places = ("modal", "skypilot")
    for place in places:
        with pytest.raises(InputError, match="whose kind is not given"):
            remote_script(planned, place)
    assert yaml.safe_load(remote_script(planned, "skypilot", gpu="H100"))["resources"]["accelerators"] == "H100:2"
    assert 'gpu="H100:2"' in remote_script(planned, "modal", gpu="H100")
    assert "nvidia" not in remote_script(planned, "ssh")


def test_several_machines_are_refused(planned, monkeypatch):
    values = {**PROJECT, "accumulate": 2, "launch": {"processes": 2, "machines": 2}}
    monkeypatch.setattr(remote_scripts, "planned_config", lambda _: TrainingConfig.model_validate(values))
    with pytest.raises(InputError, match="this starts one machine"):
        remote_script(planned, "ssh")


def test_a_kind_of_gpu_belongs_to_what_is_rented(planned, cli):
    said = cli("launch", "print", "--for", "ssh", "--gpu", "H100", "--project", planned.root)
    assert (said.code, "--gpu belongs to modal and skypilot" in said.err) == (2, True)


def test_keys_are_placeholders_that_name_project_and_environment(tmp_path, cli):
    write_rings(tmp_path)
    said = cli("launch", "keys", "--env", "production", "--project", tmp_path)
    given = re.findall(r"(?m)^(\w+)=(.*)$", said.out)
    of_store = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    assert [name for name, _ in given] == ["MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", *of_store, "LAMBDA_API_KEY", "RUNPOD_API_KEY"]
    assert {value for _, value in given} == {"rings_production_your_key_here"}
    assert subprocess.run(["bash", "-c", textwrap.dedent(said.out)], check=False).returncode == 0
