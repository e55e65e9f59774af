"""The mark that shows a tool that the workflow started it: a secret passed from process to process, never written to a file.

A job's file holds only its digest, so that a copied job starts nothing: the gates are checked before a tool is started.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from mltrainer.errors import InputError
from mltrainer.workspace import machine_faults, sha256_bytes

VARIABLE = "MLTRAINER_LAUNCH"
KEY = "launch"  # in the job


def new_mark() -> tuple[str, dict[str, str]]:
    """Return a job's entry `launch`, which lets the job start once, and the environment variable that its process needs."""
    secret = secrets.token_hex(16)
    return sha256_bytes(secret.encode()), {VARIABLE: secret}


def require_mark(job_file: Path) -> None:
    """Remove the mark from this process's environment, and refuse the job if the mark does not match it.

    Raises:
        InputError: The workflow did not start this tool.
        MachineError: The job cannot be read.
    """
    # Removed: otherwise every process that the user's code starts would inherit it, and could start a tool itself.
    secret = os.environ.pop(VARIABLE, "")
    try:
        with machine_faults(str(job_file)):
            job = dict(json.loads(job_file.read_bytes()))
    except (OSError, ValueError, TypeError):
        job = {}
    if not secret or job.get(KEY) != sha256_bytes(secret.encode()):
        raise InputError(
            "this tool was not started by the workflow, which looks at the gates first",
            where=str(job_file),
            hint=f"mltrainer phase run {job.get('phase', 'PHASE')}; or mltrainer.fit in Python, to explore",
        )
