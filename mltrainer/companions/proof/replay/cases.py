"""One operator as a file that anybody can compute again: its name, its arguments with their bits, and what it returned.

A case is a safetensors file. `inN` and `outN` are the memory of tensors that went in and came out; `case` in its metadata is JSON
with the operator's name, the structure of its arguments, and digests. Nothing in it is executed but an operator of PyTorch's own
`aten`, by its name.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor
from torch.utils._pytree import tree_leaves

from mltrainer.checkpointing.weights import raw_bytes
from mltrainer.companions.proof.findings import Case, Recomputed
from mltrainer.errors import InputError
from mltrainer.reproducibility.determinism import switch_on
from mltrainer.reproducibility.numerics import libraries, numerics_class
from mltrainer.workspace import write_atomic

CASE = "case"  # the key of the metadata
ALLOWED = re.compile(r"aten\.([a-z_][a-z0-9_]*)\.([A-Za-z][A-Za-z0-9_]*)")
# Arguments whose text selects a formula; an operator with another one, such as a file's name, is refused.
FORMULAS = frozenset({"approximate", "rounding_mode", "reduce", "side", "padding_mode", "indexing", "equation"})
_NAMED = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


@dataclass
class Encoded:
    """A structure of values as JSON, and the memory of its tensors, one dimension of bytes each."""

    structure: Any = None
    tensors: list[Tensor] = field(default_factory=list)


def encoded(values: Any) -> Encoded:
    """Return the arguments or results of an operator, copied.

    Raises:
        InputError: A case cannot hold one of them.
    """
    found = Encoded()
    found.structure = _encode(values, found.tensors)
    return found


def _encode(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(_memory(value))
        place = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "strides": list(value.stride())}
        return {"tensor": len(tensors) - 1, **place}
    if isinstance(value, list | tuple):
        return [_encode(one, tensors) for one in value]
    if isinstance(value, dict):
        return {"arguments": {key: _encode(one, tensors) for key, one in value.items()}}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if (kind := _NAMED.get(type(value))) is not None:
        return {kind: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    raise InputError(f"an operator's argument of the type {type(value).__name__} cannot be written into a case")


def _memory(tensor: Tensor) -> Tensor:
    """Return a copy of the memory that a tensor covers, as bytes: its strides decide in which order a kernel adds."""
    if not tensor.numel():
        return torch.empty(0, dtype=torch.uint8)
    count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.detach().as_strided((count,), (1,)).cpu().clone().view(torch.uint8)


def _decoded(structure: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the values that a case's structure describes.

    Raises:
        ValueError: It is not the structure of a case.
    """
    if isinstance(structure, list):
        return [_decoded(one, tensors) for one in structure]
    if not isinstance(structure, dict):
        return structure
    if "arguments" in structure:
        return {str(key): _decoded(one, tensors) for key, one in structure["arguments"].items()}
    if "tensor" in structure:
        memory = tensors[f"in{structure['tensor']}"].view(_named(torch.dtype, structure["dtype"]))
        return memory.as_strided(structure["shape"], structure["strides"])
    if "float" in structure:
        return float(structure["float"])
    if "device" in structure:
        return torch.device("cpu")  # where a case is computed, whatever the run's device was
    ((kind, name),) = structure.items()
    return _named(next(one for one, key in _NAMED.items() if key == kind), name)


def _named(kind: type, name: Any) -> Any:
    """Return PyTorch's object of a kind by its name."""
    found = getattr(torch, str(name), None)
    if not isinstance(found, kind):
        raise ValueError(f"{name!r} is no {kind.__name__}")
    return found


# --- operators --------------------------------------------------------------------------------------


def digests(values: Any) -> Iterator[str]:
    """Yield 16 hex digits of each value in a structure: of a tensor's type, shape, strides and bits, or of the value's text."""
    for value in tree_leaves(values):
        sha = hashlib.sha256()
        if isinstance(value, Tensor):
            sha.update(f"{value.dtype} {tuple(value.shape)} {value.stride()} ".encode())
            sha.update(raw_bytes(value))
        else:
            sha.update(f"{type(value).__name__} {value!r}".encode())
        yield sha.hexdigest()[:16]


