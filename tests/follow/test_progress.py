"""Progress: a bar on a terminal that leaves nothing behind, plain lines in a log, silence under continuous integration."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from mltrainer.follow.progress import Progress, Training, progress_parts
from tests.projects import write_rings

EVENTS: list[dict[str, Any]] = [
    {"event": "phase", "phase": "baseline"},
    {"event": "start", "step": 0, "steps": 400, "epochs": 4},
    {"event": "progress", "epoch": 1, "epochs": 4, "step": 64, "steps": 400, "loss": 0.51234, "steps_per_s": 28.0},
    {"event": "row", "epoch": 1, "epochs": 4, "step": 100, "steps": 400, "train_loss": 0.4, "metric": "accuracy",
     "validation": {"loss": 0.3, "accuracy": 0.875}},
    {"event": "note", "text": "passed over a [damaged] checkpoint"},
    {"event": "trial", "nr": 1, "trials": 2, "values": {"optimizer.lr": 0.1}},
]  # fmt: skip
LINES = "baseline:\n  passed over a [damaged] checkpoint\n  trial 1 of 2: optimizer.lr=0.1\n"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal:
    """A pseudo-terminal, standard error while events are told."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        self.stream = open(theirs, "w")  # noqa: SIM115 - closed by the fixture

    def tell(self, *events: dict[str, Any], close: bool = True) -> str:
        """Return what events show, with the progress closed after them or not."""
        with contextlib.redirect_stderr(self.stream):
            progress = tell(*events)
            self.stream.flush()
            shown = self._read()
            progress.close()
        self.stream.flush()
        rest = self._read()
        return (shown + rest if close else shown).decode().replace("\r\n", "\n")

    def _read(self) -> bytes:
        """Return what comes until nothing more does; a terminal hands on in pieces."""
        shown = b""
        while select.select([self.ours], [], [], 0.1)[0]:
            shown += os.read(self.ours, 65536)
        return shown


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("CI", "true")  # somebody looks on all the same
    made = Terminal()
    yield made
    made.stream.close()
    os.close(made.ours)


def tell(*events: dict[str, Any]) -> Progress:
    progress = Progress()
    for event in events:
        progress(event)
    return progress


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_bar_shows_epoch_step_loss_metric_rate_and_time_left(terminal):
    shown = plain(terminal.tell(*EVENTS[:4], close=False)).split("\r")[-1]
    expected = r"epoch 1/4 ━+.* step 100/400  train loss 0.4  validation accuracy 0.875  11 s left  28 steps/s"
    assert re.search(expected, shown), shown


def test_lines_stand_where_the_bar_was_and_the_cursor_comes_back(terminal):
    shown = terminal.tell(*EVENTS, EVENTS[2])
    assert shown.count(HIDE) == shown.count(SHOW) == 2
    before, after = shown.split(SHOW)[0], shown.split(SHOW)[1].split(HIDE)[0]
    assert before.startswith("baseline:\n")
    assert "".join(plain(after).split("\r")).split() == LINES.removeprefix("baseline:\n").split()
    assert "\x1b[2K" in shown.split(SHOW)[1]
    assert plain(shown.split(SHOW)[2]).strip() == ""


