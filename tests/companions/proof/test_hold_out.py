"""A table is divided: no row is in both files, rows that belong together stay together, and the author's key names the rest."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.workspace import sha256_file

HEAD = "x,day,person,answer\n"


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "all.csv"
    lines = [f'{i % 50},2026-01-{i % 25 + 1:02d},p{i % 10},"yes,\nsaid {i % 50}"\n' for i in range(200)]
    path.write_text(HEAD + "".join(lines))
    return path


def held_out(cli, path: Path, *more: str) -> tuple[list[list[str]], list[list[str]], dict]:
    said = cli("hold-out", "--data", path, "--json", *more, code=0).json
    author, held = Path(said["author"]), Path(said["held"])
    assert author.read_text().startswith(HEAD)
    assert held.read_text().startswith(HEAD)
    assert said["held_sha256"] == sha256_file(held)
    assert (len(rows_of(author)), len(rows_of(held))) == (said["author_rows"], said["held_rows"])
    assert sorted(rows_of(author) + rows_of(held)) == sorted(rows_of(path))
    return rows_of(author), rows_of(held), said


def test_equal_rows_are_in_one_file_and_a_seed_draws_the_same_rows_again(cli, whole):
    author, held, said = held_out(cli, whole, "--share", "10%", "--seed", "3")
    assert not {*map(tuple, author)} & {*map(tuple, held)}
    assert said["held_rows"] == 20
    again = held_out(cli, whole, "--share", "0.1", "--seed", "3", "--out", str(whole.parent / "again"))[2]
    other = held_out(cli, whole, "--share", "0.1", "--out", str(whole.parent / "other"))[2]
    assert said["held_sha256"] == again["held_sha256"] != other["held_sha256"]


def test_groups_stay_together_and_by_time_the_latest_rows_are_held(cli, whole):
    author, held, _ = held_out(cli, whole, "--share", "20%", "--group", "person")
    assert not {row[2] for row in author} & {row[2] for row in held}
    author, held, said = held_out(cli, whole, "--share", "20%", "--time", "day", "--out", str(whole.parent / "time"))
    assert max(row[1] for row in author) < min(row[1] for row in held)
    assert said["seed"] is None


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        (HEAD + "1,2,p,a\n2,3,p,b\n", ("--group", "person"), "one value of column 'person' has all rows"),
        (HEAD + "1,soon,p,a\n2,3,p,b\n", ("--time", "day"), "'soon' in column 'day' is no number and no date"),
        (HEAD + '1,2,p,"a\n', (), "a quote is not closed in its last row"),
        (HEAD + "1,2,p,a\n", (), "1 rows; at least 2 are needed"),
        (HEAD + "1,2,p,a\n2,3,p,b\n", ("--group", "who"), "there is no column 'who'; there are x, day, person, answer"),
    ],
)
def test_what_cannot_be_divided_is_refused(cli, tmp_path, text, more, told):
    path = tmp_path / "all.csv"
    path.write_text(text)
    cli("hold-out", "--data", path, "--share", "0.5", *more, code=1, err=told)
    assert [one.name for one in tmp_path.iterdir()] == ["all.csv"]


def test_nothing_is_overwritten(cli, whole):
    held_out(cli, whole, "--share", "10%")
    cli("hold-out", "--data", whole, "--share", "10%", code=1, err="this file exists already")


def project_of(folder: Path, split: dict) -> Path:
    config = {
        "name": "held",
        "task": {"kind": "tabular_classification"},
        "data": {"source": "a.csv", "target": "answer"},
        "model": {"name": "mlp", "hidden": [8]},
        "metric": {"name": "accuracy", "mode": "max"},
        "split": split,
    }
    path = folder / "mltrainer.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_printed_keys_leave_the_project_without_a_test_split(cli, whole):
    said = held_out(cli, whole, "--share", "10%", "--name", "lab")[2]
    shown = cli("hold-out", "--data", whole, "--share", "10%", "--name", "lab", "--out", whole.parent / "b", code=0).out
    split = yaml.safe_load(f"{{{shown.splitlines()[-1]}}}")
    assert split.keys() == {"held_by", "held_rows", "held_sha256"}
    loaded = load_project(project_of(whole.parent, {"validation": 0.25, **split})).split
    assert (loaded.test, loaded.held_by, loaded.held_rows) == (0.0, "lab", said["held_rows"])


def test_a_name_that_no_config_takes_is_refused(cli, whole):
    said = cli("hold-out", "--data", whole, "--share", "10%", "--name", "a: b", code=2)
    assert "expected letters, digits, . _ and -, found 'a: b'" in said.err
    assert not (whole.parent / f"{whole.stem}-held.csv").exists()


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ({"held_by": "lab"}, "give held_by, held_rows and held_sha256 together"),
        ({"held_by": "lab", "held_rows": 3, "held_sha256": "a" * 64, "test": 0.1}, "are held by lab; remove test: 0.1"),
        ({"held_by": "lab", "held_rows": 3, "held_sha256": "short"}, "held_sha256"),
    ],
)
def test_half_a_key_is_refused(tmp_path, split, told):
    with pytest.raises(InputError, match=told):
        load_project(project_of(tmp_path, split))
