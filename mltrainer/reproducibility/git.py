"""The commit and changes of a work tree, read from git through GitPython without changing anything.

Every call has a time limit, sees none of the caller's GIT_ variables (a hook or an IDE sets GIT_DIR), runs no hook,
no file-system monitor and no network transport, takes no lock and never reads a remote's URL. GitPython's objects
(`Repo`, `Commit`) would do without the options below, some without git itself, so that its `execute` alone is used.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.looking import is_looking
from mltrainer.redaction import shortened
from mltrainer.workspace import MOST_BYTES

if TYPE_CHECKING:
    from git import Git

TIMEOUT_S = 30.0
LOOKING_TIMEOUT_S = 4.0  # for a command that only looks at a project, whose git folder may be anything
_READ_WORK_TREE = ("status", "hash-object", "update-index", "add", "check-ignore")  # apply attributes or excludes
_OPTIONS = ("--no-optional-locks", "--no-pager")
# Handed over in the environment: `-c KEY=VALUE` is split at its first "=", which a key of a repository's own may hold.
_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "safe.bareRepository": "explicit",  # a project's folder with the layout of a repository is not one
    "status.renames": "false",
    "status.submoduleSummary": "false",
    "log.showSignature": "false",  # would run the program of `gpg.program`
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}  # an empty filter
_FILES = ("core.attributesfile", "core.excludesfile")  # files of any length, anywhere
# Git's memory limit in a command that only looks: a file of the repository may be a link to an endless one.
_MEMORY_KIB = 1 << 19
_BOUNDED = ("/bin/sh", "-c", f'ulimit -d {_MEMORY_KIB} 2>/dev/null; exec "$@"', "sh")
_SETTINGS = {
    "LC_ALL": "C",  # messages are matched below
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch what it lacks
    "GIT_NO_LAZY_FETCH": "1",
}
NOBODY = {  # variables by which mltrainer itself is author and committer
    **{f"GIT_{role}_NAME": "mltrainer" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "mltrainer@localhost" for role in ("AUTHOR", "COMMITTER")},
}
_STUCK: set[Path] = set()  # folders in which git did not end: a command that only looks waits for it once
_QUIET = "GIT_PYTHON_REFRESH"  # GitPython's behaviour on import without git
_KILLED = -9  # exit code after SIGKILL
_REASONS = (
    ("dubious ownership", "the git repository belongs to another user (git config --global --add safe.directory DIR trusts it)"),
    ("not a git repository", "not a git repository"),
    ("cannot use bare repository", "the folder itself is a bare git repository, without a work tree"),
    ("must be run in a work tree", "the git repository has no work tree"),
    ("ermission denied", "no permission to read or write the git repository"),
    ("insufficient permission", "no permission to write the git repository"),
    ("ead-only file system", "the git repository is on a read-only file system"),
    ("No space left", "there is no space left for git objects"),
)


class GitError(Exception):
    """Git cannot answer; the message is the reason, in plain words and without secrets."""


@dataclass(frozen=True)
class Repository:
    """The repository around a project.

    Attributes:
        top: The folder of its work tree.
        prefix: The project's folder in it, "" or ending in a slash.
        commit: The checked-out commit, or None before the first one.
        branch: Name of the branch, or None for a detached head.
        shallow: Whether older history is missing.
    """

    top: Path
    prefix: str
    commit: str | None
    branch: str | None
    shallow: bool


@dataclass(frozen=True)
class Change:
    """A path that differs from the commit.

    Attributes:
        path: Path relative to the repository's top.
        tracked: False for a file that git does not know.
        submodule: Git's word for a submodule's state ("SC..": other commit, "S.M.": modified), or None.
    """

    path: str
    tracked: bool
    submodule: str | None = None


def run(
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return a git command's standard output.

    Args:
        folder: Working folder of the command.
        arguments: Subcommand and options.
        stdin: Standard input.
        variables: Environment variables to set, such as GIT_INDEX_FILE.
        timeout_s: Time after which it is killed, in seconds.

    Raises:
        GitError: Git is not installed, does not end, or fails.
    """
    if not folder.is_dir():
        raise GitError(f"no such folder: {folder.name}")
    if shutil.which("git") is None:
        raise GitError("git is not installed")
    if is_looking() and any(folder.is_relative_to(place) or place.is_relative_to(folder) for place in _STUCK):
        raise GitError("git did not end here before")
    timeout_s = min(timeout_s, LOOKING_TIMEOUT_S) if is_looking() else timeout_s
    own = _disarmed(folder) if is_looking() and arguments[0] in _READ_WORK_TREE else {}
    settings = {**_SETTINGS, **_configuring({**_CONFIG, **own}), **(variables or {})}
    foreign = [part for name in os.environ if name.startswith("GIT_") and name not in settings for part in ("-u", name)]
    bounded = _BOUNDED if is_looking() else ()
    command = ["/usr/bin/env", *foreign, *bounded, "git", "-C", str(folder.absolute()), *_OPTIONS, *arguments]
    code, out, message = _executed(command, settings, stdin, timeout_s)
    if code == _KILLED and message.startswith("Timeout:"):
        _STUCK.add(folder)
        raise GitError(f"git {arguments[0]} did not end within {timeout_s:g} s")
    if code != 0:
        raise GitError(_reason(message, arguments[0], code))
    return out


