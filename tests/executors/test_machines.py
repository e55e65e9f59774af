"""Processes of one training on another machine: started there, told of, and none is left there."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.executors import gang, machines
from mltrainer.executors.executor import EVENTS, Command
from mltrainer.workspace import read_json
from tests.executors.engines import slurm_is_here
from tests.executors.test_gang import ALIVE, WAITS, are_gone, told
from tests.trainers.native.digits_runs import CONFIG, make, train
from tests.trainers.native.test_ranks import SETTING, bits, train_on
from tests.waiting import until

SAYS = "import os, sys; os.write(int(sys.argv[1]), b'\"%d of %d on %d\"\\n' % tuple(int(os.environ[n]) for n in %s))"
NAMES = '("RANK", "WORLD_SIZE", "LOCAL_RANK")'


@pytest.fixture
def two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this machine take the other one's part too: what is started there is started here, without SLURM."""
    monkeypatch.setattr(machines, "other_machines", lambda count: [f"node{number}" for number in range(1, count)])
    monkeypatch.setattr(machines, "way_to", lambda _: [])


def started(folder: Path, code: str, processes: int = 4, life_sign_s: float = 60.0) -> gang.Gang:
    arguments = [sys.executable, "-c", code, EVENTS]
    return gang.start(
        Command(
            arguments=arguments,
            folder=folder,
            environment=dict(os.environ),
            output=folder / "log.txt",
            processes=processes,
            machines=2,
            life_sign_s=life_sign_s,
        )
    )


def there(process: gang.Gang) -> psutil.Process:
    """Return the process of the other machine that watches the others there, once it has started them."""
    (found,) = [one for one in psutil.Process().children() if machines.MODULE in one.cmdline()]
    until(lambda: len(found.children()) == 2)
    return found


@pytest.mark.usefixtures("two_machines")
def test_processes_of_two_machines_end_well_together(tmp_path):
    process = started(tmp_path, SAYS.replace("%s", NAMES))
    assert process.wait(30) == 0
    assert sorted(told(process)) == ["0 of 4 on 0", "1 of 4 on 1", "2 of 4 on 0", "3 of 4 on 1"]
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


