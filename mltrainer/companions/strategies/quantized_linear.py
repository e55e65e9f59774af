"""Linear layers whose held weights have 8 or 4 bits (QLoRA: Dettmers et al., 2023, arXiv 2305.14314).

The numbers are those of bitsandbytes, as its own layers hold them: in 4 bits NormalFloat, by blocks of 64 numbers; in 8 bits
whole steps, a 127th of the largest number of each row (LLM.int8: Dettmers et al., 2022, arXiv 2208.07339). Its layers themselves
are not used: in evaluation on some CPUs that of 4 bits computes in bfloat16, and that of 8 bits rounds its inputs, too, so that
the model that is delivered would say something else than the one that was trained.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 64  # numbers with one scale, in 4 bits; the paper's
KIND = "nf4"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class QuantizedWeight(nn.Module):
    """A weight [outputs, inputs] in few bits.

    Args:
        weight: Weight on the CPU, in fp32, bf16 or fp16.
        bits: 8 or 4.

    Attributes:
        codes: Integer codes: [outputs, inputs] in 8 bits; in 4 bits [bytes, 1] with two codes each, for whole blocks.
        scales: Scale of each row or block, in fp32.
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor, bits: int) -> None:
        super().__init__()
        self.bits, self.shape, self.dtype = bits, weight.shape, weight.dtype
        if bits == 8:
            codes, scales, _ = _kernels().int8_vectorwise_quant(weight)
        else:
            # A row for each block: the library's kernel for CPUs reads other scales where a row ends within a block.
            blocks = functional.pad(weight.flatten(), (0, -weight.numel() % BLOCK)).view(-1, BLOCK)
            codes, state = _kernels().quantize_4bit(blocks, blocksize=BLOCK, quant_type=KIND)
            scales = state.absmax
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.codes.nbytes + self.scales.nbytes

    def whole(self) -> Tensor:
        """Return the dequantized weight, in its original type."""
        if self.bits == 8:
            weight: Tensor = _kernels().int8_vectorwise_dequant(self.codes, self.scales)
            return weight.to(self.dtype)
        shape = torch.Size((len(self.scales), BLOCK))
        state = _kernels().QuantState(self.scales, shape, blocksize=BLOCK, quant_type=KIND, dtype=self.dtype)
        blocks: Tensor = _kernels().dequantize_4bit(self.codes, state)
        return blocks.flatten()[: self.shape.numel()].view(self.shape)


class QuantizedLinear(nn.Linear):
    """A linear layer with a held weight in few bits, and the bias that it had.

    Args:
        layer: Layer on the CPU.
        bits: 8 or 4.
    """

    def __init__(self, layer: nn.Linear, bits: int) -> None:
        nn.Module.__init__(self)  # Linear's own would make a weight
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.bias = layer.bias
        self.quantized = QuantizedWeight(layer.weight.detach(), bits)
        self.train(layer.training)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # dequantized at each access
        """The weight, whole."""
        return self.quantized.whole()

    def whole(self) -> nn.Linear:
        """Return a layer with the whole weight, of its own, and the same bias."""
        layer = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")  # which draws nothing
        layer.weight, layer.bias = nn.Parameter(self.weight, requires_grad=False), self.bias
        return layer.train(self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's outputs [..., outputs], as a linear layer with the whole weight does."""
        product: Any = _Product.apply
        outputs: Tensor = product(x, self.quantized, self.bias)
        return outputs


class _Product(torch.autograd.Function):
    """The product of inputs and a weight in few bits, which is dequantized for each pass: else all would be in memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: QuantizedWeight, bias: Tensor | None) -> Tensor:
        """Return the outputs [..., outputs] of inputs [..., inputs]."""
        ctx.weight = weight
        return functional.linear(x, weight.whole().to(x.dtype), None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Return the gradient of the inputs; held weights have none."""
        (gradient,) = gradients
        return gradient @ ctx.weight.whole().to(gradient.dtype), None, None


def _kernels() -> Any:
    # Not kept by a layer, which could not be copied then.
    return importlib.import_module("bitsandbytes.functional")
