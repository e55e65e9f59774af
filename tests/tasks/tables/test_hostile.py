"""Tables with cells that nobody would think of go through `init` and planning, or end in a sentence with line and column."""

from __future__ import annotations

import csv
import io
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mltrainer.checkpointing import inference_script
from mltrainer.checkpointing.inference_script import as_formatted
from mltrainer.configs.items import DataLimits
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.errors import InputError
from mltrainer.project import start
from mltrainer.project.start import make_project
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.tables import schema
from mltrainer.tasks.text.labelled_texts import classes_of

ROWS = 24
SIGNS = ["+", "-", ".", ",", "e", "E", "e5", "1e", "+-1", "--1", "(", ")", "%", "$", "()", "(-1)", "_", "1_000", "'", ":"]
EXPONENTS = ["E10", "e7", "E\u0663", "1E5", "1e-3", "1e999", "-1e400", "1E+", ".e5", ",e5", "5.e1", ",5E2", "9" * 400, "0x1F"]
CODES = ["E10", "E11.9", "A00", "C85", "E46", "D10 D12", "SW1A 1AA", "E1 6AN", "007", "00", "1-2", "INF", "nan", "-inf", "None"]
DATES = ["2020-01-31", "31.12.2020", "12/31/2020", "0000-00-00", "9999-12-31T23:59:59-99:99", "0001-01-01 00:00 +14:00"]
DATES += ["20141013T000000", "25:61", "2020-13-45", "3 March 2021", "May", "12:00 PM", "2020-02-30"]
SCRIPTS = ["\u0661\u0662", "\u0663\u066b\u0665", "\uff11\uff12", "\u00b2", "\u00bd", "\u4e94", "\u2177", "\u22125", "\u017f"]
SCRIPTS += ["\u0130", "\u00df", "\u00a05", "\u200b", "\ufeff1", "\u00e9", "e\u0301", "\U0001f642", "\x1f4"]
QUOTES = ['"', '""', 'a"b', '"x', "x,y", "x;y", "l\nm", "l\r\nm", "\t", "'q'", "|", "\\", "\\n", "#N/A", "=1+1", "@x"]
UGLY = ["\x1a", "\v", "x" * 5000, "7" * 6000, "-" * 300, "1,234,567.89", "1.234.567,89", "1 000", "50%", "12 kg", "EUR 5"]
UGLY += ["5 EUR", "USDE10", "\u20acE10", "true", "f", "ja", "\0"]
KINDS = (SIGNS, EXPONENTS, CODES, DATES, SCRIPTS, QUOTES, UGLY)
PLAIN = [str(number * 37 % 91 / 4) for number in range(ROWS)]
# What is wrong with a file, a column or the labels as a whole has no line; any other fault must name one.
OF_THE_WHOLE = re.compile(
    r"one class only|no column is left|no feature is left|no row is left|has no value in any|is empty|but no rows"
    r"|samples of \d+ classes|training samples|there is no column|classes without|samples; at least|needs the column"
    r"|in all \d+ training|leakage"
)


@st.composite
def columns(draw: st.DrawFn) -> list[str]:
    """A column of one kind of cell, with few or many others among them."""
    kind = draw(st.sampled_from(KINDS))
    odd = st.sampled_from(kind)
    filler = draw(st.sampled_from(["plain", "odd", "empty", "mixed"]))
    if filler == "odd":
        return draw(st.lists(odd, min_size=ROWS, max_size=ROWS))
    if filler == "mixed":
        any_cell = st.sampled_from([cell for one in KINDS for cell in one] + [""])
        return draw(st.lists(any_cell, min_size=ROWS, max_size=ROWS))
    cells = list(PLAIN) if filler == "plain" else [""] * ROWS
    for row, cell in draw(st.lists(st.tuples(st.integers(0, ROWS - 1), odd), min_size=1, max_size=4)):
        cells[row] = cell
    return cells


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A CSV file: well quoted or not, with a byte order mark or not, in one of several encodings."""
    found = draw(st.lists(columns(), min_size=1, max_size=3))
    classes = [("yes", "no")[number % 2] for number in range(ROWS)]
    target = draw(st.sampled_from(["classes", "numbers", "odd"]))
    last = {"classes": classes, "numbers": list(reversed(PLAIN)), "odd": draw(columns())}[target]
    header = draw(st.sampled_from([["a", "b", "c"], ["E10", "+", "1"], ["a", "a", ""], ["id", "ä", "x\ny"]]))[: len(found)]
    rows = list(zip(*found, last, strict=True))
    mark, end = draw(st.sampled_from([",", ";", "\t"])), draw(st.sampled_from(["\n", "\r\n"]))
    if draw(st.integers(0, 4)):
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=mark, lineterminator=end).writerows([[*header, "t"], *rows])
        written = text.getvalue()
    else:
        written = end.join(mark.join(row) for row in [[*header, "t"], *rows])
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16"]))
    return written.encode(encoding, "surrogatepass")


def walked(data: bytes, root: Path) -> list[str]:
    """Take a CSV file through `init` and what planning reads of data; return the sentences in which it was refused."""
    path = root / "d.csv"
    path.write_bytes(data)
    told = refused(lambda: make_project(root / "p", None, path, "t"))
    return told or [*refused(lambda: planned(path, {})), *refused(lambda: planned(path, {"wrong_cells": "missing"}))]


def refused(step: Callable[[], object]) -> list[str]:
    """Return the sentence in which a step refuses a table, which names the line; none where it goes through."""
    try:
        step()
    except InputError as error:
        found = error
    else:
        return []
    assert OF_THE_WHOLE.search(found.message) or re.search(r"d\.csv:\d+$", found.where or ""), str(found)
    return [str(found)]


def planned(path: Path, data: dict[str, str]) -> None:
    """Open a project's table as planning does; what is delivered reads it alike."""
    root = path.parent / "p"
    project = load_project(root / "mltrainer.yaml").model_dump()
    values = {**baseline_template(root), **project, "data": {**project["data"], **data}, "batch_size": 2}
    opened = open_task(validate_values(TrainingConfig, values, "test"), root)
    opened.facts(DataLimits())
    if (table := getattr(opened.task, "_schema", None)) is not None:
        spec = opened.task.inference()
        given = inference_script.to_matrix(inference_script.read_rows(path, spec.get("header", True)), spec)
        trained = schema.encode(table, opened.task._vocabulary, np.arange(len(table)))
        assert np.array_equal(given[table.used_rows], trained, equal_nan=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for projects without a repository and schemas, which take longer than the tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "start_repository", lambda folder, written: "no git")
        patch.setattr(start, "write_schemas", lambda folder: None)
        yield tmp_path_factory.mktemp("hostile")


