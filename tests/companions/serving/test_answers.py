"""The answers of a served model: those of `predict`, alone and among others, with what the model is."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from mltrainer.companions.serving.predictor import Predictor
from mltrainer.workspace import sha256_file
from tests.companions.serving.conftest import IMAGES, PICTURES, ROW, TABLE, VALUE, asking, deliver

ROWS: list[dict[str, Any]] = [
    ROW,
    {**ROW, "age": None, "town": "west"},
    {**ROW, "price (EUR)": None, "joined": None},
    {**ROW, "age": 1e-30, "member": "no"},
]


def said_by_script(folder: Path, given: Path) -> list[dict[str, Any]]:
    """Return what the delivered script says of a file, as `mltrainer predict` runs it."""
    done = subprocess.run([sys.executable, folder / "inference.py", given], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def asked(client: TestClient, rows: list[Any]) -> list[dict[str, Any]]:
    said = client.post("/predict", json={"rows": rows})
    assert said.status_code == 200, said.text
    return said.json()["answers"]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [TABLE, VALUE], ids=["classes", "value"])
def test_rows_of_a_table_have_the_answers_of_predict(tmp_path, spec):
    folder = deliver(tmp_path / "model", spec)
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    with asking(folder) as client:
        assert asked(client, ROWS) == said_by_script(folder, tmp_path / "rows.json")


def test_arrays_have_the_answers_of_predict(tmp_path):
    folder = deliver(tmp_path / "model", IMAGES)
    array = np.random.default_rng(0).normal(size=(7, 1, 2, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", array)
    with asking(folder) as client:
        assert asked(client, array.tolist()) == said_by_script(folder, tmp_path / "x.npy")


@pytest.mark.slow
def test_pictures_have_the_answers_of_predict(tmp_path):
    folder = deliver(tmp_path / "model", PICTURES)
    rows = []
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 7, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        (tmp_path / "pictures" / f"{number}.png").write_bytes(file.getvalue())
        rows.append(base64.b64encode(file.getvalue()).decode())
    expected = [{key: row[key] for key in row if key != "file"} for row in said_by_script(folder, tmp_path / "pictures")]
    with asking(folder) as client:
        assert asked(client, rows) == expected


@pytest.mark.slow
def test_an_answer_does_not_depend_on_who_else_asks(table, monkeypatch):
    sizes, work = [], Predictor.work

    def slow(self: Predictor, requests: Any) -> Any:
        sizes.append(len(requests))
        time.sleep(0.02)  # the others come meanwhile
        return work(self, requests)

    monkeypatch.setattr(Predictor, "work", slow)
    rows = [{**ROW, "age": float(age)} for age in range(40)]
    with asking(table) as client:
        alone = [asked(client, [row])[0] for row in rows]
        with ThreadPoolExecutor(8) as many:
            together = [found[0] for found in many.map(lambda row: asked(client, [row]), rows)]
    assert max(sizes) > 1
    for one, other in zip(alone, together, strict=True):
        assert one["prediction"] == other["prediction"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


def test_every_answer_names_the_model(client, table):
    said = client.post("/predict", json={"rows": [ROW]}).json()
    model = said["model"]
    assert (model["run"], model["mltrainer"], model["weights_sha256"]) == ("abc", "0.9.0", "1" * 64)
    assert model["files_sha256"] == sha256_file(table / "SHA256SUMS")
    assert model["card_sha256"] == sha256_file(table / "README.md")
    assert client.get(model["card"]).text == "# A model\n"
    assert client.post("/predict", json={"rows": [ROW]}).json()["id"] != said["id"]


@pytest.mark.parametrize("spec", [TABLE, VALUE, IMAGES], ids=["classes", "value", "images"])
def test_requests_and_answers_are_as_the_openapi_description_says(tmp_path, spec):
    rows: list[Any] = [[[[1.0, 2.0], [3.0, 4.0]]]] if spec is IMAGES else ROWS
    with asking(deliver(tmp_path / "model", spec)) as client:
        said = client.get("/openapi.json").json()
        answer = client.post("/predict", json={"rows": rows}).json()
    for name, value in (("Request", {"rows": rows}), ("Response", answer)):
        schema = {"$ref": f"#/components/schemas/{name}", "components": said["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)
    if spec is not IMAGES:
        row = said["components"]["schemas"]["Row"]
        assert list(row["properties"]) == row["required"] == [column["name"] for column in spec["columns"]]


def test_a_list_of_another_length_and_a_body_that_is_no_json_are_told_in_plain_words(tmp_path):
    with asking(deliver(tmp_path / "model", IMAGES)) as client:
        said = client.post("/predict", json={"rows": [[[1.0, 2.0], [3.0, 4.0]]]}).json()
        assert said == {"where": "rows[0]", "what": "expected a list of at most 1, found one of 2"}
        for body, what in (
            (b"{", "expected JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
            (b'{"a": 1, "a": 2}', "expected JSON: the name 'a' is twice in one object"),
            (b'{"rows": ["\xe9"]}', "expected UTF-8, found another byte at 11"),
        ):
            said = client.post("/predict", content=body, headers={"Content-Type": "application/json"}).json()
            assert said == {"where": "body", "what": what}


def test_onnx_runtime_notes_nothing_for_its_maker(table, tmp_path, monkeypatch):
    """It would do so in the user's folder for caches, and send it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "rows.json").write_text(json.dumps([ROW]))
    said_by_script(table, tmp_path / "rows.json")
    code = "import sys, mltrainer.checkpointing, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, table / "model.onnx"], check=True)
    assert not list(tmp_path.rglob("*onnxruntime*"))


def test_health_readiness_and_the_form_are_there(client):
    assert client.get("/health").json() == {"state": "alive"}
    assert client.get("/ready").json() == {"state": "ready"}
    page = client.get("/")
    assert "price (EUR)" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/form.js").status_code == client.get("/style.css").status_code == 200


def test_names_of_columns_and_models_are_no_markup(tmp_path):
    column = {"name": '"><script>alert(1)</script>', "kind": "category", "categories": ["</datalist><b>"]}
    with asking(deliver(tmp_path / "model", {**TABLE, "columns": [column], "input": {"name": "table", "shape": [1]}})) as client:
        page = client.get("/").text
    assert page.count("<script") == 1
    assert "<b>" not in page
