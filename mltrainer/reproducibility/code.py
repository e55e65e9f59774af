"""Code identity: the project's files that a run imported, the commit, and the uncommitted changes.

What mltrainer itself writes (`.mltrainer/`, the artifacts under `phases/`) is no code: committing the reports changes
nothing. Nor are files that a record binds by digest itself: the project's config files and its data. A project's own
pages of the handbook are policy, and count.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltrainer import handbook, plugins
from mltrainer.leftovers import scratch
from mltrainer.records.common import FileRow, Skipped, Source, dumped
from mltrainer.redaction import scan_files
from mltrainer.reproducibility import git
from mltrainer.reproducibility.git import Change, GitError, Repository
from mltrainer.workspace import PHASES, digest, sha256_bytes, sha256_file

MAX_FILE_BYTES = 10 * 2**20  # chosen by us: no source file is larger, and data has its own fingerprint
MAX_UNTRACKED = 5000  # chosen by us: hashing this many small files takes about a second
SNAPSHOTS = "refs/mltrainer"
_FOREIGN = {".venv", "venv", ".tox", ".nox", "site-packages", "dist-packages", ".mltrainer"}
_ENGINE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_PHASE_FOLDERS = {f"{number:02d}_{phase}" for number, phase in enumerate(PHASES, 1)}
_PRIVATE_FILE = re.compile(r"\.env(?!\.example$).*|\.netrc|\.pgpass|\.git-credentials|id_(?:rsa|dsa|ecdsa|ed25519)")
_IDENTITY = {
    **git.NOBODY,
    **{f"GIT_{role}_DATE": "946684800 +0000" for role in ("AUTHOR", "COMMITTER")},  # fixed: the same tree is the same commit
}


# --- imported files -----------------------------------------------------------------------------


def imported_files(root: Path, modules: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the project's files that are imported, sorted by path, and those of the plug-ins that were loaded here.

    Args:
        root: The project's folder.
        modules: Imported modules by name; by default those of this process.

    Returns:
        Rows of `path` (relative, forward slashes; of a plug-in as `plugins.located` finds it), `sha256` and `size` in bytes.
        Other packages, also those in a virtual environment inside the project, and mltrainer itself are left out.
    """
    loaded = sys.modules if modules is None else modules
    bases = (os.path.abspath(root), os.path.realpath(root))
    resolved = functools.cache(os.path.realpath)  # of a few hundred folders, which hold thousands of modules
    elsewhere = _elsewhere(*bases)
    # Over a copy: another thread may import and change the table meanwhile.
    names = {name for module in list(loaded.values()) if (name := _name_of(module))} - elsewhere
    paths = set()
    for name in names:
        file = _file_of(name)
        places = _places(file, resolved) if file else ()
        if inside := _inside(bases, places):
            paths.add(inside)
        elif file and os.path.isabs(name) and not _is_below(bases, places):
            elsewhere.add(name)
    own = {path: root / path for path in paths}
    of_plugins = plugins.imported() if modules is None else {}
    others = {path: file for path, file in of_plugins.items() if not _inside(bases, (str(file),))}
    return [FileRow.of(file, path).model_dump() for path, file in sorted({**own, **others}.items())]


@functools.lru_cache(maxsize=8)
def _elsewhere(*_bases: str) -> set[str]:
    """Return the names of modules' files outside a project; cached, as a process that trains often asks for each run."""
    return set()


def _name_of(module: Any) -> str | None:
    """Return the file that a module names; looks at its plain attributes only, because asking may import."""
    try:
        name = vars(module).get("__file__")
    except TypeError:  # anything may stand in sys.modules
        return None
    return name if isinstance(name, str) else None


def _file_of(name: str) -> str | None:
    """Return the file that is there for a name, or the archive that it is in."""
    path = os.path.abspath(name)  # not resolved: a link in the project is the project's
    while not os.path.isfile(path):  # a module in a zip file
        if path == (path := os.path.dirname(path)):
            return None
    return path


def _places(file: str, resolved: Callable[[str], str]) -> tuple[str, str]:
    """Return a file's path by its name, and its path with links followed."""
    folder, name = os.path.split(file)
    return file, os.path.realpath(file) if os.path.islink(file) else os.path.join(resolved(folder), name)


def _is_below(bases: Sequence[str], places: Sequence[str]) -> bool:
    return any(place.startswith(f"{base.rstrip(os.sep)}{os.sep}") for base in bases for place in places)


def _inside(bases: Sequence[str], places: Sequence[str]) -> str | None:
    """Return a file's path in the project, or None where it is not the project's code."""
    if any(place.startswith(_ENGINE) for place in places):
        return None
    for base in bases:
        for place in places:
            if place.startswith(f"{base.rstrip(os.sep)}{os.sep}"):
                relative = Path(os.path.relpath(place, base))
                return None if _is_foreign(Path(base), relative) else relative.as_posix()
    return None


def _is_foreign(root: Path, relative: Path) -> bool:
    # By what every environment holds, since it may have any name.
    environments = (root / parent / "pyvenv.cfg" for parent in relative.parents[:-1])
    return bool(_FOREIGN & set(relative.parts)) or any(map(Path.exists, environments))


