"""A stranger's repository: no program that its git folder or its attributes name is run by looking at it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from mltrainer.workspace import Project
from tests.conftest import Cli, commit, git

CONFIG = {
    "a filter whose name holds an equals sign": {"filter.a=b.clean": "{canary}", "filter.a=b.required": "true"},
    "a filter of many words": {"filter.x y=.z.process": "{canary}", "filter.x.y.clean": "{canary}"},
    "a filter of an included file with attributes elsewhere": {
        "include.path": "{included}",
        "core.attributesFile": "{attributes}",
    },
    "attributes and excludes without an end": {"core.attributesFile": "/dev/zero", "core.excludesFile": "/dev/zero"},
    "attributes and excludes that are a pipe": {"core.attributesFile": "{pipe}", "core.excludesFile": "{pipe}"},
    "orders and revisions without an end": {
        "diff.orderFile": "/dev/zero",
        "blame.ignoreRevsFile": "/dev/zero",
        "mailmap.file": "/dev/zero",
    },
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


def plant(digits: Project, canary: Path, settings: dict[str, str]) -> None:
    """Give a repository settings, hooks and attributes that would run the canary."""
    hooks, included = canary.parent / "hooks", canary.parent / "included"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "reference-transaction", "post-checkout"):
        (hooks / name).symlink_to(canary)
        (digits.root / ".git/hooks" / name).unlink(missing_ok=True)
        (digits.root / ".git/hooks").mkdir(exist_ok=True)
        (digits.root / ".git/hooks" / name).symlink_to(canary)
    pipe, attributes = canary.parent / "pipe", canary.parent / "attributes"
    os.mkfifo(pipe)
    included.write_text(f'[filter "x"]\n\tclean = {canary}\n[core]\n\tfsmonitor = {canary}\n')
    attributes.write_text("* filter=x\n")
    (digits.root / ".gitattributes").write_text("* filter=x diff=x\n*.yaml filter=a=b\n*.md filter=x.y\n")
    places = {"canary": canary, "hooks": hooks, "included": included, "pipe": pipe, "attributes": attributes}
    for key, value in settings.items():
        git(digits.root, "config", "--local", key, value.format(**places))
    os.utime(digits.root / "mltrainer.yaml", (1, 1))  # git looks at its content again


@pytest.mark.slow
@pytest.mark.parametrize("trick", CONFIG)
def test_looking_at_a_project_starts_no_program_of_its_git_folder(digits, canary, cli, trick, monkeypatch):
    commit(digits.root)
    plant(digits, canary, CONFIG[trick])
    look_with_little_memory(cli, digits, monkeypatch)
    assert not (canary.parent / "ran").exists()


def look_with_little_memory(cli: Cli, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands that look; hold that git, as every process started here, took less than a gigabyte more.

    More than what was seen before: a process that was forked counts the memory of the one that forked it.
    """
    before = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    for command in COMMANDS:
        assert cli(*command, "--project", project.root).code in (0, 1, 4)
    monkeypatch.chdir(project.root)
    assert cli("doctor").code in (0, 1)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < before + (1 << 20)


LINKED = (
    *("info/attributes", "info/exclude", "info/grafts", "HEAD", "packed-refs", "shallow", "index"),
    *("objects/info/alternates", "objects/info/commit-graph", "refs/heads/main", "config.worktree", "commondir"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "aim"), [(path, aim) for path in LINKED for aim in ("/dev/zero", "pipe")])
def test_a_file_of_the_git_folder_that_never_ends_takes_neither_memory_nor_time(digits, canary, cli, path, aim, monkeypatch):
    commit(digits.root)
    os.mkfifo(canary.parent / "pipe")
    place = digits.root / ".git" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(canary.parent / aim)  # an absolute path replaces the folder
    begun = time.monotonic()
    look_with_little_memory(cli, digits, monkeypatch)
    assert time.monotonic() - begun < 10 * (len(COMMANDS) + 1)


@pytest.mark.slow
def test_a_project_laid_out_as_a_bare_repository_starts_nothing(digits, canary, cli, monkeypatch):
    """Such files can be committed, as no clone takes them for git's own."""
    commit(digits.root)
    plant(digits, canary, CONFIG["a filter whose name holds an equals sign"] | {"core.worktree": str(digits.root)})
    for found in (digits.root / ".git").iterdir():
        shutil.move(found, digits.root / found.name)
    (digits.root / ".git").rmdir()
    look_with_little_memory(cli, digits, monkeypatch)
    assert not (canary.parent / "ran").exists()
    assert "is a bare git repository" in cli("doctor").out


@pytest.mark.slow
def test_what_the_users_own_git_variables_name_is_not_run(digits, canary, cli, monkeypatch):
    commit(digits.root)
    pairs = CONFIG["a clean filter"] | CONFIG["a file-system monitor"]
    plant(digits, canary, {})
    for number, (key, value) in enumerate(pairs.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value.format(canary=canary))
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(pairs)))
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_PAGER", "GIT_ASKPASS", "GIT_EDITOR", "GIT_PROXY_COMMAND"):
        monkeypatch.setenv(name, str(canary))
    look_with_little_memory(cli, digits, monkeypatch)
    assert not (canary.parent / "ran").exists()


@pytest.mark.parametrize("trick", ["a clean filter", "a filter whose name holds an equals sign"])
def test_the_canary_of_these_tests_sings_where_git_is_asked_without_care(digits, canary, trick):
    commit(digits.root)
    plant(digits, canary, CONFIG[trick])
    subprocess.run(["git", "status"], cwd=digits.root, check=False, capture_output=True)
    assert (canary.parent / "ran").exists()


@pytest.mark.slow
def test_a_work_tree_elsewhere_is_not_looked_at(digits, tmp_path, cli, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    git(digits.root, "config", "core.worktree", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(digits.root)
    assert "uncommitted" not in cli("doctor").out
    cli("status", code=0)


@pytest.mark.slow
def test_a_git_folder_whose_config_never_ends_is_given_up(digits, cli, monkeypatch):
    (digits.root / ".git/config").unlink()
    os.mkfifo(digits.root / ".git/config")
    monkeypatch.chdir(digits.root)
    assert "did not end within 4 s" in cli("doctor").out