@pytest.mark.usefixtures("two_machines")
@pytest.mark.parametrize("place", [0, 1])
def test_a_process_that_is_killed_on_either_machine_is_named_and_ends_the_others(tmp_path, place):
    process = started(tmp_path, WAITS)
    watcher = there(process)
    numbers = [process.children[rank].pid for rank in (0, 1)] + [child.pid for child in watcher.children()]
    os.kill(numbers[2 * place], signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    (error,) = told(process)
    assert error["message"] == f"process {2 * place} of 4 was ended by signal 9 (SIGKILL); the others were ended with it"
    assert are_gone(numbers)


@pytest.mark.usefixtures("two_machines")
def test_a_machine_that_is_lost_is_named_and_what_runs_there_ends(tmp_path):
    process = started(tmp_path, WAITS)
    watcher = there(process)
    numbers = [child.pid for child in watcher.children()]
    watcher.send_signal(signal.SIGSTOP)  # so that it cannot tell of its end
    watcher.kill()
    assert process.wait(30) == -signal.SIGKILL
    (error,) = told(process)
    assert error["message"].startswith("process 2 of 4 was lost with machine node1: its srun ended with exit code -9")
    for number in numbers:  # whom a machine that is gone takes with it
        os.kill(number, signal.SIGKILL)


@pytest.mark.usefixtures("two_machines")
def test_what_runs_on_another_machine_ends_when_this_side_is_gone(tmp_path):
    process = started(tmp_path, WAITS)
    watcher = there(process)
    numbers = [watcher.pid, *(child.pid for child in watcher.children())]
    process.children[2]._link.close_input()
    until(lambda: are_gone(numbers[1:]))
    process.kill()
    process.wait(30)
    process.close()


@pytest.mark.slow
@pytest.mark.usefixtures("two_machines")
def test_the_other_machine_says_that_it_lives(tmp_path):
    process = started(tmp_path, ALIVE)
    there(process)
    process.poll()  # of which the first sign is expected ten seconds later
    until(lambda: process.poll() is None and process._signed[2] <= process._watched_s)
    process.kill()
    assert process.wait(30) is not None
    process.close()


@pytest.mark.slow
@pytest.mark.usefixtures("two_machines")
def test_a_process_that_hangs_on_the_other_machine_is_named_there(tmp_path):
    process = started(tmp_path, f'import os, time\nif os.environ["RANK"] == "3": time.sleep(600)\n{ALIVE}', life_sign_s=6.0)
    assert process.wait(90) == -signal.SIGKILL
    (error,) = told(process)
    assert error["message"].startswith("process 3 of 4 gave no sign of life and used no CPU time for 6 s")


@pytest.mark.slow
@pytest.mark.usefixtures("two_machines")
def test_a_training_over_two_machines_has_the_bits_of_one_process(tmp_path):
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    assert bits(train_on(several, 4, launch={"machines": 2}), several) == bits(train(one, **SETTING), one)
    assert not [*several.glob(".mltrainer/runs/run/.tmp-*")]


def both_nodes_are_here() -> bool:
    """Return True where SLURM has a partition of two nodes, as the services of the tests have."""
    if not slurm_is_here():
        return False
    said = subprocess.run(["sinfo", "--noheader", "--format=%P %D"], capture_output=True, text=True, check=False)
    return "both 2" in said.stdout


JOB = "import sys; from pathlib import Path; from tests.trainers.native.test_ranks import train_on; {train}"
TRAIN = "train_on(Path(sys.argv[1]), 4, launch={'machines': 2})"


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.skipif(not both_nodes_are_here(), reason="no SLURM of two nodes answers here: make test-services")
def test_a_job_of_two_machines_has_the_bits_of_one_process(tmp_path):
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    options = ["--wait", "--partition=both", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--mem=2000"]
    command = shlex.join([sys.executable, "-c", JOB.format(train=TRAIN), str(several)])
    subprocess.run(
        ["sbatch", *options, f"--output={tmp_path}/told.txt", "--wrap", command],
        check=True,
        capture_output=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    result = read_json(several / ".mltrainer/runs/run/result.json")
    assert bits(result, several) == bits(train(one, **SETTING), one)


# --- the machines of a job ------------------------------------------------------------------------


def job_of(monkeypatch: pytest.MonkeyPatch, folder: Path, names: str) -> None:
    """Stand in a job of SLURM of some machines, of which node2 is this one."""
    (folder / "scontrol").write_text(f"#!/bin/sh\nprintf '{names}'\n")
    (folder / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-3]")
    monkeypatch.setenv("SLURMD_NODENAME", "node2")


def test_this_machine_is_the_first_of_a_job(monkeypatch, tmp_path):
    job_of(monkeypatch, tmp_path, "node1\\nnode2\\nnode3\\n")
    assert machines.other_machines(3) == ["node1", "node3"]
    assert machines.other_machines(2) == ["node1"]


def test_too_few_machines_are_refused_with_what_to_type(monkeypatch, tmp_path):
    job_of(monkeypatch, tmp_path, "node2\\n")
    with pytest.raises(InputError, match=r"launch\.machines is 2, and the SLURM job has 1: node2"):
        machines.other_machines(2)
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    with pytest.raises(InputError, match=r"launch\.machines: 2 needs a SLURM job, and this machine is in none") as caught:
        machines.other_machines(2)
    assert "mltrainer launch print --for slurm" in str(caught.value.hint)


def test_a_step_has_the_cores_that_the_job_has_there(monkeypatch):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    assert machines.way_to("node2")[0] == "srun"
    assert {"--nodelist=node2", "--cpus-per-task=4", "--overlap"} <= {*machines.way_to("node2")}


def test_what_is_no_word_of_the_other_side_is_passed_over(tmp_path, monkeypatch):
    hello = [sys.executable, "-c", f"print('Welcome'); print({json.dumps(json.dumps({'code': 3}))})"]
    monkeypatch.setattr(machines, "way_to", lambda _: hello)
    command = Command(arguments=["none"], folder=tmp_path, environment=dict(os.environ), output=tmp_path / "log.txt")
    machine = machines.RemoteMachine("node1", command, [1], signs=1)
    until(lambda: machine.poll() is not None)
    assert (machine.code, machine.fate) == (3, None)
    machine.leave()


@pytest.mark.parametrize(("machines", "processes"), [(3, 4), (8, 4)])
def test_processes_that_machines_cannot_share_equally_are_refused(machines, processes):
    launch = {"processes": processes, "machines": machines}
    with pytest.raises(ValidationError, match=f"{processes} processes cannot be shared equally by {machines} machines"):
        TrainingConfig.model_validate({**CONFIG, "accumulate": 4, "launch": launch})


def test_one_process_needs_no_other_machine():
    config = TrainingConfig.model_validate({**CONFIG, "accumulate": 4, "launch": {"processes": 4, "machines": 2}})
    config.require_processes(1)
    with pytest.raises(InputError, match="shared equally"):
        TrainingConfig.model_validate({**CONFIG, "accumulate": 4, "launch": {"machines": 4}}).require_processes(2)
