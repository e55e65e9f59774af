"""Deployment formats of a trained model: each is written, read back from the disk, and compared with the model on real inputs."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mltrainer import plugins
from mltrainer.checkpointing import quantizing
from mltrainer.configs.templates import DYNAMIC, QUANTIZED, STATIC
from mltrainer.errors import InputError
from mltrainer.leftovers import new_folder, scratch, sweep
from mltrainer.records.common import CalibrationRows, Export, Quantized
from mltrainer.redaction import shortened
from mltrainer.workspace import machine_faults, plain, raise_machine_fault, sync

Inputs = tuple[Tensor, ...]
Call = Callable[[Inputs], list[Tensor]]

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_ONE_FILE_BYTES = 1_500_000_000  # an ONNX file holds at most 2 GB; larger weights go into a file beside it
_REASON_LENGTH = 300
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Program:
    """A trained model on the CPU in evaluation mode, with the values that the formats need.

    Args:
        model: The model.
        example: Inputs, samples first; made into at least two samples, because one would be taken for a constant.
        names: The names of the inputs; by default `input`, or `input_0` and so on.
        others: Further inputs; a dimension in which they differ from the example is free.
        quantization: The values that quantized formats need beside the model.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Inputs,
        names: Sequence[str] = (),
        others: Sequence[Inputs] = (),
        quantization: Quantization | None = None,
    ) -> None:
        self.model = model.cpu().eval()
        self.example = tuple(torch.cat([x, x])[: max(2, len(x))] for x in example)
        numbered = ["input"] if len(example) == 1 else [f"input_{n}" for n in range(len(example))]
        self.names = [*names] or numbered
        self.free = [_free(x, [other[place] for other in others]) for place, x in enumerate(example)]
        self.quantization = quantization
        self._exported: Any = None
        self._onnx: Any = None

    @property
    def exported(self) -> Any:
        """The model as a `torch.export` program with a free first dimension; made once."""
        if self._exported is None:
            batch = torch.export.Dim("batch", min=1)
            shapes: tuple[Any, ...] = tuple({0: batch, **dict.fromkeys(free, torch.export.Dim.AUTO)} for free in self.free)
            shapes = (shapes,) if _takes_any(self.model) else shapes
            self._exported = torch.export.export(self.model, self.example, dynamic_shapes=shapes)
            for node in self._exported.graph.nodes:
                node.meta.pop("stack_trace", None)  # paths of this machine's files
            self._exported.example_inputs = None  # somebody's data
        return self._exported

    @property
    def onnx(self) -> Any:
        """The model as torch's ONNX program; made once."""
        if self._onnx is None:
            self._onnx = torch.onnx.export(self.exported, dynamo=True, input_names=self.names, verbose=False)
            for graph in (self._onnx.model.graph, *(function.graph for function in self._onnx.model.functions.values())):
                for node in graph:
                    node.metadata_props.clear()  # paths of this machine's files
        return self._onnx

    @property
    def is_large(self) -> bool:
        """Whether an ONNX file cannot hold the weights."""
        return sum(t.nbytes for t in self.model.state_dict().values() if isinstance(t, Tensor)) > _ONE_FILE_BYTES


def _free(x: Tensor, others: Sequence[Tensor]) -> list[int]:
    """Return the dimensions, other than the samples', in which tensors differ."""
    return [place for place in range(1, x.dim()) if any(other.shape[place] != x.shape[place] for other in others)]


@dataclass(frozen=True)
class Quantization:
    """The values that quantized formats need beside the model.

    Attributes:
        calibration: Returns training rows as the model's inputs, in batches, and the record of which they are.
        measure: Returns what a call in place of the model gives on validation, as the record's entries; empty where nothing is
            measured, as of an untrained model.
    """

    calibration: Callable[[], tuple[list[Inputs], CalibrationRows]]
    measure: Callable[[Call], dict[str, Any]]


