"""What a cluster is given: it asks for what the plan needs, passes the end on, and is started again after a checkpoint."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from mltrainer.companions.cluster import cluster_scripts
from mltrainer.companions.cluster.cluster_scripts import needs_of, script_for
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.phases.planning import planned_config
from mltrainer.records.planning import Loader
from mltrainer.records.reading import sound_record
from mltrainer.workspace import Project, seal
from tests.projects import PROJECT, kept, write_rings

CONFIG = "phases/01_planning/training_config.yaml"

PROGRAM = """#!/bin/bash
trap 'echo saved >> told; sleep 0.2; exit {code}' TERM
echo "$@" > told
for number in $(seq 100); do sleep 0.05; done
exit 9
"""


@pytest.fixture
def planned(tmp_path: Path) -> Project:
    return kept("0.9/digits", tmp_path / "a project")


def test_a_batch_script_asks_for_what_planning_measured(planned, cli):
    said = cli("launch", "print", "--for", "slurm", "--project", planned.root)
    lines = said.out.splitlines()
    assert (said.code, lines[0]) == (0, "#!/bin/bash")
    asked = {
        line.split("=")[0].split("--")[1]: line.split("=", 1)[1]
        for line in lines
        if line.startswith("#SBATCH --") and "=" in line
    }
    assert (asked["nodes"], asked["ntasks"], asked["cpus-per-task"]) == ("1", "1", "1")
    assert asked["mem"].endswith("M")
    assert int(asked["time"]) > 10
    assert subprocess.run(["bash", "-n"], input=said.out, text=True, check=False).returncode == 0


@pytest.mark.parametrize("place", ["slurm", "jobset", "ssh", "modal", "skypilot"])
@pytest.mark.parametrize("name", ["x\n#SBATCH --wrap=touch ran", "x\rtouch ran", "x\x1b]0;ran\x07", "x\u2028y"])
def test_a_folder_whose_name_would_end_a_line_of_a_script_is_refused(tmp_path, cli, place, name):
    root = kept("0.9/digits", tmp_path / name).root
    said = cli("launch", "print", "--for", place, "--project", root)
    assert (said.code, said.out, "give the folder another name" in said.err) == (1, "", True)


def test_a_percent_sign_in_a_folders_name_is_no_word_of_slurm(tmp_path, cli):
    root = kept("0.9/digits", tmp_path / "50%j").root
    cli("launch", "print", "--for", "slurm", "--project", root, out=f"#SBATCH --output={tmp_path}/50%%j/.mltrainer/slurm-%j.txt")


@pytest.mark.parametrize("place", ["ssh", "modal", "skypilot"])
def test_a_version_in_the_record_that_is_a_command_is_in_no_script(planned, cli, place):
    path = planned.phase_dir("planning") / "record.json"
    record = json.loads(path.read_bytes())
    record["evidence"]["environment"]["python"]["version"] = "3.11; touch ran #"
    path.write_text(json.dumps(seal(record)))
    said = cli("launch", "print", "--for", place, "--project", planned.root)
    assert (said.code, "touch ran" in said.out) == (1, False)


def test_processes_have_their_cores_and_gpus(planned):
    values = {**PROJECT, "accumulate": 4, "threads": 3, "device": "cuda", "loader": {"workers": 2}, "launch": {"processes": 4}}
    needs = needs_of(planned, TrainingConfig.model_validate(values))
    assert (needs.cores, needs.gpus) == (20, 4)


def test_machines_share_processes_cores_and_memory(planned, monkeypatch):
    values = {**PROJECT, "accumulate": 4, "loader": {"workers": 1}, "launch": {"processes": 4}}
    one = TrainingConfig.model_validate(values)
    two = TrainingConfig.model_validate({**values, "launch": {"processes": 4, "machines": 2}})
    assert (needs_of(planned, one).cores, needs_of(planned, two).cores) == (8, 4)
    assert needs_of(planned, two).memory_mb == pytest.approx(needs_of(planned, one).memory_mb / 2, abs=1)
    monkeypatch.setattr(cluster_scripts, "planned_config", lambda _: two)
    lines = script_for(planned, "slurm").splitlines()
    assert {"#SBATCH --nodes=2", "#SBATCH --ntasks=2", "#SBATCH --ntasks-per-node=1"} <= {*lines}
    with pytest.raises(InputError, match="a JobSet is for one machine"):
        script_for(planned, "jobset")


def test_loader_processes_that_planning_found_have_cores(planned, monkeypatch):
    config, record = planned_config(planned), sound_record(planned, "planning")
    assert record is not None
    loader = Loader(workers=3, in_memory=False, rows=[], needed_per_s=1.0, reading_s=1.0)
    evidence = record.evidence.model_copy(update={"loader": loader})
    monkeypatch.setattr(cluster_scripts, "sound_record", lambda *_: record.model_copy(update={"evidence": evidence}))
    assert (config.loader.workers, needs_of(planned, config).cores) == ("auto", 4)


@pytest.mark.parametrize(("code", "again"), [(143, True), (1, False)])
def test_a_batch_script_passes_the_end_on_and_is_queued_again_after_a_checkpoint(planned, tmp_path, monkeypatch, code, again):
    for name, text in {"program": PROGRAM.format(code=code), "scontrol": '#!/bin/bash\necho "$@" > queued\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "program"))
    script = script_for(planned, "slurm", "baseline")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    job = subprocess.Popen(["bash", "-c", script], env=environment)
    told, queued = planned.root / "told", planned.root / "queued"
    while not told.exists() or not told.read_text():
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == code
    assert told.read_text().splitlines() == ["-m mltrainer phase run baseline", "saved"]
    assert (queued.read_text() == "requeue 7\n") if again else not queued.exists()


def test_a_jobset_is_one_job_that_runs_the_phases(planned):
    found = yaml.safe_load(script_for(planned, "jobset"))
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (job,) = found["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["mltrainer", "run"]
    assert container["resources"]["requests"]["cpu"] == 1
    pod = job["template"]["spec"]
    assert pod["template"]["spec"]["restartPolicy"] == "Never"  # without which there is no failure policy
    assert {4, 7} & {*pod["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]} == {4}


def test_a_damaged_record_of_planning_is_no_estimate(planned):
    record = planned.phase_dir("planning") / "record.json"
    record.write_text(record.read_text().replace('"peak_mb": ', '"peak_mb": 1'))
    with pytest.raises(InputError, match="no sound record of planning"):
        script_for(planned, "slurm")


@pytest.mark.parametrize(
    ("name", "label"),
    [("My_Model.v2.", "my-model-v2"), ("x" * 64, "x" * 40), ("a" * 39 + "._b", "a" * 39), ("'7'", "7"), ("'null'", "null")],
)
def test_a_jobset_has_a_name_that_kubernetes_takes(planned, name, label):
    planned.file.write_text(re.sub("^name: .*$", f"name: {name}", planned.file.read_text(), flags=re.MULTILINE))
    assert yaml.safe_load(script_for(planned, "jobset"))["metadata"]["name"] == f"mltrainer-{label}"


def test_what_a_cluster_is_asked_for_needs_a_plan(tmp_path, cli):
    write_rings(tmp_path)
    cli("launch", "print", "--for", "slurm", "--project", tmp_path, code=1, err=f"{CONFIG}: the project is not planned yet")


def test_another_cluster_is_wrong_usage_with_the_nearest_name(tmp_path, cli):
    write_rings(tmp_path)
    cli("launch", "print", "--for", "slrm", "--project", tmp_path, code=2, err="did you mean 'slurm'?")
