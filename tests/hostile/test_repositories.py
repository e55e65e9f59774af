"""Strangers' repositories, each of one kind of trick, under every command that only looks: nothing runs, grows or leaves."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mltrainer.workspace import Project
from tests.conftest import commit, git
from tests.hostile.test_files import Place, commit_links, pipe, sparse
from tests.hostile.test_git import CONFIG, plant
from tests.hostile.test_processes import COMMANDS, OWN, PARENTS, cloned, faults, looked_at, written

LOOKS = (
    *COMMANDS,
    *(
        "status --json",
        "gate check --files",
        "gate check --json",
        "runs compare baseline finalization",
        "runs show baseline --json",
    ),
    *("guide phases/02_baseline/workflow", "watch", "watch --json"),
)
EQUALS = CONFIG["a filter whose name holds an equals sign"]


def put(path: Path, content: bytes | str) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def point(path: Path, aim: Path | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(aim)


def bare_layout(place: Place, canary: Path) -> None:
    """The project's folder is laid out as a repository itself: such files can be committed."""
    plant(Project(place.root), canary, {**EQUALS, **CONFIG["a file-system monitor"], "core.worktree": str(place.root)})
    for found in (place.root / ".git").iterdir():
        shutil.move(found, place.root / found.name)
    (place.root / ".git").rmdir()


def git_file(place: Place, canary: Path) -> None:
    """`.git` is a file that names a folder of the project."""
    plant(Project(place.root), canary, {**EQUALS, **CONFIG["a filter process"], **CONFIG["hooks elsewhere"]})
    shutil.move(place.root / ".git", place.root / "docs.git")
    put(place.root / ".git", "gitdir: docs.git\n")


def endless_git(place: Place, canary: Path) -> None:
    """Files that git reads for themselves have no end."""
    plant(
        Project(place.root),
        canary,
        CONFIG["attributes and excludes without an end"] | CONFIG["orders and revisions without an end"],
    )
    point(place.root / ".git/info/attributes", "/dev/zero")
    point(place.root / ".git/info/exclude", "/dev/zero")


def waiting_git(place: Place, canary: Path) -> None:
    """Git's own files are pipes, on which it waits."""
    os.mkfifo(canary.parent / "waits")
    point(place.root / ".git/objects/info/alternates", canary.parent / "waits")
    put(place.root / ".git/config.worktree", "[core]\n\tfsmonitor = touch ran\n")
    git(place.root, "config", "extensions.worktreeConfig", "true")


def submodules(place: Place, canary: Path) -> None:
    """Repositories in the repository, each with a configuration of its own."""
    for name in ("inner", "phases/inner", "a=b"):
        inner = place.root / name
        inner.mkdir(parents=True)
        git(inner, "init", "--quiet")
        put(inner / "file", "x")
        commit(inner)
        plant_inner(inner, canary)
    update = "".join(
        f'[submodule "{name}"]\n\tpath = {name}\n\turl = ext::{canary}\n\tupdate = !{canary}\n' for name in ("inner", "a=b")
    )
    put(place.root / ".gitmodules", update)
    git(place.root, "add", "--force", "inner", "a=b", ".gitmodules")
    put(place.root / "inner/file", "y")


def plant_inner(folder: Path, canary: Path) -> None:
    put(folder / ".gitattributes", "* filter=a=b\n")
    for key, value in {**EQUALS, **CONFIG["a file-system monitor"], **CONFIG["an external diff"]}.items():
        git(folder, "config", "--local", key, value.format(canary=canary))


def absent_objects(place: Place, canary: Path) -> None:
    """A clone that lacks contents, which git would fetch by a program."""
    for key, value in {**CONFIG["a promisor remote"], **CONFIG["a credential helper"], **CONFIG["an ssh command"]}.items():
        git(place.root, "config", "--local", key, value.format(canary=canary))
    for found in (place.root / ".git/objects").glob("[0-9a-f][0-9a-f]/*"):
        if found.stat().st_size > 2000:
            found.unlink()


def databases(place: Place, _canary: Path) -> None:
    """The answers of `serve` are kept outside, by a link; so are the files that SQLite keeps beside them."""
    for name in ("answers", "wal"):
        with sqlite3.connect(place.outside / name) as made:
            made.execute("create table secret (text)")
        made.close()
    point(place.root / ".mltrainer/served.sqlite", place.outside / "answers")
    for ending in ("-wal", "-journal", "-shm"):
        point(place.root / f".mltrainer/served.sqlite{ending}", place.outside / "wal")
    commit_links(place)


