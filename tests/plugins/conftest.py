"""Plug-ins that a test loads are none of the next one's: their files count as code of every run of the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mltrainer import plugins


@pytest.fixture(autouse=True)
def _forget_plugins() -> Iterator[None]:
    yield
    plugins._loaded.clear()
