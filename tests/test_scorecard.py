"""The scorecard's verdicts and its table, without any trainer."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.configs import yaml
from mltrainer.configs.project import ProjectConfig
from tests.benchmarks.scorecard.case import LR, Case, Outcome, Weights
from tests.benchmarks.scorecard.rows import (
    ROWS,
    Cell,
    Damage,
    Row,
    changed_rate,
    compare,
    honest,
    new_lines,
    noticed,
    raised,
    relative_error,
    survived,
)
from tests.benchmarks.scorecard.store import Column, merged, save, stored
from tests.benchmarks.scorecard.table import BUILT_IN_MARKS, MARKS, STRATEGIES_MARKS, placed, render, versions_line

WORDS = ("damaged", "sha256")


def weights(value: float) -> Weights:
    return {"w": np.full((2, 2), value, np.float32), "b": np.zeros(2, np.float32)}


def ended(value: float = 1.0, said: str = "") -> Outcome:
    return Outcome(0, said, weights(value))


def died(said: str, code: int = 1) -> Outcome:
    return Outcome(code, said, None)


REFERENCE = ended()


@pytest.mark.parametrize(
    ("others", "cell"),
    [
        ([ended()], Cell("same bits", "pass")),
        ([ended(), ended(1.1)], Cell("differs (10 %)", "fail")),
        ([ended(1.05), ended(3.0)], Cell("differs (200 %)", "fail")),
        ([died("Traceback\n  line\nx.NotThereError: no file")], Cell("crashes: NotThereError", "fail")),
        ([died("")], Cell("crashes: exit code 1", "fail")),
    ],
)
def test_runs_are_compared_bit_for_bit(others, cell):
    assert compare(REFERENCE, *others) == cell


def test_the_sign_of_a_zero_is_a_bit():
    other = {**weights(1.0), "b": np.array([0.0, -0.0], np.float32)}
    assert compare(REFERENCE, Outcome(0, "", other)).text == "differs (0 %)"


def test_other_tensors_are_infinitely_far():
    assert relative_error(weights(1.0), {"w": np.ones((2, 2), np.float32)}) == float("inf")


@pytest.mark.parametrize(
    ("outcome", "text", "mark"),
    [
        (died("error: checkpoint 3 is damaged", 4), "refused, by name", "pass"),
        (died("damaged\nTraceback\nValueError: negative size"), "crashes: ValueError", "fail"),  # said before, not the reason
        (ended(1.0, "passed over a damaged checkpoint"), "passed over by name, same bits", "pass"),
        (ended(1.0), "without a word, same bits", "fail"),
        (ended(2.0, "a damaged file"), "loaded with a warning", "fail"),
        (ended(2.0, "step 9 of 64"), "loaded without a word", "fail"),
    ],
)
def test_what_was_changed_must_be_named_or_have_no_effect(outcome, text, mark):
    assert noticed(outcome, ended(1.0, "step 8 of 64"), REFERENCE, WORDS) == Cell(text, mark)  # type: ignore[arg-type]


def test_a_learning_rate_that_is_ignored_is_told():
    assert changed_rate(ended(), REFERENCE, REFERENCE, ("lr",)).text == "the change is ignored without a word"
    assert changed_rate(died("error: lr is 0.1, was 0.2"), REFERENCE, REFERENCE, ("lr",)).mark == "pass"


def test_numbers_make_no_new_line():
    assert new_lines("loss 0.31\nwarning: x", "loss 0.30") == "warning: x"


def test_the_last_exception_is_the_reason():
    assert raised("a.FirstError: x\n  caused\nb.SecondError: y") == "SecondError"
    assert raised("all is well") is None


def test_every_moment_of_a_save_must_be_survived():
    assert survived(REFERENCE, [ended(), ended()]) == Cell("same bits (2 of 2 moments)", "pass")
    found = survived(REFERENCE, [ended(), ended(1.1), died("LostError: x")])
    assert found == Cell("resumes, differs (10 %); crashes: LostError (2 of 3 moments)", "fail")
    assert survived(REFERENCE, []).mark == "unknown"


def test_nan_must_stop_the_run():
    lost = weights(float("nan"))
    assert honest(died("error: the loss is not finite at step 10", 4)).mark == "pass"
    assert honest(Outcome(0, "loss nan", lost)) == Cell("goes on, exit 0, weights NaN, `nan` in its log", "fail")
    assert honest(Outcome(0, "", lost)) == Cell("goes on, exit 0, weights NaN, not reported", "fail")


class Perfect:
    """Runs of a trainer in which nothing is wrong."""

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        return died("the loss is NaN") if case.nan_at else ended()

    def resumed(self, case: Case, stop: int, damage: Damage = "none", lr: float = LR) -> Outcome:
        changed = damage != "none" or lr != LR
        return died("error: damaged checkpoint, optimizer missing, data changed, lr changed") if changed else ended()

    def killed_while_saving(self, case: Case, stop: int) -> list[Outcome]:
        return [ended()]


class Forgetful(Perfect):
    """Runs of a trainer that resumes into another run, whatever was changed."""

    def resumed(self, case: Case, stop: int, damage: Damage = "none", lr: float = LR) -> Outcome:
        return ended({"none": 1.1}.get(damage, 1.2))


def test_every_row_can_be_passed_and_a_wrong_resume_fails_its_own_rows():
    assert {row.judge(Perfect()).mark for row in ROWS} == {"pass"}
    failed = [row.title for row in ROWS if row.judge(Forgetful()).mark == "fail"]
    assert [title for title in failed if "resume" not in title] == ["a bit flipped in the checkpoint", "optimizer state deleted"]
    assert len(failed) == 7


def test_the_table_has_a_column_per_trainer_and_counts_what_passed():
    rows = [Row("one", lambda _: Cell("", "pass")), Row("two", lambda _: Cell("", "pass"))]
    columns = {"A": [Cell("same", "pass"), Cell("a|b", "fail")], "B": [Cell("same", "pass"), Cell("same", "pass")]}
    assert render(rows, columns) == (
        "|  | A | B |\n| --- | --- | --- |\n| one | ✅ same | ✅ same |\n| two | ❌ a\\|b | ✅ same |\n"
        "| **passed** | **1 of 2** | **2 of 2** |\n"
    )


def test_a_table_in_which_every_cell_passes_is_a_sentence():
    rows = [Row("one", lambda _: Cell("", "pass"))]
    assert render(rows, {"A": [Cell("same", "pass")], "B": [Cell("same", "pass")]}) == "1 of 1 rows passed by each: A, B.\n"


def test_trainers_with_the_same_cells_share_a_column():
    rows = [Row("one", lambda _: Cell("", "pass"))]
    columns = {"A": [Cell("same", "pass")], "B": [Cell("", "fail")], "C": [Cell("same", "pass")]}
    assert render(rows, columns).splitlines()[0] == "|  | A; C | B |"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("differs (50 %)", "50 %"), ("differs (weights 8 %, loss 1 %)", "8 %"), ("loaded by name", "loaded by name")],
)
def test_runs_that_differ_are_shown_by_how_far(text, shown):
    assert f"| one | ❌ {shown} |" in render([Row("one", lambda _: Cell("", "pass"))], {"A": [Cell(text, "fail")]})


def test_a_row_that_makes_no_sense_for_a_trainer_is_not_counted():
    rows = [Row("one", lambda _: Cell("", "pass")), Row("two", lambda _: Cell("", "pass"))]
    table = render(
        rows, {"A": [Cell("same", "pass"), Cell("has none", "unasked")], "B": [Cell("same", "pass"), Cell("", "unknown")]}
    )
    assert table.splitlines()[-2:] == ["| two | – has none | – |", "| **passed** | **1 of 1** | **1 of 2** |"]


def test_the_table_takes_the_place_of_the_last_one():
    begin, end = MARKS
    document = f"before\n{begin}\nold\n{end}\nafter\n"
    once = placed(document, "new")
    assert once == f"before\n{begin}\nnew\n{end}\nafter\n"
    assert placed(once, "new") == once
    with pytest.raises(ValueError, match="expected one"):
        placed("nothing", "new")


def test_the_page_has_the_places_of_the_tables():
    page = (Path(__file__).parents[1] / "docs/SCORECARD.md").read_text("utf-8")
    assert placed(page, "new")
    assert placed(page, "new", BUILT_IN_MARKS)
    assert placed(page, "new", STRATEGIES_MARKS)


def test_each_strategy_has_a_column():
    from mltrainer import plugins
    from tests.benchmarks.scorecard.trainers import STRATEGIES

    assert {trainer.name for trainer in STRATEGIES} >= plugins.parts("strategies").keys()


def test_what_is_not_installed_is_named():
    assert versions_line({"a": "1.0", "b": None}) == "Versions: a 1.0. Not installed, so left out: b."


def test_a_column_is_kept_until_version_or_rows_change(tmp_path):
    rows = [Row("one", lambda _: Cell("", "pass"))]
    column = Column("A", "1.0", ["one"], [Cell("same", "pass")])
    save(tmp_path, column)
    assert stored(tmp_path, "A", "1.0", rows) == column
    assert stored(tmp_path, "A", "1.1", rows) is None
    assert stored(tmp_path, "A", "1.0", [*rows, *rows]) is None
    assert stored(tmp_path, "B", "1.0", rows) is None


def test_rows_that_are_measured_again_take_the_place_of_their_cells_alone():
    known = Column("A", "1.0", ["one", "two"], [Cell("same", "pass"), Cell("", "unknown")])
    again = Column("A", "1.0", ["two"], [Cell("differs", "fail")])
    assert merged(known, again) == Column("A", "1.0", ["one", "two"], [Cell("same", "pass"), Cell("differs", "fail")])
    assert merged(None, again) is None


def test_a_case_travels_as_text_and_sheds_its_faults():
    case = Case(noise=True, stop_after=32, kill_at=2, nan_at=10)
    assert Case.loads(case.dumps()) == case
    assert case.unharmed() == dataclasses.replace(Case(), noise=True)


def test_faults_befall_the_training_of_a_task_that_comes_with_mltrainer(monkeypatch):
    import torch
    from torch.nn import functional

    from tests.benchmarks.scorecard import work

    monkeypatch.setattr(functional, "cross_entropy", functional.cross_entropy)
    monkeypatch.setenv(work.VARIABLE, Case(nan_at=1).dumps())
    work.Faults()
    batch = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    assert functional.cross_entropy(*batch).isnan()
    with torch.no_grad():
        assert functional.cross_entropy(*batch).isfinite()


@pytest.mark.slow
@pytest.mark.parametrize("work", ["table", "text", "images", "Lightning module", "Hugging Face model"])
def test_the_scorecards_built_in_work_is_a_project_whose_data_follow_a_seed(tmp_path, work):
    from tests.benchmarks.scorecard.trainers import BUILT_IN
    from tests.benchmarks.scorecard.trainers.builtin import BuiltIn

    trainer = next(trainer for trainer in BUILT_IN if trainer.name == work)
    assert isinstance(trainer, BuiltIn)
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        trainer.write_data(tmp_path / name, seed)
    one, again, other = (_content(tmp_path / name) for name in ("one", "again", "other"))
    assert one == again
    assert one != other
    values = {**yaml.parse(trainer.files["mltrainer.yaml"], "mltrainer.yaml").value}
    task = ProjectConfig.model_validate(values).task
    assert (task.kind == trainer.kind) if task.kind else task.use


def test_the_work_of_a_strategy_has_the_same_trained_weights_beside_any_data(tmp_path):
    from tests.benchmarks.scorecard.trainers import STRATEGIES

    for name, seed in (("one", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        STRATEGIES[0].write_data(tmp_path / name, seed)
    one, other = (_content(tmp_path / name) for name in ("one", "other"))
    assert [name for name in one if one[name] != other[name]] == ["data.npz"]


def _content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_one_bit_of_the_models_weights_is_flipped(tmp_path, kind):
    import safetensors.torch
    import torch

    from tests.benchmarks.scorecard.damage import flip_bit

    tensors: dict[str, Any] = {"model.b": torch.ones(2), "model.w": torch.ones(8, 8), "optimizer.w": torch.full((8, 8), 2.0)}
    path = tmp_path / "checkpoint"
    if kind == "torch":
        torch.save({"generator": torch.zeros(5056, dtype=torch.uint8), **tensors}, path)
    else:
        safetensors.torch.save_file(tensors, path)
    flip_bit(path)
    data = path.read_bytes()
    found = torch.load(io.BytesIO(data)) if kind == "torch" else safetensors.torch.load(data)
    changed = {name: int((found[name] != tensors[name]).sum()) for name in tensors}
    assert changed == {"model.w": 1, "model.b": 0, "optimizer.w": 0}
    assert float(found["model.w"].max()) == 1.5
