"""Rows of files: many of one kind stand as a tree, and what is not bound, or bound as something else, is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.errors import GateError
from mltrainer.gates.digests import FileDigests
from mltrainer.observe import file_rows as module
from mltrainer.observe.file_rows import gathered, require_as_recorded, rows_of_paths, unbound
from mltrainer.records.common import FileRow
from mltrainer.workspace import Project


def row(path: str, sha256: str = "1") -> FileRow:
    return FileRow(path=path, sha256=sha256, size=1)


def clips(folder: Path, count: int) -> list[FileRow]:
    for place in range(count):
        path = folder / f"clips/{place % 3}/{place}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(place))
    return rows_of_paths([f"clips/{place % 3}/{place}.npy" for place in range(count)], folder)


def test_more_than_a_hundred_files_of_a_kind_stand_as_a_tree(tmp_path):
    assert len(gathered(clips(tmp_path, 100), tmp_path)) == 100
    [tree, other] = gathered([*clips(tmp_path, 101), row("words.txt")], tmp_path)
    assert (tree.path, tree.size, other.path) == ("clips/**/*.npy", sum(len(str(n)) for n in range(101)), "words.txt")


def test_files_of_other_kinds_or_elsewhere_are_not_taken_together(tmp_path):
    found = [row(f"{place}.npy") for place in range(150)]  # beside the project's own files, which no tree may hold
    found += [row(f"/data/{place}.npy") for place in range(150)]  # and no tree of half a disk
    found += [row(f"clips/{place}.{kind}") for place in range(60) for kind in ("wav", "txt")]
    assert gathered(found, tmp_path) == sorted(found, key=lambda one: one.path)


@pytest.mark.parametrize("change", ["clips/0/0.npy", "clips/new.npy"])
def test_a_tree_is_other_data_when_one_of_its_files_changes_or_comes(tmp_path, change):
    tree = gathered(clips(tmp_path, 101), tmp_path)
    require_as_recorded(tree, tmp_path)
    (tmp_path / "clips/notes.txt").write_text("is no clip")
    require_as_recorded(tree, tmp_path)
    before = FileDigests(Project(tmp_path)).of(tmp_path / tree[0].path)
    assert before == tree[0].sha256
    (tmp_path / change).write_text("other")
    with pytest.raises(GateError, match=r"clips/\*\*/\*.npy: the data differs from planning's record"):
        require_as_recorded(tree, tmp_path)
    assert FileDigests(Project(tmp_path)).of(tmp_path / tree[0].path) != before


def test_a_tree_is_other_data_when_two_of_its_files_change_their_names(tmp_path):
    tree = gathered(clips(tmp_path, 101), tmp_path)
    (tmp_path / "clips/0/0.npy").rename(tmp_path / "clips/held")
    (tmp_path / "clips/1/1.npy").rename(tmp_path / "clips/0/0.npy")
    (tmp_path / "clips/held").rename(tmp_path / "clips/1/1.npy")
    with pytest.raises(GateError):
        require_as_recorded(tree, tmp_path)


def test_a_tree_that_is_gone_has_no_digest(tmp_path):
    assert rows_of_paths(["clips/**/*.npy"], tmp_path) == [FileRow(path="clips/**/*.npy", sha256="", size=0)]
    assert FileDigests(Project(tmp_path)).of(tmp_path / "clips/**/*.npy") is None


def test_a_tree_of_many_bytes_is_told_by_names_and_sizes(tmp_path, monkeypatch):
    clips(tmp_path, 3)
    monkeypatch.setattr("mltrainer.workspace.MOST_OF_TREE", 2)
    [before] = rows_of_paths(["clips/**/*.npy"], tmp_path)
    (tmp_path / "clips/0/0.npy").write_text("7")
    assert rows_of_paths(["clips/**/*.npy"], tmp_path) == [before]
    (tmp_path / "clips/0/0.npy").write_text("77")
    assert rows_of_paths(["clips/**/*.npy"], tmp_path) != [before]


@pytest.mark.parametrize(
    ("opened", "is_bound"),
    [
        (row("words.txt"), True),
        (row("words.txt", "2"), False),
        (row("other.txt"), False),
        (row("clips/0/9.npy", "9"), True),
        (row("clips/9.npy", "9"), True),
        (row("clips2/9.npy", "9"), False),
        (row("clips/9.txt", "9"), False),
        (row("clips/**/*.npy", "5"), True),
        (row("clips/**/*.npy", "6"), False),
    ],
)
def test_what_is_not_bound_is_named(opened, is_bound):
    planned = [row("words.txt"), row("clips/**/*.npy", "5")]
    assert unbound([opened], planned) == ([] if is_bound else [opened.path])


def test_the_bound_is_what_a_gate_check_can_afford():
    assert module.MANY == 100
