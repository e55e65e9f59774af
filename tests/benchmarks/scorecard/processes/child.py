"""One of the processes in which another trainer trains: `... -m tests.benchmarks.scorecard.processes.child NAME start|resume`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch

from tests.benchmarks.scorecard.processes.trainers import PEERS
from tests.benchmarks.scorecard.processes.work import case_of_process
from tests.benchmarks.scorecard.trainers.peer import FINAL_FILE


def main() -> None:
    """Train in the current folder; the first process writes the final weights there."""
    torch.set_num_threads(1)
    name, how = sys.argv[1:]
    peer = next(peer for peer in PEERS if peer.name == name)
    weights = peer.fit(Path.cwd(), case_of_process(), resume=how == "resume")
    if os.environ["RANK"] == "0":
        np.savez(FINAL_FILE, **weights)


if __name__ == "__main__":
    main()
