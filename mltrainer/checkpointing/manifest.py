"""A checkpoint's manifest: the digests of its files, and the check that they still match. Needs no torch.

A checkpoint is a folder `step-00000360` with two files of state, a file of rows of each process that held some alone, and
`manifest.json`, written last, which holds the size and SHA-256 of the others, what the caller recorded (step, epoch, metrics,
contract, run), and a seal over all of it. Its bytes are the one JSON text of its content, so no byte of it can change unseen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from mltrainer.errors import GateError, MachineError
from mltrainer.leftovers import TEMPORARY, held
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.common import FileRow, dumped
from mltrainer.records.partial import partial
from mltrainer.redaction import redacted
from mltrainer.workspace import digest, from_json, machine_faults, plain, pretty_json, seal, sha256_bytes, sync, without_seal

TENSORS_FILE = "state.safetensors"
TREE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
STATE_FILES = (TENSORS_FILE, TREE_FILE)
ROWS_FILE = "rows-{number:04d}.safetensors"  # of a process, from 0: its rows of the tensors that no process held whole
START_FOLDER = "start"  # of a fork's run: holds the one checkpoint of its parent that it begins with
REPLACED = ".old-"  # a checkpoint for which another one of the same step is being renamed into place

INTACT = "bring its files back as they were written, or take an intact checkpoint: mltrainer checkpoints verify"

_STEP = re.compile(r"^step-([0-9]{8,15})$")
_MAX_MANIFEST_BYTES = 16 * 2**20  # read before anything is verified, so it has a bound
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that is not used.

    Attributes:
        folder: The checkpoint's folder; it is kept.
        reason: The fault.
    """

    folder: Path
    reason: str


# --- names --------------------------------------------------------------------------------------


def folder_name(step: int) -> str:
    """Return the name of a step's checkpoint, such as `step-00000360`."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """Return the step that a checkpoint's folder is named for, or None where it is none."""
    match = _STEP.match(folder.name)
    return int(match[1]) if match else None


def folders(checkpoints_dir: Path) -> list[Path]:
    """Return the checkpoints in a folder, intact or not, oldest step first."""
    try:
        existing = [path for path in checkpoints_dir.iterdir() if step_of(path) is not None]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(existing, key=lambda path: (step_of(path), path.name))


# --- writing and reading ------------------------------------------------------------------------


def manifest_bytes(values: Mapping[str, Any], rows: list[FileRow]) -> bytes:
    """Return a manifest's text.

    Args:
        values: The values that the caller records: step, epoch, metrics, contract, run.
        rows: The files of state.
    """
    return pretty_json(seal(redacted(plain({**values, "schema": 1, "files": dumped(rows)}))))


def intact_manifest(folder: Path) -> Manifest | None:
    """Return a checkpoint's manifest; None for a damaged one, which has no role: `newest_intact` reports it."""
    try:
        return read_manifest(folder)
    except GateError:
        return None


def read_manifest(folder: Path) -> Manifest:
    """Return a checkpoint's manifest.

    Raises:
        GateError: The manifest is missing, was changed, or belongs to another step.
        MachineError: There is no permission, or the disk failed.
    """
    path = folder / MANIFEST_FILE
    try:
        with machine_faults(str(path)), _open_plain(path) as file:
            data = file.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise GateError(expected="a manifest", found=f"none ({error.strerror})", where=str(path), hint=INTACT) from error
    if len(data) > _MAX_MANIFEST_BYTES:
        raise GateError(expected=f"at most {_MAX_MANIFEST_BYTES} bytes", found="more", where=str(path), hint=INTACT)
    manifest = _parsed(data, path)
    found = step_of(folder)
    if manifest.step != found:
        raise GateError(
            expected=f"the checkpoint of step {found}", found=f"that of step {manifest.step!r}", where=str(path), hint=INTACT
        )
    return manifest


def _parsed(data: bytes, path: Path) -> Manifest:
    """Return the parsed manifest.

    Raises:
        GateError: It is not the text that was written.
    """
    try:
        content = from_json(data)
        expected = digest(without_seal(content))
        # The seal alone would not notice other spaces or a repeated key.
        unchanged = content["seal"] == expected and pretty_json(content) == data
        manifest = partial(Manifest, content)
        complete = manifest.schema_number == 1 and _is_complete([row.path for row in manifest.files])
        plain = all(_SHA256.match(row.sha256) and type(row.size) is int for row in manifest.files)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise GateError(
            f"no manifest ({error!r:.80}); its sha256 is {sha256_bytes(data)}", where=str(path), hint=INTACT
        ) from error
    if not unchanged:
        raise GateError(
            "it was changed: its seal", expected=expected, found=f"{manifest.seal!r:.80}", where=str(path), hint=INTACT
        )
    if not (complete and plain):
        found = f"schema {manifest.schema_number!r:.20} and {content.get('files')!r:.200}"
        raise GateError(expected=f"schema 1 and the files {', '.join(STATE_FILES)}", found=found, where=str(path), hint=INTACT)
    return manifest


def _is_complete(names: list[str]) -> bool:
    rows = [ROWS_FILE.format(number=number) for number in range(len(names) - len(STATE_FILES))]
    return sorted(names) == sorted([*STATE_FILES, *rows])


def rows_files(manifest: Manifest) -> list[str]:
    """Return the names of a checkpoint's files of rows, in the order of the processes that held them."""
    return sorted(row.path for row in manifest.files if row.path not in STATE_FILES)


def _open_plain(path: Path) -> BufferedReader:
    """Open a plain file for reading; refuse a link, pipe or device."""
    # Not blocking: to open a pipe to which nobody writes would take for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a plain file")
    return os.fdopen(descriptor, "rb")


# --- verifying ----------------------------------------------------------------------------------


