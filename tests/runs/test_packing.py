"""Ended runs packed into one file, and restored where somebody asks for one."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from mltrainer.errors import InputError, InUseError, MachineError
from mltrainer.reproducibility import packs
from mltrainer.runs import packing
from mltrainer.runs.find import find_run, list_runs
from mltrainer.runs.packing import pack_runs
from mltrainer.workspace import LOCK_FILE, Project, locked, seal, write_json

RUNS = ["0123456789ab", "0123456789cd", "abcdef012345"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "mltrainer.yaml").write_text("name: small\n")
    return Project(tmp_path)


def end(project: Project, run: str, age_s: int = 0) -> Path:
    """Write the folder of a run that has ended."""
    folder = project.runs_dir / run
    write_json(folder / "job.json", {"run": run, "phase": "optimization", "config": {}, "contract": {}})
    os.utime(folder / "job.json", (1.6e9 - age_s,) * 2)
    metrics = {"accuracy": 0.5, "train_accuracy": 1.0}
    write_json(
        folder / "result.json", seal({"id": run, "phase": "optimization", "state": "finished", "steps": 7, "metrics": metrics})
    )
    (folder / "checkpoints" / "step-00000007").mkdir(parents=True)
    (folder / "checkpoints" / "step-00000007" / "state.safetensors").write_bytes(bytes(range(256)) * 40)
    (folder / "lock").touch()
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def ended(project: Project) -> Project:
    for age, run in enumerate(RUNS):
        end(project, run, age_s=-100 * age)
    return project


def content(folder: Path) -> dict[str, bytes | None]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def test_packed_runs_are_listed_as_before_and_restored_by_name(ended, cli):
    listed, held = list_runs(ended), [content(ended.runs_dir / run) for run in RUNS]
    told = cli("runs", "pack", "--project", ended.root, code=0)
    assert re.fullmatch(r"\.mltrainer/runs/pack-0001\.zip: 3 runs, 12 files, [\d.]+ kB -> [\d.]+ kB\n", told.out)
    assert [path.name for path in ended.runs_dir.iterdir()] == ["pack-0001.zip"]
    assert list_runs(ended) == listed
    assert cli("runs", "show", "abc", "--json", "--project", ended.root).json["steps"] == 7
    assert [content(ended.runs_dir / find_run(ended, run)) for run in RUNS] == held
    assert list_runs(ended) == listed  # in the order of their jobs, which is that of their files' times


def test_json_tells_what_was_packed(ended, cli):
    (found,) = cli("runs", "pack", "--json", "--project", ended.root).json["packs"]
    assert (found["runs"], found["files"]) == (RUNS, 12)
    assert found["folder_bytes"] > 3 * 256 * 40 > found["pack_bytes"] > 0
    assert cli("runs", "pack", "--json", "--project", ended.root).json == {"packs": []}


def test_a_prefix_of_a_packed_run_and_of_another_is_refused(ended):
    list(pack_runs(ended))
    end(ended, "0123456789ef")
    with pytest.raises(InputError, match="matches 3 runs"):
        find_run(ended, "0123")


def test_a_run_that_is_in_use_unfinished_edited_tested_or_begun_by_a_fork_stays(ended):
    in_use, edited, tested = (ended.runs_dir / run for run in RUNS)
    (edited / "result.json").write_text((edited / "result.json").read_text().replace("0.5", "0.9"))
    write_json(tested / "test.json", {"rows": {}})
    forked = end(ended, "f" * 12)
    (forked / "start").mkdir()
    unfinished = end(ended, "e" * 12)
    (unfinished / "result.json").unlink()
    with locked(in_use / "lock", "the run"):
        assert list(pack_runs(ended)) == []


def test_what_a_record_or_an_export_names_stays(ended):
    bound = {"path": f".mltrainer/runs/{RUNS[0]}/result.json", "sha256": "0" * 64, "size": 1}
    write_json(ended.phase_dir("baseline") / "record.json", {"inputs": [bound]})
    write_json(ended.state_dir / "exports" / "one" / "job.json", {"checkpoint": f".mltrainer/runs/{RUNS[1]}/checkpoints/step-7"})
    (packed,) = pack_runs(ended)
    assert packed.runs == [RUNS[2]]


def test_nothing_is_packed_while_a_phase_runs(ended):
    with locked(ended.state_dir / LOCK_FILE, "the project"), pytest.raises(InUseError):
        list(pack_runs(ended))


def test_many_runs_make_several_packs(ended, monkeypatch):
    monkeypatch.setattr(packing, "MOST", 2)
    assert [found.runs for found in pack_runs(ended)] == [RUNS[:2], RUNS[2:]]
    assert set(packs.packed(ended.runs_dir)) == set(RUNS)


def test_a_run_packed_again_is_restored_as_it_was_last(ended):
    list(pack_runs(ended))
    folder = ended.runs_dir / find_run(ended, RUNS[0])
    (folder / "note.txt").write_text("looked at")
    assert [found.pack for found in pack_runs(ended)] == [".mltrainer/runs/pack-0002.zip"]
    assert (ended.runs_dir / find_run(ended, RUNS[0]) / "note.txt").exists()


def test_a_disk_that_fails_removes_no_folder(ended, monkeypatch):
    def full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    before = content(ended.runs_dir)
    monkeypatch.setattr(packs, "sync", full)
    with pytest.raises(MachineError, match="No space left"):
        list(pack_runs(ended))
    assert content(ended.runs_dir) == before


def test_a_kill_while_folders_are_removed_leaves_no_half_run(ended, monkeypatch):
    held = content(ended.runs_dir / RUNS[0])

    def killed(folder: Path) -> None:
        (folder / "result.json").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        list(pack_runs(ended))
    monkeypatch.undo()
    assert content(ended.runs_dir / find_run(ended, RUNS[0])) == held


def test_a_pack_that_was_cut_off_is_named(ended, cli):
    list(pack_runs(ended))
    path = ended.runs_dir / "pack-0001.zip"
    path.write_bytes(path.read_bytes()[:-200])
    said = cli("runs", "show", RUNS[0], "--project", ended.root, code=1, err="pack-0001.zip: this pack of runs is damaged")
    assert "can be trained again" in said.err


def test_a_flipped_byte_of_a_packed_file_is_found(ended):
    list(pack_runs(ended))
    path = ended.runs_dir / "pack-0001.zip"
    data = path.read_bytes()
    place = data.index(b"result.json") + 40
    path.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
    with pytest.raises(InputError, match="this pack of runs is damaged"):
        find_run(ended, RUNS[0])
    assert not (ended.runs_dir / RUNS[0]).exists()


def test_a_folder_without_a_job_does_not_hide_a_packed_run(ended):
    held = content(ended.runs_dir / RUNS[0])
    list(pack_runs(ended))
    write_json(ended.runs_dir / RUNS[0] / "trackers" / "sent.json", {})  # as a tracker that sends late
    assert content(ended.runs_dir / find_run(ended, RUNS[0])) == held
    assert (ended.runs_dir / f"{RUNS[0]}.damaged-1" / "trackers" / "sent.json").exists()


def test_a_run_that_is_gone_on_with_while_it_is_packed_keeps_its_folder(ended, monkeypatch):
    def changed(_path: Path) -> None:
        write_json(ended.runs_dir / RUNS[0] / "result.json", seal({"id": RUNS[0], "steps": 8}))

    monkeypatch.setattr(packs, "sync", changed)
    with locked(ended.runs_dir / RUNS[1] / "lock", "the run"):
        packs.pack(ended.runs_dir, RUNS)
    assert sorted(path.name for path in ended.runs_dir.iterdir()) == sorted([*RUNS[:2], "pack-0001.zip"])


def test_a_run_that_was_half_removed_and_restored_is_packed_again(ended, monkeypatch):
    def killed(_folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        list(pack_runs(ended))
    monkeypatch.undo()
    find_run(ended, RUNS[0])
    assert [found.runs for found in pack_runs(ended)] == [RUNS]


@pytest.mark.parametrize("kind", ["dangling link", "link to a folder", "pipe"])
def test_a_run_with_what_a_pack_cannot_hold_stays(ended, tmp_path, kind):
    odd = ended.runs_dir / RUNS[0] / "checkpoints" / "odd"
    os.mkfifo(odd) if kind == "pipe" else odd.symlink_to(tmp_path if kind == "link to a folder" else tmp_path / "gone")
    assert [found.runs for found in pack_runs(ended)] == [RUNS[1:]]


@pytest.mark.parametrize("name", ["../outside.txt", "a/../../outside.txt", "/outside.txt"])
def test_a_pack_writes_nothing_outside_the_run(project, name):
    project.runs_dir.mkdir(parents=True)
    with zipfile.ZipFile(project.runs_dir / "pack-0001.zip", "w") as outer, outer.open(f"{RUNS[0]}.zip", "w") as stream:
        outer.comment = b"mltrainer runs 1"
        with zipfile.ZipFile(stream, "w") as inner:
            inner.writestr(name, json.dumps({}))
    with pytest.raises(InputError, match="is outside its folder"):
        find_run(project, RUNS[0])
    assert sorted(path.name for path in project.runs_dir.iterdir()) == ["pack-0001.zip"]
