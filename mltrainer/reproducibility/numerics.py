"""The numerics class: the machine's influence on bits beyond versions, measured by a short fixed computation.

Thread counts, the CPU's instruction set, oneDNN's and MKL's dispatch, TF32 and the GPU model each change
the result of some operation by rounding; the digest of a few steps of fixed work distinguishes them.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import torch
from torch import nn

_BUILT_WITH = {
    "MKL": r"Math Kernel Library Version (\S+)",
    "oneDNN": r"MKL-DNN v(\S+)",
    "OpenMP": r"OpenMP (\d+)",
    "BLAS": r"BLAS_INFO=(\w+)",
}
_OPENMP = re.compile(r"/(lib(?:gomp|iomp5|omp)[^/]*\.so\S*)")
_SIZE = 96  # large enough that a matrix product is split between threads


def numerics_class(device: str, *compilers: str) -> str:
    """Return 16 hex digits that two processes share when they compute the same bits.

    Args:
        device: "cpu" or "cuda".
        compilers: Versions of the compilers of kernels on this machine.
    """
    sha = hashlib.sha256("".join(compilers).encode())
    # The training's draws must not depend on this measurement.
    state = torch.default_generator.get_state()
    try:
        torch.default_generator.manual_seed(20240229)
        for tensor in _computations(torch.device(device)):
            sha.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    finally:
        torch.default_generator.set_state(state)
    return sha.hexdigest()[:16]


def libraries() -> dict[str, str]:
    """Return the native libraries that compute: those PyTorch was built with, CUDA's, and the OpenMP runtimes that are loaded.

    More than one OpenMP runtime in a process is a known source of other thread counts, and of deadlocks.
    """
    text = torch.__config__.show()
    versions = {name: match[1] if (match := re.search(pattern, text)) else "none" for name, pattern in _BUILT_WITH.items()}
    cudnn = torch.backends.cudnn.version()
    return {
        "PyTorch": str(torch.__version__),
        **versions,
        "CUDA": torch.version.cuda or "none",
        "cuDNN": str(cudnn) if cudnn else "none",
        "OpenMP runtimes loaded": ", ".join(_loaded_openmp()) or "not known",
    }


def _loaded_openmp() -> list[str]:
    try:
        maps = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:  # not Linux
        return []
    return sorted(set(_OPENMP.findall(maps)))


def _computations(device: torch.device) -> list[torch.Tensor]:
    """Return gradients and outputs of the operations whose kernels differ between machines."""
    # Drawn on the CPU for every device: a GPU's generator gives other numbers, and only the arithmetic should differ.
    x = torch.randn(_SIZE, _SIZE).to(device).requires_grad_()
    image = torch.randn(4, 3, 16, 16).to(device)
    conv = nn.Conv2d(3, 8, 3).to(device)
    lstm = nn.LSTM(_SIZE, 16, batch_first=True).to(device)
    wide = torch.randn(64, 4099).to(device)
    outputs = [
        x @ x,
        torch.softmax(x, dim=1),
        nn.functional.layer_norm(x, (_SIZE,)),
        torch.exp(x).sum(),
        wide.sum(),
        wide @ wide.T,
        conv(image),
        lstm(x.unsqueeze(0))[0],
        nn.functional.scaled_dot_product_attention(x.view(1, 4, 24, _SIZE), x.view(1, 4, 24, _SIZE), x.view(1, 4, 24, _SIZE)),
    ]
    torch.stack([output.float().mean() for output in outputs]).sum().backward()
    gradients = [x.grad, conv.weight.grad, *(p.grad for p in lstm.parameters())]
    return outputs + [gradient for gradient in gradients if gradient is not None]
