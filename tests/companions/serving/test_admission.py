"""Which models are served: whole ones whose gates hold; others only where that is asked for, and never silently."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import onnxruntime
import pytest

from mltrainer.companions.serving import admission
from mltrainer.companions.serving.admission import admitted
from mltrainer.errors import GateError, InputError
from tests.companions.serving.conftest import IMAGES, ROW, TABLE, asking, deliver

MODEL = "phases/05_finalization/final_model"


@pytest.mark.slow
def test_the_model_of_a_project_whose_gates_hold_is_served(digits):
    found = admitted(digits.root)
    assert (found.identity.checks, found.identity.unchecked) == ("held", [])
    assert found.folder == digits.root / MODEL
    with asking(digits.root / MODEL, unchecked=False) as client:  # the folder of the model in its project says the same
        said = client.post("/predict", json={"rows": [[[[0.0] * 8] * 8]]}).json()
    assert said["model"]["checks"] == "held"
    assert said["model"]["weights_sha256"] == json.loads((digits.root / MODEL / "manifest.json").read_text())["weights_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.onnx", "inference.json"])
def test_a_changed_file_is_refused_by_name(digits, name):
    path = digits.root / MODEL / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(GateError, match="a file of the delivered model was changed") as refused:
        admitted(digits.root)
    assert refused.value.where == f"{MODEL}/{name}"
    assert "--allow-unchecked" in str(refused.value.hint)


def test_a_file_that_was_put_beside_the_model_is_refused(digits):
    (digits.root / MODEL / "model_int8_static.onnx").write_bytes(b"another model, which would be run")
    with pytest.raises(GateError, match="a file beside the model was not delivered with it") as refused:
        admitted(digits.root)
    assert refused.value.where == f"{MODEL}/model_int8_static.onnx"


def test_a_gate_that_does_not_hold_is_refused_and_told_in_every_answer_where_it_is_allowed(digits):
    config = digits.root / "phases/01_planning/training_config.yaml"
    config.write_text(config.read_text().replace("epochs: 12", "epochs: 13"))
    with pytest.raises(GateError, match="the gate of planning is stale"):
        admitted(digits.root)
    with asking(digits.root) as client:
        said = client.post("/predict", json={"rows": [[[[0.0] * 8] * 8]]}).json()["model"]
        page = client.get("/").text
    assert said["checks"] == "unchecked"
    assert "the gate of planning is stale" in said["unchecked"][0]
    assert "Unchecked." in page


def test_a_copy_of_a_models_folder_is_served_unchecked_only(tmp_path):
    folder = deliver(tmp_path / "copy", TABLE)
    with pytest.raises(GateError, match="the folder is outside its project"):
        admitted(folder)
    with asking(folder) as client:
        said = client.post("/predict", json={"rows": [ROW]}).json()["model"]
    assert [told.partition(": ")[2] for told in said["unchecked"]] == [
        "the folder is outside its project, so that the gates of its training cannot be checked"
    ]
    (folder / "model.onnx").write_bytes(b"")
    with pytest.raises(GateError, match=r"model\.onnx is not the file that was delivered"):
        admitted(folder)


def test_a_file_that_was_put_beside_a_copy_of_the_model_is_refused(tmp_path):
    folder = deliver(tmp_path / "copy", TABLE)
    (folder / "model_int8_static.onnx").write_bytes(b"another model, which would be run")
    with pytest.raises(GateError, match=r"model_int8_static\.onnx is a file that was not delivered"):
        admitted(folder)


def test_a_file_that_no_library_reads_is_told_where_a_changed_one_is_allowed(tmp_path, cli):
    folder = deliver(tmp_path / "copy", TABLE)
    (folder / "model.onnx").write_bytes(b"no model")
    cli("serve", folder, "--allow-unchecked", "--database", "none", code=1, err="model.onnx cannot be read")


def test_a_disk_that_does_not_give_the_model_is_the_machines_fault(tmp_path, cli, monkeypatch):
    folder = deliver(tmp_path / "copy", TABLE)

    def unread(*_given: Any, **_options: Any) -> None:
        raise RuntimeError(f"Load model from {folder}/model.onnx failed:system error number 13")  # as ONNX Runtime says it

    monkeypatch.setattr(onnxruntime, "InferenceSession", unread)
    words = ("serve", folder, "--allow-unchecked", "--database", "none")
    cli(*words, code=7, err="system error number 13")


def test_code_of_a_changed_folder_is_never_run(tmp_path):
    folder = deliver(tmp_path / "copy", {**TABLE, "preprocess": "pre.py"})
    (folder / "pre.py").write_text("raise SystemExit('it was run')")
    with pytest.raises(InputError, match=r"pre.py would run, but the folder differs from the delivered one"):
        admitted(folder, allow_unchecked=True)


@pytest.mark.parametrize("lacks", ["the file", "the package"])
def test_a_changed_program_of_pytorch_which_can_hold_code_is_never_loaded(tmp_path, monkeypatch, lacks):
    folder = deliver(tmp_path / "copy", TABLE)
    (folder / "model.pt2").write_bytes(b"another program")
    if lacks == "the file":
        (folder / "model.onnx").unlink()
    else:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        monkeypatch.setattr(admission, "find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"model.pt2 would run, but the folder differs from the delivered one"):
        admitted(folder, allow_unchecked=True)


def test_a_project_without_a_model_says_what_brings_one(tmp_path, cli):
    (tmp_path / "mltrainer.yaml").write_text("name: empty\n")
    cli("serve", tmp_path, code=1, err="finalization has delivered no model")
    cli("serve", tmp_path / "nowhere", code=1)


def test_beyond_this_machine_a_token_is_needed(digits, cli, monkeypatch):
    monkeypatch.delenv("MLTRAINER_SERVE_TOKEN", raising=False)
    cli("serve", digits.root, "--host", "0.0.0.0", code=1, err="export MLTRAINER_SERVE_TOKEN=")
    monkeypatch.setenv("MLTRAINER_SERVE_TOKEN", "short")
    assert "16 or more printable characters" in cli("serve", digits.root).err


@pytest.mark.slow
def test_a_refusal_comes_before_torch_or_the_model_is_loaded(tmp_path):
    folder = deliver(tmp_path / "copy", IMAGES)
    code = (
        "import sys; from mltrainer.cli.main import run\n"
        f"code = run(['serve', {str(folder)!r}])\n"
        "print(code, sorted({'torch', 'onnxruntime', 'fastapi', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4 []\n", done.stderr
