"""Which installed distributions a project's code can reach: its imports, their requirements, and self-loading ones."""

from __future__ import annotations

import ast
import importlib.metadata
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from mltrainer import plugins
from mltrainer.records.common import Difference, FileRow
from mltrainer.reproducibility.pins import normal

ENGINE = "mltrainer"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r""";.*\bextra\s*==\s*["']([^"']+)""")
OF_DEVELOPERS = frozenset(
    ("all", "dev", "develop", "doc", "docs", "lint", "test", "tests", "testing", "typing")
)  # extras that no run needs


def reached(changes: Iterable[Difference], packages: Collection[str], root: Path, files: Iterable[FileRow]) -> list[Difference]:
    """Return the differences of two environments without those of packages that a project's code cannot reach.

    Args:
        changes: The differences.
        packages: Names of all distributions of both environments.
        root: The project's folder.
        files: The imported files, by paths relative to it.
    """
    rows = list(changes)
    names, needed = {normal(name) for name in packages}, needed_by(root, files) if rows else frozenset()
    return [row for row in rows if _is_reached(normal(row.what.removeprefix("files of ")), names, needed)]


def _is_reached(name: str, packages: set[str], needed: frozenset[str]) -> bool:
    """Return True if a row of a difference counts: it is about no package, or about one that is needed or loads itself."""
    if name not in packages or name in needed:
        return True
    try:
        return _loads_itself(importlib.metadata.distribution(name), needed)
    except importlib.metadata.PackageNotFoundError:
        return False


def needed_by(root: Path, files: Iterable[FileRow]) -> frozenset[str]:
    """Return the distributions that imported files can reach, by their normal names.

    The imports and the strings of the sources count, as a module may be imported by a name that is text; then
    their requirements, and for imported packages those of extras too, as a library may use any installed package.

    Args:
        root: The project's folder.
        files: The imported files, by paths relative to it.
    """
    names = {name for row in files for name in _reached_by(row.path, root)}
    owners = importlib.metadata.packages_distributions()
    imported = {normal(owner) for name in names for owner in owners.get(name, ())} - {ENGINE}
    found, left = set(), [ENGINE, *imported]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [each for each, extra in _requirements(name) if not extra]
    used = {each for name in imported for each, extra in _requirements(name) if extra not in OF_DEVELOPERS}
    return frozenset(found | used)


def _reached_by(path: str, root: Path) -> Iterator[str]:
    """Yield the names that a file imports; a plug-in's file, which no file of the project imports, yields its own, too."""
    yield from _names(plugins.located(root, path))
    if plugins.is_file_of_plugin(path):
        yield path.removeprefix(plugins.PLACE).partition("/")[0].removesuffix(".py")


def _names(path: Path) -> Iterator[str]:
    """Yield the first parts of the names that a source imports, or holds as text."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(".")[0]


def _requirements(name: str) -> list[tuple[str, str]]:
    """Return a distribution's requirements, each with its extra or an empty text; none if it is not installed."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    rows = [(match[0], _EXTRA.search(line)) for line in lines if (match := _NAME.match(line.strip()))]
    return [(normal(each), extra[1] if extra else "") for each, extra in rows]


def _loads_itself(installed: importlib.metadata.Distribution, needed: frozenset[str]) -> bool:
    """Return True if a distribution runs although nothing imports it: at each start of Python, or as a needed one's plug-in.

    A plug-in of mltrainer runs only where a config names it: its imported files say so.
    """
    at_start = any(str(file).endswith(".pth") or file.name == "sitecustomize.py" for file in installed.files or ())
    return at_start or any(normal(point.group.partition(".")[0]) in needed - {ENGINE} for point in installed.entry_points)
