"""A trial write in a tracker's folder, without traces."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from mltrainer.errors import InputError


def check_folder(root: Path, folder: str, key: str) -> None:
    """Write a file in a folder, and remove it again together with folders created for it.

    Args:
        root: The project's folder.
        folder: The tracker's folder, relative to the project's.
        key: Config key of the folder.

    Raises:
        InputError: The folder cannot be created or written.
    """
    target = root / folder
    made = [path for path in (target, *target.parents) if not path.exists()]
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        raise InputError(
            f"the folder {folder} cannot be written: {error.strerror}",
            where=key,
            hint=f"free that place, or give another folder as {key} in mltrainer.yaml, then mltrainer phase run planning",
        ) from None
    finally:
        for path in made:
            with contextlib.suppress(OSError):  # never made, or somebody else uses it by now
                path.rmdir()
