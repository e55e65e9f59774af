"""What `init` asks of a table stands in planning's report too, and only where it is telling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.project import start
from mltrainer.project.start import make_project
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.tables.hints import heavy_tail

N = 120
NUMBERS = [f"{n * 37 % 91 / 4:.2f}" for n in range(N)]
CLASSES = [("yes", "no")[n % 2] for n in range(N)]
DAYS = [(2014 + n // 60, 1 + n // 10 % 12, 1 + n % 28) for n in range(N)]


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "start_repository", lambda folder, written: "no git")
    monkeypatch.setattr(start, "write_schemas", lambda folder: None)


def said(
    folder: Path, split: dict[str, str] | None = None, header: bool = True, also: str = "", **columns: list[str]
) -> tuple[list[str], list[str]]:
    """Return the warnings of `init`, and those of planning's report."""
    lines = [";".join(row) for row in zip(*columns.values(), strict=True)]
    (folder / "d.csv").write_text("\n".join([*([";".join(columns)] if header else []), *lines]))
    target = "t" if header else f"column_{len(columns)}"
    told = make_project(folder / "p", None, folder / "d.csv", target)
    return [line.removeprefix("warning: ") for line in told if line.startswith("warning: ")], planned(folder / "p", also, split)


def planned(folder: Path, also: str = "", split: dict[str, str] | None = None) -> list[str]:
    """Return the warnings of planning's report, and its findings of another severity."""
    project = load_project(folder / "mltrainer.yaml").model_dump()
    values = {**baseline_template(folder), **project, "split": {**project["split"], **(split or {})}}
    opened = open_task(validate_values(TrainingConfig, values, "test"), folder)
    return [row["what"] for row in opened.facts(DataLimits())["findings"] if row["severity"] in ("warning", also)]


