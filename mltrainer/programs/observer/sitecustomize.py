"""Begins to observe a program: Python imports this module by its name at every start, and the folder is on PYTHONPATH.

Runs inside the user's program, maybe under another interpreter: it imports the standard library alone, and torch only once
the program has imported it. Without the variable `MLTRAINER_WRAP` it does nothing. It is alone in its folder: any other
module there would be imported in place of one of the program's own, or of the standard library, by the same name.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.realpath(__file__))
OBSERVE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "observe")
VARIABLE = "MLTRAINER_WRAP"


def _module(name: str) -> Any:
    """Return a module of `observe`, loaded by its path, so that no name of the program's own is taken."""
    spec = importlib.util.spec_from_file_location(f"_mltrainer_{name}", os.path.join(OBSERVE, f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run_shadowed() -> None:
    """Run the `sitecustomize` that this one is found before, if the interpreter has one."""
    others = [path for path in sys.path if os.path.realpath(path or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        # Before it runs, as an import does; from now on the program finds its own module under this name.
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _begin() -> None:
    processes = _module("process")
    settings = processes.Settings(**json.loads(os.environ[VARIABLE]))
    process = processes.Process(settings)
    wanted = [name for name in ("files", "trace", "signals") if getattr(settings, name)]
    if settings.replay:
        wanted.append("repeated_backward")
    # The chain ends the process, after the others have seen the step.
    names = ["speed"] if settings.speed else [*wanted, "chain", "manual_steps"]
    observers = [_module(name).begin(settings, process) for name in names]
    if settings.trace:
        observers[names.index("trace")].note_values(_module("values"))
    for name in settings.disturbances:  # after lines are traced: what delays threads gives way to that
        _module(name).begin(process)

    def attach(torch: ModuleType) -> None:
        for observer in observers:
            observer.attach(torch)

    after_import = _module("imports").after_import
    after_import(["torch"], attach)
    if settings.seed is not None:
        _module("frameworks").begin(settings, process, after_import)
    if "files" in names:
        readers = _module("readers")
        after_import(readers.READERS, lambda module: readers.watch(module, observers[names.index("files")].note_read))


_run_shadowed()
if VARIABLE in os.environ:
    _begin()
