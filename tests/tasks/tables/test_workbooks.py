"""A sheet of a workbook is the table that the same cells are in a CSV file."""

import builtins
import datetime
from pathlib import Path

import numpy as np
import pytest

from mltrainer.checkpointing.inference_script import InvalidInputError, read_table, to_matrix
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import Data, TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.errors import InputError
from mltrainer.project import start
from mltrainer.project.start import make_project
from mltrainer.tasks import sources
from mltrainer.tasks.config_inference import Reading, infer_project
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.sources import read_source
from tests.workbooks import write_workbook

DAY = datetime.date(2020, 1, 31)
ROWS = [[n % 17, n * n % 23, "ab"[n * n % 7 % 2]] for n in range(60)]


def cells_of(path: Path, **how: object) -> dict[str, list[str]]:
    """The cells that training reads, which the delivered script reads too."""
    table = read_source(Data(source=path.name, **how), path.parent).content
    found = {name: cells.to_list() for name, cells in table.columns.items()}
    delivered = read_table(path, how)
    missing = table.missing
    assert [{name: "" if cell in missing else cell for name, cell in row.items()} for row in delivered] == [
        dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)
    ]
    return found


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (5, "5"),
        (0.1 + 0.2, "0.30000000000000004"),
        (0.1234567890123, "0.1234567890123"),
        (1e-12, "1e-12"),
        (-2.5, "-2.5"),
        (2**53 + 2, str(2**53 + 2)),
        ("007", "007"),
        ("0.12345678901234", "0.12345678901234"),
        (" a, b ", "a, b"),
        (True, "true"),
        (False, "false"),
        (DAY, "2020-01-31 00:00:00"),
        (datetime.time(13, 45, 6), "13:45:06"),
        (None, ""),
        ("NA", ""),
    ],
)
def test_each_cell_is_the_text_that_says_the_same(tmp_path, cell, text):
    path = write_workbook(tmp_path / "w.xlsx", {"A": [["c", "d"], [cell, 1], ["n/a", 2], [7, 3]]})
    assert cells_of(path) == {"c": [text, "n/a", "7"], "d": ["1", "2", "3"]}


def test_a_sheet_asks_for_what_its_csv_file_asks_for(tmp_path):
    names, rows = ["day", "x", "z", "y"], [[DAY + datetime.timedelta(nr), *row] for nr, row in enumerate(ROWS)]
    rows[5][2] = "unknown"
    rows[9][1] = None
    write_workbook(tmp_path / "w.xlsx", {"A": [names, *rows]})
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in [names, *rows]]
    (tmp_path / "w.csv").write_text("\n".join(lines))
    one, other = (infer_project({"train": tmp_path / name}, "y") for name in ("w.xlsx", "w.csv"))
    assert (one.explanation, one.warnings, one.columns, one.missing) == (
        other.explanation,
        other.warnings,
        other.columns,
        other.missing,
    )
    assert one.columns == {"day": "date"}


def test_the_sheet_that_was_read_stands_in_the_config_and_the_others_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "start_repository", lambda folder, written: "no git")
    other = [["q", "y"], *[[nr % 9, "ab"[nr % 2]] for nr in range(40)]]
    path = write_workbook(tmp_path / "w.xlsx", {"First": [["x", "z", "y"], *ROWS], "Old": other})
    told = make_project(tmp_path / "p", None, path, "y")
    assert "sheet 'First' was read; the workbook has also 'Old'" in told
    assert load_project(tmp_path / "p" / "mltrainer.yaml").data.sheet == "First"
    make_project(tmp_path / "q", None, path, "y", sheet="Old")
    chosen = load_project(tmp_path / "q" / "mltrainer.yaml").data
    content = read_source(chosen, tmp_path / "q").content
    assert (chosen.sheet, list(content.columns), len(content)) == ("Old", ["q", "y"], 40)


@pytest.mark.parametrize("is_kept", [False, True])
def test_another_sheet_is_other_data(tmp_path, monkeypatch, is_kept):
    """Also where a large table's columns are kept between processes."""
    if is_kept:
        monkeypatch.setattr(sources, "FAST_FROM", 1)
        (tmp_path / "mltrainer.yaml").touch()
    path = write_workbook(tmp_path / "w.xlsx", {"A": [["x", "y"], [1, 2]], "B": [["x", "y"], [1, 3]]})
    first, second = (read_source(Data(source=path.name, sheet=name), tmp_path).sha256 for name in "AB")
    assert first != second


