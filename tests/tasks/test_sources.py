import builtins
import gzip
import re
import subprocess
import sys

import numpy as np
import polars
import pytest
from sklearn.datasets import load_digits

from mltrainer.checkpointing import inference_script
from mltrainer.configs.project import Data
from mltrainer.errors import InputError
from mltrainer.tasks.content import Table, content_sha256
from mltrainer.tasks.sources import read_source, table_of
from mltrainer.tasks.tables import files
from mltrainer.workspace import sha256_file


def read(folder, name, content=None):
    if content is not None:
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    return read_source(Data(source=name), folder)


def test_digits_are_scikit_learns_images_over_16(tmp_path):
    content = read(tmp_path, "sklearn:digits").content
    assert content.x.shape == (1797, 1, 8, 8)
    assert content.x.dtype == np.float32
    assert np.array_equal(content.x[:, 0] * 16, load_digits().images)
    assert np.array_equal(content.y, load_digits().target)


@pytest.mark.parametrize(
    ("name", "rows", "columns"), [("iris", 150, 5), ("wine", 178, 14), ("breast_cancer", 569, 31), ("diabetes", 442, 11)]
)
def test_built_in_tables_have_a_target_column(tmp_path, name, rows, columns):
    table = read(tmp_path, f"sklearn:{name}").content
    assert (len(table), len(table.columns)) == (rows, columns)
    assert "target" in table.columns


def test_an_unknown_built_in_set_names_the_nearest(tmp_path):
    with pytest.raises(InputError, match="did you mean 'sklearn:iris'"):
        read(tmp_path, "sklearn:irsi")


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"no such file.*did you mean 'data.csv'"):
        read(tmp_path, "dta.csv")


def test_an_unknown_kind_of_file_lists_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"expected a file of the kind .csv, .*, found '.docx'"):
        read(tmp_path, "data.docx", "x")


def test_files_are_listed_with_digest_and_size_relative_to_the_project(tmp_path):
    (tmp_path / "sub").mkdir()
    row = read(tmp_path, "sub/data.csv", "a,b\n1,2\n").files[0]
    assert row.model_dump() == {"path": "sub/data.csv", "sha256": sha256_file(tmp_path / "sub/data.csv"), "size": 8}


def test_a_csv_is_read_cell_by_cell(tmp_path):
    table = read(tmp_path, "d.csv", 'a,b\n1,"x, y"\n\n2,"two\nlines"\n3,z\n').content
    assert table.columns["b"].tolist() == ["x, y", "two\nlines", "z"]
    assert table.rows.tolist() == [2, 4, 6]


def test_a_byte_order_mark_is_dropped(tmp_path):
    assert list(read(tmp_path, "d.csv", b"\xef\xbb\xbfa,b\n1,2\n").content.columns) == ["a", "b"]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_are_seen_in_the_header(tmp_path, delimiter):
    assert list(read(tmp_path, "d.csv", f"a{delimiter}b\n1,5{delimiter}2\n").content.columns) == ["a", "b"]


FORMS = {  # how the rows of one table come, and what is said of it
    "cp1252": (
        "d.csv",
        "Größe;Preis, EUR;x\n1,5;2;ä\n".encode("cp1252"),
        "line 1 holds the byte 0xf6: it was read as Windows-1252",
    ),
    "UTF-16": ("d.tsv", "Größe\tPreis, EUR\tx\n1,5\t2\tä\n".encode("utf-16"), "is UTF-16"),
    "gzip": ("d.csv.gz", gzip.compress("Größe|Preis, EUR|x\n1,5|2|ä\n".encode()), None),
    "quoted": ("d.csv", '"Größe","Preis, EUR",x\n"1,5",2,ä\n'.encode(), None),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("least", [0, 1 << 20])
def test_a_table_is_the_same_in_every_form_and_to_the_delivered_script(tmp_path, monkeypatch, form, least):
    monkeypatch.setattr(files, "FAST_FROM", least)
    name, content, said = FORMS[form]
    source = read(tmp_path, name, content)
    rows = {name: list(cells) for name, cells in source.content.columns.items()}
    assert rows == {"Größe": ["1,5"], "Preis, EUR": ["2"], "x": ["ä"]}
    assert [said is None or said in note for note in source.notes] == [True] * (said is not None)
    assert inference_script.read_rows(tmp_path / name) == [{name: cells[0] for name, cells in rows.items()}]


@pytest.mark.parametrize(
    ("text", "header", "cells"),
    [
        ("a,b;c\n1,2;3\n", True, ["1", "2;3"]),
        ("a;b, c;d\n1,5;2;3\n", True, ["1,5", "2", "3"]),
        ("1,5;2,5;3,5\n1,5;2,5;3,5\n", False, ["1,5", "2,5", "3,5"]),
        ("a\n1\n", True, ["1"]),
    ],
)
def test_what_stands_between_cells_is_found(tmp_path, text, header, cells):
    (tmp_path / "d.csv").write_text(text)
    table = read_source(Data(source="d.csv", header=header), tmp_path).content
    assert [column[0] for column in table.columns.values()] == cells
    assert [*inference_script.read_rows(tmp_path / "d.csv", header)[0].values()] == cells


def test_columns_with_one_name_are_told_apart(tmp_path):
    source = read(tmp_path, "d.csv", "x,,x,x_2,x\n1,2,3,4,5\n")
    assert list(source.content.columns) == ["x", "column_2", "x_3", "x_2", "x_4"]
    assert source.notes == [
        "the header has names twice, which were renamed: 'x_3' for 'x' in column 3, 'x_4' for 'x' in column 5"
    ]
    assert [*inference_script.read_rows(tmp_path / "d.csv")[0].values()] == ["1", "2", "3", "4", "5"]


def test_a_damaged_packed_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"d.csv.gz: packed by gzip, and damaged"):
        read(tmp_path, "d.csv.gz", gzip.compress(b"a,b\n1,2\n")[:-9])


