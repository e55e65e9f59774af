"""Initial weights of a model, from a file or folder: read without executing anything, mapped by strict rules."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.weights import dtype_name
from mltrainer.configs.starting import Start
from mltrainer.errors import InputError, first_names
from mltrainer.records.common import FileRow
from mltrainer.records.planning import Begun
from mltrainer.workspace import MACHINE_ERRNOS, NAME_ERRNOS, from_json, machine_faults

PATTERNS = ("model*.safetensors", "*.safetensors", "pytorch_model*.bin", "*.pt", "*.pth")  # in a folder; the first that is there
INDEXES = ("*.safetensors.index.json", "*.bin.index.json")  # which part of a large model holds a tensor, as Hugging Face's say it
WHOLE = "model.safetensors"  # takes precedence over parts in its folder, as in Hugging Face's libraries
WRAPPERS = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before all names
INSIDE = ("state_dict", "model_state_dict", "model")  # where checkpoints of other programs hold the weights
FITTED = ("encoder.", "units.")  # modules of built-in models that are fitted to the data, so never another's
SHOWN = 8  # names in a message
READ_BYTES = 1 << 20  # at once, of an archive's entry
START = "start.weights"
MISMATCHES = ("the model's tensors that the file lacks", "the file's tensors that the model lacks", "tensors of other shapes")
KEYS = (
    " (start.new or start.rename)",
    " (start.unused or start.rename)",
    " (start.new, or start.replace_head for the last layer)",
)


def weight_files(weights: str, root: Path, where: str = START) -> list[Path]:
    """Return the files of weights, sorted.

    Args:
        weights: Their place, relative to the project.
        root: The project's folder.
        where: The config's key of their place.

    Raises:
        InputError: There are none.
    """
    path = root / weights
    if path.is_file():
        return [path]
    if (path / WHOLE).is_file():
        return [path / WHOLE]
    # Before the patterns, which would match every part in the folder, named or not.
    index = next((file for pattern in INDEXES for file in sorted(path.glob(pattern))), None)
    files = _parts(index) if index else next((files for pattern in PATTERNS if (files := sorted(path.glob(pattern)))), [])
    if not files:
        message = f"no weights at {weights!r}: a .safetensors or torch file, or a folder with one, was expected"
        raise InputError(message, where=where, hint="put them there; a path is relative to the project")
    return files


def _parts(index: Path) -> list[Path]:
    """Return the files that an index names, sorted.

    Raises:
        InputError: It is no index, names a file elsewhere, or one is not here.
    """
    try:
        names = sorted({os.fspath(name) for name in from_json(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"not readable as an index: {type(error).__name__}: {error}; an object with weight_map was expected"
        raise InputError(message, where=str(index), hint="restore the folder as it was saved, or name one file") from error
    if missing := [name for name in names if Path(name).name != name or not (index.parent / name).is_file()]:
        message = f"{first_names(missing, SHOWN)} of the {len(names)} parts that it names are not in its folder"
        raise InputError(message, where=str(index), hint="bring all parts")
    return [index.parent / name for name in names]


def weight_rows(weights: str, root: Path, where: str = START) -> list[FileRow]:
    """Return the row of each file of weights; arguments as of `weight_files`."""
    files = weight_files(weights, root, where)
    with machine_faults(weights):
        return [FileRow.of(file, Path(os.path.relpath(file, root)).as_posix()) for file in files]


def begin(model: nn.Module, start: Start, root: Path, *, is_builtin: bool) -> Begun:
    """Give a new model the weights that a config names; the model's other tensors stay as they are.

    Args:
        model: The model, with its drawn weights.
        start: The weights' path, and the rules that map their names.
        root: The project's folder.
        is_builtin: Whether the model is a built-in one, whose preprocessing is fitted to the data.

    Raises:
        InputError: A file cannot be read; or a tensor is missing, left over or of another shape without being named.
    """
    own = model.state_dict()
    given = renamed(unwrapped(read_tensors(weight_files(start.weights, root)), own), start.rename)
    head = head_of(model)
    fitted = FITTED if is_builtin else ()
    begins_new = [name for name in own if _stays_new(name, start, head if start.replace_head else None, fitted)]
    unused = [name for name in given if name not in own or name in begins_new]
    wanted = [name for name in own if name not in begins_new]
    left = [name for name in unused if name not in own and not matches(start.unused, name)]
    if misfits := _misfits(own, given, wanted, left, KEYS):
        raise InputError(misfits, where=START, hint="name them under start in mltrainer.yaml")
    require_same_numbers(model, given, [name for name in wanted if name in given], start.weights)
    with torch.no_grad():
        for name in wanted:
            if name in given:
                # Only after everything was checked: a model that is refused has none of the file's weights.
                own[name].copy_(given[name])
    return Begun(weights=start.weights, loaded=wanted, new=begins_new, unused=unused)


def load_all(model: nn.Module, weights: str, root: Path, where: str) -> None:
    """Load all of a model's tensors from files, also those that were fitted to data.

    Args:
        model: The model.
        weights: Their place, relative to the project.
        root: The project's folder.
        where: The config's key of their place.

    Raises:
        InputError: A file cannot be read; or a tensor is missing, left over or of another shape.
    """
    own = model.state_dict()
    try:
        given = unwrapped(read_tensors(weight_files(weights, root, where)), own)
    except InputError as error:
        if error.where == where:
            raise
        raise InputError(error.placed_message, where=where, hint=error.hint) from error
    if misfits := _misfits(own, given, [*own], [name for name in given if name not in own], ("", "", "")):
        raise InputError(misfits, where=where, hint="name the file of this model, or the model of this file")
    require_same_numbers(model, given, given, where)
    with torch.no_grad():
        for name, tensor in given.items():
            own[name].copy_(tensor)


def require_same_numbers(model: nn.Module, given: Mapping[str, Tensor], names: Iterable[str], where: str) -> None:
    """Require that tensors of the right shapes are the same numbers in the model as in their file.

    Args:
        model: The model.
        given: The file's tensors.
        names: The names of those that the model takes.
        where: The file's place, for messages.

    Raises:
        InputError: One is of another kind of number, such as an int8 that means a float by a scale; or a parameter holds
            what is not finite; or two differ that are one tensor in the model.
    """
    own, parameters = model.state_dict(), dict(model.named_parameters(remove_duplicate=False))
    first: dict[tuple[int, torch.Size], str] = {}
    for name in names:
        other = first.setdefault((own[name].data_ptr(), own[name].shape), name)
        if _is_plain_float(given[name]) != own[name].is_floating_point() or given[name].is_complex() != own[name].is_complex():
            fault = f"{name} is of {dtype_name(given[name])} in the file, and of {dtype_name(own[name])} in the model"
        elif name in parameters and not given[name].to(own[name].dtype).isfinite().all():
            fault = f"{name} holds numbers that are not finite in {dtype_name(own[name])}"
        elif other != name and not torch.equal(given[name], given[other]):
            fault = f"{other} and {name} are one tensor in the model, and differ in the file"
        else:
            continue
        raise InputError(
            fault, where=where, hint="save the weights as the model's own numbers; quantized ones: dequantize them first"
        )


def _is_plain_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() > 1  # an 8-bit one has a scale beside it


def matches(patterns: Iterable[str], *names: str) -> bool:
    """Return True if a pattern is found in a name."""
    return any(re.search(pattern, name) for pattern in patterns for name in names)


def _stays_new(name: str, start: Start, head: str | None, fitted: tuple[str, ...]) -> bool:
    return module_of(name) == head or name.startswith(fitted) or matches(start.new, name)


def module_of(name: str) -> str:
    """Return the name of a tensor's module."""
    return name.rpartition(".")[0]


