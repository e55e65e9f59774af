"""An executor of another distribution, which the machine's user names: tools start through it, and train the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltrainer.runs.launcher import EXECUTOR_VARIABLE
from tests.plugins.installing import install, use


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    use(monkeypatch, install(tmp_path / "site", "mltrainer-noted"))
    monkeypatch.setenv(EXECUTOR_VARIABLE, "noted")
    monkeypatch.setenv("NOTED", str(tmp_path / "noted.txt"))
    yield tmp_path / "noted.txt"
    sys.modules.pop("mltrainer_noted", None)


@pytest.mark.slow
@pytest.mark.usefixtures("real_tools")
def test_tools_start_through_it_and_give_the_same_bits(cli, digits, noted):
    cli("reproduce", "baseline", "--project", digits.root, out="bitwise identical")
    assert "mltrainer.tools.trainer" in noted.read_text("utf-8")


def test_one_that_is_not_installed_is_refused(cli, digits, monkeypatch):
    monkeypatch.setenv(EXECUTOR_VARIABLE, "gone")
    said = cli("checkpoints", "export", "baseline", "--to", digits.root / "out", "--project", digits.root, code=1)
    assert "MLTRAINER_EXECUTOR: 'gone' of executors is not installed" in said.err
