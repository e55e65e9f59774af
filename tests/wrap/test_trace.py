"""What a traced operation is given and gives, digested."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mltrainer.observe.process import Process, Settings
from mltrainer.observe.trace import Trace


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.5]).expand(1, 1),
        torch.ones(2, 3).t(),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(3, dtype=torch.complex64).conj().imag,
        torch.ones(2, 2).to_sparse(),
        torch.empty(0),
        torch.tensor([True, False]),
    ],
)
def test_any_tensor_has_a_digest_of_its_own(tensor: Tensor, tmp_path_factory: pytest.TempPathFactory) -> None:
    trace = Trace(Process(Settings(folder=str(tmp_path_factory.mktemp("lines")))), "")
    trace._torch = torch
    assert trace._digest([tensor]) == trace._digest([tensor.clone()])
    assert trace._digest([tensor]) != trace._digest([tensor, tensor])
