from __future__ import annotations

import gzip
import io
import json
import math
from datetime import date
from pathlib import Path

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_digits

import mltrainer
from mltrainer.checkpointing import inference_script
from mltrainer.checkpointing.inference_script import InvalidInputError, OnnxModel, decoded, message_of, read_rows
from mltrainer.errors import InputError
from mltrainer.runs import predict as predicting
from mltrainer.runs.drift import drifted
from mltrainer.runs.predict import as_file
from mltrainer.tasks.tables.columns import parse_column
from mltrainer.tasks.tables.files import text_array
from mltrainer.tasks.tables.task import training_distribution
from mltrainer.workspace import Project

RANDOM = np.random.default_rng(0)
NEXT = "  next: phases/05_finalization/final_model/README.md says what the model reads and needs\n"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    np.save(tmp_path / "new.npy", (load_digits().images[:40] / 16).astype(np.float32)[:, None])
    return tmp_path / "new.npy"


def test_the_delivered_model_predicts_new_samples(digits, pictures, cli):
    said = cli("predict", pictures, "--project", digits.root, code=0)
    answers = [json.loads(line) for line in said.out.splitlines()]
    right = sum(answer["prediction"] == str(label) for answer, label in zip(answers, load_digits().target, strict=False))
    assert len(answers) == 40
    assert right >= 36


@pytest.mark.parametrize("place", ["new.npy", "digits/mltrainer.yaml", "digits/phases/01_planning/training_config.yaml"])
def test_answers_are_not_written_over_what_is_asked_about_or_trained_from(digits, pictures, place):
    out = (digits.root if place.startswith("digits/") else pictures.parent) / place.removeprefix("digits/")
    with pytest.raises(InputError, match="nothing is written over it"):
        predicting.require_apart(digits, out, pictures)
    predicting.require_apart(digits, pictures.parent / "answers.csv", pictures)


def test_numbers_of_another_type_than_the_model_reads_are_told_with_what_to_do(tmp_path):
    given, out = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 2]) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "same", [given], [out])
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), str(tmp_path / "model.onnx"))
    same = OnnxModel(tmp_path / "model.onnx")
    assert same(np.ones((3, 2), np.float32)).tolist() == [[1, 1]] * 3
    with pytest.raises(InvalidInputError, match="x holds float64, and the model reads float32: save it as float32"):
        same(np.ones((3, 2)))


EACH = "import sys\nfor line in list(open(sys.argv[1]))[1:]: print('{}')"
OWN: dict[str, tuple[str, str, str]] = {  # an inference.py, the rows' file, and what is said
    "all": (EACH, "rows.csv", ""),
    "none": ("", "rows.csv", "expected one JSON object for each row, found 0 answers for rows.csv, which has 3 rows"),
    "fewer": (f"{EACH}; break", "rows.csv", "found 1 answer for rows.csv, which has 3 rows"),
    "of a picture": ("", "a.png", "found 0 answers for a.png, which has an unknown number of rows"),
    "a log": ("print('loading')", "rows.csv", "it printed 'loading'; one JSON object for each row was expected"),
}


@pytest.mark.parametrize("case", OWN)
def test_a_program_s_model_must_answer_each_row(tmp_path, monkeypatch, case):
    code, file, said = OWN[case]
    (tmp_path / "inference.py").write_text(code)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    (tmp_path / "a.png").write_bytes(b"")
    monkeypatch.setattr(predicting, "delivered", lambda _project: tmp_path)
    found = predicting.predict(Project(tmp_path), tmp_path / file)
    if not said:
        assert [*found] == [{}, {}, {}]
        return
    with pytest.raises(InputError) as raised:
        list(found)
    assert said in str(raised.value)
    assert raised.value.where == str(tmp_path / "inference.py")
    assert "mltrainer run" in str(raised.value.hint)


@pytest.mark.parametrize("code", [Path(inference_script.__file__).read_text("utf-8"), EACH], ids=["ours", "a program's"])
def test_a_file_without_rows_is_refused(tmp_path, monkeypatch, code):
    (tmp_path / "inference.py").write_text(code)
    spec = {"input": {"name": "table"}, "columns": [{"name": "a", "kind": "number"}], "output": "values", "target": "b"}
    (tmp_path / "inference.json").write_text(json.dumps(spec))
    (tmp_path / "rows.csv").write_text("a,b\n")
    monkeypatch.setattr(predicting, "delivered", lambda _project: tmp_path)
    with pytest.raises(InputError, match="there are no rows to predict") as raised:
        list(predicting.predict(Project(tmp_path), tmp_path / "rows.csv"))
    assert raised.value.where == str(tmp_path / "rows.csv")


