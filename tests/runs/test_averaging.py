"""The average of a run's checkpoints: the mean of their weights, measured, beside everything that was there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from mltrainer.records.reading import sound_record
from mltrainer.workspace import pretty_json, read_json, seal, sha256_file
from tests.conftest import Cli

pytestmark = pytest.mark.slow


def test_a_mean_is_that_of_its_members_and_the_project_stays_as_it_is(digits, tmp_path, cli):
    before = {path: sha256_file(path) for path in digits.root.rglob("phases/**/*") if path.is_file()}
    words = ("checkpoints", "average", "baseline", "--how", "uniform", "--to", tmp_path / "mean", "--project", digits.root)
    made = cli(*words, "--json", code=0).json
    assert [row["used"] for row in made["members"]] == [True] * len(made["members"])
    assert len(made["members"]) > 1
    parts = [load_file(_weights(digits.root / row["path"], cli, tmp_path, digits.root, row["step"])) for row in made["members"]]
    for name, tensor in load_file(tmp_path / "mean/model.safetensors").items():
        if tensor.dtype == np.float32:
            mean = np.mean([part[name].astype(np.float64) for part in parts], axis=0).astype(np.float32)
            np.testing.assert_allclose(tensor, mean, rtol=1e-6, atol=1e-8)
    assert made["weights_sha256"] == made["rebuilt_sha256"]
    assert made["metrics"].keys() >= {"accuracy", "loss"}
    assert {path: sha256_file(path) for path in before} == before
    written = {path: sha256_file(path) for path in (tmp_path / "mean").iterdir()}
    cli(*words, code=1, err="mean: it exists already: nothing is written over it\n  next: --to another folder, or remove it")
    assert {path: sha256_file(path) for path in (tmp_path / "mean").iterdir()} == written
    said = cli(*(tmp_path / "again" if word == tmp_path / "mean" else word for word in words), code=0)
    assert "the best checkpoint " in said.out
    assert "better" not in said.out  # a difference of a few rows is no verdict


def _weights(checkpoint: Path, cli: Cli, tmp_path: Path, root: Path, step: int) -> Path:
    """Return the weights of a checkpoint, as they are exported."""
    out = tmp_path / checkpoint.name
    words = ("--step", step, "--format", "safetensors", "--to", out, "--project", root)
    cli("checkpoints", "export", "baseline", *words, code=0)
    return out / "model.safetensors"


def test_of_one_checkpoint_there_is_no_mean(digits, tmp_path, cli):
    run = sound_record(digits, "baseline").evidence.run.id
    path = digits.runs_dir / run / "result.json"
    result = read_json(path)
    path.write_bytes(pretty_json(seal({**result, "checkpoints": result["checkpoints"][:1]})))
    cli("checkpoints", "average", "baseline", "--to", tmp_path / "x", "--project", digits.root, code=4, err="nothing to average")
    assert not (tmp_path / "x").exists()


def test_a_damaged_checkpoint_is_named_and_no_mean_is_written(digits, tmp_path, cli):
    row = sound_record(digits, "baseline").evidence.run.checkpoints[0]
    path = digits.root / row.path / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    cli("checkpoints", "average", "baseline", "--to", tmp_path / "x", "--project", digits.root, code=4, err="state.safetensors")
    assert not (tmp_path / "x").exists()