WARNED: dict[str, dict[str, list[str]]] = {
    "a date": {"day": [f"{y}-{m:02}-{d:02}" for y, m, d in DAYS], "t": CLASSES},
    "a date in the basic form": {"day": [f"{y}{m:02}{d:02}T000000" for y, m, d in DAYS], "t": CLASSES},
    "a person": {"patient": [str(1000 + n // 4) for n in range(N)], "x": NUMBERS, "t": CLASSES},
    "a gap": {"g": [NUMBERS[n] if n % 3 == 0 else "" for n in range(N)], "x": NUMBERS, "t": CLASSES},
    "two readings of a date": {"day": [f"{m}/{1 + d % 9}/{y}" for y, m, d in DAYS], "x": NUMBERS, "t": CLASSES},
    "units": {
        "w": [f"{n + 1} {'kg' if n % 2 else 'lb'}" for n in range(N // 2)] * 2,
        "x": NUMBERS,
        "t": ["ny"[n * n % 7 % 2] for n in range(N)],
    },
    "capitals": {"c": [("red", "Red", "blue")[n % 3] for n in range(N)], "x": NUMBERS, "t": CLASSES},
    "a constant": {"c": ["1"] * N, "x": NUMBERS, "t": CLASSES},
    "a rare class": {"x": NUMBERS, "t": ["rare" if n < 2 else CLASSES[n] for n in range(N)]},
    "classes in two spellings": {"x": NUMBERS, "t": [("red", "Red", "blue")[n % 3] for n in range(N)]},
}


@pytest.mark.parametrize("case", WARNED)
def test_each_warning_of_init_stands_in_plannings_report(tmp_path, case):
    told, found = said(tmp_path, **WARNED[case])
    assert told
    words = [line.split("'")[1] if case == "a constant" else line for line in told if "classes are imbalanced" not in line]
    assert all(any(word in row for row in found) for word in words), (told, found)


def test_a_heavy_tail_of_the_target_stands_in_plannings_report_and_is_a_warning_under_a_metric_of_squares(tmp_path):
    tail = [f"{1e6 if n == 5 else n:.1f}" for n in range(N)]
    told, found = said(tmp_path, also="info", x=NUMBERS, t=tail)
    (line,) = [line for line in told if "of the variance of 't'" in line]
    assert line.endswith("r2 would be judged by them alone, so the metric is mae")
    assert [row.split(": ")[1] for row in found if "of the variance of 't'" in row] == [line.split(": ")[1]]


@pytest.mark.parametrize(
    ("metric", "has_length"),
    [("r2", "r2 is judged by them alone; write metric: {name: mae, mode: min}"), ("mae", "so the metric is mae")],
)
def test_the_metric_is_named_that_few_rows_decide(metric, has_length):
    (line,) = heavy_tail("t", np.array([0.0] * 198 + [1.0] * 2), metric)  # p(1 - p) / p of it, for p = 1 %
    assert line.startswith("2 of 200 rows hold 99% of the variance of 't'")
    assert line.endswith(has_length)
    assert heavy_tail("t", np.random.default_rng(0).normal(size=200), metric) == []


def test_a_time_in_several_columns_is_seen(tmp_path):
    years, months, days = ([str(part) for part in one] for one in zip(*DAYS, strict=True))
    told, found = said(tmp_path, sale_year=years, saleMonth=months, day=days, x=NUMBERS, t=CLASSES)
    assert any(
        "columns 'sale_year', 'saleMonth', 'day' give the time: make one column of them, such as 2014-10-13" in line
        for line in told
    )
    assert [line for line in told if "give the time" in line] == [line for line in found if "give the time" in line]


def test_columns_that_only_sound_like_a_date_are_not_asked_for(tmp_path):
    told, _ = said(tmp_path, year=[str(n % 40) for n in range(N)], month=[str(n % 12) for n in range(N)], x=NUMBERS, t=CLASSES)
    assert not any("give the time" in line for line in told)


def test_what_the_plan_answers_is_not_asked_again(tmp_path):
    _, found = said(tmp_path, {"time": "day", "repeats": "anywhere"}, **WARNED["a date"])
    assert not any("later than what you have" in line for line in found)


def test_a_time_in_the_basic_form_is_read_as_a_date(tmp_path):
    said(tmp_path, **WARNED["a date in the basic form"])
    assert load_project(tmp_path / "p" / "mltrainer.yaml").data.columns == {"day": "date"}


def test_rows_that_belong_together_are_not_asked_for_columns_without_names(tmp_path):
    """Six of six features were asked for."""
    columns = {f"c{place}": [str(n * (place + 3) % 16 * 7 % 17) for n in range(N)] for place in range(6)}
    told, found = said(tmp_path, header=False, **columns, t=CLASSES)
    assert not any("belong together" in line for line in [*told, *found])


def test_of_many_ids_those_are_asked_for_on_which_another_column_hangs(tmp_path):
    ids = {f"{name}_id": [str(n * step % 30) for n in range(N)] for name, step in (("shop", 7), ("item", 11), ("day", 13))}
    born = [str(1950 + int(cell) % 12) for cell in ids["shop_id"]]
    told, _ = said(tmp_path, **ids, born=born, x=NUMBERS, t=CLASSES)
    asked = [line.split("'")[1] for line in told if "belong together" in line]
    assert "shop_id" in asked


SUBJECTS = {  # cells of 120 rows, the years of birth beside them, and whether rows of one belong together
    "codes of persons": ([f"P-{n // 4:04}" for n in range(N)], [str(1950 + n // 4 % 12) for n in range(N)], True),
    "codes of persons in any order": (
        [f"subj{n * 7 % 30:03}" for n in range(N)],
        [str(1950 + n * 7 % 30 % 12) for n in range(N)],
        True,
    ),
    "codes of products": ([f"item-{n * 7 % 30:04}" for n in range(N)], [str(1950 + n * 11 % 17) for n in range(N)], False),
    "postal codes": ([f"E{n * 7 % 30}" for n in range(N)], [str(1950 + n * 7 % 30 % 12) for n in range(N)], False),
    "cities": ([f"city {'abcdefghijklmno'[n * 7 % 15]}" for n in range(N)], [str(1950 + n * 7 % 15) for n in range(N)], False),
}


@pytest.mark.parametrize("case", SUBJECTS)
def test_codes_of_persons_are_seen_by_their_cells_and_by_what_hangs_on_them(tmp_path, case):
    cells, born, is_asked = SUBJECTS[case]
    _, found = said(tmp_path, who=cells, born=born, x=NUMBERS, t=CLASSES)
    assert any("do rows of one 'who' belong together? split: {group: who}" in line for line in found) == is_asked


@pytest.mark.parametrize(("name", "rows", "is_asked"), [("patient", 1.5, True), ("who", 1.5, True), ("who", 1.0, False)])
def test_a_column_of_ids_that_is_left_out_still_binds_rows(tmp_path, name, rows, is_asked):
    """`init` leaves an id of 80 persons with 120 rows out: then their rows fall on both sides, and nothing says so."""
    ids = [f"P-{int(n / rows):04}" for n in range(N)]
    _, found = said(tmp_path, **{name: ids}, x=NUMBERS, y=NUMBERS[::-1], t=CLASSES)
    assert name in load_project(tmp_path / "p" / "mltrainer.yaml").data.ignore
    assert any(f"do rows of one '{name}' belong together?" in line for line in found) == is_asked


@pytest.mark.parametrize(
    ("name", "first", "is_hinted"), [("zip", 1, True), ("t", 10_115, True), ("price", 1, False), ("t", 1950, False)]
)
def test_whole_numbers_that_may_be_names_have_a_hint(tmp_path, name, first, is_hinted):
    cells = [str(first + n % 24) for n in range(N)]
    (tmp_path / "d.csv").write_text("\n".join([f"x,{name}", *(f"{x},{cell}" for x, cell in zip(NUMBERS, cells, strict=True))]))
    told = make_project(tmp_path / "p", None, tmp_path / "d.csv", name)
    hint = f"if the whole numbers of {name!r} are names and no quantities, write task: {{kind: tabular_classification}}"
    assert (hint in told) == is_hinted
    assert (hint in planned(tmp_path / "p", "info")) == is_hinted


def test_the_wine_example_is_trained_long_enough_for_so_few_rows(tmp_path):
    make_project(tmp_path / "p", "wine", None, None)
    values = baseline_template(tmp_path / "p")
    assert values["epochs"] * (178 * 0.7 // values["batch_size"]) >= 400


@pytest.mark.parametrize(
    ("name", "is_asked"),
    [
        ("customer", True),
        ("CustomerID", True),
        ("patient_nr", True),
        ("number_customer_service_calls", False),
        ("customers", False),
    ],
)
def test_a_count_of_customers_is_no_customer(tmp_path, name, is_asked):
    of_init, _ = said(tmp_path, **{name: [str(n // 4) for n in range(N)], "x": NUMBERS, "t": CLASSES})
    assert any("belong together" in line for line in of_init) == is_asked


@pytest.mark.parametrize(
    ("numbers", "is_hinted"), [(range(10), True), (range(1, 6), True), (range(3), False), ((0, 1, 2, 5, 9), False)]
)
def test_whole_numbers_that_are_read_as_classes_may_count(tmp_path, numbers, is_hinted):
    rows = [f"{NUMBERS[n]},{numbers[n % len(numbers)]}" for n in range(N)]
    (tmp_path / "d.csv").write_text("\n".join(["x,visits", *rows]))
    told = make_project(tmp_path / "p", None, tmp_path / "d.csv", "visits")
    hint = "if the whole numbers of 'visits' count or rank, write task: {kind: tabular_regression}"
    assert (hint in told) == is_hinted


@pytest.mark.parametrize(("rows", "stops"), [(7, True), (8, True), (9, False)])
def test_one_row_to_validate_on_has_no_r2_and_init_and_planning_say_so(tmp_path, rows, stops):
    (tmp_path / "d.csv").write_text("\n".join(["x,t", *(f"{NUMBERS[n]},{NUMBERS[-n]}" for n in range(rows))]))
    told = make_project(tmp_path / "p", None, tmp_path / "d.csv", "t")
    assert any(line.startswith(f"warning: {rows} rows leave one to validate on, where r2") for line in told) == stops
    assert any(line.startswith("next: answer what stops planning") for line in told) == stops
    errors = [line for line in planned(tmp_path / "p", "error") if "no two different targets" in line]
    assert len(errors) == stops
