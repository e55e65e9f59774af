"""What a referee says of each value: the same bits, within the interval, a criterion met, or no."""

from __future__ import annotations

import math
import random
from typing import Any, Literal, NoReturn

import pytest

from mltrainer.companions.proof.findings import Audit, Score, Scored, SegmentReplay
from mltrainer.companions.proof.referee.checking import (
    checked_audit,
    checked_files,
    checked_held,
    checked_judged,
    checked_scores,
    checked_training,
    comparable,
)
from mltrainer.companions.proof.referee.closing import _isolation, why_open
from mltrainer.companions.proof.referee.rows import row_count
from mltrainer.companions.proof.replay import scoring
from mltrainer.configs.project import Data, Metric, TrainingConfig
from mltrainer.errors import GateError, InputError, MachineError
from mltrainer.records.common import Difference, Divergence
from mltrainer.records.finalization import Finalization
from mltrainer.records.job import ScoreJob
from mltrainer.records.partial import partial
from mltrainer.records.run import Run
from mltrainer.records.verdict import verdict_of
from mltrainer.tasks import sources
from mltrainer.workspace import Project, seal

ROW = {"step": 3, "epoch": 1, "validation": {"accuracy": 0.9}, "train": {"accuracy": 0.95}}


def outcomes(rows: Any) -> dict[str, str]:
    return {row.what: row.outcome for row in rows}


def score(value: float, *ends: float) -> Score:
    return Score(samples=90, metrics={"accuracy": value}, intervals={"accuracy": [*ends]} if ends else {}, own={})


def of_validation(recorded: float, found: Score) -> str:
    evidence = partial(Finalization, {"run": {"best": {"validation": {"accuracy": recorded}}}, "delivered_sha256": "a"})
    rows = outcomes(checked_scores(evidence, Scored(weights_sha256="a", splits={"validation": found})))
    assert rows.pop("delivered weights") == "same"
    return rows["accuracy on validation"]


@pytest.mark.parametrize(
    ("recorded", "found", "outcome"),
    [
        (0.9, score(0.9), "same"),
        (0.9, score(0.9000000000000001), "no"),
        (0.9, score(0.85, 0.8, 0.92), "within"),
        (0.95, score(0.85, 0.8, 0.92), "no"),
        (0.7, score(0.85, 0.8, 0.92), "no"),
    ],
)
def test_a_number_is_the_same_bits_or_within_the_interval_or_not(recorded, found, outcome):
    assert of_validation(recorded, found) == outcome


def test_other_weights_than_the_delivered_ones_are_told():
    evidence = partial(Finalization, {"run": {}, "delivered_sha256": "a"})
    assert outcomes(checked_scores(evidence, Scored(weights_sha256="b", splits={}))) == {"delivered weights": "no"}


def config(mode: Literal["max", "min"], criterion: str) -> TrainingConfig:
    return TrainingConfig.model_construct(metric=Metric(name="accuracy", mode=mode), acceptance={"accuracy": criterion})


@pytest.mark.parametrize(
    ("mode", "recorded", "within"),
    [("max", 0.9, "within"), ("max", 0.7, "within"), ("max", 0.93, "no"), ("min", 0.9, "within"), ("min", 0.7, "no")],
)
def test_on_the_held_rows_a_metric_may_be_better_than_recorded_and_not_worse(mode, recorded, within):
    held = score(0.85, 0.8, 0.92)
    rows = outcomes(checked_held(config(mode, ">= 0.8"), {"accuracy": recorded}, score(recorded), held))
    assert rows == {
        "accuracy on the held rows, as on validation": within,
        "acceptance of accuracy on the held rows": "met",
    }


def test_a_criterion_that_the_held_rows_miss_is_told():
    rows = outcomes(checked_held(config("max", ">= 0.86"), {"accuracy": 0.85}, score(0.85), score(0.85, 0.8, 0.92)))
    assert rows["acceptance of accuracy on the held rows"] == "no"


@pytest.mark.parametrize(("accuracy", "validation_rows", "held_rows"), [(0.9, 100, 1000), (0.9, 102, 90), (0.8, 300, 300)])
def test_of_honest_models_at_most_one_in_twenty_is_refused_by_the_held_rows(accuracy, validation_rows, held_rows):
    draws, refused = random.Random(20261130), 0

    def measured(rows: int) -> Score:
        share = sum(draws.random() < accuracy for _ in range(rows)) / rows
        half = 1.96 * math.sqrt(share * (1 - share) / rows)
        return score(share, share - half, share + half)

    for _ in range(1000):
        validation, held = measured(validation_rows), measured(held_rows)
        [row, _] = checked_held(config("max", ">= 0"), validation.metrics, validation, held)
        refused += row.outcome == "no"
    assert refused < 50


