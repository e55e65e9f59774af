"""The process in which another trainer trains: `python -m tests.benchmarks.scorecard.child NAME start|resume`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from tests.benchmarks.scorecard.trainers import PEERS
from tests.benchmarks.scorecard.trainers.peer import FINAL_FILE
from tests.benchmarks.scorecard.work import case_of_process


def main() -> None:
    """Train in the current folder and write the final weights there."""
    torch.set_num_threads(1)
    name, how = sys.argv[1:]
    peer = next(peer for peer in PEERS if peer.name == name)
    weights = peer.fit(Path.cwd(), case_of_process(), resume=how == "resume")
    np.savez(FINAL_FILE, **weights)


if __name__ == "__main__":
    main()
