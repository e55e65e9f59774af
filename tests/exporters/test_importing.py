"""Foreign weights: mapped by a table that names every difference, and never executed."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from mltrainer.checkpointing.starting import begin
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.starting import Start
from mltrainer.errors import InputError, MachineError
from mltrainer.exporters.importing import import_weights
from mltrainer.records.imported import Imported
from mltrainer.records.job import ImportJob, parsed
from mltrainer.tasks.opening import open_task
from mltrainer.workspace import read_json, sha256_file
from tests.exporters.test_program import table

MARK = "executed"


class Executes:
    """What runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {MARK}",)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingConfig:
    monkeypatch.chdir(tmp_path)
    return TrainingConfig.model_validate(table(tmp_path))


@pytest.fixture
def weights(config: TrainingConfig) -> dict[str, Tensor]:
    """The tensors of the project's model that are not fitted to its data, each filled with a number of its own."""
    state = open_task(config, Path.cwd()).task.model().state_dict()
    own = {name: tensor for name, tensor in state.items() if not name.startswith(("encoder.", "units."))}
    return {name: torch.full_like(tensor, nr + 0.5) for nr, (name, tensor) in enumerate(own.items())}


def brought(config: TrainingConfig, foreign: str | Path, rename: dict[str, str] | None = None) -> Imported:
    job = ImportJob(
        run="a1b2c3d4e5f6",
        folder=".mltrainer/imports/x",
        config=config,
        threads=1,
        foreign=str(Path(foreign).absolute()),
        out="weights/x",
        rename=rename or {},
    )
    import_weights(parsed(job.written(), "job.json"), Path.cwd())  # type: ignore[arg-type]  # the very kind, by its keys
    found = read_json(Path(".mltrainer/imports/x/result.json"))
    assert read_json(Path("weights/x/origin.json")) == {key: value for key, value in found.items() if key != "schema"}
    return Imported.model_validate(read_json(Path("weights/x/origin.json")))


def begun(config: TrainingConfig, imported: Imported) -> dict[str, Tensor]:
    """Return the tensors of a model that begins with what was imported, by the keys that were told."""
    model = open_task(config, Path.cwd()).task.model()
    begin(model, Start.model_validate(imported.start), Path.cwd(), is_builtin=True)
    state: dict[str, Tensor] = model.state_dict()
    return state