def read_verified(path: Path, row: FileRow) -> bytes:
    """Return a file's content after comparing its size and digest with its row, before anyone parses it.

    Raises:
        GateError: It is missing or something else; with the expected and the found digest.
        MachineError: There is no permission, or the disk failed.
    """
    try:
        with machine_faults(str(path)), _open_plain(path) as file:
            if os.fstat(file.fileno()).st_size == row.size:
                # One byte more than there should be: a file that has grown since it was looked at shows.
                data = file.read(row.size + 1)
                if len(data) == row.size and sha256_bytes(data) == row.sha256:
                    return data
    except OSError as error:
        raise GateError(
            expected=f"sha256 {row.sha256}", found=f"no readable file ({error.strerror})", where=str(path), hint=INTACT
        ) from error
    raise GateError(file_fault(path, row) or "changed while it was read", where=str(path), hint=INTACT)


def file_fault(path: Path, row: FileRow) -> str | None:
    """Return the difference between a file and its row, or None; large files are never held in memory."""
    try:
        with _open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"expected sha256 {row.sha256}, found no readable file ({error.strerror})"
    if size == row.size and sha256 == row.sha256:
        return None
    return f"expected {row.size} bytes with sha256 {row.sha256}, found {size} bytes with sha256 {sha256}"


def faults(folder: Path) -> list[str]:
    """Return the faults of a checkpoint's files, each with the file's name; empty if it is intact."""
    try:
        manifest = read_manifest(folder)
    except (GateError, MachineError) as error:
        return [f"{MANIFEST_FILE}: {error.message}"]
    differences = [(row.path, file_fault(folder / row.path, row)) for row in manifest.files]
    return [f"{name}: {fault}" for name, fault in differences if fault is not None] + unlisted(folder, manifest)


def unlisted(folder: Path, manifest: Manifest) -> list[str]:
    """Return a fault for each file in a checkpoint that its manifest does not list."""
    listed = {*(row.path for row in manifest.files), MANIFEST_FILE}
    extra = sorted(entry.name for entry in folder.iterdir() if entry.name not in listed)
    return [f"{name}: a file that the manifest does not list" for name in extra]


def start_of(run_folder: Path, contract: Mapping[str, str]) -> Path | None:
    """Return the checkpoint that a run begins with, which its contract names; None for a run that begins with none.

    Raises:
        GateError: The run's folder has a different one, or one although the contract names none.
    """
    found = folders(run_folder / START_FOLDER)
    origins = [digest(origin_of(folder)) for folder in found]
    expected = [contract["parent_sha256"]] if "parent_sha256" in contract else []
    if origins != expected:
        shown = [" and ".join(one[:12] for one in side) or "none" for side in (expected, origins)]
        raise GateError(
            "the start of the run",
            expected=shown[0],
            found=shown[1],
            where=str(run_folder / START_FOLDER),
            hint="restore this folder, or remove it if the run is not a fork",
        )
    return found[0] if found else None


def origin_of(folder: Path) -> dict[str, Any]:
    """Return the origin of a fork that its contract names: the run of the checkpoint and the digest of its manifest.

    Raises:
        GateError: The manifest was changed.
    """
    return {"run": read_manifest(folder).run, "manifest_sha256": digest(from_json((folder / MANIFEST_FILE).read_bytes()))}


# --- finding ------------------------------------------------------------------------------------


def newest_intact(checkpoints_dir: Path) -> tuple[Path | None, list[Skipped]]:
    """Return the intact checkpoint of the latest step, and the later ones that were skipped, with reasons.

    A replacement that died between its two renames is undone first.
    """
    _bring_back(checkpoints_dir)
    skipped: list[Skipped] = []
    for folder in reversed(folders(checkpoints_dir)):
        wrong = faults(folder) if folder.is_dir() and not folder.is_symlink() else ["not a folder"]
        if not wrong:
            return folder, skipped
        skipped.append(Skipped(folder, "; ".join(wrong)))
    return None, skipped


def sweep(checkpoints_dir: Path) -> list[str]:
    """Remove the remains of saves that died; return the names. Only the holder of the run's lock may call it.

    Raises:
        MachineError: They cannot be removed.
    """
    _bring_back(checkpoints_dir)
    # Only now: what still has the name of a replaced one has a successor, and may go.
    with machine_faults(str(checkpoints_dir)):
        names = sorted(path.name for path in _leftovers(checkpoints_dir))
        for name in names:
            shutil.rmtree(checkpoints_dir / name)
    return names


def discard(folder: Path) -> None:
    """Delete a checkpoint so that a crash never leaves half of one: its name is removed first.

    Raises:
        MachineError: It cannot be deleted.
    """
    aside = folder.with_name(TEMPORARY + folder.name)
    with machine_faults(str(folder)):
        shutil.rmtree(aside, ignore_errors=True)
        # Held meanwhile: under its new name a sweep would take it for a killed process's remains.
        with held(folder):
            folder.rename(aside)
            shutil.rmtree(aside)


def _leftovers(checkpoints_dir: Path) -> Iterator[Path]:
    if not checkpoints_dir.is_dir():
        return
    for path in checkpoints_dir.iterdir():
        if path.name.startswith((TEMPORARY, REPLACED)) and path.is_dir() and not path.is_symlink():
            yield path


def _bring_back(checkpoints_dir: Path) -> None:
    """Rename a replaced checkpoint back if its replacement never arrived."""
    for path in list(_leftovers(checkpoints_dir)):
        name = path.name.removeprefix(REPLACED)
        if name != path.name and not (checkpoints_dir / name).exists():
            with contextlib.suppress(OSError):  # a read-only project is left as it is
                path.rename(checkpoints_dir / name)
                sync(checkpoints_dir)
