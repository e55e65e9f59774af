"""Scripts that start a project's phases on a machine without its folder: over SSH, on Modal, by SkyPilot.

The committed project goes there with the data that planning recorded, and the environment is rebuilt from planning's pins; what
comes back are the same records and checkpoints, whose digests are compared here. With an object store, data, checkpoints and
records go there and back through that, and a lost machine loses only the work since the last push.
"""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from dataclasses import dataclass

from mltrainer import __version__
from mltrainer.companions.cluster.cluster_scripts import Needs, label_of, needs_of
from mltrainer.configs import yaml
from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.phases.planning import planned_config
from mltrainer.project.object_store import check_address
from mltrainer.project.stored_files import data_rows, files_of_row
from mltrainer.records.reading import sound_record
from mltrainer.reproducibility.git import tracked
from mltrainer.tasks.stored.stores import backend_of
from mltrainer.workspace import Project, sha256_file, tree_of

REMOTES = ("ssh", "modal", "skypilot")
PINS = "phases/01_planning/requirements.txt"
MIB = 1024
PUSH_EVERY_S = 600  # most work that a machine can lose, beside the length of a push

# --- templates ------------------------------------------------------------------------------------

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
{before}
echo "== the environment"
ssh "$host" "bash -se -- $there $mltrainer" << 'THERE'
cd "$1"
mltrainer=$2
{environment}THERE

echo "== {command}"
code=0
{start}
cd "$1"
mkdir -p .mltrainer/remote
if ! kill -0 "$(cat .mltrainer/remote/pid 2> /dev/null)" 2> /dev/null; then
  rm -f .mltrainer/remote/code
  : > .mltrainer/remote/log  # there before `tail` looks for it
  setsid nohup bash -c {job} > .mltrainer/remote/log 2>&1 < /dev/null &
  echo $! > .mltrainer/remote/pid
fi
tail --lines=+1 --follow --pid="$(cat .mltrainer/remote/pid)" .mltrainer/remote/log
exit "$(cat .mltrainer/remote/code)"
THERE

echo "== records and checkpoints come back"
{back}
{here} checkpoints verify
{here} gate check --files || true  # a gate that does not hold yet is shown; undoing does not fail for it
exit "$code"
"""

START = """ssh "$host" "bash -se -- $there" << 'THERE' || code=$?"""
START_WITH_KEYS = """{ keys; cat; } << 'THERE' | ssh "$host" "bash -se -- $there" || code=$?"""
BACK = 'ssh "$host" "cd $there && tar czf - --exclude=.mltrainer/remote phases .mltrainer" | tar xzf -'

# In bash, what runs a command with an object store. A signal ends the wait, and not yet the command: that saves a checkpoint
# first, which the last push takes along.
STORED = """store() {{ PYTHONPATH={packages} {program} store "$1" {store}; }}
store pull || exit
while sleep {every_s} > /dev/null 2>&1; do store push; done &
pushes=$!
trap 'kill -TERM "$phases"' TERM
{program} {command} &
phases=$!
wait "$phases"; code=$?
while kill -0 "$phases" 2> /dev/null; do wait "$phases"; code=$?; done
kill "$pushes"
store push || [ "$code" -ne 0 ] || code=1
exit "$code"
"""

# What reaches the store is beside the environment that planning pinned, and is no part of it.
PACKAGE = """PYTHONPATH={packages} {python} -c 'import {package}' 2> /dev/null ||
  {python} -m pip install --quiet --upgrade --target {packages} {package}
"""

# In bash: the keys go through the connection into the environment of the phases, and into no file.
KEYS = """
keys() {
  for name in $(compgen -e | grep -E '^(AWS|AZURE_STORAGE|FSSPEC)_'); do printf 'export %s=%q\\n' "$name" "${!name}"; done
}
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

{first}    MLTRAINER=ADDRESS modal run SCRIPT    # again after an interruption: the same command goes on
    {back}
    mltrainer checkpoints verify && mltrainer gate check --files

