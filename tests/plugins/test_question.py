"""A command of another distribution: named in the help without being imported, imported when it is typed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.installing import install, use, write_metadata


@pytest.fixture
def epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = install(tmp_path / "site", "mltrainer-epochs")
    use(monkeypatch, site)
    yield site
    sys.modules.pop("mltrainer_epochs", None)


def test_help_names_it_and_imports_nothing(cli, epochs):
    assert "How many evaluations a run has." in cli("--help").out
    assert "mltrainer_epochs" not in sys.modules


def test_it_answers(cli, epochs, digits_once):
    said = cli("epochs", "baseline", "--project", digits_once)
    assert (said.code, said.err) == (0, "")
    assert int(said.out) > 1


def test_a_built_in_command_is_not_taken_over(cli, epochs, digits_once):
    write_metadata(epochs, "thief", "mltrainer.companions.questions", {"status": "mltrainer_epochs:app"})
    assert "planning" in cli("status", "--project", digits_once).out
    assert "Of installed packages:\n  epochs " in cli("--help").out
    assert "mltrainer_epochs" not in sys.modules


def test_a_command_that_nobody_has_is_wrong_usage(cli):
    cli("epochs", code=2)