def _takes_any(model: nn.Module) -> bool:
    """Return True if a model's forward takes `*args`, for which `torch.export` wants one entry that holds them all."""
    return bool(model.forward.__code__.co_flags & 0x04) if hasattr(model.forward, "__code__") else False


# --- the formats --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """The functions that write one format and read it back.

    Attributes:
        file: The file's name.
        write: Writes the model to a path.
        open: The function that reads it back; its return value runs the model.
        needs: Packages without which the format is not available.
        extra: The pip requirement that installs them.
    """

    file: str
    write: Callable[[Program, Path], None]
    open: Callable[[Program, Path], Call]
    needs: tuple[str, ...] = ()
    extra: str = ""


def _write_safetensors(program: Program, path: Path) -> None:
    # Cloned: safetensors refuses to write two names of the same memory, such as tied weights.
    state = {k: v.detach().clone().contiguous() for k, v in program.model.state_dict().items() if isinstance(v, Tensor)}
    safetensors.torch.save_file(state, path, metadata={"format": "pt"})


def _open_safetensors(program: Program, path: Path) -> Call:
    """Run the trained model's code on the file's weights, which it holds only meanwhile."""
    model, state = program.model, safetensors.torch.load_file(path)

    def run(inputs: Inputs) -> list[Tensor]:
        own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        try:
            model.load_state_dict(state, strict=True)  # not `functional_call`, which takes no two names of one tensor
            return leaves(model(*inputs))
        finally:
            model.load_state_dict(own)

    return run


def _write_torch_export(program: Program, path: Path) -> None:
    torch.export.save(program.exported, path)


def _open_torch_export(_program: Program, path: Path) -> Call:
    module = torch.export.load(path).module()
    return lambda inputs: leaves(module(*inputs))


def _write_torchscript(program: Program, path: Path) -> None:
    # Without the tracer's own check: the file itself is compared below, on real samples and with other batch sizes.
    torch.jit.save(torch.jit.trace(program.model, program.example, strict=False, check_trace=False), str(path))


def _open_torchscript(_program: Program, path: Path) -> Call:
    module = torch.jit.load(str(path))
    return lambda inputs: leaves(module(*inputs))


def _write_onnx(program: Program, path: Path) -> None:
    program.onnx.save(path, external_data=program.is_large)


def _open_onnx(_program: Program, path: Path) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def run(inputs: Inputs) -> list[Tensor]:
        outputs = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
        return [torch.from_numpy(output) for output in outputs]

    return run


def _write_dynamic(program: Program, path: Path) -> None:
    with _float_file(program) as file:
        quantizing.write_dynamic(file, path, program.is_large)


def _write_static(program: Program, path: Path) -> None:
    assert program.quantization is not None
    batches, _ = program.quantization.calibration()
    with _float_file(program) as file:
        quantizing.write_static(file, path, program.is_large, batches)


@contextmanager
def _float_file(program: Program) -> Iterator[Path]:
    """Write the model's ONNX file in fp32 for the length of a block."""
    with scratch() as folder:
        path = Path(folder) / FORMATS["onnx"].file
        _write_onnx(program, path)
        yield path


FORMATS = {
    "safetensors": Format("model.safetensors", _write_safetensors, _open_safetensors),
    "onnx": Format("model.onnx", _write_onnx, _open_onnx, ONNX_PACKAGES, "mltrainer[onnx]"),
    "torch_export": Format("model.pt2", _write_torch_export, _open_torch_export),
    "torchscript": Format("model.pt", _write_torchscript, _open_torchscript),
    DYNAMIC: Format("model_int8_dynamic.onnx", _write_dynamic, _open_onnx, ONNX_PACKAGES, "mltrainer[onnx]"),
    STATIC: Format("model_int8_static.onnx", _write_static, _open_onnx, ONNX_PACKAGES, "mltrainer[onnx]"),
}


