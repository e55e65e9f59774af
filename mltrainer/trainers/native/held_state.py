"""State of the user's own objects that training changes, but that a resumed run does not restore.

In: the task, its data sets and the model. Out: a digest for each attribute, by its path, such as `Rows.jitter.rng`. An attribute
that changed before a training stopped, and has another value after resuming, is missing in the checkpoint.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.weights import raw_bytes
from mltrainer.records.common import Call
from mltrainer.tasks.opening import OpenTask
from mltrainer.trainers.native.tracing import giver

DEPTH = 6  # nested objects
MOST = 1000  # a container's items: more are data
MOST_BYTES = 1 << 20  # an array's bytes: more are data
MOST_ATTRIBUTES = 20_000  # attributes of one object and all within it: planning must not wait for lists of lists
LONGEST_KEY = 64  # characters of a dict's key; longer keys, and keys other than texts and numbers, are skipped
PLAIN = (bool, int, float, complex, str, bytes, type(None), itertools.count)
OF_MODULES = frozenset(vars(nn.Module()))  # a module's own bookkeeping; parameters and buffers, which a checkpoint holds
GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)


class Attribute(NamedTuple):
    """An attribute: its digest, its owner's class, and whether it is a generator of random numbers."""

    digest: str
    owner: type
    is_generator: bool = False


Attributes = dict[str, Attribute]  # by path


def attributes(opened: OpenTask, model: nn.Module) -> Attributes:
    """Return the attributes of a task, its data sets and its model."""
    roots = [opened.task, *(giver(opened, split) for split in ("train", "validation")), model]
    found: Attributes = {}
    seen: set[int] = set()
    for root in roots:
        for path, attribute in itertools.islice(_walk(root, type(root).__name__, type(root), seen, DEPTH), MOST_ATTRIBUTES):
            found.setdefault(path, attribute)
    return found


def changed(before: Attributes, after: Attributes) -> dict[str, str]:
    """Return the later digests of attributes that changed or are new."""
    return {path: now.digest for path, now in after.items() if path not in before or before[path].digest != now.digest}


def not_restored(at_stop: Mapping[str, str], now: Attributes, root: Path) -> list[Call]:
    """Return the attributes that training had changed and that were not restored to their state at the stop.

    Args:
        at_stop: The result of `changed` when the training stopped.
        now: The attributes after resuming, before the first step.
        root: The project's folder; `where` is the place of the owner's class in a file of the project, else its module.

    Returns:
        The attributes, generators first: others are often mere counters.
    """
    lost = [(path, now[path]) for path, digest in at_stop.items() if path in now and now[path].digest != digest]
    lost.sort(key=lambda row: not row[1].is_generator)
    return [Call(kind="state", call=path, where=_where(one.owner, root), function=one.owner.__name__) for path, one in lost]


def _where(owner: type, root: Path) -> str:
    try:
        file, (_, line) = Path(inspect.getsourcefile(owner) or ""), inspect.getsourcelines(owner)
    except (OSError, TypeError):  # a class without source
        return owner.__module__
    return f"{file.relative_to(root)}:{line}" if file.is_relative_to(root) else owner.__module__


def _walk(value: Any, path: str, owner: type, seen: set[int], depth: int) -> Iterator[tuple[str, Attribute]]:
    state = _state(value)
    if state is not None:
        yield path, Attribute(hashlib.blake2b(state, digest_size=8).hexdigest(), owner, isinstance(value, GENERATORS))
        return
    if depth == 0 or id(value) in seen or isinstance(value, (type, FunctionType, ModuleType)):
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple, deque, dict, set, frozenset)):
        yield path, Attribute(str(len(value)), owner)
        parts = [] if len(value) > MOST or isinstance(value, (set, frozenset)) else _items(value)
    else:
        owner, parts = type(value), _parts(value)
    for name, part in parts:
        yield from _walk(part, path + name, owner, seen, depth - 1)


def _items(value: Any) -> list[tuple[str, Any]]:
    rows = value.copy().items() if isinstance(value, dict) else enumerate(list(value))  # another thread may change it meanwhile
    return [(f"[{key!r}]", part) for key, part in rows if isinstance(key, (int, str)) and len(str(key)) <= LONGEST_KEY]


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return an object's attributes; for a module those that its class adds, and its submodules."""
    held: dict[str, Any] = getattr(value, "__dict__", {})
    if not isinstance(value, nn.Module):
        return [(f".{name}", part) for name, part in held.items()]
    own = [(f".{name}", part) for name, part in held.items() if name not in OF_MODULES]
    return own + [(f".{name}", part) for name, part in value.named_children()]


def _state(value: Any) -> bytes | None:
    """Return bytes that distinguish a value from others; None for other objects, containers and data."""
    if isinstance(value, PLAIN):
        return repr(value).encode()
    if isinstance(value, random.Random):
        return repr(value.getstate()).encode()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state).encode()
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False)).encode()
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if type(value) in (Tensor, nn.Parameter):  # subclasses of libraries may have no bytes
        is_plain = value.layout is torch.strided and value.device.type == "cpu" and not (value.is_quantized or value.is_nested)
        return bytes(raw_bytes(value)) if is_plain and value.nbytes <= MOST_BYTES else None
    if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.nbytes <= MOST_BYTES:
        return value.tobytes()
    return None
