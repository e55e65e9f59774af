"""Every state that git can be in: planning works, records truthfully what it found, and leaves the repository alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mltrainer.workspace import Project, sha256_bytes
from tests.conftest import Cli, commit, git
from tests.projects import recorded, write_rings

pytestmark = pytest.mark.usefixtures("tools_here")

COMMANDS = (("phase", "run", "planning", "--set", "epochs=2"), ("gate", "check", "planning"), ("status",))
NO_COMMIT = {"commit": None, "branch": None, "dirty": None, "snapshot": None}
DIGESTS = "the digests of the imported files stand for the code"


@pytest.fixture(autouse=True)
def plain_git(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git without the settings of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def versioned(folder: Path, top: Path | None = None) -> Project:
    """Return a project that is committed in a repository, its own or the one at `top`."""
    project = write_rings(folder)
    (folder / ".gitignore").write_text(".mltrainer/\n__pycache__/\n")
    commit(top or folder, new=True)
    return project


def held(folder: Path) -> dict[str, Any]:
    """Return what of a repository is its user's: head, branches, tags, stash, config, index, and the state of each file."""
    names = ("HEAD", "config", "index")
    places = git(folder, "rev-parse", *(part for name in names for part in ("--git-path", name))).split("\n")
    paths = dict(zip(names, (folder / place for place in places), strict=True))
    return {
        "refs": git(folder, "for-each-ref", "refs/heads", "refs/tags", "refs/stash"),
        "files": git(folder, "status", "--porcelain", "--", ":!phases", ":!.mltrainer", ":(exclude)__pycache__"),
        **{name: sha256_bytes(path.read_bytes()) if path.exists() else None for name, path in paths.items()},
    }


def planned(cli: Cli, project: Project) -> dict[str, Any]:
    """Plan, look at what came of it, and return what was recorded about the source."""
    for command in COMMANDS:
        said = cli(*command, "--project", project.root)
        assert (said.code, "Traceback" in said.out + said.err) == (0, False), said
    source: dict[str, Any] = recorded(project, "planning")["source"]
    assert [row["path"] for row in source["files"]] == ["my_task.py"]
    return source


def shown(source: dict[str, Any]) -> dict[str, Any]:
    return {key: source[key] for key in NO_COMMIT}


# --- no git ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_project_that_lost_its_repository_goes_by_the_digests_of_its_files(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    shutil.rmtree(project.root / ".git")
    source = planned(cli, project)
    assert (shown(source), source["note"]) == (NO_COMMIT, f"not a git repository: {DIGESTS}")
    assert not (project.root / ".git").exists()


@pytest.mark.slow
def test_without_the_git_program_everything_works_and_says_so(tmp_path, cli, monkeypatch):
    project = versioned(tmp_path / "rings")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    source = planned(cli, project)
    assert (shown(source), source["note"]) == (NO_COMMIT, f"git is not installed: {DIGESTS}")
    cli("init", tmp_path / "digits", "--example", "digits", code=0, out="no git repository was made (git is not installed)")


@pytest.mark.slow
def test_a_worktree_whose_repository_is_gone_goes_by_the_digests_of_its_files(tmp_path, cli):
    project = write_rings(tmp_path / "rings")
    (project.root / ".git").write_text("gitdir: /nowhere/.git/worktrees/rings\n")
    source = planned(cli, project)
    assert (shown(source), source["note"]) == (NO_COMMIT, f"not a git repository: {DIGESTS}")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to another user")
