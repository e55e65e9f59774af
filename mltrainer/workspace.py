"""The project's folder: the paths in it, and functions that read, write and digest files.

Every file is written whole or not at all: a temporary file in the same folder, fsync, rename.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeGuard, get_args

from mltrainer.errors import InputError, InUseError, MachineError
from mltrainer.leftovers import new_file, new_folder, sweep, sweep_below
from mltrainer.locks import take
from mltrainer.looking import is_looking, within
from mltrainer.redaction import keep_private, redact, redacted

PhaseName = Literal["planning", "baseline", "diagnostics", "optimization", "finalization"]
PHASES: tuple[str, ...] = get_args(PhaseName)
TRAINING: tuple[str, ...] = ("baseline", "finalization")  # the phases whose evidence is a run that they trained
OF_MANY = ("optimization", "ablation")  # what runs name as their phase that are some of many on the same data
PROJECT_FILE = "mltrainer.yaml"
STATE_DIR = ".mltrainer"  # of files that are found by digest and stay out of git
FORGOTTEN_FOLDER = "forgotten"  # in the project: files of forgotten rows, each named by its content
WEIGHTS_FOLDER = "weights"  # in the project: weights that were imported
MODEL_FOLDER = "final_model"  # in finalization's folder: the delivered model
MODEL_CARD = "README.md"
SUPERSEDED_FILE = "SUPERSEDED.md"  # in the model's folder: another model takes its place
MODEL_SIGNATURE = "model.sig"  # in the model's folder, over all its other files
LOCK_FILE = "lock"  # in the state folder: held by the process that runs a phase
RUNNING_FILE = "running.json"  # beside it: the phase
SERVED_FILE = "served.sqlite"  # in the state folder: the answers of `mltrainer serve`
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")  # endings of picture files
MOST_BYTES = 1 << 26  # of a file that is read at once: enough for a record of 20,000 evaluations
MOST_VALUES = 4_000_000  # of a JSON text: some 400 MB in memory
MOST_DIGITS = 300  # of a whole number; every float has fewer
NOT_TEXT = "backslashreplace"  # for a byte of a name that is no text, which JSON writes so, too
READ_AT_ONCE = 1 << 18  # bytes; larger files are digested piece by piece
MACHINE_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK, errno.ENODEV, errno.ETIMEDOUT),
}
NAME_ERRNOS = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR}  # a given path cannot be the intended file


# --- values and digests -------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value in JSON's types; a number that is not finite becomes "nan", "inf" or "-inf"."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical(value: Any) -> bytes:
    """Return the canonical JSON text of a value: sorted keys, no spaces, UTF-8."""
    return _canonical(plain(value)).encode(errors=NOT_TEXT)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return sha256_bytes(canonical(value))


def digest_of_plain(value: Any) -> str:
    """Return the digest of a value read from JSON, without the copy by `plain`, which takes a while for a whole record.

    Raises:
        ValueError: The value holds a number that is not finite.
    """
    return sha256_bytes(_canonical(value).encode(errors=NOT_TEXT))


def seal(content: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping with a seal, the digest of everything else in it, by which an edit is noticed.

    A value that may hold a secret is redacted before it is sealed.
    """
    unsealed = without_seal(content)
    return {**unsealed, "seal": digest(unsealed)}


def is_sealed(content: Any) -> bool:
    """Return True if a mapping that was read from JSON still matches its seal."""
    if not isinstance(content, dict) or "seal" not in content:
        return False
    try:
        return bool(digest_of_plain(without_seal(content)) == content["seal"])
    except ValueError:
        return False


def without_seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without its seal: the part that the seal covers."""
    return {key: value for key, value in content.items() if key != "seal"}


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < READ_AT_ONCE:
            return sha256_bytes(file.read())
        return hashlib.file_digest(file, "sha256").hexdigest()


def pictures_below(folder: Path) -> list[str]:
    """Return the picture files of a folder and those below it, relative to it and sorted; hidden ones are left out."""
    found = _files_below(folder)
    return sorted(path for path in found if path.lower().endswith(PICTURES) and not os.path.basename(path).startswith("."))


def _files_below(folder: Path) -> Iterator[str]:
    """Yield the files below a folder, relative to it; hidden folders are left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = os.path.relpath(place, folder)
        yield from files if inside == "." else (f"{inside}/{name}" for name in files)


