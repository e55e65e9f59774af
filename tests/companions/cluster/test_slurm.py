"""SLURM by its three commands: what they are asked, what their answers mean, and what they say when the cluster is away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mltrainer.companions.cluster.slurm import Slurm, sighting
from mltrainer.errors import InputError
from mltrainer.executors.executor import EngineAwayError, RemoteCommand, Sighting
from tests.refusals import refused


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of answers: for each command a script, which also keeps what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def answer(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/{name}.asked\n{script}\n')
    (folder / name).chmod(0o755)


def command(tmp_path: Path) -> RemoteCommand:
    return RemoteCommand(
        name="mltrainer-abc",
        arguments=["/usr/bin/python3", "-P", "a b"],
        folder=tmp_path,
        environment={**os.environ, "PYTHONHASHSEED": "0"},
        log=tmp_path / "100%/log.txt",
        cores=3,
        gpus=1,
    )


def test_a_job_asks_for_what_the_run_needs_and_what_the_config_says(says, tmp_path):
    answer(says, "sbatch", f"cat > {says}/script; echo '12;cluster'")
    assert Slurm({"partition": "gpu", "cpus-per-task": 5}).begin(command(tmp_path)) == "12"
    asked = (says / "sbatch.asked").read_text().splitlines()
    assert {"--partition=gpu", "--cpus-per-task=5", "--gpus-per-node=1", "--no-requeue", "--export=ALL"} <= {*asked}
    assert f"--output={tmp_path}/100%%/log.txt" in asked
    assert "exec /usr/bin/python3 -P 'a b'" in (says / "script").read_text()


def test_a_refused_job_is_a_wrong_setting_with_slurms_words(says, tmp_path):
    answer(says, "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1")
    with refused("Invalid partition name specified", where="launch.slurm", hint="--partition=none"):
        Slurm({"partition": "none"}).begin(command(tmp_path))


@pytest.mark.parametrize(
    "words",
    [
        "Unable to contact slurm controller (connect failure)",
        "Batch job submission failed: Socket timed out on send/recv operation",
        "Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "Batch job submission failed: Resource temporarily unavailable",
        "If munged is up, restart with --num-threads=10",
    ],
)
def test_a_controller_that_is_away_is_no_fault_of_the_job(says, tmp_path, words):
    for name in ("sbatch", "squeue"):
        answer(says, name, f"echo '{name}: error: {words}' >&2; exit 1")
    with pytest.raises(EngineAwayError):
        Slurm({}).begin(command(tmp_path))
    with pytest.raises(EngineAwayError):
        Slurm({}).look()


def test_a_machine_without_slurm_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sbatch is not here"):
        Slurm({}).begin(command(tmp_path))


def test_the_queue_is_asked_once_for_all_jobs_and_for_those_that_have_ended(says):
    answer(says, "squeue", "printf '7|PENDING||Resources\\n8|RUNNING|n1|None\\n9|NODE_FAIL|n2|None\\n'")
    assert Slurm({}).look() == {
        "7": Sighting("waiting", "Resources", ""),
        "8": Sighting("running", "", "n1"),
        "9": Sighting("lost", "its machine failed", "n2"),
    }
    asked = (says / "squeue.asked").read_text().splitlines()
    assert "--states=all" in asked


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ("SUSPENDED", "waiting"),
        ("COMPLETING", "running"),
        ("COMPLETED", "ended"),
        ("FAILED", "failed"),
        ("OUT_OF_MEMORY", "died"),
        *(
            (state, "lost")
            for state in ("NODE_FAIL", "PREEMPTED", "TIMEOUT", "CANCELLED", "BOOT_FAIL", "REVOKED", "SOMETHING_NEW")
        ),
    ],
)
def test_only_what_the_job_did_itself_is_no_loss(state, found):
    assert sighting(state, "n1", "None").state == found


def test_jobs_are_cancelled_by_their_ids_and_at_the_end_by_their_name(says, tmp_path):
    answer(says, "sbatch", "cat > /dev/null; echo 12")
    answer(says, "scancel", "")
    slurm = Slurm({})
    slurm.cancel([])
    slurm.close()
    assert not (says / "scancel.asked").exists()
    slurm.cancel(["12", "13"])
    assert (says / "scancel.asked").read_text().split() == ["--quiet", "12", "13"]
    slurm.begin(command(tmp_path))
    slurm.close()
    assert "--name=mltrainer-" in (says / "scancel.asked").read_text()
