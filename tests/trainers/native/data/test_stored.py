"""Records that stay in their files: one order and one chain with any loader processes, ranks and stops, and nothing unseen."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MltrainerError
from mltrainer.records.job import TrainingJob
from mltrainer.reproducibility import seeds
from mltrainer.runs.launcher import Placement, launch
from mltrainer.tasks.ids import IdRange
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.splits import SPLITS
from mltrainer.tasks.stored.row_groups import RowGroups
from mltrainer.tools.program import explained
from mltrainer.trainers.native.data.addresses import plan_for, training_steps
from mltrainer.workspace import Project, read_json, seal, write_json
from tests.refusals import refused
from tests.trainers.native.digits_runs import job, train

TASK = '''
import numpy as np
import torch
from torch import nn
import mltrainer


class Language(mltrainer.Task):
    """Guesses the next token."""

    def model(self):
        return nn.Sequential(nn.Embedding(64, 8), nn.Dropout(0.1), nn.Linear(8, 64))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(-1) == targets).float().mean().item()}


class Rows(mltrainer.Task):
    """Tells by four numbers which of two classes a row has; each is moved a little whenever it is read."""

    def sample(self, record):
        if isinstance(record, tuple):
            x, y = record
        elif "cls" in record:
            x, y = np.frombuffer(record["x.bin"]), record["cls"]
        else:
            x, y = record["x"], record["y"]
            assert "note" not in record
        return np.float32(x) + np.float32(np.random.normal(0, 0.01, 4)), int(y)

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
'''
TOKENS: dict[str, Any] = {
    "task": {"use": "digits_task:Language"},
    "data": {"source": "tokens.bin", "tokens": {"length": 16}},
    "split": {"validation": 0.1, "test": 0.1},
    "epochs": 2,
}
ROWS = {**TOKENS, "task": {"use": "digits_task:Rows"}, "data": {"source": "x.npy"}}
TABLES = {**ROWS, "data": {"source": "rows/*.parquet", "ignore": ["note"]}}
SHARDS = {**ROWS, "data": {"source": "shards/{00..02}.tar"}}
EACH = {"tokens": TOKENS, "arrays": ROWS, "parquet": TABLES, "tar": SHARDS}
each_kind = pytest.mark.parametrize("values", EACH.values(), ids=EACH)


def project(root: Path, tokens: int = 4000) -> Path:
    """Write a project with a file of tokens, and one of rows with their labels."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "digits_task.py").write_text(TASK)
    generator = np.random.default_rng(0)
    generator.integers(0, 64, tokens, dtype=np.uint16).tofile(root / "tokens.bin")
    x = generator.normal(size=(200, 4))
    np.save(root / "x.npy", x)
    np.save(root / "y.npy", (x[:, 0] > 0).astype(np.int64))
    write_tables(root / "rows", x)
    write_shards(root / "shards", x)
    return root


def write_tables(folder: Path, x: np.ndarray) -> None:
    """Write rows as three Parquet files of several row groups."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(x, 3)):
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), 4)
        notes = pa.array(["a note"] * len(part))
        table = pa.table({"x": vectors, "y": pa.array((part[:, 0] > 0).astype(np.int64)), "note": notes})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=20)


def write_shards(folder: Path, x: np.ndarray) -> None:
    """Write rows as three tar files, a sample in two files each."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(x, 3)):
        with tarfile.open(folder / f"{number:02}.tar", "w") as archive:
            for row, cells in enumerate(part):
                for ending, data in (("x.bin", cells.tobytes()), ("cls", str(int(cells[0] > 0)).encode())):
                    member = tarfile.TarInfo(f"{number}/{row:04}.{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def config(values: dict[str, Any], **changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {"name": "stored", "metric": {"name": "accuracy", "mode": "max"}, "batch_size": 8, **values, **changes}
    )


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what opens a config's task in a project; no module of it stays."""

    def open_(values: dict[str, Any], **changes: Any) -> OpenTask:
        monkeypatch.syspath_prepend(str(tmp_path))
        sys.modules.pop("digits_task", None)
        return open_task(config(values, **changes), tmp_path)

    yield open_
    sys.modules.pop("digits_task", None)


