"""What the policy does not keep goes, but never what a record, a fork or an export names."""

from __future__ import annotations

import shutil
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer.checkpointing import format as checkpoint_format
from mltrainer.checkpointing import ledger
from mltrainer.checkpointing.manifest import read_manifest
from mltrainer.trainers.native import saving, stages
from mltrainer.trainers.native.saving import Checkpoints
from mltrainer.workspace import write_json
from tests.trainers.native.digits_runs import STEPS, job, make, part_of, train

LEAST = {
    "checkpoint": {"every_n_epochs": 1, "save_best": True, "save_last": True, "keep": 0},
    "metric": {"name": "loss", "mode": "min"},
}
CHECKPOINTS = ".mltrainer/runs/run/checkpoints"
FIRST, LAST = f"{CHECKPOINTS}/step-00000006", f"{CHECKPOINTS}/step-00000018"


def recorded(root: Path) -> None:
    rows = [{"role": "checkpoint", "path": f"{FIRST}/state.json", "sha256": "0"}]
    write_json(root / "phases/02_baseline/record.json", {"inputs": rows})


def forked(root: Path) -> None:
    shutil.copytree(root / FIRST, root / ".mltrainer/runs/another/start/step-00000006")


def exported(root: Path) -> None:
    write_json(root / ".mltrainer/exports/run/job.json", {"checkpoint": FIRST})


@pytest.mark.slow
@pytest.mark.parametrize("name", [recorded, forked, exported, lambda _: None], ids=["record", "fork", "export", "nothing"])
def test_a_checkpoint_that_something_names_is_there_when_its_run_has_gone_on(tmp_path, name):
    root, work = make(tmp_path), job(LEAST)
    part_of(root, work, lambda step: step == 6)
    name(root)
    result = part_of(root, work, lambda _: False)
    named = name.__name__ in ("recorded", "forked", "exported")
    assert (root / FIRST).is_dir() is named
    assert {row["path"] for row in result["checkpoints"]} == {LAST, *([FIRST] if named else [])}


# --- every so many steps or minutes ---------------------------------------------------------------

RARE = {"every_n_epochs": 100, "save_best": False, "save_last": True, "keep": 99}


