"""Death while saving, at any moment: there is always an intact checkpoint, the old one or the new one.

Each test is a process that forks one child per death, because importing torch for every child would take seconds. Death at each
system call is tested with the other writers, in `tests/faults`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

KILLED = """
import os, random, signal, sys, time, torch
from pathlib import Path
from mltrainer.checkpointing.format import load, newest_intact, save, snapshot, sweep

torch.set_num_threads(1)
folder, same, done = Path(sys.argv[1]), sys.argv[2] == "same", 0
random.seed(7)

def save_for_ever(step, pipe):
    while True:
        step += 1
        name = 7 if same else step
        tree = {"w": torch.full((64, 64), float(step)), "step": step}
        save(folder / f"step-{name:08d}", snapshot(tree), {"step": name, "epoch": step})
        os.write(pipe, f"{step}\\n".encode())

for kill in range(40):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(done, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.readline() if kill % 4 == 0 else ""  # one save is let through, however slow the disk is
        time.sleep(random.uniform(0.001, 0.03))
        os.kill(child, signal.SIGKILL)
        told += pipe.read()
    os.waitpid(child, 0)
    done = int(told.split()[-1]) if told.strip() else done
    found, skipped = newest_intact(folder)
    assert found is not None and not skipped, (kill, skipped)
    tree, manifest = load(found)
    assert tree["step"] == manifest.epoch and tree["step"] in (done, done + 1), (kill, tree["step"], done)
    assert tree["w"].eq(tree["step"]).all()
    done = tree["step"]
    sweep(folder)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
print(kill + 1, done)
"""


def run(script: str, folder: Path, *arguments: str) -> list[int]:
    command = [sys.executable, "-c", script, str(folder), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["new", "same"])
def test_whatever_the_moment_of_the_kill_the_last_saved_state_is_there(mode, tmp_path):
    kills, steps = run(KILLED, tmp_path, mode)
    assert kills == 40
    assert steps >= 10
