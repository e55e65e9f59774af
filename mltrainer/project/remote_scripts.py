"""What starts a project's phases on a machine that does not see its folder: over SSH, on Modal, by SkyPilot.

The committed project goes there with the data that planning recorded, and the environment is rebuilt from planning's pins; what
comes back are the same records and checkpoints, whose digests are compared here.
"""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from typing import Literal

from mltrainer import __version__
from mltrainer.configs import yaml
from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.phases.planning import planned_config
from mltrainer.project.cluster_scripts import Needs, label_of, needs_of
from mltrainer.records.reading import sound_record
from mltrainer.reproducibility.git import tracks
from mltrainer.workspace import Project

Remote = Literal["ssh", "modal", "skypilot"]
PINS = "phases/01_planning/requirements.txt"
MIB = 1024

# In bash: with the pins that are there already nothing is installed again. On PyPI the name mltrainer is another project's.
ENVIRONMENT = """if ! cmp -s {pins} .venv/.pins; then
  python{python} -m venv .venv
  grep -v '^mltrainer==' {pins} > .venv/others.txt || true  # of one line alone nothing is left
  .venv/bin/pip install --quiet --no-deps --requirement .venv/others.txt
  .venv/bin/pip install --quiet --no-deps "$mltrainer"
  cp {pins} .venv/.pins
fi
"""

SSH = """#!/usr/bin/env bash
# Runs the phases of {name} on another machine over SSH, and brings records and checkpoints back:
#
#   MLTRAINER=ADDRESS bash SCRIPT USER@HOST [FOLDER]
#
# It may be stopped and typed again: the phases go on there, and are followed. MLTRAINER is what pip installs there as mltrainer
# {version}: the address of its repository, or a wheel's path there.
set -euo pipefail
host=${{1:?usage: bash $0 USER@HOST [FOLDER]}} there=${{2:-{label}}}
mltrainer=${{MLTRAINER:?what pip installs there as mltrainer {version}: the address of its repository, or a wheel there}}
there=$(printf %q "$there") mltrainer=$(printf %q "$mltrainer")  # the shell there reads them once more
cd {root}
if [ -n "$(git status --porcelain)" ]; then
  echo "error: there are changes that are not committed, and only commits go there" >&2
  echo "next: git add --all && git commit, then type the same again" >&2
  exit 1
fi

echo "== the project, at $(git rev-parse --short HEAD)"
ssh "$host" "mkdir -p $there"
git bundle create --quiet - HEAD | ssh "$host" "cat > $there/.git-bundle"
ssh "$host" "bash -se -- $there" << 'THERE'
cd "$1"
git init --quiet
git fetch --quiet "$PWD/.git-bundle" HEAD
rm .git-bundle
# Reports that were written there since have come back, or are written again.
[ "$(git rev-parse --quiet --verify HEAD)" = "$(git rev-parse FETCH_HEAD)" ] || git checkout --quiet --force --detach FETCH_HEAD
THERE
{data}
echo "== the environment"
ssh "$host" "bash -se -- $there $mltrainer" << 'THERE'
cd "$1"
mltrainer=$2
{environment}THERE

echo "== {command}"
code=0
ssh "$host" "bash -se -- $there" << 'THERE' || code=$?
cd "$1"
mkdir -p .mltrainer/remote
if ! kill -0 "$(cat .mltrainer/remote/pid 2> /dev/null)" 2> /dev/null; then
  rm -f .mltrainer/remote/code
  : > .mltrainer/remote/log  # there before `tail` looks for it
  setsid nohup bash -c '.venv/bin/{command}; echo $? > .mltrainer/remote/code' > .mltrainer/remote/log 2>&1 < /dev/null &
  echo $! > .mltrainer/remote/pid
fi
tail --lines=+1 --follow --pid="$(cat .mltrainer/remote/pid)" .mltrainer/remote/log
exit "$(cat .mltrainer/remote/code)"
THERE

echo "== records and checkpoints come back"
ssh "$host" "cd $there && tar czf - --exclude=.mltrainer/remote phases .mltrainer" | tar xzf -
{here} checkpoints verify
{here} gate check --files || true  # a gate that does not hold yet is told, and is no fault of the way back
exit "$code"
"""

DATA = """
echo "== the data"
digests={digests}
if ! ssh "$host" "cd $there && sha256sum --check --quiet" <<< "$digests" > /dev/null 2>&1; then
  tar czf - -- {files} | ssh "$host" "tar xzf - -C $there"
  ssh "$host" "cd $there && sha256sum --check --quiet" <<< "$digests"
fi
"""

MODAL = '''"""Runs the phases of {name} on Modal; records and checkpoints lie in the volume {label}.

    MLTRAINER=ADDRESS modal run SCRIPT    # again after an interruption: the same command goes on
    modal volume get {label} phases . && modal volume get {label} .mltrainer .
    mltrainer checkpoints verify && mltrainer gate check --files

Modal reads its keys from MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or from where `modal setup` puts them.
"""

import os
import shutil
from subprocess import run

import modal

PROJECT = {root}
MLTRAINER = os.environ["MLTRAINER"]  # what pip installs there as mltrainer {version}: the address of its repository
PINS = [line for line in open(f"{{PROJECT}}/{pins}") if line[:1] not in "#-\\n" and not line.startswith("mltrainer==")]
INDEXES = [line.split()[1] for line in open(f"{{PROJECT}}/{pins}") if line.startswith("--extra-index-url")]

app = modal.App({label!r})
volume = modal.Volume.from_name({label!r}, create_if_missing=True)
image = (
    modal.Image.debian_slim(python_version={python!r})
    .apt_install("git")
    .pip_install(*map(str.strip, PINS), extra_options=" ".join(["--no-deps", *(f"--extra-index-url {{one}}" for one in INDEXES)]))
    .run_commands(f"pip install --no-deps {{MLTRAINER}}")
    .add_local_dir(PROJECT, "/committed", ignore=[".venv", ".mltrainer"])
)


def commit(folder: str) -> str:
    return run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True).stdout


@app.function(image=image, volumes={{"/project": volume}}, {asked})
def phases() -> int:
    if commit("/project") != commit("/committed"):  # else what an interrupted run left is newer
        shutil.copytree("/committed", "/project", dirs_exist_ok=True)
    try:
        return run({command}, cwd="/project").returncode
    finally:
        volume.commit()


@app.local_entrypoint()
def main() -> None:
    raise SystemExit(phases.remote())
'''

