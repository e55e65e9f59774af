"""mltrainer: training runs that can be trusted, walked through five gated phases.

Most programs need only six names; each is loaded when it is first used, so that `import mltrainer` is light:

- `Task`: the base class of custom tasks.
- `Project`: a project's phases, gates, runs and records, with the commands of the command line.
- `fit`: trains a model at once, to explore; its result is never evidence.
- `load_run`, `load_model`: a recorded run, and its model.
- `records`: the measurements of each phase.
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and "mltrainer" in sys.orig_argv and not sys.flags.safe_path:
    del sys.path[0]  # started as a module: the current folder may be a stranger's, and hold a `typing.py`

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer import records as records
    from mltrainer.project.front import Project as Project
    from mltrainer.project.front import load_model as load_model
    from mltrainer.project.front import load_run as load_run
    from mltrainer.tasks.task import Task as Task
    from mltrainer.trainers.native.fitting import fit as fit

__version__ = "0.9.0.dev0"
__all__ = ["Project", "Task", "__version__", "fit", "load_model", "load_run", "records"]

_HOMES = {
    "Project": "mltrainer.project.front",
    "Task": "mltrainer.tasks.task",
    "fit": "mltrainer.trainers.native.fitting",
    "load_model": "mltrainer.project.front",
    "load_run": "mltrainer.project.front",
}


def __getattr__(name: str) -> Any:
    if name == "records":
        return importlib.import_module("mltrainer.records")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mltrainer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
