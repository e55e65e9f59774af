"""Situations that tests share. Expensive ones are made once for all workers, then copied."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mltrainer.cli.main import run
from mltrainer.configs.pages import tool_page
from mltrainer.errors import InUseError
from mltrainer.executors import local
from mltrainer.executors.fork_server import ForkServers
from mltrainer.records.job import JobBase
from mltrainer.runs.launcher import program_of
from mltrainer.workspace import Project, locked, write_json
from tests import outputs
from tests.browser import Page, browser
from tests.forking import FORKING

os.environ.setdefault("OMP_NUM_THREADS", "1")  # each worker has one core; threads that wait for another spin
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; what a test starts is to be interrupted
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Made within 5 to 25 s: whole trainings, other frameworks in a process of their own, the site, a mounted disk.
SLOW_FIXTURES = {"disk", "folded", "heard", "missed_once", "neighbour", "optimized", "rings_once", "site"}


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow fixtures, and let one worker have those of the digits project: no other waits until it is made."""
    asked = {item.nodeid: set(getattr(item, "fixturenames", ())) for item in items}
    for item in items:
        if asked[item.nodeid] & SLOW_FIXTURES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: "digits_once" not in asked[item.nodeid])


@dataclass(frozen=True)
class Said:
    """What a command said: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Said]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run a command line in this process, which must end with a code, and say a text, where one is given."""

    def call(*arguments: str | Path, code: int | None = None, out: str = "", err: str = "") -> Said:
        capfd.readouterr()
        said = Said(run([str(a) for a in arguments]), *capfd.readouterr())
        assert code in (None, said.code), said
        assert out in said.out, said
        assert err in said.err, said
        if "--json" in arguments:
            outputs.check([str(a) for a in arguments], said.out)
        return said

    return call


def shared(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that is made once by whichever worker comes first; other modules may use the same name."""
    base = tmp_path_factory.getbasetemp()
    base = (base.parent if base.name.startswith("popen-") else base) / "shared" / make.__module__
    folder, done = base / name, base / f"{name}.done"
    while not done.exists():
        try:
            with locked(base / f"{name}.lock", name):
                if not done.exists():
                    make(folder)
                    done.touch()
        except InUseError:
            time.sleep(0.2)
    return folder


def succeed(*arguments: str | Path) -> None:
    """Run a command line that must exit 0."""
    code = run([str(a) for a in arguments])
    assert code == 0, f"mltrainer {' '.join(map(str, arguments))} exited {code}"


def train_baseline(folder: Path, *settings: str) -> None:
    """Plan a project with these settings, and train its baseline."""
    succeed("phase", "run", "planning", "--project", folder, *(word for one in settings for word in ("--set", one)))
    succeed("phase", "run", "baseline", "--project", folder)


def git(folder: Path, *arguments: str | Path, name: str = "Tester") -> str:
    """Return what git says in a folder, without letting it refresh the index; commits are in the name of somebody."""
    settings = (f"user.name={name}", f"user.email={name.lower()}@example.org", "protocol.file.allow=always")
    command = ["git", "--no-optional-locks", *(word for one in settings for word in ("-c", one)), *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, new: bool = False) -> None:
    """Commit everything in a folder's repository, a new one where that is asked for."""
    if new:
        git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change")


def start_digits(folder: Path) -> None:
    """Make the digits project with a short final training."""
    succeed("init", folder, "--example", "digits")
    (folder / "configs").mkdir()
    shutil.copy(Path(__file__).parent / "data" / "production_template.yaml", folder / "configs")
    commit(folder)


def _finish_digits(folder: Path) -> None:
    start_digits(folder)
    succeed("phase", "run", "planning", "--project", folder, "--set", "epochs=12")
    succeed("run", "--project", folder)


@pytest.fixture(scope="session")
def digits_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits example through all five phases; not to be changed."""
    return shared(tmp_path_factory, "digits", _finish_digits)


@pytest.fixture
def digits(digits_once: Path, tmp_path: Path) -> Project:
    """A copy of the finished digits project, for a test to break."""
    folder = tmp_path / "digits"
    shutil.copytree(digits_once, folder, symlinks=True)
    return Project(folder)


@pytest.fixture(scope="session")
def begun_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits example before its first phase; not to be changed."""
    folder = tmp_path_factory.mktemp("begun") / "digits"
    succeed("init", folder, "--example", "digits")
    return folder


@pytest.fixture
def begun(begun_once: Path, tmp_path: Path) -> Project:
    """A copy of a project in which no phase has run, for a test to change."""
    return Project(Path(shutil.copytree(begun_once, tmp_path / "begun")))


@pytest.fixture(scope="session")
def shared_page() -> Iterator[Page]:
    """One page of a headless browser for all tests."""
    with browser() as found:
        yield found


@pytest.fixture
def page(shared_page: Page, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that asks for nothing from elsewhere, and complains of nothing but what its module has as `TOLERATED`."""
    shared_page.call("Page.navigate", url="about:blank")
    shared_page.requests.clear()
    shared_page.complaints.clear()
    yield shared_page
    shared_page.js("1")  # what was told until now is heard
    assert {urlsplit(url).hostname for url in shared_page.requests if url.startswith("http")} == {"127.0.0.1"}
    assert [told for told in shared_page.complaints if not any(part in told for part in request.module.TOLERATED)] == []


@pytest.fixture(scope="session", autouse=True)
def _forked_tools() -> Iterator[None]:
    """Tools are forked from one process that has imported torch."""
    with pytest.MonkeyPatch.context() as here:
        here.setattr("mltrainer.runs.launcher.EXECUTOR", FORKING)
        here.setattr("mltrainer.runs.launcher.ForkServers", lambda late: contextlib.nullcontext(FORKING))
        yield


@pytest.fixture(autouse=True)
def _own_module() -> None:
    """A task's module is imported anew by each test: that of another test's project has the same name."""
    sys.modules.pop("my_task", None)


@pytest.fixture
def real_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool is started in a new interpreter, as for a user."""
    monkeypatch.setattr("mltrainer.runs.launcher.EXECUTOR", local)
    monkeypatch.setattr("mltrainer.runs.launcher.ForkServers", ForkServers)


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

    def launch(
        project: Project,
        tool: str,
        job: JobBase,
        on_event: Callable[[dict[str, Any]], None],
        variables: Mapping[str, str] | None = None,
        forks: object = None,
        placement: object = None,
        executor: object = None,
    ) -> None:
        path = project.root / job.folder / "job.json"
        write_json(path, job.written())
        page = tool_page(tool, project.root)
        module, *entry_point = program_of(page)
        program = importlib.import_module(getattr(importlib.import_module(module), "PROGRAM", f"{module}.program"))
        work = program.work_of(*entry_point) if entry_point else program.work
        with pytest.MonkeyPatch.context() as here:
            here.chdir(project.root)
            here.setattr(sys, "path", [*sys.path])
            here.delitem(sys.modules, "my_task", raising=False)  # a test may have changed it
            for name, value in {**page.environment, **(variables or {})}.items():
                here.setenv(name, value.format(threads=job.threads))
            error = attempt(work, path, Told(on_event))
        for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(str(project.root))]:
            del sys.modules[name]
        if error is not None:
            raise error

    monkeypatch.setattr("mltrainer.runs.launcher.launch", launch)  # what `tools_of` hands down
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    for number, handler in handlers.items():
        signal.signal(number, handler)