SKYPILOT = """# Runs the phases of {name} by SkyPilot, on the cheapest machine that is enough.
#
#   sky launch -c {label} --env mltrainer=ADDRESS SCRIPT    # what pip installs as mltrainer {version}, such as its repository
#   rsync -a {label}:sky_workdir/phases {label}:sky_workdir/.mltrainer .
#   mltrainer checkpoints verify && mltrainer gate check --files
#   sky down {label}
#
# SkyPilot reads the keys of each cloud from where `sky check` says.
"""


def remote_script(project: Project, place: Remote, phase: str | None = None, gpu: str | None = None) -> str:
    """Return the script by which another machine walks a project's phases, or runs one of them.

    Args:
        project: Planned.
        place: What starts the machine, or reaches it.
        phase: One phase; None: all.
        gpu: The kind of GPU to ask for, as the place calls it.

    Raises:
        InputError: The project has no plan yet, a file of it is not valid, or a GPU is needed and no kind is named.
    """
    config = planned_config(project)
    needs, name = needs_of(project, config), load_project(project.file).name
    if needs.machines > 1:
        what = f"launch.machines: {needs.machines} share a training in a job of SLURM, and this starts one machine"
        raise InputError(what, where="launch.machines", mend="--for slurm, or launch.machines: 1")
    if needs.gpus and gpu is None and place != "ssh":
        raise InputError("the plan trains on a GPU, and there are many kinds", where="--gpu", mend=f"--for {place} --gpu H100")
    parts = {
        "name": name,
        "label": label_of(name),
        "version": __version__,
        "python": _python(project),
        "pins": PINS,
    }
    words = ["mltrainer", "run"] if phase is None else ["mltrainer", "phase", "run", phase]
    if place == "ssh":
        return _ssh(project, parts, words)
    if place == "modal":
        return _modal(project, parts, words, needs, gpu)
    return _skypilot(project, parts, words, needs, gpu)


def _python(project: Project) -> str:
    """Return the version of Python that planning recorded, such as 3.11."""
    record = sound_record(project, "planning")
    assert record is not None, "needs_of has read it"
    return ".".join(str(record.evidence.environment.python.version).split(".")[:2])


def _data(project: Project) -> dict[str, str]:
    """Return the digests of the data's files that git does not have, by their paths from the project.

    Raises:
        InputError: One lies outside the project.
    """
    record = sound_record(project, "planning")
    assert record is not None, "needs_of has read it"
    files = {row.path: row.sha256 for row in record.evidence.data.files}
    if outside := [path for path in files if path.startswith(("/", ".."))]:
        what = f"{outside[0]} lies outside the project's folder, and does not go along"
        raise InputError(what, where="data.source", mend="put it into the project; .gitignore keeps it out of git")
    return {path: sha256 for path, sha256 in files.items() if not tracks(str(project.root), path)}


def _ssh(project: Project, parts: dict[str, str], words: list[str]) -> str:
    files = _data(project)
    digests = shlex.quote("\n".join(f"{sha256}  {path}" for path, sha256 in files.items()))
    data = DATA.format(digests=digests, files=shlex.join(files)) if files else ""
    return SSH.format(
        **parts,
        root=shlex.quote(str(project.root)),
        data=data,
        environment=ENVIRONMENT.format(**parts),
        command=shlex.join(words),
        here=shlex.join([sys.executable, "-m", "mltrainer"]),
    )


def _modal(project: Project, parts: dict[str, str], words: list[str], needs: Needs, gpu: str | None) -> str:
    asked = {
        "cpu": float(needs.cores),
        "memory": needs.memory_mb,
        "timeout": needs.minutes and needs.minutes * 60,
        "gpu": f"{gpu}:{needs.gpus}" if needs.gpus else None,
    }
    listed = ", ".join(f"{key}={json.dumps(value)}" for key, value in asked.items() if value)
    return MODAL.format(**parts, root=json.dumps(str(project.root)), command=json.dumps(words), asked=listed)


def _skypilot(project: Project, parts: dict[str, str], words: list[str], needs: Needs, gpu: str | None) -> str:
    resources = {
        "cpus": f"{needs.cores}+",
        "memory": f"{-(-needs.memory_mb // MIB)}+",
        **({"accelerators": f"{gpu}:{needs.gpus}"} if needs.gpus else {}),
    }
    mounts = {f"~/sky_workdir/{path}": str(project.root / path) for path in _data(project)}
    task = {
        "name": parts["label"],
        "workdir": str(project.root),
        "resources": resources,
        **({"file_mounts": mounts} if mounts else {}),
        "envs": {"mltrainer": None},
    }
    scripts = {"setup": ENVIRONMENT.format(**parts), "run": f".venv/bin/{shlex.join(words)}\n"}
    blocks = [f"{key}: |\n{textwrap.indent(script, '  ')}" for key, script in scripts.items()]
    return SKYPILOT.format(**parts) + yaml.dump(task) + "".join(blocks)
