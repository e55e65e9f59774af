"""Weights & Biases: a run on its server, or offline in files that `wandb sync` sends later.

Its library passes numbers to a separate process, so that the last seconds may be missing if a tracker dies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb

from mltrainer.companions.trackers.folders import check_folder
from mltrainer.companions.trackers.sink import Param, Place, Point, Sink
from mltrainer.configs.tracking import Wandb
from mltrainer.errors import InputError

STEP = "step"  # the axis; wandb's own step only grows, while evaluations come behind the steps after them
LONGEST_TAG = 64
QUIET = {  # nothing of this process is wanted: it does not train
    "console": "off",
    "silent": True,
    "disable_git": True,
    "disable_code": True,
    "disable_job_creation": True,
    "reinit": "create_new",  # by default, a run that begins while another one is open is that one
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_save_requirements": False,
}


class _Run:
    """A run that wandb knows."""

    def __init__(self, run: wandb.Run, name: str) -> None:
        self.id, self._run, self._name = str(run.id), run, name
        self._tags: dict[str, str] = {}
        self._files: dict[str, Path] = {}

    def params(self, values: Mapping[str, Param]) -> None:
        """Set the config."""
        config: Any = self._run.config  # without annotations of its own
        config.update(dict(values), allow_val_change=True)

    def metrics(self, points: Sequence[Point]) -> None:
        """Log the numbers."""
        for point in points:
            self._run.log({**point.values, STEP: point.step})

    def tags(self, values: Mapping[str, str]) -> None:
        """Set verdicts, state and phase as tags, and all words in the summary."""
        self._tags.update(values)
        self._run.tags = tuple(f"{key}: {value}"[:LONGEST_TAG] for key, value in self._tags.items() if is_verdict(key))
        self._run.summary.update(dict(values))

    def figure(self, name: str, path: Path) -> None:
        """Log a figure as a page, which draws SVG, and keep its file."""
        self._run.log({name.removesuffix(path.suffix): wandb.Html(path.read_text("utf-8"), inject=False)})
        self.artifact(name, path)

    def artifact(self, name: str, path: Path) -> None:
        """Keep a file for the artifact that the end logs."""
        self._files[name] = path

    def close(self, state: str) -> None:
        """Log the files as a version of one artifact, and wait until wandb has all."""
        if self._files:
            artifact = wandb.Artifact(self._name, type="reports")
            for name, path in self._files.items():
                artifact.add_file(str(path), name)
            self._run.log_artifact(artifact)
        self._run.finish(exit_code=0 if state == "finished" else 1)


def is_verdict(key: str) -> bool:
    """Return True where a tag is one to filter by, and short: a gate's verdict, the state or the phase."""
    return key.startswith("gate.") or key in ("state", "phase")


def begin(place: Place, options: Wandb) -> Sink:
    """Start a run, or continue it; its own files are in the project."""
    folder = _own_folder(place.root, options)
    name = f"{place.phase}-{place.run}"
    run = wandb.init(
        project=options.project or place.project,
        entity=options.entity,
        id=place.known or place.run,
        name=name,
        group=place.phase,
        dir=str(folder),
        mode=options.mode,
        resume="allow",
        settings=wandb.Settings(**QUIET),
    )
    run.define_metric("*", step_metric=STEP)
    return _Run(run, name)


def check(root: Path, project: str, options: Wandb) -> None:
    """Write in the folder of its files; online, ask the server for the user, which proves address and key."""
    check_folder(root, f"{options.folder}/wandb", "tracking.wandb.folder")
    if options.mode == "offline":
        return
    _own_folder(root, options)
    try:
        wandb.Api(timeout=max(1, int(options.wait_s / 2))).viewer  # noqa: B018 - a request
    except wandb.errors.UsageError as error:
        raise InputError(str(error), where="tracking.wandb", hint="wandb login, or export WANDB_API_KEY=...") from None


def _own_folder(root: Path, options: Wandb) -> Path:
    """Return the folder of a project's runs, made where there is none, in which wandb then keeps all that it writes."""
    folder = root / options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        os.environ.setdefault(name, str(folder / "wandb"))
    return folder
