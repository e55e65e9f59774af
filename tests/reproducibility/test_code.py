import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mltrainer import handbook
from mltrainer.records.common import FileRow
from mltrainer.reproducibility import code
from mltrainer.reproducibility.code import imported_files, source, take_snapshot, uncommitted
from mltrainer.workspace import digest, sha256_file

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def module(name: str, file: object) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = file  # type: ignore[assignment]
    return made


def imported(root, *names):
    return imported_files(root, {name: module(name, str(root / name)) for name in names})


def files_of(root, *names):
    return [FileRow.model_validate(row) for row in imported(root, *names)]


# --- imported files -------------------------------------------------------------------------------


def test_imported_project_files_are_listed_with_their_digests(repository):
    rows = imported(repository, "model.py")
    assert rows == [{"path": "model.py", "sha256": sha256_file(repository / "model.py"), "size": 6}]


def test_a_really_imported_package_is_found(tmp_path, monkeypatch):
    (tmp_path / "pack_of_test").mkdir()
    (tmp_path / "pack_of_test" / "__init__.py").write_text("from pack_of_test import part")
    (tmp_path / "pack_of_test" / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("pack_of_test")
    assert [row["path"] for row in imported_files(tmp_path)] == ["pack_of_test/__init__.py", "pack_of_test/part.py"]
    for name in ("pack_of_test", "pack_of_test.part"):
        del sys.modules[name]


def test_installed_packages_inside_the_project_are_not_its_code(tmp_path):
    names = [".venv/lib/a.py", "env/lib/site-packages/b.py", "my_env/lib/c.py", "own/d.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    (tmp_path / "my_env" / "pyvenv.cfg").write_text("")
    assert [row["path"] for row in imported(tmp_path, *names)] == ["own/d.py"]


def test_mltrainer_itself_is_not_the_projects_code():
    checkout = Path(code.__file__).parents[2]
    assert imported_files(checkout, {"code": code}) == []


def test_odd_entries_of_the_module_table_do_no_harm(tmp_path):
    odd = {"a": None, "b": object(), "c": module("c", None), "d": module("d", 3), "e": module("e", "<frozen>"), "f": 7}
    assert imported_files(tmp_path, odd) == []


def test_a_link_in_the_project_counts_as_the_projects_file(tmp_path):
    (tmp_path / "shared.py").write_text("x")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "model.py").symlink_to(tmp_path / "shared.py")
    assert [row["path"] for row in imported(tmp_path / "project", "model.py")] == ["model.py"]


@pytest.mark.parametrize("link", ["of the file", "of its folder"])
def test_a_file_of_the_project_that_a_link_from_outside_leads_to_is_the_projects(tmp_path, link):
    package = tmp_path / "project" / "package"
    package.mkdir(parents=True)
    (package / "model.py").write_text("x = 1\n")
    outside = tmp_path / "lib"
    if link == "of its folder":
        outside.symlink_to(package)
    else:
        outside.mkdir()
        (outside / "model.py").symlink_to(package / "model.py")
    (row,) = imported_files(tmp_path / "project", {"model": module("model", str(outside / "model.py"))})
    assert (row["path"], row["size"]) == ("package/model.py", 6)


def test_a_project_reached_through_a_link_is_the_same_project(repository, tmp_path):
    (tmp_path / "link").symlink_to(repository)
    assert imported(repository, "model.py") == imported_files(tmp_path / "link", {"m": module("m", str(repository / "model.py"))})


# --- identity -------------------------------------------------------------------------------------


def test_a_committed_project_is_clean_and_known_by_its_files(repository, git):
    files = files_of(repository, "model.py")
    found = source(repository, files)
    assert found.sha256 == digest(imported(repository, "model.py"))
    assert (found.commit, found.branch) == (git("rev-parse", "HEAD", cwd=repository), "main")
    assert (found.dirty, found.diff_sha256, found.untracked, found.note) == (False, None, 0, None)


def test_a_change_is_dirty_whether_staged_or_not(repository, git):
    (repository / "model.py").write_text("x = 2\n")
    unstaged = source(repository, [])
    git("add", "--all", cwd=repository)
    assert unstaged.dirty is True
    assert source(repository, []) == unstaged


def test_other_content_has_another_difference(repository):
    digests = set()
    for text in ("x = 2\n", "x = 3\n", "x = 1\n\n"):
        (repository / "model.py").write_text(text)
        digests.add(source(repository, []).diff_sha256)
    (repository / "model.py").unlink()
    digests.add(source(repository, []).diff_sha256)
    assert len(digests) == 4


def test_undoing_a_change_makes_the_tree_clean_again(repository):
    clean = source(repository, [])
    (repository / "model.py").write_text("x = 2\n")
    (repository / "model.py").write_text("x = 1\n")
    assert source(repository, []) == clean


def test_an_untracked_file_that_is_imported_is_part_of_the_difference(repository):
    (repository / "new.py").write_text("a")
    first = source(repository, files_of(repository, "new.py"))
    (repository / "new.py").write_text("b")
    assert (first.untracked, first.dirty) == (1, True)
    assert source(repository, files_of(repository, "new.py")).diff_sha256 != first.diff_sha256


def test_an_untracked_file_that_nothing_used_is_counted_and_makes_nothing_dirty(repository):
    (repository / "notes.txt").write_text("a")
    found = source(repository, files_of(repository, "model.py"))
    assert (found.untracked, found.dirty, found.diff_sha256) == (1, False, None)
    assert uncommitted(repository, ["model.py"]) == []
    (repository / "model.py").write_text("x = 2\n")
    assert source(repository, []).dirty is True  # git knows it: somebody changed what is committed
    assert uncommitted(repository, []) == ["model.py"]


def test_an_untracked_script_that_starts_the_program_is_used(repository):
    (repository / "run.sh").write_text("python model.py")
    assert source(repository, [], (), ["run.sh"]).dirty is True
    assert uncommitted(repository, ["run.sh"]) == ["run.sh"]


def test_files_that_a_record_binds_by_digest_need_no_commit(repository):
    for name in ("mltrainer.yaml", "rows.csv"):
        (repository / name).write_text("a\n")
    assert source(repository, [], ["mltrainer.yaml", "rows.csv", "../elsewhere.csv"]).dirty is False
    (repository / "model.py").write_text("x = 2\n")
    assert source(repository, [], ["mltrainer.yaml", "rows.csv"]).untracked == 0
    assert source(repository, [], ["mltrainer.yaml", "rows.csv"]).dirty is True


def write_artifacts(root):
    for name in (
        "phases/01_planning/record.json",
        "phases/02_baseline/loss.svg",
        "phases/tried_runs.txt",
        ".mltrainer/runs/a/result.json",
        "__pycache__/a.pyc",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")


def test_artifacts_are_no_code_and_committing_them_changes_no_difference(repository, git):
    (repository / "model.py").write_text("x = 2\n")
    before = source(repository, files_of(repository, "model.py"))
    write_artifacts(repository)
    written = source(repository, files_of(repository, "model.py"))
    git("add", "phases", cwd=repository)
    git("commit", "--message=reports", cwd=repository)
    committed = source(repository, files_of(repository, "model.py"))
    assert written == before
    (repository / "phases/tried_runs.txt").write_text("one more\n")
    assert source(repository, files_of(repository, "model.py")) == committed
    assert committed.model_copy(update={"commit": before.commit}) == before


@pytest.mark.parametrize("page", ["phases/02_baseline/workflow.md", "diagnostics/nan_loss.md"])
def test_a_projects_own_page_of_the_handbook_counts(repository, page, monkeypatch):
    monkeypatch.setattr(handbook, "page_paths", lambda: ["phases/02_baseline/workflow.md", "diagnostics/nan_loss.md"])
    (repository / page).parent.mkdir(parents=True)
    (repository / page).write_text("policy")
    assert source(repository, []).dirty is True


def test_a_project_in_a_folder_of_a_repository_leaves_out_its_own_artifacts_only(repository):
    inner = repository / "teams" / "vision"
    inner.mkdir(parents=True)
    write_artifacts(inner)
    assert source(inner, []).untracked == 0
    write_artifacts(repository)
    assert source(inner, []).untracked > 0


def test_an_imported_file_that_git_ignores_is_not_committed(repository):
    (repository / ".gitignore").write_text("local_*.py\n.gitignore\n")
    (repository / "local_model.py").write_text("x")
    found = source(repository, files_of(repository, "local_model.py", "model.py"))
    assert found.dirty is True
    assert found.note == "imported, but hidden from git: local_model.py"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_git_was_told_not_to_see_is_seen(repository, git, flag):
    git("update-index", flag, "model.py", cwd=repository)
    (repository / "model.py").write_text("x = 2\n")
    assert "model.py" in source(repository, files_of(repository, "model.py")).note


def test_windows_line_ends_that_git_converts_are_no_change(repository, git):
    (repository / ".gitattributes").write_text("*.py text eol=crlf\n")
    git("add", "--all", cwd=repository)
    git("commit", "--message=line ends", cwd=repository)
    (repository / "model.py").unlink()
    git("checkout", "model.py", cwd=repository)
    assert b"\r\n" in (repository / "model.py").read_bytes()
    assert source(repository, files_of(repository, "model.py")).dirty is False


@pytest.mark.parametrize("make", ["link", "pipe", "large", "unreadable", "repository"])
def test_odd_files_in_the_tree_are_told_apart_without_harm(repository, git, make, monkeypatch):
    odd = repository / "odd"
    monkeypatch.setattr(code, "MAX_FILE_BYTES", 3)
    if make == "link":
        odd.symlink_to("/nowhere")
    elif make == "pipe":
        os.mkfifo(repository / "odd.pipe")
    elif make == "repository":
        git("init", str(odd))
        (odd / "a.py").write_text("")
    else:
        odd.write_text("larger than three bytes")
        odd.chmod(0o000 if make == "unreadable" else 0o644)
    assert source(repository, []).commit


def test_a_submodule_at_another_commit_is_a_change(repository, git, tmp_path):
    shutil.copytree(repository, tmp_path / "library")
    git("submodule", "add", str(tmp_path / "library"), "library", cwd=repository)
    git("commit", "--message=library", cwd=repository)
    assert source(repository, []).dirty is False
    git("commit", "--allow-empty", "--message=moved", cwd=repository / "library")
    assert source(repository, []).dirty is True


def test_without_git_the_files_stand_for_the_code(tmp_path, git):
    (tmp_path / "model.py").write_text("x")
    found = source(tmp_path, files_of(tmp_path, "model.py"))
    assert found.files[0].path == "model.py"
    assert (found.commit, found.dirty, found.diff_sha256) == (None, None, None)
    assert found.note.startswith("not a git repository: ")


def test_without_a_commit_everything_is_dirty(tmp_path, git):
    git("init")
    (tmp_path / "model.py").write_text("x")
    found = source(tmp_path, files_of(tmp_path, "model.py"))
    assert (found.commit, found.dirty, found.untracked) == (None, True, 1)


# --- snapshot -------------------------------------------------------------------------------------


def test_a_snapshot_restores_changed_new_and_deleted_files(repository, git, tmp_path):
    (repository / "model.py").write_text("x = 2\n")
    (repository / "new ü.py").write_text("new")
    (repository / "README.md").unlink()
    ref = take_snapshot(repository).ref
    git("worktree", "add", str(tmp_path / "restored"), ref, cwd=repository)
    names = {path.name: path.read_text() for path in (tmp_path / "restored").iterdir() if path.name not in (".git", ".gitignore")}
    assert names == {"model.py": "x = 2\n", "new ü.py": "new"}


def test_a_snapshot_leaves_index_work_tree_and_branches_alone(repository, git):
    (repository / "model.py").write_text("staged\n")
    git("add", "model.py", cwd=repository)
    (repository / "model.py").write_text("x = 2\n")
    index = (repository / ".git" / "index").read_bytes()
    before = git("status", "--porcelain", cwd=repository), git("log", "--oneline", "main", cwd=repository)
    take_snapshot(repository)
    assert (repository / ".git" / "index").read_bytes() == index
    assert (git("status", "--porcelain", cwd=repository), git("log", "--oneline", "main", cwd=repository)) == before


def test_a_ref_is_named_by_its_tree_and_the_same_tree_has_the_same(repository, git):
    (repository / "model.py").write_text("x = 2\n")
    ref = take_snapshot(repository).ref
    assert ref == f"refs/mltrainer/{git('rev-parse', f'{ref}^{{tree}}', cwd=repository)}"
    commit = git("rev-parse", ref, cwd=repository)
    assert take_snapshot(repository).ref == ref
    assert git("rev-parse", ref, cwd=repository) == commit


def test_a_snapshot_holds_no_secret_no_large_and_no_ignored_file(repository, git, monkeypatch):
    monkeypatch.setattr(code, "MAX_FILE_BYTES", 1000)
    contents = {
        "keys.py": f"k = '{TOKEN}'",
        "data.bin": "0" * 1001,
        "ok.py": "x",
        ".mltrainer/a": "x",
        ".netrc": "machine a password b",
    }
    for name, text in contents.items():
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text(text)
    taken = take_snapshot(repository)
    assert git("ls-tree", "-r", "--name-only", taken.ref, cwd=repository).split() == [
        ".gitignore",
        "README.md",
        "model.py",
        "ok.py",
    ]
    assert {row.path: row.reason for row in taken.skipped} == {
        ".netrc": "a file for secrets",
        "data.bin": "larger than 0 MiB",
        "keys.py": "holds a secret",
    }
    assert "left out: keys.py (holds a secret)" in git("log", "-1", "--format=%B", taken.ref, cwd=repository)


def test_a_staged_secret_does_not_slip_into_the_snapshot(repository, git):
    (repository / "model.py").write_text(f"k = '{TOKEN}'")
    git("add", "--all", cwd=repository)
    ref = take_snapshot(repository).ref
    assert git("show", f"{ref}:model.py", cwd=repository) == "x = 1"


def test_a_snapshot_runs_no_hook(repository):
    for name in ("reference-transaction", "post-index-change", "pre-commit"):
        hook = repository / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {repository}/ran\n")
        hook.chmod(0o755)
    (repository / "model.py").write_text("x = 2\n")
    assert take_snapshot(repository).ref
    assert not (repository / "ran").exists()


def test_a_snapshot_works_before_the_first_commit(tmp_path, git):
    git("init")
    (tmp_path / "model.py").write_text("x")
    assert git("show", f"{take_snapshot(tmp_path).ref}:model.py") == "x"


def test_a_file_that_became_a_folder_is_captured(repository, git):
    (repository / "model.py").unlink()
    (repository / "model.py").mkdir()
    (repository / "model.py" / "part.py").write_text("part")
    ref = take_snapshot(repository).ref
    assert git("show", f"{ref}:model.py/part.py", cwd=repository) == "part"


def test_many_untracked_files_are_left_out_beyond_a_limit(repository, monkeypatch):
    monkeypatch.setattr(code, "MAX_UNTRACKED", 1)
    for name in "abc":
        (repository / name).write_text(name)
    taken = take_snapshot(repository)
    assert [row.path for row in taken.skipped] == ["b", "c"]
    assert source(repository, []).untracked == 3


def test_where_git_cannot_hold_a_snapshot_there_is_none_and_a_reason(tmp_path, git):
    assert take_snapshot(tmp_path).ref is None
    assert take_snapshot(tmp_path).note == "no snapshot of the uncommitted changes: not a git repository"


def test_a_repository_that_cannot_be_written_gives_a_reason(repository):
    (repository / "model.py").write_text("x = 2\n")
    shutil.rmtree(repository / ".git" / "refs" / "mltrainer", ignore_errors=True)
    (repository / ".git" / "refs" / "mltrainer").write_text("in the way")
    taken = take_snapshot(repository)
    assert taken.ref is None
    assert taken.note.startswith("no snapshot of the uncommitted changes: ")


def test_a_snapshot_that_lost_an_object_is_not_reported_as_taken(repository, monkeypatch):
    (repository / "model.py").write_text("x = 2\n")
    monkeypatch.setattr(os.path, "lexists", lambda path: "README" in str(path) or "model" not in str(path))
    assert take_snapshot(repository).note.endswith("the snapshot does not hold model.py")


def test_what_was_found_before_is_found_again_with_what_came_since(tmp_path):
    (tmp_path / "first.py").write_text("x = 1\n")
    (tmp_path / "second.py").write_text("x = 2\n")
    assert imported(tmp_path) == imported_files(tmp_path, {"os": os}) == []
    assert [row["path"] for row in imported(tmp_path, "first.py")] == ["first.py"]
    (tmp_path / "first.py").write_text("x = 3\n")
    found = imported(tmp_path, "first.py", "second.py")
    assert [row["path"] for row in found] == ["first.py", "second.py"]
    assert found[0]["sha256"] == sha256_file(tmp_path / "first.py")


def test_what_is_outside_one_project_may_be_of_another(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "third.py").write_text("")
    found = {"third": module("third", str(tmp_path / "inner" / "third.py"))}
    assert imported_files(tmp_path / "other", found) == []
    assert [row["path"] for row in imported_files(tmp_path / "inner", found)] == ["third.py"]