def test_a_narrow_terminal_keeps_one_line(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    assert "\n" not in terminal.tell(EVENTS[1], EVENTS[2], close=False)


@pytest.mark.parametrize(
    ("columns", "shown"), [(85, "step 240/400  train loss 0.0123  validation accuracy 0.965"), (40, "step 240/400")]
)
def test_a_terminal_with_too_few_columns_keeps_place_and_bar_and_leaves_out_the_last_values(
    terminal, monkeypatch, columns, shown
):
    monkeypatch.setenv("COLUMNS", str(columns))
    state = {"epoch": 12, "epochs": 20, "step": 240, "steps": 400, "loss": 0.01234, "metric": "accuracy", "steps_per_s": 393.0}
    line = plain(terminal.tell({"event": "progress", **state, "validation": {"accuracy": 0.9654}}, close=False)).split("\r")[-1]
    assert re.fullmatch(rf"  epoch 12/20 [━╸╺]+ *{re.escape(shown)} *", line), line


STUDY: dict[str, Any] = {
    "event": "study", "what": "trials", "done": 12, "planned": 20, "left_s": 80.0, "metric": "accuracy",
    "best": {"nr": 7, "value": 0.98333, "values": {"optimizer.lr": 0.00213}},
    "running": [
        {"nr": 13, "epoch": 3, "epochs": 20, "step": 150, "steps": 1000, "value": 0.91, "steps_per_s": 120.0},
        {"nr": 14},
    ],
}  # fmt: skip


def test_a_search_shows_how_far_it_is_and_what_each_worker_trains(terminal):
    shown = plain(terminal.tell(STUDY, {**STUDY, "running": STUDY["running"][:1]}, close=False))
    first, last = (shown.split("trials 12/20")[nr] for nr in (1, -1))
    assert re.match(r" +[━╸╺]+ *1 min 20 s left  best accuracy 0.983 of trial 7  optimizer.lr=0.00213 *\n", first), first
    assert re.search(r"\n  trial 13 +[━╸╺]+ *epoch 3/20  accuracy 0.91  120 steps/s *\n  trial 14 +[━╸╺]+ *starts", first), first
    assert "trial 13" in last
    assert "trial 14" not in last


def test_a_log_has_no_passing_state_of_a_search(capsys, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    tell(STUDY).close()
    assert capsys.readouterr().err == ""


def test_a_dumb_terminal_gets_the_lines_of_a_log(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("CI")
    assert "\x1b" not in terminal.tell(*EVENTS, close=False)


def test_a_log_has_plain_lines_and_not_too_many(capsys, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(Progress, "LOG_EVERY_S", 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: 5000.0)
    tell(*EVENTS).close()
    status = "  epoch 1/4  step 64/400  train loss 0.512  12 s left  28 steps/s\n"
    assert capsys.readouterr().err == LINES.replace("baseline:\n", f"baseline:\n{status}")


def test_nothing_passing_is_shown_under_ci(capsys, monkeypatch):
    monkeypatch.setenv("CI", "true")
    tell(*EVENTS).close()
    assert capsys.readouterr().err == LINES


def test_a_notebook_shows_lines_on_standard_output(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    tell(*EVENTS)
    said = capsys.readouterr()
    assert "passed over a [damaged] checkpoint" in said.out
    assert said.err == ""


def test_what_is_not_known_yet_is_left_out():
    assert progress_parts(Training(epoch=1, epochs=2, step=3, steps=8)) == ["epoch 1/2", "step 3/8"]
    assert progress_parts(Training(step=3, steps=8, loss=0.5, steps_per_s=1.0)) == [
        "step 3/8",
        "train loss 0.5",
        "5 s left",
        "1 steps/s",
    ]


def test_samples_and_tokens_in_a_second_follow_the_steps():
    shown = progress_parts(Training(step=3, steps=8, steps_per_s=2.0, samples_per_s=1792.4, tokens_per_s=229_427.2))
    assert shown == ["step 3/8", "2 s left", "2 steps/s", "1,792 samples/s", "229,427 tokens/s"]


def test_a_log_has_the_chosen_metric_of_an_evaluation_and_every_one_with_verbose(capsys, monkeypatch):
    monkeypatch.delenv("CI", raising=False)  # there, progress has no line
    for progress in (Progress(), Progress(verbose=True)):
        progress(EVENTS[3])
    assert capsys.readouterr().err.split("\n")[:2] == [
        "  epoch 1/4  step 100/400  train loss 0.4  validation accuracy 0.875",
        "  epoch 1/4  step 100/400  train loss 0.4  validation loss 0.3  validation accuracy 0.875",
    ]


def test_the_loss_of_each_split_is_named():
    row = Training(step=3, steps=8, loss=2.71, metric="loss", validation={"loss": 3.03})
    assert progress_parts(row) == ["step 3/8", "train loss 2.71", "validation loss 3.03"]


@pytest.mark.slow
def test_the_library_of_the_bar_is_loaded_for_a_terminal_only():
    code = "import sys, mltrainer.cli.phases, mltrainer.follow.progress as p; p.Progress(); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


INTERRUPTED = f"""
import sys, time
from mltrainer.cli.main import main
from mltrainer.project import engine

def walk(tools, until):
    for event in {EVENTS[:4]!r}:
        tools.tell(event)
    while True:  # in short naps: a signal that comes just before a long one would wait for its end
        time.sleep(0.05)

engine.walk = walk
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_a_terminal_clean(tmp_path, number, code):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", INTERRUPTED, "run", "--project", write_rings(tmp_path).root]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment, start_new_session=True)
    os.close(theirs)
    shown = ""
    while "accuracy" not in shown:
        shown += os.read(ours, 65536).decode()
    process.send_signal(number)
    with contextlib.suppress(OSError):  # the other end is closed
        while True:
            shown += os.read(ours, 65536).decode()
    os.close(ours)
    assert (process.wait(60), process.communicate()[0]) == (code, b"")
    assert shown.count(HIDE) == shown.count(SHOW) == 1
    assert plain(shown[shown.rindex(SHOW) :]).strip().startswith("error: ")


def test_no_line_is_wider_than_a_terminal_on_which_nothing_can_be_drawn(terminal, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "60")
    row = {**EVENTS[3], "metric": "balanced_accuracy", "validation": {"balanced_accuracy": 0.98765}, "steps_per_s": 28.0}
    lines = terminal.tell(EVENTS[1], row, {"event": "note", "text": "a sentence of many words " * 5}).splitlines()
    assert max(map(len, lines)) <= 60
    assert "balanced accuracy 0.988" in " ".join(lines)


def test_no_text_of_an_event_can_write_on_the_terminal_or_begin_a_line(terminal, capfd):
    note = {"event": "note", "text": "\x1b[2Jall hold\nrun x"}
    tell(note)
    assert capfd.readouterr().err == "  \\x1b[2Jall hold\\nrun x\n"
    row = {**EVENTS[3], "metric": "a\x1b[2J", "validation": {"a\x1b[2J": 0.5}}
    shown = terminal.tell(note, row, close=False)
    assert shown.count("\x1b[2J") == 0
    assert shown.count("\\x1b[2J") >= 2