@pytest.fixture
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that always has caught up."""
    monkeypatch.setattr(Checkpoints, "_has_room", lambda _: True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(make(tmp_path_factory.mktemp("undisturbed")))


class Killed(BaseException):
    """The process ends here, and saves nothing."""


def killed_after(step: int) -> Callable[[int], bool]:
    def stop(number: int) -> bool:
        if number == step:
            raise Killed
        return False

    return stop


def saved(root: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[2]) for path in (root / CHECKPOINTS).glob("step-*"))


def test_steps_that_are_a_multiple_are_saved_and_kept_as_periodic_ones(tmp_path, fast_disk):
    result = part_of(make(tmp_path), job({"checkpoint": {**RARE, "every_n_steps": 4, "keep": 2}}), lambda _: False)
    assert {row["step"]: row["roles"] for row in result["checkpoints"]} == {12: ["periodic"], 16: ["periodic"], 18: ["last"]}


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "newest"), [(5, 4), (11, 8), (12, 8), (13, 12)])
def test_a_killed_run_goes_on_from_the_newest_of_its_steps_with_the_same_bits(tmp_path, fast_disk, undisturbed, killed, newest):
    root, work = make(tmp_path), job({"checkpoint": {**RARE, "every_n_steps": 4, "keep": 0}})
    with pytest.raises(Killed):
        part_of(root, work, killed_after(killed))
    assert saved(root) == [newest]
    again = part_of(root, work, lambda _: False)
    assert again["interruptions"] == [{"step": newest, "cause": "killed"}]
    assert (again["chain"], again["weights_sha256"]) == (undisturbed["chain"], undisturbed["weights_sha256"])
    assert [row["train_loss"] for row in again["history"]] == [row["train_loss"] for row in undisturbed["history"]]


def in_ledger(root: Path) -> list[int]:
    return [entry.step for entry in ledger.read(root / ".mltrainer/runs/run" / ledger.LEDGER_FILE)]


@pytest.mark.slow
def test_segments_keep_a_checkpoint_at_each_end_and_change_no_bit(tmp_path, fast_disk, undisturbed):
    result = part_of(make(tmp_path), job({"checkpoint": {**RARE, "keep": 0, "segments": 4}}), lambda _: False)
    assert saved(tmp_path) == in_ledger(tmp_path) == [5, 9, 14, STEPS]
    assert result["chain"] == undisturbed["chain"]
    end = ledger.head(ledger.read(tmp_path / ".mltrainer/runs/run" / ledger.LEDGER_FILE))
    assert result["ledger"] == {"entries": 4, "head": end.value}


@pytest.mark.slow
@pytest.mark.parametrize("has_line", [True, False])
def test_the_ledger_of_a_killed_run_has_each_checkpoint_once(tmp_path, fast_disk, has_line):
    root, work = make(tmp_path), job({"checkpoint": {**RARE, "every_n_steps": 4}})
    with pytest.raises(Killed):
        part_of(root, work, killed_after(10))
    if not has_line:  # killed between the checkpoint and its line
        path = root / ".mltrainer/runs/run" / ledger.LEDGER_FILE
        path.write_text(path.read_text().partition("\n")[0] + "\n")
    part_of(root, work, lambda _: False)
    assert in_ledger(root) == saved(root) == [4, 8, 12, 16, STEPS]


def with_a_clock(root: Path, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """Train where each step takes a minute; return the steps that were saved, in order, and the result."""
    clock, seen = [0.0], list[int]()
    monkeypatch.setattr(stages, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    save = checkpoint_format.save
    monkeypatch.setattr(saving, "save", lambda folder, *rest: [seen.append(int(folder.name[5:])), save(folder, *rest)][1])

    def a_minute_later(_: int) -> bool:
        clock[0] += 60
        return False

    return seen, part_of(root, job({"checkpoint": policy}), a_minute_later)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        ({**RARE, "every_minutes": 5}, [5, 10, 15, STEPS]),
        ({**RARE, "every_n_epochs": 1, "every_minutes": 5}, [5, 6, 11, 12, 17, STEPS]),
        ({**RARE, "every_n_steps": 8, "every_minutes": 6.5}, [7, 8, 15, 16, STEPS]),
        ({**RARE, "every_minutes": 60}, [STEPS]),
    ],
)
def test_minutes_are_counted_from_the_last_checkpoint(tmp_path, monkeypatch, fast_disk, undisturbed, policy, steps):
    seen, result = with_a_clock(make(tmp_path), monkeypatch, policy)
    assert seen == steps
    assert result["chain"] == undisturbed["chain"]


@pytest.mark.slow
def test_what_a_checkpoint_continues_is_on_the_disk_before_it_and_no_step_waits(tmp_path, monkeypatch):
    done, save = list[tuple[str, int]](), checkpoint_format.save
    threads = set[str]()

    def note(path: Path) -> None:
        threads.add(threading.current_thread().name)
        done.append((path.name, len(path.read_bytes()) if path.is_file() else 0))

    monkeypatch.setattr(saving, "sync", note)
    monkeypatch.setattr(saving, "save", lambda folder, *rest: [note(folder), save(folder, *rest)][1])
    train(make(tmp_path), **LEAST)
    names, recorded = [name for name, _ in done], ("chain.txt", "gradients.f32", "run")
    assert names == [*(name for step in (6, 12, 18) for name in (*recorded, f"step-{step:08d}")), *recorded]
    sizes = {name: (tmp_path / ".mltrainer/runs/run" / name).stat().st_size for name in recorded[:2]}
    assert dict(done[-7:-5]) == dict(done[-3:-1]) == sizes
    assert threads == {"checkpoint-writer"}


@pytest.mark.slow
def test_without_a_checkpoint_at_the_end_the_whole_chain_is_on_the_disk_before_the_result(tmp_path, monkeypatch):
    sizes = dict[str, int]()

    def note(path: Path) -> None:
        assert not (tmp_path / ".mltrainer/runs/run/result.json").exists()
        sizes[path.name] = path.stat().st_size

    monkeypatch.setattr(saving, "sync", note)
    train(make(tmp_path), **{**LEAST, "checkpoint": {**RARE, "save_last": False, "save_best": False}})
    chain = tmp_path / ".mltrainer/runs/run/chain.txt"
    assert sizes["chain.txt"] == chain.stat().st_size > 0


@pytest.mark.slow
def test_what_the_clock_had_saved_goes_once_something_newer_is_there(tmp_path, monkeypatch, fast_disk):
    with_a_clock(make(tmp_path), monkeypatch, {**RARE, "every_n_epochs": 2, "every_minutes": 5})
    periodic = {step: read_manifest(tmp_path / CHECKPOINTS / f"step-{step:08d}").periodic for step in saved(tmp_path)}
    assert periodic == {12: True, STEPS: False}


@pytest.mark.slow
def test_no_step_waits_for_a_disk_that_has_not_caught_up(tmp_path, monkeypatch):
    may_write, seen = threading.Event(), list[int]()
    save = checkpoint_format.save

    def slow(folder: Path, *rest: Any) -> Any:
        assert may_write.wait(60)
        seen.append(int(folder.name[5:]))
        return save(folder, *rest)

    def stop(number: int) -> bool:
        if number == STEPS - 1:
            may_write.set()
        return False

    monkeypatch.setattr(saving, "save", slow)
    part_of(make(tmp_path), job({"checkpoint": {**RARE, "every_n_steps": 1}}), stop)
    assert seen[-1] == STEPS
    assert not set(seen) & set(range(4, STEPS - 1))
