"""The commands that look at a finished project answer, in words and in JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli

COMMANDS = [
    "status",
    "gate check",
    "runs list",
    "runs show baseline",
    "checkpoints list",
    "checkpoints verify",
    "diagnose baseline",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_answers_in_words_and_in_json(cli: Cli, digits_once: Path, command: str) -> None:
    assert cli(*command.split(), "--project", digits_once).code == 0
    assert isinstance(cli(*command.split(), "--json", "--project", digits_once).json, dict)


def test_two_runs_are_compared(cli: Cli, digits_once: Path) -> None:
    said = cli("runs", "compare", "baseline", "finalization", "--project", digits_once)
    assert said.code == 0
    assert "epochs" in said.out


def test_a_run_that_there_is_not_is_a_mistake_of_the_user(cli: Cli, digits_once: Path) -> None:
    assert cli("runs", "show", "../../x", "--project", digits_once).code == 1


def test_doctor_and_guide_answer_anywhere(cli: Cli) -> None:
    assert cli("doctor", "--json").code == 0
    assert "diagnostics/nan_loss" in cli("guide").out
    assert cli("guide", "diagnostics/nan_loss").code == 0
    assert cli("guide", "diagnostics/none").code == 1


def test_wrong_usage_exits_2(cli: Cli) -> None:
    assert cli("gate", "chek").code == 2


def test_a_table_becomes_a_project(cli: Cli, tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{'a' if i % 3 else 'b'},{i % 2}" for i in range(60))
    (tmp_path / "data.csv").write_text(f"size,kind,label\n{rows}\n")
    assert cli("init", tmp_path / "p", "--data", tmp_path / "data.csv", "--target", "label").code == 0
    assert "tabular_classification" in (tmp_path / "p" / "mltrainer.yaml").read_text()
    assert cli("init", tmp_path / "q", "--data", tmp_path / "data.csv", "--target", "lable").code == 1