# --- identity -----------------------------------------------------------------------------------


def source(root: Path, files: Sequence[FileRow], bound: Collection[str] = (), started: Collection[str] = ()) -> Source:
    """Return the identity of the code that ran; works everywhere, and names unknown parts in `note`.

    Args:
        root: The project's folder.
        files: Imported files.
        bound: Files, relative to the project, that are no code and are held by their digests elsewhere: whether they are
            committed makes no difference.
        started: Further files, relative to the project, that were run and not imported, such as a shell script.

    Returns:
        Without a snapshot. `diff_sha256` is the digest of what differs from the commit, None in a clean tree; `untracked` counts
        the files that git does not know, of which one makes a difference only where it was imported or started.
    """
    identity: dict[str, Any] = {"files": [*files], "sha256": digest(dumped(files)), "snapshot": None}
    own = [row.path for row in files if not plugins.is_file_of_plugin(row.path)]  # only these can be in a commit
    try:
        repository = git.locate(root)
        changed = _unbound(repository, bound)
        unheld = _unheld(repository, root, own, changed)
    except GitError as error:
        note = f"{error}: the digests of the imported files stand for the code"
        return Source(**identity, commit=None, branch=None, dirty=None, diff_sha256=None, untracked=0, note=note)
    known = git.head(repository)
    if unheld:
        known["note"] = "; ".join(filter(None, (known["note"], f"imported, but hidden from git: {', '.join(unheld)}")))
    used = _used(repository, changed, [*own, *started])
    difference = [*_difference(repository, used), *({"path": f"{repository.prefix}{path}", "hidden": True} for path in unheld)]
    return Source(
        **identity,
        **known,
        dirty=bool(difference) or repository.commit is None,
        diff_sha256=digest(difference) if difference else None,
        untracked=sum(not change.tracked for change in changed),
    )


def uncommitted(root: Path, used: Collection[str], bound: Collection[str] = ()) -> list[str]:
    """Return the files that are not as the commit has them, by their paths in the repository; none if git cannot say.

    Args:
        root: The project's folder.
        used: Imported or started files: of untracked files only these count.
        bound: Files that do not count, as in `source`.
    """
    try:
        repository = git.locate(root)
        return [change.path for change in _used(repository, _unbound(repository, bound), used)]
    except GitError:
        return []


def _used(repository: Repository, changed: Sequence[Change], used: Collection[str]) -> list[Change]:
    """Return the changes of tracked files, and the used untracked ones: code, and the project's own pages."""
    names = {os.path.normpath(f"{repository.prefix}{path}") for path in (*used, *handbook.page_paths())}
    return [change for change in changed if change.tracked or change.path in names]


def _unbound(repository: Repository, bound: Collection[str]) -> list[Change]:
    apart = {os.path.normpath(f"{repository.prefix}{path}") for path in bound}
    return [change for change in _changes(repository) if change.path not in apart]


def _changes(repository: Repository) -> list[Change]:
    """Return the changes against the commit, without files that mltrainer or the interpreter writes."""
    exclude = [f":(top,exclude,glob)**/{name}/**" for name in ("__pycache__", ".venv")]
    exclude.append(f":(top,exclude,literal){repository.prefix}.mltrainer")
    pages = set(handbook.page_paths())
    return [change for change in git.changes(repository, exclude) if not _is_written(change.path, repository.prefix, pages)]


def _is_written(path: str, prefix: str, pages: set[str]) -> bool:
    """Return True if a path is an artifact that phases write, and not a page of the handbook that a project overrides."""
    if not path.startswith(prefix):
        return False
    relative = path.removeprefix(prefix)
    parts = relative.split("/")
    if len(parts) == 2:  # what all phases share, such as the ledger of tried runs
        return parts[0] == "phases" and parts[1].endswith((".json", ".txt"))
    return len(parts) > 2 and parts[0] == "phases" and parts[1] in _PHASE_FOLDERS and relative not in pages


def _unheld(repository: Repository, root: Path, files: Iterable[str], changed: Sequence[Change]) -> list[str]:
    """Return imported files that the commit does not hold although git reports no change: ignored, or assumed unchanged."""
    reported = {change.path for change in changed}
    paths = [path for path in files if f"{repository.prefix}{path}" not in reported]
    return [path for path, (held, now) in git.blobs(repository, root, paths).items() if held != now]


def _difference(repository: Repository, changed: Sequence[Change]) -> Iterator[dict[str, Any]]:
    """Yield each changed path with its content's digest: unlike a diff's text the same for every version of git."""
    budget = MAX_UNTRACKED
    for change in changed:
        budget -= not change.tracked
        hashed = change.tracked or budget >= 0
        yield {"path": change.path, **_content(repository.top / change.path, change.submodule, hashed)}


