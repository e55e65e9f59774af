"""A training starts without what it does not need: torch's compiler takes a second to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRAINING = """
import sys, tempfile
from pathlib import Path
from tests.benchmarks.loops.ours import open_session
with tempfile.TemporaryDirectory() as folder:
    session = open_session("digits", Path(folder), 1)
    session.train()
print(session.trainer.step, *(name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules))
"""


@pytest.mark.slow
def test_a_training_that_compiles_nothing_does_not_import_the_compiler():
    said = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["45"]
