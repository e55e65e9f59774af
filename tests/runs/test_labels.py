"""Names and tags of runs: kept on this machine, shown by commands, and known to no record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltrainer.errors import InputError
from mltrainer.runs.labels import MOST_TAGS, Labels, label_run, labels_file, read_labels
from mltrainer.workspace import Project
from tests.companions.monitor.invented import Training, empty_project

FIRST, OTHER = "a" * 12, "b" * 12


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with two runs."""
    found = empty_project(tmp_path)
    for run in (FIRST, OTHER):
        Training(found, run).epoch(0.5)
    return found


def test_a_run_gets_a_name_and_tags_and_loses_them(project):
    assert read_labels(project) == {}
    assert label_run(project, FIRST, "first try", ["good", "old", "good"]) == Labels("first try", ("good", "old"))
    label_run(project, OTHER, add=["good"])
    assert label_run(project, FIRST, remove=["old", "none of its"]) == Labels("first try", ("good",))
    assert read_labels(project) == {FIRST: Labels("first try", ("good",)), OTHER: Labels(None, ("good",))}
    assert label_run(project, FIRST, "", remove=["good"]) == Labels()
    assert list(read_labels(project)) == [OTHER]


@pytest.mark.parametrize("tag", ["", " ", "two words", "x" * 31, "a\nb", "\x1b[2J", "\u202e"])
def test_what_is_no_tag_is_refused_in_words(project, tag):
    with pytest.raises(InputError, match=r"a tag: expected .*, at most 30 characters, found ") as refused:
        label_run(project, FIRST, add=[tag])
    assert refused.value.hint == "mltrainer runs tag RUN good"
    assert not labels_file(project).exists()


def test_a_run_has_no_more_tags_than_can_be_seen(project):
    with pytest.raises(InputError, match="expected at most 12 tags of a run, found 13"):
        label_run(project, FIRST, add=[f"t{nr}" for nr in range(MOST_TAGS + 1)])


def test_a_file_that_a_person_edited_is_read_as_far_as_it_can_be_and_not_written_over(project):
    entries = {FIRST: {"name": 7, "tags": ["good", 3, "two words", "x" * 99]}, OTHER: "good"}
    labels_file(project).write_text(json.dumps(entries))
    assert read_labels(project) == {FIRST: Labels(None, ("good",)), OTHER: Labels()}
    labels_file(project).write_text('{"torn')
    assert read_labels(project) == {}
    with pytest.raises(InputError, match=r"labels\.json"):
        label_run(project, FIRST, add=["good"])
    assert labels_file(project).read_text() == '{"torn'


def test_the_commands_tag_list_and_filter(project, cli):
    there = ("--project", project.root)
    assert "name" not in cli("runs", "list", *there).out.splitlines()[0]
    said = cli("runs", "tag", "aaaa", "good", "--name", "first try", *there)
    assert (said.code, said.out) == (0, f"run {FIRST}: name first try, tags good\n")
    assert cli("runs", "tag", FIRST, "--json", *there).json == {"run": FIRST, "name": "first try", "tags": ["good"]}
    assert "first try" in cli("runs", "list", *there).out
    assert [run["id"] for run in cli("runs", "list", "--tag", "good", "--json", *there).json["runs"]] == [FIRST]
    assert cli("runs", "list", "--tag", "bad", *there).out == "no run has the tag 'bad'\n"
    refused = cli("runs", "tag", FIRST, "two words", *there)
    assert (refused.code, "Traceback" in refused.err) == (1, False)
    assert "at most 30" in refused.err


def test_no_digest_and_no_committed_file_knows_of_them(project):
    before = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    label_run(project, FIRST, "first try", ["good"])
    after = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    assert {path for path in after if before.get(path) != after[path]} <= {
        labels_file(project),
        labels_file(project).with_suffix(".lock"),
        project.state_dir / ".gitignore",
    }
