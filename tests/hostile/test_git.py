"""A stranger's repository: no program that its git folder or its attributes name is run by looking at it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mltrainer.workspace import Project
from tests.conftest import Cli, commit

CONFIG = {
    "a clean filter": {"filter.x.clean": "{canary}", "filter.x.required": "true"},
    "a filter process": {"filter.x.process": "{canary}"},
    "a smudge filter": {"filter.x.smudge": "{canary}"},
    "a file-system monitor": {"core.fsmonitor": "{canary}", "core.fsmonitorHookVersion": "2"},
    "hooks elsewhere": {"core.hooksPath": "{hooks}"},
    "a pager": {"core.pager": "{canary}", "pager.status": "{canary}", "pager.log": "true", "pager.config": "true"},
    "an external diff": {"diff.external": "{canary}", "diff.x.command": "{canary}", "diff.x.textconv": "{canary}"},
    "a credential helper": {"credential.helper": "!{canary}", "core.askPass": "{canary}"},
    "an ssh command": {"core.sshCommand": "{canary}", "core.gitProxy": "{canary}"},
    "an editor": {"core.editor": "{canary}", "sequence.editor": "{canary}"},
    "a signature's program": {"gpg.program": "{canary}", "log.showSignature": "true", "commit.gpgSign": "true"},
    "aliases": {f"alias.{name}": "!{canary}" for name in ("status", "log", "rev-parse", "ls-tree", "cat-file", "config")},
    "an included file": {"include.path": "{included}"},
    "a promisor remote": {"remote.o.url": "ext::{canary}", "remote.o.promisor": "true", "extensions.partialClone": "o"},
    "an alternate refs command": {"core.alternateRefsCommand": "{canary}"},
}
COMMANDS = (
    ("status",),
    ("gate", "check"),
    ("gate", "waive", "baseline", "within_time_budget", "--reason", "I looked"),
    ("report", "--against", "HEAD"),
)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A program that leaves a file where it ran."""
    made = tmp_path / "canary.sh"
    made.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    made.chmod(0o755)
    return made


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def plant(digits: Project, canary: Path, settings: dict[str, str]) -> None:
    """Give a repository settings, hooks and attributes that would run the canary."""
    hooks, included = canary.parent / "hooks", canary.parent / "included"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "reference-transaction", "post-checkout"):
        (hooks / name).symlink_to(canary)
        (digits.root / ".git/hooks" / name).unlink(missing_ok=True)
        (digits.root / ".git/hooks").mkdir(exist_ok=True)
        (digits.root / ".git/hooks" / name).symlink_to(canary)
    included.write_text(f'[filter "x"]\n\tclean = {canary}\n[core]\n\tfsmonitor = {canary}\n')
    (digits.root / ".gitattributes").write_text("* filter=x diff=x\n")
    for key, value in settings.items():
        _git(digits.root, "config", "--local", key, value.format(canary=canary, hooks=hooks, included=included))
    os.utime(digits.root / "mltrainer.yaml", (1, 1))  # git looks at its content again


@pytest.mark.slow
@pytest.mark.parametrize("trick", CONFIG)
def test_looking_at_a_project_starts_no_program_of_its_git_folder(
    digits: Project, canary: Path, cli: Cli, trick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(digits.root)
    plant(digits, canary, CONFIG[trick])
    for command in COMMANDS:
        assert cli(*command, "--project", digits.root).code in (0, 1, 4)
    monkeypatch.chdir(digits.root)
    assert cli("doctor").code in (0, 1)
    assert not (canary.parent / "ran").exists()


def test_the_canary_of_these_tests_sings_where_git_is_asked_without_care(digits: Project, canary: Path) -> None:
    commit(digits.root)
    plant(digits, canary, CONFIG["a clean filter"])
    subprocess.run(["git", "status"], cwd=digits.root, check=False, capture_output=True)
    assert (canary.parent / "ran").exists()


def test_a_work_tree_elsewhere_is_not_looked_at(
    digits: Project, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    _git(digits.root, "config", "core.worktree", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(digits.root)
    assert "uncommitted" not in cli("doctor").out
    assert cli("status").code == 0


@pytest.mark.slow
def test_a_git_folder_whose_config_never_ends_is_given_up(digits: Project, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (digits.root / ".git/config").unlink()
    os.mkfifo(digits.root / ".git/config")
    monkeypatch.chdir(digits.root)
    assert "did not end within 4 s" in cli("doctor").out
