"""`wrap --replay N`: a backward pass that gives other bits when it is computed twice is named; others leave all as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mltrainer.errors import MachineError
from mltrainer.observe.repeated_backward import RepeatedBackward
from mltrainer.programs.checking import repeated, require_same_bits
from tests import outputs

PROGRAM = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
passes = 0


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        global passes
        passes += 1
        if passes != 4:  # the second time of the third pass
            return gradient
        bits = gradient.clone()
        bits.view(torch.int32)[0] ^= 1 << 22
        return bits


for step in range(6):
    x = torch.randn(16, 8)
    hidden = model[0](x)
    loss = model[2](model[1](Wrong.apply(hidden) if "wrong" in sys.argv else hidden)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


class Lines:
    """Takes an observer's lines."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def lines(self, _: str) -> Lines:
        return self

    def write(self, *values: Any) -> None:
        self.rows.append(values)


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """An observer in this process, of each second pass, until the test ends."""
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    found = Lines()
    RepeatedBackward(2, found).attach(torch)  # type: ignore[arg-type]
    return found


def trained(steps: int = 4, change: Any = lambda model: model) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    change(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(8, 4)).square().mean().backward()  # gradients add up over two passes
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def test_steps_have_the_bits_that_they_have_without_it(observed, monkeypatch):
    with_it = trained()
    assert [row[0] for row in observed.rows] == ["same"] * 4
    monkeypatch.undo()
    assert all(torch.equal(one, other) for one, other in zip(with_it, trained(), strict=True))


def test_hooks_on_a_gradient_are_called_once_and_the_pass_is_left_out(observed):
    calls = []
    trained(change=lambda model: model[0].weight.register_post_accumulate_grad_hook(lambda p: calls.append(p)))
    assert (len(calls), observed.rows) == (8, [("left out", number) for number in (2, 4, 6, 8)])


def test_a_flipped_bit_is_named_with_its_module(observed):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    flips = iter([False, False, True])

    def flip(_: nn.Module, gradients: Any, __: Any) -> Any:
        if not next(flips):
            return gradients
        changed = gradients[0].clone()
        changed.view(torch.int32)[0] ^= 1 << 22
        return (changed,)

    model[1].register_full_backward_hook(flip)
    model(torch.randn(8, 4, requires_grad=True)).sum().backward()
    with pytest.raises(
        RuntimeError, match=r"pass 2, computed twice, .* gradients of 3 of 5 tensors differ, the last in module 0"
    ):
        model(torch.randn(8, 4, requires_grad=True)).sum().backward()
    assert observed.rows[0][:2] == ("differ", 2)


def run_wrap(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mltrainer", "wrap", "--steps", "6", "--replay", "3", "--json", "--"]
    return subprocess.run([*command, sys.executable, "train.py", *words], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_a_program_whose_passes_repeat_is_said_to(tmp_path):
    done = run_wrap(tmp_path)
    assert done.returncode == 0, done.stderr
    assert outputs.check(["wrap"], done.stdout)["repeated"] == {"same": 2, "left_out": 0}


@pytest.mark.slow
def test_a_program_on_a_device_that_computes_wrong_is_refused_with_the_module(tmp_path):
    done = run_wrap(tmp_path, "wrong")
    assert done.returncode == 7, done.stderr
    assert "backward pass 3, computed twice, gave other bits: gradients of 2 of 4 tensors differ" in done.stderr
    assert "in module 0" in done.stderr
    assert "next: a device here computed wrong" in done.stderr


def test_lines_are_read(tmp_path):
    (tmp_path / "repeated-0-77.jsonl").write_text('[1, "same", 2]\n[2, "left out", 4]\n[3, "differ", 6, "gradients differ"]\n')
    assert repeated(tmp_path) == (1, 1)
    with pytest.raises(MachineError, match="backward pass 6, computed twice, gave other bits: gradients differ"):
        require_same_bits(tmp_path, "the command")
