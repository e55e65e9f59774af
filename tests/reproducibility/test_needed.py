"""Which packages of an environment a project's code can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.records.common import Difference, FileRow
from mltrainer.reproducibility.needed import needed_by, reached

ENTRY = "[torch.backends]\nown = own:load\n"


def installed(folder: Path, name: str, requires: tuple[str, ...] = (), entry: str = "", record: str = "") -> None:
    """Install a distribution of one module of its name."""
    own = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    own.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
    (own / "top_level.txt").write_text(name.replace("-", "_"))
    (own / "entry_points.txt").write_text(entry)
    (own / "RECORD").write_text(f"{record},,\n" if record else "")
    if record:
        (folder / record).write_text("")  # a reader of records may leave out files that are not there


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    installed(tmp_path / "site", "direct", ("deep-one >=1", 'maybe ; extra == "fast"'))
    installed(tmp_path / "site", "deep-one", ("deepest",))
    for name in ("deepest", "maybe", "unrelated", "by-text"):
        installed(tmp_path / "site", name)
    installed(tmp_path / "site", "plugged", entry=ENTRY)
    installed(tmp_path / "site", "starting", record="starting.pth")
    return tmp_path


def sources(folder: Path, text: str) -> list[FileRow]:
    (folder / "task.py").write_text(text)
    return [file("task.py")]


def file(path: str) -> FileRow:
    return FileRow(path=path, sha256="", size=0)


def told(site: Path, text: str) -> set[str]:
    names = ("direct", "deep-one", "deepest", "maybe", "unrelated", "by-text", "plugged", "starting", "torch", "gone")
    changed = [*names, "files of unrelated", "files of deepest", "Python", "threads", "OMP_NUM_THREADS"]
    changes = [Difference(kind="environment", what=what, expected="1", found="2") for what in changed]
    return {row.what for row in reached(changes, names, site, sources(site, text))}


ALWAYS = {"Python", "threads", "OMP_NUM_THREADS", "torch", "plugged", "starting"}


@pytest.mark.slow
def test_a_package_that_nothing_imports_is_left_out_and_what_is_no_package_never(site):
    assert told(site, "x = 1") == ALWAYS


def test_what_is_imported_counts_with_all_that_it_needs_or_may_use(site):
    assert told(site, "def f():\n    import direct.part") == ALWAYS | {
        "direct",
        "deep-one",
        "deepest",
        "maybe",
        "files of deepest",
    }
    assert "direct" in told(site, "from direct import f")


def test_a_module_that_is_imported_by_a_name_that_is_text_counts(site):
    assert "by-text" in told(site, "import importlib\nx = importlib.import_module('by_text.part')")


@pytest.mark.slow
def test_what_the_engine_needs_counts_whatever_is_imported_and_its_extras_do_not(tmp_path):
    found = needed_by(tmp_path, [file("missing.py")])
    assert {"mltrainer", "torch", "numpy", "pydantic", "typing-extensions"} <= found
    assert "pytest" not in found


def test_without_a_difference_nothing_is_read(tmp_path):
    assert reached([], [], tmp_path, [file("missing.py")]) == []
