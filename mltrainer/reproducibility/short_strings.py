"""Small sets of short strings that a program may iterate over: strings that its sources and its data name together.

Which of them a program makes a set of is not known; that strings stand together, as labels do, is. Everything is read in bounded
time, nothing of it is run, and what cannot be read is left out.
"""

from __future__ import annotations

import ast
import csv
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.workspace import json_or_none

LONGEST = 40  # characters of a label; a longer string is a sentence or a path
MOST_TOGETHER = 8  # strings of one group: the order of a larger set differs under nearly any two seeds
MOST_GROUPS = 400
SOURCE_BYTES, DATA_BYTES = 1 << 20, 1 << 18  # bytes that are read of a file
MOST_FILES = 200  # read data files
USUAL = (  # labels that data in a binary format hold, too, where they cannot be read here
    *(("0", "1"), ("no", "yes"), ("No", "Yes"), ("False", "True"), ("false", "true"), ("female", "male"), ("neg", "pos")),
    *(("negative", "positive"), ("cat", "dog"), ("cats", "dogs"), ("ham", "spam"), ("0", "1", "2"), ("a", "b"), ("a", "b", "c")),
    *(("test", "train"), ("test", "train", "val"), ("train", "val"), ("A", "B"), ("x", "y"), ("bad", "good"), ("F", "M")),
)
SET_MAKERS = frozenset(("set", "frozenset", "hash"))
SET_METHODS = frozenset(("union", "intersection", "difference", "symmetric_difference", "keys"))
SEPARATORS = re.compile(r"[,;|\s]+")

Group = tuple[str, ...]


class Named(NamedTuple):
    """The groups of short strings that a program's sources and data hold, each in its order there.

    Attributes:
        likely: Groups of a program whose sources make sets or take hashes.
        other: Groups of a program in which only libraries make sets, and the usual groups.
    """

    likely: tuple[Group, ...]
    other: tuple[Group, ...]


def named(sources: Iterable[Path], data: Iterable[Path], command: Sequence[str] = ()) -> Named:
    """Return the groups of short strings of a program.

    Args:
        sources: Source files of the program.
        data: Other files that it reads.
        command: Words of its start command: arguments may be labels.
    """
    trees = [tree for path in sources if (tree := _tree(_text(path, SOURCE_BYTES))) is not None]
    paths = list(itertools.islice(data, MOST_FILES))
    listed = [*_of_trees(trees), *_together(command), *(group for word in command for group in _together(SEPARATORS.split(word)))]
    labels = [*_of_folders(paths), *(group for path in paths for group in _of_data(path))]
    groups = _distinct([*labels, *listed])[:MOST_GROUPS]
    likely = groups if any(_makes_sets(tree) for tree in trees) else []
    return Named(tuple(likely), tuple(group for group in _distinct([*groups, *USUAL]) if group not in likely))


def _distinct(groups: Iterable[Group]) -> list[Group]:
    return [*dict.fromkeys(groups)]


def _text(path: Path, most: int) -> str:
    """Return the beginning of a file's text; empty if it is no regular file, cannot be read or is binary."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            content = file.read(most)
    except OSError:
        return ""
    return "" if b"\0" in content else content.decode("utf-8", "ignore")


def _together(strings: Iterable[Any]) -> list[Group]:
    """Return the short strings among some values as a group, if they are few and at least two."""
    texts = (string.strip() for string in strings if isinstance(string, str))
    short = dict.fromkeys(text for text in texts if 0 < len(text) <= LONGEST and text.isprintable())
    return [tuple(short)] if 2 <= len(short) <= MOST_TOGETHER else []


# --- sources ---


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _makes_sets(tree: ast.Module) -> bool:
    """Return True if a source makes a set, or takes a hash, anywhere."""
    return any(
        isinstance(node, (ast.Set, ast.SetComp))
        or (isinstance(node, ast.Name) and node.id in SET_MAKERS)
        or (isinstance(node, ast.Attribute) and node.attr in SET_METHODS)
        for node in ast.walk(tree)
    )


def _of_trees(trees: Iterable[ast.Module]) -> Iterator[Group]:
    for tree in trees:
        for node in ast.walk(tree):
            yield from _together(_strings(node))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= LONGEST * MOST_TOGETHER:
                yield from _together(SEPARATORS.split(node.value.strip()))


def _strings(node: ast.AST) -> list[str]:
    """Return the strings that stand together in a node: elements, keys, alternatives, members of a class, made names."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [text for part in node.elts for text in _texts(part)]
    if isinstance(node, ast.Dict):
        return [text for key in node.keys if key is not None for text in _texts(key)]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    if isinstance(node, ast.ClassDef):  # the members of an enumeration hash by their names
        assigned = [target for part in node.body if isinstance(part, ast.Assign) for target in part.targets]
        return [target.id for target in assigned if isinstance(target, ast.Name)]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        return [text for part in _compared(node) for text in _texts(part)]
    return _texts(node) if isinstance(node, ast.JoinedStr) else []


