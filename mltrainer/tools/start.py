"""Start of a tool's program: until the program sets its own handlers, a signal ends the process at once.

Importing torch takes seconds, and some imported library swallows a KeyboardInterrupt: the tool would go on for hours
although it was asked to stop. Before the job has begun there is nothing to save.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mltrainer.errors import MltrainerError
from mltrainer.executors.executor import LIFE, RANK
from mltrainer.tools.mark import require_mark


def start(program: str, entry_point: str | None = None) -> None:
    """Import a tool's program and run the job that the command line names.

    Args:
        program: The module whose `work` does the job.
        entry_point: The module of a custom tool, which the program's `work_of` runs; None for a built-in tool.
    """
    try:
        # Before torch is imported: somebody who starts a tool directly sees the error at once.
        require_mark(Path(sys.argv[1] if len(sys.argv) > 1 else "job.json"))
    except MltrainerError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal ends the workflow; the tool notices and saves
    if LIFE in os.environ:  # before the import: a process may be stopped, or its machine lost, in these seconds too
        from mltrainer.tools import life

        life.begin(int(os.environ[LIFE]), int(os.environ[RANK]))
    module, common = imported(program, "mltrainer.tools.program")
    work = module.work_of(entry_point) if entry_point else module.work
    common.run_program(work)


def imported(*names: str) -> list[Any]:
    """Return modules, imported without garbage collection: a module's objects live to the end."""
    gc.disable()
    modules = [importlib.import_module(name) for name in names]
    gc.freeze()  # else every full collection, and the interpreter's end, go through these objects again
    gc.enable()
    return modules