@pytest.mark.parametrize("least", [0, 1 << 20])
def test_what_means_no_value_is_empty(tmp_path, monkeypatch, least):
    monkeypatch.setattr(files, "FAST_FROM", least)
    (tmp_path / "d.csv").write_text("a,b\n-999,x\n5,-\n")
    table = read_source(Data(source="d.csv", missing=["-", "-999"]), tmp_path).content
    assert {name: list(cells) for name, cells in table.columns.items()} == {"a": ["", "5"], "b": ["x", ""]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        (" \n \n", "the file is empty"),
        ("a,b\n", "header with 2 columns, but no rows"),
        ("a,b\n1,2\n3\n4,5,6\n", r"d.csv:3: 2 of 3 rows: expected the header's 2 cells, found line 3 has 1, line 4 has 3"),
        ('a,b\n1,2\n3,"4\n5,6\n', r"d.csv:3: a quote that opens in this record is never closed"),
        (b"a,b\n1,\x00\n", r"d.csv:2: expected a text file, found a NUL byte at byte offset 6"),
        ("\ufeffa,b\n1,\xe9".encode() + b"\xe9\n", r"d.csv:2: not UTF-8: byte 0xe9 at byte offset 11"),
        (b"a,b\n1,caf\x81\n", r"d.csv:2: neither UTF-8 nor Windows-1252: byte 0x81 at byte offset 9"),
        ("a,b\n1," + "9" * 200_000 + "\n", "field larger than field limit"),
        ('a,b\n1,"x"y\n', "not readable as CSV"),
    ],
)
def test_a_damaged_csv_is_refused_with_its_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, "d.csv", content)


def test_jsonl_columns_are_the_union_of_all_keys(tmp_path):
    table = read(tmp_path, "d.jsonl", '{"a": 1, "b": true}\n\n{"b": null, "c": "x"}\n').content
    assert {name: cells.tolist() for name, cells in table.columns.items()} == {"a": ["1", ""], "b": ["true", ""], "c": ["", "x"]}


def test_a_json_list_of_objects_is_a_table(tmp_path):
    table = read(tmp_path, "d.json", '[{"a": 1, "b": "x"}, {"a": null}]').content
    assert {name: cells.tolist() for name, cells in table.columns.items()} == {"a": ["1", ""], "b": ["x", ""]}
    with pytest.raises(InputError, match="a JSON list of objects was expected"):
        read(tmp_path, "e.json", '{"a": 1}')


def test_objects_in_a_json_line_become_columns_of_their_own(tmp_path):
    table = read(tmp_path, "d.jsonl", '{"a": {"b": {"c": 1}, "d": [1, "x"]}}\n{"a": null}\n').content
    rows = {"a.b.c": ["1", ""], "a.d": ['[1, "x"]', ""], "a": ["", ""]}
    assert {name: cells.tolist() for name, cells in table.columns.items()} == rows
    assert inference_script.read_rows(tmp_path / "d.jsonl")[0] == {name: cells[0] for name, cells in rows.items()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n{"a": \n', r"d.jsonl:2: not readable as JSON"),
        ("[1]\n", "expected a JSON object, found list"),
        ('{"a": 1, "a": 2}\n', "duplicate keys 'a'"),
        ("{}\n", "no row has a value"),
    ],
)
def test_damaged_jsonl_is_refused_with_its_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, "d.jsonl", content)


