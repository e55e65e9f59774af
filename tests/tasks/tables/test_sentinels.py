"""Numbers that stand for no value are doubted where they look like it, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import NO_VALUE, TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template
from mltrainer.project import start
from mltrainer.project.start import make_project
from mltrainer.tasks.opening import open_task

RANDOM = np.random.default_rng(3)
N = 400
WITH_200 = json.dumps([*NO_VALUE, "-200"])


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "start_repository", lambda folder, written: "no git")
    monkeypatch.setattr(start, "write_schemas", lambda folder: None)


def numbers(low: float, high: float, digits: int = 1) -> list[str]:
    return [f"{value:.{digits}f}" for value in RANDOM.uniform(low, high, N)]


def holding(cells: list[str], sentinel: str, share: float) -> list[str]:
    """Put a sentinel into the first cells, spread evenly."""
    every = round(1 / share)
    return [sentinel if row % every == 0 else cell for row, cell in enumerate(cells)]


def begun(folder: Path, **columns: list[str]) -> list[str]:
    lines = [";".join(row) for row in zip(*columns.values(), strict=True)]
    (folder / "d.csv").write_text("\n".join([";".join(columns), *lines]))
    return [line for line in make_project(folder / "p", None, folder / "d.csv", "t") if "far from all" in line]


def planned(root: Path, **data: object) -> list[str]:
    project = load_project(root / "mltrainer.yaml").model_dump()
    values = {**baseline_template(root), **project, "data": {**project["data"], **data}}
    opened = open_task(validate_values(TrainingConfig, values, "test"), root)
    found = opened.facts(DataLimits())["findings"]
    return [f"{row['severity']}: {row['what']}" for row in found if "far from all" in row["what"]]


def test_a_sentinel_in_target_and_feature_is_told_by_init_project_file_and_planning_until_it_is_declared(tmp_path):
    """-200 in 18 % of a target and 90 % of a column: R2 was .84 on all rows, and -175 on the real ones."""
    told = begun(
        tmp_path, a=holding(numbers(7, 1200), "-200", 0.5), b=numbers(0, 1, 3), t=holding(numbers(0.1, 12), "-200.0", 0.2)
    )
    question = "-200 is in 50% of the rows of 'a' (200), far from all other values: if it means no value, write data: "
    assert told[0] == f"warning: {question}{{missing: {WITH_200}}}"
    assert "-200.0 is in 20% of the rows of 't' (80)" in told[1]
    text = (tmp_path / "p" / "mltrainer.yaml").read_text()
    assert f"# {question}{{missing: {WITH_200}}}\n" in text[: text.index("\ndata:") + 1]
    assert [line.split(" is in ")[0] for line in planned(tmp_path / "p")] == ["warning: -200", "error: in the target, -200.0"]
    assert planned(tmp_path / "p", missing=["-200", "-200.0"]) == []


def test_a_sentinel_in_a_target_stops_planning_until_it_is_answered(tmp_path):
    (told,) = begun(tmp_path, b=numbers(0, 1, 3), t=holding(numbers(0.1, 12), "-200", 0.18))
    assert told.endswith("; planning stops there")
    (asked,) = planned(tmp_path / "p")
    assert asked == (
        "error: in the target, -200 is in 17% of the rows of 't' (47), far from all other values: if it means no value, "
        f"write data: {{missing: {WITH_200}}}, which leaves these rows out; if it is a value, say why in place of REASON: "
        "data: {sentinel_accepted: {t: REASON}}"
    )
    assert planned(tmp_path / "p", missing=["-200"]) == []
    (answered,) = planned(tmp_path / "p", sentinel_accepted={"t": "the cold store is that cold"})
    assert answered.startswith("warning: accepted: -200 is in 17% of the rows of 't'")
    assert answered.endswith("because: the cold store is that cold")


def test_zeros_of_a_target_are_told_and_stop_nothing(tmp_path):
    """Claims, spending and rain are 0 in most rows."""
    begun(tmp_path, b=numbers(0, 1, 3), t=holding(numbers(900, 1200), "0", 0.5))
    (told,) = planned(tmp_path / "p")
    assert told.startswith("warning: 0 is in")


SENTINELS = {
    "999 above small numbers": holding([str(n % 53) for n in range(N)], "999", 0.5),
    "-1 below counts": holding([str(1 + n * 7 % 300) for n in range(N)], "-1", 0.5),
    "0 of what is never 0": holding(numbers(60, 80), "0", 0.05),
    "with a decimal comma": holding([cell.replace(".", ",") for cell in numbers(5, 9, 2)], "-99,00", 0.1),
}
ZEROS = np.where(np.arange(N) % 10 < 6, 0.0, RANDOM.uniform(40, 90, N))
PLAIN = {
    "0 of what often is 0": holding([f"{value:.0f}" for value in RANDOM.exponential(2000, N)], "0", 0.9),
    "the mode of a count": [str(min(n % 31, 9 + n % 3)) for n in range(N)],
    "a code of few values": holding([str(n % 19) for n in range(N)], "99", 0.5),
    "0 of most words": holding([str(3 + n * 7 % 40) for n in range(N)], "0", 0.4)[: N // 2] + ["0"] * (N // 2),
    "the 0 of a standardized column": [f"{(value - ZEROS.mean()) / ZEROS.std():.6f}" for value in ZEROS],
    "one far outlier": ["1e6", *numbers(0, 1, 3)[1:]],
    "nine outliers": [*["-50"] * 9, *numbers(0, 1, 3)[9:]],
    "numbers around 0": numbers(-5, 5),
    "a value that others have as often": [str((n * n) % 40) if n % 4 else ("-9", "7")[n // 4 % 2] for n in range(N)],
}


@pytest.mark.parametrize("case", SENTINELS)
def test_what_looks_like_a_sentinel_is_told(tmp_path, case):
    assert len(begun(tmp_path, a=SENTINELS[case], t=numbers(0, 1, 4))) == 1


@pytest.mark.parametrize("case", PLAIN)
def test_what_is_a_value_is_not_told(tmp_path, case):
    assert begun(tmp_path, a=PLAIN[case], t=numbers(0, 1, 4)) == []


def test_a_sentinel_that_is_a_value_of_another_column_is_not_to_be_declared_for_all(tmp_path):
    told = begun(tmp_path, a=holding(numbers(60, 80), "0", 0.1), b=[str(n % 50) for n in range(N)], t=numbers(0.5, 1, 4))
    assert told[0].endswith("leave these cells empty; data.missing would empty it in 'b' too")


def test_one_number_in_several_columns_is_one_question(tmp_path):
    told = begun(tmp_path, **{f"f{n}": holding(numbers(7, 1200), "-200", 0.2) for n in range(13)}, t=numbers(0.5, 1, 4))
    assert len(told) == 1
    assert "in 12 other columns ('f1', 'f2'" in told[0]
    assert told[0].endswith(f"write data: {{missing: {WITH_200}}}")
    assert len(planned(tmp_path / "p")) == 1
