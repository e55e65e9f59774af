"""The page about plug-ins shows the tracker that the tests install and use."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.installing import PACKAGES

PAGE = Path(__file__).parents[2] / "docs/PLUGINS.md"


def test_the_package_on_the_page_is_the_one_that_is_tested():
    text = PAGE.read_text("utf-8")
    for name, language in (("pyproject.toml", "toml"), ("mltrainer_lines.py", "python")):
        assert f"```{language}\n{(PACKAGES / 'mltrainer-lines' / name).read_text('utf-8')}```" in text


def test_each_kind_stands_in_the_table_with_a_package_in_the_tests():
    text = PAGE.read_text("utf-8")
    projects = [path.read_text("utf-8") for path in PACKAGES.glob("*/pyproject.toml")]
    for kind in ("trackers", "optimizers", "tasks", "questions", "exporters", "executors"):
        assert f"| `mltrainer.{kind}` |" in text
        assert any(f'entry-points."mltrainer.{kind}"' in project for project in projects)