def _configuring(config: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables with git configuration, which override every file's."""
    keys = {f"GIT_CONFIG_KEY_{n}": key for n, key in enumerate(config)}
    values = {f"GIT_CONFIG_VALUE_{n}": value for n, value in enumerate(config.values())}
    return {"GIT_CONFIG_COUNT": str(len(config)), **keys, **values}


def _disarmed(folder: Path) -> dict[str, str]:
    """Return configuration that disables the filters and files that a repository names.

    The user's own, such as LFS, stay. Only for commands that look: a repository in use may name filters that decide what has
    changed.
    """
    listed = os.fsdecode(run(folder, "config", "--null", "--show-scope", "--name-only", "--list")).split("\0")
    own = {name for scope, name in zip(listed[::2], listed[1::2], strict=False) if scope in ("local", "worktree")}
    drivers = {name.rpartition(".")[0] for name in own if name.startswith("filter.")}
    filters = {f"{driver}.{key}": value for driver in sorted(drivers) for key, value in _FILTER.items()}
    return {**dict.fromkeys(sorted(own.intersection(_FILES)), os.devnull), **filters}


def _executed(command: list[str], settings: Mapping[str, str], stdin: bytes, timeout_s: float) -> tuple[int, bytes, str]:
    """Return exit code, output and messages of a command."""
    try:
        with tempfile.TemporaryFile() as given:
            # A file: GitPython hands the process its standard input as a descriptor, and writes nothing itself.
            given.write(stdin)
            given.seek(0)
            code, out, message = _gitpython().execute(
                command,
                istream=given,
                env=settings,
                kill_after_timeout=timeout_s,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                shell=False,
            )
    except OSError as error:
        raise GitError(f"git cannot be executed here: {error.strerror}") from None
    return code, out, message


@functools.cache
def _gitpython() -> Git:
    """Return GitPython's command runner; it is imported at its first use, as that takes as long as importing pydantic.

    It copies this process's environment and cannot leave variables out: `env` does that.
    """
    before = os.environ.get(_QUIET)
    os.environ[_QUIET] = "quiet"
    try:
        from git import Git
    finally:
        del os.environ[_QUIET]
        os.environ.update({_QUIET: before} if before is not None else {})
    return Git()


def _reason(message: str, subcommand: str, code: int) -> str:
    for sign, reason in _REASONS:
        if sign in message:
            return reason
    first = next((line for line in message.splitlines() if line.strip()), "no message")
    return f"git {subcommand} ended with {code}: {shortened(first, 200)}"


def locate(root: Path) -> Repository:
    """Return the repository around a project's folder.

    Raises:
        GitError: There is no repository, it ignores the folder, or git cannot say.
    """
    answer = run(root, "rev-parse", "--is-shallow-repository", "--show-prefix", "--show-toplevel")
    # The folder comes last and is taken whole, as its name may hold a newline.
    shallow, prefix, top = os.fsdecode(answer).removesuffix("\n").split("\n", 2)
    if not root.resolve().is_relative_to(Path(top).resolve()):
        raise GitError("the work tree of the git repository is elsewhere (core.worktree)")
    if prefix and _says_yes(root, "check-ignore", "--quiet", "--", "."):
        raise GitError("the git repository around the project ignores its folder")
    commit = _optional(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return Repository(Path(top), prefix, commit, _optional(root, "symbolic-ref", "--quiet", "--short", "HEAD"), shallow == "true")


def _says_yes(folder: Path, *arguments: str) -> bool:
    """Return True if a git command succeeds: git answers some questions by its exit code."""
    try:
        run(folder, *arguments)
    except GitError:
        return False
    return True


def _optional(folder: Path, *arguments: str) -> str | None:
    try:
        return run(folder, *arguments).decode(errors="replace").strip() or None
    except GitError:
        return None


def changes(repository: Repository, exclude: Sequence[str] = ()) -> list[Change]:
    """Return every path that differs from the commit, staged or not, and every file that git does not know.

    Args:
        repository: The repository.
        exclude: Git pathspecs, from the top, to leave out.

    Raises:
        GitError: Git cannot say.
    """
    command = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=none")
    submodules = ["--ignore-submodules=all"] if is_looking() else []  # each has its own config
    raw = run(repository.top, *command, *submodules, "--", ":/", *exclude)
    by_path: dict[str, Change] = {}
    for entry in os.fsdecode(raw).split("\0"):
        change = _parsed(entry)
        if change is not None:  # `git rm --cached` lists a path as deleted, then as unknown: the first counts
            by_path.setdefault(change.path, change)
    return sorted(by_path.values(), key=lambda change: change.path)


def _parsed(entry: str) -> Change | None:
    """Return the change of one entry of `status --porcelain=v2` (1: changed, u: unmerged, ?: unknown to git), else None."""
    kind, _, rest = entry.partition(" ")
    if kind == "?":
        return Change(rest, tracked=False)
    fields = {"1": 7, "u": 9}.get(kind)
    if fields is None:
        return None
    parts = rest.split(" ", fields)
    return Change(parts[fields], tracked=True, submodule=parts[1] if parts[1].startswith("S") else None)


def blobs(repository: Repository, root: Path, paths: Sequence[str]) -> dict[str, tuple[str | None, str]]:
    """Return, for files of a project, the object that the commit holds and the one that the file would be now.

    Unlike `git status`, this sees files that git ignores or assumes unchanged.

    Args:
        repository: Repository around the project.
        root: The project's folder.
        paths: Files relative to it.

    Raises:
        GitError: Git cannot say.
    """
    if not paths:
        return {}
    held = _blobs(root, "HEAD", paths) if repository.commit else {}
    names = os.fsencode("".join(f"{repository.prefix}{path}\n" for path in paths))  # from the top: read so in any folder
    now = run(repository.top, "hash-object", "--stdin-paths", stdin=names).decode().split()
    return {path: (held.get(path), blob) for path, blob in zip(paths, now, strict=True)}


def _blobs(root: Path, revision: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the object that a revision holds at each path of a project's folder; paths without an object are left out."""
    listing = os.fsdecode(run(root, "ls-tree", "-z", revision, "--", *paths))
    return {path: about.split()[2] for about, _, path in (row.partition("\t") for row in listing.split("\0") if row)}


def tracks(root: str, path: str) -> bool:
    """Return True if a path came with a project: git tracks it, or there is no git here to ask.

    Args:
        root: The project's folder.
        path: The path, relative to it.
    """
    try:
        return bool(run(Path(root), "ls-files", "-z", "--", path, variables={"GIT_LITERAL_PATHSPECS": "1"}))
    except GitError:
        return True


def tracked(root: Path) -> set[str]:
    """Return the paths below a project's folder that git tracks, relative to it; none without git."""
    try:
        return {path for path in os.fsdecode(run(root, "ls-files", "-z")).split("\0") if path}
    except GitError:
        return set()


def checked_out(root: Path) -> str | None:
    """Return the commit that is checked out around a project; None without one, or if git cannot say."""
    try:
        return locate(root).commit
    except GitError:
        return None


def resolve(root: Path, revision: str) -> str:
    """Return the commit that a branch, a tag or another revision name refers to in a project's repository.

    Raises:
        GitError: There is no repository, or no such revision in it.
    """
    locate(root)
    named = revision if revision and not revision.startswith("-") and "\0" not in revision else ""
    commit = _optional(root, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}") if named else None
    if commit is None:
        raise GitError(f"there is no branch, tag or commit {revision!r} in this clone")
    return commit


def files_at(root: Path, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Return a commit's versions of a project's files, without checking anything out; missing files are left out.

    Args:
        root: The project's folder.
        commit: The commit.
        paths: Paths of the files, relative to the folder.

    Raises:
        GitError: Git cannot say.
    """
    return {path: _blob(root, blob, path) for path, blob in _blobs(root, commit, paths).items()}


def _blob(root: Path, blob: str, path: str) -> bytes:
    if (size := int(run(root, "cat-file", "-s", blob))) > MOST_BYTES:
        raise GitError(f"{path} has {size} bytes there, more than a file of its kind may have")
    return run(root, "cat-file", "blob", blob)


@dataclass(frozen=True)
class Committed:
    """A file's version in the last commit that changed it.

    Attributes:
        content: Bytes of the file.
        commit: Name of that commit.
    """

    content: bytes
    commit: str


def committed_file(root: Path, path: str) -> Committed | None:
    """Return a project's file in the checked-out commit; None if it is missing there, or git cannot say.

    Args:
        root: The project's folder.
        path: The file, relative to it.
    """
    try:
        repository = locate(root)
        content = run(root, "cat-file", "blob", f"HEAD:{repository.prefix}{path}")
        return Committed(content, run(root, "log", "-1", "--format=%H", "--", path).decode().strip())
    except GitError:
        return None


def describe(root: Path) -> dict[str, Any]:
    """Return git's description of a project's folder: commit, branch and state, or a note with the reason for their absence.

    Returns:
        `commit`, `branch`, `dirty` (None where unknown) and `note` (None where there is nothing to say).
    """
    try:
        repository = locate(root)
        return {**head(repository), "dirty": bool(changes(repository))}
    except GitError as error:
        return {"commit": None, "branch": None, "dirty": None, "note": str(error)}


def head(repository: Repository) -> dict[str, Any]:
    """Return `commit`, `branch` and notes on them."""
    notes = []
    if repository.commit is None:
        notes.append("the git repository has no commits yet")
    elif repository.branch is None:
        notes.append("the head is detached: no branch leads to this commit by name")
    if repository.shallow:
        notes.append("a shallow clone: older history is not here")
    return {"commit": repository.commit, "branch": repository.branch, "note": "; ".join(notes) or None}
