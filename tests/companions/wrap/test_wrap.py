"""`mltrainer wrap` on real programs."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import outputs
from tests.waiting import has_ended, until

SCRIPT = """
import os, sys, time
import numpy as np
import torch
from torch import nn

fault = sys.argv[1]
began = time.time()
torch.manual_seed(0)
if fault == "clock":
    torch.manual_seed(time.time_ns() % 1000003)  # guilty: clock
order = list(range(64))
if fault == "set":
    order = [int(name) for name in {str(index) for index in order}]  # guilty: set
x, y = torch.randn(64, 8), torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
first = 0
if "--resume" in sys.argv:
    saved = torch.load("saved.pt")
    model.load_state_dict(saved["model"])
    first = saved["step"]
    torch.set_rng_state(saved["rng"])
    if fault != "momentum":
        optimizer.load_state_dict(saved["optimizer"])
for step in range(first, 10):
    batch = x[[order[(step * 8 + k) % 64] for k in range(8)]]
    if fault == "draw":
        batch = batch + np.random.default_rng().normal()  # guilty: draw
    if fault == "empty":
        batch = batch + torch.empty(8)  # guilty: empty
    if fault == "fails" and "elsewhere" in os.getcwd() and step == 3:
        raise ValueError("only here")
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), y[:8]).backward()
    optimizer.step()
    if step == 4:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "rng": torch.get_rng_state(), "step": step + 1}, "saved.pt")
print("took", time.time() - began)
"""

WATCH = """
import subprocess
import sys

if subprocess.call([sys.executable, "train.py", "none"]):
    sys.exit(subprocess.call([sys.executable, "train.py", "none", "--resume"]))
"""

FUNCTION = """
import time
import torch

def main():
    norm = torch.nn.BatchNorm1d(2)
    torch.optim.SGD(norm.parameters()).step()
    norm.running_mean.fill_(time.time() % 1)

main()
"""


def wrap(folder: Path, *arguments: str, fault: str = "none", command: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    said = [sys.executable, "-m", "mltrainer", "wrap", *arguments, "--", *(command or (sys.executable, "train.py", fault))]
    return subprocess.run(said, cwd=folder, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def guilty(fault: str) -> int:
    return next(n for n, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith(f"# guilty: {fault}"))


@pytest.mark.slow
@pytest.mark.wheel
def test_a_program_that_repeats_is_said_to_and_nothing_is_left(tmp_path):
    before = sorted(os.listdir(tmp_path))
    done = wrap(tmp_path, "--steps", "3", "--out", str(tmp_path / "report.md"))
    assert done.returncode == 0, done.stderr
    assert re.match("it repeats: 3 optimizer steps, in 2 runs, all gradients and weights the same", done.stdout)
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "report.md", "train.py"])
    page = (tmp_path / "report.md").read_text()
    sha256 = hashlib.sha256((tmp_path / "train.py").read_bytes()).hexdigest()
    assert "**It repeats.**" in page
    assert f"| `train.py` | code | {len(SCRIPT):,} | `{sha256[:12]}` |" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("clock", "clock"),
        pytest.param("set", "hash order", marks=pytest.mark.long),
        pytest.param("draw", "random draw", marks=pytest.mark.long),
        ("empty", "unwritten memory"),
    ],
)
def test_a_program_that_does_not_repeat_is_told_with_the_line(tmp_path, fault, kind):
    done = wrap(tmp_path, "--steps", "4", "--json", fault=fault)
    assert done.returncode == 5, done.stderr
    found: dict[str, Any] = outputs.check(["wrap"], done.stdout)
    assert (found["same"], found["cause"]["kind"]) == (False, kind)
    assert found["cause"]["lines"][0]["where"] == f"train.py:{guilty(fault)}"


THREADS = """
import random, sys, threading, time
import torch
from torch import nn

def train(number):
    own = torch.Generator().manual_seed(number)
    model = nn.Linear(4, 1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        time.sleep(random.SystemRandom().random() / 50)
        noise = random.SystemRandom().random() if (sys.argv[1:], number, step) == (["noise"], 2, 3) else 0
        optimizer.zero_grad()
        (model(torch.randn(8, 4, generator=own)) + noise).pow(2).mean().backward()
        optimizer.step()

threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code"), [pytest.param((), 0, marks=pytest.mark.long), (("noise",), 5)])
@pytest.mark.long
def test_trainings_in_threads_repeat_in_whichever_order_their_steps_come(tmp_path, arguments, code):
    (tmp_path / "threads.py").write_text(THREADS)
    done = wrap(tmp_path, "--steps", "0", "--json", command=(sys.executable, "threads.py", *arguments))
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_a_second_run_that_fails_is_told_with_what_it_printed(tmp_path):
    done = wrap(tmp_path, "--steps", "6", fault="fails")
    assert done.returncode == 5
    assert "IT DOES NOT REPEAT: how many steps are made differs at optimizer step 4" in done.stdout
    assert "ValueError: only here" in done.stdout


@pytest.mark.slow
@pytest.mark.long
def test_a_program_that_cannot_be_traced_is_told_so(tmp_path):
    code = "import sys, time, torch; assert not sys.gettrace(), 'not under a tracer'; p = torch.ones(2, requires_grad=True);"
    code += "p.grad = torch.full((2,), time.time() % 1); torch.optim.SGD([p]).step()"
    done = wrap(tmp_path, "--steps", "1", command=(sys.executable, "-c", code))
    assert (done.returncode, "Traceback" in done.stdout) == (5, False)
    assert "traced, the program failed" in done.stderr
    assert "not under a tracer" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "code"), [pytest.param("none", 0, marks=pytest.mark.long), ("momentum", 5)])
