import pytest
import torch
from torch import nn

import mltrainer
from mltrainer.configs.items import DataLimits
from mltrainer.tasks.opening import check_model, open_task

WORKED = """\
import torch
from sklearn.datasets import make_moons
from torch import nn

import mltrainer


class TwoMoons(mltrainer.Task):
    def __init__(self, noise: float = 0.1) -> None:
        self.noise = noise

    def samples(self):
        x, y = make_moons(300, noise=self.noise, random_state=0)
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y)

    def model(self):
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
"""


def test_a_task_of_ones_own_fits_in_30_lines(own_config, tmp_path):
    (tmp_path / "moons.py").write_text(WORKED)
    opened = open_task(own_config("moons:TwoMoons", options={"noise": 0.2}), tmp_path)
    check_model(opened, opened.task.model())
    assert len(WORKED.splitlines()) < 30
    assert opened.facts(DataLimits())["shape"] == [2]


def test_mltrainer_offers_the_base_class():
    assert mltrainer.Task.__module__ == "mltrainer.tasks.task"


def test_forward_takes_the_last_part_as_targets():
    outputs, targets = mltrainer.Task().forward(nn.Bilinear(2, 3, 1), (torch.ones(4, 2), torch.ones(4, 3), torch.arange(4)))
    assert outputs.shape == (4, 1)
    assert targets.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "call", [lambda t: t.samples(), lambda t: t.dataset("train"), lambda t: t.model(), lambda t: t.loss(None, None)]
)
def test_what_a_user_must_write_says_so(call):
    with pytest.raises(NotImplementedError, match=r"write|splits samples"):
        call(mltrainer.Task())


def test_the_rest_has_defaults():
    task = mltrainer.Task()
    assert (task.metrics(None, None), task.inference(), task.evaluation(None, None), task.prepare(None)) == ({}, {}, None, None)
