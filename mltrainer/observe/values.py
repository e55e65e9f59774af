"""The values of a program's own variables, line by line, by digest: each line's changes, and the frames' callers.

Nothing of the program's own is called to read them: no property, no `__repr__`, no operation of PyTorch. What has no digest
is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any

MOST = 400_000  # rows of one process
EACH_LINE = 400  # times that a line of one thread is looked at
PARTS = 1000  # of a list, and of all its contents together
DEPTH = 4
LOOKED = 1 << 15  # bytes of an array, at its beginning and at its end
PLAIN = (bool, int, float, complex, bytes, range, type(None))
HOLDERS = ("datetime", "collections", "argparse", "types", "functools")  # of the standard library, whose objects hold values
ITERATORS = frozenset(  # of Python's own, which say what is left of what they go through without going on
    (
        *("list_iterator", "tuple_iterator", "range_iterator", "list_reverseiterator", "enumerate", "zip", "reversed"),
        *("dict_keyiterator", "dict_valueiterator", "dict_itemiterator", "set_iterator"),
    )
)
CONTAINERS = (dict, list, set, tuple)  # which a class may derive from: they hold values beside attributes
DATA = ("dataset", "_dataset", "data_source")  # of a loader or a sampler: variables of their own, most often
RETURNED = "<return>"
GENERATORS = RANDOM, NUMPY, TORCH = ("<random>", "<numpy>", "<torch>")  # that all libraries share
GOES_ON = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # frames that return more than once
NO_VALUE = ("module", "function", "type", "builtin_function_or_method", "method")


class Values:
    """Notes the variables that each line of the user's own code has changed.

    Rows are `value, thread, frame, caller's frame, event, line, changes, skipped`, where line is the one that begins, changes are
    those since the frame's row before, and skipped means that lines between them were not looked at; and `frame, frame, file,
    function, parameters, free variables` once for each frame. Names that begin with `<` are generators that all libraries share,
    those with a dot attributes of an object, by its class, and with a number where a frame has several objects of that class;
    those with a colon global ones.

    Args:
        lines: The writer of the rows.
        own_file: The function that returns the file of the user's own code that a frame is in, or None.
        folders: Those of this run alone, whose names are no part of a text.
    """

    def __init__(self, lines: Any, own_file: Callable[[FrameType], str | None], folders: list[str]) -> None:
        self._lines, self._own_file, self._folders = lines, own_file, folders
        self._frames: dict[int, _Frame] = {}
        self._count = self._begun = 0
        self._is_fork = False
        self._budget = threading.local()
        self._thread = threading.local()  # `looked`: how often each of its lines was, by code and line
        self._codes: dict[int, CodeType] = {}  # by their numbers, kept alive: to hash the code itself takes far longer

    def reset(self) -> None:
        """Start again: a fork has none of its parent's written rows, and is ended before it writes the held-back ones."""
        self._frames, self._thread, self._is_fork = {}, threading.local(), True

    def look_again(self) -> None:
        """Look at each line as often as at the beginning; changes meanwhile may belong to lines that were not seen."""
        self._thread = threading.local()
        for frame in self._frames.values():
            frame.is_skipped = True

    def is_spent(self, frame: FrameType) -> bool:
        """Return True if the line of a frame has been looked at often enough; fast, as each line that runs asks."""
        try:
            looked = self._thread.looked
        except AttributeError:
            looked = self._thread.looked = {}
        if looked.get((id(frame.f_code), frame.f_lineno), 0) < EACH_LINE:
            return False
        known = self._frames.get(id(frame))
        if known is not None and known.code is frame.f_code:
            known.is_skipped = True
        return True

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note the changes made by the line that has ended."""
        code = frame.f_code
        # To ask a class's body for its variables can take some away: Python 3.11 and 3.12 drop a `__class__` of its own.
        if self._count >= MOST or not (code.co_flags & inspect.CO_OPTIMIZED or code.co_name == "<module>"):
            return
        if self.is_spent(frame):
            return
        place, looked = (id(code), frame.f_lineno), self._thread.looked
        looked[place] = looked.get(place, 0) + 1
        self._codes[id(code)] = code
        known = self._frames.get(id(frame))
        if known is None or known.code is not code or (event == "call" and not code.co_flags & GOES_ON):
            known = self._begin(frame)
        values = dict(self._values(frame))
        if event == "return":
            values[RETURNED] = self._digest(argument)
            if not code.co_flags & GOES_ON:
                self._frames.pop(id(frame), None)
        changes = {name: value for name, value in values.items() if known.values.get(name) != value}
        changes |= {name: "" for name in known.values if name not in values}
        is_skipped, known.values, known.is_skipped = known.is_skipped, values, False
        self._count += 1
        row = threading.current_thread().name, known.number, known.caller, event, frame.f_lineno, changes, is_skipped
        self._lines.write("value", *row, flush=self._is_fork)

    def _begin(self, frame: FrameType) -> _Frame:
        self._begun += 1
        caller, above = 0, frame.f_back
        while above is not None and not caller:
            known = self._frames.get(id(above))
            caller, above = (known.number if known is not None and known.code is above.f_code else 0), above.f_back
        known = self._frames[id(frame)] = _Frame(self._begun, caller, frame.f_code)
        code = frame.f_code
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        row = known.number, self._own_file(frame), code.co_qualname, parameters, code.co_freevars
        self._lines.write("frame", *row, flush=False)
        return known

    def _values(self, frame: FrameType) -> Iterator[tuple[str, str]]:
        code, variables = frame.f_code, frame.f_locals
        used = set(code.co_names)
        is_module = code.co_name == "<module>"
        rows = [(f":{name}" if is_module else name, value) for name, value in [*variables.items()]]
        if not is_module:
            rows += [(f":{name}", frame.f_globals[name]) for name in sorted(used & frame.f_globals.keys())]
        rows = [(name, value) for name, value in rows if not name.startswith((":__", ":_mltrainer"))]
        seen: dict[str, set[int]] = {}
        for name, value in [part for row in rows for part in _parts(*row, used)]:
            if type(value).__name__ not in NO_VALUE:
                digest = self._digest(value)
                others = seen.setdefault(name, set())
                if digest and id(value) not in others:
                    others.add(id(value))
                    yield f"{name}#{len(others)}" if len(others) > 1 else name, digest
        yield from _shared_generators()

    def _digest(self, value: Any) -> str:
        """Return the digest of a value; empty if it cannot be read without a call of the program's own code."""
        sha = hashlib.blake2b(digest_size=6)
        try:
            self._budget.left = PARTS
            return sha.hexdigest() if self._update(sha, value, 0) else ""
        except Exception:  # changed by another thread meanwhile, or of a kind that gives less than it says
            return ""

    def _update(self, sha: Any, value: Any, depth: int) -> bool:
        """Add a value to a digest; return False if no part of it could be added."""
        self._budget.left -= 1
        if self._budget.left < 0 or depth > DEPTH:
            return True
        kind = type(value)
        if kind in PLAIN:
            sha.update(f"{kind.__name__}{value!r}".encode())
            return True
        if isinstance(value, (str, os.PathLike)):
            sha.update(self._text(str(value)).encode("utf-8", "replace"))
            return True
        if kind is slice:
            return self._all(sha, [value.start, value.stop, value.step], depth)
        if isinstance(value, tuple):  # named ones, too, whose own code is not called
            return self._all(sha, [tuple.__len__(value), *tuple.__iter__(value)], depth)
        if kind is list or kind.__name__ == "deque":
            return self._all(sha, [len(value), *value], depth)
        if isinstance(value, dict):
            return self._all(sha, [len(value), *(part for pair in [*value.items()] for part in pair)], depth)
        if kind.__name__ in ITERATORS and kind.__module__ == "builtins":
            return self._update(sha, value.__reduce__()[1:], depth - 2)  # two levels of it are not of the program
        if kind in (set, frozenset):
            return self._all(sha, [len(value), *sorted(self._apart(part, depth) for part in [*value])], depth)
        return self._of_library(sha, value, depth)

    def _all(self, sha: Any, parts: list[Any], depth: int) -> bool:
        for part in parts:
            sha.update(b"," if self._update(sha, part, depth + 1) else b"?")
        return True

    def _apart(self, value: Any, depth: int) -> str:
        sha = hashlib.blake2b(digest_size=6)
        self._update(sha, value, depth + 1)
        return sha.hexdigest()

    def _text(self, text: str) -> str:
        for folder in self._folders if len(text) < LOOKED else ():
            text = text.replace(folder, "")
        return text

    def _of_library(self, sha: Any, value: Any, depth: int) -> bool:
        kind, module = type(value), type(value).__module__.partition(".")[0]
        if module == "torch":
            return self._of_torch(sha, value, depth)
        if module == "numpy":
            return self._of_numpy(sha, value, depth)
        if module == "pandas":
            return hasattr(value, "to_numpy") and self._update(sha, value.to_numpy(), depth)
        if module == "random":
            return self._update(sha, hash(value.getstate()[1]), depth)  # of numbers alone, which no seed changes
        if module == "datetime":
            return self._update(sha, repr(value), depth)
        if kind is functools.partial:
            return self._update(sha, [value.args, value.keywords], depth)
        if module not in HOLDERS and module != "sklearn" and not _is_own(kind):
            return False
        return self._update(sha, _attributes(value), depth)

    def _of_torch(self, sha: Any, value: Any, depth: int) -> bool:
        torch: Any = sys.modules["torch"]
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            if value.device.type != "cpu" or value.layout is not torch.strided:
                return False
            sha.update(f"{value.dtype}{tuple(value.shape)}{value.stride()}".encode())
            # Not all of its memory: beside the shown part there may be others' data, or unwritten memory.
            last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
            sha.update(_ends(value.data_ptr(), (last + 1) * value.element_size() if value.numel() else 0))
            return True
        if type(value) is torch.Generator:
            state = value.get_state().untyped_storage()
            sha.update(_ends(state.data_ptr(), state.nbytes()))
            return True
        if isinstance(value, torch.optim.Optimizer):
            rows = [{name: part for name, part in group.items() if name != "params"} for group in value.param_groups]
            return self._update(sha, rows, depth)
        if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            return self._update(sha, [value.last_epoch, _attributes(value).get("_last_lr")], depth)
        if type(value).__module__.startswith("torch.utils.data"):
            return self._update(sha, {name: part for name, part in _attributes(value).items() if name not in DATA}, depth)
        return False

    def _of_numpy(self, sha: Any, value: Any, depth: int) -> bool:
        numpy: Any = sys.modules["numpy"]
        if isinstance(value, numpy.ndarray):
            sha.update(f"{value.dtype}{value.shape}".encode())
            if value.dtype.hasobject:
                return self._update(sha, value.reshape(-1)[:PARTS].tolist(), depth)
            flat = numpy.ascontiguousarray(value).reshape(-1)
            sha.update(flat[:LOOKED].tobytes())
            sha.update(flat[-LOOKED:].tobytes())
            return True
        if isinstance(value, numpy.generic):
            return self._update(sha, value.tobytes(), depth)
        if isinstance(value, numpy.random.Generator):
            return self._update(sha, repr(value.bit_generator.state), depth)
        if isinstance(value, numpy.random.RandomState):
            return self._update(sha, value.get_state(legacy=False)["state"]["key"], depth)
        return False


class _Frame:
    """A frame: its number, its caller's, its code, and the values when it was last looked at."""

    def __init__(self, number: int, caller: int, code: CodeType) -> None:
        self.number, self.caller, self.code = number, caller, code
        self.values: dict[str, str] = {}
        self.is_skipped = False


def _parts(name: str, value: Any, used: set[str], depth: int = 0) -> list[tuple[str, Any]]:
    """Return a variable's noted parts: of the user's own objects, the attributes that its code uses, by the class."""
    kind = type(value)
    if depth > DEPTH or not (_is_own(kind) or kind.__module__.partition(".")[0] in HOLDERS):
        return [(name, value)]
    held = [(part, inner) for part, inner in _attributes(value).items() if part in used]
    # Else all of an object would differ by any of its attributes, such as a time that is only shown.
    parts = [row for part, inner in held for row in _parts(f"{kind.__name__}.{part}", inner, used, depth + 1)]
    is_empty = name == "self" and not isinstance(value, CONTAINERS)
    return parts or ([] if is_empty else [(name, value)])


def _is_own(kind: type) -> bool:
    """Return True for a class that is neither Python's nor a library's."""
    module = kind.__module__
    if module == "__main__":  # also of `python -m`, whose module may be a library's that runs the user's file
        return True
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    return "site-packages" not in (getattr(sys.modules.get(module), "__file__", None) or "")


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes that an object holds, also in slots, without asking its class."""
    attributes: dict[str, Any] = {}
    for kind in type(value).__mro__:
        for name, part in vars(kind).items():
            if type(part) is MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # nothing is in it yet
                    attributes[name] = part.__get__(value)
    with contextlib.suppress(AttributeError):
        held = object.__getattribute__(value, "__dict__")
        attributes |= held if isinstance(held, dict) else {}
    return attributes


def _ends(address: int, size: int) -> bytes:
    """Return the bytes of memory at its beginning and at its end."""
    if size <= 2 * LOOKED:
        return ctypes.string_at(address, size) if size else b""
    return ctypes.string_at(address, LOOKED) + ctypes.string_at(address + size - LOOKED, LOOKED)


def _shared_generators() -> Iterator[tuple[str, str]]:
    """Yield the generators that all libraries share, with the digests of their states."""
    random: Any = sys.modules.get("random")
    if hasattr(random, "getstate"):
        yield RANDOM, f"{hash(random.getstate()[1]) & 0xFFFFFFFFFFFF:x}"
    numpy: Any = sys.modules.get("numpy.random")
    if hasattr(numpy, "get_state"):
        state = numpy.get_state(legacy=False)["state"]
        yield NUMPY, _short(state["key"].tobytes() + bytes(str(state["pos"]), "ascii"))
    torch: Any = sys.modules.get("torch")
    # Half imported, as where another thread runs meanwhile, its generator cannot be read without a crash.
    if hasattr(torch, "default_generator") and not getattr(torch.__spec__, "_initializing", False):
        state = torch.default_generator.get_state().untyped_storage()
        yield TORCH, _short(ctypes.string_at(state.data_ptr(), state.nbytes()))


def _short(state: bytes) -> str:
    return hashlib.blake2b(state, digest_size=6).hexdigest()
