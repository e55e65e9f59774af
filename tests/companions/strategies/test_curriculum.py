"""The order of a curriculum: which samples an epoch reads, and what tells how difficult they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.companions.strategies.curriculum import Curriculum, admitted
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.strategies import Curriculum as Settings
from mltrainer.errors import InputError
from mltrainer.reproducibility.seeds import epoch_order
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.strategy import Ranked
from mltrainer.trainers.native.data.addresses import plan_for, training_steps
from tests.refusals import refused

COUNT = 50
DIFFICULTY = np.random.default_rng(1).permutation(COUNT).astype(np.float64)


def settings(**changes: Any) -> Settings:
    return Settings.model_validate({"name": "curriculum", "epochs": 4, "by": "x", "begin": 0.2, **changes})


def ordered(**changes: Any) -> Curriculum:
    strategy = Curriculum(settings(**changes), "strategies.0", Path())
    strategy.rank(Ranked(np.arange(COUNT), lambda row: f"row {row}", lambda _name, _where: DIFFICULTY))
    return strategy


# --- the order --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pacing", "expected"),
    [("linear", [0.2, 0.4, 0.6, 0.8, 1, 1]), ("root", [0.2, 0.6, 0.2 + 0.8 * 0.5**0.5]), ("step", [0.2, 0.2])],
)
def test_the_share_grows_as_it_is_paced(pacing, expected):
    assert [admitted(settings(pacing=pacing), epoch) for epoch in range(len(expected))] == pytest.approx(expected)
    assert admitted(settings(pacing=pacing), 4) == 1


@pytest.mark.parametrize("descending", [False, True])
def test_an_epoch_reads_the_easiest_samples_about_as_often_each(descending):
    order = ordered(descending=descending).order(np.arange(COUNT), 7, 1)
    counts = np.bincount(order, minlength=COUNT)
    easiest = np.argsort(-DIFFICULTY if descending else DIFFICULTY)[:20]
    assert len(order) == COUNT
    assert set(np.flatnonzero(counts)) == set(easiest)
    assert set(counts[easiest]) == {2, 3}


def test_an_order_follows_from_seed_and_epoch_alone():
    strategy, ids = ordered(), np.arange(COUNT)
    assert np.array_equal(strategy.order(ids, 7, 1), ordered().order(ids, 7, 1))
    assert not np.array_equal(strategy.order(ids, 7, 1), strategy.order(ids, 8, 1))
    turns = strategy.order(ids, 7, 1)[:40].reshape(2, 20)
    assert not np.array_equal(*turns)
    assert sorted(turns[0]) == sorted(turns[1])


def test_epochs_that_read_all_samples_have_the_order_that_they_have_without_it():
    assert np.array_equal(ordered().order(np.arange(COUNT), 7, 4), epoch_order(7, 4, COUNT))


# --- what tells how difficult a sample is -----------------------------------------------------------


def table(root: Path, rows: str, **strategy: Any) -> OpenTask:
    (root / "rows.csv").write_text(rows)
    values = {
        "name": "table",
        "task": {"kind": "tabular_classification"},
        "data": {"source": "rows.csv", "target": "y", "ignore": ["doubt"]},
        "model": {"name": "mlp", "hidden": [8]},
        "metric": {"name": "loss", "mode": "min"},
        "batch_size": 8,
        "strategies": [{"name": "curriculum", "epochs": 2, **strategy}],
    }
    return open_task(TrainingConfig.model_validate(values), root)


def rows(doubt: str = "{n}") -> str:
    return "\n".join(["a,doubt,y", *(f"{n % 7 + n / 1000},{doubt.format(n=n * 37 % 101)},{n % 2}" for n in range(100))])


def first_epoch(task: OpenTask) -> set[int]:
    """Return the ids that the first epoch reads."""
    plan = plan_for(task.config, task.split("train"))
    steps = training_steps(task.split("train"), plan, task.config, 0)
    return {row for _ in range(plan.steps_per_epoch) for row in next(steps).ids.tolist()}


def test_rows_are_ordered_by_a_column_also_where_the_model_does_not_see_it(tmp_path):
    task = table(tmp_path, rows(), by="doubt", begin=0.25)
    doubts = {row: row * 37 % 101 for row in task.split("train").ids.tolist()}
    expected = sorted(doubts, key=lambda row: doubts[row])[: -(-len(doubts) // 4)]
    assert first_epoch(task) == set(expected)


def test_rows_are_ordered_by_the_margins_of_a_run(tmp_path):
    margins = np.linspace(-1, 1, 100).astype(np.float32)
    (tmp_path / "margins.f32").write_bytes(margins.tobytes())
    task = table(tmp_path, rows(), margins="margins.f32", begin=0.25)
    ids = sorted(task.split("train").ids.tolist(), reverse=True)
    assert first_epoch(task) == set(ids[: -(-len(ids) // 4)])
    other = margins.copy()
    other[3] += 1
    (tmp_path / "margins.f32").write_bytes(other.tobytes())
    assert table(tmp_path, rows(), margins="margins.f32", begin=0.25).data_sha256 != task.data_sha256


def rows_found(root: Path, **losses: Any) -> None:
    """Write what `mltrainer rows` says of all rows, with a loss that falls with the id, but for those of some."""
    found = [{"sample": n, "split": "train", "loss": losses.get(f"of{n}", -n)} for n in range(100)]
    unseen = [{"sample": n, "split": "validation", "loss": n} for n in range(100)]
    (root / "found.json").write_text(json.dumps({"rows": [*found, *unseen]}))


def test_rows_are_ordered_by_the_losses_of_a_run(tmp_path):
    rows_found(tmp_path)
    task = table(tmp_path, rows(), losses="found.json", begin=0.25)
    ids = sorted(task.split("train").ids.tolist(), reverse=True)
    assert first_epoch(task) == set(ids[: -(-len(ids) // 4)])
    rows_found(tmp_path, of3=-3.5)
    assert table(tmp_path, rows(), losses="found.json", begin=0.25).data_sha256 != task.data_sha256


def test_losses_that_are_none_or_miss_a_sample_are_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"rows": [{"sample": 3}]}')
    with pytest.raises(InputError, match=r"other\.json holds no losses"):
        table(tmp_path, rows(), losses="other.json")
    with pytest.raises(InputError, match=r"expected the losses of a run, found no file at 'none\.json'"):
        table(tmp_path, rows(), losses="none.json")
    first = int(table(tmp_path, rows(), by="doubt").split("train").ids[0])
    rows_found(tmp_path, **{f"of{first}": float("nan")})
    with pytest.raises(InputError, match=rf"rows\.csv:{first + 2} has no difficulty"):
        table(tmp_path, rows(), losses="found.json")


def test_rows_of_no_sample_change_no_order(tmp_path):
    rows_found(tmp_path)
    task = table(tmp_path, rows(), losses="found.json", begin=0.25)
    found = json.loads((tmp_path / "found.json").read_text())
    found["rows"] += [{"sample": n, "split": "train", "loss": 99} for n in (*range(-100, 0), 10**12)]
    (tmp_path / "found.json").write_text(json.dumps(found))
    assert first_epoch(table(tmp_path, rows(), losses="found.json", begin=0.25)) == first_epoch(task)


def test_losses_that_are_not_readable_are_refused_with_the_command_for_others(tmp_path):
    (tmp_path / "torn.json").write_text('{"rows": [')
    with refused(r"torn\.json holds no losses", where="strategies.0.losses") as caught:
        table(tmp_path, rows(), losses="torn.json")
    assert caught.value.hint == "mltrainer rows RUN --hardest --most 10000 --json > torn.json"


@pytest.mark.parametrize(
    ("strategy", "text", "message"),
    [
        ({"by": "nothing"}, rows(), "samples have no 'nothing'; there are: a, doubt, y"),
        ({"by": "doubt"}, rows("low"), r"rows\.csv:\d+ has no difficulty"),
        ({}, rows(), "nothing says how difficult a sample is"),
        ({"margins": "none.f32"}, rows(), "no file at 'none.f32'"),
        ({"margins": "short.f32"}, rows(), "has no difficulty"),
        ({"margins": "torn.f32"}, rows(), "7 bytes are no margins"),
    ],
)
def test_samples_without_a_difficulty_are_refused(tmp_path, strategy, text, message):
    (tmp_path / "short.f32").write_bytes(np.ones(5, np.float32).tobytes())
    (tmp_path / "torn.f32").write_bytes(bytes(7))
    with pytest.raises(InputError, match=message):
        table(tmp_path, text, **strategy)


def test_two_measures_of_difficulty_are_refused():
    with pytest.raises(ValueError, match="give by or margins"):
        settings(margins="m.f32")
    with pytest.raises(ValueError, match="give margins or losses"):
        settings(by=None, margins="m.f32", losses="found.json")
