"""What wandb's offline files hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.sink import Place, Point
from mltrainer.configs.tracking import Wandb
from mltrainer.errors import InputError
from tests.companions.trackers.offline import Offline

pytest.importorskip("wandb")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of wandb's own making

RUN = "0123456789ab"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))


def begin(root: Path, known: str | None = None, run: str = RUN) -> Any:
    from mltrainer.companions.trackers.sinks import wandb

    return wandb.begin(Place(root, "invented", run, "baseline", known, 0), Wandb())


def test_runs_that_are_open_at_the_same_time_are_apart(tmp_path):
    one, two = begin(tmp_path), begin(tmp_path, run="abcdef012345")
    assert (one.id, two.id) == (RUN, "abcdef012345")
    one.close("finished")
    two.metrics([Point(1, 1e9, {"step/loss": 0.5})])
    two.close("finished")
    assert Offline(tmp_path / ".mltrainer/wandb").ids == {RUN, "abcdef012345"}


def test_its_offline_files_hold_all_that_it_was_given_and_one_run_for_who_goes_on(tmp_path):
    curve = tmp_path / "curve.svg"
    curve.write_text("<svg/>")
    run = begin(tmp_path)
    run.params({"optimizer.lr": 0.1, "compile": False})
    run.metrics([Point(nr, 1e9 + nr, {"step/loss": 1 / nr}) for nr in range(1, 501)])
    run.metrics([Point(20, 1e9, {"validation/accuracy": 0.5})])
    run.tags({"gate.baseline": "does not hold: " + "x" * 90, "weights_sha256": "ab" * 32})
    run.close("interrupted")
    again = begin(tmp_path, known=run.id)
    again.metrics([Point(501, 1e9, {"step/loss": math.nan})])
    again.figure("phases/02_baseline/curve.svg", curve)
    again.tags({"gate.baseline": "holds"})
    again.close("finished")
    found = Offline(tmp_path / ".mltrainer/wandb")
    assert found.ids == {run.id} == {RUN}
    assert (found.config["optimizer.lr"], found.config["compile"]) == (0.1, False)
    assert [step for step, _ in found.of("step/loss")] == list(range(1, 502))
    assert found.of("validation/accuracy") == [(20, 0.5)]
    assert found.summary["weights_sha256"] == "ab" * 32
    assert found.tags == ["gate.baseline: holds"]
    assert "phases/02_baseline/curve.svg" in found.files
    assert list((tmp_path / ".mltrainer/wandb").glob("*/files/media/html/**/*.html"))


def check(root: Path, mode: str) -> None:
    from mltrainer.companions.trackers.sinks import wandb

    wandb.check(root, "invented", Wandb(mode=mode, wait_s=4))  # type: ignore[arg-type]


def test_the_check_offline_leaves_nothing_and_finds_a_folder_that_cannot_be_written(tmp_path):
    check(tmp_path, "offline")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".mltrainer").mkdir()
    (tmp_path / ".mltrainer/wandb").write_text("where its files should be")
    with pytest.raises(InputError, match=r"the folder .mltrainer/wandb cannot be written"):
        check(tmp_path, "offline")


def test_the_check_online_finds_that_there_is_no_key_and_that_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # with no netrc
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="No API key configured") as caught:
        check(tmp_path, "online")
    assert caught.value.hint == "wandb login, or export WANDB_API_KEY=..."
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    with pytest.raises(Exception, match=r"127.0.0.1:9"):
        check(tmp_path, "online")
    assert list((tmp_path / ".mltrainer").rglob("*run-*")) == []
