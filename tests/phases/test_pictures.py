"""A folder of pictures from `init` to predictions by the delivered script, and a second project that begins with its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mltrainer.configs import yaml
from mltrainer.workspace import Project, sha256_file
from tests.conftest import Cli, commit
from tests.projects import evidence_of, write_light_template

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tools_here")]
TRAINING = {
    "epochs": 12,
    "batch_size": 16,
    "augment": {"crop": 1, "flip": "vertical", "mixup": 0.2},
    "label_smoothing": 0.05,
    "early_stopping": None,
}


def paint(folder: Path, classes: tuple[str, ...], count: int = 90) -> Path:
    """Write pictures of several sizes, each class bright in a channel of its own."""
    generator = np.random.default_rng(0)
    for number in range(count):
        place = number % len(classes)
        pixels = generator.integers(0, 120, (10 + number % 3, 12, 3), dtype=np.uint8)
        pixels[..., place] += 100
        path = folder / classes[place] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def start(cli: Cli, folder: Path, data: Path, **values: Any) -> Project:
    """Make a project of pictures, with a criterion and more keys."""
    cli("init", folder, "--data", data, code=0)
    path = folder / "mltrainer.yaml"
    given = yaml.parse(path.read_bytes(), path.name).value
    path.write_text(
        yaml.dump({**given, "model": {"name": "cnn", "channels": [4]}, "acceptance": {"accuracy": ">= 0.7"}, **values})
    )
    write_light_template(folder)
    commit(folder)
    return Project(folder)


def test_pictures_go_through_all_phases_and_their_model_begins_another(tmp_path, cli):
    first = start(cli, tmp_path / "first", paint(tmp_path / "pics", ("blue", "green", "red")))
    settings = [part for key, value in TRAINING.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    cli("phase", "run", "planning", *settings, "--project", first.root, code=0)
    commit(first.root)
    cli("run", "--project", first.root, code=0)
    final = evidence_of(first, "finalization")
    assert final["test"]["metrics"]["accuracy"] >= 0.7
    model = first.phase_dir("finalization") / "final_model"
    assert "pillow==" in (model / "requirements.txt").read_text()

    paint(tmp_path / "more", ("cold", "warm"), 60)
    weights = {"weights": str(model), "replace_head": True, "freeze": ["^conv1"]}
    second = start(cli, tmp_path / "second", tmp_path / "more", start=weights)
    cli("phase", "run", "planning", *settings, "--project", second.root, code=0)
    planned = evidence_of(second, "planning")
    assert "output.weight" in planned["data"]["start"]["new"]
    assert "conv1.weight" in planned["data"]["start"]["loaded"]
    assert planned["data"]["files"][-1]["sha256"] == sha256_file(model / "model.safetensors")
    assert "The model begins with" in (second.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    cli("gate", "check", "planning", "--project", second.root, code=0)
    (model / "model.safetensors").write_bytes(b"")
    assert cli("gate", "check", "planning", "--project", second.root).code != 0
