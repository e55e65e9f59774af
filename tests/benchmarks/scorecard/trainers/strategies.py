"""mltrainer with a training strategy beside the task of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.case import SAMPLES, Case
from tests.benchmarks.scorecard.trainers.ours import PROJECT, TASK, Mltrainer
from tests.benchmarks.scorecard.work import DATA_FILE, make_net

TRAINED = "trained.pt"  # weights of the same network, of which a strategy may begin or learn
TRAINED_SEED = 7
DIFFICULTY = f"""
    def difficulty(self):
        return abs(np.load("{DATA_FILE}")["x"][:{SAMPLES}]).sum(1)
"""


class WithStrategy(Mltrainer):
    """The same work with strategies.

    Args:
        name: Of the column.
        settings: Of the strategies, as the config has them.
        more: Other values of the config.
    """

    files = {"my_task.py": f"import numpy as np\n{TASK}{DIFFICULTY}", "mltrainer.yaml": PROJECT}  # noqa: RUF012

    def __init__(self, name: str, settings: list[dict[str, Any]], **more: Any) -> None:
        self.name, self._settings, self._more = name, settings, more

    def write_data(self, folder: Path, seed: int) -> None:
        """Write the two noisy classes, and the same trained weights whatever the seed."""
        import torch

        super().write_data(folder, seed)
        with torch.random.fork_rng():
            torch.manual_seed(TRAINED_SEED)
            torch.save(make_net().state_dict(), folder / TRAINED)

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the config's values for a case."""
        more = {key: json.dumps(value) for key, value in self._more.items()}
        return {**super().settings(case), **more, "strategies": json.dumps(self._settings)}


STRATEGIES = [
    WithStrategy("distillation", [{"name": "distillation", "teacher": {"weights": TRAINED}, "weight": 0.7}]),
    WithStrategy("lora", [{"name": "lora", "rank": 4, "dropout": 0.1}], start={"weights": TRAINED}),
    WithStrategy("adversarial", [{"name": "adversarial", "epsilon": 0.1, "steps": 2}]),
    WithStrategy("curriculum", [{"name": "curriculum", "begin": 0.4, "epochs": 2}]),
    WithStrategy("contrastive", [{"name": "contrastive", "projection": 16}]),
]
