"""Scripts with which a cluster runs a project's phases: a batch script of SLURM, or for one machine a JobSet of Kubernetes.

mltrainer starts the processes of a training itself, so that the cluster starts one command. SIGTERM announces the end, on
which a checkpoint is saved; the same command continues from it, there or elsewhere, with the same bits.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from dataclasses import dataclass

from mltrainer.companions.cluster.slurm import verbatim
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.errors import InputError
from mltrainer.phases.planning import planned_config
from mltrainer.records.reading import sound_record
from mltrainer.workspace import Project

CLUSTERS = ("slurm", "jobset")
GRACE_S = 120  # between SIGTERM and the end: time for the current step and a checkpoint
MEMORY_MARGIN = 1.5  # factor on planning's estimate, which glibc's heap may exceed
MOST_LABEL = 40  # characters; a label has 63, of which the names of a JobSet's pods take some
TIME_MARGIN = 2  # factor on planning's estimate for one training: finalization trains twice

SLURM = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={machines}
#SBATCH --ntasks={machines}
#SBATCH --cpus-per-task={cores}
{asked}#SBATCH --signal=B:TERM@{grace}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={output}

# SLURM sends SIGTERM to this shell {grace} s before the time is over, and before a preemption where the cluster's
# PreemptParameters have send_user_signal: mltrainer then saves a checkpoint and exits with 143, and the job waits for its
# next turn, in which the same command goes on.
cd {folder}
stopped=
trap 'stopped=yes; kill -TERM "$child"' TERM
{command} &
child=$!
if [ -n "$stopped" ]; then kill -TERM "$child"; fi  # it came before there was anything to stop
wait "$child"; code=$?
if [ -n "$stopped" ]; then wait "$child"; code=$?; fi  # the first wait ended with the signal
if [ "$code" -eq 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
"""

JOBSET = """# mltrainer on one machine of a Kubernetes cluster with JobSet (https://jobset.sigs.k8s.io).
# The image holds mltrainer and what the project imports; the volume holds the project's folder, with its data.
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
spec:
  failurePolicy: {{maxRestarts: 0}}
  replicatedJobs:
    - name: phases
      replicas: 1
      template:
        spec:
          parallelism: 1
          completions: 1
          # A pod that is evicted is started again, and goes on from its checkpoint; one that is killed, as often as the
          # config's launch.restarts. Not one that ends by itself: a wrong input, or a gate that does not hold, is for a person.
          backoffLimit: {restarts}
          podFailurePolicy:
            rules:
              - action: Ignore
                onPodConditions: [{{type: DisruptionTarget}}]
              - action: FailJob
                onExitCodes: {{operator: In, values: [1, 2, 3, 4, 5, 6]}}
          template:
            spec:
              restartPolicy: Never
              terminationGracePeriodSeconds: {grace}
              containers:
                - name: mltrainer
                  image: {name}_image
                  workingDir: /project
                  command: {command}
                  resources: {{requests: {resources}, limits: {resources}}}
                  volumeMounts: [{{name: project, mountPath: /project}}]
              volumes:
                - name: project
                  persistentVolumeClaim: {{claimName: {name}-project}}
"""


@dataclass(frozen=True)
class Needs:
    """A training's needs of each machine.

    Attributes:
        cores: Number of cores for the threads of its processes and loader processes; `auto` loaders count as planned.
        gpus: Number of GPUs, one for each process; 0 on CPUs.
        memory_mb: Memory of its processes by planning's estimate, with a margin, in MiB.
        minutes: Time by planning's estimate, with a margin; None without an estimate.
        machines: Number of machines.
    """

    cores: int
    gpus: int
    memory_mb: int
    minutes: int | None
    machines: int = 1


def script_for(project: Project, cluster: str, phase: str | None = None) -> str:
    """Return the script with which a cluster runs all phases of a project, or one of them.

    Raises:
        InputError: The project has no plan yet, or a file of it is not valid.
    """
    config = planned_config(project)
    needs, name = needs_of(project, config), label_of(load_project(project.file).name)
    arguments = ["run"] if phase is None else ["phase", "run", phase]
    if cluster == "jobset":
        if needs.machines > 1:  # there is no srun that reaches the others
            what = f"launch.machines: {needs.machines} share a training in a job of SLURM, and a JobSet is for one machine"
            raise InputError(what, where="launch.machines", hint="--for slurm, or launch.machines: 1")
        return _jobset(name, needs, ["mltrainer", *arguments], config.launch.restarts)
    return _slurm(project, name, needs, [sys.executable, "-m", "mltrainer", *arguments])


def needs_of(project: Project, config: TrainingConfig) -> Needs:
    """Return the needs of a planned config, as planning measured them.

    Raises:
        InputError: Planning's record is missing or damaged; or a newline or the like in the folder's name would end a line of
            a script.
    """
    if not str(project.root).isprintable():
        what = f"a script names the project's folder, in which a character cannot be printed: {str(project.root)!r}"
        raise InputError(what, hint="give the folder another name")
    machines = config.launch.machines if config.processes > 1 else 1
    processes = config.processes // machines
    record = sound_record(project, "planning")
    if record is None:
        what = "there is no sound record of planning, which measures memory and time"
        raise InputError(what, where=project.relative(project.phase_dir("planning")), hint="mltrainer phase run planning")
    estimate, loader = record.evidence.estimate, record.evidence.loader
    planned_config = config.with_workers(loader.workers) if loader is not None else config
    return Needs(
        cores=processes * (config.threads + planned_config.loader.processes),
        gpus=processes if config.device == "cuda" else 0,
        memory_mb=math.ceil(MEMORY_MARGIN * estimate.peak_mb / machines),
        minutes=None if estimate.minutes is None else math.ceil(TIME_MARGIN * estimate.minutes) + 10,
        machines=machines,
    )


def label_of(name: str) -> str:
    """Return a name for a project's job as Kubernetes takes one: letters, digits, hyphens, the first a letter (RFC 1035)."""
    return f"mltrainer-{re.sub('[^a-z0-9]+', '-', name.lower())[:MOST_LABEL].strip('-')}"


def _slurm(project: Project, name: str, needs: Needs, command: list[str]) -> str:
    options = {
        "ntasks-per-node": 1 if needs.machines > 1 else None,
        "gpus-per-node": needs.gpus or None,
        "mem": f"{needs.memory_mb}M",
        "time": needs.minutes,
    }
    asked = "".join(f"#SBATCH --{key}={value}\n" for key, value in options.items() if value)
    return SLURM.format(
        name=name,
        machines=needs.machines,
        cores=needs.cores,
        asked=asked,
        grace=GRACE_S,
        output=shlex.quote(f"{verbatim(project.root)}/.mltrainer/slurm-%j.txt"),
        folder=shlex.quote(str(project.root)),
        command=shlex.join(command),
    )


def _jobset(name: str, needs: Needs, command: list[str], restarts: int) -> str:
    resources = {"cpu": needs.cores, "memory": f"{needs.memory_mb}Mi", "nvidia.com/gpu": needs.gpus or None}
    asked = json.dumps({key: value for key, value in resources.items() if value})
    return JOBSET.format(name=name, grace=GRACE_S, command=json.dumps(command), resources=asked, restarts=restarts)