def read_all(samples: Samples) -> None:
    for position in range(len(samples)):
        samples.read(0, "sample", 0, position)


@pytest.mark.parametrize("values", [TOKENS, *(pytest.param(one, marks=pytest.mark.slow) for one in (TABLES, ROWS, SHARDS))])
def test_loader_processes_and_stops_change_no_bit(tmp_path, values):
    straight = train(project(tmp_path / "straight"), **values)
    stopped = train(project(tmp_path / "stopped"), stops=(3, 9), workers=(2, 0, 2), **values)
    assert stopped["chain"] == straight["chain"]
    assert stopped["weights_sha256"] == straight["weights_sha256"]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_record_of_which_no_sample_can_be_made_is_named(tmp_path, workers):
    (project(tmp_path) / "digits_task.py").write_text(TASK.replace('record["y"]', 'record["label"]'))
    with pytest.raises(MltrainerError) as caught:
        train(tmp_path, workers=(workers,), **TABLES)
    said = str(caught.value)
    assert "KeyError: 'label'" in said
    assert re.search(r"of the record rows/\d\.parquet:\d+, which has x, y", said)


def test_an_id_for_which_the_model_has_no_row_is_no_fault_of_ours(tmp_path):
    tokens = np.fromfile(project(tmp_path) / "tokens.bin", dtype=np.uint16)
    tokens[2000] = 999
    tokens.tofile(tmp_path / "tokens.bin")
    with pytest.raises(IndexError) as caught:
        train(tmp_path, **TOKENS)
    found = explained(caught.value, tmp_path, tmp_path)
    assert found.exit_code == 1
    assert "the model does not fit the data: forward raised IndexError: index out of range" in found.message
    assert "such as ids for which an embedding has no row; the traceback is in crash.txt" in str(found.hint)
    assert "embedding" in (tmp_path / "crash.txt").read_text()


