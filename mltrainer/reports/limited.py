"""A project's own template, or a large record, rendered in a limited process: a stranger's may use up time or memory.

In, on standard input: a JSON list of record, waivers, gate and project. Out: a JSON list of the reports by file name, and of
the arguments of the error that ended it.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
from pathlib import Path
from typing import Any

from mltrainer import handbook
from mltrainer.errors import InputError
from mltrainer.executors.local import Ended
from mltrainer.executors.sandbox import Limits, run
from mltrainer.reports.gate_items import GateItem, Items
from mltrainer.reports.render import made_by, render, template_paths

CPU_SECONDS = 1.5  # chosen by us: a report takes 0.1 to 0.3 s, and five at the limit end within 10 s all the same
MEMORY_MIB, OUTPUT_MIB = 768, 8
LARGE_RECORD = 4 << 20  # bytes: 1,600 evaluations; the report of 20,000 still takes 0.1 s, as it shows a few of them
LIMITS = Limits(seconds=30, memory=MEMORY_MIB << 20, output=OUTPUT_MIB << 20, cpu_seconds=10)


def is_rendered_apart(phase: str, project: Path, size: int) -> bool:
    """Return True if a phase's reports are rendered in a limited process: custom templates, or a large record.

    Args:
        phase: The phase.
        project: The project's folder.
        size: The record's size in bytes.
    """
    return size > LARGE_RECORD or bool(_own_templates(phase, project))


def _own_templates(phase: str, project: Path) -> list[str]:
    return [path for path in template_paths(phase).values() if handbook.locate(path, project)[1]]


def render_limited(record: dict[str, Any], waivers: list[dict[str, Any]], gate: Items, project: Path) -> dict[str, str]:
    """Return the reports of `render`, computed in a process with limits; the arguments are those of `render`.

    Raises:
        InputError: The template takes more than the limits, or `render` refuses it.
    """
    phase = record["phase"]
    question = json.dumps([record, waivers, [item.view() for item in gate], str(project.resolve())])
    # The inputs of the reports are part of the cache's key: an edited template is rendered again.
    ended = _ended(question, json.dumps(made_by(phase, project)))
    answer = _answer(ended)
    if answer is None:
        names = ", ".join(_own_templates(phase, project))
        most = f"{CPU_SECONDS:g} s of computing, {MEMORY_MIB} MiB of memory or {OUTPUT_MIB} MiB of text"
        message = f"rendering it takes more than {most} ({ended.last_words})"
        if not names:
            raise InputError(message, where="record.json", hint=f"mltrainer phase run {phase}")
        raise InputError(message, where=names, hint="make the template smaller")
    files, error = answer
    if error:
        raise InputError(**error)
    return files


@functools.lru_cache(maxsize=16)  # one command looks at a gate several times
def _ended(question: str, _made_by: str) -> Ended:
    # -P: no folder that could hold a stranger's module comes first on the path.
    command = [sys.executable, "-P", "-m", "mltrainer.reports.limited"]
    return run(command, question.encode(), LIMITS, Path("/"))


def _answer(ended: Ended) -> tuple[dict[str, str], dict[str, Any]] | None:
    """Return the process's answer; None where it failed, ran out of time, or its output was cut at the limit."""
    if ended.code != 0 or not ended.in_time:
        return None
    try:
        files, error = json.loads(ended.out)
        return files, error
    except ValueError:  # cut at the limit
        return None


def main() -> None:
    """Answer the question on standard input."""
    record, waivers, items, project = json.load(sys.stdin)
    from mltrainer.reports import phase_names, templates  # noqa: F401 - their import is not counted

    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # nothing handles its signal, so that it ends the process
    files, fault = {}, {}
    try:
        files = render(record, waivers, [GateItem(**item) for item in items], Path(project))
    except InputError as error:
        fault = {"message": error.message, "where": error.where, "hint": error.hint}
    sys.stdout.write(json.dumps([files, fault]))


if __name__ == "__main__":
    main()
