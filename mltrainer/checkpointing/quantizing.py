"""Models in 8 bits for ONNX Runtime: only the products with weights are quantized.

The choices are those of ONNX Runtime's guide and of its `quantize_static` for CPUs; where they leave a choice, the safest on all:

- The graph is prepared by `quant_pre_process`: what can be folded is, and shapes are inferred. Shapes that torch wrote are taken
  out before: those of weights are wrong once the quantizer has transposed one. Symbolic inference is left out: ONNX infers the
  shapes of the operators that torch's exporter writes.
- Only products with weights are quantized. All else, such as a task's preprocessing, stays in fp32: a column of ten thousands and
  one of shares would have one scale in 8 bits.
- Weights are quantized by channel, activations by tensor (Krishnamoorthi, 2018, arXiv:1806.08342, section 3). Several matrices in
  one tensor, such as one for each member of an ensemble, stay in fp32: ONNX Runtime multiplies them with one scale alone.
- Activations are unsigned, weights signed and of 7 bits (`reduce_range`): a pair of products, 2 * 255 * 64, then fits the 16 bits
  in which CPUs without VNNI add it up, so that the model's answers do not depend on the CPU that it meets.
- Ranges of activations are the smallest and the largest value seen, ONNX Runtime's default: there is no setting to choose.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from mltrainer.errors import InputError
from mltrainer.leftovers import scratch

Inputs = tuple[Tensor, ...]
Call = Callable[[Inputs], list[Tensor]]

TEMPLATE = "configs/production_template.yaml"
OF_DYNAMIC = ("MatMul", "Gemm", "Attention", "LSTM")  # not Conv: ONNX Runtime advises static quantization of convolutions
OF_STATIC = ("Conv", "ConvTranspose", "MatMul", "Gemm")
WARM_UP, REPEATS, SECONDS = 3, 101, 1.0  # calls that are not timed; of those that are, the most, and for how long they may take


def write_dynamic(float_file: Path, path: Path, is_large: bool) -> None:
    """Write a model whose weights are in 8 bits; each call quantizes their inputs by the range of that call.

    Args:
        float_file: The model in fp32.
        path: The file to write.
        is_large: Whether the weights go into a file beside it.

    Raises:
        InputError: It has nothing that can be quantized.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with scratch() as folder:
        prepared = _prepared(float_file, Path(folder), OF_DYNAMIC, "onnx_int8_dynamic", is_large)
        quantize_dynamic(
            prepared,
            path,
            op_types_to_quantize=[*OF_DYNAMIC],
            nodes_to_exclude=_stacked(prepared),
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=is_large,
        )
    _refuse_unchanged(path, OF_DYNAMIC, "onnx_int8_dynamic")


def write_static(float_file: Path, path: Path, is_large: bool, batches: Sequence[Inputs]) -> None:
    """Write a model whose weights are in 8 bits, and their inputs too, in ranges measured on some rows.

    Args:
        float_file: The model in fp32.
        path: The file to write.
        is_large: Whether the weights go into a file beside it.
        batches: The rows, as the model's inputs.

    Raises:
        InputError: It has nothing that can be quantized.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    with scratch() as folder:
        prepared = _prepared(float_file, Path(folder), OF_STATIC, "onnx_int8_static", is_large)
        quantize_static(
            prepared,
            path,
            _Rows(prepared, batches),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=[*OF_STATIC],
            nodes_to_exclude=_stacked(prepared),
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            use_external_data_format=is_large,
            # What such a product gives is left in fp32: a model's last one would else answer in 256 steps.
            extra_options={"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]},
        )
    _refuse_unchanged(path, OF_STATIC, "onnx_int8_static")


def _prepared(float_file: Path, folder: Path, wanted: Sequence[str], name: str, is_large: bool) -> Path:
    """Return the file of a model that is prepared for quantization.

    Raises:
        InputError: It has none of the operators that are.
    """
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = onnx.load(float_file)
    if not {node.op_type for node in model.graph.node} & {*wanted}:
        _refuse(model, wanted, name)
    del model.graph.value_info[:]
    bare, prepared = folder / "bare.onnx", folder / "prepared.onnx"
    outside: dict[str, Any] = {"save_as_external_data": is_large, "all_tensors_to_one_file": True}
    onnx.save_model(model, bare, location="bare.data", **outside)
    quant_pre_process(bare, prepared, skip_symbolic_shape=True, external_data_location="prepared.data", **outside)
    return prepared


def _stacked(prepared: Path) -> list[str]:
    """Return the names of the products with several matrices at once."""
    import onnx

    graph = onnx.load(prepared, load_external_data=False).graph
    stacked = {tensor.name for tensor in graph.initializer if len(tensor.dims) > 2}
    return [node.name for node in graph.node if node.op_type == "MatMul" and stacked & {*node.input}]


class _Rows:
    """The rows in the form that ONNX Runtime asks for."""

    def __init__(self, prepared: Path, batches: Sequence[Inputs]) -> None:
        import onnx

        self._names = [entry.name for entry in onnx.load(prepared, load_external_data=False).graph.input]
        self._batches = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        """Return the next batch by the model's inputs; None after the last."""
        batch = next(self._batches, None)
        return None if batch is None else {name: x.numpy() for name, x in zip(self._names, batch, strict=True)}


def _refuse_unchanged(path: Path, wanted: Sequence[str], name: str) -> None:
    """Refuse a file without a weight in 8 bits, such as of a model that multiplies activations alone.

    Raises:
        InputError: It does not.
    """
    import onnx

    if not quantized_weights(path):
        _refuse(onnx.load(path, load_external_data=False), wanted, name)


def _refuse(model: Any, wanted: Sequence[str], name: str) -> None:
    operators = sorted({node.op_type for node in model.graph.node})
    other = ", or try onnx_int8_static, which quantizes Conv" if "Conv" in operators and name == "onnx_int8_dynamic" else ""
    raise InputError(
        f"nothing in this model can be quantized: it has no {', '.join(wanted)} with weights, only {', '.join(operators)}",
        hint=f"take {name} out of export.formats in {TEMPLATE}{other}",
    )


# --- figures ------------------------------------------------------------------------------------


def quantized_weights(path: Path) -> int:
    """Return the number of weights that a file holds in 8 bits, without scales and zero points."""
    from onnxruntime.quantization.quant_utils import TENSOR_NAME_QUANT_SUFFIX

    return _numbers(path, lambda tensor: tensor.name.endswith(TENSOR_NAME_QUANT_SUFFIX) and len(tensor.dims) > 1)


def float_weights(path: Path) -> int:
    """Return the number of weights that a file holds in fp32."""
    import onnx

    return _numbers(path, lambda tensor: tensor.data_type == onnx.TensorProto.FLOAT)


def _numbers(path: Path, counts: Callable[[Any], bool]) -> int:
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    return sum(math.prod(tensor.dims) for tensor in graph.initializer if counts(tensor))


def bytes_of(path: Path) -> int:
    """Return the size of a model's file and of the weights beside it."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def latencies_ms(calls: Sequence[Call], sample: Inputs) -> list[float]:
    """Return the median time of each model for a sample; the models take turns, so that all meet the same machine."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in [*calls] * WARM_UP:
        call(sample)
    end = time.perf_counter() + SECONDS
    while len(taken[0]) < REPEATS and (not taken[0] or time.perf_counter() < end):
        for times, call in zip(taken, calls, strict=True):
            begun = time.perf_counter()
            call(sample)
            times.append(1e3 * (time.perf_counter() - begun))
    return [statistics.median(times) for times in taken]
