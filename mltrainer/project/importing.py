"""Foreign weights brought into a project, for its model to begin with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mltrainer.configs import yaml
from mltrainer.errors import InputError
from mltrainer.generated_files import folder_within
from mltrainer.phases.present_config import present_config
from mltrainer.records.imported import Imported
from mltrainer.records.job import ImportJob
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted
from mltrainer.runs.exporting import MANAGER
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import WEIGHTS_FOLDER, digest, locked_project, require_new


def import_weights(tools: Tools, foreign: Path, to: str | None = None, rename: Mapping[str, str] | None = None) -> Imported:
    """Bring foreign weights into the project, as a new folder that `start.weights` can name; nothing in them is executed.

    Args:
        tools: The project's tools.
        foreign: A .safetensors or torch file, or a folder with such files, as Hugging Face's libraries write them.
        to: The new folder in the project; None: one in `weights/`, named like the file.
        rename: Patterns of the file's names, and what takes their place, in this order.

    Raises:
        InputError: The file is missing, damaged, holds more than tensors, or fits nothing in the model; or the folder exists.
    """
    project = tools.project
    if not foreign.exists():
        raise InputError("no such file", where=str(foreign), hint="name a file or folder, relative to where you are")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", foreign.resolve().stem).strip("-.") or "imported"
    out = to or f"{WEIGHTS_FOLDER}/{name}"
    target = folder_within(project, out)
    with locked_project(project):
        require_new(target, out)
        config = present_config(tools, ()).model_copy(update={"start": None})
        job = ImportJob(
            run=digest([str(foreign), out])[:12],
            folder=project.relative(project.state_dir / "imports" / target.name),
            config=config,
            threads=config.threads,
            foreign=str(foreign.absolute()),
            out=project.relative(target),
            rename=dict(rename or {}),
        )
        result = tools.run(MANAGER, job)
    return Imported.model_validate({key: value for key, value in result.items() if key != "schema"})


def in_words(imported: Imported) -> str:
    """Return an import for a person: the tensors that are not in common, and the keys to paste."""
    rows = [[row.name, _shape(row.in_file), _shape(row.in_model), _fate(row.in_file, row.in_model)] for row in imported.others]
    taken = f"{imported.loaded} of {counted(imported.tensors, 'tensor')} taken"
    shown = [f"{taken}; not in common:\n{table(rows, ['tensor', 'file', 'model', ''])}" if rows else f"{taken}: all fit"]
    declared = [f"config.json says {key}: {value}" for key, value in imported.declared.items()]
    keys = yaml.dump({"start": imported.start}).rstrip()
    return "\n".join([*declared, *shown, f"wrote {imported.start['weights']}; in mltrainer.yaml:", keys])


def _shape(shape: list[int] | None) -> str:
    return "-" if shape is None else str(shape)


def _fate(in_file: list[int] | None, in_model: list[int] | None) -> str:
    if in_file is None:
        return "missing: begins new"
    return "unexpected: left out" if in_model is None else "another shape: begins new"