Modal reads its keys from MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or from where `modal setup` puts them.
"""

import os
import shutil
from subprocess import run

import modal

PROJECT = {root}
# In the container this file is read once more, where neither the variable nor the folder is.
MLTRAINER = os.environ["MLTRAINER"] if modal.is_local() else ""  # what pip installs there as mltrainer {version}: its repository
LINES = open(f"{{PROJECT}}/{pins}").readlines() if modal.is_local() else []
PINS = [line.strip() for line in LINES if line[:1] not in "#-\\n" and not line.startswith("mltrainer==")]
INDEXES = [line.split()[1] for line in LINES if line.startswith("--extra-index-url")]
{keys}
app = modal.App({label!r})
volume = modal.Volume.from_name({label!r}, create_if_missing=True)
image = (
    modal.Image.debian_slim(python_version={python!r})
    .apt_install("git")
    .pip_install(*PINS, extra_options=" ".join(["--no-deps", *(f"--extra-index-url {{one}}" for one in INDEXES)]))
    .run_commands(f"pip install --no-deps {{MLTRAINER}}"{package})
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
{first}#   sky launch -c {label} --env mltrainer=ADDRESS SCRIPT    # what pip installs as mltrainer {version}: its repository
#   {back}
#   mltrainer checkpoints verify && mltrainer gate check --files
#   sky down {label}
#
# SkyPilot reads the keys of each cloud from where `sky check` says.
"""


MODAL_KEYS = """OF_STORES = ("AWS_", "AZURE_STORAGE_", "FSSPEC_")
KEYS = {name: value for name, value in os.environ.items() if name.startswith(OF_STORES)}
"""
SKYPILOT_FIRST = """#   mltrainer store push {store}
# The next with `--secret AWS_ACCESS_KEY_ID --secret AWS_SECRET_ACCESS_KEY` where the machine has no role that may use the store.
"""

# --- scripts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """The values in the scripts of all places.

    Attributes:
        name: The project's name.
        label: The name as a Kubernetes label.
        python: Python's version in planning.
        words: Words of the command.
        store: Address of the object store; None without one.
        version: Version of mltrainer.
        pins: File of planning's environment.
    """

    name: str
    label: str
    python: str
    words: list[str]
    store: str | None
    version: str = __version__
    pins: str = PINS

    def stored(self, program: str, packages: str) -> str:
        """Return the command in bash, with copies from the store before it and to the store after it."""
        where = {"program": program, "packages": packages, "every_s": PUSH_EVERY_S}
        return STORED.format(store=shlex.quote(str(self.store)), command=shlex.join(self.words[1:]), **where)

    def package(self, python: str, packages: str) -> str:
        """Return the lines of bash that install the store's package; empty if it needs none."""
        package = backend_of(self.store) if self.store is not None else None
        return PACKAGE.format(package=package, python=python, packages=packages) if package else ""

    @property
    def environment(self) -> str:
        """The lines of bash that make the environment."""
        return ENVIRONMENT.format(pins=self.pins, python=self.python) + self.package(".venv/bin/python", ".venv/store")

    @property
    def run(self) -> str:
        """The lines of bash that run the command in that environment."""
        if self.store is not None:
            return self.stored(".venv/bin/mltrainer", ".venv/store")
        return f".venv/bin/{shlex.join(self.words)}\n"


def remote_script(
    project: Project, place: str, phase: str | None = None, gpu: str | None = None, store: str | None = None
) -> str:
    """Return the script with which another machine runs all phases of a project, or one of them.

    Args:
        project: The planned project.
        place: The service or program that starts or reaches the machine.
        phase: The phase to run; None: all.
        gpu: The requested kind of GPU, by the place's name.
        store: Object store for data, checkpoints and records, such as `s3://bucket/prefix`.

    Raises:
        InputError: The project has no plan yet, a file of it is not valid, a GPU is needed and no kind is named, or the store's
            address is none.
    """
    config = planned_config(project)
    needs, name = needs_of(project, config), load_project(project.file).name
    if needs.machines > 1:
        what = f"launch.machines: {needs.machines} share a training in a job of SLURM, and this starts one machine"
        raise InputError(what, where="launch.machines", hint="--for slurm, or launch.machines: 1")
    if needs.gpus and gpu is None and place != "ssh":
        raise InputError("the plan trains on a GPU, whose kind is not given", where="--gpu", hint=f"--for {place} --gpu H100")
    words = ["mltrainer", "run"] if phase is None else ["mltrainer", "phase", "run", phase]
    parts = Parts(name, label_of(name), _python(project), words, check_address(store) if store is not None else None)
    if place == "ssh":
        return _ssh(project, parts)
    if place == "modal":
        return _modal(project, parts, needs, gpu)
    return _skypilot(project, parts, needs, gpu)


def _python(project: Project) -> str:
    """Return the version of Python that planning recorded, such as 3.11."""
    record = sound_record(project, "planning")
    assert record is not None, "needs_of has read it"
    return ".".join(str(record.evidence.environment.python.version).split(".")[:2])


