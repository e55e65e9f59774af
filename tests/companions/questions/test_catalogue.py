"""One registration of a question gives its command, its measurement and its page of the handbook."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from mltrainer import Project
from mltrainer.cli.app import command
from mltrainer.cli.catalogue import COMMANDS, SECTIONS
from mltrainer.companions import questions
from mltrainer.companions.questions.catalogue import EXPLORED, QUESTIONS
from mltrainer.handbook import shipped_folder


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_question_is_a_command_that_its_tools_page_tells_of(question):
    assert question.help in (None, COMMANDS[question.command].help)
    assert command(question.command).name == question.command
    assert f"mltrainer {question.command}" in " ".join(
        (shipped_folder() / f"tools/{question.tool}/README.md").read_text().split()
    )


@pytest.mark.parametrize("question", [one for one in QUESTIONS if one.after], ids=lambda question: question.name)
def test_the_help_lists_a_question_below_the_command_that_it_names(question):
    listed = [*SECTIONS[question.section]]
    assert listed[listed.index(question.command) - 1] == question.after


def test_the_help_lists_questions_that_name_no_command_in_the_catalogues_order():
    assert [*SECTIONS["Look at what was trained"]][2] == "diagnose"
    assert [*SECTIONS["Explore, without a trace in the project"]][:2] == ["lr-find", "batch-size"]


def test_each_measurement_is_of_a_registered_question():
    names = {path.stem for path in (Path(questions.__file__).parent / "measurements").glob("[!_]*.py")}
    assert names <= {"explorer", *(question.name for question in QUESTIONS)}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_its_calls_are_in_the_reference(question):
    guide = (Path(__file__).parents[3] / "docs/API.md").read_text()
    assert [call for call in question.calls if f"::: mltrainer.companions.questions.{question.name}.{call}\n" not in guide] == []
    assert [call for call in question.calls if f"`{call}`" not in str(Project.__doc__)] == []


@pytest.mark.parametrize("name", EXPLORED.values())
def test_what_the_explorer_answers_has_a_measurement(name):
    assert importlib.util.find_spec(f"mltrainer.companions.questions.measurements.{name}") is not None