def test_a_sheet_with_a_title_and_gaps_is_read_by_its_own_row_numbers(tmp_path):
    above = [[], ["Report of 2020"], []]
    path = write_workbook(tmp_path / "w.xlsx", {"A": [*above, [None, "x", "z", "y"], *[[None, *row] for row in ROWS], []]})
    found = infer_project({"train": path}, "y")
    assert found.reading == {"skip_lines": 3, "sheet": "A"}
    assert "the first 3 lines are above the header and left out; --skip-lines 0 keeps all" in found.explanation
    table = read_source(Data(source=path.name, **found.reading), tmp_path).content
    assert (list(table.columns), len(table), table.where(0)) == (["x", "z", "y"], 60, "w.xlsx:5")


@pytest.mark.parametrize(
    ("sheet", "message"), [("C", "there is no sheet 'C'; the workbook has 'A', 'B'"), ("B", "sheet 'B' holds no rows")]
)
def test_a_sheet_that_cannot_be_read_is_told_with_those_there_are(tmp_path, sheet, message):
    path = write_workbook(tmp_path / "w.xlsx", {"A": [["x", "y"], [1, 2]], "B": []})
    with pytest.raises(InputError, match=message) as refused:
        infer_project({"train": path}, "y", Reading(sheet=sheet))
    assert refused.value.hint == "--sheet NAME at init, or data.sheet, chooses another one"


def test_new_rows_come_on_the_sheet_of_that_name_or_on_the_only_one(tmp_path):
    rows = [["x", "y"], [1, 2]]
    assert read_table(write_workbook(tmp_path / "one.xlsx", {"New": rows}), {"sheet": "A"}) == [{"x": "1", "y": "2"}]
    two = write_workbook(tmp_path / "two.xlsx", {"New": [], "A": rows})
    assert read_table(two, {"sheet": "A"}) == [{"x": "1", "y": "2"}]
    with pytest.raises(InvalidInputError, match="there is no sheet 'B'"):
        read_table(two, {"sheet": "B"})


def test_a_damaged_workbook_is_told(tmp_path):
    (tmp_path / "w.xlsx").write_bytes(b"PK no")
    with pytest.raises(InputError, match="not readable as a workbook"):
        infer_project({"train": tmp_path / "w.xlsx"}, "y")


def test_without_the_extra_the_message_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name: str, *rest: object) -> object:
        if name == "fastexcel":
            raise ModuleNotFoundError(name, name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    path = write_workbook(tmp_path / "w.xlsx", {"A": [["x", "y"], [1, 2]]})
    with pytest.raises(InputError, match="reading a workbook needs fastexcel") as refused:
        infer_project({"train": path}, "y")
    assert refused.value.hint == "pip install 'mltrainer[excel]'"


@pytest.mark.parametrize(("key", "value"), [("sheet", "A"), ("skip_lines", 2)])
def test_keys_that_a_kind_of_file_does_not_have_are_refused(tmp_path, key, value):
    (tmp_path / "d.jsonl").write_text('{"x": 1, "y": 2}\n')
    with pytest.raises(InputError, match=r"a .jsonl file has no (sheets|lines above its table)"):
        read_source(Data(source="d.jsonl", target="y", **{key: value}), tmp_path)


@pytest.mark.parametrize("name", ["w.xlsx", "w.csv"])
def test_the_delivered_model_reads_new_rows_from_the_place_where_training_read_them(tmp_path, monkeypatch, name):
    monkeypatch.setattr(start, "start_repository", lambda folder, written: "no git")
    rows = [["day", "x", "z", "y"], *[[DAY + datetime.timedelta(nr), row[0] / 7, *row[1:]] for nr, row in enumerate(ROWS)]]
    path = write_workbook(tmp_path / "w.xlsx", {"Old": [], "Data": [["A report"], [], *rows]})
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in [["A report"], [], *rows]]
    (tmp_path / "w.csv").write_text("\n".join(lines))
    make_project(tmp_path / "p", None, tmp_path / name, "y", sheet="Data" if name == path.name else None)
    values = {**baseline_template(tmp_path / "p"), **load_project(tmp_path / "p" / "mltrainer.yaml").model_dump()}
    task = open_task(validate_values(TrainingConfig, values, "test"), tmp_path / "p").task
    everything = np.arange(task.size)
    task.fit(everything)
    spec = task.inference()
    assert spec["skip_lines"] == 2
    assert np.array_equal(to_matrix(read_table(tmp_path / name, spec), spec), task.rows(everything)[0].numpy())