def private_files(place: Place, _canary: Path) -> None:
    """Files in which programs look for keys are pipes, devices, and secrets of others."""
    pipe(".env")(place)
    point(place.root / ".env.local", "/dev/zero")
    point(place.root / ".netrc", place.outside / "secret.txt")
    point(place.root / "phases/02_baseline/keys.json", "/proc/self/environ")
    put(place.root / "configs/.env", f"TOKEN={PARENTS}\n" * 3)
    (place.root / "configs/.env").unlink()
    commit_links(place)


def swollen_files(place: Place, _canary: Path) -> None:
    """Weights, arrays, packs and pictures that say they are far larger than they are."""
    step = next((place.root / ".mltrainer/runs").glob("*/checkpoints/step-*"))
    put(step / "state.safetensors", struct.pack("<Q", (1 << 63) - 1) + b"{" * 1000)
    run = step.parents[1]
    sparse(str((run / "gradients.f32").relative_to(place.root)), 1 << 42)(place)
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,)}"
    for found in (place.root / ".mltrainer/references").rglob("*.npy"):
        put(found, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n")
    with zipfile.ZipFile(place.root / ".mltrainer/runs/pack-0001.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("0123456789ab.zip", b"\0" * (1 << 28))
        pack.writestr("../../escaped.zip", b"x")
    picture = struct.pack(">II5B", 1 << 30, 1 << 30, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + picture + struct.pack(">I", zlib.crc32(b"IHDR" + picture))
    put(place.root / "phases/02_baseline/huge.png", b"\x89PNG\r\n\x1a\n" + chunk)


def words(place: Place, _canary: Path) -> None:
    """Texts on which a search for secrets, a renderer or a terminal would spend its time."""
    run = next((place.root / ".mltrainer/runs").iterdir())
    slow = "password=" * 50_000 + "a:" * 200_000 + "://" + "x" * 300_000 + "\x1b]0;ran\x07" * 1000
    put(run / "log.txt", slow)
    put(run / "error.json", json.dumps({"error": slow}))
    put(
        run / "events.jsonl",
        "".join(json.dumps({"event": "note", "text": slow[n : n + 50_000]}) + "\n" for n in range(0, 500_000, 50_000)),
    )
    put(place.root / "phases/02_baseline/baseline_report.md", "[" * 100_000 + "`" * 100_000 + "<" * 100_000)
    put(place.root / "phases/02_baseline/waivers.json", json.dumps([{"item": "x" * 100_000, "reason": slow}] * 3))


def runs_without_number(place: Place, _canary: Path) -> None:
    """Hundreds of runs, each a folder of what no run wrote."""
    for number in range(500):
        folder = place.root / f".mltrainer/runs/{number:012x}"
        put(folder / "job.json", json.dumps({"run": f"{number:012x}", "phase": "../../..", "purpose": "train"}))
        if number % 3 == 0:
            put(folder / "result.json", '{"state": "finished", "metrics": {"accuracy": 1e999}}')


def depths(place: Place, _canary: Path) -> None:
    """Folders in folders, names as long as may be, and names of letters that are none."""
    folder = place.root / "phases/02_baseline"
    here = os.open(folder, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    for name in (b"\xff\xfe" * 100, b"a\nb\x1b[2J", b"-rf", b"--help", b"$(touch ran)", b"%s%n.md"):
        put(folder / os.fsdecode(name), "x")


def large_history(place: Place, _canary: Path) -> None:
    """What git holds of the records is far larger than any record."""
    record = place.root / "phases/02_baseline/record.json"
    before = record.read_bytes()
    record.write_bytes(b'{"evidence": "' + b"x" * (96 << 20) + b'"}')
    put(place.root / "phases/05_finalization/test_openings.json", b"[" * (8 << 20))
    commit(place.root)
    record.write_bytes(before)
    lines = "".join(f"{'0' * 39}{n % 10} refs/heads/{n:0200d}\n" for n in range(20_000))
    put(place.root / ".git/packed-refs", f"# pack-refs with: peeled fully-peeled sorted\n{lines}")


REPOSITORIES: dict[str, Callable[[Place, Path], None]] = {
    found.__name__: found
    for found in (
        *(bare_layout, git_file, endless_git, waiting_git, submodules, absent_objects, databases),
        *(private_files, swollen_files, words, runs_without_number, depths, large_history),
    )
}


def content(folder: Path) -> dict[str, bytes]:
    """Return the plain files of a folder by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_strangers_repository_runs_writes_and_takes_nothing_under_any_command_that_looks(digits_once, tmp_path, name):
    place, canary = cloned(digits_once, tmp_path)
    outside = place.outside
    REPOSITORIES[name](place, canary)
    before = content(outside)
    told = looked_at(place.root, outside, LOOKS)
    assert content(outside) == before
    assert faults(told) == []
    (outside / "secret.txt").unlink()
    tokens = (OWN.encode(), PARENTS.encode())
    assert [path for path in written(tmp_path) if any(token in path.read_bytes() for token in tokens)] == []
