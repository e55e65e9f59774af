"""The mark by which a tool knows that the workflow started it: a secret handed from process to process, never in a file.

A job's file holds only its digest, so that a copied job starts nothing: the gates are checked before a tool is started.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from mltrainer.errors import InputError
from mltrainer.workspace import sha256_bytes

VARIABLE = "MLTRAINER_LAUNCH"
KEY = "launch"  # in the job


def new_mark() -> tuple[str, dict[str, str]]:
    """Return a job's entry `launch`, by which it can be started once, and the variable that its process must be given."""
    secret = secrets.token_hex(16)
    return sha256_bytes(secret.encode()), {VARIABLE: secret}


def require_mark(job_file: Path) -> None:
    """Take the mark out of this process's environment, and refuse a job that it does not belong to.

    Raises:
        InputError: The tool was started by hand.
    """
    # Taken out, or whatever the user's code starts would inherit it, and could start a tool itself.
    secret = os.environ.pop(VARIABLE, "")
    try:
        job = dict(json.loads(job_file.read_bytes()))
    except (OSError, ValueError, TypeError):
        job = {}
    if not secret or job.get(KEY) != sha256_bytes(secret.encode()):
        raise InputError(
            "this tool was not started by the workflow, which looks at the gates first",
            where=str(job_file),
            hint=f"mltrainer phase run {job.get('phase', 'PHASE')}; or mltrainer.fit in Python, to explore",
        )
