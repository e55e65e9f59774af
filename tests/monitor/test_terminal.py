"""The terminal view, as its user sees it: the screen's text after keys were pressed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer.monitor.follower import Follower
from mltrainer.runs.labels import label_run
from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.monitor.invented import Training, empty_project

pytest.importorskip("textual", reason="the terminal view needs the extra monitor")

Work = Callable[[Any, Callable[[], str]], Awaitable[None]]


def text_of(app: Any) -> str:
    """Return what stands on the screen."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def look(project: Project, work: Work, *chosen: str, size: tuple[int, int] = (120, 60)) -> None:
    """Let a user do something in the terminal view of a project."""
    from mltrainer.monitor.terminal import Monitor

    async def run() -> None:
        with Follower(project) as follower:
            app = Monitor(project, follower, chosen)
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await work(pilot, lambda: text_of(app))

    asyncio.run(run())


async def until(pilot: Any, true: Callable[[], bool]) -> None:
    """Wait until something is so on the screen."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, text_of(pilot.app)
        await pilot.pause(0.02)


@pytest.mark.slow
def test_a_run_is_seen_as_it_goes_on(tmp_path: Path) -> None:
    training = Training(empty_project(tmp_path))
    training.epoch(0.5)

    async def work(pilot: Any, seen: Callable[[], str]) -> None:
        await until(pilot, lambda: "epoch 1/10  step 20/200  best accuracy 0.5" in seen())
        training.steps(40.0)
        training.warn()
        await until(pilot, lambda: "step 21/200" in seen() and "▌ Loss spike warning, epoch 1: So." in seen())
        assert "40 │" in seen()  # the curve reaches the spike

    with training.living():
        look(Project(tmp_path), work)


def test_a_run_is_listed_by_the_name_that_it_was_given(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    training = Training(project)
    training.epoch(0.5)

    async def work(pilot: Any, seen: Callable[[], str]) -> None:
        await until(pilot, lambda: "● 01234567 baseline" in seen())
        label_run(project, training.run, "first try")
        await until(pilot, lambda: "● first try baseline" in seen())
        label_run(project, training.run, "the best")
        await until(pilot, lambda: "● the best baseline" in seen())

    look(project, work)


def test_two_runs_side_by_side_and_one_alone(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    for name, accuracy in (("a" * 12, 0.5), ("b" * 12, 0.75)):
        Training(project, name).epoch(accuracy)
        time.sleep(0.01)

    async def work(pilot: Any, seen: Callable[[], str]) -> None:
        await until(pilot, lambda: "best accuracy 0.75" in seen())
        assert "best accuracy 0.5" not in seen()
        await pilot.press("down", "space")
        await until(pilot, lambda: "best accuracy 0.75" in seen() and "best accuracy 0.5" in seen())
        await pilot.press("enter")
        await until(pilot, lambda: "best accuracy 0.75" not in seen() and "best accuracy 0.5" in seen())

    look(project, work)


def test_a_run_that_begins_is_shown_unasked(tmp_path: Path) -> None:
    project = empty_project(tmp_path)

    async def work(pilot: Any, seen: Callable[[], str]) -> None:
        await until(pilot, lambda: "Nothing has been trained yet." in seen())
        Training(project).epoch(0.5)
        await until(pilot, lambda: "best accuracy 0.5" in seen())

    look(project, work)


@pytest.mark.slow
def test_gates_are_a_key_away(digits: Project) -> None:
    async def work(pilot: Any, seen: Callable[[], str]) -> None:
        assert "✓ baseline" in seen()
        await pilot.press("g")
        await until(pilot, lambda: "✓ The training config is complete and valid." in seen())

    look(digits, work)


@pytest.mark.slow
def test_reports_are_a_key_away(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    for phase, title in (("planning", "One"), ("baseline", "Other")):
        project.phase_dir(phase).mkdir(parents=True)
        text = f"# {title} report\n\n<details>\n<summary>Folded</summary>\n\n| a |\n| --- |\n| x<br>y |\n\n</details>\n"
        (project.phase_dir(phase) / f"{title}.md").write_text(text)

    async def work(pilot: Any, seen: Callable[[], str]) -> None:
        await pilot.press("r")
        await until(pilot, lambda: "One report" in seen())
        await pilot.press("down")
        await until(pilot, lambda: "Other report" in seen() and "One report" not in seen())
        assert "Folded" in seen()
        assert "x; y" in seen()
        assert "<" not in seen()
        await pilot.press("escape")
        await until(pilot, lambda: "Gradient norm" in seen())

    look(project, work)


def test_without_textual_the_message_names_the_extra_and_the_browser(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_project(tmp_path)
    monkeypatch.delitem(sys.modules, "mltrainer.monitor.terminal", raising=False)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    said = cli("monitor", "--project", tmp_path)
    assert said.code == 1
    assert "pip install 'mltrainer[monitor]'" in said.err
    assert "mltrainer monitor --web" in said.err


def test_a_run_that_is_not_there_is_refused(tmp_path: Path, cli: Cli) -> None:
    empty_project(tmp_path)
    said = cli("monitor", "cafe", "--web", "--project", tmp_path)
    assert (said.code, "there is no run 'cafe'" in said.err) == (1, True)


def test_without_a_terminal_it_names_the_browser(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stdin__", None)
    empty_project(tmp_path)
    said = cli("monitor", "--project", tmp_path)
    assert (said.code, said.out) == (1, "")
    assert "needs a terminal" in said.err
    assert "mltrainer monitor --web" in said.err


@pytest.mark.slow
def test_sigterm_ends_it_as_a_key_does(tmp_path: Path) -> None:
    empty_project(tmp_path)
    screen, terminal = os.openpty()
    command = [sys.executable, "-m", "mltrainer", "monitor", "--project", tmp_path]
    child = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    told = b""
    while b"quit" not in told:
        told += os.read(screen, 65536)
    for number in (signal.SIGTERM, signal.SIGCONT):  # as `timeout` and service managers send them
        child.send_signal(number)
    with contextlib.suppress(OSError):  # on Linux the end of a terminal is an error
        while more := os.read(screen, 65536):
            told += more
    assert child.wait(20) == 143
    assert b"error:" not in told
