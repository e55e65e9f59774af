"""Gate items of a team's own: a function in the project's own module, named on the project's own page.

The function runs in a process of its own with a time limit and without the shell's secrets. It takes the evidence of the
phase's record and the item's settings, both read-only, and returns a mapping:

    def enough_classes(evidence, settings):
        found = len(evidence["data"]["classes"])
        holds = found >= settings["at_least"]
        return {"verdict": "pass" if holds else "fail", "evidence": {"classes": found}, "mend": "bring more data"}

Its answer must follow from what it is given: a gate is recomputed whenever it is looked at, also in a fresh clone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mltrainer.configs.pages import Item, PhasePage
from mltrainer.gates.check import Outcome
from mltrainer.records.envelope import Envelope
from mltrainer.reproducibility.secrets import redact
from mltrainer.workspace import Project, sha256_file

ROLE = "check"  # of the module's file among a record's inputs
SECONDS = 10.0  # chosen by us: importing a large library and reading a record; the item's setting `seconds` raises it
LARGEST = 20_000  # characters of an answer; what is longer belongs in a report of the team's own
KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
SET_VARIABLES = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
VERDICTS = ("pass", "fail", "not_applicable")
NOT_RUN = "this project's own checks were not run"


def run_own(item: Item, record: Envelope[Any], root: Path | None) -> Outcome:
    """Return the outcome of a team's own item; whatever is wrong with its function fails it, with the reason.

    Args:
        item: The item, whose `check` names the function.
        record: The phase's record.
        root: The project's folder, from which the module is imported; None where own checks are not to be run, and then the
            item does not hold.
    """
    assert item.check is not None
    if root is None:
        return _failed(item, NOT_RUN, record)
    file = module_file(item.check, root)
    if file is None:
        return _failed(item, f"there is no module {item.check.partition(':')[0]!r} in the project", record)
    evidence = record.evidence.model_dump(by_alias=True, exclude_unset=True)
    question = {"check": item.check, "phase": record.phase, "evidence": evidence, "settings": item.settings}
    asked = json.dumps(question, sort_keys=True)
    found = _answered(str(root), asked, float(item.settings.get("seconds", SECONDS)), sha256_file(file))
    fault = found if isinstance(found, str) else fault_of(found)
    if fault is not None:
        return _failed(item, fault, record)
    again = f"mltrainer phase run {record.phase}"
    mend = found.get("mend") or f"mend what it names, then {again}"
    return Outcome(found["verdict"], found.get("evidence", {}), mend if found["verdict"] == "fail" else None)


def _failed(item: Item, why: str, record: Envelope[Any]) -> Outcome:
    return Outcome("fail", {"own_check": why}, f"mend {item.check}, then mltrainer phase run {record.phase}")


def fault_of(found: Any) -> str | None:
    """Return what is wrong with a function's answer, or None."""
    if not isinstance(found, dict) or not found.keys() <= {"verdict", "evidence", "mend"}:
        return "it must return a mapping with verdict, evidence and, for a failure, mend"
    if found.get("verdict") not in VERDICTS:
        return f"its verdict is {found.get('verdict')!r}, expected one of {', '.join(VERDICTS)}"
    evidence, mend = found.get("evidence", {}), found.get("mend")
    if not isinstance(evidence, dict) or not isinstance(mend, str | None):
        return "its evidence must be a mapping, and mend a text"
    if found["verdict"] == "not_applicable" and not evidence.get("rule"):
        return "an item that does not apply names the rule that says so: evidence['rule']"
    return None


@functools.lru_cache(maxsize=64)  # one command looks at a gate several times; a record, a setting or the module changed asks anew
def _answered(root: str, asked: str, seconds: float, _module_sha256: str) -> Any:
    """Return what the function answered, or why there is no answer, as a text."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | SET_VARIABLES
    command = [sys.executable, "-P", "-m", "mltrainer.gates.apart"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=root, env=environment, start_new_session=True, stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        try:
            answer, said = process.communicate(asked.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"it took longer than {seconds:g} s"
        finally:
            _end(process.pid)
    if process.returncode != 0:
        lines = said.decode("utf-8", errors="replace").strip().splitlines()
        return redact(f"it ended with exit code {process.returncode}: {lines[-1] if lines else 'no message'}")[:500]
    text = redact(answer.decode("utf-8", errors="replace"))
    if len(text) > LARGEST:
        return f"its answer has {len(text)} characters; at most {LARGEST} are shown in a report"
    try:
        return json.loads(text)
    except ValueError:
        return "its answer is no JSON: the process ended before the function returned"


def _end(group: int) -> None:
    """End a process and all that it started, however the wait for it ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def module_file(check: str, root: Path) -> Path | None:
    """Return the file of the module that a check names, where it is one of the project's own."""
    place = root.joinpath(*check.partition(":")[0].split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def own_files(page: PhasePage, project: Project) -> list[dict[str, Any]]:
    """Return the files of a page's own checks, as a record binds them: editing one makes the gate stale."""
    found = {module_file(item.check, project.root) for item in page.items if item.check}
    rows = sorted((project.relative(path), path) for path in found if path is not None)
    return [{"path": name, "sha256": sha256_file(path), "size": path.stat().st_size, "role": ROLE} for name, path in rows]
