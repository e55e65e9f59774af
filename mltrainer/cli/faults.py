"""The exception that ended a command, as the error to report: an unforeseen one is a fault of ours, with a saved traceback."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from pathlib import Path

from mltrainer import __version__
from mltrainer.errors import InputError, MachineError, MltrainerError, is_out_of_memory, out_of_memory
from mltrainer.redaction import redact
from mltrainer.workspace import NAME_ERRNOS, is_of_machine


def reported(error: Exception) -> MltrainerError:
    """Return the error to report: a machine's failure and an impossible path as such, others as a fault of ours."""
    if isinstance(error, MltrainerError):
        return error
    if is_out_of_memory(error):
        return out_of_memory(error)
    if isinstance(error, OSError) and error.errno in NAME_ERRNOS:
        hint = "name a path that this system can hold"
        return InputError(error.strerror or str(error), where=str(error.filename or "")[:200], hint=hint)
    if is_of_machine(error):
        hint = "check the disk and its permissions, then type the same command again"
        return MachineError(error.strerror or str(error), where=str(error.filename or "") or None, hint=hint)
    hint = f"report it with {_saved(error)}"
    return MltrainerError(f"a fault of mltrainer's own: {type(error).__name__}: {error}", hint=hint)


def _saved(error: Exception) -> Path:
    """Write a fault's traceback to a file, if one can be written, and return its path."""
    text = redact("".join(traceback.format_exception(error)))
    state = Path(".mltrainer")  # relative, as the folder itself may have been removed meanwhile
    path = (state if state.is_dir() else Path(tempfile.gettempdir())) / "mltrainer-fault.txt"
    saved = f"mltrainer {__version__}, Python {sys.version}\n\n{text}"
    with contextlib.suppress(OSError):  # private, and through no link: it may be where others write
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(saved)
    return path
