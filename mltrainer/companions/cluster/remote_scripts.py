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
from typing import Literal

from mltrainer import __version__
from mltrainer.companions.cluster.cluster_scripts import Needs, label_of, needs_of
from mltrainer.companions.cluster.remote_templates import (
    BACK,
    DATA,
    ENVIRONMENT,
    KEYS,
    MODAL,
    MODAL_KEYS,
    PACKAGE,
    SKYPILOT,
    SKYPILOT_FIRST,
    SSH,
    START,
    START_WITH_KEYS,
    STORED,
)
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

Remote = Literal["ssh", "modal", "skypilot"]
PINS = "phases/01_planning/requirements.txt"
MIB = 1024
PUSH_EVERY_S = 600  # most work that a machine can lose, beside the length of a push


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
    project: Project, place: Remote, phase: str | None = None, gpu: str | None = None, store: str | None = None
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
