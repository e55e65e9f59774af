"""The package's front door is light."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mltrainer


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, mltrainer; print([m for m in ('torch', 'numpy', 'sklearn', 'pydantic') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip() == "[]"


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        mltrainer.Trainer  # noqa: B018