def _data(project: Project) -> dict[str, str]:
    """Return the digests of the data files that are not in git, by path within the project.

    Raises:
        InputError: A file is outside the project.
    """
    in_git, rows = tracked(project.root), data_rows(project) or []
    recorded = {row.path: row.sha256 for row in rows if tree_of(row.path) is None and not (project.root / row.path).is_dir()}
    paths = dict.fromkeys(recorded) | dict.fromkeys(path for row in rows for path in files_of_row(project.root, row))
    return {path: recorded.get(path) or sha256_file(project.root / path) for path in paths if path not in in_git}


def _ssh(project: Project, parts: Parts) -> str:
    here = shlex.join([sys.executable, "-m", "mltrainer"])
    store = shlex.quote(parts.store or "")
    code = "echo $? > .mltrainer/remote/code"
    return SSH.format(
        name=parts.name,
        label=parts.label,
        version=parts.version,
        root=shlex.quote(str(project.root)),
        before=_sent_data(project) if parts.store is None else f'\necho "== the store"\n{here} store push {store}\n{KEYS}',
        environment=parts.environment,
        command=shlex.join(parts.words),
        start=START if parts.store is None else START_WITH_KEYS,
        job=shlex.quote(f"({parts.run}); {code}"),
        back=BACK if parts.store is None else f"{here} store pull {store}",
        here=here,
    )


def _sent_data(project: Project) -> str:
    """Return the lines of bash that send the data; empty if git has all of it."""
    files = _data(project)
    digests = shlex.quote("\n".join(f"{sha256}  {path}" for path, sha256 in files.items()))
    return DATA.format(digests=digests, files=shlex.join(files)) if files else ""


def _modal(project: Project, parts: Parts, needs: Needs, gpu: str | None) -> str:
    asked = {
        "cpu": float(needs.cores),
        "memory": needs.memory_mb,
        "timeout": needs.minutes and needs.minutes * 60,
        "gpu": f"{gpu}:{needs.gpus}" if needs.gpus else None,
    }
    listed = [f"{key}={json.dumps(value)}" for key, value in asked.items() if value]
    if parts.store is None:
        back = f"modal volume get {parts.label} phases . && modal volume get {parts.label} .mltrainer ."
        given = {"first": "", "back": back, "keys": "", "package": "", "command": json.dumps(parts.words)}
    else:
        package = parts.package("python", "/store")
        given = {
            "first": f"    mltrainer store push {shlex.quote(parts.store)}\n",
            "back": f"mltrainer store pull {shlex.quote(parts.store)}",
            "keys": MODAL_KEYS,
            "package": f", {json.dumps(package.replace(chr(10), ' '))}" if package else "",
            "command": json.dumps(["bash", "-c", parts.stored("mltrainer", "/store")]),
        }
        listed.append("secrets=[modal.Secret.from_dict(KEYS)]")
    return MODAL.format(
        name=parts.name,
        label=parts.label,
        version=parts.version,
        python=parts.python,
        pins=parts.pins,
        root=json.dumps(str(project.root)),
        asked=", ".join(listed),
        **given,
    )


def _skypilot(project: Project, parts: Parts, needs: Needs, gpu: str | None) -> str:
    resources = {
        "cpus": f"{needs.cores}+",
        "memory": f"{-(-needs.memory_mb // MIB)}+",
        **({"accelerators": f"{gpu}:{needs.gpus}"} if needs.gpus else {}),
    }
    mounts = {f"~/sky_workdir/{path}": str(project.root / path) for path in _data(project)} if parts.store is None else {}
    task = {
        "name": parts.label,
        "workdir": str(project.root),
        "resources": resources,
        **({"file_mounts": mounts} if mounts else {}),
        "envs": {"mltrainer": None},
    }
    if parts.store is None:
        first, back = "", f"rsync -a {parts.label}:sky_workdir/phases {parts.label}:sky_workdir/.mltrainer ."
    else:
        first, back = SKYPILOT_FIRST.format(store=shlex.quote(parts.store)), f"mltrainer store pull {shlex.quote(parts.store)}"
    head = SKYPILOT.format(name=parts.name, label=parts.label, version=parts.version, first=first, back=back)
    blocks = [f"{key}: |\n{textwrap.indent(script, '  ')}" for key, script in (("setup", parts.environment), ("run", parts.run))]
    return head + yaml.dump(task) + "".join(blocks)