def test_the_repository_of_another_user_is_not_trusted_and_the_way_to_trust_it_is_told(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    for path in (project.root, project.root / ".git"):
        os.chown(path, 65534, 65534)
    source = planned(cli, project)
    assert shown(source) == NO_COMMIT
    assert "belongs to another user (git config --global --add safe.directory DIR trusts it)" in source["note"]


# --- states of a repository -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_clean_commit_is_recorded_with_its_branch(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    before = held(project.root)
    source = planned(cli, project)
    head = git(project.root, "rev-parse", "HEAD")
    assert shown(source) == {"commit": head, "branch": "main", "dirty": False, "snapshot": None}
    assert (source["note"], held(project.root)) == (None, before)


@pytest.mark.slow
def test_runs_and_checkpoints_stay_out_of_git_in_a_project_written_by_hand(tmp_path, cli):
    project = write_rings(tmp_path / "rings")
    git(project.root, "init", "--quiet", "--initial-branch=main")
    planned(cli, project)
    assert ".mltrainer" not in git(project.root, "status", "--porcelain", "--untracked-files=all")


@pytest.mark.slow
def test_before_the_first_commit_the_files_are_captured_and_stay_unstaged(tmp_path, cli):
    project = write_rings(tmp_path / "rings")
    git(project.root, "init", "--quiet", "--initial-branch=main")
    before = held(project.root)
    source = planned(cli, project)
    assert (source["commit"], source["branch"], source["dirty"]) == (None, "main", True)
    assert source["note"] == "the git repository has no commits yet"
    assert git(project.root, "show", f"{source['snapshot']}:my_task.py") == (project.root / "my_task.py").read_text().strip()
    assert held(project.root) == before


@pytest.mark.slow
@pytest.mark.parametrize(("named", "branch"), [(None, "main"), ("trunk", "trunk")])
def test_a_new_projects_branch_is_main_unless_git_is_set_to_another_name(tmp_path, cli, named, branch):
    if named is not None:
        (Path(os.environ["HOME"]) / ".gitconfig").write_text(f"[init]\n\tdefaultBranch = {named}\n")
    cli("init", tmp_path / "new", "--example", "digits", code=0)
    assert git(tmp_path / "new", "branch", "--show-current") == branch


def test_a_detached_head_is_recorded_and_stays_where_it_is(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    git(project.root, "checkout", "--quiet", "--detach")
    before = held(project.root)
    source = planned(cli, project)
    assert shown(source) == {**NO_COMMIT, "commit": git(project.root, "rev-parse", "HEAD"), "dirty": False}
    assert (source["note"].startswith("the head is detached"), held(project.root)) == (True, before)


@pytest.mark.slow
def test_uncommitted_changes_can_be_brought_back_and_what_is_staged_stays_staged(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    for name, text in {"staged.py": "a = 1\n", "new.py": "b = 1\n"}.items():
        (project.root / name).write_text(text)
    git(project.root, "add", "staged.py")
    (project.root / ".gitignore").write_text(".mltrainer/\n__pycache__/\n*.log\n")
    before = held(project.root)
    source = planned(cli, project)
    assert (source["dirty"], source["untracked"], held(project.root)) == (True, 1, before)
    captured = git(project.root, "diff", "--name-status", "HEAD", source["snapshot"])
    assert captured.split("\n") == ["M\t.gitignore", "A\tnew.py", "A\tstaged.py"]


@pytest.mark.slow
def test_planning_names_what_is_not_committed(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    for number in range(7):
        (project.root / f"new_{number}.py").touch()
    git(project.root, "add", ".")
    said = cli("phase", "run", "planning", "--project", project.root)
    assert "uncommitted changes (new_0.py, new_1.py, new_2.py, new_3.py, new_4.py, 2 more): captured" in said.err


@pytest.mark.slow
def test_a_criterion_written_after_the_first_run_needs_no_commit(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    file = project.root / "mltrainer.yaml"
    file.write_text(file.read_text() + "# what is good enough was decided later\n")
    source = planned(cli, project)
    assert (source["dirty"], source["snapshot"]) == (False, None)
    assert source["note"].startswith("config that is not as the commit has it (mltrainer.yaml): commit it")
    git(project.root, "commit", "--quiet", "-am", "What is good enough")
    assert planned(cli, project)["note"] is None


@pytest.mark.slow
def test_a_lock_that_another_git_left_is_not_in_the_way(tmp_path, cli):
    project = versioned(tmp_path / "rings")
    (project.root / ".git" / "index.lock").touch()
    with (project.root / "my_task.py").open("a") as file:
        file.write("# changed\n")
    source = planned(cli, project)
    assert (source["dirty"], source["snapshot"] is None, source["note"]) == (True, False, None)
    assert (project.root / ".git" / "index.lock").exists()


# --- where a project lies -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["größe 数 «x»/my project", "a\tb'c\"d"])
@pytest.mark.slow
def test_a_project_in_a_subfolder_is_recorded_with_the_commit_around_it(tmp_path, cli, name):
    project = versioned(tmp_path / "top" / name, top=tmp_path / "top")
    before, code = held(project.root), (project.root / "my_task.py").read_text()
    (project.root / "späte Änderung.py").write_text("x = 1\n")
    (project.root / "my_task.py").write_text(code + "# changed\n")
    source = planned(cli, project)
    assert (source["dirty"], source["untracked"], source["branch"]) == (True, 1, "main")
    listed = git(tmp_path / "top", "ls-tree", "-r", "-z", "--name-only", source["snapshot"]).split("\0")
    assert f"{name}/späte Änderung.py" in listed
    (project.root / "späte Änderung.py").unlink()
    (project.root / "my_task.py").write_text(code)
    assert held(project.root) == before


@pytest.mark.slow
def test_init_in_a_users_repository_commits_nothing_there(tmp_path, cli):
    versioned(tmp_path / "top")
    before = held(tmp_path / "top")
    cli("init", tmp_path / "top" / "digits", "--example", "digits", code=0, out="inside a git repository already")
    assert held(tmp_path / "top") == {**before, "files": "?? digits/"}


def as_worktree(main: Path, folder: Path) -> None:
    git(main, "worktree", "add", "--quiet", "-b", "other", str(folder))


def as_submodule(main: Path, folder: Path) -> None:
    folder.parent.mkdir()
    git(folder.parent, "init", "--quiet")
    git(folder.parent, "submodule", "--quiet", "add", "-b", "main", str(main), folder.name)
    git(folder, "checkout", "--quiet", "-b", "other")


@pytest.mark.parametrize("check_out", [as_worktree, as_submodule])
@pytest.mark.slow
def test_where_git_is_a_file_the_checkout_is_recorded_like_any_other(tmp_path, cli, check_out):
    main, folder = versioned(tmp_path / "main").root, tmp_path / "around" / "rings"
    check_out(main, folder)
    before = held(main), held(folder)
    source = planned(cli, Project(folder))
    assert (folder / ".git").is_file()
    assert shown(source) == {**NO_COMMIT, "commit": git(main, "rev-parse", "HEAD"), "branch": "other", "dirty": False}
    assert (held(main), held(folder)) == before
