"""kill -9 while saving, again and again: there is always an intact checkpoint."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mltrainer.checkpointing.format import load, newest_intact, sweep

SAVES = """
import sys, torch
from pathlib import Path
from mltrainer.checkpointing.format import save, snapshot
folder, same, step = Path(sys.argv[1]), sys.argv[2] == "same", int(sys.argv[3])
print("ready", flush=True)
while True:
    step += 1
    name = 7 if same else step
    tree = {"model": {"w": torch.full((64, 64), float(step))}, "step": step}
    save(folder / f"step-{name:08d}", snapshot(tree), {"step": name, "true_step": step})
    print(step, flush=True)
"""

DIES = """
import os, sys, torch
from pathlib import Path
from mltrainer.checkpointing.format import save, snapshot
folder, fatal = Path(sys.argv[1]), int(sys.argv[2])
def counted(module, name):
    real = getattr(module, name)
    def call(*arguments, **named):
        counted.calls += 1
        if counted.calls == fatal:
            os._exit(9)
        return real(*arguments, **named)
    setattr(module, name, call)
counted.calls = 0
for module, name in [(os, "open"), (os, "write"), (os, "fsync"), (os, "rename"), (os, "mkdir"), (os, "unlink"), (os, "rmdir"), (Path, "rename")]:
    counted(module, name)
save(folder / "step-00000007", snapshot({"new": torch.ones(4)}), {"step": 7})
"""


def _killed(folder: Path, mode: str, start: int, delay: float) -> int:
    """Let a process save until it is killed; return the last step that it said was saved."""
    command = [sys.executable, "-c", SAVES, str(folder), mode, str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().splitlines() if line.strip()]
    return said[-1] if said else start


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["new", "same"])
def test_whatever_the_moment_of_the_kill_the_last_saved_state_is_there(mode: str, tmp_path: Path) -> None:
    done = 0
    for nr in range(8):
        done = _killed(tmp_path, mode, done, 0.05 + 0.0037 * nr)
        folder, skipped = newest_intact(tmp_path)
        assert folder is not None
        assert skipped == []
        tree, manifest = load(folder)
        assert tree["step"] == manifest["true_step"] in (done, done + 1)
        assert tree["model"]["w"].eq(tree["step"]).all()
        done = tree["step"]
        sweep(tmp_path)
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_death_at_any_system_call_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    """A process that forks for every call: importing torch once keeps it quick."""
    script = tmp_path / "dies.py"
    script.write_text(FORKS)
    result = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    deaths, old, new = map(int, result.stdout.split())
    assert deaths >= 20
    assert old > 0
    assert new > 0


FORKS = DIES.replace("folder, fatal = Path(sys.argv[1]), int(sys.argv[2])", "").split("def counted")[0] + """
import itertools, shutil
from mltrainer.checkpointing.format import load, newest_intact, sweep
NAMES = [(os, "open"), (os, "write"), (os, "fsync"), (os, "rename"), (os, "mkdir"), (os, "unlink"), (os, "rmdir"), (Path, "rename")]
root, old, new = Path(sys.argv[1]), 0, 0

def deadly(real, state):
    def call(*arguments, **named):
        state[0] -= 1
        if state[0] < 0:
            os._exit(9)
        return real(*arguments, **named)
    return call

for fatal in itertools.count():
    folder = root / str(fatal)
    save(folder / "step-00000007", snapshot({"old": 1}), {"step": 7})
    child = os.fork()
    if child == 0:
        state = [fatal]
        for module, name in NAMES:
            setattr(module, name, deadly(getattr(module, name), state))
        save(folder / "step-00000007", snapshot({"new": torch.ones(4)}), {"step": 7})
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found, skipped = newest_intact(folder)
    assert found is not None and not skipped, (fatal, skipped)
    tree = load(found)[0]
    old, new = old + ("old" in tree), new + ("new" in tree)
    sweep(folder)
    assert [p.name for p in folder.iterdir()] == ["step-00000007"], fatal
    if code == 0:
        break
print(fatal, old, new)
"""


def test_a_swept_folder_keeps_working(tmp_path: Path) -> None:
    (tmp_path / ".tmp-dead").mkdir()
    os.close(os.open(tmp_path / ".tmp-dead" / "state.json", os.O_CREAT | os.O_WRONLY))
    sweep(tmp_path)
    assert newest_intact(tmp_path) == (None, [])
