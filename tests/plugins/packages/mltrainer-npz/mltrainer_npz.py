"""The weights as a file of NumPy's, read back into the model's own code."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mltrainer.checkpointing.export import Format, Program


def write(program: Program, path: Path) -> None:
    """Write the weights."""
    with path.open("wb") as file:
        np.savez(file, **{name: tensor.numpy() for name, tensor in program.model.state_dict().items()})


def read(program: Program, path: Path) -> Callable[[tuple[Tensor, ...]], list[Tensor]]:
    """Return a call of the model with the weights of the file."""
    with np.load(path, allow_pickle=False) as file:
        state = {name: torch.from_numpy(file[name]) for name in file}
    return lambda inputs: [torch.func.functional_call(program.model, state, inputs)]


NPZ = Format("model.npz", write, read)
