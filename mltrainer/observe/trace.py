"""A program's computations, operation by operation, and its own lines that ran before, written down to be compared.

Slow, and used only to find why two runs differ. Nothing is computed otherwise: operations are seen through PyTorch's dispatch
modes and modules through its global hooks, lines through the interpreter's own tracing.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import os
import random
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings

MOST = 400_000  # lines of one process
LOOKED = 1 << 22  # bytes of memory that may be unwritten, at its beginning
WRITES = os.O_WRONLY | os.O_RDWR
UNPACKING = os.path.join("torch", "multiprocessing", "reductions.py")
EMPTIES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")  # operations that give memory as it is
ARITHMETIC = (
    *("add_", "sub_", "mul_", "div_", "pow_", "lerp_", "addcmul_", "addcdiv_", "clamp_", "relu_", "abs_", "neg_", "sqrt_"),
    *("index_add_", "scatter_add_", "scatter_reduce_"),
)
BY_INDEX = ("index_put_", "index_copy_", "index_fill_", "scatter_", "masked_fill_", "masked_scatter_", "put_")  # write parts
OURS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def begin(settings: Settings, process: Process) -> Trace:
    """Return the observer of this process; its own lines are noted from here on."""
    trace = Trace(process, settings.program, settings.near, is_quiet=settings.quiet)
    trace.install()
    return trace


class Trace:
    """Notes operations, modules, gradients, generators' states and lines of the user's own code.

    Args:
        process: Its name, and where the lines go.
        program: The folder that the program runs in: a library in it is the user's own code.
        near: The step before which lines are looked at again; 0 for none.
        is_quiet: Whether nothing but generators is noted from the end of the first step until then.
    """

    def __init__(self, process: Any, program: str, near: int = 0, *, is_quiet: bool = False) -> None:
        self._near, self._first_quiet = near, 2 if is_quiet else near
        self._lines = process.lines("trace")
        self._program = os.path.join(os.path.realpath(program), "") if program else ""
        libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        libraries |= {*site.getsitepackages(), OURS}
        self._libraries = tuple(os.path.join(os.path.realpath(path), "") for path in libraries if path)
        self._own: dict[str, str | None] = {}
        self._noted_lines: set[tuple[str, int, str]] = set()
        self._modules: list[str] = []
        self._unwritten: dict[int, tuple[str, int, str]] = {}  # memory that nobody has written: which line asked for it
        self._written: dict[int, int] = {}  # bytes of it that operations have written since
        self._first_digests: dict[int, bytes] = {}  # its content then, by digest
        self._names: dict[int, str] = {}
        self._step, self._count = 1, 0
        self._busy = threading.local()
        self._rests = False
        self._values: Any = None
        process.on_fork(self._reset)

    def _reset(self) -> None:
        self._noted_lines, self._count = set(), 0
        if self._values is not None:
            self._values.reset()

    def install(self) -> None:
        """Begin to note the lines of the user's own code, in this thread and all later ones."""
        sys.addaudithook(self._opened)
        threading.settrace(self._calls)
        sys.settrace(self._calls)

    def _opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note the user's own line that opens a file of the program's folder to write it."""
        if event != "open" or not isinstance(arguments[0], (str, bytes)) or not (arguments[2] or 0) & WRITES:
            return
        if self._program and os.path.realpath(os.fsdecode(arguments[0])).startswith(self._program):
            where = self._where()
            if where:
                self._note("write", *where[:2])

    def note_values(self, values: ModuleType) -> None:
        """Begin to note the values of variables, by a module that was loaded like this one."""
        folders = [path for path in (self._program, os.environ.get("TMPDIR")) if path]
        self._values = values.Values(self._lines, self._place, sorted({*folders, *map(os.path.realpath, folders)}, key=len)[::-1])

    def attach(self, torch: Any) -> None:
        """Begin to note the computations, once torch has been imported."""
        self._torch, self._thread = torch, threading.get_ident()
        modules, optimizers = sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"]
        modules.register_module_forward_pre_hook(self._enter)
        # Also where a module raises: the stack of modules would else be one too deep from then on.
        modules.register_module_forward_hook(self._leave, always_call=True)
        optimizers.register_optimizer_step_pre_hook(self._before)
        optimizers.register_optimizer_step_post_hook(self._after)
        dispatch = importlib.import_module("torch.utils._python_dispatch")
        trace = self

        class Mode(dispatch.TorchDispatchMode):  # type: ignore[misc,name-defined]  # torch is imported by the program
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return trace._operation(function, args, kwargs or {})

        self._mode = Mode()
        self._mode.__enter__()

    # --- lines ---

    def _calls(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._place(frame) is None:
            return None
        self._note_values(frame, event, argument)
        return self._each_line

    def _note_values(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._values is None or event == "exception" or getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            # A library may be half imported, or hold what its own kind does not: the program itself must not fail by it.
            with contextlib.suppress(Exception):
                self._values.note(frame, event, argument)
        finally:
            self._busy.now = False

    def _each_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self._values is not None and self._values.is_spent(frame):
            return self._each_line  # most lines of a slow program are such
        self._note_values(frame, event, argument)
        # Not by the code object: those of two files are equal where both files are empty.
        line = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
        if event == "line" and line not in self._noted_lines:
            self._noted_lines.add(line)
            self._note("line", self._place(frame), frame.f_lineno, _qualified(frame.f_code))
        return self._each_line

    def _place(self, frame: FrameType) -> str | None:
        """Return the file of the user's own code of a frame, or None."""
        name = frame.f_code.co_filename
        if name.startswith("<"):
            return name if frame.f_globals.get("__name__") == "__main__" and not name.startswith("<frozen") else None
        if name not in self._own:
            self._own[name] = self._own_file(name)
        return self._own[name]

    def _own_file(self, name: str) -> str | None:
        path = os.path.realpath(name)
        if self._program and path.startswith(self._program) and "site-packages" not in path:
            return path
        return None if path.startswith(self._libraries) or "site-packages" in path else path

    def _where(self) -> tuple[str, int, str] | None:
        """Return file, line and function of the innermost frame of the user's own code.

        None where a tensor of another process is unpacked: the order of these says nothing about the computation.
        """
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename.endswith(UNPACKING):
                return None
            place = self._place(frame)
            if place is not None:
                return place, frame.f_lineno, _qualified(frame.f_code)
            frame = frame.f_back
        return "", 0, ""

    # --- what is computed ---

    def _operation(self, function: Any, args: Any, kwargs: Any) -> Any:
        if self._rests or getattr(self._busy, "now", False):
            return function(*args, **kwargs)
        name, where = str(function), self._where()
        if where is None:
            return function(*args, **kwargs)
        # Both before it runs: an operation in place changes its inputs.
        unwritten = self._unwritten_of((args, kwargs))
        inputs = self._digests((args, kwargs))
        result = function(*args, **kwargs)
        base, is_mutable = name.split(".")[1], function._schema.is_mutable
        made = self._pointers(result)
        if base in EMPTIES:
            self._unwritten.update(dict.fromkeys(made, where))
            self._written.update(dict.fromkeys(made, 0))
            self._first_digests.update(self._unwritten_digests(result))
        elif is_mutable:
            self._note_written(result, self._parts_written(base, args))
        elif not unwritten:
            for pointer in made:
                self._unwritten.pop(pointer, None)
        is_view = not is_mutable and any(pointer in self._unwritten for pointer in made)
        in_parts = is_view or (base in BY_INDEX and any(pointer in self._unwritten for pointer in made))
        if in_parts and any(self._written.get(pointer) for pointer in made):
            return result  # written in parts: the unwritten parts differ
        is_read = bool(unwritten) and (base in ARITHMETIC if is_mutable else not is_view)
        read = next(iter(unwritten.values())) if is_read else None
        place = self._modules[-1] if self._modules else ""
        outputs = self._digests((result, _written(function._schema, args, kwargs)) if is_mutable else result)
        self._note("op", self._step, name, place, inputs, outputs, *(read or where), read is not None)
        return result

    def _parts_written(self, operation: str, given: Any) -> int | None:
        """Return the number of elements that an operation writes at most where an index says which; None for all."""
        tensors: list[Any] = []
        _gather(self._torch, given[1:], tensors)
        counts = [tensor.numel() for tensor in tensors if tensor.dtype is not self._torch.bool]
        return max(counts, default=1) if operation in BY_INDEX else None

    def _note_written(self, result: Any, parts: int | None) -> None:
        """Note what an operation in place has written; memory that is written in parts counts once they add up to all of it."""
        tensors: list[Any] = []
        _gather(self._torch, result, tensors)
        for tensor in [t for t in tensors if t.layout is self._torch.strided and t.device.type != "meta"]:
            storage = tensor.untyped_storage()
            pointer, written = storage.data_ptr(), (tensor.numel() if parts is None else parts) * tensor.element_size()
            self._written[pointer] = self._written.get(pointer, 0) + written
            if self._written[pointer] >= storage.nbytes():
                self._unwritten.pop(pointer, None)

    def _pointers(self, result: Any) -> list[int]:
        """Return the memory addresses of the storages of a structure's tensors."""
        tensors: list[Any] = []
        _gather(self._torch, result, tensors)
        return [t.untyped_storage().data_ptr() for t in tensors if t.layout is self._torch.strided and t.device.type != "meta"]

    def _unwritten_of(self, structure: Any) -> dict[int, tuple[str, int, str]]:
        """Return the addresses of a structure's memory that nobody has written yet, with the lines that asked for it.

        What holds other bits than when it was given was written unseen: by a constructor that is given values, NumPy, or C code.
        """
        if not self._unwritten:
            return {}
        for pointer, digest in self._unwritten_digests(structure).items():
            if self._first_digests.get(pointer, digest) != digest and not self._written.get(pointer):
                self._unwritten.pop(pointer, None)
        return {p: self._unwritten[p] for p in self._pointers(structure) if p in self._unwritten}

    def _unwritten_digests(self, structure: Any) -> dict[int, bytes]:
        """Return the digests, by address, of the CPU's memory that may be unwritten."""
        tensors: list[Any] = []
        _gather(self._torch, structure, tensors)
        storages = [t.untyped_storage() for t in tensors if t.layout is self._torch.strided and t.device.type == "cpu"]
        chosen = {s.data_ptr(): s for s in storages if s.data_ptr() in self._unwritten and s.nbytes()}
        return {
            pointer: hashlib.sha256(ctypes.string_at(pointer, min(s.nbytes(), LOOKED))).digest() for pointer, s in chosen.items()
        }

    def _enter(self, module: Any, _inputs: Any) -> None:
        if not self._modules:  # the outermost one names those in it
            self._names.update({id(part): name for name, part in module.named_modules() if name})
            self._names.update({id(p): name for name, p in module.named_parameters()})
        self._modules.append(f"{self._names.get(id(module), 'the model')} ({type(module).__name__})")

    def _leave(self, module: Any, _inputs: Any, outputs: Any) -> None:
        name = self._modules.pop() if self._modules else ""
        # In which order threads come here is chance; their operations, which modes do not see there, are not noted either.
        if not self._rests and getattr(module, "training", True) and threading.get_ident() == self._thread:
            self._note("module", self._step, name, self._digests(outputs))

    def _before(self, _optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        self._generators()

    def _after(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        if not self._rests:
            self._note_update(optimizer)
        self._step += 1
        if self._first_quiet <= self._step < self._near and not self._rests:
            self._rest()
        elif self._step == self._near:
            self._look_again()
        # At each step and not at each operation, which would cost a system call for each.
        self._lines.flush()

    def _rest(self) -> None:
        """Note nothing more but generators, since lines cost much; memory allocated meanwhile counts as written."""
        self._rests = True
        sys.settrace(None)
        threading.settrace(None)
        self._unwritten.clear()

    def _look_again(self) -> None:
        if self._values is not None:
            self._values.look_again()
        if self._rests:
            self._rests = False
            threading.settrace(self._calls)
            sys.settrace(self._calls)  # frames that have begun before go on as they did

    def _note_update(self, optimizer: Any) -> None:
        parameters = self._parameters(optimizer)
        # All gradients before all weights: the first line that differs counts, and weights differ because gradients do.
        for name, parameter in parameters:
            if parameter.grad is not None:
                self._note("gradient", self._step, name, self._digests(parameter.grad))
        for name, parameter in parameters:
            self._note("weights", self._step, name, self._digests(parameter))

    def _parameters(self, optimizer: Any) -> list[tuple[str, Any]]:
        rows = [
            (f"parameter {number} of group {group}", p)
            for group, g in enumerate(optimizer.param_groups)
            for number, p in enumerate(g["params"])
        ]
        places = {number: place for place, number in enumerate(self._names)}  # an optimizer may have them in another order
        rows.sort(key=lambda row: places.get(id(row[1]), len(places)))
        return [(self._names.get(id(parameter), name), parameter) for name, parameter in rows]

    def _generators(self) -> None:
        """Note the states of the global generators, by digest."""
        torch = _digested(self._torch.get_rng_state().numpy().tobytes())
        self._note("generators", self._step, {**_drawn_from(), "torch": torch})

    def _digests(self, structure: Any) -> list[str]:
        """Return a digest of each part of an operation's inputs or outputs: tensors by their bits, the rest as text.

        After that of a tensor in memory comes `@` and its address: what another operation has given is known by both.
        """
        self._busy.now = True
        try:
            with self._torch.no_grad():
                return [self._digest(part) for part in _leaves(structure)]
        finally:
            self._busy.now = False

    def _digest(self, part: Any) -> str:
        sha, address = hashlib.sha256(), ""
        if isinstance(part, self._torch.Tensor):
            sha.update(f"{part.dtype}{list(part.shape)}".encode())
            strided = part.layout is self._torch.strided and not part.is_quantized
            # Memory that nobody has written holds chance: with its bits, each operation would differ that is merely given it.
            pointer = part.untyped_storage().data_ptr() if strided and part.device.type != "meta" else None
            address = f"@{pointer:x}" if pointer is not None else ""
            if pointer is not None and (pointer not in self._unwritten or self._written.get(pointer)):
                plain = part.detach().resolve_conj().resolve_neg().contiguous()
                plain = plain.as_strided((plain.numel(),), (1,))  # a single number may have another stride
                sha.update(plain.view(self._torch.uint8).cpu().numpy().tobytes())
        elif isinstance(part, self._torch.UntypedStorage) and part.device.type == "cpu":  # of which tensors are made
            sha.update(ctypes.string_at(part.data_ptr(), part.nbytes()) if part.nbytes() else b"")
        elif part is None or isinstance(part, (bool, int, float, str)):
            sha.update(repr(part).encode())
        return f"{sha.hexdigest()[:16]}{address}"

    def _note(self, *values: Any) -> None:
        if self._count < MOST:
            self._count += 1
            self._lines.write(*values, flush=values[0] in ("line", "generators"))


def _drawn_from() -> dict[str, str]:
    """Return the states of the generators that all libraries share, by digest."""
    numpy: Any = sys.modules.get("numpy.random")
    state = numpy.get_state(legacy=True) if hasattr(numpy, "get_state") else None  # half imported, it has none
    return {
        "random": _digested(repr(random.getstate()).encode()),
        "numpy": _digested(state[1].tobytes() + bytes(str(state[2]), "ascii")) if state is not None else "",
    }


def _digested(state: bytes) -> str:
    return hashlib.sha256(state).hexdigest()[:16]


def _qualified(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def _leaves(structure: Any) -> Iterator[Any]:
    """Yield the parts of a structure of lists, tuples and dicts."""
    parts = structure.values() if isinstance(structure, dict) else structure if isinstance(structure, (list, tuple)) else None
    if parts is None:
        yield structure
        return
    for part in parts:
        yield from _leaves(part)


def _written(schema: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments that an operation writes in place, which need not be among its results."""
    named = {**dict(zip((argument.name for argument in schema.arguments), args, strict=False)), **kwargs}
    return [named.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _gather(torch: Any, structure: Any, tensors: list[Any]) -> None:
    """Add a structure's tensors to a list."""
    if isinstance(structure, torch.Tensor):
        tensors.append(structure)
    elif isinstance(structure, (list, tuple)):
        for part in structure:
            _gather(torch, part, tensors)
    elif isinstance(structure, dict):
        for part in structure.values():
            _gather(torch, part, tensors)
