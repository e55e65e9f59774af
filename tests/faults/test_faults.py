"""No promise is broken at the calls that `make check` disturbs; and what writes carelessly is seen."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path, PurePath

import pytest

from tests.faults.images import Disk
from tests.faults.injector import Call, compiler, variables

TOP = Path(__file__).parents[2]

CARELESS = """
import json, sys
from pathlib import Path
from tests.faults.injector import WAYS, Injector
from tests.faults.writers import WRITERS, SIZE, Writer, _content, _old_file, counted, cut_off, tried
from mltrainer.leftovers import new_file

def in_place(folder):
    (folder / "file").write_bytes(b"n" * SIZE)

def without_sync(folder):
    (folder / "new").write_bytes(b"n" * SIZE)
    (folder / "new").replace(folder / "file")

injector, folder = Injector(), Path(sys.argv[1]) / "case"
for act in (in_place, without_sync):
    writer = Writer(_old_file, act, _content("file"))
    found = counted(writer, injector, folder)
    calls = [tried(writer, None, injector, folder, c.number, w)[0] for c in found for w in WAYS[c.op] if w != "kill"]
    images = [cut_off(writer, folder, found, number, draw)[0] for number in range(1, len(found) + 1) for draw in range(4)]
    print(act.__name__, any(calls), any(images))
"""


def disturbed(folder: Path, *arguments: str) -> str:
    """Return what a program says that runs with the shim."""
    if compiler() is None:
        pytest.skip("no C compiler here: no fault can be planted")
    environment = {**os.environ, "PYTHONPATH": str(TOP), **variables(folder)}
    done = subprocess.run([sys.executable, *arguments], env=environment, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_writers_at_every_call_and_some_commands_at_some_keep_every_promise():
    if compiler() is None:
        pytest.skip("no C compiler here: no fault can be planted")
    command = [sys.executable, "-m", "tests.faults", "--quick", "--seed", "1"]  # the same calls each time; `make faults` draws
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| writer: a checkpoint |" in done.stdout
    assert "| baseline |" in done.stdout
    assert "failures 0" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_writer_in_place_and_one_without_a_sync_are_seen(tmp_path):
    assert disturbed(tmp_path, "-c", CARELESS, str(tmp_path)).split() == [
        "in_place",
        "True",
        "True",
        "without_sync",
        "False",
        "True",
    ]


def test_the_calls_of_native_code_and_of_other_programs_are_counted(tmp_path):
    script = (
        "import sqlite3, subprocess, sys\nfrom pathlib import Path\nfrom tests.faults.injector import Injector, calls\n"
        "folder, log = Path(sys.argv[1]) / 'counted', Path(sys.argv[1]) / 'log'\nfolder.mkdir()\n"
        "with Injector().counting(folder, log):\n"
        "    sqlite3.connect(folder / 'base').execute('CREATE TABLE t (x)')\n"
        "    subprocess.run(['git', 'init', '--quiet', folder / 'repository'], check=True)\n"
        "found = calls(log)\n"
        "print(*sorted({Path(c.path).name for c in found if c.op == 'fsync' or c.site == 'git' and c.op == 'mkdir'}))\n"
    )
    found = disturbed(tmp_path, "-c", script, str(tmp_path)).split()
    assert {"base", "repository", "objects"} <= {*found}


# --- the model of a disk ----------------------------------------------------------------------------


def left(root: Path, *calls: tuple[str, str, str, bytes]) -> set[bytes | None]:
    """Return each content of `file` that a power cut after some calls may leave; None: no file."""
    found = set()
    for draw in range(60):
        disk = Disk(root)
        for number, (op, name, to, data) in enumerate(calls, 1):
            disk.apply(Call(number, op, "", str(PurePath(root, name)), str(PurePath(root, to)) if to else "", 0, data))
        target = root.parent / f"image-{draw}"
        disk.image(target, random.Random(draw))
        found.add((target / "file").read_bytes() if (target / "file").exists() else None)
    return found


WRITTEN = (("create", "new", "", b""), ("write", "new", "", b"1234"))
OF_SAFETENSORS = (("create", ".tmpAb12Cd", "", b""), ("write", ".tmpAb12Cd", "", b"1234"))
RENAMED = ("rename", "new", "file", b"")


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ((*WRITTEN, RENAMED), {b"old", b"", b"12", b"1234"}),
        ((*WRITTEN, ("fsync", "new", "", b""), RENAMED), {b"old", b"1234"}),
        ((*WRITTEN, ("fsync", "new", "", b""), RENAMED, ("fsync", "", "", b"")), {b"1234"}),
        ((*WRITTEN, RENAMED, ("fsync", "", "", b"")), {b"", b"12", b"1234"}),
        ((*OF_SAFETENSORS, ("fsync", "made", "", b""), ("rename", "made", "file", b"")), {b"old", b"1234"}),
    ],
)
def test_a_power_cut_keeps_what_was_synced_and_may_take_the_rest(tmp_path, calls, expected):
    root = tmp_path / "disk"
    root.mkdir()
    (root / "file").write_bytes(b"old")
    assert left(root, *calls) == expected
