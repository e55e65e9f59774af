"""`python -P -m mltrainer.tools.gpu_trial [DEVICE]`: some seconds of work on a GPU, for `mltrainer doctor --gpu`.

It prints one JSON object: the name of each work, and whether two computations of it had the same bits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

SIZE = 512


def _product(device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    numbers = torch.linspace(-1, 1, SIZE * SIZE, device=device, dtype=dtype).view(SIZE, SIZE)
    return numbers @ numbers.sin()


def _convolution(device: str) -> Tensor:
    """Return the gradient of a convolution's weights, whose sums many kernels add in a random order."""
    images = torch.linspace(-1, 1, 8 * 3 * 64 * 64, device=device).view(8, 3, 64, 64)
    weight = torch.linspace(-1, 1, 16 * 3 * 9, device=device).view(16, 3, 3, 3).requires_grad_()
    nn.functional.conv2d(images, weight).square().sum().backward()
    assert weight.grad is not None
    return weight.grad


WORKS: dict[str, Callable[[str], Tensor]] = {
    "a product of matrices": _product,
    "a product in bf16": lambda device: _product(device, torch.bfloat16),
    "a convolution's gradient": _convolution,
}


def main() -> None:
    """Print which works have the same bits twice; an empty object where PyTorch sees no GPU."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    torch.use_deterministic_algorithms(True)
    is_there = device != "cuda" or torch.cuda.is_available()
    found = {name: torch.equal(work(device), work(device)) for name, work in WORKS.items()} if is_there else {}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