def test_parquet_keeps_numbers_and_turns_nulls_into_missing_values(tmp_path):
    polars.DataFrame({"n": [1, None], "t": ["x", None], "b": [True, False]}).write_parquet(tmp_path / "d.parquet")
    columns = read(tmp_path, "d.parquet").content.columns
    assert np.array_equal(columns["n"], [1.0, np.nan], equal_nan=True)
    assert columns["t"].to_list() == ["x", ""]
    assert columns["b"].to_list() == ["true", "false"]


def test_nested_parquet_columns_are_refused(tmp_path):
    polars.DataFrame({"n": [[1], [2]]}).write_parquet(tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"column 'n': expected numbers, text, dates or booleans, found list"):
        read(tmp_path, "d.parquet")


@pytest.mark.parametrize(("name", "kind"), [("d.parquet", "Parquet"), ("d.npz", ".npz"), ("d.json", "JSON")])
def test_a_damaged_file_is_refused_with_what_to_do_next(tmp_path, name, kind):
    with pytest.raises(InputError, match=f"not readable as {re.escape(kind)}") as caught:
        read(tmp_path, name, "PAR1 no")
    assert (caught.value.where, caught.value.hint) == (name, "bring the whole file, or change data.source in mltrainer.yaml")


@pytest.mark.parametrize(("module", "file", "extra"), [("PIL", "images", "images")])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module, file, extra):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.split(".")[0] == module:
            raise ImportError(name)
        return real(name, *rest)

    (tmp_path / "images/cats").mkdir(parents=True)
    (tmp_path / "images/cats/1.png").write_bytes(b"x")
    (tmp_path / "d.parquet").write_bytes(b"x")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=rf'pip install "mltrainer\[{extra}\]"'):
        read(tmp_path, file)


# --- arrays ---


def save(folder, x, y, name="d.npz"):
    np.savez(folder / name, x=x, y=y)
    return read_source(Data(source=name), folder)


def test_arrays_become_float32_and_int64(tmp_path):
    content = save(tmp_path, np.arange(6.0).reshape(3, 2), np.array([0, 1, 1], dtype=np.int8)).content
    assert (content.x.dtype, content.y.dtype, content.classes) == (np.float32, np.int64, ["0", "1"])


def test_conversions_are_noted(tmp_path):
    source = save(tmp_path, np.full((2, 5, 5, 3), 255, dtype=np.uint8), np.array([0, 1]))
    assert source.content.x.shape == (2, 3, 5, 5)
    assert source.content.x.max() == 1.0
    assert source.notes == ["uint8 pixels were divided by 255", "channels last [5, 5, 3] were moved first"]


def test_npy_files_come_in_pairs(tmp_path):
    np.save(tmp_path / "train_x.npy", np.ones((3, 2), dtype=np.float32))
    with pytest.raises(InputError, match="needs its labels in a file beside it"):
        read(tmp_path, "train_x.npy")
    np.save(tmp_path / "train_y.npy", np.array([0, 1, 0]))
    source = read(tmp_path, "train_x.npy")
    assert source.content.y.tolist() == [0, 1, 0]
    assert [row.path for row in source.files] == ["train_x.npy", "train_y.npy"]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            np.array([[1.0], [np.nan], [np.inf]]),
            np.zeros(3, dtype=int),
            "2 of 3 samples of x hold NaN or infinity; the first is row 1",
        ),
        (np.array([[1e300]]), np.zeros(1, dtype=int), "hold NaN or infinity"),
        (np.ones(3), np.zeros(3, dtype=int), r"the shape of x: .* found \[3\]"),
        (np.ones((0, 2)), np.zeros(0, dtype=int), r"the shape of x: .* found \[0, 2\]"),
        (np.ones((3, 2)), np.zeros(2, dtype=int), r"expected \[3\], found \[2\]"),
        (np.array([["a"]]), np.zeros(1, dtype=int), "x: expected numbers, found <U1"),
        (np.ones((2, 2)), np.array(["a", "b"]), "found <U1"),
        (np.ones((2, 2)), np.array([0.5, np.nan]), "y holds NaN or infinity, first in row 1"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, x, y, message):
    with pytest.raises(InputError, match=message):
        save(tmp_path, x, y)


def test_pickles_in_arrays_are_never_loaded(tmp_path):
    class Canary:
        def __reduce__(self):
            return (open, (str(tmp_path / "canary"), "w"))

    np.savez(tmp_path / "d.npz", x=np.array([[Canary()]], dtype=object), y=np.array([0]))
    with pytest.raises(InputError, match="without pickles"):
        read(tmp_path, "d.npz")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("content", [b"PK\x03\x04 torn", b"no archive", b"\x80\x04."])
def test_damaged_archives_are_refused(tmp_path, content):
    with pytest.raises(InputError, match=r"not readable as .npz"):
        read(tmp_path, "d.npz", content)


