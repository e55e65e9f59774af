import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import git as run_git

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path, monkeypatch) -> Git:
    """Runs git in the test's folder, with none of the developer's own settings."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)

    return lambda *arguments, cwd=tmp_path: run_git(cwd, *arguments, name="Ada")


@pytest.fixture
def repository(tmp_path, git) -> Path:
    """A repository with one commit of a model, a README and what mltrainer's own .gitignore leaves out."""
    root = tmp_path / "project"
    root.mkdir()
    git("init", "--initial-branch=main", cwd=root)
    for name, text in {"model.py": "x = 1\n", "README.md": "hello\n", ".gitignore": ".mltrainer/\n.env*\n"}.items():
        (root / name).write_text(text)
    git("add", "--all", cwd=root)
    git("commit", "--message=first", cwd=root)
    return root


@pytest.fixture
def fake_git(tmp_path, monkeypatch) -> Callable[[str], None]:
    """Puts a shell script in git's place."""

    def install(script: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return install
