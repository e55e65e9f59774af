"""A deployed model answers from raw rows, in a folder of its own, without mltrainer."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mltrainer.checkpointing import inference_script as script
from mltrainer.checkpointing.deployment import requirements, write_checksums, write_deployment
from mltrainer.checkpointing.export import export
from mltrainer.configs import yaml
from mltrainer.configs.project import Tokens
from mltrainer.records.common import Export
from mltrainer.records.partial import partial
from mltrainer.tasks.text import tokenizing
from tests.toys import Wired

COLUMNS = [{"name": "age", "kind": "number"}, {"name": "colour", "kind": "category", "categories": ["blue", "red"]}]
TABLE = {
    "input": {"name": "table", "dtype": "float32", "shape": [2]},
    "columns": COLUMNS,
    "missing": ["", "NA"],
    "output": "logits",
    "classes": ["no", "{{7*7}}"],
}
HAS_ONNX = importlib.util.find_spec("onnxruntime") is not None and importlib.util.find_spec("onnxscript") is not None


class Rule(nn.Module):
    """Answers the second class with logit age, and 100 for an unknown category."""

    def forward(self, x: Tensor) -> Tensor:
        age = torch.where(x[:, :1].isnan(), 0.0, x[:, :1])
        return torch.cat([torch.zeros_like(age), torch.where(x[:, 1:] < 0, 100.0, age)], dim=1)


def deploy(folder: Path, formats: list[str], spec: dict[str, Any] = TABLE, model: nn.Module | None = None) -> Path:
    x = torch.tensor([[1.0, 0.0], [float("nan"), 1.0], [2.0, -1.0]])
    rows = export(model or Rule(), (x,), formats, folder, 1e-4, (x,))
    assert all(row.agrees for row in rows), rows
    write_deployment(folder, rows, spec, {"seed": 42, "optimizer": {"lr": 1e-3}}, {"run": "a1b2c3d4e5f6"})
    return folder


def predict(folder: Path, source: Path) -> list[dict[str, Any]]:
    """Run the folder's script in a process that cannot import mltrainer."""
    command = [sys.executable, "-I", "-c", BLOCK, str(folder / "inference.py"), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


BLOCK = (
    "import sys, runpy; sys.modules['mltrainer'] = None; sys.argv = sys.argv[1:];runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deploy(tmp_path_factory.mktemp("model"), ["torch_export"])


# --- the folder ---------------------------------------------------------------------------------


def test_the_checksums_hold_for_every_file(deployed):
    result = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=deployed, capture_output=True, text=True, check=True
    )
    listed = {line.partition(":")[0] for line in result.stdout.splitlines()}
    assert listed == {path.name for path in deployed.iterdir()} - {"SHA256SUMS"}
    assert listed >= {"inference.py", "inference.json", "requirements.txt", "config.yaml", "manifest.json", "model.pt2"}


def test_a_changed_file_fails_the_checksums(tmp_path):
    (tmp_path / "a").write_text("1")
    write_checksums(tmp_path, leave_out=["b"])
    (tmp_path / "a").write_text("2")
    assert subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_the_same_model_gives_the_same_folder_again(deployed, tmp_path):
    again = deploy(tmp_path, ["torch_export"])
    assert (again / "SHA256SUMS").read_bytes() == (deployed / "SHA256SUMS").read_bytes()


def test_config_and_manifest_say_where_the_model_came_from(deployed):
    assert yaml.parse((deployed / "config.yaml").read_bytes(), "config.yaml").value == {"seed": 42, "optimizer": {"lr": 0.001}}
    manifest = json.loads((deployed / "manifest.json").read_bytes())
    assert manifest["run"] == "a1b2c3d4e5f6"
    assert [row["file"] for row in manifest["exports"]] == ["model.pt2"]


def test_no_value_of_the_task_becomes_code(deployed):
    assert "{{7*7}}" in (deployed / "inference.json").read_text()
    assert (deployed / "inference.py").read_bytes() == Path(str(script.__file__)).read_bytes()


@pytest.mark.parametrize(
    ("formats", "wanted"),
    [
        (["onnx"], {"numpy", "onnxruntime"}),
        (["torch_export"], {"numpy", "torch"}),
        (["onnx", "torch_export"], {"numpy", "onnxruntime"}),
    ],
)
def test_requirements_name_what_the_script_needs(formats, wanted):
    text = requirements([partial(Export, {"format": name, "state": "written"}) for name in formats])
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert {line.partition("==")[0] for line in lines} == wanted
    assert "+cpu" not in text


# --- predictions --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_table_is_predicted_from_raw_rows(deployed, tmp_path):
    (tmp_path / "rows.csv").write_text("extra;colour;age\nx;red;-3\nx;green;0\nx; blue ;NA\n")
    found = predict(deployed, tmp_path / "rows.csv")
    assert [row["prediction"] for row in found] == ["no", "{{7*7}}", "no"]
    assert found[0]["probabilities"]["no"] == pytest.approx(1 / (1 + np.exp(-3)))
    assert found[2]["probabilities"] == {"no": 0.5, "{{7*7}}": 0.5}


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ONNX, reason="needs the extra mltrainer[onnx]")
def test_onnx_needs_no_torch(tmp_path):
    folder = deploy(tmp_path / "model", ["onnx"])
    (tmp_path / "rows.json").write_text('{"age": 2, "colour": "red"}')
    code = "import sys; sys.modules['torch'] = None; " + BLOCK
    command = [sys.executable, "-I", "-c", code, str(folder / "inference.py"), str(tmp_path / "rows.json")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["prediction"] == "{{7*7}}"


def answer(
    folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Run the script in this process, as if it lay in the folder."""
    monkeypatch.setattr(script, "__file__", str(folder / "inference.py"))
    code = script.main([str(source)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_regression_prints_numbers(tmp_path, monkeypatch, capsys):
    folder = deploy(
        tmp_path / "model",
        ["torch_export"],
        {**TABLE, "output": "value", "classes": None},
        Wired(lambda _, x: 2 * torch.where(x.isnan(), 0.0, x)[:, 0]),
    )
    (tmp_path / "rows.jsonl").write_text('{"age": 1.5, "colour": true}\n\n{"age": "-2"}\n')
    code, out, _ = answer(folder, tmp_path / "rows.jsonl", monkeypatch, capsys)
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [{"prediction": 3.0}, {"prediction": -4.0}]


@pytest.mark.parametrize("shape", [(1, 2), (1, 1, 2), (3, 1, 1, 2), (3, 1, 2)])
def test_images_may_lack_axes(shape, tmp_path):
    spec = {"input": {"name": "images", "shape": [1, 1, 2], "scale": 0.5}}
    np.save(tmp_path / "x.npy", np.full(shape, 4, dtype=np.uint8))
    found = script.read_input(tmp_path / "x.npy", spec)
    assert found.shape == (3 if 3 in shape else 1, 1, 1, 2)
    assert found.dtype == np.float32
    assert (found == 2).all()


def test_a_task_of_ones_own_reads_arrays_as_they_are(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int64).reshape(2, 3))
    assert script.read_input(tmp_path / "x.npy", {}).dtype == np.int64
    assert list(script.answers(np.array([[1.0, np.nan]]), {})) == [{"output": [1.0, None]}]


TEXTS = {
    "input": {"name": "texts", "dtype": "int64", "shape": [3]},
    "tokenizer": "tokenizer.json",
    "text": "said",
    "output": "logits",
    "classes": ["no", "yes"],
}


class Agrees(nn.Module):
    """Answers yes with a logit of the number of tokens that are no padding and say yes."""

    def forward(self, tokens: Tensor) -> Tensor:
        count = (tokens == 2).sum(1, keepdim=True).float()
        return torch.cat([torch.full_like(count, 0.5), count], dim=1)


@pytest.fixture
def of_texts(tmp_path: Path) -> Path:
    tokenizer = tokenizing.train(["yes yes yes no no maybe"], Tokens())
    files = {"tokenizer.json": tokenizing.fixed(tokenizer, 3)}
    tokens = torch.tensor([[2, 3, 0], [2, 2, 2]])
    rows = export(Agrees(), (tokens,), ["torch_export"], tmp_path / "model", 1e-4, (tokens,))
    write_deployment(tmp_path / "model", rows, TEXTS, {}, {"run": "a1b2c3d4e5f6"}, files)
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.txt", "Yes, YES!\nno maybe\n\nwell: no no yes\n"),
        ("t.csv", 'said,more\n"Yes, YES!",1\nno maybe,2\n"",3\nwell: no no yes,4\n'),
        ("t.jsonl", "".join(json.dumps({"said": text}) + "\n" for text in ("Yes, YES!", "no maybe", None, "well: no no yes"))),
    ],
)
def test_raw_texts_are_answered(name, content, of_texts, tmp_path, monkeypatch, capsys):
    (tmp_path / name).write_text(content)
    code, out, _ = answer(of_texts, tmp_path / name, monkeypatch, capsys)
    assert code == 0
    found = [json.loads(line)["prediction"] for line in out.splitlines()]
    assert found == ["yes", "no", "no", "no"]  # the last one's yes was cut


def test_the_deployment_of_a_model_of_texts_has_its_tokenizer_and_pins_the_library(of_texts):
    assert "tokenizer.json" in (of_texts / "SHA256SUMS").read_text()
    assert "\ntokenizers==" in (of_texts / "requirements.txt").read_text()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [("t.csv", "other\nyes\n", "no column 'said'; found other"), ("t.npy", "", "this model reads a .csv, .json, .jsonl or .txt")],
)
def test_what_holds_no_texts_is_told(name, content, told, of_texts, tmp_path, monkeypatch, capsys):
    (tmp_path / name).write_text(content)
    code, out, err = answer(of_texts, tmp_path / name, monkeypatch, capsys)
    assert (code, out) == (1, "")
    assert told in err


def test_one_logit_stands_for_two_classes():
    assert script.probabilities(np.array([[0.0], [800.0]])).tolist() == [[0.5, 0.5], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("rows.csv", "age,colour\nold,red\n", "row 1, column 'age': expected a finite number, found 'old'"),
        ("rows.csv", "age,colour\n1_0,red\n", "found '1_0'"),
        ("rows.csv", "age,colour\ninf,red\n", "found 'inf'"),
        ("rows.csv", "age\n1\n", "no column 'colour'"),
        ("rows.csv", "age,colour\n1\n", "row 1: expected 2 cells, found 1"),
        ("rows.csv", "", "the file is empty"),
        ("rows.csv", 'age,colour\n1,"red', "unexpected end of data"),
        ("rows.json", "[1]", "every row must be an object"),
        ("rows.json", "{", "error:"),
        ("rows.json", '{"age": [1], "colour": "red"}', "expected a finite number, found '[1]'"),
        ("rows.npy", "", "this model reads a .csv"),
        ("missing.csv", None, "No such file"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(name, content, told, deployed, tmp_path, monkeypatch, capsys):
    if content is not None:
        (tmp_path / name).write_text(content)
    code, out, err = answer(deployed, tmp_path / name, monkeypatch, capsys)
    assert (code, out) == (1, "")
    assert told in err


def test_pickled_arrays_are_refused(tmp_path):
    class Canary:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "canary"),))

    np.save(tmp_path / "x.npy", np.array([Canary()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        script.read_input(tmp_path / "x.npy", {})
    assert not (tmp_path / "canary").exists()


def test_images_of_another_shape_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 5)))
    with pytest.raises(script.InvalidInputError, match=r"\[1, 8, 8\], found an array of shape \[5, 5\]"):
        script.read_input(tmp_path / "x.npy", {"input": {"name": "images", "shape": [1, 8, 8]}})


def test_without_a_model_that_can_be_run_the_reasons_are_told(tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(script.InvalidInputError, match=r"model\.onnx needs onnxruntime; model\.pt2 is not here"):
        script.open_model(tmp_path)
