"""`python -m tests.versions.hashes`: writes the requirements with hashes, at the versions of constraints.txt.

The list for the CPU leaves out PyTorch and what only its CUDA build brings: its CPU builds are in PyTorch's own index alone.
"""

from __future__ import annotations

import re
import sys

from tests.versions.resolving import ROOT, resolved

CUDA, CPU = "requirements-cuda.txt", "requirements-cpu.txt"
EXTRA = "onnx"
OF_TORCH = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
NAME = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
HEAD = "# What mltrainer[{extra}] needs, {what}, with the digests of its files: pip takes no other. Written by `make hashes`.\n"


def main() -> int:
    done = resolved("--constraints", "constraints.txt", "--extra", EXTRA, "--generate-hashes", "--no-header", "--no-annotate")
    if done.returncode:
        sys.stderr.write(done.stderr)
        return 1
    parts = re.split(r"(?m)^(?=\S)", done.stdout)
    for file, what, kept in (
        (CUDA, "with PyTorch's CUDA build", parts),
        (CPU, "beside PyTorch's CPU build", [part for part in parts if not is_of_torch(part)]),
    ):
        (ROOT / file).write_text(HEAD.format(extra=EXTRA, what=what) + "".join(kept), "utf-8")
    return 0


def is_of_torch(part: str) -> bool:
    """Return True if a requirement is PyTorch, or comes with its CUDA build alone."""
    name = NAME.match(part)
    return name is not None and OF_TORCH.fullmatch(name[1]) is not None


if __name__ == "__main__":
    sys.exit(main())
