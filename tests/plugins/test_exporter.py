"""An export format of another distribution, written, read back and compared as the built-in ones are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mltrainer.checkpointing.export import Format, export, format_of
from mltrainer.errors import InputError
from tests.plugins.installing import install, use, write_metadata


@pytest.fixture
def npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = install(tmp_path / "site", "mltrainer-npz")
    use(monkeypatch, site)
    yield site
    sys.modules.pop("mltrainer_npz", None)


def test_it_writes_a_file_that_is_compared_with_the_model(tmp_path, npz):
    x = torch.randn(8, 4)
    (row,) = export(nn.Linear(4, 2), (x,), ["npz"], tmp_path / "out", 1e-6, (x,))
    assert (row.format, row.file, row.state, row.agrees) == ("npz", "model.npz", "written", True)
    with np.load(tmp_path / "out/model.npz") as file:
        assert set(file) == {"weight", "bias"}


def test_one_that_would_write_a_built_in_ones_file_is_refused(npz):
    write_metadata(npz, "thief", "mltrainer.exporters", {"thief": "thief:FORMAT"})
    (npz / "thief.py").write_text("from mltrainer_npz import *\nFORMAT = Format('model.onnx', write, read)\n", "utf-8")
    with pytest.raises(InputError, match="with a new file name"):
        format_of("thief")
    assert isinstance(format_of("npz"), Format)


def test_the_command_line_takes_its_name_and_lists_it(cli, digits_once, npz, tmp_path):
    cli("checkpoints", "export", "baseline", "--format", "npy", "--project", digits_once, code=2, err="did you mean 'npz'?")


@pytest.mark.slow
@pytest.mark.usefixtures("real_tools")
def test_a_run_is_exported_in_it(cli, digits, npz, tmp_path):
    out = tmp_path / "out"
    for _ in range(2):
        cli("checkpoints", "export", "baseline", "--format", "npz", "--to", out, "--project", digits.root, code=0)
        assert (out / "model.npz").is_file()
    cli("checkpoints", "export", "baseline", "--format", "safetensors", "--to", out, "--project", digits.root, code=0)
    assert not (out / "model.npz").exists()