def _texts(node: ast.AST) -> list[str]:
    """Return the strings that an expression can be: itself, either of two, or a name with the first numbers put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    if isinstance(node, ast.JoinedStr) and sum(isinstance(part, ast.FormattedValue) for part in node.values) == 1:
        parts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
        return ["".join(str(number) if part is None else str(part) for part in parts) for number in range(3)]
    return []


def _compared(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the operands of comparisons and the assigned values in a node: single strings among them are labels."""
    for part in ast.walk(node):
        if isinstance(part, ast.Compare):
            yield from part.comparators
        elif isinstance(part, ast.Assign):
            yield part.value


# --- data ---


def _of_folders(paths: Iterable[Path]) -> Iterator[Group]:
    """Yield the names of the folders in a folder, and of files: labels of pictures, most often."""
    inside: dict[str, dict[str, None]] = {}
    for path in paths:
        for part in (path, *itertools.islice(path.parents, 3)):
            inside.setdefault(os.path.dirname(part), {})[part.name] = None
    for folder, names in inside.items():
        yield from _together([*names, *_neighbours(folder)])
        yield from _together(name.rpartition(".")[0] for name in names)


def _neighbours(folder: str) -> list[str]:
    """Return the folders in a folder, of which the program may have opened only some."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in itertools.islice(entries, 64) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _of_data(path: Path) -> Iterator[Group]:
    """Yield the groups of a file of text: the few values of a column or of a key, a header, lines that are few."""
    text = _text(path, DATA_BYTES)
    if not text:
        return
    if path.suffix == ".json":
        yield from _of_json([json_or_none(text)])
    elif path.suffix in (".jsonl", ".ndjson"):
        yield from _of_json([json_or_none(line) for line in text.splitlines()])
    lines = text.splitlines()
    yield from _together(lines)
    for separator in _separators(lines):
        yield from _of_table(lines, separator)


def _separators(lines: Sequence[str]) -> list[str]:
    """Return the possible column separators of a table: those in its first line, else the comma."""
    return [separator for separator in ",;\t| " if lines and separator in lines[0]] or [","]


def _of_table(lines: Sequence[str], separator: str) -> Iterator[Group]:
    try:
        header, *rows = csv.reader(lines, delimiter=separator)
    except (csv.Error, ValueError):
        return
    yield from _together(header)
    for column in itertools.islice(itertools.zip_longest(*rows[:2000]), 1000):
        yield from _together(column)


def _of_json(found: Sequence[Any]) -> Iterator[Group]:
    """Yield the strings of each list, the keys of each object, and the values of each key."""
    values: dict[str, dict[str, None]] = {}
    left, seen = [*found], 0
    while left and (seen := seen + 1) < 100_000:
        node = left.pop()
        if isinstance(node, list):
            # One more than a group may have, so that a long list makes no group of its beginning.
            yield from _together(node[: MOST_TOGETHER + 1])
            left += node
        elif isinstance(node, dict):
            yield from _together(node)
            for key, value in node.items():
                if isinstance(value, str):
                    values.setdefault(key, {})[value] = None
            left += node.values()
    for each in values.values():
        yield from _together(each)
