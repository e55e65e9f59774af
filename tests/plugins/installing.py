"""Installs the example packages: by hand in milliseconds, or by pip."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parent / "packages"


def install(site: Path, name: str, as_name: str | None = None) -> Path:
    """Install an example package into a folder as pip would, and return the folder.

    Args:
        site: The folder.
        name: The package.
        as_name: Another name for the distribution.
    """
    project = tomllib.loads((PACKAGES / name / "pyproject.toml").read_text("utf-8"))["project"]
    shutil.copytree(PACKAGES / name, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("pyproject.toml", "__pycache__"))
    (group, points), *_ = project["entry-points"].items()
    write_metadata(site, as_name or project["name"], group, points, project.get("description", ""))
    return site


def write_metadata(site: Path, name: str, group: str, points: dict[str, str], summary: str = "") -> None:
    """Write the metadata of a distribution with entry points."""
    own = site / f"{name.replace('-', '_')}-1.0.dist-info"
    own.mkdir(parents=True, exist_ok=True)
    (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: {summary}\n", "utf-8")
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (own / "entry_points.txt").write_text(f"[{group}]\n{lines}", "utf-8")
    files = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.py"))
    (own / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files), "utf-8")


def install_by_pip(site: Path, name: str) -> Path:
    """Install an example package into a folder by pip, without a network."""
    source = site.parent / f"source of {name}"
    shutil.copytree(PACKAGES / name, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(source)], check=True)
    return site


def use(monkeypatch: pytest.MonkeyPatch, *sites: Path) -> None:
    """Put folders on the path of this process and of those that it starts."""
    for site in reversed(sites):
        monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, sites)))