@pytest.mark.long
def test_resuming_is_compared_with_the_undisturbed_run(tmp_path, fault, code):
    again = f"{sys.executable} train.py {fault} --resume"
    done = wrap(tmp_path, "--steps", "2", "--resume-check", again, "--kill-at", "7", fault=fault)
    assert done.returncode == code, done.stderr
    if code == 0:
        assert "resuming holds: killed after step 7, resumed after step 5 of 10" in done.stdout
    else:
        assert "RESUMING DOES NOT HOLD" in done.stdout
        assert "differs at step 6: its optimizer or schedule did not go on from where it stood" in done.stdout


@pytest.mark.slow
@pytest.mark.long
def test_what_a_function_has_let_go_of_by_the_end_is_compared_whole(tmp_path):
    (tmp_path / "own.py").write_text(FUNCTION)
    done = wrap(tmp_path, "--steps", "0", command=(sys.executable, "own.py"))
    assert (done.returncode, "the model's buffers" in done.stdout) == (5, True), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_a_kill_before_the_first_checkpoint_is_told(tmp_path):
    again = f"{sys.executable} train.py none"
    done = wrap(tmp_path, "--steps", "2", "--resume-check", again, "--kill-at", "3")
    assert done.returncode == 1
    assert "there was no checkpoint to resume from" in done.stderr
    assert done.stdout.startswith("it repeats: 2 optimizer steps")


@pytest.mark.slow
@pytest.mark.long
def test_a_program_that_something_starts_again_is_not_judged_as_one_that_was_killed(tmp_path):
    (tmp_path / "watch.py").write_text(WATCH)
    watched, again = (sys.executable, "watch.py"), f"{sys.executable} train.py none --resume"
    done = wrap(tmp_path, "--steps", "2", "--resume-check", again, "--kill-at", "7", command=watched)
    assert done.returncode == 1
    assert "killed after step 7 it still ended with exit code 0: something restarts it" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "told", "expected"),
    [
        ("raise SystemExit('no data')", "exit code 1", 1),
        ("import torch", "no step of a PyTorch optimizer was seen", 1),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9 (SIGKILL): the system does that where memory runs out", 7),
        ("import os; os.kill(os.getpid(), 11)", "ended with signal 11 (SIGSEGV)", 1),
        ("raise MemoryError", "out of memory: MemoryError", 7),
    ],
)
def test_a_program_that_cannot_be_judged_is_refused_without_a_traceback(tmp_path, code, told, expected):
    done = wrap(tmp_path, command=(sys.executable, "-c", code))
    assert (done.returncode, "Traceback" in done.stderr) == (expected, False)
    assert told in done.stderr


def test_what_a_program_said_last_names_files_as_its_user_knows_them(tmp_path):
    done = wrap(tmp_path, command=(sys.executable, "missing.py"))
    assert done.returncode == 1
    assert f"can't open file '{tmp_path / 'missing.py'}'" in done.stderr


def test_an_interrupted_check_ends_the_program_and_does_not_promise_to_go_on(tmp_path):
    code = "import os, time; print(os.getpid(), file=open(os.environ['HERE'], 'w'), flush=True); time.sleep(60)"
    said, here = [sys.executable, "-m", "mltrainer", "wrap", "--", sys.executable, "-c", code], tmp_path / "pid"
    running = subprocess.Popen(said, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "HERE": str(here)})
    until(lambda: here.exists() and here.read_text().endswith("\n"))
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "nothing was kept to continue from" in told
    assert "to go on\n" not in told
    until(lambda: has_ended(here.read_text().strip()))


def test_no_command_is_wrong_usage(tmp_path):
    done = subprocess.run([sys.executable, "-m", "mltrainer", "wrap"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2


@pytest.mark.slow
def test_what_cannot_be_is_wrong_usage_before_anything_runs(tmp_path):
    (tmp_path / "file").touch()
    for given, told in (
        (("--out", "."), "expected a file, found '.'; it is a folder"),
        (("--out", "file/report.md"), "expected a file, found 'file/report.md'; it is not in a folder"),
        (("--kill-at", "5"), "needs --resume-check"),
    ):
        done = wrap(tmp_path, *given, command=("touch", "ran"))
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / "ran").exists()


def test_what_follows_the_program_is_the_programs_own(tmp_path):
    said = [sys.executable, "-m", "mltrainer", "wrap", sys.executable, "-c", "import sys; sys.exit(sys.argv[1])", "--json"]
    done = subprocess.run(said, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "    --json" in done.stderr  # what the program printed


@pytest.mark.parametrize(("again", "told"), [("", "--resume-check: the command is empty"), ("python 'x", "No closing quotation")])
def test_a_resuming_command_that_is_none_is_told_before_anything_runs(tmp_path, again, told):
    done = wrap(tmp_path, "--resume-check", again, command=("touch", "ran"))
    assert (done.returncode, "the program as it is" in done.stderr) == (1, False)
    assert told in done.stderr
