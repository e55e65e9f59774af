"""One import job: foreign weights, mapped to the project's model, in a folder that `start.weights` can name."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from mltrainer.checkpointing.starting import (
    FITTED,
    WHOLE,
    begin,
    head_of,
    module_of,
    read_tensors,
    renamed,
    require_same_numbers,
    unwrapped,
    weight_files,
)
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.configs.starting import Start
from mltrainer.errors import InputError
from mltrainer.leftovers import new_folder
from mltrainer.records.common import FileRow
from mltrainer.records.imported import ORIGIN_FILE, Imported, TensorRow
from mltrainer.records.job import ImportJob
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tools.loading import open_untrained
from mltrainer.workspace import machine_faults, raise_machine_fault, read_if_whole, sync, write_json

CONFIG_FILE = "config.json"  # beside weights of Hugging Face's libraries
DECLARED = ("model_type", "architectures", "torch_dtype", "dtype")  # of such a file; code that it names is never run
SHOWN = 3  # names in a message
RENAME = "--rename"

Tensors = Mapping[str, Tensor]


def import_weights(job: ImportJob, root: Path) -> None:
    """Run one job, and write its result, an `Imported`, which is also beside the weights.

    Raises:
        InputError: The file holds more than tensors, is damaged, or fits nothing in the model.
    """
    _, model = open_untrained(job.config, root)
    is_builtin = job.config.task.use is None
    fitted = FITTED if is_builtin else ()  # to this project's data, by preprocessing
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(fitted)}
    files = weight_files(job.foreign, root, job.foreign)
    every = renamed(unwrapped(read_tensors(files), model.state_dict()), job.rename, RENAME)
    given = {name: tensor for name, tensor in every.items() if not name.startswith(fitted)}
    fitting = {name: tensor for name, tensor in given.items() if name in own and own[name].shape == tensor.shape}
    if not fitting:
        raise _nothing(job.foreign, own, given)
    require_same_numbers(model, given, fitting, job.foreign)
    others = [*_others(own, given)]
    keys = _new(model, own, others)
    imported = Imported(
        files=[_row(file, Path(job.foreign)) for file in files],
        declared=_declared(files[0].parent),
        tensors=len(given),
        loaded=len(fitting),
        others=others,
        start={"weights": job.out, **keys},
        weights_sha256=weights_sha256(fitting),
    )
    with _written(root / job.out, fitting, imported) as arrived:
        weights = os.path.relpath(arrived, root)
        begin(model, Start.model_validate({"weights": weights, **keys}), root, is_builtin=is_builtin)  # as a training will
    write_json(root / job.folder / RESULT_FILE, {"schema": 1, **imported.written()})


def _others(own: Tensors, given: Tensors) -> Iterator[TensorRow]:
    """Yield the tensors that only one side has, or that have another shape; of a shared one the other name is none of them."""
    shared = {own[name].data_ptr() for name in own if name in given}
    for name in own:
        if name not in given and own[name].data_ptr() not in shared:
            yield TensorRow(name=name, in_file=None, in_model=list(own[name].shape))
        elif name in given and given[name].shape != own[name].shape:
            yield TensorRow(name=name, in_file=list(given[name].shape), in_model=list(own[name].shape))
    yield from (TensorRow(name=name, in_file=list(given[name].shape), in_model=None) for name in given if name not in own)


def _new(model: nn.Module, own: Tensors, others: list[TensorRow]) -> dict[str, Any]:
    """Return the keys of `start` for the model's tensors that begin as new ones."""
    new = [row.name for row in others if row.in_model is not None]
    if not new:
        return {}
    if {*map(module_of, new)} == {head_of(model)}:
        return {"replace_head": True}
    whole = {module for module in map(module_of, new) if {name for name in own if module_of(name) == module} <= {*new}}
    patterns = (
        f"^{re.escape(module_of(name))}\\." if module_of(name) in whole and module_of(name) else f"^{re.escape(name)}$"
        for name in new
    )
    return {"new": [*dict.fromkeys(patterns)]}


def _nothing(place: str, own: Tensors, given: Tensors) -> InputError:
    names = [", ".join([*tensors][:SHOWN]) for tensors in (given, own)]
    message = f"no tensor of it fits the model: its names are {names[0]}, ...; the model's are {names[1]}, ..."
    return InputError(message, where=place, hint=f"{RENAME} 'PATTERN=NAME' maps them, such as {RENAME} '^backbone\\.='")


def _declared(folder: Path) -> dict[str, Any]:
    found = read_if_whole(folder / CONFIG_FILE)
    return {key: found[key] for key in DECLARED if isinstance(found.get(key), str | list)}


def _row(file: Path, foreign: Path) -> FileRow:
    """Return a foreign file's row, whose path leaves out the place on this machine."""
    return FileRow.of(file, file.name if file == foreign else f"{foreign.name}/{file.name}")


@contextlib.contextmanager
def _written(folder: Path, tensors: Tensors, imported: Imported) -> Iterator[Path]:
    """Yield a folder with weights and origin, which gets its own name when the block has ended well."""
    with machine_faults(str(folder)):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder.parent) as arriving:
            contiguous = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
            try:
                safetensors.torch.save_file(contiguous, arriving / WHOLE)
            except Exception as error:  # of a disk safetensors raises an error of its own
                raise_machine_fault(error, arriving / WHOLE)
                raise
            sync(arriving / WHOLE)
            write_json(arriving / ORIGIN_FILE, imported.written())
            yield arriving
            arriving.rename(folder)