@pytest.mark.parametrize("name", ["model.onnx", "inference.py", "inference.json"])
def test_a_model_that_was_changed_predicts_nothing(digits, pictures, cli, name):
    path = next(digits.root.glob(f"phases/05_finalization/final_model/{name}"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    said = cli("predict", pictures, "--project", digits.root)
    assert (said.code, said.out) == (4, "")
    assert f"final_model/{name}: a file of the delivered model was changed" in said.err


def test_a_file_that_was_put_beside_the_model_is_not_run_in_its_place(digits, pictures, cli):
    folder = digits.root / "phases/05_finalization/final_model"
    (folder / "model_int8_static.onnx").write_bytes((folder / "model.onnx").read_bytes())
    said = cli("predict", pictures, "--project", digits.root)
    assert (said.code, said.out) == (4, "")
    assert "final_model/model_int8_static.onnx: a file beside the model was not delivered with it" in said.err


def test_what_the_model_cannot_read_is_told_by_its_file(digits, tmp_path, cli):
    (tmp_path / "rows.csv").write_text("a\n1\n")
    said = cli("predict", tmp_path / "rows.csv", "--project", digits.root, code=1)
    assert said.err == f"error: {tmp_path / 'rows.csv'}: this model reads an .npy file\n{NEXT}"
    cli("predict", tmp_path / "none.npy", "--project", digits.root, code=1)


@pytest.mark.parametrize("data", [b"", b"\x93\xf9\x00\x01 no array"])
def test_a_file_that_holds_no_array_is_told_in_one_plain_line(digits, tmp_path, cli, data):
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    said = cli("predict", path, "--project", digits.root)
    assert (said.code, said.err) == (1, f"error: {path}: it holds no arrays of numbers as numpy.save writes them\n{NEXT}")


def test_a_device_is_not_read(digits, cli):
    said = cli("predict", "/dev/null", "--project", digits.root)
    told = "error: /dev/null: expected a file or a folder, found a pipe or a device"
    assert (said.code, said.err) == (1, f"{told}\n  next: write it to a file first, and name that\n")


def test_bytes_that_are_no_text_are_told_so(tmp_path):
    with pytest.raises(InvalidInputError, match="it is no text: it contains NUL bytes"):
        decoded(b"a,b\n1,\0\n")
    with pytest.raises(UnicodeDecodeError) as raised:
        decoded("é".encode() + b"\xf9")
    assert message_of(raised.value).startswith("it is no text: 'utf-8' codec can't decode byte 0xf9")
    with pytest.raises(IsADirectoryError) as folder:
        tmp_path.read_bytes()
    assert message_of(folder.value) == "Is a directory"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.ndjson", "rows.npy.gz"])
def test_rows_of_a_packed_file_are_counted(tmp_path, name):
    written = io.BytesIO()
    np.save(written, np.zeros((3, 2)))
    data = written.getvalue() if "npy" in name else b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert predicting.rows_of(tmp_path / name, tmp_path) == (3,)


def test_without_a_delivered_model_the_way_to_one_is_told(digits, pictures, cli):
    (digits.root / "phases/05_finalization/record.json").unlink()
    cli("predict", pictures, "--project", digits.root, code=1, err="finalization has delivered no model")


# --- rows that are no file ---


def test_values_from_python_are_read_as_cells_of_a_file(model):
    rows = [
        {"age": np.float32(41.5), "on": date(2026, 1, 2), "town": "north"},
        {"age": np.float32(math.nan), "on": None, "town": None},
    ]
    with as_file(rows, model) as path:
        assert read_rows(path) == [{"age": "41.5", "on": "2026-01-02", "town": "north"}, {"age": "", "on": "", "town": ""}]
    assert not path.exists()


def test_texts_from_python_stand_in_the_models_column(tmp_path):
    (tmp_path / "inference.json").write_text('{"text": "review"}')
    with as_file(["good", "bad, too"], tmp_path) as path:
        assert read_rows(path) == [{"review": "good"}, {"review": "bad, too"}]


@pytest.mark.slow
def test_python_gets_the_answers_of_the_command(digits, pictures, cli):
    said = [json.loads(line) for line in cli("predict", pictures, "--project", digits.root).out.splitlines()]
    project = mltrainer.Project(digits.root)
    found = project.predict(pictures)
    assert list(found) == said == list(project.predict(np.load(pictures)))
    assert found.predictions[:3] == ["0", "1", "2"]
    assert list(project.predict([])) == list(project.predict(np.zeros((0, 1, 8, 8)))) == []
    assert "and 20 more" in found._repr_markdown_()
    with pytest.raises(InputError, match="expected images of shape"):
        project.predict(np.zeros((2, 3)))


# --- drift ---


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder whose inference.json says what 500 training rows held."""
    age, town = RANDOM.normal(40, 10, 500), np.array(["north", "south", "west"])[RANDOM.integers(0, 3, 500)]
    number, category = parse_column("age", age), parse_column("town", text_array(list(town)))
    rows, names = np.arange(500), ["north", "south", "west"]
    columns = [
        {"name": "age", "kind": "number", "training": training_distribution(number, rows, None)},
        {"name": "town", "kind": "category", "categories": names, "training": training_distribution(category, rows, names)},
    ]
    (tmp_path / "inference.json").write_text(json.dumps({"columns": columns}))
    return tmp_path


def rows_of(folder: Path, age: np.ndarray, towns: list[str]) -> Path:
    lines = [f"{'' if np.isnan(a) else a},{towns[nr % len(towns)]}" for nr, a in enumerate(age)]
    (folder / "new.csv").write_text("\n".join(["age,town", *lines]) + "\n")
    return folder / "new.csv"


def test_rows_like_those_of_training_have_not_drifted(model):
    assert drifted(model, rows_of(model, RANDOM.normal(40, 10, 400), ["north", "south", "west"])) == []


@pytest.mark.parametrize(
    ("age", "towns", "column"),
    [
        (RANDOM.normal(60, 10, 400), ["north", "south", "west"], "age"),
        (np.where(np.arange(400) % 2, np.nan, RANDOM.normal(40, 10, 400)), ["north", "south", "west"], "age"),
        (RANDOM.normal(40, 10, 400), ["north"], "town"),
        (RANDOM.normal(40, 10, 400), ["north", "south", "west", "east", "east"], "town"),
    ],
    ids=["older", "missing", "one town", "an unknown town"],
)
def test_rows_of_another_population_are_told_by_column(model, age, towns, column):
    assert [row.column for row in drifted(model, rows_of(model, age, towns))] == [column]


def test_a_few_rows_say_nothing(model):
    assert drifted(model, rows_of(model, RANDOM.normal(90, 1, 20), ["north"])) == []