@each_kind
def test_splits_hold_all_records_once_each(tmp_path, opened, values):
    project(tmp_path)
    task = opened(values)
    task.open_test()
    ids = [np.asarray(task.split(name).ids) for name in SPLITS]
    total = sum(map(len, ids))
    assert np.array_equal(np.sort(np.concatenate(ids)), np.arange(total))
    assert total == ((3200 - 1) // 16 + 2 * ((400 - 1) // 16) if values is TOKENS else 200)
    assert [round(len(part) / total, 1) for part in ids] == [0.8, 0.1, 0.1]


def test_windows_are_those_of_the_file_and_blocks_share_none(tmp_path, opened):
    tokens = np.fromfile(project(tmp_path) / "tokens.bin", dtype=np.uint16).astype(np.int64)
    task = opened(TOKENS)
    train_split, held_out = task.split("train"), task.split("validation")
    first, moved = train_split.read(0, "sample", 0, 3)
    assert np.array_equal(first, tokens[48:64])
    assert np.array_equal(moved, tokens[49:65])
    assert np.array_equal(held_out.read(0, "sample", 0, 0)[0], tokens[3200:3216])
    assert len(train_split) * 16 < 3200
    assert "token 3200" in task.place(int(held_out.ids[0]))


def test_a_file_that_changes_under_a_run_is_named_and_not_trained(tmp_path, opened):
    samples = opened(TOKENS, data={**TOKENS["data"], "source": str(project(tmp_path) / "tokens.bin")}).split("train")
    samples.read(0, "sample", 0, 0)
    with open(tmp_path / "tokens.bin", "r+b") as file:
        file.write(b"\x01")
    with refused(r"tokens\.bin changed: bytes 0 to 262143", hint="planning"):
        samples.read(0, "sample", 0, 0)
    with refused(r"tokens\.bin changed", hint="planning"):
        list(training_steps(samples, plan_for(config(TOKENS), samples), config(TOKENS), 0))


def test_a_file_that_was_changed_before_has_another_digest(tmp_path, opened):
    path, before = project(tmp_path) / "tokens.bin", opened(TOKENS).data_sha256
    assert opened(TOKENS).data_sha256 == before
    stat = path.stat()
    with open(path, "r+b") as file:
        file.write(b"\x3f")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # what a careless copy keeps
    assert opened(TOKENS).data_sha256 != before


def test_a_damaged_manifest_is_made_anew(tmp_path, opened):
    project(tmp_path)
    before = opened(TOKENS).data_sha256
    (kept,) = (tmp_path / ".mltrainer/manifests").iterdir()
    kept.write_text(kept.read_text().replace('"size": 8000', '"size": 800'))
    assert opened(TOKENS).data_sha256 == before


def reads_of(samples: Samples, values: TrainingConfig, monkeypatch: pytest.MonkeyPatch, rank: int, ranks: int) -> set[int]:
    """Return the records that one of several processes reads in the first steps."""
    found: set[int] = set()
    read = type(samples.dataset).__getitem__

    def noted(part: Any, position: int) -> Any:
        found.add(position)
        return read(part, position)

    monkeypatch.setattr(type(samples.dataset), "__getitem__", noted)
    steps = training_steps(samples, plan_for(values, samples), values, 0, lambda count: range(count)[rank::ranks])
    for _ in range(3):
        next(steps)
    monkeypatch.undo()
    return found


def test_a_rank_reads_its_own_records_alone(tmp_path, opened, monkeypatch):
    project(tmp_path)
    values = config(ROWS, accumulate=2)
    samples = opened(ROWS).split("train")
    whole = reads_of(samples, values, monkeypatch, 0, 1)
    parts = [reads_of(samples, values, monkeypatch, rank, 2) for rank in range(2)]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == whole
    assert len(whole) == 3 * 16


@pytest.mark.slow
def test_two_processes_that_share_a_step_give_the_bits_of_one(tmp_path):
    shared = {**TABLES, "accumulate": 2}
    one = train(project(tmp_path / "one"), **shared)
    work = TrainingJob.model_validate(job(shared))
    launch(Project(project(tmp_path / "two")), "training_orchestrator", work, lambda _: None, placement=Placement(2))
    two = read_json(tmp_path / "two" / work.folder / "result.json")
    assert (two["chain"], two["weights_sha256"]) == (one["chain"], one["weights_sha256"])


def test_what_cannot_be_is_refused_with_the_key(tmp_path, opened):
    project(tmp_path)
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    np.save(tmp_path / "column.npy", np.asfortranarray(np.ones((4, 3))))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"data": {"source": "tokens.bin"}}, "number of those of a sample"),
        ({"data": {"source": "none.bin", "tokens": {"length": 16}}}, "no such file"),
        ({"data": {"source": "*.nothing"}}, "no file is found"),
        ({"data": {"source": "digits_task.py"}}, r"holds \.py"),
        ({"data": {"source": "short.npy"}}, "do not hold"),
        ({"data": {"source": "column.npy"}}, "column by column"),
        ({"data": {"source": "objects.npy"}}, "rows of numbers"),
        ({"split": {"folds": 3}}, "not split by it"),
        ({"data": {"source": "tokens.bin", "tokens": {"length": 3000}}}, "a split is empty"),
        ({"data": {"source": "x.npy", "tokens": {"length": 16}}}, "one row of token ids"),
    ]
    for changes, said in cases:
        with pytest.raises(InputError, match=said):
            opened(TOKENS, **changes)


def header(values: str, numbers: int = 0) -> bytes:
    """Return a .npy file with a header as it is given."""
    return b"\x93NUMPY\x01\0" + len(values).to_bytes(2, "little") + values.encode() + bytes(8 * numbers)


