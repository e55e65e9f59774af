"""Frameworks are imported, which takes seconds, only where their tests run."""

from __future__ import annotations

from pathlib import Path

import pytest

FRAMEWORKS = ("test_lightning.py", "test_transformers.py", "test_fine_tuning.py")  # all of them slow


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name in FRAMEWORKS and config.getoption("markexpr") == "not slow" else None
