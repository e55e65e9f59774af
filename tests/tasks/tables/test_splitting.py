import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Split, load_project
from mltrainer.errors import InputError
from mltrainer.project.start import make_project
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.splits import SPLITS, SplitConstraints, split_ids

RANDOM = np.random.default_rng(0)


@pytest.fixture
def opened(config, tmp_path):
    """Open a table that a test wrote as header and rows."""

    def make(header, rows, split=None, kind="tabular_classification", metric="accuracy", **data):
        (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
        return open_task(
            config(
                task={"kind": kind},
                data={"source": "t.csv", "target": "t", **data},
                metric={"name": metric, "mode": "max"},
                split={"validation": 0.2, "test": 0.2, **(split or {})},
                batch_size=2,
            ),
            tmp_path,
        )

    return make


def said(task):
    return [f"{f['severity']}: {f['what']}" for f in task.facts(DataLimits())["findings"]]


def ids_of(task):
    task.open_test()
    return {name: task.split(name).ids for name in SPLITS}


# --- rows that repeat ---

THRICE = [f"{i // 3}.5,{i // 3 * 7}.25,{'ab'[i // 3 % 2]}" for i in range(120)]


def test_equal_rows_are_leakage_where_they_fall_anywhere(opened):
    found = said(opened("n,m,t", THRICE))
    assert any(line.startswith("error: leakage") and "split: {repeats: together}" in line for line in found)


@pytest.mark.parametrize("few", [False, True])
def test_equal_rows_go_to_one_split_and_are_counted(opened, few):
    """Also where the columns could take few values together, if rows drawn by chance would differ more."""
    rows = [f"{i // 3}.5,{i // 3 * 7 % 11}.25,{'ab'[i // 3 % 2]}" for i in range(120)] if few else THRICE
    task = opened("n,m,t", rows, {"repeats": "together"})
    seen = [row for ids in ids_of(task).values() for row in sorted({row // 3 for row in ids.tolist()})]
    assert sorted(seen) == list(range(40))
    assert task.facts(DataLimits())["duplicates_across_splits"] == 0
    counted = "info: 80 of 120 rows repeat the features of another, 80 of them its target too; equal rows lie together"
    assert any(line.startswith(counted) for line in said(task))


COPIED = [*["0.5,7.25,a"] * 90, *(f"{i}.5,{i * 7 % 101}.25,{'ab'[i % 2]}" for i in range(1, 211))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_copies_that_fill_a_split_are_trained_on_where_the_plan_says_so(opened, seed):
    task = opened("n,m,t", COPIED, {"repeats": "together", "largest_repeat": 0.02, "seed": seed})
    assert set(range(90)) <= set(ids_of(task)["train"].tolist())
    assert [len(ids) for ids in ids_of(task).values()] == [180, 60, 60]
    assert "warning: 90 of 300 rows have the same features as t.csv:2 (30%): they are trained on" in "\n".join(said(task))


def test_copies_that_fill_a_split_of_an_older_plan_are_told(opened):
    held = [opened("n,m,t", COPIED, {"repeats": "together", "seed": seed}) for seed in range(6)]
    filled = [(ids_of(task), "\n".join(said(task))) for task in held if 0 not in ids_of(task)["train"]]
    assert filled
    for ids, text in filled:
        name = "validation" if 0 in ids["validation"] else "test"
        assert f"fill the {name} split, whose metric is theirs: write split: {{largest_repeat: 0.02}}" in text


def test_init_says_how_often_one_row_occurs_and_lets_it_fill_no_split(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join(["n,m,t", *COPIED]))
    told = make_project(tmp_path / "p", None, tmp_path / "t.csv", "t")
    assert "warning: one row's features occur 90 times in 300 rows" in "\n".join(told)
    assert load_project(tmp_path / "p" / "mltrainer.yaml").split.largest_repeat == 0.02


def test_equal_features_with_other_targets_stay_together_too(opened):
    rows = [f"{i // 2}.5,{i // 2 * 7}.25,{'ab'[i % 2]}" for i in range(100)]
    ids = ids_of(opened("n,m,t", rows, {"repeats": "together"}))
    assert all({row ^ 1 for row in part.tolist()} == set(part.tolist()) for part in ids.values())


def test_copies_beyond_chance_are_bound_where_columns_take_few_values(opened):
    rows = [f"{i % 50 * 37 % 101},{'xyz'[i % 50 % 3]},{'ab'[i % 2]}" for i in range(200)]
    ids = ids_of(opened("n,m,t", rows, {"repeats": "together"}))
    assert all(
        {row % 50 for row in ids["train"].tolist()}.isdisjoint(row % 50 for row in ids[name].tolist()) for name in SPLITS[1:]
    )


def test_rows_that_must_repeat_are_not_bound(opened):
    rows = [f"{i % 7},{'xy'[i % 2]},{'ab'[i * i % 5 % 2]}" for i in range(90)]
    one, other = ids_of(opened("n,m,t", rows)), ids_of(opened("n,m,t", rows, {"repeats": "together"}))
    assert all(np.array_equal(one[name], other[name]) for name in SPLITS)
    found = said(opened("n,m,t", rows, {"repeats": "together"}))
    assert any(line.startswith("warning") and "so few values together that rows must repeat" in line for line in found)


def test_large_groups_leave_no_split_empty_where_there_are_three(opened):
    ids = ids_of(opened("g,n,t", [f"{i // 30},{i}.5,{'ab'[i % 2]}" for i in range(90)], {"group": "g", "stratify": False}))
    assert [len(ids[name]) for name in SPLITS] == [30, 30, 30]


def test_without_a_repeat_nothing_is_dealt_otherwise(opened):
    rows = [f"{i}.5,{'ab'[i % 2]}" for i in range(60)]
    one, other = ids_of(opened("n,t", rows)), ids_of(opened("n,t", rows, {"repeats": "together"}))
    assert all(np.array_equal(one[name], other[name]) for name in SPLITS)


def test_rows_that_only_coincide_without_a_left_out_column_are_no_leakage(opened):
    rows = [f"Person Number {i},{i // 3}.5,{i // 3 * 7}.25,{'ab'[i // 3 % 2]}" for i in range(120)]
    found = said(opened("name,n,m,t", rows, ignore=["name"]))
    assert any("columns that were left out distinguish them: 'name'" in line and line.startswith("warning") for line in found)


def test_an_id_column_does_not_excuse_repeated_rows(opened):
    rows = [f"{i},{i // 3}.5,{i // 3 * 7}.25,{'ab'[i // 3 % 2]}" for i in range(120)]
    assert any(line.startswith("error: leakage") for line in said(opened("id,n,m,t", rows, ignore=["id"])))


# --- groups, times, the data's own splits ---


def test_the_rows_of_a_group_go_to_one_split_and_the_group_is_no_feature(opened):
    rows = [f"p{i // 6},{i}.5,{'ab'[i // 6 % 2]}" for i in range(120)]
    task = opened("patient,n,t", rows, {"group": "patient"})
    seen = {name: {row // 6 for row in ids.tolist()} for name, ids in ids_of(task).items()}
    assert sum(map(len, seen.values())) == 20
    assert [column["name"] for column in task.facts(DataLimits())["columns"]] == ["n"]


def test_a_group_that_holds_nearly_everything_leaves_a_split_empty(opened):
    with pytest.raises(InputError, match="a split is empty by the groups of 'g'"):
        opened("g,n,t", [f"x,{i}.5,{'ab'[i % 2]}" for i in range(40)], {"group": "g", "stratify": False})


def test_the_past_trains_and_the_future_tests(opened):
    rows = [f"2020-{1 + i % 12:02d}-{1 + i // 12:02d},{i}.5,{'ab'[i % 2]}" for i in range(120)]
    task = opened("day,n,t", rows, {"time": "day"}, columns={"day": "date"})
    ids = ids_of(task)
    days = {name: [rows[row][:10] for row in part] for name, part in ids.items()}
    assert max(days["train"]) < min(days["validation"])
    assert max(days["validation"]) < min(days["test"])
    assert [len(ids[name]) for name in SPLITS] == [72, 24, 24]


def test_rows_of_one_moment_are_not_parted(opened):
    ids = ids_of(opened("year,n,t", [f"{2000 + i // 12},{i}.5,{'ab'[i % 2]}" for i in range(120)], {"time": "year"}))
    years = {name: {2000 + row // 12 for row in part.tolist()} for name, part in ids.items()}
    assert max(years["train"]) < min(years["validation"])
    assert max(years["validation"]) < min(years["test"])


def test_running_days_are_no_feature_where_time_splits(opened):
    rows = [f"2020-{1 + i % 12:02d}-{1 + i // 12:02d},{i}.5,{'ab'[i % 2]}" for i in range(120)]
    with_days = opened("day,n,t", rows, columns={"day": "date"}).facts(DataLimits())["shape"]
    without = opened("day,n,t", rows, {"time": "day"}, columns={"day": "date"}).facts(DataLimits())["shape"]
    assert (with_days, without) == ([6], [5])


def test_rows_without_a_moment_are_told(opened):
    rows = [f"{'' if i == 5 else 2000 + i},{i}.5,{'ab'[i % 2]}" for i in range(40)]
    with pytest.raises(InputError, match=r"t.csv:7: 1 of 40 rows have no time in column 'year'"):
        opened("year,n,t", rows, {"time": "year"})


def test_the_datas_own_splits_are_kept(opened):
    rows = [f"{['Train', 'train', 'val', 'test'][i % 4]},{i}.5,{'ab'[i // 4 % 2]}" for i in range(80)]
    ids = ids_of(opened("part,n,t", rows, {"column": "part"}))
    assert {name: set((part % 4).tolist()) for name, part in ids.items()} == {"train": {0, 1}, "validation": {2}, "test": {3}}


def test_validation_rows_are_drawn_from_those_to_train_on_where_none_are_named(opened):
    rows = [f"{['train', 'train', 'train', 'test'][i % 4]},{i}.5,{'ab'[i // 4 % 2]}" for i in range(80)]
    ids = ids_of(opened("part,n,t", rows, {"column": "part"}))
    assert (len(ids["train"]), len(ids["validation"]), set((ids["test"] % 4).tolist())) == (48, 12, {3})


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"group": "nobody"}, "there is no column 'nobody' in "),
        ({"time": "t"}, "rows have no time in column 't'"),
        ({"column": "n"}, "name no split; train, validation and test are known"),
    ],
)
def test_a_column_that_cannot_split_is_refused(opened, split, message):
    with pytest.raises(InputError, match=message):
        opened("n,m,t", [f"{i}.5,{i},{'ab'[i % 2]}" for i in range(40)], split)


def test_a_drawn_split_of_groups_keeps_the_shares():
    units = np.repeat(np.arange(200), RANDOM.integers(1, 6, 200))
    labels = (units % 3 == 0).astype(np.int64)
    found = split_ids(len(units), labels, Split(validation=0.2, test=0.1), 7, SplitConstraints(units=units))
    assert sorted(np.concatenate([*found.values()]).tolist()) == list(range(len(units)))
    for name, share in {"train": 0.7, "validation": 0.2, "test": 0.1}.items():
        assert abs(len(found[name]) / len(units) - share) < 0.02
        assert abs(labels[found[name]].mean() - labels.mean()) < 0.05


# --- columns that give the target ---


def test_columns_whose_sum_is_the_target_are_named(opened):
    casual, registered = RANDOM.integers(0, 50, 100), RANDOM.integers(0, 90, 100)
    rows = [f"{c},{r},{n:.3f},{c + r}" for c, r, n in zip(casual, registered, RANDOM.normal(size=100), strict=True)]
    found = said(opened("casual,registered,n,t", rows, {"stratify": False}, "tabular_regression", "r2"))
    assert any(line.startswith("error: leakage: 'casual' and 'registered' give the target, as their sum") for line in found)


def test_a_copy_under_another_scale_is_named(opened):
    t = RANDOM.normal(size=100)
    rows = [f"{1.8 * v + 32:.9f},{n:.3f},{v:.9f}" for v, n in zip(t, RANDOM.normal(size=100), strict=True)]
    found = said(opened("fahrenheit,n,t", rows, {"stratify": False}, "tabular_regression", "r2"))
    assert any(line.startswith("error: leakage: 'fahrenheit' is the target under another scale") for line in found)


def test_a_line_through_columns_that_only_nearly_gives_the_target_is_not_mentioned(opened):
    a, b = RANDOM.normal(size=200), RANDOM.normal(size=200)
    rows = [f"{x:.6f},{y:.6f},{x + y + e:.6f}" for x, y, e in zip(a, b, RANDOM.normal(size=200) * 0.01, strict=True)]
    found = said(opened("a,b,t", rows, {"stratify": False}, "tabular_regression", "r2"))
    assert not any("together" in line for line in found)


@pytest.mark.parametrize(("split", "coded"), [({}, 55), ({"group": "unit"}, 25), ({"time": "day"}, 25)], ids=str)
def test_a_number_has_a_code_where_its_effect_holds_for_rows_as_the_split_holds_them_out(config, tmp_path, split, coded):
    """The 25 shops return in later weeks and other units; of the 30 weeks, each a unit's, none does."""
    draws = np.random.default_rng(0)
    weeks, shops = draws.normal(size=30), draws.normal(size=25)
    rows = [(day, day // 20, shop, weeks[day // 20] + shops[shop]) for day, shop in enumerate(draws.integers(0, 25, 600))]
    lines = [f"{day + 0.5},u{week},{week},{shop},{value + draws.normal(0, 0.1):.4f}" for day, week, shop, value in rows]
    (tmp_path / "sales.csv").write_text("\n".join(["day,unit,week,shop,value", *lines]))
    made = config(
        task={"kind": "tabular_regression"}, data={"source": "sales.csv", "target": "value", "ignore": ["unit"] * (not split)},
        split=split, model={"name": "tabular_mlp", "codes": True}, metric={"name": "r2", "mode": "max"},
    )  # fmt: skip
    assert sum(map(len, open_task(made, tmp_path).task._codes)) == coded


def test_where_the_training_rows_are_of_too_few_groups_to_hold_some_out_no_number_has_a_code(config, tmp_path):
    lines = [f"u{number % 4},{number % 25},{number % 25 * 7 % 25}" for number in range(600)]
    (tmp_path / "sales.csv").write_text("\n".join(["unit,shop,value", *lines]))
    made = config(
        task={"kind": "tabular_regression"}, data={"source": "sales.csv", "target": "value"}, split={"group": "unit"},
        model={"name": "tabular_mlp", "codes": True}, metric={"name": "r2", "mode": "max"},
    )  # fmt: skip
    assert not any(map(len, open_task(made, tmp_path).task._codes))
