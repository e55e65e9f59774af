import os
import subprocess
import sys
from pathlib import Path

import pytest

from mltrainer.reproducibility.git import GitError, describe, run

NOTHING = {"commit": None, "branch": None, "dirty": None}


def test_a_clean_repository_is_described_by_commit_and_branch(repository, git):
    commit = git("rev-parse", "HEAD", cwd=repository)
    assert describe(repository) == {"commit": commit, "branch": "main", "dirty": False, "note": None}


@pytest.mark.parametrize("name", ["model.py", "new.py", "with space.py", "späße.py"])
def test_a_changed_or_new_file_makes_the_tree_dirty(repository, name):
    (repository / name).write_text("x = 2\n")
    assert describe(repository)["dirty"] is True


def test_a_folder_outside_any_repository_says_so(tmp_path, git):
    assert describe(tmp_path) == {**NOTHING, "note": "not a git repository"}


def test_git_that_is_not_installed_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe(tmp_path) == {**NOTHING, "note": "git is not installed"}


def test_a_repository_without_commits_says_so(tmp_path, git):
    git("init", "--initial-branch=main")
    (tmp_path / "a.py").write_text("")
    assert describe(tmp_path) == {
        "commit": None,
        "branch": "main",
        "dirty": True,
        "note": "the git repository has no commits yet",
    }


def test_a_detached_head_says_so(repository, git):
    git("checkout", "--detach", cwd=repository)
    found = describe(repository)
    assert (found["branch"], found["commit"] is None) == (None, False)
    assert "detached" in found["note"]


def test_a_shallow_clone_says_so(repository, git, tmp_path):
    git("commit", "--allow-empty", "--message=second", cwd=repository)
    git("clone", "--depth=1", f"file://{repository}", "shallow")
    found = describe(tmp_path / "shallow")
    assert found["commit"] == git("rev-parse", "HEAD", cwd=repository)
    assert "shallow" in found["note"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_repository_of_another_user_says_so(repository):
    for path in (repository, repository / ".git"):
        os.chown(path, 12345, 12345)
    found = describe(repository)
    assert found["commit"] is None
    assert "belongs to another user" in found["note"]


def test_the_message_of_another_users_repository_is_understood(tmp_path, fake_git):
    fake_git("echo \"fatal: detected dubious ownership in repository at '/x'\" >&2; exit 128")
    assert "belongs to another user" in describe(tmp_path)["note"]


def test_a_bare_repository_says_so(tmp_path, git):
    git("init", "--bare", "bare.git")
    note = "the folder itself is a bare git repository, without a work tree"
    assert describe(tmp_path / "bare.git") == {**NOTHING, "note": note}


def test_a_project_that_the_repository_around_it_ignores_is_not_versioned(repository):
    (repository / ".mltrainer").mkdir()
    assert describe(repository / ".mltrainer") == {**NOTHING, "note": "the git repository around the project ignores its folder"}


def test_git_that_hangs_is_given_up(tmp_path, fake_git):
    fake_git("exec sleep 30")
    with pytest.raises(GitError, match=r"git status did not end within 0\.2 s"):
        run(tmp_path, "status", timeout_s=0.2)


def test_an_unknown_failure_is_told_without_its_secrets(tmp_path, fake_git):
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    fake_git(f"echo 'fatal: cannot use {token}' >&2; exit 3")
    note = describe(tmp_path)["note"]
    assert note.startswith("git rev-parse ended with 3: fatal: cannot use")
    assert token not in note


@pytest.mark.parametrize(
    "name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_CEILING_DIRECTORIES"]
)
def test_the_callers_git_variables_do_not_lead_astray(repository, monkeypatch, name):
    expected = describe(repository)
    monkeypatch.setenv(name, str(repository.parent / "elsewhere"))
    assert describe(repository) == expected


def test_no_hook_or_monitor_of_the_repository_runs(repository, git):
    hook = repository / ".git" / "hooks" / "monitor"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    git("config", "core.fsmonitor", str(hook), cwd=repository)
    (repository / "model.py").write_text("x = 3\n")
    assert describe(repository)["dirty"] is True
    assert not (repository / "ran").exists()


def test_asking_changes_nothing_in_the_repository(repository):
    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (repository / ".git").rglob("*")}

    os.utime(repository / "model.py", ns=(1, 1))  # git would like to refresh its index
    before = state()
    describe(repository)
    assert state() == before


def test_remotes_are_never_told(repository, git):
    git("remote", "add", "origin", "https://ada:{}@example.org/x.git".format("s3cr3tpassw0rd"), cwd=repository)
    assert "example.org" not in str(describe(repository))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(GitError, match="no such folder: gone"):
        run(tmp_path / "gone", "status")


def test_a_relative_folder_is_that_of_this_process(repository, monkeypatch):
    monkeypatch.chdir(repository.parent)
    assert run(Path(repository.name), "rev-parse", "--show-toplevel").decode().strip() == str(repository)


def test_gitpython_is_imported_when_git_is_first_asked_and_leaves_no_variable_behind(repository):
    program = (
        "import os, sys; from pathlib import Path; from mltrainer.reproducibility import git; assert 'git' not in sys.modules;"
        "before = dict(os.environ); git.run(Path(sys.argv[1]), 'status'); assert 'git' in sys.modules;"
        "assert os.environ == before"
    )
    subprocess.run([sys.executable, "-c", program, str(repository)], check=True)
