"""A person's name in git, and a project's first commit, mltrainer's only change of a repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mltrainer.reproducibility import git

FIRST_COMMIT = "Start the project"


def identity(root: Path) -> str:
    """Return the person that git knows here, as `Name <mail>`, or the login name if git has none."""
    try:
        name, mail = (git.run(root, "config", key).decode(errors="replace").strip() for key in ("user.name", "user.email"))
        return f"{name} <{mail}>"
    except git.GitError:
        return f"{_login()} (no git identity)"


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _names_first_branch(folder: Path) -> bool:
    """Return True if git's settings say what a new repository's first branch is called."""
    try:
        return bool(git.run(folder, "config", "init.defaultBranch"))
    except git.GitError:
        return False


def start_repository(folder: Path, files: list[str]) -> str:
    """Make a folder a repository and commit its first files, unless it is in one already; return a note on it.

    Its branch is `main`, unless git's settings name another one.

    Raises:
        GitError: Git is missing, refuses, or has no space; the folder is then no repository.
    """
    try:
        git.locate(folder)
        return "inside a git repository already: review and commit the new files yourself"
    except git.GitError as error:
        if str(error) != "not a git repository":
            raise
    # A person's folder, although not a repository for git: a failure below removes everything of this name.
    if os.path.lexists(folder / ".git"):
        raise git.GitError("git does not accept the folder's .git as a repository")
    try:
        git.run(folder, "init", "--quiet")
        if not _names_first_branch(folder):  # git's own name for it is still master
            git.run(folder, "symbolic-ref", "HEAD", "refs/heads/main")
        git.run(folder, "add", "--", *files)
        who = git.NOBODY if "no git identity" in identity(folder) else {}
        git.run(folder, "commit", "--quiet", "--no-gpg-sign", "--message", FIRST_COMMIT, variables=who)
    except BaseException:
        shutil.rmtree(folder / ".git", ignore_errors=True)  # half a repository is worse than none
        raise
    return "made a git repository and committed them"