HEADERS = {
    "negative": header("{'descr': '<f8', 'fortran_order': False, 'shape': (-10, -1)}", 10),
    "more than memory": header("{'descr': '<f8', 'fortran_order': False, 'shape': (2**32, 4)}".replace("2**32", str(2**62))),
    "nothing": header("{'descr': '|V0', 'fortran_order': False, 'shape': (100,)}"),
    "arrays": header("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (100,)}", 100),
    "texts as shape": header("{'descr': '<f8', 'fortran_order': False, 'shape': ('10', '2')}", 20),
    "brackets": header("[" * 9000),
    "no dict": header("{1}"),
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS)
def test_a_header_that_lies_is_refused(tmp_path, opened, content):
    (project(tmp_path) / "rows.npy").write_bytes(content)
    with refused(where="rows.npy"):
        opened(ROWS, data={"source": "rows.npy"})


class Planted:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("unpickled"),)


def test_nothing_is_unpickled(tmp_path, opened, monkeypatch):
    monkeypatch.chdir(project(tmp_path))
    np.save("rows.npy", np.array([Planted()] * 50, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"an array .* of object"):
        opened(ROWS, data={"source": "rows.npy"})
    assert not Path("unpickled").exists()


def test_only_an_array_named_x_has_labels_beside_it(tmp_path, opened):
    project(tmp_path)
    for name in ("matrix.npy", "train_x.npy", "few_x.npy"):
        np.save(tmp_path / name, np.load(tmp_path / "x.npy"))
    np.save(tmp_path / "train_y.npy", np.load(tmp_path / "y.npy"))
    assert isinstance(opened(ROWS, data={"source": "train_x.npy"}).split("train").dataset.records.read(0, 0), tuple)
    far = opened(ROWS, data={"source": f"file://{tmp_path}/x.npy"})
    assert isinstance(far.split("train").dataset.records.read(0, 0), tuple)
    assert opened(ROWS).data_sha256 == far.data_sha256
    assert isinstance(opened(ROWS, data={"source": "matrix.npy"}).split("train").dataset.records.read(0, 0), np.ndarray)
    with refused("its labels are expected beside it", where="few_y.npy"):
        opened(ROWS, data={"source": "few_x.npy"})


def test_a_path_that_is_no_file_is_named(tmp_path, opened):
    project(tmp_path)
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "circle.bin").symlink_to("circle.bin")
    for source, said in (
        ("pipe.bin", "a pipe or a device"),
        ("circle.bin", "no such file: Too many levels"),
        ("a\0b.bin", "no such file: .*embedded null"),
        ("x" * 300 + ".bin", "no such file: File name too long"),
        ("row", "no such file"),
        ("{0..999999}{0..9}.bin", "10,000,000 files"),
        ("zip://a.bin::file:///a.zip", "several steps"),
        ("none://a.bin", "Protocol not known"),
        ("http://127.0.0.1:9/a.bin", "fsspec failed with ClientConnectorError"),
        ("ftp://127.0.0.1:9/a.bin", "fsspec failed with ConnectionRefusedError"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            opened(TOKENS, data={**TOKENS["data"], "source": source})
        assert caught.value.where in (source, "data.source")


def test_records_of_one_split_are_in_no_other(tmp_path, opened):
    project(tmp_path)
    (tmp_path / "rows/copy.bin").write_bytes((tmp_path / "rows/2.parquet").read_bytes())
    (tmp_path / "rows/copy.bin").rename(tmp_path / "copy.parquet")
    for held, said in (("rows/1.parquet", r"rows/1\.parquet is also"), ("copy.parquet", r"copy\.parquet .* as rows/2\.parquet")):
        with refused(said, where="data.validation"):
            opened(TABLES, data={**TABLES["data"], "validation": held})
    for name, seed in (("a", 1), ("b", 2)):  # labels may be the same
        np.save(tmp_path / f"{name}_x.npy", np.random.default_rng(seed).normal(size=(50, 4)))
        np.save(tmp_path / f"{name}_y.npy", np.zeros(50, dtype=np.int64))
    assert len(opened(ROWS, data={"source": "a_x.npy", "validation": "b_x.npy"}).split("validation")) == 50


def test_a_split_has_a_source_of_its_own(tmp_path, opened):
    np.arange(500, dtype=np.uint16).tofile(project(tmp_path) / "held.bin")
    task = opened(TOKENS, data={**TOKENS["data"], "validation": "held.bin"}, split={"validation": 0.1, "test": 0.0})
    assert len(task.split("validation")) == 499 // 16
    assert len(task.split("train")) == 3999 // 16
    assert not set(np.asarray(task.split("train").ids)) & set(np.asarray(task.split("validation").ids))


def test_an_order_of_very_many_is_made_where_it_is_asked_for():
    count = 10**9
    order = seeds.addressed_order(7, 3, count)
    places = np.arange(123_456_789, 123_456_889)
    assert np.array_equal(order[123_456_789:123_456_889], seeds.positions_at(7, 3, count, places))
    assert np.array_equal(seeds.addressed_order(7, 3, 2**20 + 1)[5:9], seeds.epoch_order(7, 3, 2**20 + 1)[5:9])


def test_ids_of_very_many_are_computed():
    ids = IdRange(5, 10**12)
    assert ids[0] == 5
    assert ids[-1] == 10**12 - 1
    assert ids[10:13].tolist() == [15, 16, 17]
    assert ids[np.array([7, 2])].tolist() == [12, 7]


def test_an_order_visits_a_few_row_groups_at_a_time(tmp_path, opened, monkeypatch):
    monkeypatch.setattr("mltrainer.tasks.stored.records.WINDOW_BYTES", 3000)
    project(tmp_path)
    part = opened(TABLES).split("train").dataset
    first, second = (part.order(7, epoch)[:] for epoch in (0, 1))
    assert np.array_equal(np.sort(first), np.arange(len(part)))
    slots, later = (np.searchsorted(np.cumsum(part.counts), order, side="right") for order in (first, second))
    assert set(slots[:16].tolist()) != set(later[:16].tolist())  # another epoch begins with other slots
    assert slots[:8].tolist() != sorted(slots[:8].tolist())  # mixed with one another
    held = [len(set(slots[low : low + 16].tolist())) for low in range(0, len(slots) - 16, 16)]
    assert max(held) < len(part.counts) - 2
    assert np.array_equal(part.order(7, 0)[37:59], first[37:59])


def test_going_on_reads_no_row_group_that_was_done(tmp_path, opened, monkeypatch):
    monkeypatch.setattr("mltrainer.tasks.stored.records.WINDOW_BYTES", 1)
    project(tmp_path)
    values, samples, seen = config(TABLES), opened(TABLES).split("train"), list[int]()
    read = RowGroups._read_group
    monkeypatch.setattr(RowGroups, "_read_group", lambda one, slot: seen.append(slot) or read(one, slot))  # type: ignore[func-returns-value]
    plan = plan_for(values, samples)
    steps = list(training_steps(samples, plan, values, 0))
    whole, seen[:] = [*seen], []
    last = list(training_steps(samples, plan, values, plan.steps - 2))
    assert [step.ids.tolist() for step in last] == [step.ids.tolist() for step in steps[-2:]]
    assert len(seen) <= 3 < len(whole)
    assert len(whole) <= 2 * len(samples.dataset.counts)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "values"), [("rows/1.parquet", TABLES), ("shards/01.tar", SHARDS), ("x.npy", ROWS), ("y.npy", ROWS)]
)
def test_a_changed_file_is_named(tmp_path, opened, name, values):
    path = project(tmp_path) / name
    samples = opened(values).split("train")
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=name):
        read_all(samples)