@pytest.mark.parametrize(
    ("read", "rows", "outcome"),
    [
        ({"held/a.csv": "a"}, 90, ("same", "same")),
        ({"held/a.csv": "b"}, 90, ("no", "same")),
        ({}, 90, ("no", "same")),
        ({"held/a.csv": "a"}, 131, ("same", "no")),
    ],
)
def test_the_file_that_was_judged_and_the_number_of_its_rows_are_compared(read, rows, outcome):
    found = Scored(weights_sha256="a", splits={"test": score(0.8)}, files=read)
    shown = outcomes(checked_judged("a", rows, "held/a.csv", found))
    assert shown == dict(zip(("file of the held rows, as it was judged", "held rows that were judged"), outcome, strict=True))
    assert len(list(checked_judged("a", None, "held/a.csv", found))) == 1


@pytest.mark.parametrize(
    ("name", "content", "data", "count"),
    [
        ("a.csv", 'x,y\n1,"a\nb"\n2,c\n', {}, 2),
        ("a.csv", "1,a\n2,b\n3,c\n", {"header": False}, 3),
        ("a.tsv", "title\nx\ty\n1\ta\n2\tb\n", {"skip_lines": 1}, 2),
        ("a.jsonl", '{"x": 1}\n{"x": 2}\n', {"header": False}, 2),
        ("a.parquet", "", {}, None),
    ],
)
def test_the_rows_of_a_file_are_counted_as_the_config_places_them(tmp_path, name, content, data, count):
    (tmp_path / name).write_text(content)
    assert row_count(tmp_path / name, Data.model_validate({"source": name, **data})) == count


def test_no_kept_table_is_read_or_written_while_rows_are_scored(tmp_path, monkeypatch):
    (tmp_path / "mltrainer.yaml").touch()
    (tmp_path / "a.csv").write_text("x,y\n1,a\n2,b\n")
    monkeypatch.setattr(sources, "FAST_FROM", 0)

    def opened(*_: Any) -> NoReturn:
        sources.read_source(Data(source="a.csv", target="y"), tmp_path)
        raise InputError("read")

    monkeypatch.setattr(scoring, "open_untrained", opened)
    monkeypatch.setattr(scoring, "load", lambda _: ({}, None))
    job = partial(ScoreJob, {"checkpoint": "c", "config": None})
    with pytest.raises(InputError, match="read"):
        scoring.scored(job, tmp_path)
    assert not (tmp_path / ".mltrainer").exists()
    with pytest.raises(InputError, match="read"):
        opened()
    assert list((tmp_path / ".mltrainer/tables").iterdir())


RUN = {
    "steps": 3,
    "data_sha256": "a",
    "weights_sha256": "a",
    "chain": {"entries": 4, "head": "a"},
    "history": [ROW],
}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"data_sha256": "b"}, "samples and splits"),
        ({"chain": {"entries": 4, "head": "b"}}, "samples, loss and gradient norm of 3 steps"),
        ({"weights_sha256": "b"}, "weights after the last step"),
        ({"history": [{**ROW, "validation": {"accuracy": 0.91}}]}, "metrics of 1 evaluation of the training"),
        ({"history": [{**ROW, "train": {"accuracy": 0.96}}]}, "metrics of 1 evaluation of the training"),
        ({"history": [ROW, ROW]}, "metrics of 1 evaluation of the training"),
    ],
)
def test_each_difference_of_a_training_is_told(change, what):
    rows = outcomes(checked_training(partial(Run, RUN), partial(Run, {**RUN, **change})))
    assert [name for name, outcome in rows.items() if outcome == "no"] == [what]


STEPS, LAST = "samples, loss and gradient norm of 3 steps", "weights after the last step"


def test_on_a_machine_of_another_class_bits_are_not_compared_and_all_else_is():
    change = {"data_sha256": "b", "chain": {"entries": 4, "head": "b"}, "weights_sha256": "b"}
    rows = [*checked_training(partial(Run, RUN), partial(Run, {**RUN, **change}))]
    counting, apart = comparable(rows, is_elsewhere=True)
    assert outcomes(counting) == {"samples and splits": "no", "metrics of 1 evaluation of the training": "same"}
    assert [one.partition(":")[0] for one in apart] == [
        "samples, loss and gradient norm of 3 steps",
        "weights after the last step",
    ]
    assert "as another kind of CPU does" in apart[0]
    assert comparable(rows, is_elsewhere=False) == (rows, [])


