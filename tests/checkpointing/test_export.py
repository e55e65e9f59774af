"""Every export gives the trained model's outputs, or says that it does not."""

import errno
import importlib.util
import math
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from mltrainer.checkpointing import export as module
from mltrainer.checkpointing.export import FORMATS, ONNX_PACKAGES, Inputs, Program, compare, export, units_of
from mltrainer.configs.templates import QUANTIZED
from mltrainer.errors import InputError, MachineError
from tests.toys import Wired

X = torch.randn(20, 6, generator=torch.Generator().manual_seed(1))
HAS_ONNX = all(importlib.util.find_spec(name) for name in ONNX_PACKAGES)
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="needs the extra mltrainer[onnx]")
EVERY = [pytest.param(name, marks=needs_onnx) if name == "onnx" else name for name in FORMATS if name not in QUANTIZED]
LIGHT = ["safetensors", "torch_export", "torchscript"]


def export_one(model: nn.Module, name: str, folder: Path, x: Inputs = (X,), tolerance: float = 1e-4) -> dict[str, Any]:
    return export(model, tuple(part[:3] for part in x), [name], folder, tolerance, x)[0]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.slow
def test_each_format_agrees_in_batches_of_one_and_many(name, model, tmp_path):
    row = export_one(model.train(), name, tmp_path)
    assert (row.state, row.agrees, row.reason) == ("written", True, None)
    assert row.relative_difference < 1e-5
    assert (row.samples, row.batch_sizes) == (20, [1, 7, 20])
    assert [path.name for path in tmp_path.iterdir()] == [row.file]


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)
        self.layer.weight = nn.Parameter(self.layer.weight.detach())

    def forward(self, *inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x, y = inputs
        return self.layer(x), {"sum": (x + y).sum(1)}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_several_inputs_and_outputs_are_compared(name, tmp_path):
    row = export_one(TwoInputs(), name, tmp_path, (X, 2 * X))
    assert (row.state, row.agrees) == ("written", True)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_outputs_by_name_are_compared(name, tmp_path):
    named = Wired(lambda model, x: {"logits": model.layer(x), "aux": x.sum(1)}, layer=nn.Linear(6, 2))  # not in order
    row = export_one(named, name, tmp_path)
    assert (row.state, row.agrees) == ("written", True)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.slow
def test_a_model_with_shared_weights_agrees_and_goes_on_sharing_them(name, tmp_path):
    first, last = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
    last.weight = first.weight
    tied = Wired(lambda model, x: model.last(model.again(model.first(x))), first=first, last=last, again=first)
    row = export_one(tied, name, tmp_path)
    assert (row.state, row.agrees, row.reason) == ("written", True, None)
    assert tied.last.weight is tied.first.weight


def test_one_example_is_enough(model, tmp_path):
    rows = export(model, (X[:1],), LIGHT, tmp_path, 1e-4, (X[:1],))
    assert [row.agrees for row in rows] == [True] * 3


def test_the_weights_file_holds_the_state_dict(model, tmp_path):
    export_one(model, "safetensors", tmp_path)
    found = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert set(found) == set(model.state_dict())
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", [n for n in EVERY if n != "torchscript"])  # which numbers its classes within a process
@pytest.mark.slow
def test_exports_are_the_same_bytes_again_and_hold_no_path_and_no_data(name, model, tmp_path):
    for folder in ("a", "b"):
        export_one(model, name, tmp_path / folder)
    file = FORMATS[name].file
    data = (tmp_path / "a" / file).read_bytes()
    assert data == (tmp_path / "b" / file).read_bytes()
    assert str(Path(torch.__file__).parent).encode() not in data
    assert X[0].numpy().tobytes() not in data


# --- disagreement -------------------------------------------------------------------------------


def broken(name: str, change: Callable[[nn.Module], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an exporter write something else than the trained model."""
    kind = FORMATS[name]

    def write(program: Program, path: Path) -> None:
        other = nn.Sequential(*[type_of(layer) for layer in program.model])
        other.load_state_dict(program.model.state_dict())
        other.eval()
        change(other)
        kind.write(Program(other, program.example), path)

    def type_of(layer: nn.Module) -> nn.Module:
        if isinstance(layer, nn.Linear):
            return nn.Linear(layer.in_features, layer.out_features)
        return nn.BatchNorm1d(8) if isinstance(layer, nn.BatchNorm1d) else layer

    monkeypatch.setitem(FORMATS, name, module.Format(kind.file, write, kind.open))


def shift(model: nn.Module) -> None:
    with torch.no_grad():
        model[-1].bias += 0.01  # type: ignore[index, operator]


def poison(model: nn.Module) -> None:
    with torch.no_grad():
        model[-1].bias[0] = math.nan  # type: ignore[index, operator]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_an_export_that_differs_is_reported(name, model, tmp_path, monkeypatch):
    broken(name, shift, monkeypatch)
    row = export_one(model, name, tmp_path)
    assert row.agrees is False
    assert row.max_difference == pytest.approx(0.01, rel=0.01)
    assert "is not within 0.0001" in row.reason


@pytest.mark.parametrize("name", LIGHT)
def test_nan_never_agrees(name, model, tmp_path, monkeypatch):
    broken(name, poison, monkeypatch)
    row = export_one(model, name, tmp_path, tolerance=math.inf)
    assert row.agrees is False
    assert row.max_difference == "nan"


def test_a_trained_model_that_answers_nan_agrees_with_nothing(model, tmp_path):
    poison(model)
    assert [row.agrees for row in export(model, (X,), LIGHT, tmp_path, 1e-4, (X,))] == [False] * 3


@pytest.mark.parametrize(
    ("left", "right", "difference", "agrees"),
    [
        ([1.0, -200.0], [1.01, -200.0], 0.01, True),
        ([1.0, -2.0], [1.01, -2.0], 0.01, False),
        ([0.0], [0.0], 0.0, True),
        ([0.0], [1e-3], 1e-3, False),
        ([math.inf, 1.0], [math.inf, 1.0], 0.0, True),
        ([math.inf], [1.0], math.inf, False),
        ([], [], 0.0, True),
    ],
)
def test_differences_count_relative_to_the_largest_output(left, right, difference, agrees):
    row = compare([[torch.tensor(left)]], [[torch.tensor(right)]], 1e-4)
    assert (row["max_difference"], row["agrees"]) == (pytest.approx(difference, rel=1e-4), agrees)


def test_of_several_targets_a_large_one_does_not_hide_what_a_small_one_lost():
    units = units_of({"output": "targets", "targets": [{"classes": None}, {"classes": ["a", "b"]}]})
    expected, found = torch.tensor([[1e5, 1.0, -1.0], [2e5, 2.0, -2.0]]), torch.tensor([[1e5, 1.0, -1.0], [2e5, 1.0, -2.0]])
    assert compare([[expected]], [[found]], 1e-4)["agrees"]
    row = compare([[expected]], [[found]], 1e-4, units)
    assert (row["agrees"], row["relative_difference"], row["scale"]) == (False, 0.5, 2.0)
    assert not compare([[expected]], [[torch.where(found == 2e5, torch.nan, found)]], 1e-4, units)["agrees"]
    assert units_of({"output": "logits", "classes": ["a", "b"]}) == []


def test_outputs_of_another_shape_do_not_agree():
    row = compare([[torch.ones(3, 2)]], [[torch.ones(2, 3)]], 1.0)
    assert row["agrees"] is False
    assert "[3, 2]" in row["reason"]


# --- what cannot be exported --------------------------------------------------------------------


FIXED_BATCH = Wired(lambda _, x: x.reshape(int(x.shape[0]), 6) * (2.0 if x.shape[0] == 3 else 1.0))


DEPENDS_ON_VALUES = Wired(lambda _, x: x if x.sum() > 0 else -x)


@pytest.mark.parametrize("model", [FIXED_BATCH, DEPENDS_ON_VALUES], ids=["batch size", "values"])
@pytest.mark.parametrize("name", ["torch_export", pytest.param("onnx", marks=needs_onnx)])
def test_a_model_that_cannot_be_exported_is_a_row_with_the_reason(model, name, tmp_path):
    row = export_one(model, name, tmp_path)
    assert (row.state, row.agrees) == ("failed", None)
    assert len(row.reason) > 20
    assert list(tmp_path.iterdir()) == []


def test_a_branch_that_tracing_froze_is_found_by_the_comparison(tmp_path):
    row = export_one(FIXED_BATCH, "torchscript", tmp_path)
    assert row.agrees is not True


def test_without_its_packages_onnx_is_not_available(model, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else object())
    row = export_one(model, "onnx", tmp_path)
    assert row.state == "not_available"
    assert row.reason == 'onnxruntime is not installed: pip install "mltrainer[onnx]"'


def test_what_an_earlier_export_left_is_gone_when_a_format_fails(tmp_path):
    (tmp_path / "model.pt2").write_bytes(b"old")
    (tmp_path / "model.pt2.notes").write_bytes(b"a person's")
    export_one(DEPENDS_ON_VALUES, "torch_export", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2.notes"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space"),
        (RuntimeError("write: No space left on device (os error 28)"), "No space"),
        (safetensors.SafetensorError("I/O error: Permission denied (os error 13)"), "Permission denied"),
        (RuntimeError("open file failed with strerror: Input/output error"), "Input/output error"),
        (FileNotFoundError("No such file or directory: model.pt2"), "No such file or directory: model.pt2"),
    ],
)
def test_a_failing_disk_ends_the_export_and_leaves_the_old_files(error, said, model, tmp_path, monkeypatch):
    def write(_program: Program, path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    (tmp_path / "model.pt2").write_bytes(b"old")
    monkeypatch.setitem(FORMATS, "torch_export", module.Format("model.pt2", write, FORMATS["torch_export"].open))
    with pytest.raises(MachineError, match=said):
        export_one(model, "torch_export", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model.pt2": b"old"}


def test_a_program_that_an_exporter_lacks_fails_its_format_alone(model, tmp_path, monkeypatch):
    def write(_program: Program, path: Path) -> None:
        path.write_bytes(b"half")
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "gcc")

    monkeypatch.setitem(FORMATS, "torch_export", module.Format("model.pt2", write, FORMATS["torch_export"].open))
    row = export_one(model, "torch_export", tmp_path)
    assert (row.state, "gcc" in str(row.reason)) == ("failed", True)


def test_the_reason_of_a_failed_format_is_the_first_cause_without_colors(model, tmp_path, monkeypatch):
    def write(_program: Program, _path: Path) -> None:
        try:
            raise RuntimeError("node meta.0.weight references nonexistent attribute 0 of meta")
        except RuntimeError as error:
            raise ValueError("Failed to decompose. \x1b[96mThis is step 2/3\x1b[0m.\nCreate an issue") from error

    monkeypatch.setitem(FORMATS, "torch_export", module.Format("model.pt2", write, FORMATS["torch_export"].open))
    row = export_one(model, "torch_export", tmp_path)
    why = "RuntimeError: node meta.0.weight references nonexistent attribute 0 of meta"
    assert row.reason == f"Failed to decompose. This is step 2/3. ({why})"


def test_a_folder_that_cannot_be_made_is_the_machines_fault(model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "mkdir", lambda *_a, **_k: (_ for _ in ()).throw(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(MachineError, match="Permission denied"):
        export_one(model, "safetensors", tmp_path / "new")


def test_the_process_keeps_its_warnings(model, tmp_path):
    export(model, (X,), LIGHT, tmp_path, 1e-4, (X,))
    with pytest.warns(UserWarning, match="still heard"):
        warnings.warn("still heard", UserWarning, stacklevel=1)
    shutil.rmtree(tmp_path)


class Draws(nn.Module):
    """A layer whose outputs are moved by a draw, as a VAE's are."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.layer, self.always = nn.Linear(6, 2), always

    def forward(self, x: Tensor) -> Tensor:
        mean: Tensor = self.layer(x)
        return mean + torch.randn_like(mean) if self.always or self.training else mean


def test_a_model_that_draws_in_evaluation_is_told_to_differ_from_itself(tmp_path):
    with pytest.raises(InputError, match=r"two passes of the model itself[^$]*draws random numbers[^$]*if self\.training"):
        export_one(Draws(always=True), "safetensors", tmp_path)
    assert export_one(Draws(always=False), "safetensors", tmp_path).agrees is True