def _misfits(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor], wanted: list[str], left: list[str], keys: tuple[str, str, str]
) -> str:
    """Return a text on all that does not fit, with the keys that resolve it; empty where everything does."""
    loaded = {own[name].data_ptr() for name in wanted if name in given}  # one of two names is stored once in a .safetensors file
    missing = [name for name in wanted if name not in given and own[name].data_ptr() not in loaded]
    other = [
        f"{name} ({list(given[name].shape)} in the file, {list(own[name].shape)} in the model)"
        for name in wanted
        if name in given and given[name].shape != own[name].shape
    ]
    faults = (_mismatch(what, names, key) for what, names, key in zip(MISMATCHES, (missing, left, other), keys, strict=True))
    return "; ".join(filter(None, faults))


def _mismatch(what: str, names: list[str], key: str) -> str:
    return f"{what}: {first_names(names, SHOWN)}{key}" if names else ""


def unwrapped(tensors: Mapping[str, Tensor], own: Iterable[str]) -> Mapping[str, Tensor]:
    """Return tensors without a wrapper's prefix in their names, unless the model's names have it too."""
    for prefix in WRAPPERS:
        if tensors and all(name.startswith(prefix) for name in tensors) and not any(name.startswith(prefix) for name in own):
            # Again, as one wrapper may stand around the other.
            return unwrapped({name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, own)
    return tensors


def renamed(tensors: Mapping[str, Tensor], rules: Mapping[str, str], where: str = "start.rename") -> dict[str, Tensor]:
    """Return tensors under other names; `where` is the place of the rules in messages.

    Raises:
        InputError: Two tensors get one name.
    """
    tensors_by_name: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        new = name
        for pattern, replacement in rules.items():
            new = re.sub(pattern, replacement, new)
        if new in tensors_by_name:
            raise InputError(f"two tensors get the name {new!r}", where=where, hint="make the patterns distinguish them")
        tensors_by_name[new] = tensor
    return tensors_by_name


def head_of(model: nn.Module) -> str:
    """Return the name of a model's last layer."""
    return module_of([name for name, _ in model.named_parameters()][-1])


def read_tensors(files: Iterable[Path]) -> dict[str, Tensor]:
    """Return the tensors of files by name, sorted; nothing in a file is executed.

    Raises:
        InputError: A file holds no tensors by name, is damaged, or holds more than tensors; or two hold one name.
    """
    tensors_by_name: dict[str, Tensor] = {}
    for file in files:
        tensors = _read_file(file)
        if twice := [*tensors_by_name.keys() & tensors.keys()]:
            message = f"another file of this folder holds {first_names(sorted(twice), SHOWN)}, too"
            raise InputError(message, where=str(file), hint="name one file, or leave the parts of one model in the folder")
        tensors_by_name |= tensors
    return dict(sorted(tensors_by_name.items()))  # a .safetensors file has no defined order


def _read_file(file: Path) -> dict[str, Tensor]:
    with machine_faults(str(file)):
        try:
            if file.suffix == ".safetensors":
                return safetensors.torch.load(file.read_bytes())
            _require_whole(file)
            # No second try without `weights_only` where this fails: what unpickling runs would be the file's choice.
            content = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:  # torch's message advises to execute the file's content
            message = "not readable as weights: it is no torch file, or it holds more than tensors, which are never executed"
            raise InputError(message, where=str(file), hint="save a state dict, best as .safetensors") from error
        except Exception as error:  # whatever a damaged file raises
            if isinstance(error, OSError) and error.errno in MACHINE_ERRNOS | NAME_ERRNOS:
                raise
            message = f"not readable as weights: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise InputError(message, where=str(file), hint="save a state dict, best as .safetensors") from error
    return _tensors(content, file)


def _require_whole(file: Path) -> None:
    """Require of a torch file's archive that nothing is compressed, which torch never does, and that all checksums hold.

    Raises:
        ValueError: An entry is compressed: it may be as large as it likes.
        zipfile.BadZipFile: An entry has another checksum. torch itself compares none; it can save without, which is 0.
    """
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{entry.filename} is compressed")
            with archive.open(entry) as content:
                while entry.CRC and content.read(READ_BYTES):
                    pass


def _tensors(content: Any, file: Path) -> dict[str, Tensor]:
    """Return the tensors by name in a torch file's content."""
    inner = (
        next((content[key] for key in INSIDE if isinstance(content.get(key), dict)), content)
        if isinstance(content, dict)
        else content
    )
    tensors = {str(name): value for name, value in inner.items() if isinstance(value, Tensor)} if isinstance(inner, dict) else {}
    if not tensors:
        raise InputError("no tensors by name in this file", where=str(file), hint="save a model's state_dict()")
    if odd := [
        name for name, one in tensors.items() if one.layout != torch.strided or one.is_quantized or one.is_meta or one.is_nested
    ]:
        message = f"{first_names(odd, SHOWN)}: sparse, quantized, nested or without data; plain tensors were expected"
        raise InputError(message, where=str(file), hint="save a state dict of plain tensors")
    return tensors
