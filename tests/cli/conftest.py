"""Situations that the tests of the command line share."""

from __future__ import annotations

import hashlib
import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.pages import tool_page
from mltrainer.workspace import Project, write_json

LAUNCHING = ("mltrainer.phases.planning", "mltrainer.phases.runs")


@pytest.fixture
def tools_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tools run in this process, which spares each case the start of an interpreter; `test_launcher` has the real start."""
    import torch

    from mltrainer.tools.program import Events, attempt

    class Told(Events):
        def __init__(self, on_event: Callable[[dict[str, Any]], None]) -> None:
            super().__init__(None)
            self.on_event = on_event

        def send(self, event: str, **values: Any) -> None:
            self.on_event({"event": event, **values})

    def launch(project: Project, tool: str, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None]) -> None:
        path = project.root / job["folder"] / "job.json"
        write_json(path, job)
        page = tool_page(tool, project.root)
        work = importlib.import_module(f"{page.entry_point}.program").work
        with pytest.MonkeyPatch.context() as here:
            here.chdir(project.root)
            here.setattr(sys, "path", [*sys.path])
            here.delitem(sys.modules, "my_task", raising=False)  # another test's
            for name, value in page.environment.items():
                here.setenv(name, value.format(threads=job["threads"]))
            error = attempt(work, path, Told(on_event), project.root)
        for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(str(project.root))]:
            del sys.modules[name]
        if error is not None:
            raise error

    for module in LAUNCHING:
        monkeypatch.setattr(f"{module}.launch", launch)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of every file that a person sees, to tell whether anything was lost or left half-written."""
    hidden = {".mltrainer", ".git", "__pycache__"}
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and not hidden & set(p.relative_to(folder).parts))
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def leftovers(folder: Path) -> list[str]:
    """Return the files that a write which did not end left behind."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".tmp-*")]