@pytest.mark.slow
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(files())
def test_a_hostile_table_is_read_or_refused_in_a_sentence_with_its_line(base, data):
    with tempfile.TemporaryDirectory(dir=base) as folder:
        walked(data, Path(folder))


NO_NUMBERS = ["E10", "e5", "E\u0663", ".e5", ",e5", "+", "-", ".", "1e", "1_000", "(5", "$", "USDE10", "", "\u4e94", "\u00bd"]
NUMBERS = {
    "1E5": (1e5, 1e5),
    ".5": (0.5, None),
    ",5": (None, 0.5),
    "5.": (5.0, None),
    "-1,234.5e2": (-123450.0, None),
    "\u0663": (3.0, 3.0),
}


@pytest.mark.parametrize("cell", NO_NUMBERS)
def test_a_cell_that_only_looks_like_a_number_is_none(cell):
    assert as_formatted(cell) is None
    assert as_formatted(cell, comma=True) is None


@pytest.mark.parametrize("cell", NUMBERS)
def test_numbers_in_other_spellings_are_read_as_ever(cell):
    assert (as_formatted(cell), as_formatted(cell, comma=True)) == NUMBERS[cell]


@pytest.mark.parametrize("codes", [["E10", "E46", "C85", "D10"], ["E10", "E11", "E12", "E66"], ["e1", "+", "1E", "-"]])
def test_codes_that_begin_like_exponents_are_categories(base, codes):
    """Cabins, postcodes and ICD-10 have such cells; `init` ended in a fault of its own."""
    folder = Path(tempfile.mkdtemp(dir=base))
    rows = [f"{codes[number % 4]},{number / 4},{'ab'[number % 2]}" for number in range(40)]
    (folder / "d.csv").write_text("\n".join(["cabin,fare,t", *rows]))
    make_project(folder / "p", None, folder / "d.csv", "t")
    assert load_project(folder / "p" / "mltrainer.yaml").data.columns == {}
    planned(folder / "d.csv", {})


@pytest.mark.parametrize("names", [["--5", "7"], ["9" * 5000, "7"], ["-5", "\u0663"]])
def test_classes_that_nearly_are_numbers_are_put_in_an_order(names):
    assert classes_of(names)[1] == sorted(names, key=lambda name: (len(name) > 3, name == "--5", name != "-5"))


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_half_a_character_in_json_is_refused_with_its_line(tmp_path, ending):
    rows = [f'{{"a": "\\ud800 {number}", "t": {number % 2}}}' for number in range(30)]
    (tmp_path / f"d.{ending}").write_text(f"[{', '.join(rows)}]" if ending == "json" else "\n".join(rows))
    with pytest.raises(InputError, match=r"'a' holds half a character") as refusal:
        make_project(tmp_path / "p", None, tmp_path / f"d.{ending}", "t")
    assert (refusal.value.where or "").endswith(f"d.{ending}:1")


def test_a_text_that_no_file_can_hold_has_a_bucket_all_the_same():
    assert 0 <= inference_script.bucket_of("\ud800") < inference_script.BUCKETS
    assert sum(inference_script.word_counts("\ud800 two")) == 1
    assert inference_script.bucket_of("Zürich") == zlib.crc32("Zürich".encode()) % 256


@pytest.mark.slow
def test_a_table_with_codes_like_exponents_is_planned_by_the_commands(cli, tmp_path, monkeypatch):
    cabins, scripts, classes = ("E10", "C85", "", "B57 B59"), ("\u00df\u0663", "\u22125", "x"), ("no", "yes")
    rows = [f"{cabins[n % 4]},{n * 7 % 11},{scripts[n % 3]},{classes[n % 2]}" for n in range(60)]
    (tmp_path / "d.csv").write_text("\n".join(["cabin,fare,script,t", *rows]), encoding="utf-8-sig")
    cli("init", tmp_path / "p", "--data", tmp_path / "d.csv", "--target", "t", code=0)
    monkeypatch.chdir(tmp_path / "p")
    cli("phase", "run", "planning", code=0)