def test_an_archive_without_y_is_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((2, 2)))
    with pytest.raises(InputError, match="the arrays: expected x and y, found x"):
        read(tmp_path, "d.npz")


# --- images ---


def paint(folder, name, size=(4, 3), mode="L", colour=255):
    image = pytest.importorskip("PIL.Image")
    path = folder / "images" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new(mode, size, colour).save(path)


def test_images_are_read_in_sorted_order_a_folder_per_class(tmp_path):
    for name in ("dogs/b.png", "cats/z.png", "cats/a.png"):
        paint(tmp_path, name, colour=51)
    source = read(tmp_path, "images")
    assert source.content.x.shape == (3, 1, 3, 4)
    assert source.content.x[0, 0, 0, 0] == np.float32(0.2)
    assert (source.content.classes, source.content.y.tolist()) == (["cats", "dogs"], [0, 0, 1])
    assert [row.path for row in source.files] == ["images/cats/a.png", "images/cats/z.png", "images/dogs/b.png"]


def test_one_coloured_image_makes_all_rgb(tmp_path):
    paint(tmp_path, "cats/a.png")
    paint(tmp_path, "dogs/a.png", mode="RGB", colour=(0, 255, 0))
    source = read(tmp_path, "images")
    assert source.content.x.shape == (2, 3, 3, 4)
    assert "images of modes L, RGB were converted to RGB" in source.notes


def test_images_of_unequal_size_are_refused(tmp_path):
    paint(tmp_path, "cats/a.png")
    paint(tmp_path, "dogs/a.png", size=(5, 3))
    with pytest.raises(InputError, match=r"images/dogs/a.png: 5x3 pixels, but images/cats/a.png has 4x3"):
        read(tmp_path, "images")


def test_a_damaged_image_is_named(tmp_path):
    paint(tmp_path, "cats/a.png")
    (tmp_path / "images/cats/b.png").write_bytes(b"\x89PNG torn")
    with pytest.raises(InputError, match=r"images/cats/b.png: not readable as an image"):
        read(tmp_path, "images")


def test_a_folder_without_class_folders_or_images_is_refused(tmp_path):
    (tmp_path / "images").mkdir()
    with pytest.raises(InputError, match="expected a folder per class, found none"):
        read(tmp_path, "images")
    (tmp_path / "images/cats").mkdir()
    with pytest.raises(InputError, match="no images in cats"):
        read(tmp_path, "images")


# --- digests and tables ---


def test_the_digest_covers_cells_their_borders_and_their_order(tmp_path):
    texts = [
        "a,b\nx y,z\n1,2\n",
        "a,b\n1,2\nx y,z\n",
        "a,b\nx,yz\n1,2\n",
        "b,a\nx y,z\n1,2\n",
        "a,b\nxy,z\n1,2\n",
        "a,b\nxy1,z2\n,\n",
        "a,b\nxy,z\n12,\n",
    ]
    digests = {content_sha256(read(tmp_path, "d.csv", text).content) for text in texts}
    assert len(digests) == len(texts)


def test_arrays_as_a_table_have_numbered_columns(tmp_path):
    table, target = table_of(save(tmp_path, np.ones((2, 3)), np.array([0, 1])).content, None)
    assert (list(table.columns), target) == (["x0", "x1", "x2", "y"], "y")


def test_an_unknown_target_names_the_nearest_column(tmp_path):
    content = read(tmp_path, "d.csv", "price,area\n1,2\n").content
    with pytest.raises(InputError, match=r"no column 'prise' in d\.csv; did you mean 'price'"):
        table_of(content, "prise")
    with pytest.raises(InputError, match="a table needs the column to predict"):
        table_of(content, None)


def test_reading_sources_and_tables_needs_no_torch():
    code = "import sys, mltrainer.tasks.config_inference, mltrainer.tasks.splits; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("source", ["rows", "rows/*.parquet", "rows/{0..2}.parquet"])
def test_parquet_files_of_a_pattern_or_folder_are_one_table(tmp_path, source):
    (tmp_path / "rows").mkdir()
    whole = polars.DataFrame({"x": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], "y": ["a", "b"] * 3})
    for number in range(3):
        whole[2 * number : 2 * number + 2].write_parquet(tmp_path / f"rows/{number}.parquet")
    (tmp_path / "rows/_SUCCESS").touch()
    found = read_source(Data(source=source), tmp_path)
    assert isinstance(found.content, Table)
    assert found.content.columns["x"].tolist() == whole["x"].to_list()
    assert [row.path for row in found.files] == ["rows/0.parquet", "rows/1.parquet", "rows/2.parquet"]
    assert found.content.where(4) == "rows/2.parquet:1"


def test_a_pattern_that_finds_no_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no file is found"):
        read_source(Data(source="rows/*.parquet"), tmp_path)