def test_an_edited_index_of_a_shard_is_made_anew(tmp_path, opened):
    project(tmp_path)
    read_all(first := opened(SHARDS).split("train"))
    paths = sorted((tmp_path / ".mltrainer/tar_indexes").iterdir())
    kept = [path.read_bytes() for path in paths]
    found = read_json(paths[0])
    rows = found["samples"]
    rows[0][1], rows[1][1] = rows[1][1], rows[0][1]  # two samples change places
    write_json(paths[0], found)
    write_json(paths[1], seal({**found, "form": 0}))
    paths[2].write_bytes(kept[2][:100])
    samples = opened(SHARDS).split("train")
    for position in range(len(first)):
        one, other = (split.read(0, "sample", 0, position)[0] for split in (first, samples))
        assert one.tolist() == other.tolist()
    assert [path.read_bytes() for path in paths] == kept


@pytest.mark.slow
@pytest.mark.parametrize("values", [TABLES, SHARDS], ids=["parquet", "tar"])
@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_an_address_holds_what_a_folder_does(tmp_path, opened, values, scheme):
    folder = project(tmp_path) / Path(values["data"]["source"]).parent
    address = f"file://{folder}" if scheme == "file" else f"memory://{tmp_path.name}"
    store, there = fsspec.core.url_to_fs(address)
    if scheme == "memory":
        for path in folder.iterdir():
            store.pipe_file(f"{there}/{path.name}", path.read_bytes())
    here, far = opened(values), opened(values, data={**values["data"], "source": address})
    assert far.data_sha256 == here.data_sha256
    assert far.files == []
    one, other = (task.split("train") for task in (here, far))
    assert one.read(0, "sample", 0, 5)[0].tolist() == other.read(0, "sample", 0, 5)[0].tolist()
    path = store.ls(there, detail=False)[0]
    data = store.cat_file(path)
    store.pipe_file(path, data[:600] + bytes([data[600] ^ 1]) + data[601:])
    with pytest.raises(InputError, match="changed"):
        read_all(other)


