"""The rooms: imports point down, no two modules import each other, and torch stays below the line of the tools."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import mltrainer

PACKAGE = Path(mltrainer.__file__).parent
FLOORS = [
    {"cli", "__main__"},
    {"project"},
    {"tracking"},
    {"monitor"},
    {"phases"},
    {"runs"},
    {"gates"},
    {"records", "reports", "figures", "follow", "tools", "trainer"},
    {"diagnostics", "checkpointing", "reproducibility", "integrations", "tasks", "wrap"},
    {"observe"},
    {"configs"},
    {"handbook"},
    {"executors"},
    {"workspace", "leftovers"},
    {"looking"},
    {"errors", "callbacks", "__init__"},
]
TORCH_FREE = [
    "cli",
    "project",
    "monitor",
    "tracking",
    "phases",
    "runs",
    "gates",
    "records",
    "reports",
    "figures",
    "follow",
    "diagnostics",
    "configs",
    "handbook",
    "executors",
    "workspace",
    "leftovers",
    "looking",
    "wrap",
    "observe",
    "errors",
    "callbacks",
]


@functools.cache
def modules() -> dict[str, Path]:
    return {".".join(("mltrainer", *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports when it is loaded."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mltrainer"):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & set(modules())


def floor(module: str) -> int:
    room = module.split(".")[1]
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    above = [other for other in imports(modules()[module]) if floor(other) < floor(module)]
    assert not above


def test_no_two_modules_import_each_other() -> None:
    edges = {name: imports(path) for name, path in modules().items()}
    assert not [(a, b) for a in edges for b in edges[a] if a in edges.get(b, ())]


@pytest.mark.slow
def test_nothing_above_the_tools_imports_torch() -> None:
    code = (
        "import pkgutil, importlib, sys, mltrainer\n"
        f"for room in {TORCH_FREE!r}:\n"
        "    module = importlib.import_module(f'mltrainer.{room}')\n"
        "    for found in pkgutil.iter_modules(getattr(module, '__path__', [])):\n"
        "        importlib.import_module(f'mltrainer.{room}.{found.name}')\n"
        "sys.exit(', '.join(n for n in ('torch', 'numpy', 'sklearn', 'scipy') if n in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""
