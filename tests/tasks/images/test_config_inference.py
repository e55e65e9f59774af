"""What `init` makes of pictures."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import ProjectConfig
from mltrainer.errors import InputError
from mltrainer.tasks.images.config_inference import channels, holds_pictures, infer_pictures


def paint(path: Path, width: int, height: int, mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (width, height)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of two grey pictures each, 28x28."""
    for name in ("cats/a", "cats/b", "dogs/c", "dogs/d"):
        paint(tmp_path / "pics" / f"{name}.png", 28, 28)
    return tmp_path / "pics"


def test_a_folder_asks_for_a_stratified_classification_with_a_cnn(folder):
    found = infer_pictures(folder, "pics", None)
    values, told = found.values, found.notes
    config = validate_values(ProjectConfig, {"name": "x", **values}, "init")
    assert (config.task.kind, config.split.stratify, config.model.name) == ("image_classification", True, "cnn")
    assert values["data"] == {"source": "pics", "image": {"size": [28, 28], "fit": "resize", "colour": "grey"}}
    assert told[:2] == [
        "4 pictures in 2 classes: image_classification, stratified, with a small CNN",
        "all have 28x28 pixels",
    ]


def test_sizes_that_differ_are_brought_to_one_and_told(folder):
    paint(folder / "cats/wide.png", 400, 100, "RGB")
    found = infer_pictures(folder, "pics", None)
    values, told = found.values, found.notes
    assert values["data"]["image"] == {"size": [32, 32], "fit": "pad", "colour": "rgb"}
    assert "28 to 100 pixels high and 28 to 400 wide: brought to 32x32 (pad)" in told[1]


def test_photographs_are_brought_to_a_small_size(tmp_path):
    for kind in ("a", "b"):
        paint(tmp_path / kind / "1.jpg", 3024, 2016)
    assert infer_pictures(tmp_path, "pics", None).values["data"]["image"]["size"] == [88, 128]


@pytest.mark.parametrize(("third", "metric"), [(False, "average_precision"), (True, "f1_macro")])
def test_imbalanced_classes_are_measured_by_what_suits_them(folder, third, metric):
    for number in range(30):
        paint(folder / "cats" / f"{number}.png", 28, 28)
        if third:
            paint(folder / "owls" / f"{number}.png", 28, 28)
    found = infer_pictures(folder, "pics", None)
    values, told = found.values, found.notes
    assert values["metric"] == {"name": metric, "mode": "max"}
    assert "cats has 32 pictures, dogs 2" in told[2]
    assert "class_weights=balanced" in told[2]


@pytest.mark.parametrize("name", ["l.csv", "l.jsonl"])
def test_a_table_of_paths_is_known_from_its_head(folder, name):
    rows = [("pics/cats/a.png", "cat"), ("pics/dogs/c.png", "dog")] * 2
    csv = "\n".join(["file,kind", *(",".join(row) for row in rows)])
    lines = "\n".join(f'{{"file": "{file}", "kind": "{kind}"}}' for file, kind in rows)
    path = folder.parent / name
    path.write_text(csv if name.endswith("csv") else lines)
    assert holds_pictures(path)
    assert infer_pictures(path, name, "kind").values["data"]["target"] == "kind"


@pytest.mark.parametrize("text", ["size,kind\n1,2\n", "", "a,b\n1\n"])
def test_another_table_is_none_of_pictures(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    assert not holds_pictures(tmp_path / "t.csv")


def test_a_folder_of_damaged_files_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.png").write_bytes(b"x")
    with pytest.raises(InputError, match="none of these files is readable"):
        infer_pictures(tmp_path, "pics", None)


@pytest.mark.parametrize("side", [8, 28, 64, 128])
def test_the_cnn_leaves_some_pixels_to_look_at(side):
    left = side // 2 ** len(channels([side, side]))
    assert 3 <= left <= 8 if side > 8 else left == 4
    assert np.all(np.diff(channels([side, side])) > 0)
