"""Templates of the scripts for another machine: bash, an app of Modal, a task of SkyPilot."""

from __future__ import annotations

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
{here} gate check --files || true  # a gate that does not hold yet is told, and is no fault of the way back
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

# What reaches the store lies beside the environment that planning pinned, and is no part of it.
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