def format_of(name: str) -> Format:
    """Return a format by its name: a built-in one, else a plug-in's, a `Format` in the entry points `mltrainer.exporters`.

    Raises:
        InputError: There is none, or it would write a built-in one's file.
    """
    if name in FORMATS:
        return FORMATS[name]
    plugin = plugins.load("exporters", name, "--format")
    files = {known.file for known in FORMATS.values()}
    if not isinstance(plugin, Format) or Path(plugin.file).name != plugin.file or plugin.file in files:
        message = f"{plugins.find('exporters', name)} is no mltrainer.checkpointing.export.Format with a new file name"
        raise InputError(message, where="--format", hint="install a version of the plug-in that provides one")
    return plugin


# --- exporting ----------------------------------------------------------------------------------


def export(
    model: nn.Module,
    example_inputs: Inputs,
    formats: Sequence[str],
    folder: Path,
    tolerance: float,
    real_inputs: Inputs,
    names: Sequence[str] = (),
    others: Sequence[Inputs] = (),
    quantization: Quantization | None = None,
    units: Sequence[int] = (),
) -> list[Export]:
    """Write a model in several formats; each is read back from the disk and compared with the model.

    Args:
        model: The trained model; it is moved to the CPU and put in evaluation mode.
        example_inputs: The inputs that the model is called with, samples first.
        formats: Names of built-in or installed formats.
        folder: The folder of the exported files; older files of these formats in it are replaced or removed.
        tolerance: Largest difference of an output, relative to the largest output.
        real_inputs: Real samples on which they are compared, in batches of several sizes.
        names: The names of the inputs, in formats that have names.
        others: Further batches, such as of shorter texts; they are compared too, and where they differ in shape, the model
            takes any.
        quantization: The values that quantized formats need.
        units: The number of outputs of each of several targets side by side, which are compared separately; empty: one target.

    Returns:
        A row per format; `agrees` is None unless it was written, and NaN never agrees. A quantized format agrees where its metric
        lost no more than is allowed, whatever the difference.

    Raises:
        InputError: Two passes of the model itself differ.
        MachineError: There is no space or no permission, or the disk failed.
    """
    further = [_on_cpu(inputs) for inputs in others]
    program = Program(model, _on_cpu(example_inputs), names, further, quantization)
    batches = [*_batches(_on_cpu(real_inputs)), *further]
    with machine_faults(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        with new_folder(folder) as temporary:
            with torch.no_grad(), _quiet():
                expected = [leaves(program.model(*batch)) for batch in batches]
                _refuse_draws(expected[0], leaves(program.model(*batches[0])), tolerance)
                rows = [_export_one(program, name, temporary, batches, expected, tolerance, units) for name in formats]
            _put_in_place(temporary, folder, formats)
    return rows


def _refuse_draws(one: list[Tensor], other: list[Tensor], tolerance: float) -> None:
    """Refuse a model whose second pass over the same inputs differs: no file could agree with it.

    Raises:
        InputError: The two passes differ; the message has the difference.
    """
    relative = compare([one], [other], tolerance)["relative_difference"]
    if relative > max(tolerance, 0.0):  # NaN is no difference, and never agrees
        raise InputError(
            f"two passes of the model itself over the same inputs differ by {relative:.3g}, relative to the largest output: "
            "in evaluation mode it draws random numbers, or changes with each call",
            where="model",
            hint="let its forward draw in training alone and give the mean otherwise, such as "
            "z = mean + std * torch.randn_like(std) if self.training else mean",
        )


def _on_cpu(inputs: Inputs) -> Inputs:
    return tuple(x.cpu() for x in inputs)


def _export_one(
    program: Program,
    name: str,
    folder: Path,
    batches: list[Inputs],
    expected: list[list[Tensor]],
    tolerance: float,
    units: Sequence[int],
) -> Export:
    kind = format_of(name)
    row = Export(format=name, file=kind.file, state="written", reason=None, agrees=None)
    absent = [package for package in kind.needs if importlib.util.find_spec(package) is None]
    if absent:
        reason = f'{", ".join(absent)} is not installed: pip install "{kind.extra}"'
        return row.model_copy(update={"state": "not_available", "reason": reason})
    path = folder / kind.file
    try:
        kind.write(program, path)
        sync(path)
        # Read back from the file, not from the exporter's memory: the delivered file is compared.
        call = kind.open(program, path)
        outputs = [call(batch) for batch in batches]
        compared = compare(expected, outputs, math.inf if name in QUANTIZED else tolerance, units)
        if name in QUANTIZED:
            compared |= _judged(program, name, path, call, batches, compared)
    except Exception as error:  # whatever the exporter or the runtime raises is this format's result, not the tool's end
        raise_machine_fault(error, path)
        # Half a file, and the weights beside it, would else be moved into place with the good ones.
        for file in folder.glob(f"{kind.file}*"):
            file.unlink()
        return row.model_copy(update={"state": "failed", "reason": _short(error)})
    sizes = [len(batch[0]) for batch in batches]
    return row.model_copy(update={**plain(compared), "samples": max(sizes), "batch_sizes": sizes})


def _judged(
    program: Program, name: str, path: Path, call: Call, batches: list[Inputs], compared: dict[str, Any]
) -> dict[str, Any]:
    """Return the part of a quantized format's row that replaces a tolerance: its figures, and the verdict by the metric."""
    assert program.quantization is not None
    with _float_file(program) as original:
        taken = quantizing.latencies_ms([call, _open_onnx(program, original)], batches[0])
        figures: dict[str, Any] = {
            "share": quantizing.quantized_weights(path) / quantizing.float_weights(original),
            "size": quantizing.bytes_of(path),
            "original_size": quantizing.bytes_of(original),
            **dict(zip(("latency_ms", "original_latency_ms"), taken, strict=True)),
        }
    if name == STATIC:
        figures["calibration"] = program.quantization.calibration()[1]
    measured = program.quantization.measure(call)
    quantized = Quantized(**figures, **plain(measured))
    reason = compared["reason"] or _lost(measured)
    if not math.isfinite(compared["max_difference"]):
        reason = f"the largest difference is {compared['max_difference']}"
    return {"tolerance": None, "agrees": reason is None, "reason": reason, "quantized": quantized}


def _lost(measured: dict[str, Any]) -> str | None:
    """Return the reason against a model that lost more of its metric than is allowed; None otherwise."""
    if not measured or measured["loss"] <= measured["allowed"]:
        return None  # NaN is not within anything
    before, after = measured["original"], measured["value"]
    lost = f"by {measured['loss']:.3g} of it, and {measured['allowed']:.3g} is allowed"
    return f"{measured['metric']} on validation went from {before:.5g} to {after:.5g}, {lost}"


def units_of(inference: Mapping[str, Any]) -> list[int]:
    """Return each target's number of outputs, from the task's `inference()`; empty for one target."""
    targets = inference.get("targets", []) if inference.get("output") == "targets" else []
    return [len(target.get("classes") or [None]) for target in targets]


def compare(
    expected: list[list[Tensor]], found: list[list[Tensor]], tolerance: float, units: Sequence[int] = ()
) -> dict[str, Any]:
    """Compare outputs, batch by batch; of several targets, return the one that differs most, so that a price cannot hide a class.

    Args:
        expected: The model's.
        found: Those to be compared.
        tolerance: The largest relative difference that agrees.
        units: Each target's number of outputs, as in `export`.

    Returns:
        max_difference, scale, relative_difference (the quotient; the difference itself where all outputs are 0), tolerance,
        agrees, and reason where they do not agree.
    """
    left = [x for batch in expected for x in batch]
    right = [x for batch in found for x in batch]
    if [x.shape for x in left] != [x.shape for x in right]:
        shapes = f"expected outputs of shapes {[list(x.shape) for x in left]}, found {[list(x.shape) for x in right]}"
        nothing = dict.fromkeys(("max_difference", "scale", "relative_difference"), float("nan"))
        return {**nothing, "tolerance": tolerance, "agrees": False, "reason": shapes[:_REASON_LENGTH]}
    rows = [_relative(ours, theirs) for ours, theirs in zip(_by_target(left, units), _by_target(right, units), strict=True)]
    relative, difference, scale = max(rows, key=lambda row: math.inf if math.isnan(row[0]) else row[0])
    agrees = relative <= tolerance  # False for NaN
    reason = None if agrees else f"the relative difference {relative:.3g} is not within {tolerance:.3g}"
    values = {"max_difference": difference, "scale": scale, "relative_difference": relative}
    return {**values, "tolerance": tolerance, "agrees": agrees, "reason": reason}


def _by_target(outputs: list[Tensor], units: Sequence[int]) -> list[list[Tensor]]:
    """Return the outputs of each target; all together if there is one target."""
    if not units:
        return [outputs]
    return [list(parts) for parts in zip(*(x.split(list(units), -1) for x in outputs), strict=True)]


def _relative(left: list[Tensor], right: list[Tensor]) -> tuple[float, float, float]:
    """Return the largest difference relative to the largest output, that difference, and that output."""
    difference = _largest([_differences(a, b) for a, b in zip(left, right, strict=True)])
    scale = _largest([x.double().abs() for x in left])
    return difference / scale if scale > 0 else difference, difference, scale


def _differences(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.double(), b.double()
    return torch.where(a == b, 0.0, (a - b).abs())  # equal infinities do not differ; NaN differs from everything


def _largest(parts: list[Tensor]) -> float:
    """Return the largest element; NaN if any element is NaN."""
    flat = torch.cat([part.reshape(-1) for part in parts]) if parts else torch.zeros(0)
    return float(flat.max()) if flat.numel() else 0.0


def _batches(inputs: Inputs) -> list[Inputs]:
    """Return the samples in batches of one, of a few, and all together: this shows a batch size that became a constant."""
    count = len(inputs[0])
    return [tuple(x[:size] for x in inputs) for size in sorted({1, min(7, count), count})]


def leaves(outputs: Any) -> list[Tensor]:
    """Return the tensors of a model's outputs."""
    return [leaf.detach() for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _put_in_place(temporary: Path, folder: Path, formats: Sequence[str]) -> None:
    """Move the new files to the folder; an earlier export's files of these formats are removed."""
    for name in formats:
        file = format_of(name).file
        for stale in folder.glob(f"{file}*"):
            if not (temporary / stale.name).exists() and stale.name in (file, f"{file}.data"):
                stale.unlink()
    mode = temporary.stat().st_mode & 0o666  # as the umask allows: some libraries make their files private
    for made in sorted(temporary.iterdir()):
        made.chmod(mode)
        os.replace(made, folder / made.name)


def _short(error: Exception) -> str:
    if isinstance(error, InputError):
        return shortened("; ".join(filter(None, [error.message, error.hint])), 2 * _REASON_LENGTH)
    first: BaseException = error
    while first.__cause__ is not None:  # ONNX's exporter says which step failed, and the error that it came from why
        first = first.__cause__
    if first is not error:
        return shortened(f"{_lines(error)[0]} ({type(first).__name__}: {' '.join(_lines(first)[:2])})", _REASON_LENGTH)
    lines = _lines(error)
    shown = lines[:2] + lines[2:][-1:]  # torch.export says why in the second line, TorchScript in the last
    return shortened(f"{type(error).__name__}: {' '.join(shown)}", _REASON_LENGTH)


def _lines(error: BaseException) -> list[str]:
    """Return the lines of an error's message, without the codes that color it; its type where it has none."""
    text = _COLOR.sub("", str(error))
    return [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' warnings: TorchScript's deprecation is known, and the comparison shows any fault."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
