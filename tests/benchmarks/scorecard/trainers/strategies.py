"""mltrainer with a training strategy: beside the task of one's own, or beside the built-in images where it does not suit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from tests.benchmarks.scorecard.case import SAMPLES, Case
from tests.benchmarks.scorecard.trainers.builtin import Pictures
from tests.benchmarks.scorecard.trainers.ours import PROJECT, TASK, Mltrainer
from tests.benchmarks.scorecard.work import DATA_FILE, make_net

TRAINED = "trained.pt"  # weights of the same network, of which a strategy may begin or learn
TRAINED_SEED = 7
ASKED = f"""
    terms = ("right", "small")

    def losses(self, outputs, targets):
        return {{"right": self.loss(outputs, targets), "small": outputs.square().mean()}}

    def difficulty(self):
        return abs(np.load("{DATA_FILE}")["x"][:{SAMPLES}]).sum(1)
"""


class WithStrategy(Mltrainer):
    """The same work with strategies.

    Args:
        name: Of the column.
        strategies: As the config has them.
        more: Other values of the config.
    """

    files: ClassVar = {"my_task.py": f"import numpy as np\n{TASK}{ASKED}", "mltrainer.yaml": PROJECT}

    def __init__(self, name: str, *strategies: dict[str, Any], **more: Any) -> None:
        self.name, self._changes = name, {**more, "strategies": [*strategies]}

    def write_data(self, folder: Path, seed: int) -> None:
        """Write the two noisy classes, and the same trained weights whatever the seed."""
        import torch

        super().write_data(folder, seed)
        with torch.random.fork_rng():
            torch.manual_seed(TRAINED_SEED)
            torch.save(make_net().state_dict(), folder / TRAINED)

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the config's values for a case."""
        return {**super().settings(case), **{key: json.dumps(value) for key, value in self._changes.items()}}


class ProgressivePictures(Pictures):
    """The built-in images, smaller at first."""

    name = "progressive"

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the config's values for a case."""
        strategy = {"name": "progressive", "shares": [0.5], "epochs": 2}
        return {**super().settings(case), "strategies": json.dumps([strategy])}


STRATEGIES: list[Mltrainer] = [
    WithStrategy("distillation", {"name": "distillation", "teacher": {"weights": TRAINED}, "weight": 0.7}),
    WithStrategy("lora", {"name": "lora", "rank": 4, "dropout": 0.1}, start={"weights": TRAINED}),
    WithStrategy("adversarial", {"name": "adversarial", "epsilon": 0.1, "steps": 2}),
    WithStrategy("curriculum", {"name": "curriculum", "begin": 0.4, "epochs": 2}),
    ProgressivePictures(),
    WithStrategy("contrastive", {"name": "contrastive", "projection": 16}),
    WithStrategy("masked", {"name": "masked"}),
    WithStrategy("balancing", {"name": "balancing"}),
    WithStrategy("quantization", {"name": "quantization"}),
]
