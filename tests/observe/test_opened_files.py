"""What a training opens: seen whoever opens it and however, told once, and nothing that is bound elsewhere or only written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch
from safetensors import torch as st
from safetensors.torch import save_file

from mltrainer.handbook import shipped_folder
from mltrainer.observe.logs import rows_of
from mltrainer.observe.opened_files import OPENED, OpenedFiles
from mltrainer.observe.process import Process, Settings
from mltrainer.records.common import FileRow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    monkeypatch.chdir(root)
    yield root
    OpenedFiles(tmp_path / "over", root).end()


def opened(root: Path, do: Callable[[], Any], *known: str) -> list[str]:
    """Return what is told of what a function opens."""
    found = OpenedFiles(root / ".mltrainer/runs/r", root)
    do()
    return [row.path for row in found.rows(known)]


def forked(do: Callable[[], Any]) -> None:
    if (child := os.fork()) == 0:
        do()
        os._exit(0)
    os.waitpid(child, 0)


def write_all(folder: Path) -> None:
    (folder / "a.csv").write_text("x,y\n1,2\n")
    np.arange(4.0).tofile(folder / "a.bin")
    np.save(folder / "a.npy", np.arange(4.0))
    save_file({"w": torch.ones(2)}, folder / "a.safetensors")
    torch.save({"w": torch.ones(2)}, folder / "a.pt")
    with sqlite3.connect(folder / "a.db") as base:
        base.execute("create table t (x)")
    base.close()


def read_database(path: str) -> None:
    base = sqlite3.connect(path)
    base.execute("select * from t").fetchall()
    base.close()


READERS: dict[str, Callable[[], Any]] = {
    "open": lambda: open("data/a.csv").close(),
    "os.open": lambda: os.close(os.open("data/a.csv", os.O_RDONLY)),
    "bytes": lambda: open(b"data/a.csv").close(),
    "polars": lambda: polars.read_csv("data/a.csv"),
    "polars, by name": lambda: polars.scan_csv(source=Path("data/a.csv")).collect(),
    "memmap": lambda: np.memmap("data/a.bin", mode="r"),
    "memmap, to be written": lambda: np.memmap("data/a.bin"),
    "fromfile": lambda: np.fromfile("data/a.bin"),
    "load": lambda: np.load("data/a.npy", mmap_mode="r"),
    "safetensors": lambda: st.load_file("data/a.safetensors"),
    "safe_open": lambda: st.safe_open(filename="data/a.safetensors", framework="pt"),
    "torch": lambda: torch.load("data/a.pt", weights_only=True),
    "torch, mapped": lambda: torch.load("data/a.pt", weights_only=True, mmap=True),
    "torch.from_file": lambda: torch.from_file("data/a.bin", size=4),
    "sqlite3": lambda: read_database("data/a.db"),
    "a fork": lambda: forked(lambda: open("data/a.csv").close()),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_is_seen_whatever_reads_it(project, reader):
    write_all(project / "data")
    [path] = [name for name in opened(project, READERS[reader]) if ".coverage" not in name]  # which a fork writes under coverage
    assert path.startswith("data/a.")
    assert path in {f"data/a.{end}" for end in ("csv", "bin", "npy", "safetensors", "pt", "db")}


def test_a_file_is_told_once_with_digest_and_size(project):
    (project / "data/a.csv").write_text("12345")
    found = OpenedFiles(project / ".mltrainer/runs/r", project)
    for _ in range(3):
        (project / "data/a.csv").read_text()
    sha256 = hashlib.sha256(b"12345").hexdigest()
    assert found.rows([]) == [FileRow(path="data/a.csv", sha256=sha256, size=5)]


def test_a_file_outside_is_told_by_its_whole_path(project):
    outside = project.parent / "teacher" / "vocabulary.txt"
    outside.parent.mkdir()
    outside.write_text("a b c")
    assert opened(project, lambda: Path("../teacher/vocabulary.txt").read_text()) == [str(outside)]


def tried(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        Path(path).read_text()


LEFT_OUT = {
    "written": lambda: Path("data/log.txt").write_text("x"),
    "written, then read": lambda: (Path("data/new.txt").write_text("x"), Path("data/new.txt").read_text()),
    "added to": lambda: open("data/a.csv", "a").close(),
    "read, then written anew": lambda: (Path("data/a.csv").read_text(), Path("data/a.csv").write_text("other")),
    "of the run": lambda: Path(".mltrainer/runs/r/job.json").read_text(),
    "of a phase": lambda: Path("phases/01_planning/record.json").read_text(),
    "the project's": lambda: Path("mltrainer.yaml").read_text(),
    "a page of its own": lambda: Path("diagnostics/overfitting.md").read_text(),
    "a shipped page": lambda: (shipped_folder() / "diagnostics/overfitting.md").read_text(),
    "known": lambda: Path("known.csv").read_text(),
    "in a known folder": lambda: Path("pictures/a/1.png").read_text(),
    "gone": lambda: (Path("data/a.csv").read_text(), Path("data/a.csv").unlink()),
    "never there": lambda: tried("data/none"),
    "another project's state": lambda: Path("../teacher/.mltrainer/runs/t/result.json").read_text(),
    "of the machine": lambda: Path("/etc/passwd").read_text(),
    "a compiler's": lambda: Path("../torchinductor_me/kernel.txt").read_text(),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_no_input_or_is_bound_elsewhere_is_left_out(project, what):
    names = ("data/a.csv", ".mltrainer/runs/r/job.json", "phases/01_planning/record.json", "mltrainer.yaml", "known.csv")
    more = ("diagnostics/overfitting.md", "pictures/a/1.png", "../teacher/.mltrainer/runs/t/result.json")
    for name in (*names, *more, "../torchinductor_me/kernel.txt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    assert opened(project, LEFT_OUT[what], "known.csv", "pictures") == []


def test_another_projects_weights_are_an_input(project):
    weights = project.parent / "teacher/.mltrainer/runs/t/checkpoints/step-1/state.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"1")
    assert opened(project, weights.read_bytes) == [str(weights)]


def test_hidden_files_of_the_home_are_no_inputs_but_what_was_fetched_into_its_cache_is(project, monkeypatch):
    home = project.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in (".netrc", ".aws/keys", ".cache/hub/model.bin", ".cache/matplotlib/fonts", "shared/words.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    found = opened(project, lambda: [path.read_text() for path in home.rglob("*") if path.is_file()])
    assert found == [str(home / ".cache/hub/model.bin"), str(home / "shared/words.txt")]


def test_what_an_earlier_process_of_the_run_opened_stays_and_another_run_begins_with_nothing(project):
    (project / "data/a.csv").write_text("1")
    first = OpenedFiles(project / ".mltrainer/runs/r", project)
    (project / "data/a.csv").read_text()
    first.end()
    assert opened(project, lambda: None) == ["data/a.csv"]
    assert OpenedFiles(project / ".mltrainer/runs/s", project).rows([]) == []


@pytest.mark.parametrize("path", ["data/a.csv", "{root}/data/a.csv"])
def test_each_run_of_a_process_sees_the_same_files(project, path):
    (project / "data/a.csv").write_text("1")
    for run in ("r", "s"):
        found = OpenedFiles(project / f".mltrainer/runs/{run}", project)
        Path(path.format(root=project)).read_text()
        assert [row.path for row in found.rows([])] == ["data/a.csv"]


def test_a_run_that_is_over_leaves_no_lines_and_notes_nothing_more(project):
    (project / "data/a.csv").write_text("1")
    found = OpenedFiles(project / ".mltrainer/runs/r", project)
    found.end()
    (project / "data/a.csv").read_text()
    assert found.rows([]) == []
    found.remove_notes()
    assert not (project / ".mltrainer/runs/r" / OPENED).exists()


def test_a_run_that_goes_on_where_its_project_was_moved_to_opened_the_projects_own_files(tmp_path):
    before, now = tmp_path / "before", tmp_path / "now"
    for name in ("words.txt", ".mltrainer/runs/a/state.safetensors"):
        (before / name).parent.mkdir(parents=True, exist_ok=True)
        (before / name).write_text(name)
    opened = OpenedFiles(before / ".mltrainer/runs/b", before)
    for name in ("words.txt", ".mltrainer/runs/a/state.safetensors"):
        (before / name).read_text()
    opened.end()
    before.rename(now)
    again = OpenedFiles(now / ".mltrainer/runs/b", now)
    assert [row.path for row in again.rows([])] == ["words.txt"]
    again.end()


def test_lines_go_on_after_a_file_that_could_not_be_closed(tmp_path, monkeypatch):
    process = Process(Settings(folder=str(tmp_path)))
    lines = process.lines("files")
    with monkeypatch.context() as full:
        full.setattr(process, "open", lambda kind: Path("/dev/full").open("a"))  # noqa: SIM115 - it is the writer's to close
        for fails in (lambda: lines.write("lost"), lines.close):
            with pytest.raises(OSError, match="No space left"):
                fails()
    lines.write("kept")
    lines.close()
    assert [row[1:] for found in rows_of(tmp_path, "files").values() for row in found] == [["kept"]]
