"""What of a program's run is compared bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltrainer.tools.script.history import Steps
from mltrainer.tools.script.observed import Observed
from mltrainer.tools.script.result import _chain
from mltrainer.wrap.judged import Judged
from mltrainer.wrap.lines import Entry


def head(tmp_path: Path, gradients: str = "ab", norm: float = 1.0, loss: float = 2.0) -> Any:
    (tmp_path / "run").mkdir(exist_ok=True)
    entries = (Entry(1, 0, gradients, "cd", "-"),)
    found = Observed(["python"], tmp_path, 1.0, entries, 1, (), "ef", [], [], Judged((), (), {}))
    return _chain({"folder": "run"}, found, Steps(losses={1: loss}, norms={1: norm}), tmp_path)[0]


def test_what_the_observer_sums_itself_is_not_compared(tmp_path: Path) -> None:
    assert head(tmp_path, norm=1.0) == head(tmp_path, norm=1.001)


def test_gradients_and_losses_are(tmp_path: Path) -> None:
    assert len({head(tmp_path), head(tmp_path, gradients="ac"), head(tmp_path, loss=2.001)}) == 3
