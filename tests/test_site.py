"""The documentation site: built without a warning and without network, from pages whose links hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mltrainer
from mltrainer import handbook

ROOT = Path(__file__).parents[1]
WITHOUT_NETWORK = """
import socket, sys
def refuse(*given):
    raise OSError(f"the build asked for the network: {given[1:]}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--site-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "error", "-c", WITHOUT_NETWORK, str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=variables)
    assert (built.returncode, built.stdout) == (0, ""), built.stderr
    return folder


def page(site: Path, path: str) -> str:
    """Return a page's HTML by its path in the repository."""
    place = path.removesuffix(".md").removesuffix("README")
    return (site / place / "index.html").read_text("utf-8")


@pytest.mark.slow
def test_every_page_of_the_handbook_is_there(site):
    pages = [path for path in handbook.page_paths() if path.endswith(".md")]
    assert all("<h1" in page(site, path) for path in pages)


def test_a_page_shows_what_it_declares(site):
    text = re.sub("<[^>]+>", "", page(site, "phases/01_planning/workflow.md"))
    assert "What this page declares" in text
    assert "probe_steps: 8" in text
    assert "declares" not in page(site, "configs/README.md")


def test_the_reference_shows_the_front_door(site):
    names = set(re.findall(r'id="mltrainer\.(\w+)', page(site, "docs/API.md")))
    assert {name for name in dir(mltrainer) if not name.startswith("_")} <= names


def test_a_reader_fetches_nothing_from_elsewhere(site):
    fetched = r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//|@import'
    assert not [path for path in site.rglob("*.html") if re.search(fetched, path.read_text("utf-8"))]


@pytest.mark.parametrize("path", ["README.md", "docs/START.md", "docs/DESIGN.md", "docs/MONITOR.md"])
def test_the_pictures_of_a_page_are_there(site, path):
    text = page(site, path)
    shown = re.findall(r'<img[^>]+src="([^"]+)"', text)
    assert shown
    assert all((site / path.removesuffix(".md").removesuffix("README") / picture).is_file() for picture in shown)
    assert "flowchart" not in text  # a chart is drawn, and not shown as its source


def test_every_page_of_the_handbook_stands_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [path for path in handbook.page_paths() if path.endswith(".md") and path not in nav] == []


def test_each_test_that_a_page_names_is_there():
    named = [
        row for path in ROOT.glob("docs/*.md") for row in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", path.read_text("utf-8"))
    ]
    assert len(named) > 30
    assert [row for row in named if f"def {row[1]}(" not in (ROOT / row[0]).read_text("utf-8")] == []
