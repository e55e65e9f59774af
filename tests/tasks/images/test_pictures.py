"""Pictures of any size and colour mode become the same pixels in training and in the delivered script, once."""

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mltrainer import workspace
from mltrainer.checkpointing import inference_script as script
from mltrainer.configs.items import DataLimits
from mltrainer.errors import InputError
from mltrainer.gates.digests import FileDigests
from mltrainer.tasks.images import pictures
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.workspace import PROJECT_FILE, Project
from tests.refusals import refused

Sides = tuple[int, int]


def paint(path: Path, number: int, size: Sides = (12, 10), mode: str = "RGB", **options: Any) -> None:
    """Write a picture whose pixels depend on its number."""
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten cats and ten dogs of several sizes, modes and formats."""
    for number in range(20):
        suffix, mode = (("png", "RGB"), ("jpg", "L"), ("png", "P"), ("jpg", "CMYK"))[number % 4]
        paint(tmp_path / "pics" / ("cats", "dogs")[number % 2] / f"{number:02}.{suffix}", number, (12 + number, 10), mode)
    return tmp_path


@pytest.fixture
def opened(config: Any) -> Any:
    """Opens the pictures of a folder at 8x6 pixels; keyword arguments change `data.image`, and `source` and `target` the rest."""

    def make(root: Path, source: str = "pics", target: str | None = None, **image: Any) -> OpenTask:
        data = {"source": source, "target": target, "image": {"size": [8, 6], **image}}
        return open_task(config(task={"kind": "image_classification"}, data=data, batch_size=2), root)

    return make


@pytest.mark.parametrize("fit", ["resize", "crop", "pad"])
@pytest.mark.parametrize("colour", ["rgb", "grey"])
def test_the_delivered_script_reads_the_pixels_that_were_trained_on(folder, opened, fit, colour):
    task = opened(folder, fit=fit, colour=colour)
    spec = json.loads(json.dumps(task.task.inference()))
    paths = script.pictures_in(folder / "pics")
    found = script.read_pictures(paths, spec)
    train = task.split("train")
    assert train.tensors[0].numpy().dtype == found.dtype == np.uint8
    assert np.array_equal(train.tensors[0].numpy(), found[train.ids])


def test_the_delivered_script_names_each_picture_of_a_folder(folder, opened, monkeypatch):
    spec = opened(folder).task.inference()
    monkeypatch.setattr(script, "open_model", lambda _: lambda x: np.stack([x.mean((1, 2, 3)), np.zeros(len(x))], axis=1))
    found = list(script.answered(folder / "pics", spec))
    assert [row["file"] for row in found[:2]] == ["cats/00.png", "cats/02.png"]
    (one,) = script.answered(folder / "pics/cats/02.png", spec)
    assert one == {**found[1], "file": "02.png"}


def test_plain_models_get_the_pixels_as_shares_of_white(folder, opened):
    task = opened(folder)
    train = task.split("train")
    plain = task.task.reference_inputs(train.ids)
    assert np.allclose(plain.inputs, train.tensors[0].flatten(1).numpy() / 255)


@pytest.mark.parametrize(("fit", "black"), [("resize", 0), ("crop", 0), ("pad", 6)])
def test_a_wide_picture_is_stretched_cut_or_padded(fit, black):
    found = np.asarray(script.fitted(Image.new("L", (40, 10), 200), (8, 8), fit))
    assert found.shape == (8, 8)
    assert (found.max(axis=1) == 0).sum() == black


def test_cutting_keeps_the_middle():
    wide = np.zeros((10, 30), dtype=np.uint8)
    wide[:, 10:20] = 200
    assert np.asarray(script.fitted(Image.fromarray(wide), (10, 10), "crop")).min() == 200


def test_a_picture_taken_sideways_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(np.repeat([[0, 255]], 2, axis=0).astype(np.uint8)).resize((64, 64), 0).save(file, "PNG", exif=exif)
    upright = script.picture(file.getvalue(), (64, 64), "resize", True)[0]
    assert (upright[0].max(), upright[-1].min()) == (0, 255)


def test_sixteen_bits_keep_their_upper_eight():
    file = io.BytesIO()
    Image.fromarray(np.full((4, 4), 0x8123, dtype=np.uint16)).save(file, "PNG")
    assert (script.picture(file.getvalue(), (4, 4), "resize", True) == 0x81).all()


def test_a_large_photograph_works(tmp_path):
    Image.new("RGB", (3024, 3024), (10, 200, 30)).save(tmp_path / "large.jpg")
    found = script.picture((tmp_path / "large.jpg").read_bytes(), (16, 16), "resize", False)
    assert abs(found.reshape(3, -1).mean(axis=1) - [10, 200, 30]).max() < 3


def test_the_order_does_not_depend_on_the_threads(folder, config):
    listed = pictures.list_pictures(folder / "pics", "pics", None, None)
    image = pictures.Image(size=[8, 6])
    one, many = (pictures.decode(listed, image, np.zeros((20, 3, 8, 6), np.uint8), threads) for threads in (1, 4))
    assert (one.sha256, one.digests) == (many.sha256, many.digests)


# --- tables of paths ----------------------------------------------------------------------------


def test_a_table_of_paths_gives_the_same_pictures(folder, opened):
    lines = [
        f"pics/{kind}s/{path.name},{kind}" for kind in ("cat", "dog") for path in sorted((folder / f"pics/{kind}s").iterdir())
    ]
    (folder / "labels.csv").write_text("\n".join(["file,kind", *lines, "pics/cats/00.png,"]))
    task, whole = opened(folder, "labels.csv", "kind"), opened(folder)
    assert np.array_equal(task.split("train").tensors[0], whole.split("train").tensors[0])
    assert task.task.classes == ["cat", "dog"]
    assert [row["path"] for row in task.facts(DataLimits())["files"]][:2] == ["labels.csv", "pics/cats/00.png"]


@pytest.mark.parametrize(
    ("cell", "message"),
    [("../outside.png", "leads out of the table's folder"), ("pics/none.png", "pics/none.png: no such file")],
)
def test_a_path_that_leads_elsewhere_is_refused(folder, opened, cell, message):
    (folder / "labels.csv").write_text(f"file,kind\npics/cats/00.png,cat\n{cell},dog\n")
    with pytest.raises(InputError, match=message):
        opened(folder, "labels.csv", "kind")


def test_a_table_with_two_columns_of_pictures_asks_for_one(folder, opened):
    (folder / "labels.csv").write_text("a,b,kind\nx.png,y.png,cat\n")
    with pytest.raises(InputError, match=r"data.image.column; the table has a, b, kind"):
        opened(folder, "labels.csv", "kind")


# --- faults -------------------------------------------------------------------------------------


def test_damaged_files_are_named_and_left_out_on_request(folder, opened):
    (folder / "pics/cats/02.png").write_bytes(b"\x89PNG torn")
    with pytest.raises(InputError, match=r"1 of 20 files are not readable as images: pics/cats/02.png"):
        opened(folder)
    facts = opened(folder, damaged="leave_out").facts(DataLimits())
    assert facts["samples"] == 19
    assert any("1 files that are no pictures were left out: pics/cats/02.png" in row["what"] for row in facts["findings"])


def test_unequal_sizes_without_the_key_ask_for_it(folder, config):
    with refused(hint="data: {image: {size: [64, 64]}}"):
        open_task(config(task={"kind": "image_classification"}, data={"source": "pics"}), folder)


def test_lost_colours_are_told(folder, opened):
    found = opened(folder, colour="grey").facts(DataLimits())["findings"]
    assert any("15 pictures in colour were made grey" in row["what"] for row in found)


def test_a_harmless_warning_of_pillow_is_no_fault(folder):
    with warnings.catch_warnings():
        script.refuse_bombs()
        warnings.warn("Palette images with transparency", stacklevel=1)


# --- the project's copy -------------------------------------------------------------------------


@pytest.fixture
def kept(folder: Path, opened: Any) -> Path:
    (folder / PROJECT_FILE).touch()
    opened(folder)
    return folder


def test_pictures_are_decoded_once(kept, opened, monkeypatch):
    first = opened(kept)
    monkeypatch.setattr(pictures, "decode", None)
    assert opened(kept).data_sha256 == first.data_sha256
    assert opened(kept).facts(DataLimits())["files"] == first.facts(DataLimits())["files"]


def test_a_changed_file_is_decoded_again(kept, opened):
    before = opened(kept).data_sha256
    paint(kept / "pics/cats/00.png", 99)
    assert opened(kept).data_sha256 != before


def test_a_damaged_copy_is_made_again(kept, opened):
    (copy,) = (kept / ".mltrainer" / pictures.STORE).glob("*.npy")
    raw = bytearray(copy.read_bytes())
    raw[-1] ^= 1
    expected = opened(kept).data_sha256
    copy.write_bytes(raw)
    assert opened(kept).data_sha256 == expected


def test_a_copy_that_finds_no_room_is_done_without(folder, opened, monkeypatch):
    expected = opened(folder).data_sha256
    (folder / PROJECT_FILE).touch()
    monkeypatch.setattr(pictures, "_room", lambda *_: None)
    assert opened(folder).data_sha256 == expected
    assert not list(folder.glob(".mltrainer/**/*.npy"))


# --- many pictures ------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["pics", "labels.csv"])
def test_many_pictures_are_one_row_of_the_record_which_the_gate_finds_again(folder, opened, source, monkeypatch):
    lines = [f"{path.relative_to(folder)},{path.parent.name}" for path in script.pictures_in(folder / "pics")]
    (folder / "labels.csv").write_text("\n".join(["file,kind", *lines]))
    monkeypatch.setattr(pictures, "ONE_BY_ONE", 10)
    row = opened(folder, source, "kind").facts(DataLimits())["files"][-1]
    assert (row["path"], row["size"]) == ("pics", sum(path.stat().st_size for path in script.pictures_in(folder / "pics")))
    digests = FileDigests(Project(folder))
    assert digests.of(folder / "pics") == row["sha256"]
    paint(folder / "pics/cats/00.png", 99)
    assert digests.of(folder / "pics") != row["sha256"]
    (folder / "pics/cats/00.png").unlink()
    assert digests.of(folder / "pics") != row["sha256"]


def test_what_counts_as_a_picture_is_the_same_everywhere():
    assert script.PICTURES == workspace.PICTURES


def test_a_path_is_the_same_however_it_is_written(folder, opened):
    (folder / "labels.csv").write_text("file,kind\n" + "./pics/../pics/cats/00.png,cat\npics/dogs/01.jpg,dog\n" * 5)
    assert opened(folder, "labels.csv", "kind").facts(DataLimits())["files"][1]["path"] == "pics/cats/00.png"
