"""What wandb's offline files hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.tracking import Wandb
from mltrainer.tracking.sink import Place, Point
from tests.tracking.offline import Offline

pytest.importorskip("wandb")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of wandb's own making

RUN = "0123456789ab"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))


def begin(root: Path, known: str | None = None) -> Any:
    from mltrainer.tracking.sinks import wandb

    return wandb.begin(Place(root, "invented", RUN, "baseline", known, 0), Wandb())


def test_its_offline_files_hold_all_that_it_was_given_and_one_run_for_who_goes_on(tmp_path: Path) -> None:
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
