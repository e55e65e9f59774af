"""A sample is found again where it came from: by file and line, by picture, or by its place in the task's own data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.task import Task

BASE: dict[str, Any] = {
    "name": "places",
    "batch_size": 2,
    "metric": {"name": "loss", "mode": "min"},
    "split": {"validation": 0.25, "test": 0.0},
}


def opened(root: Path, given: Task | None = None, **values: Any) -> OpenTask:
    return open_task(TrainingConfig.model_validate({**BASE, **values}), root, given)


def ids(found: OpenTask) -> list[int]:
    return [int(row) for split in ("train", "validation") for row in found.split(split).ids]


@pytest.mark.parametrize("image", [None, {"size": [8, 8]}], ids=["of one size", "brought to a size"])
def test_a_picture_is_told_by_its_file(tmp_path, image):
    grey = {f"{name}/{nr}.png": 20 * nr + 10 * place for nr in range(8) for place, name in enumerate(("cats", "dogs"))}
    for name, level in grey.items():
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), level, dtype=np.uint8)).save(tmp_path / "pets" / name)
    data = {"source": "pets", **({"image": image} if image else {})}
    found = opened(tmp_path, task={"kind": "image_classification"}, data=data, model={"name": "mlp", "hidden": [4]})
    for split in ("train", "validation"):
        samples = found.split(split)
        pixels = samples.tensors[0].float()
        for row, image_pixels in zip(samples.ids, pixels if image else pixels * 255, strict=True):
            assert grey[found.place(int(row)).removeprefix("pets/")] == round(float(image_pixels.mean()))


def test_a_text_is_told_by_file_and_line(tmp_path):
    rows = [{"text": "" if nr == 3 else f"text number {nr}", "kind": "ab"[nr % 2]} for nr in range(20)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"source": "texts.jsonl", "target": "kind"}
    found = opened(tmp_path, task={"kind": "text_classification"}, data=data, model={"name": "bag"})
    assert len(ids(found)) == 19
    for row in ids(found):
        line = int(found.place(row).removeprefix("texts.jsonl:"))
        assert found.cells(row) == {"text": rows[line - 1]["text"]}


def test_a_window_of_a_text_is_told_by_its_block(tmp_path):
    (tmp_path / "book.txt").write_text("It was a bright cold day in April.\n" * 60)
    tokens = {"kind": "char", "length": 16}
    data = {"source": "book.txt", "tokens": tokens}
    found = opened(tmp_path, task={"kind": "text_generation"}, data=data, model={"name": "transformer"})
    first = int(found.split("validation").ids[0])
    assert found.place(first) == "book.txt, validation, window 0"
    assert found.cells(int(found.split("train").ids[1]))["text"] == ("It was a bright cold day in April.\n" * 2)[16:33]


class Split(Task):
    def dataset(self, split: str) -> tuple[Tensor, Tensor] | None:
        count = {"train": 6, "validation": 4, "test": 0}[split]
        return (torch.rand(count, 2), torch.zeros(count)) if count else None


def test_a_sample_of_ones_own_split_is_told_by_its_place_in_it(tmp_path):
    found = opened(tmp_path, Split(), task={"use": "nowhere:Split"})
    assert [found.place(int(found.split(split).ids[2])) for split in ("train", "validation")] == [
        "sample 2 of dataset('train')",
        "sample 2 of dataset('validation')",
    ]
    assert found.cells(0) == {}
