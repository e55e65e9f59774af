"""The checkpoint's format: a nested state as a safetensors file and a JSON file, in a folder that appears whole or not at all.

Nothing in it can be executed: tensors are raw bytes, everything else is JSON.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.manifest import (
    INTACT,
    MANIFEST_FILE,
    REPLACED,
    ROWS_FILE,
    TENSORS_FILE,
    TREE_FILE,
    Skipped,
    folder_name,
    manifest_bytes,
    newest_intact,
    read_manifest,
    read_verified,
    rows_files,
    step_of,
    sweep,
    unlisted,
)
from mltrainer.checkpointing.weights import raw_bytes
from mltrainer.errors import GateError, InputError
from mltrainer.leftovers import new_folder
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.common import FileRow
from mltrainer.workspace import machine_faults, sha256_file, sync

__all__ = ["Settled", "Skipped", "Snapshot", "Tree", "folder_name", "load", "newest_intact", "save", "snapshot", "sweep"]

_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.complex64: "C64",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.bool: "BOOL",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
_SCALARS = frozenset({type(None), bool, int, float, str})
Tree = dict[str, Any]  # a state as `snapshot` takes it
_PLAIN_TENSORS = (Tensor, nn.Parameter, nn.Buffer)
_MAX_HEADER_BYTES = 64 * 2**20  # of the tensors' file: some hundred thousand tensors


# --- snapshots ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """A state as it was at one moment: training may go on while it is saved.

    Attributes:
        tree: The state; its tensors are copies on the CPU, its containers are copies too.
        wait: Returns when the copies have arrived from the device.
    """

    tree: Any
    wait: Callable[[], None]


def snapshot(tree: Any) -> Snapshot:
    """Copy a state, in the training thread; copies from a GPU are queued, not waited for.

    Args:
        tree: Dicts, lists and tuples, nested, of tensors, None, bool, int, float and str. Dict keys are None, bool, int,
            float or str, or tuples of them. NumPy scalars become Python's. Tensors that share all their memory share their copy.
            What is `Settled` is not copied.

    Raises:
        InputError: Something else is in it; its place and type are named.
    """
    copier = _Copier()
    try:
        return Snapshot(copier.copy(tree), copier.waiter())
    except _RefusedError as refused:
        hint = "let state_dict() return tensors, numbers and text, in dicts and lists"
        raise InputError(f"a checkpoint cannot hold {refused}", where=_place(refused.value, tree, "state"), hint=hint) from None


class Settled(dict[str, Any]):
    """A dict of plain values that nobody changes any more, such as a row of the history: snapshots share it.

    A history is in every checkpoint; copying and encoding it for each would soon take longer than the weights.
    """

    @functools.cached_property
    def text(self) -> str:
        """The dict's JSON, as a checkpoint contains it."""
        return _json(_Encoder().encode(dict(self), ""))


@dataclass(frozen=True)
class Rows:
    """A process's rows of a tensor that no process holds whole: the tensor is all processes' rows, one after another."""

    tensor: Tensor


class _RefusedError(Exception):
    """A value that a checkpoint cannot hold; its place is searched only after this error, so that copying stays fast."""

    def __init__(self, value: Any, what: str) -> None:
        super().__init__(what)
        self.value = value


def _place(value: Any, tree: Any, path: str) -> str | None:
    """Return the path of a value in a tree, such as `state.model.0`; None if it is not in it."""
    if value is tree:
        return path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    return next((place for key, item in items if (place := _place(value, item, f"{path}.{key}"))), None)


def _is_plain_key(key: Any) -> bool:
    return type(key) in _SCALARS or (type(key) is tuple and _SCALARS.issuperset(map(type, key)))