def _content(path: Path, submodule: str | None, hashed: bool) -> dict[str, Any]:
    """Return the identity of a path's content; of large files the size, because data has its own fingerprint."""
    try:
        status = path.lstat()
        # The link and not its target, which may be any file of the machine.
        if stat.S_ISLNK(status.st_mode):
            return {"link": sha256_bytes(os.fsencode(os.readlink(path)))}
        if stat.S_ISDIR(status.st_mode):
            return {"submodule": submodule, "commit": git.describe(path)["commit"]}
        if not stat.S_ISREG(status.st_mode):
            return {"special": True}
        small = hashed and status.st_size <= MAX_FILE_BYTES
        executable = bool(status.st_mode & stat.S_IXUSR)
        return {"size": status.st_size, "executable": executable, "sha256": sha256_file(path) if small else None}
    except FileNotFoundError:
        return {"deleted": True}
    except OSError as error:
        return {"unreadable": error.strerror}


# --- the snapshot of a dirty tree ---------------------------------------------------------------


@dataclass(frozen=True)
class Snapshot:
    """A captured work tree.

    Attributes:
        ref: `refs/mltrainer/<tree>`; `git restore --source REF .` brings it back. None where it could not be taken.
        skipped: Paths that were left out: too large, with a secret, or not a file.
        note: Reason why there is no snapshot.
    """

    ref: str | None
    skipped: list[Skipped] = field(default_factory=list)
    note: str | None = None


def take_snapshot(root: Path) -> Snapshot:
    """Capture a work tree as a commit under `refs/mltrainer`; index, work tree, branches and stash stay as they are.

    What git ignores, files over 10 MiB and files that hold a secret are left as the last commit has them.

    Args:
        root: The project's folder.

    Returns:
        The snapshot, verified to hold the captured files.
    """
    try:
        repository = git.locate(root)
        changed = _changes(repository)
        skipped = _skipped(repository, changed)
        out = {row.path for row in skipped}
        ref = _commit(repository, [change.path for change in changed if change.path not in out], skipped)
        return Snapshot(ref, skipped)
    except (GitError, OSError) as error:
        return Snapshot(None, note=f"no snapshot of the uncommitted changes: {error}")


def _skipped(repository: Repository, changed: Sequence[Change]) -> list[Skipped]:
    untracked = [change.path for change in changed if not change.tracked]
    many = set(untracked[MAX_UNTRACKED:])
    rows = ((change.path, "too many files" if change.path in many else _obstacle(repository, change)) for change in changed)
    return [Skipped(path=path, reason=reason) for path, reason in rows if reason]


def _obstacle(repository: Repository, change: Change) -> str | None:
    """Return the reason to leave a path out of a snapshot, or None."""
    path = repository.top / change.path
    if change.submodule is not None or not os.path.lexists(path):
        return None
    if path.is_symlink():
        return None
    if path.is_dir():
        return "now a folder" if change.tracked else "a repository of its own"
    if not path.is_file():
        return "not a file"
    if _PRIVATE_FILE.fullmatch(path.name):
        return "a file for secrets"
    if path.stat().st_size > MAX_FILE_BYTES:
        return f"larger than {MAX_FILE_BYTES >> 20} MiB"
    return "holds a secret" if scan_files([path]) else None


def _commit(repository: Repository, paths: list[str], skipped: list[Skipped]) -> str:
    """Write the commit from a separate index, which starts from the last commit: merely staged changes stay out."""
    with scratch() as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        git.run(repository.top, "read-tree", "HEAD" if repository.commit else "--empty", variables=index)
        names = os.fsencode("".join(f"{path}\0" for path in paths))
        add = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        git.run(repository.top, *add, stdin=names, variables=index, timeout_s=120)
        tree = git.run(repository.top, "write-tree", variables=index).decode().strip()
    left_out = (f"left out: {row.path} ({row.reason})" for row in skipped)
    message = "\n".join(["Uncommitted changes, captured by mltrainer", "", *left_out])
    parents = ["-p", repository.commit] if repository.commit else []
    command = ("commit-tree", tree, *parents, "-F", "-")
    commit = git.run(repository.top, *command, stdin=os.fsencode(message + "\n"), variables=_IDENTITY).decode().strip()
    ref = f"{SNAPSHOTS}/{tree}"
    git.run(repository.top, "update-ref", "--no-deref", ref, commit)
    # Read back at once: the note about a missing snapshot is useful now, and useless when somebody wants to restore it.
    _verify(repository, ref, paths)
    return ref


def _verify(repository: Repository, ref: str, paths: list[str]) -> None:
    """Read a snapshot back: it must have the present files, and no deleted ones.

    Raises:
        GitError: The snapshot is incomplete; its ref is removed.
    """
    listing = os.fsdecode(git.run(repository.top, "ls-tree", "-r", "-z", "-l", "--full-tree", ref))
    rows = [row.partition("\t") for row in listing.split("\0") if row]
    held = {path: about.split()[3] for about, _, path in rows}
    wrong = [path for path in paths if os.path.lexists(repository.top / path) != (path in held) or held.get(path) == "BAD"]
    if wrong:
        git.run(repository.top, "update-ref", "-d", ref)
        raise GitError(f"the snapshot does not hold {', '.join(wrong[:5])}")
