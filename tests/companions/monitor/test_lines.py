"""The monitor in a terminal, as its user reads it: lines as a run goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from mltrainer.companions.monitor import lines
from mltrainer.companions.monitor.follower import Follower
from mltrainer.companions.monitor.lines import Lines
from mltrainer.workspace import Project
from tests.companions.monitor.invented import Training, empty_project
from tests.waiting import until

RUN = "  01234567  "


@contextmanager
def followed(project: Project, *chosen: str) -> Iterator[list[str]]:
    """Yield the lines as they come."""
    said: list[str] = []
    with Follower(project) as follower:
        thread = threading.Thread(target=Lines(follower, chosen).print_to, args=[said.append])
        thread.start()
        yield said
    thread.join(10)
    assert not thread.is_alive()


def test_each_evaluation_and_finding_is_a_line_and_it_ends_with_the_run(tmp_path):
    training = Training(empty_project(tmp_path))
    training.epoch(0.5)
    work = ExitStack()
    work.enter_context(training.living())
    with followed(Project(tmp_path), training.run) as said:
        until(lambda: len(said) == 4)
        training.epoch(0.75)
        training.warn()
        until(lambda: len(said) == 6)
        training.end(speed={"samples_per_s": 10_000.0, "flops_per_sample": 2e9, "peak_flops_per_s": 100e12})
        work.close()
        until(lambda: said[-1] == RUN + "finished, 10,000 samples/s, 20.0 TFLOPS, 20.0 % of the peak rate (MFU)")
    assert said[0].startswith("invented: planning ready, baseline ")
    assert said[3].startswith(RUN + "running")
    assert said[2].startswith(RUN + "epoch 1/10  step 20/200  train loss 0.5")
    assert "validation accuracy 0.5" in said[2]
    assert said[2].endswith("  10,000 samples/s  640,000 tokens/s")
    assert {line.startswith(RUN + "epoch 2/10  step 40/200") for line in said[4:6]} == {True, False}
    assert RUN + "warning: Loss spike, epoch 2: So. (mltrainer guide diagnostics/loss_spike)" in said
    assert len([line for line in said if "Loss spike" in line]) == 1


def test_a_long_epoch_has_a_line_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BETWEEN_S", 0.0)
    training = Training(empty_project(tmp_path))
    training.epoch(0.5)
    with training.living(), followed(Project(tmp_path), training.run) as said:
        until(lambda: any("step 20/200" in line for line in said))
        training.steps(0.25)
        until(lambda: any("step 21/200" in line for line in said))


def test_a_run_that_begins_is_followed_unasked(tmp_path):
    project = empty_project(tmp_path)
    with followed(project) as said:
        training = Training(project)
        with training.living():
            training.epoch(0.5)
            until(lambda: any(line.startswith(RUN + "epoch 1/10") for line in said))


def test_of_many_evaluations_before_it_began_some_are_shown(tmp_path, cli):
    training = Training(empty_project(tmp_path), epochs=100)
    for _ in range(100):
        training.epoch(0.5)
    training.end()
    said = cli("monitor", training.run, "--project", tmp_path)
    shown = [line for line in said.out.splitlines() if "epoch " in line]
    assert (said.code, len(shown)) == (0, lines.MOST_ROWS)
    assert ("epoch 1/100" in shown[0], "epoch 100/100" in shown[-1]) == (True, True)


def test_what_comes_next_stands_below_the_phases(digits_once, cli, monkeypatch):
    def stop(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "wait", stop)
    said = cli("monitor", "--project", digits_once, code=0)
    assert said.out.startswith("digits: planning passed, baseline passed, diagnostics passed, ")


def test_a_run_that_is_not_there_is_refused(tmp_path, cli):
    empty_project(tmp_path)
    cli("monitor", "cafe", "--web", "--project", tmp_path, code=1, err="there is no run 'cafe'")


@pytest.mark.slow
def test_sigterm_ends_it(tmp_path):
    empty_project(tmp_path)
    command = [sys.executable, "-m", "mltrainer", "monitor", "--project", tmp_path]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"planning" in child.stdout.readline()
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=20)
    assert (child.returncode, b"Traceback" in said) == (143, False)


def test_a_look_at_no_new_run_leaves_nothing_behind(tmp_path, monkeypatch):
    entered: list[int] = []
    watching = Follower.watching
    monkeypatch.setattr(Follower, "watching", lambda self, runs: (entered.append(len(runs)), watching(self, runs))[1])
    training = Training(empty_project(tmp_path))
    training.epoch(0.5)
    with training.living(), followed(Project(tmp_path), training.run) as said:
        for epoch in range(2, 5):
            training.epoch(0.5)
            until(lambda epoch=epoch: any(f"epoch {epoch}/10" in line for line in said))
    assert entered == [1]
