"""Models of results that lack parts, as a run that still trains leaves them."""

from __future__ import annotations

from mltrainer.records.partial import known, partial
from mltrainer.records.run import HistoryRow, Seen, TrainingResult


def test_what_is_missing_is_empty_where_it_holds_others_and_none_or_the_default_elsewhere():
    found = partial(TrainingResult, {"metric": {"name": "loss"}, "history": [{"step": 3}]})
    (row,) = found.history
    assert (row.step, row.skipped, row.train_loss, row.validation, row.layer_norms) == (3, 0, None, {}, [])
    assert (found.state, found.layers, found.signals, found.metric.mode, found.metric.ties) == (None, [], None, None, "first")


def test_a_value_of_another_shape_counts_as_missing():
    found = partial(HistoryRow, {"validation": 3, "layer_norms": None, "grad_norm": []})
    assert (found.validation, found.layer_norms, found.grad_norm.max) == ({}, [], None)


def test_a_part_is_known_where_anything_of_it_was_recorded():
    found = partial(HistoryRow, {"signals": {"validation": {"loss": "nan"}}})
    assert known(found.signals.evaluating) is None
    seen = known(found.signals.validation)
    assert isinstance(seen, Seen)
    assert seen.loss == "nan"


def test_fields_are_read_by_their_keys_in_a_file():
    assert partial(TrainingResult, {"schema": 4}).schema_number == 4
