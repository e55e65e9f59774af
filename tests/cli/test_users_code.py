"""A user's own module that fails: told by file and line with exit code 1, without a traceback, and with nothing lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import contents, leftovers
from tests.conftest import Cli, Said
from tests.projects import TASK, write_rings

pytestmark = pytest.mark.usefixtures("tools_here")

LOSS = "return nn.functional.cross_entropy(outputs, targets)"
METRICS = 'return {"accuracy"'
SAMPLE = "return torch.tensor(self.x[i] + noise, dtype=torch.float32), int(self.y[i])"
LATER = "self.k = getattr(self, 'k', 0) + torch.is_grad_enabled()\n        if self.k > {k}: "


def broken(place: str, code: str) -> str:
    """Return the rings' module with a line before one of its own."""
    assert place in TASK
    return TASK.replace(place, f"{code}\n        {place}")


def plan(cli: Cli, folder: Path) -> Said:
    return cli("phase", "run", "planning", "--project", folder)


MEAN = "(outputs, targets)\n\n"
CODE_FAULTS = {
    "a syntax error": (TASK + "def f(:\n", "my_task.py:44: importing my_task: SyntaxError: invalid syntax"),
    "an error at import": ("raise RuntimeError('no luck')\n", "my_task.py:1: importing my_task: RuntimeError: no luck"),
    "a package that is not there": ("import nowhere_found\n", "my_task.py:1: importing my_task: ModuleNotFoundError"),
    "an exit at import": ("import sys\nsys.exit(0)\n", "my_task.py:2: importing my_task: SystemExit: 0"),
    "another class": (TASK.replace("class Rings", "class Ring"), "task.use: my_task has no 'Rings'"),
    "a class that is no task": (TASK.replace("(mltrainer.Task)", ""), "it is no mltrainer.Task"),
    "loss raises": (broken(LOSS, "raise ValueError('my loss')"), "my_task.py:40: "),
    "loss exits": (broken(LOSS, "raise SystemExit(0)"), "my_task.py:40: "),
    "loss is no scalar": (TASK.replace(MEAN, "(outputs, targets, reduction='none')\n\n"), "a scalar tensor"),
    "loss is detached": (
        TASK.replace(MEAN, "(outputs, targets).detach()\n\n"),
        "does not depend on the model",
    ),
    "metrics raises": (broken(METRICS, "raise KeyError('m')"), "my_task.py:43: KeyError: 'm'"),
    "metrics gives no dict": (broken(METRICS, "return 3"), "metrics: expected a dict of numbers by name, found int"),
    "metrics gives text": (
        broken(METRICS, "return {'accuracy': 'good'}"),
        "metrics, 'accuracy': expected a number, found 'good'",
    ),
    "metrics gives a vector": (
        broken(METRICS, "return {'accuracy': outputs[:, 0]}"),
        "metrics, 'accuracy': expected a number, found a tensor of shape [60]",
    ),
    "model raises": (broken("return nn.Sequential", "raise OSError('no weights')"), "my_task.py:35: OSError: no weights"),
    "model gives none": (broken("return nn.Sequential", "return None"), "model(): expected a torch.nn.Module, found NoneType"),
    "nothing to train": (broken("return nn.Sequential", "return nn.Flatten()"), "without a parameter to train"),
    "a complex parameter": (
        TASK.replace("nn.Linear(2, 32)", "nn.Linear(2, 32, dtype=torch.complex64)"),
        "the parameter 0.weight is complex64; only real ones can be trained",
    ),
    "model takes another shape": (
        TASK.replace("nn.Linear(2, 32)", "nn.Linear(3, 32)"),
        "layer 0 = Linear(in_features=3, out_features=32, bias=True) got float32 [8, 2]",
    ),
    "model has too few outputs": (
        TASK.replace("nn.Linear(32, 2)", "nn.Linear(32, 1)"),
        "outputs float32 [8, 1], targets int64",
    ),
    "a sample raises": (
        broken(SAMPLE, "if i == 150: raise IndexError(i)"),
        "my_task.py:24: samples of your task: Index",
    ),
    "a sample without a file": (
        broken(SAMPLE, "if i == 150: open('/nowhere/x')"),
        "my_task.py:24: samples of your task: File",
    ),
    "samples of two shapes": (
        broken(SAMPLE, "if i % 7 == 0: return torch.zeros(3), 0"),
        "stack expects each tensor to be",
    ),
    "a label out of range": (broken(SAMPLE, "if i == 150: return torch.zeros(2), 9"), "my_task.py:41: IndexError: Target 9"),
    "no samples": (TASK.replace("return len(self.x)", "return 0"), "split: 0 samples; at least 3 are needed"),
    "an error in a later step": (
        broken(LOSS, LATER.format(k=4) + "raise ValueError('late')"),
        "my_task.py:41: ValueError: late",
    ),
    "an exit in a later step": (
        broken(LOSS, LATER.format(k=4) + "raise SystemExit(0)"),
        "your code called sys.exit(0)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", CODE_FAULTS)
def test_a_fault_in_the_users_code_is_told_by_file_and_line(tmp_path, cli, fault):
    source, message = CODE_FAULTS[fault]
    project = write_rings(tmp_path, source)
    said = plan(cli, project.root)
    assert (said.code, said.out, "Traceback" in said.err) == (1, "", False), said.err
    assert message in said.err
    assert not project.phase_dir("planning").exists()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"use": "mytask:Rings"}, "task.use: there is no module 'mytask' in "),
        ({"use": "my_task:Rings", "options": {"m": 3}}, "task.options: there is no option 'm' of Rings; there are n, pause"),
        ({"use": "my_task:Rings", "options": {"n": "many"}}, "my_task.py:15: samples of your task: TypeError"),
    ],
)
def test_a_wrong_name_or_option_of_a_task_is_refused(tmp_path, cli, task, message):
    said = plan(cli, write_rings(tmp_path, task=task).root)
    assert said.code == 1
    assert message in said.err


@pytest.mark.slow
def test_an_error_in_training_keeps_the_plan_and_says_where_the_traceback_is(tmp_path, cli):
    project = write_rings(tmp_path, broken(LOSS, LATER.format(k=80) + "raise ValueError('late')"))
    assert plan(cli, project.root).code == 0
    before = contents(project.root)
    said = cli("run", "--project", project.root)
    assert (said.code, "Traceback" in said.err) == (1, False)
    assert "my_task.py:41: ValueError: late" in said.err
    place = re.search(r"the traceback is in (\S+)", said.err)
    assert "late" in (project.root / place[1]).read_text()
    assert (contents(project.root), leftovers(project.root)) == (before, [])


LATE = """

class Late(nn.Linear):
    def __init__(self):
        super().__init__(2, 32)
        self.register_buffer("seen", None)

    def forward(self, x):
        if self.training:
            self.seen = torch.ones(1)
        return super().forward(x)
"""


@pytest.mark.slow
def test_a_buffer_that_only_training_makes_is_named_where_a_run_goes_on(tmp_path, cli):
    said = plan(cli, write_rings(tmp_path, TASK.replace("nn.Linear(2, 32)", "Late()") + LATE).root)
    assert (said.code, said.out, "Traceback" in said.err) == (1, "", False), said.err
    assert "task.use: it trained as it is, and failed once what must not matter was changed" in said.err
    assert "an interruption): a new model does not have the tensors of the trained one: 0.seen" in said.err
