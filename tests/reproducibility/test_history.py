"""What git's history still holds, in repositories that are made here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mltrainer.reproducibility import history
from mltrainer.reproducibility.git import GitError
from tests.conftest import git

LEDGER = "phases/ledger.json"


def put(folder: Path, text: str, path: str = LEDGER, name: str = "Ada") -> str:
    """Commit a file's text and return the commit."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change", name=name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "repository" / "models" / "one"
    root.mkdir(parents=True)
    git(tmp_path / "repository", "init", "--quiet", "--initial-branch=main")
    return root


def test_every_committed_version_is_found_oldest_first_also_after_its_removal(project):
    for number in (1, 2, 3):
        put(project, json.dumps([number]))
    (project / LEDGER).unlink()
    git(project, "commit", "--quiet", "--all", "--message", "Remove")
    assert history.ledgers(project, LEDGER) == [[1], [2], [3]]


def test_other_branches_count_where_they_are_asked_for(project):
    put(project, "[1]")
    git(project, "checkout", "--quiet", "-b", "other")
    put(project, "[2]")
    git(project, "checkout", "--quiet", "main")
    assert history.ledgers(project, LEDGER) == [[1], [2]]
    assert history.ledgers(project, LEDGER, every_branch=False) == [[1]]


def test_what_is_no_json_or_too_large_is_left_out(project, monkeypatch):
    monkeypatch.setattr(history, "MOST_BYTES", 20)
    for text in ("[1]", "{", "[" * 20, json.dumps("x" * 18), json.dumps("x" * 19)):
        put(project, text)
    assert history.ledgers(project, LEDGER) == [[1], "x" * 18]


def test_no_more_versions_are_read_than_the_newest_so_many(project, monkeypatch):
    monkeypatch.setattr(history, "MOST_VERSIONS", 2)
    for number in (1, 2, 3):
        put(project, json.dumps([number]))
    assert history.ledgers(project, LEDGER) == [[2], [3]]


def test_a_repository_without_commits_and_none_at_all_cannot_say(project, tmp_path):
    assert history.ledgers(project, LEDGER) == []
    (tmp_path / "none").mkdir()
    with pytest.raises(GitError):
        history.ledgers(tmp_path / "none", LEDGER)
    assert history.marks(tmp_path / "none") is None


def test_a_commit_is_held_or_not(project):
    commit = put(project, "[1]")
    blob = git(project, "rev-parse", f"HEAD:models/one/{LEDGER}")
    assert history.holds_commit(project, commit)
    assert [history.holds_commit(project, name) for name in ("0" * 40, blob, "HEAD^{tree}", "")] == [False] * 4


def test_a_shallow_clone_says_so(project, tmp_path):
    put(project, "[1]")
    put(project, "[2]")
    git(tmp_path, "clone", "--quiet", "--depth=1", (tmp_path / "repository").as_uri(), "clone")
    assert (history.is_shallow(project), history.is_shallow(tmp_path / "clone")) == (False, True)


def test_files_are_read_as_a_commit_holds_them_without_conversion(project):
    (project / ".gitattributes").write_text("*.py eol=crlf\n")
    commit = put(project, "x = 1\n", "task.py")
    put(project, "x = 2\n", "task.py")
    assert history.contents(project, commit, ["task.py", "none.py"]) == {"task.py": b"x = 1\n", "none.py": None}


def test_two_paths_of_the_same_content_are_both_found(project):
    put(project, "same\n", "a.py")
    commit = put(project, "same\n", "b.py")
    assert history.contents(project, commit, ["b.py", "a.py"]) == {"b.py": b"same\n", "a.py": b"same\n"}


def test_each_line_of_a_key_has_who_committed_it(project):
    put(project, '[\n{\n "by": "A",\n "x": 1}\n]\n', name="Ada")
    put(project, '[\n{\n "by": "A",\n "x": 2},\n{\n "by": "B",\n "author": 2}\n]\n', name="Bob")
    assert history.authors(project, LEDGER, "by") == ["Ada <ada@example.org>", "Bob <bob@example.org>"]
    (project / LEDGER).write_text("not committed")
    assert history.authors(project, LEDGER, "x") == ["Bob <bob@example.org>"]


@pytest.mark.parametrize("change", ["commit", "reset", "checkout"])
def test_the_marks_of_a_repository_change_with_its_present_commit(project, change):
    put(project, "[1]")
    put(project, "[2]")
    before = history.marks(project)
    assert history.marks(project) == before
    git(project, *{"commit": ("commit", "--allow-empty", "-qm", "x"), "reset": ("reset", "-q", "--hard", "HEAD~1"),
                   "checkout": ("checkout", "-q", "-b", "new")}[change])  # fmt: skip
    assert before is not None
    assert history.marks(project) != before
    assert None not in before


def test_a_worktree_has_marks_of_its_own(project, tmp_path):
    put(project, "[1]")
    git(project, "worktree", "add", "--quiet", str(tmp_path / "tree"), "-b", "tree")
    before = history.marks(tmp_path / "tree")
    git(tmp_path / "tree", "commit", "--allow-empty", "-qm", "x")
    assert before is not None
    assert None not in before
    assert history.marks(tmp_path / "tree") != before


def test_a_gpg_program_of_the_repositorys_config_is_not_run(project, tmp_path):
    put(project, "[1]")
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    os.chmod(spy, 0o755)
    for key, value in (("log.showSignature", "true"), ("gpg.program", str(spy)), ("diff.external", str(spy))):
        git(project, "config", key, value)
    assert history.ledgers(project, LEDGER) == [[1]]
    assert not (tmp_path / "ran").exists()