def draws(func: Any) -> bool:
    """Return True if an operator draws from the default generator."""
    return torch.Tag.nondeterministic_seeded in func.tags


def outputs_of(func: Any, args: Sequence[Any], found: Any) -> tuple[Any, list[Any]]:
    """Return an operator's results and the arguments that it changed."""
    pairs = zip(func._schema.arguments, args, strict=False)
    return found, [value for one, value in pairs if one.is_write]


# --- the file ---------------------------------------------------------------------------------------


def write_case(path: Path, case: Case, inputs: Encoded, outputs: Encoded) -> None:
    """Write a case to a file.

    Args:
        path: The file.
        case: The operator and both parties' results, by digest.
        inputs: The arguments and, of an operator that draws, the generator's state.
        outputs: The results here.
    """
    tensors = {f"{name}{nr}": one for name, of in (("in", inputs), ("out", outputs)) for nr, one in enumerate(of.tensors)}
    whole = {**case.written(), "arguments": inputs.structure}
    write_atomic(path, save(tensors, {CASE: json.dumps(whole)}))


def recomputed(path: Path) -> Recomputed:
    """Compute a case's operator again, on this machine's CPU, with as many threads as then.

    Raises:
        InputError: The file is not a case, its inputs do not have the digests that it names, or its operator is refused.
    """
    case, (args, kwargs, state) = _read(path)
    func = _operator(case.operator, path)
    if [*digests((args, kwargs, state))] != case.inputs:
        raise InputError("its inputs do not have the digests that it names", where=str(path))
    switch_on(case.threads, fill_memory=True)
    try:
        if state is not None:
            torch.set_rng_state(state)
        found = func(*args, **kwargs)
        outputs = [*digests(outputs_of(func, args, found))]
    except Exception as error:  # an operator raises errors of any kind on what it does not take
        raise InputError(f"{case.operator} does not take these arguments: {error}"[:300], where=str(path)) from error
    return Recomputed(case=case, outputs=outputs, numerics_class=numerics_class("cpu"), libraries=libraries())


def main() -> int:
    """Compute the case that the command line names, and print the answer, or the error, as JSON."""
    try:
        sys.stdout.write(json.dumps(recomputed(Path(sys.argv[1])).written()))
    except InputError as error:
        sys.stdout.write(json.dumps({"error": error.message}))
    return 0


def _read(path: Path) -> tuple[Case, Any]:
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})[CASE])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - it has no other way
        arguments = _decoded(content.pop("arguments"), tensors)
        args, kwargs, state = arguments
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ValueError("the arguments are not those of an operator")
        return Case.model_validate(content), (args, kwargs, state)
    except Exception as error:  # a stranger's file may hold anything
        raise InputError(f"not a valid case of an operator: {type(error).__name__}: {error}"[:300], where=str(path)) from error


def _operator(name: str, path: Path) -> Any:
    """Return PyTorch's own operator of a name that reads no file and checks the bounds of its arguments."""
    match = ALLOWED.fullmatch(name)
    packet = getattr(torch.ops.aten, match[1], None) if match else None
    func = getattr(packet, match[2], None) if match and isinstance(packet, torch._ops.OpOverloadPacket) else None
    if not isinstance(func, torch._ops.OpOverload):
        raise InputError(f"{name[:80]!r} is not an operator of PyTorch {torch.__version__}", where=str(path))
    arguments = func._schema.arguments
    texts = {one.name for one in arguments if "str" in str(one.type)}
    if texts - FORMULAS or "unsafe" in name or any(one.name == "unsafe" for one in arguments):
        raise InputError(f"{name[:80]} may read more than its arguments, and is refused", where=str(path))
    return func


if __name__ == "__main__":
    sys.exit(main())