def written(path: Path, weights: dict[str, Tensor]) -> Path:
    """Write weights as somebody else's program does, by the path's ending."""
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(weights, path)
    elif path.suffix:
        torch.save(weights, path)
    else:
        path.mkdir()
        names = [*weights]
        parts = {"model-1.safetensors": names[:2], "model-2.safetensors": names[2:]}
        for part, own in parts.items():
            safetensors.torch.save_file({name: weights[name] for name in own}, path / part)
        index = {"weight_map": {name: part for part, own in parts.items() for name in own}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
        (path / "config.json").write_text(json.dumps({"model_type": "mlp", "auto_map": {"AutoModel": "evil.Model"}}))
        (path / "evil.py").write_text(f"open({MARK!r}, 'w')")
    return path


def test_a_full_disk_is_the_machines_fault_and_leaves_nothing(config, weights, tmp_path, monkeypatch):
    def full(*_: Any) -> None:
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    source = written(tmp_path / "a.pt", weights)
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(MachineError, match="No space left on device"):
        brought(config, source)
    assert not any((tmp_path / "weights").iterdir())


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.pth", "a.bin", "a.ckpt", "folder"])
def test_weights_of_each_form_are_those_that_a_training_begins_with(config, weights, tmp_path, name):
    imported = brought(config, written(tmp_path / name, weights))
    assert (imported.loaded, imported.tensors, imported.others) == (len(weights), len(weights), [])
    assert imported.start == {"weights": "weights/x"}
    state = begun(config, imported)
    assert all(torch.equal(state[key], tensor) for key, tensor in weights.items())
    assert imported.weights_sha256 == weights_sha256(weights)
    files = sorted((tmp_path / name).glob("*.safetensors")) or [tmp_path / name]
    assert [row.sha256 for row in imported.files] == [sha256_file(file) for file in files]
    assert not any(row.path.startswith("/") for row in imported.files)
    assert imported.declared == ({"model_type": "mlp"} if name == "folder" else {})
    assert not Path(MARK).exists()


def _inside(weights: dict[str, Tensor]) -> Any:
    return {"state_dict": {f"module.{name}": tensor for name, tensor in weights.items()}, "epoch": 3}


def test_a_wrapper_and_a_training_state_around_the_weights_are_taken_off(config, weights, tmp_path):
    torch.save(_inside(weights), tmp_path / "a.pt")
    assert brought(config, tmp_path / "a.pt").others == []


def _other_shape(weights: dict[str, Tensor], last: str) -> dict[str, Tensor]:
    return {name: torch.ones(9, *tensor.shape[1:]) if name.startswith(last) else tensor for name, tensor in weights.items()}


def test_each_difference_is_named_with_both_shapes_and_the_keys_told_are_enough(config, weights, tmp_path):
    first, *_, last = weights
    head, layer = last.rpartition(".")[0], first.rpartition(".")[0]
    given = {**_other_shape(weights, head), "aux.weight": torch.ones(2)}
    imported = brought(config, written(tmp_path / "a.pt", given))
    rows = {row.name: (row.in_file, row.in_model) for row in imported.others}
    assert rows.pop("aux.weight") == ([2], None)
    assert rows == {name: ([9, *t.shape[1:]], [*t.shape]) for name, t in weights.items() if name.startswith(head)}
    assert imported.start == {"weights": "weights/x", "replace_head": True}
    assert torch.equal(begun(config, imported)[first], weights[first])
    kept = safetensors.torch.load_file("weights/x/model.safetensors")
    assert kept.keys() == {name for name in weights if not name.startswith(head)}
    Path("weights").rename("earlier")
    lacking = {name: tensor for name, tensor in weights.items() if not name.startswith(layer)}
    imported = brought(config, written(tmp_path / "b.pt", lacking))
    assert {row.name: row.in_file for row in imported.others} == {name: None for name in weights if name.startswith(layer)}
    assert imported.start["new"] == [f"^{layer}\\."]
    assert torch.equal(begun(config, imported)[last], weights[last])


def test_names_of_another_program_are_mapped_by_rules(config, weights, tmp_path):
    path = written(tmp_path / "a.safetensors", {f"backbone.{name}": tensor for name, tensor in weights.items()})
    with pytest.raises(InputError, match="no tensor of it fits the model: its names are backbone") as refused:
        brought(config, path)
    assert "--rename" in str(refused.value.hint)
    assert not Path("weights/x").exists()
    assert brought(config, path, {r"^backbone\.": ""}).others == []


HOSTILE: dict[str, Any] = {
    "a.pt": lambda path, state: torch.save({**state, "x": Executes()}, path),
    "b.bin": lambda path, _: path.write_bytes(pickle.dumps(Executes(), protocol=2)),
    "c.ckpt": lambda path, state: torch.save({"state_dict": state, "callbacks": [Executes()]}, path),
    "d.pth": lambda path, state: torch.save(Executes(), path, _use_new_zipfile_serialization=False),
    "e.safetensors": lambda path, _: path.write_bytes(pickle.dumps(Executes())),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_would_execute_code_is_refused_with_the_reason(config, weights, tmp_path, name):
    HOSTILE[name](tmp_path / name, weights)
    with pytest.raises(InputError, match="not readable as weights: ") as refused:
        brought(config, tmp_path / name)
    assert refused.value.where == str(tmp_path / name)
    assert not Path(MARK).exists()
    assert not Path("weights").exists()
    if name != "e.safetensors":
        assert "never executed" in refused.value.message
        with contextlib.suppress(RuntimeError):  # it executes a plain pickle before it asks whether that is one of its own
            torch.load(tmp_path / name, weights_only=False)
        assert Path(MARK).exists()  # it would have executed


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt"])
def test_a_torn_file_is_refused_and_nothing_is_written(config, weights, tmp_path, name):
    path = written(tmp_path / name, weights)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="not readable as weights"):
        brought(config, path)
    assert not Path("weights").exists() or not [*Path("weights").iterdir()]


# --- as it is typed -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_project_plans_with_imported_weights_and_its_lineage_names_their_file(digits, tmp_path, cli):
    model = digits.root / "phases/05_finalization/final_model/model.safetensors"
    state = {name: tensor for name, tensor in safetensors.torch.load_file(model).items() if not name.startswith("output.")}
    torch.save(state, tmp_path / "found.pt")
    said = cli("checkpoints", "import", tmp_path / "found.pt", "--project", digits.root, code=0)
    assert said.out.endswith("start: {replace_head: true, weights: weights/found}\n")
    assert "output.weight" in said.out
    cli("checkpoints", "import", tmp_path / "found.pt", "--project", digits.root, code=1, err="it exists already")
    cli("checkpoints", "import", tmp_path / "found.pt", "--to", "weights/again", "--json", "--project", digits.root, code=0)
    values = ("start.weights=weights/found", "start.replace_head=true")
    settings = [word for one in values for word in ("--set", one)]
    cli("phase", "run", "planning", *settings, "--project", digits.root, code=0)
    cli("phase", "run", "baseline", "--project", digits.root, code=0)
    text = cli("lineage", "baseline", "--project", digits.root, code=0).out
    assert "from weights weights/found (sha256 " in text
    assert f"taken from file found.pt (sha256 {sha256_file(tmp_path / 'found.pt')[:12]})" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nowhere.pt",), 1, "no such file"),
        (("mltrainer.yaml", "--to", "../x"), 1, "expected a folder within the project"),
        (("mltrainer.yaml", "--to", "phases/x"), 1, "whose files gates and git account for"),
        (("mltrainer.yaml", "--rename", "x(=y"), 2, "expected a pattern"),
        (("mltrainer.yaml", "--rename", "x"), 2, "expected PATTERN=NAME"),
    ],
)
def test_a_mistake_is_named_before_anything_is_read(digits, monkeypatch, cli, words, code, message):
    monkeypatch.chdir(digits.root)
    cli("checkpoints", "import", *words, code=code, err=message)


def test_quantized_weights_are_not_taken_for_the_numbers_that_they_stand_for(config, weights, tmp_path):
    torch.save({name: (tensor * 10).to(torch.int8) for name, tensor in weights.items()}, tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"other\.pt: .* is of int8 in the file, and of float32 in the model"):
        brought(config, tmp_path / "other.pt")
    assert not Path("weights/x").exists()