def test_on_a_machine_of_another_class_a_number_outside_of_its_interval_does_not_hold():
    found = Score(samples=9, metrics={"accuracy": 0.8, "loss": 0.5}, intervals={"accuracy": [0.7, 0.9]}, own={"accuracy": 0.1})
    evidence = partial(Finalization, {"run": {"best": {"validation": {"accuracy": 0.99, "loss": 0.4}}}, "delivered_sha256": "a"})
    rows = checked_scores(evidence, Scored(weights_sha256="b", splits={"validation": found}))
    counting, apart = comparable(rows, is_elsewhere=True)
    by_both = "accuracy on validation, by the project's own code and by mltrainer"
    assert outcomes(counting) == {"accuracy on validation": "no", by_both: "no"}
    assert [one.partition(":")[0] for one in apart] == ["delivered weights", "loss on validation"]


def held_verdict(**changes: Any) -> dict[str, Any]:
    row = {"outcome": "same", "recorded": "0.8", "interval": None}
    held = {"by": "lab", "samples": 90, "sha256": "a", "metrics": {"accuracy": 0.7}, "level": 0.95}
    content = {
        "schema": 1,
        **dict.fromkeys(("project", "record", "run", "made", "version"), "a"),
        **dict.fromkeys(("commit", "open", "foreign", "sample")),
        "checked": [
            {**row, "what": "held rows that were judged", "found": "90"},
            {**row, "what": "accuracy on the held rows, as on validation", "found": "0.7", "interval": [0.5, 0.9]},
            {**row, "what": "acceptance of accuracy on the held rows", "found": "0.7", "interval": [0.6, 0.8]},
        ],
        "held": {**held, "intervals": {"accuracy": [0.6, 0.8]}},
        **{name: [] for name in ("unchecked", "differences")},
        **dict.fromkeys(("seconds", "recorded_seconds"), 1.0),
    }
    return seal({**content, **changes})


HELD = held_verdict()["held"]
SAMPLE = {"steps": 9, "replayed": 3, "nonce": "n", "missed": 0.1}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"checked": []}, "it compared no value"),
        ({"checked": held_verdict()["checked"][:1]}, "no value on them was compared"),
        ({"held": {**HELD, "metrics": {"accuracy": 0.999}}}, "accuracy on the held rows is 0.999, and 0.7 compared"),
        ({"held": {**HELD, "intervals": {"accuracy": [0.6, 0.99]}}}, "accuracy on the held rows is 0.7"),
        ({"held": {**HELD, "samples": 900}}, "900 held rows, and 90 compared"),
        ({"sample": SAMPLE}, "what was trained again is not what was compared"),
    ],
)
def test_a_verdict_that_contradicts_its_own_rows_is_refused_though_its_seal_fits(changes, told):
    assert verdict_of(held_verdict(), "v.json").holds
    with pytest.raises(GateError, match=told):
        verdict_of(held_verdict(**changes), "v.json")


def test_files_that_differ_are_named():
    rows = [
        Difference(kind="data", what="a.csv", expected="1", found="2"),
        Difference(kind="environment", what="x", expected="1", found="2"),
    ]
    assert outcomes(checked_files(rows)) == {"data: a.csv": "no", "files of the code": "same"}


def test_a_segment_of_other_bits_and_a_number_that_was_not_measured_are_told():
    divergence = Divergence(step=5, what="loss", expected="1", found="2")
    segment = SegmentReplay(begin=4, end=8, seconds=1.0, first_divergence=divergence, compared_state=True)
    found = partial(Audit, {"segments": [segment.written()], "replayed": 4, "steps": 16, "unlike": ["step 4: accuracy is 0.5"]})
    elsewhere = Difference(kind="environment", what="numerics", expected="1", found="2")
    there = next(iter(checked_audit(found.model_copy(update={"differences": [elsewhere]}))))
    assert (there.outcome, "without --segments" in there.found) == ("no", True)
    rows = [(row.found, row.outcome) for row in checked_audit(found)]
    assert rows == [("other bits from step 5 on", "no"), ("step 4: accuracy is 0.5", "no")]


def test_records_and_gits_folder_are_hidden_and_only_the_state_may_be_written(tmp_path):
    found = _isolation(Project(tmp_path), [tmp_path / "a.csv"])
    assert found.hidden == (f"{tmp_path}/phases", f"{tmp_path}/.git")
    assert found.writable == (f"{tmp_path}/.mltrainer",)
    assert {str(tmp_path), f"{tmp_path}/a.csv"} <= {*found.visible}


def test_a_training_on_a_gpu_is_refused_unless_the_referee_allows_it():
    config = partial(TrainingConfig, {"device": "cuda"})
    with pytest.raises(MachineError, match="a process that is closed off reaches no cuda"):
        why_open(config, is_allowed=False)
    assert why_open(config, is_allowed=True) == "a process that is closed off reaches no cuda"
