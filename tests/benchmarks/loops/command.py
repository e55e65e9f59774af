"""The command line of a benchmark that measures works one after another, on one thread."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TypeVar

import torch

from tests.benchmarks.loops.work import WORKS

Found = TypeVar("Found")


def print_measured(description: str | None, measure: Callable[[str, int], Found], table: Callable[[str, Found], str]) -> None:
    """Measure the works that the command line names, and print them.

    Args:
        description: What `--help` tells.
        measure: Takes a work's name and the number of rounds.
        table: Makes a table in Markdown of a work's name and of what was measured.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {work: measure(work, arguments.rounds) for work in arguments.work}
    print(json.dumps(found) if arguments.json else "\n".join(table(work, measured) for work, measured in found.items()))