class _Copier:
    """Copies one tree."""

    def __init__(self) -> None:
        self._copies: dict[Any, Tensor] = {}
        self._devices: set[torch.device] = set()

    def copy(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SCALARS or isinstance(value, Settled):
            return value
        if isinstance(value, dict):
            if not all(map(_is_plain_key, value)):
                raise _RefusedError(value, f"a dict with keys other than plain values: {list(value)[:3]}")
            return {k: v if type(v) in _SCALARS else self.copy(v) for k, v in value.items()}
        if kind is list:
            return [v if type(v) in _SCALARS else self.copy(v) for v in value]
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, Rows):
            return Rows(self._tensor(value.tensor))
        if kind is tuple or kind is torch.Size:
            return tuple(map(self.copy, value))
        if isinstance(value, np.generic) and type(value.item()) in _SCALARS:
            return value.item()
        raise _RefusedError(value, f"a {kind.__module__}.{kind.__qualname__}")

    def _tensor(self, tensor: Tensor) -> Tensor:
        if type(tensor) not in _PLAIN_TENSORS or tensor.layout != torch.strided or tensor.dtype not in _DTYPES or tensor.is_meta:
            raise _RefusedError(tensor, f"a {type(tensor).__name__} of {tensor.dtype}, {tensor.layout}, on {tensor.device}")
        view = (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        memory = (tensor.device, tensor.data_ptr(), *view)
        # An empty tensor has no memory: all of them share address 0.
        if tensor.numel() and memory in self._copies:
            return self._copies[memory]
        self._copies[memory] = copied = self._to_cpu(tensor.detach())
        return copied

    def _to_cpu(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != "cuda":
            return tensor.resolve_conj().resolve_neg().cpu().clone(memory_format=torch.contiguous_format)
        self._devices.add(tensor.device)
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)  # only pinned memory is copied to without waiting
        return pinned.copy_(tensor, non_blocking=True)

    def waiter(self) -> Callable[[], None]:
        """Return a function that waits for the copies queued so far."""
        events = [_event(device) for device in self._devices]

        def wait() -> None:
            for event in events:
                event.synchronize()

        return wait


def _event(device: torch.device) -> torch.cuda.Event:
    with torch.cuda.device(device):
        event = torch.cuda.Event()
        event.record()
    return event


# --- the tree as JSON ---------------------------------------------------------------------------

_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_SETTLED = f"settled-{os.urandom(16).hex()}"  # takes the place of a settled dict until its text is put in; no state can hold it


class _Encoder:
    """Turns a tree into JSON and collects its tensors by name.

    What JSON lacks is an object with one key that begins with `$`: `{"$tensor": name}`, `{"$tuple": [...]}`,
    `{"$float": "nan"}`, `{"$dict": [[key, value], ...]}` for keys that are not simple text, and `{"$rows": name}` for the tensor
    of which each file of rows has a part under that name.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.rows: dict[str, Tensor] = {}
        self._names: dict[int, str] = {}
        self._settled: list[Settled] = []

    def text(self, tree: Any) -> bytes:
        """Return a tree's JSON; a settled value in it was encoded once, and its text is inserted."""
        first, *others = _json(self.encode(tree, "")).split(_json(_SETTLED))
        placed = zip(self._settled, others, strict=True)
        return "".join([first, *(part for settled, after in placed for part in (settled.text, after))]).encode()

    def encode(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind in _SCALARS:
            return value
        if kind is dict:
            return self._dict(value, path)
        if isinstance(value, Settled):
            self._settled.append(value)
            return _SETTLED
        if isinstance(value, Tensor):
            return {"$tensor": self._name(value, path)}
        if isinstance(value, Rows):
            # By its place alone, which is the same in every process.
            self.rows[path[1:]] = value.tensor
            return {"$rows": path[1:]}
        items = [v if _is_plain_json(v) else self.encode(v, f"{path}.{n}") for n, v in enumerate(value)]
        return items if kind is list else {"$tuple": items}

    def _dict(self, value: dict[Any, Any], path: str) -> Any:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {k: v if _is_plain_json(v) else self.encode(v, f"{path}.{k}") for k, v in value.items()}
        return {"$dict": [[self.encode(k, path), self.encode(v, f"{path}.{k}")] for k, v in value.items()]}

    def _name(self, tensor: Tensor, path: str) -> str:
        """Return a tensor's name in the file: its path in the tree, with a number if the path is taken."""
        if id(tensor) not in self._names:
            base = path[1:].encode("utf-8", "backslashreplace").decode() or "tensor"
            name, number = base, 1
            # The name that safetensors' header keeps for itself is none for a tensor.
            while name in self.tensors or name == "__metadata__":
                name, number = f"{base}#{number}", number + 1
            self.tensors[name] = tensor
            self._names[id(tensor)] = name
        return self._names[id(tensor)]


def _is_plain_json(value: Any) -> bool:
    """Return True if JSON holds a value unchanged; most values are such, and need no name for their place."""
    kind = type(value)
    return math.isfinite(value) if kind is float else kind in _SCALARS


def _decode(node: Any, tensors: dict[str, Tensor], used: set[str]) -> Any:
    """Return the tree that JSON and tensors describe; tensors put together from rows are under `$rows` and their name.

    Raises:
        ValueError: The JSON was not made by an `_Encoder`.
    """
    if isinstance(node, list):
        return [_decode(item, tensors, used) for item in node]
    if not isinstance(node, dict):
        return node
    tag = next((key for key in node if key.startswith("$")), None)
    if tag is None:
        return {key: _decode(item, tensors, used) for key, item in node.items()}
    if len(node) != 1:
        raise ValueError(f"{tag!r} must be the only key of its object")
    return _decode_tagged(tag, node[tag], tensors, used)


def _decode_tagged(tag: str, value: Any, tensors: dict[str, Tensor], used: set[str]) -> Any:
    if tag == "$tensor":
        used.add(value)
        return tensors[value]
    if tag == "$rows":
        used.add(tag + value)
        return tensors[tag + value]
    if tag == "$tuple" and isinstance(value, list):
        return tuple(_decode(item, tensors, used) for item in value)
    if tag == "$float" and value in ("nan", "inf", "-inf"):
        return float(value)
    if tag == "$dict":
        return {_decode(key, tensors, used): _decode(item, tensors, used) for key, item in value}
    raise ValueError(f"{tag!r} is unknown, or its value {value!r:.60} is")


def _header(tensors: dict[str, Tensor]) -> bytes:
    """Return the header of a safetensors file whose data follows in this order (format: huggingface/safetensors, README)."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # data begins aligned
    return len(text).to_bytes(8, "little") + text


# --- saving -------------------------------------------------------------------------------------


Others = Callable[[], Sequence[tuple[Path, FileRow]]]


def save(folder: Path, snapshot: Snapshot, manifest: Mapping[str, Any], others: Others = tuple) -> None:
    """Write a checkpoint so that it appears whole or not at all, also through a crash or a power cut.

    Args:
        folder: The checkpoint's folder, such as `checkpoints/step-00000360`; an older checkpoint in it is replaced.
        snapshot: The state.
        manifest: Plain values that are recorded with it: step, epoch, metrics, contract, run. `step`, where it is
            missing, is the folder's.
        others: Returns the other processes' files of rows, which are moved into the checkpoint, once they are written.

    Raises:
        InputError: The folder's name is not the step's.
        MachineError: There is no space, no permission, or the disk failed; nothing else has changed.
    """
    step = step_of(folder)
    named = manifest.get("step", step)
    if step is None or named != step:
        raise InputError(expected=f"the folder of step {named}", found=folder.name, where=str(folder))
    # Copies from a GPU are only queued until here; a hash or a write before would read whatever the memory held.
    snapshot.wait()
    encoder = _Encoder()
    text = encoder.text(snapshot.tree)
    with machine_faults(str(folder)):
        _write(folder, encoder, text, {**manifest, "step": step}, others)


def save_rows(path: Path, snapshot: Snapshot) -> FileRow:
    """Write the rows of a state that this process alone holds into a new file, and return its row.

    Raises:
        MachineError: There is no space, no permission, or the disk failed.
    """
    snapshot.wait()
    encoder = _Encoder()
    encoder.encode(snapshot.tree, "")
    with machine_faults(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        return _write_file(path, _chunks(encoder.rows))


def _chunks(tensors: dict[str, Tensor]) -> list[bytes | memoryview]:
    """Return the content of a tensors' file."""
    # The widest first, so that each tensor begins at a multiple of its element's size; the header ends at one of 8.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
    return [_header(ordered), *map(raw_bytes, ordered.values())]


def _write(folder: Path, encoder: _Encoder, text: bytes, values: dict[str, Any], others: Others) -> None:
    parent, tensors = folder.parent, encoder.tensors
    parent.mkdir(parents=True, exist_ok=True)
    try:
        with new_folder(parent) as temporary:
            rows = [_write_file(temporary / TENSORS_FILE, _chunks(tensors)), _write_file(temporary / TREE_FILE, (text,))]
            if encoder.rows:
                rows.append(_write_file(temporary / ROWS_FILE.format(number=0), _chunks(encoder.rows)))
                rows += [_moved(path, row, temporary) for path, row in others()]
            # after the files it lists: their digests are known only now
            _write_file(temporary / MANIFEST_FILE, (manifest_bytes(values, rows),))
            sync(temporary)  # before the rename: after a power cut the name must not stand over missing files
            _put_in_place(temporary, folder)
    except OSError as error:
        raise _explained(error, parent, sum(t.nbytes for t in tensors.values()) + len(text)) from error


def _moved(path: Path, row: FileRow, folder: Path) -> FileRow:
    """Move a file of another process into a folder; return its row."""
    path.rename(folder / path.name)
    return row


def _write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> FileRow:
    """Write a new file through to the disk; return its row."""
    total, size = hashlib.sha256(), 0
    # Exclusive: the folder is new, so that anything under this name is not of this save.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for chunk in chunks:
            total.update(chunk)
            size += len(chunk)
            rest = memoryview(chunk)
            while len(rest):
                # One call may write less than it is given: Linux takes at most 2 GiB.
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return FileRow(path=path.name, sha256=total.hexdigest(), size=size)


def _put_in_place(temporary: Path, folder: Path) -> None:
    """Rename a finished folder to its name; an existing one steps aside until the new one has arrived."""
    replaced = folder.with_name(REPLACED + folder.name)
    if folder.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        # A folder cannot be renamed over one that holds files. After a crash in between, `newest_intact` undoes this.
        folder.rename(replaced)
    try:
        temporary.rename(folder)
    except OSError:
        if replaced.exists():
            replaced.rename(folder)
        raise
    # Before the old one is deleted: a power cut must not find the new name lost and the old files gone.
    sync(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _explained(error: OSError, parent: Path, needed: int) -> OSError:
    """Return the error with the bytes needed and the bytes free, if space is missing."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error
    space = f"the checkpoint needs {needed} bytes, {shutil.disk_usage(parent).free} are free"
    return OSError(error.errno, f"{error.strerror}: {space}; older checkpoints are untouched")


# --- loading ------------------------------------------------------------------------------------


def load(folder: Path, expected: Mapping[str, str] | None = None) -> tuple[Any, Manifest]:
    """Read a checkpoint back, bit for bit; sizes and digests are verified before a byte is interpreted.

    Args:
        folder: The checkpoint.
        expected: File name to SHA-256, where a record names them; otherwise the manifest alone is the measure.

    Returns:
        The state tree, with its tensors on the CPU, and the manifest.

    Raises:
        GateError: A file is not what the manifest or the record says, or not a checkpoint; with the expected and
            the found digest.
    """
    manifest = read_manifest(folder)
    _check_expected(folder, manifest, expected or {})
    if extra := unlisted(folder, manifest):
        raise GateError("; ".join(extra), where=str(folder), hint=INTACT)
    data = {row.path: read_verified(folder / row.path, row) for row in manifest.files}
    tensors = _parsed_tensors(data[TENSORS_FILE], folder / TENSORS_FILE)
    tensors |= _put_together([_parsed_tensors(data.pop(name), folder / name) for name in rows_files(manifest)], folder)
    return _parsed_tree(data[TREE_FILE], tensors, folder / TREE_FILE), manifest


def _check_expected(folder: Path, manifest: Manifest, expected: Mapping[str, str]) -> None:
    """Compare the files that a record names.

    Raises:
        GateError: One is something else.
    """
    digests = {**{row.path: row.sha256 for row in manifest.files}, MANIFEST_FILE: sha256_file(folder / MANIFEST_FILE)}
    for name, sha256 in digests.items():
        if name in expected and expected[name] != sha256:
            raise GateError(expected=f"sha256 {expected[name]}", found=sha256, where=str(folder / name), hint=INTACT)


def _parsed_tensors(data: bytes, path: Path) -> dict[str, Tensor]:
    """Return a verified file's tensors, each in separate memory.

    Raises:
        GateError: Somebody wrote something else under the right digest.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > min(_MAX_HEADER_BYTES, len(data) - 8):
            raise ValueError(f"a header of {size} bytes in a file of {len(data)}")
        shared = safetensors.torch.load(data)
        return {name: shared.pop(name).clone() for name in list(shared)}
    except (ValueError, KeyError, AssertionError, RuntimeError, safetensors.SafetensorError) as error:
        raise GateError(f"the digest is right, but this is no safetensors file: {error}", where=str(path), hint=INTACT) from error


def _put_together(files: list[dict[str, Tensor]], folder: Path) -> dict[str, Tensor]:
    """Return the tensors whose rows are spread over several files, under `$rows` and their name.

    Raises:
        GateError: The files do not belong together.
    """
    names = files[0] if files else {}
    try:
        if any(file.keys() != names.keys() for file in files):
            raise ValueError("their names differ")
        return {f"$rows{name}": torch.cat([file[name] for file in files]) for name in names}
    except (ValueError, RuntimeError) as error:
        raise GateError(
            f"the digests are right, but these files of rows are no state: {error}", where=str(folder), hint=INTACT
        ) from error


def _parsed_tree(data: bytes, tensors: dict[str, Tensor], path: Path) -> Any:
    """Return the tree that a verified file describes.

    Raises:
        GateError: Somebody wrote something else under the right digest.
    """
    used: set[str] = set()
    try:
        tree = _decode(json.loads(data), tensors, used)
        if used != set(tensors):
            raise ValueError(f"tensors that no place names: {sorted(set(tensors) - used)[:3]}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GateError(f"the digest is right, but this is no state: {error}", where=str(path), hint=INTACT) from error
    return tree
