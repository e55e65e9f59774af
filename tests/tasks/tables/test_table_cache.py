import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.tasks import sources
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.tables import columns, files, table_cache

ROWS = [f"{i % 37}.5,{'xyz'[i % 3]},2020-01-{1 + i % 28:02d},good words number {i},{'ab'[i * i % 3 % 2]}" for i in range(90)]


@pytest.fixture
def opened(config, tmp_path, monkeypatch):
    """Open a table that counts as large, in a project."""
    monkeypatch.setattr(sources, "FAST_FROM", 0)
    monkeypatch.setattr(files, "FAST_FROM", 0)
    (tmp_path / "mltrainer.yaml").write_text("name: x\n")
    (tmp_path / "t.csv").write_text("\n".join(["n,c,d,w,t", *ROWS]) + "\n")
    data = {"source": "t.csv", "target": "t", "columns": {"d": "date", "w": "text"}}
    return lambda: open_task(config(data=data, batch_size=4), tmp_path)


def same(one, other):
    left, right = one.split("train").tensors, other.split("train").tensors
    return all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(left, right, strict=True))


def refuse(*_):
    raise AssertionError("the table was read again")


def test_a_second_process_reads_no_cell(opened, monkeypatch):
    first = opened()
    told = first.facts(DataLimits())
    monkeypatch.setattr(sources, "_table", refuse)
    monkeypatch.setattr(columns, "encode_texts", refuse)
    second = opened()
    assert same(first, second)
    assert second.data_sha256 == first.data_sha256
    assert second.facts(DataLimits()) == told


def test_what_is_kept_has_the_digest_and_the_rows_of_what_is_read_each_time(opened, monkeypatch):
    with_it = opened()
    monkeypatch.setattr(sources, "FAST_FROM", 1 << 30)
    without = opened()
    assert same(with_it, without)
    assert with_it.data_sha256 == without.data_sha256


@pytest.mark.parametrize("part", ["values.npy", "texts.json", "lookup.npy", "table.json", "json"])
def test_what_is_damaged_is_read_anew(opened, tmp_path, part):
    first = opened()
    files = [path for path in (tmp_path / ".mltrainer/tables").rglob(f"*{part}") if path.stat().st_size]
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
    assert same(first, opened())
    for path in files:
        path.unlink(missing_ok=True)
    assert same(first, opened())


def test_a_changed_file_is_another_table_and_the_old_one_goes(opened, tmp_path):
    first = opened()
    (tmp_path / "t.csv").write_text("\n".join(["n,c,d,w,t", *ROWS[::-1]]) + "\n")
    second = opened()
    assert second.data_sha256 != first.data_sha256
    assert len(list((tmp_path / ".mltrainer/tables").iterdir())) == 1


def test_a_disk_that_takes_nothing_costs_no_run(opened, tmp_path):
    (tmp_path / ".mltrainer").mkdir()
    (tmp_path / ".mltrainer/tables").write_text("a file in the way")
    assert len(opened().split("train")) > 0


def test_a_fault_in_the_file_is_told_by_line_also_from_what_is_kept(opened, tmp_path):
    opened()
    table = sources.read_source(sources.Data(source="t.csv", target="t"), tmp_path).content
    assert isinstance(table.columns, table_cache.LazyColumns)
    assert table.where(3) == "t.csv:5"
    assert np.array_equal(table.rows, np.arange(2, 92))