def test_shards_that_are_none_are_refused(tmp_path, opened):
    project(tmp_path)
    whole = (tmp_path / "shards/00.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:700])
    (tmp_path / "text.tar").write_text("no archive" * 100)
    (tmp_path / "text.parquet").write_text("no table")
    parquet.write_table(pa.table({"other": [1] * 50}), tmp_path / "rows/9.parquet")
    for source, said in [("cut.tar", "cut.tar"), ("text.tar", "plain tar file"), ("text.parquet", "not readable as Parquet")]:
        with pytest.raises(InputError) as caught:
            opened(SHARDS, data={"source": source})
        assert said in f"{caught.value.where}: {caught.value.message}"
    samples = opened(TABLES).split("train")
    with pytest.raises(InputError, match=r"its columns are"):
        read_all(samples)


def packed(members: dict[str, tuple[bytes, bytes]]) -> bytes:
    """Return a tar file of members by name: their type and content."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, (kind, data) in members.items():
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(data), "/etc/passwd"
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def of_holes(path: Path) -> None:
    """Write a tar file of a file with holes, as `tar --sparse` packs it."""
    (path.parent / "0.x.bin").write_bytes(b"")
    os.truncate(path.parent / "0.x.bin", 1 << 20)
    subprocess.run(["tar", "-Scf", path.name, "0.x.bin"], cwd=path.parent, check=True)


def test_a_shard_of_which_samples_would_be_left_out_is_refused(tmp_path, opened):
    project(tmp_path)
    whole, block = (tmp_path / "shards/00.tar").read_bytes(), 512 * 40  # where a header stands
    for name, content, said in (
        ("cut", whole[: block + 100], f"cut off: no end of the archive at byte {block}"),
        ("damaged", whole[:block] + b"no header" * 57 + whole[block + 513 :], f"no header of a file at byte {block}"),
        ("hole", whole[:block] + bytes(512) + whole[block + 512 :], f"holds more after its end at byte {block}"),
        ("joined", whole + (tmp_path / "shards/01.tar").read_bytes(), "holds more after its end"),
        ("link", packed({"0.x.bin": (tarfile.REGTYPE, b"1"), "0.cls": (tarfile.SYMTYPE, b"")}), "'0.cls' is a link"),
        ("second", packed({"0.cls": (tarfile.REGTYPE, b"1"), "1.cls": (tarfile.LNKTYPE, b"")}), "'1.cls' is a link"),
    ):
        (tmp_path / f"{name}.tar").write_bytes(content)
        with refused(said, where=f"{name}.tar"):
            opened(SHARDS, data={"source": f"{name}.tar"})
    of_holes(tmp_path / "holes.tar")
    with pytest.raises(InputError, match="a sparse file"):
        opened(SHARDS, data={"source": "holes.tar"})


@pytest.mark.slow
def test_members_that_name_other_folders_are_keys_and_no_paths(tmp_path, opened):
    names = [f"../../etc/{number}.cls" for number in range(20)] + [f"/etc/{number}.cls" for number in range(20)]
    (project(tmp_path) / "odd.tar").write_bytes(packed(dict.fromkeys(names, (tarfile.REGTYPE, b"1"))))
    records = opened(SHARDS, data={"source": "odd.tar"}).split("train").dataset.records
    assert [records.read(0, row)["__key__"] for row in (0, 39)] == ["../../etc/0", "/etc/19"]
    named = [Path("/etc"), tmp_path.parents[1] / "etc"]
    assert not [path for folder in (tmp_path, *named) for path in folder.rglob("*.cls")]


def test_a_damaged_row_group_is_named(tmp_path, opened):
    path = project(tmp_path) / "rows/0.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(one ^ 0x5A for one in data[4:400])
    path.write_bytes(data)
    with refused(r"row group 0 is not readable as Parquet", where="rows/0.parquet"):
        read_all(opened(TABLES).split("train"))


def test_two_columns_of_one_name_are_refused_where_they_are_read(tmp_path, opened):
    project(tmp_path)
    columns = [pa.array([[0.0] * 4] * 50), pa.array([1] * 50), pa.array(["a"] * 50), pa.array(["b"] * 50)]
    parquet.write_table(pa.table(columns, names=["x", "y", "note", "note"]), tmp_path / "twice.parquet")
    read_all(opened(TABLES, data={"source": "twice.parquet", "ignore": ["note"]}).split("train"))
    with pytest.raises(InputError, match="two columns are called 'note'"):
        read_all(opened(TABLES, data={"source": "twice.parquet"}).split("train"))


MEASURED = """
import sys, time
from pathlib import Path
import psutil
from mltrainer.tasks.opening import open_task
from mltrainer.trainers.native.data.addresses import plan_for, training_steps
from tests.trainers.native.data.test_stored import TOKENS, config

name, workers, start = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
data = {"source": name, "tokens": {"length": 256}}
values = config(TOKENS, data=data, loader={"workers": workers}, split={"validation": 1e-3, "test": 0})
open_task(values, Path.cwd())  # makes the manifest, and imports
begun, before = time.monotonic(), psutil.Process().memory_info()
samples = open_task(values, Path.cwd()).split("train")
plan = plan_for(values, samples)
step = next(training_steps(samples, plan, values, int(start * plan.steps)))
taken, after = time.monotonic() - begun, psutil.Process().memory_info()
print(taken, (after.rss - after.shared) - (before.rss - before.shared), *step.ids)
"""


def measured(root: Path, name: str, workers: int, start: float) -> tuple[float, float, list[str]]:
    """Return the seconds to the first batch, the bytes that it took and its samples, in a process of its own."""
    command = [sys.executable, "-c", MEASURED, name, str(workers), str(start)]
    there = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[4]}:{root}"}
    done = subprocess.run(command, cwd=root, env=there, capture_output=True, text=True, check=True)
    seconds, size, *ids = done.stdout.split()
    return float(seconds), float(size), ids


@pytest.mark.slow
@pytest.mark.long
def test_a_billion_tokens_take_no_memory_and_begin_anywhere_at_once(tmp_path):
    for name, size in (("tiny.bin", 10**6), ("billion.bin", 2 * 10**9)):
        with open(project(tmp_path) / name, "wb") as file:
            file.truncate(size)
    _, tiny, _ = measured(tmp_path, "tiny.bin", 0, 0.0)
    for start in (0.0, 0.77):
        found = [measured(tmp_path, "billion.bin", workers, start) for workers in (0, 2)]
        assert found[0][2] == found[1][2]
        for seconds, size, _ in found:
            assert size - tiny < 50e6
            assert seconds < 5  # about 1 s on a machine that does nothing else
