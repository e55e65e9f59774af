"""What the project's own code uses of clocks, entropy and threads is seen, with its line, and nothing else is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.reproducibility.nondeterminism import Witness

HEAD = """\
import datetime, os, random, secrets, threading, time, uuid
from time import time as now
import numpy as np, torch
def use():
    """


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Any]:
    """Run a line of the project's code, and return what the witness saw of it."""

    def run(line: str) -> list[dict[str, Any]]:
        (tmp_path / "own.py").write_text(HEAD + line + "\n")
        spec = importlib.util.spec_from_file_location("own", tmp_path / "own.py")
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        witness, before = Witness(tmp_path), sys.getprofile()
        spec.loader.exec_module(module)
        witness.install()
        try:
            module.use()
        finally:
            witness.remove()
            sys.setprofile(before)
        return witness.calls()

    return run


@pytest.mark.parametrize(
    ("line", "kind", "call"),
    [
        ("now()", "clock", "time.time"),
        ("time.perf_counter()", "clock", "time.perf_counter"),
        ("datetime.datetime.now()", "clock", "datetime.now"),
        ("os.urandom(2)", "random draw", "posix.urandom"),
        ("uuid.uuid4()", "random draw", "uuid.uuid4"),
        ("secrets.token_hex()", "random draw", "secrets.token_hex"),
        ("random.Random()", "random draw", "random.Random.__init__"),
        ("random.seed()", "random draw", "random.Random.seed"),
        ("np.random.default_rng()", "random draw", "random.SystemRandom.getrandbits"),
        ("torch.seed()", "random draw", "torch.random.seed"),
        ("threading.Thread(target=print).start()", "threads", "threading.Thread.start"),
    ],
)
def test_a_call_is_seen_with_its_line(seen, line, kind, call):
    found = {(row["kind"], row["call"], row["where"], row["function"]) for row in seen(line)}
    assert (kind, call, "own.py:5", "use") in found


@pytest.mark.parametrize(
    "line", ["random.random()", "random.Random(3)", "random.seed(3)", "np.random.default_rng(3)", "torch.rand(2)"]
)
def test_seeded_draws_are_not_seen(seen, line):
    assert seen(line) == []


def test_what_a_library_calls_by_itself_is_not_seen(seen):
    assert seen("__import__('logging').getLogger('x').warning('y')") == []
