"""What TensorBoard's own reader finds in the event files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.sink import Place, Point
from mltrainer.configs.tracking import TensorBoard
from tests.companions.monitor.invented import empty_project

pytest.importorskip("tensorboard")

RUN = "0123456789ab"


def begin(root: Path, step: int = 0) -> Any:
    from mltrainer.companions.trackers.sinks import tensorboard

    place = Place(root, "invented", RUN, "baseline", RUN if step else None, step)
    return tensorboard.begin(place, TensorBoard(folder="board"))


def read(root: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(root / f"board/baseline-{RUN}"), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def text(found: Any, tag: str) -> str:
    return str(found.Tensors(tag)[-1].tensor_proto.string_val[0].decode())


def test_its_reader_finds_all_that_it_was_given(tmp_path):
    empty_project(tmp_path)
    curve = tmp_path / "curve.svg"
    curve.write_text("<svg/>")
    run = begin(tmp_path)
    run.params({"optimizer.lr": 0.1, "optimizer.name": "sgd", "compile": False, "model.hidden": "[1, 2]"})
    run.metrics([Point(nr, 1e9 + nr, {"step/loss": 1 / nr, "step/grad_norm": 2.0}) for nr in (1, 2, 4)])
    run.tags({"gate.baseline": "holds", "odd": "a | b"})
    run.figure("phases/02_baseline/curve.svg", curve)
    run.close("finished")
    found = read(tmp_path)
    assert [(row.step, row.value, row.wall_time) for row in found.Scalars("step/loss")] == [
        (1, 1.0, 1e9 + 1),
        (2, 0.5, 1e9 + 2),
        (4, 0.25, 1e9 + 4),
    ]
    assert "| optimizer.name | sgd |" in text(found, "config")
    assert "| gate.baseline | holds |\n| odd | a &#124; b |" in text(found, "tags")
    assert "figures/phases/02_baseline/curve.svg" in text(found, "files")
    assert (tmp_path / f"board/baseline-{RUN}/figures/phases/02_baseline/curve.svg").read_text() == "<svg/>"
    assert "_hparams_/session_start_info" in found.summary_metadata


def test_who_goes_on_writes_into_the_same_run(tmp_path):
    first = begin(tmp_path)
    first.metrics([Point(1, 1e9, {"step/loss": 1.0})])
    first.close("interrupted")
    second = begin(tmp_path, step=1)
    second.metrics([Point(2, 1e9, {"step/loss": 0.5})])
    second.close("finished")
    assert [row.step for row in read(tmp_path).Scalars("step/loss")] == [1, 2]


def test_what_was_given_is_on_the_disk_before_the_run_ends(tmp_path):
    begin(tmp_path).metrics([Point(1, 1e9, {"step/loss": 1.0})])
    assert [row.value for row in read(tmp_path).Scalars("step/loss")] == [1.0]
