"""One registration of a question gives its command, its measurement and its page of the handbook."""

from __future__ import annotations

import importlib.util

import pytest

from mltrainer.cli.app import command
from mltrainer.cli.catalogue import COMMANDS, SECTIONS
from mltrainer.handbook import shipped_folder
from mltrainer.questions.registry import EXPLORED, QUESTIONS, Question


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.command)
def test_a_question_is_a_command_that_its_tools_page_tells_of(question: Question) -> None:
    assert COMMANDS[question.command].help == question.help
    assert command(question.command).name == question.command
    assert f"mltrainer {question.command}" in (shipped_folder() / f"tools/{question.tool}/README.md").read_text()


def test_the_help_lists_a_question_below_the_command_that_it_names() -> None:
    assert [*SECTIONS["Look at what was trained"]][2:7] == ["diagnose", "rows", "reproduce", "ablate", "seeds"]
    assert [*SECTIONS["Explore, without a trace in the project"]][:2] == ["lr-find", "batch-size"]


@pytest.mark.parametrize("folder", EXPLORED.values())
def test_what_the_explorer_answers_has_a_measurement(folder: str) -> None:
    assert importlib.util.find_spec(f"mltrainer.questions.{folder}.measure") is not None
