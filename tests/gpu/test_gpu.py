"""`make gpu` on a machine without a GPU: its message, its table, and how it goes on."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from tests.gpu import __main__ as gpu
from tests.gpu.parts import PARTS, Found, bits


def test_without_a_gpu_it_says_so_and_ends_well(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main() == 0
    assert capsys.readouterr().out == f"{gpu.NO_GPU}\n"


def test_a_part_that_does_not_exist_is_refused_with_those_that_do(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "bit"])
    with pytest.raises(SystemExit):
        gpu.main()
    assert "no part: bit; there are bits, resume" in capsys.readouterr().err


def test_the_table_is_written_after_each_part_and_goes_on_by_name(tmp_path, capsys):
    path, asked = tmp_path / "build" / "table.json", []

    def first(device: str) -> Found:
        asked.append(f"first on {device}")
        return Found(True, "as it should be")

    def second(_device: str) -> Found:
        asked.append(f"second after {[*json.loads(path.read_text())]}")
        raise RuntimeError("no memory")

    parts = {"first": first, "second": second}
    assert gpu.run([], "cuda", path, parts, 60) == 1
    assert asked == ["first on cuda", "second after ['first']"]
    assert "| second | **no** | RuntimeError: no memory | 0 |" in capsys.readouterr().out
    assert gpu.run([], "cuda", path, parts, 60) == 1
    assert len(asked) == 2
    assert gpu.run(["first"], "cuda", path, parts, 60) == 1
    assert asked[2:] == ["first on cuda"]


def test_after_its_time_no_part_begins(tmp_path, capsys):
    assert gpu.run([], "cuda", tmp_path / "table.json", {"first": lambda _: Found(True, "")}, -1) == 0
    assert "not tried in -1 s: first; the same command goes on with it" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("part", [name for name in PARTS if name != "compile"])
def test_each_part_can_be_rehearsed_on_the_cpu(part):
    if part == "fp16":
        pytest.skip("fp16 needs a GPU")
    found = PARTS[part]("cpu")
    assert found.holds is (None if part in ("strict", "memory", "utilization", "loops") else True)


def test_a_part_sees_bits_that_differ(monkeypatch):
    results = iter(["a" * 64, "b" * 64])
    monkeypatch.setattr("tests.gpu.parts.train", lambda *_, **__: {"chain": "c", "weights_sha256": next(results), "steps": 3})
    assert bits("cuda") == Found(False, "3 steps, weights aaaaaaaaaaaa and bbbbbbbbbbbb")