def files_of_model(folder: Path) -> list[Path]:
    """Return the files of a delivered model's folder, sorted, without its card, signature and mark, and Python's caches."""
    found = (path for path in folder.rglob("[!.]*") if path.is_file() and path.parent.name != "__pycache__")
    return sorted(
        path for path in found if path not in {folder / name for name in (MODEL_CARD, MODEL_SIGNATURE, SUPERSEDED_FILE)}
    )


def folder_sha256(folder: Path, known: Mapping[str, str] | None = None) -> str:
    """Return the digest of a folder of pictures, over their names and digests.

    Args:
        folder: The folder.
        known: The digests that are known already, by the file's path in the folder; None: none is.
    """
    given = known or {}
    return digest([[name, given.get(name) or sha256_file(folder / name)] for name in pictures_below(folder)])


TREE = "/**/*"  # in a record's path, between a folder and an ending: all files below it with that ending
MOST_OF_TREE = 4 << 30  # bytes; above, names and sizes stand for the files' content


def tree_of(path: str) -> tuple[str, str] | None:
    """Return folder and ending of a path such as `clips/**/*.npy`; None for the path of one file."""
    folder, is_tree, ending = path.partition(TREE)
    return (folder, ending) if is_tree and ending.startswith(".") else None


def files_of_tree(folder: Path, ending: str) -> list[str]:
    """Return the files below a folder with an ending, relative to it and sorted; hidden folders are left out."""
    return sorted(path for path in _files_below(folder) if os.path.splitext(path)[1] == ending)


def tree_sha256(folder: Path, ending: str) -> str:
    """Return the digest of the files below a folder with an ending: names and digests, or sizes above `MOST_OF_TREE`."""
    names = files_of_tree(folder, ending)
    sizes = [(folder / name).stat().st_size for name in names]
    if sum(sizes) > MOST_OF_TREE:
        return digest([[name, size] for name, size in zip(names, sizes, strict=True)])
    return digest([[name, sha256_file(folder / name)] for name in names])


def pretty_json(value: Any) -> bytes:
    """Return a value as indented JSON with sorted keys, which people can read in a diff."""
    return _indented(plain(value))


def _indented(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode(errors=NOT_TEXT)


# --- files --------------------------------------------------------------------------------------


def require_new(path: Path, where: str, hint: str = "--to another folder, or remove it") -> None:
    """Refuse a folder to write that is there already; `where` names it as the user did.

    Raises:
        InputError: It exists, as a link that leads nowhere, too.
    """
    if path.exists() or path.is_symlink():
        raise InputError("it exists already: nothing is written over it", where=where, hint=hint)


def raise_machine_fault(error: BaseException, path: Path) -> None:
    """Raise a fault of the machine that a library met at a file; some hide it in an error of their own, so the text counts too.

    Raises:
        MachineError: The disk or a permission failed.
    """
    text = str(error)
    # In torch's and safetensors' words, and in those of ONNX Runtime.
    hidden = (code for code in MACHINE_ERRNOS if re.search(rf"{os.strerror(code)}|system error number {code}\b", text))
    code = error.errno if isinstance(error, OSError) else next(hidden, None)
    # What safetensors says of any file that it cannot open; with a number it is another file, such as a compiler.
    if isinstance(error, FileNotFoundError) and error.errno is None and path.exists():
        code = errno.EIO
    if code in MACHINE_ERRNOS:
        with machine_faults(str(path)):
            raise OSError(code, " ".join(text.split())[:300]) from error


def is_of_machine(error: BaseException) -> TypeGuard[OSError]:
    """Return True if the machine failed: there was no space, no permission, or a disk did not answer."""
    return isinstance(error, OSError) and error.errno in MACHINE_ERRNOS


@contextlib.contextmanager
def machine_faults(what: str) -> Iterator[None]:
    """Turn the machine's failures (space, permission, I/O) into a `MachineError` that names the file."""
    try:
        yield
    except OSError as error:
        if not is_of_machine(error):
            raise
        hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the file's permissions and its disk"
        raise MachineError(error.strerror or str(error), where=what, hint=f"{hint}, then type the same command again") from error


def sync(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file with the given bytes, so that readers see either the old content or the new, whole.

    For contents that must not change: no text, the user's own text, and files made of sealed records alone and compared with
    them. Everything else goes through `write_text`, `write_json` and `append_json_line`, which remove secrets.

    Raises:
        MachineError: There is no space, no permission, or the disk failed; the old file is untouched.
    """
    with machine_faults(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = new_file(path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                # Synced to the disk before the rename: a power cut must not take the content of a file with the new name.
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)  # before it is closed, which frees the lock: a sweep would remove it as a leftover
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        # The rename itself lasts only when the folder is on the disk as well.
        sync(path.parent)


@contextlib.contextmanager
def new_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write a large file to, which is renamed to its own path at the end; where the block fails, it is not.

    Raises:
        MachineError: There is no space, no permission, or the disk failed.
    """
    with machine_faults(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(path.parent) as folder:
            yield (temporary := folder / path.name)
            # Synced before the rename: after a power cut no half-written file has the name of a whole one.
            sync(temporary)
            os.replace(temporary, path)
        sync(path.parent)  # the rename itself


def write_text(path: Path, text: str) -> None:
    """Write a text without the secrets in it, atomically."""
    write_atomic(path, redact(text).encode(errors=NOT_TEXT))


def write_json(path: Path, value: Any) -> None:
    """Write a value without the secrets in it as readable JSON, atomically."""
    write_atomic(path, _indented(redacted(plain(value))))


def append_json_line(path: Path, value: Any) -> None:
    """Append a value without the secrets in it to a file of JSON lines; see `append_json_lines`."""
    append_json_lines(path, [value])


def append_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Append values without the secrets in them to a file of JSON lines, with a single search for secrets, which takes a while.

    Raises:
        MachineError: There is no space, no permission, or the disk failed.
    """
    # Made before the file is opened: a value that is no JSON must not leave half of the lines.
    lines = [json.dumps(value) + "\n" for value in redacted(plain([*values]))]
    with machine_faults(str(path)), open(path, "a+b") as file:
        file.write((_end_of_torn(file) + "".join(lines)).encode())


def _end_of_torn(file: IO[bytes]) -> str:
    """Return the end of a line that a killed process left half, so that no other is joined to it; readers pass over it."""
    if file.seek(0, os.SEEK_END) == 0:
        return ""
    file.seek(-1, os.SEEK_END)
    return "" if file.read(1) == b"\n" else "\n"


def redact_file(path: Path) -> str:
    """Remove the secrets from a file of other processes, such as a log, and return the text without them.

    Raises:
        OSError: The file cannot be read.
        MachineError: The file cannot be written.
    """
    text = path.read_text("utf-8", errors="replace")
    if (clean := redact(text)) != text:
        write_atomic(path, clean.encode())
    return clean


def read_whole(path: Path, most: int = MOST_BYTES, most_lines: int | None = None) -> bytes:
    """Return the bytes of a file that is read at once.

    Args:
        path: The file.
        most: The largest number of bytes for a command that only looks; a command that trains reads its own files whole.
        most_lines: The largest number of lines for a command that only looks; None: any number.

    Raises:
        InputError: The file has more.
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        if not is_looking():
            return file.read()
        # One byte more than allowed, which shows that a file is too large without reading all of it.
        data = file.read(most + 1)
    if len(data) > most:
        found = f"more than {most} bytes, which no file of its kind has"
    elif most_lines is not None and data.count(b"\n") > most_lines:
        found = f"more than {most_lines} lines, which no file of its kind has"
    else:
        return data
    raise InputError(found, where=str(path), hint="bring back the file that mltrainer wrote, or remove it")


def from_json(text: bytes | str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text from any source.

    Args:
        text: The text.
        pairs: A function that makes a mapping of its pairs, in place of `dict`.

    Raises:
        ValueError: The text is no JSON, is nested too deeply, has a whole number with too many digits for a measurement, or, for
            a command that only looks, has more values than fit into its memory.
    """
    # Counted before it is parsed: as objects of Python the values take many times the text's memory.
    if is_looking() and _values(text) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values")
    try:
        return json.loads(text, object_pairs_hook=pairs, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_or_none(text: bytes | str) -> Any:
    """Return the value of a JSON text; None where it is no JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_number(value: Any) -> bool:
    """Return True for a number, finite or not; in Python a truth value is an int, too, and is none here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def without_none(**parts: Any) -> dict[str, Any]:
    """Return the parts that are not None: a record without them has the bytes of versions before these parts."""
    return {name: part for name, part in parts.items() if part is not None}


def _values(text: bytes | str) -> int:
    """Return an upper bound for the number of values in a JSON text."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    return sum(raw.count(sign) for sign in (b",", b"[", b"{"))


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


RESTORE = "bring this file back as it was, such as from git or a copy"


def read_json(path: Path, hint: str = RESTORE) -> Any:
    """Return the content of a JSON file that this program wrote.

    Args:
        path: The file.
        hint: The next step where it is missing or damaged.

    Raises:
        InputError: The file is missing or is not JSON (blank, truncated, edited).
    """
    try:
        return from_json(read_whole(path))
    except FileNotFoundError as error:
        raise InputError("no such file", where=str(path), hint=hint) from error
    except ValueError as error:
        raise InputError(f"not readable as JSON: {error}", where=str(path), hint=hint) from error


def read_if_whole(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty where the file is missing, damaged or being replaced, which others report."""
    try:
        found = read_json(path)
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


# --- the project --------------------------------------------------------------------------------


def phase_folder(phase: str) -> str:
    """Return the folder of a phase's artifacts in a project, and of its pages in the handbook, such as `phases/01_planning`."""
    return f"phases/{PHASES.index(phase) + 1:02d}_{phase}"


@dataclass(frozen=True)
class Project:
    """A project's folder and the places in it.

    Attributes:
        root: The folder that holds `mltrainer.yaml`, resolved.
    """

    root: Path

    @property
    def file(self) -> Path:
        """The one file a user must write."""
        return self.root / PROJECT_FILE

    @property
    def state_dir(self) -> Path:
        """The git-ignored folder of runs, checkpoints and caches."""
        return self.root / STATE_DIR

    @property
    def runs_dir(self) -> Path:
        """The folder with one folder per run."""
        return self.state_dir / "runs"

    def phase_dir(self, phase: str) -> Path:
        """Return the folder of a phase's artifacts, such as `phases/01_planning`."""
        return self.root / phase_folder(phase)

    def relative(self, path: Path) -> str:
        """Return a path in the form of records and messages: relative to the project, with forward slashes."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()


def find_project(start: Path) -> Project:
    """Return the project whose folder is `start` or the nearest one above it.

    Raises:
        InputError: No `mltrainer.yaml` is there.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / PROJECT_FILE).is_file():
            within(str(folder))
            keep_private(str(folder))
            return Project(folder)
    raise InputError(
        f"no {PROJECT_FILE} in {start} or above it",
        hint="go to your project's folder, name it with --project, or make one with `mltrainer init`",
    )


@contextlib.contextmanager
def locked_project(project: Project) -> Iterator[None]:
    """Hold the lock of a project, as `locked` does; what killed commands left unfinished in it is removed first."""
    with locked(project.state_dir / LOCK_FILE, f"the project {project.root.name}"):
        (project.state_dir / RUNNING_FILE).unlink(missing_ok=True)
        sweep(project.root)
        for name in (STATE_DIR, "phases", FORGOTTEN_FOLDER, WEIGHTS_FOLDER):
            sweep_below(project.root / name)
        yield


@contextlib.contextmanager
def locked(path: Path, what: str, may_wait: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold a lock file for the length of a block; the kernel frees it when the process dies.

    Args:
        path: The lock file, which names its holder.
        what: The name of the locked thing, for the message.
        may_wait: A function that is called about twenty times a second while another process holds the lock, and returns whether
            to wait for it.

    Raises:
        InUseError: Another process holds the lock.
        MachineError: The lock file cannot be written.
    """
    with machine_faults(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not emptied yet: until the lock is taken, the text in it is its holder's.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(descriptor, may_wait)
    except BlockingIOError:
        holder = os.read(descriptor, 500).decode(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise InUseError(f"{what} is in use by {holder}", hint="wait until it ends, or stop it") from None
    _HELD.add(descriptor)
    try:
        holder = f"process {os.getpid()} on {socket.gethostname()} ({' '.join(Path(a).name for a in sys.argv[:3])})"
        with machine_faults(str(path)):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, holder.encode())
        yield
    finally:
        # Only by the process that took it: a fork that unwinds through here would empty the text of the holder, or
        # close another file of its own, which has the same number by then.
        if descriptor in _HELD:
            _HELD.discard(descriptor)
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


_HELD: set[int] = set()  # descriptors of the locks that this process holds


def _let_go() -> None:
    """Close inherited locks in a forked process, such as a loader worker: it may outlive the process that took them."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_let_go)


def _take(descriptor: int, may_wait: Callable[[], bool]) -> None:
    """Take a lock; try several times at least, because `is_locked` holds it for a moment."""
    for tries in itertools.count(1):
        try:
            take(descriptor)
            return
        except BlockingIOError:
            if tries > 3 and not may_wait():
                raise
        time.sleep(0.05)


def is_locked(path: Path) -> bool:
    """Return True while a live process holds a lock file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        take(descriptor, shared=True)  # two processes that look do not count as holders
    except OSError as error:  # any but the first: there are no locks here, and so no process holds one
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False
