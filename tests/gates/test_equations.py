"""Records are systems of equations: a number that was changed, and sealed anew, contradicts another one, and a gate names it."""

from __future__ import annotations

import fnmatch
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.pages import phase_page
from mltrainer.gates.equations import contradictions
from mltrainer.gates.gate import evaluate
from mltrainer.records.envelope import Envelope, parsed
from mltrainer.records.equations import faults
from mltrainer.records.partial import partial
from mltrainer.records.run import Seen
from mltrainer.workspace import PHASES, digest
from tests.gates.evidence import reseal
from tests.gates.test_mutated import put
from tests.projects import recorded

Place = tuple[str | int, ...]
PARTS = 12  # of the fields, a test each

# --- on disk ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "place", "value", "named"),
    [
        ("finalization", "test/metrics/accuracy", 1.7, "test.metrics.accuracy is 1.7, expected at most 1"),
        ("finalization", "test/metrics/accuracy", 0.5, "test.metrics.accuracy is 0.5, expected at least 0.9"),
        ("finalization", "test/samples", 30_000, "test.samples is 30000, expected 179"),
        ("finalization", "acceptance/0/value", 0.999, "acceptance.0.value is 0.999, expected 0.9"),
        ("finalization", "runs_tried", 0, "runs_tried is 0, expected at least 2"),
        ("finalization", "baseline_metrics/accuracy", 0.5, "baseline_metrics.accuracy is 0.5, expected 0.97"),
        ("finalization", "run/seed", 43, "run.seed is 43, expected 42"),
        ("baseline", "run/metrics/accuracy", 0.5, "run.metrics.accuracy is 0.5, expected 0.97"),
        ("baseline", "run/evaluation/confusion/0/0", 1, "run.metrics.accuracy is 0.97"),
        ("baseline", "run/best/validation/accuracy", 0.5, "run.best.validation.accuracy is 0.5, expected 0.97"),
        ("diagnostics", "metrics/accuracy", 0.5, "metrics.accuracy is 0.5, expected 0.97"),
    ],
)
def test_a_number_that_contradicts_another_one_is_named(phase, place, value, named, digits, cli):
    shutil.rmtree(digits.state_dir)  # as in a fresh clone, where no run can be asked
    keys = tuple(int(key) if key.isdigit() else key for key in ("evidence", *place.split("/")))
    reseal(digits, lambda record: record.update(put(record, keys, value)), phase)
    said = cli("gate", "check", "-v", "--project", digits.root, code=4)
    assert f"{digits.relative(digits.phase_dir(phase))}/record.json: {named}" in said.out


# --- in memory --------------------------------------------------------------------------------------

FREE = {  # numbers that no other value says again, with the reason; they keep their bounds
    "a time, a pace or a share of a time": """
        *.step_time_us* *.shortest_step_us *_s *.seconds *.samples_per_s *.data_wait *.step_pace_us *.time_s.* *.minutes *.wait
    """,
    "the checkpoints that were saved, also those that a better one replaced while they waited for the disk": "*.ledger.entries",
    "the memory of a process, a machine or a disk": "*_mb *.held_bytes *.quota *.cores",
    "what one batch or layer showed, of which a diagnostic says where something is wrong": """
        *.signals.* *.run.history.*.layer_norms.* *.run.history.*.update_ratios.* *.run.history.*.grad_norm.*
    """,
    "an evaluation that is neither the best nor the last": """
        *.run.history.*.train.* *.run.history.*.validation.* *.run.history.*.train_loss
    """,
    "a page's own number, which the gate takes from the page": "*.thresholds.* *.exports.*.tolerance",
    "a measurement that was made once": """
        *.exports.*.max_difference *.exports.*.scale *.exports.*.samples *.exports.*.batch_sizes.* *references.rows.*.*
        *references.network.* *references.resamples *.intervals.bounds.* *.errors.segments.* *.errors.calibration.by_luck
        *.run.history.*.clipped *.run.history.*.skipped *.rehearsal.samples
        *.speed.tokens_per_sample *.speed.flops_per_sample *.speed.peak_flops_per_s
    """,
    "what was chosen for a probe and decides nothing, or is compared with inference.json on disk": """
        planning.loader.workers planning.probe.resumed_at planning.generated.* finalization.inference.input.shape.*
    """,
    "how often checkpoints were saved, by the config of the day: a run that exists is not trained again for it": "*.saved.*",
    "a larger number claims less": "finalization.runs_tried *.chain.entries *.data.fingerprinted *.data.samples",
}


@functools.cache
def records_of(root: Path) -> dict[str, dict[str, Any]]:
    return {phase: recorded(root, phase) for phase in PHASES}


@functools.cache
def typed_of(root: Path) -> dict[str, Envelope[Any]]:
    return {phase: whole for phase, record in records_of(root).items() if (whole := parsed(record, phase)[0])}


def numbers(value: Any, place: Place = ()) -> Iterator[tuple[Place, float]]:
    """Yield each number with its place; of a list those of the first and the last entry."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from numbers(entry, (*place, key))
    elif isinstance(value, list):
        for nr in sorted({0, len(value) - 1} if value else ()):
            yield from numbers(value[nr], (*place, nr))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, value


def shown(phase: str, place: Place) -> str:
    return ".".join([phase, *("*" if isinstance(key, int) else key for key in place)])


def others(value: float) -> list[float]:
    return [other for other in dict.fromkeys((value * 2, -value, value + 1, 1.7, 0)) if other != value]


def is_named(root: Path, phase: str, place: Place, value: float) -> bool:
    """Return whether a gate names a changed value: the record's model, an item, or an equation of this phase or a later one."""
    whole, holes = parsed(put(records_of(root)[phase], ("evidence", *place), value), phase)
    if whole is None:
        return bool(holes)
    found = {**typed_of(root), phase: whole}
    if any(item.verdict == "fail" for item in evaluate(whole, phase_page(phase, root), [], root)):
        return True
    later = PHASES[PHASES.index(phase) :]
    return any(
        next(contradictions({name: found[name] for name in PHASES[: PHASES.index(one) + 1]}, one, root), None) for one in later
    )


def is_free(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for patterns in FREE.values() for pattern in patterns.split())


def fields(root: Path) -> dict[str, tuple[str, Place, float]]:
    """Return each numeric field of a project's records that is not free: its phase, the place of its first number, and that."""
    found: dict[str, tuple[str, Place, float]] = {}
    for phase, record in records_of(root).items():
        for place, value in numbers(record["evidence"]):
            found.setdefault(shown(phase, place), (phase, place, value))
    return {name: field for name, field in found.items() if not is_free(name)}


def unnamed(root: Path, part: int, parts: int) -> list[tuple[str, float, float]]:
    """Return the changes of a part of all fields that no gate names."""
    chosen = {name: field for name, field in fields(root).items() if int(digest(name)[:8], 16) % parts == part}
    return [
        (name, value, other)
        for name, (phase, place, value) in chosen.items()
        for other in others(value)
        if not is_named(root, phase, place, other)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_gate_names_whatever_number_was_changed_in_any_field(part, digits_once):
    assert unnamed(digits_once, part, PARTS) == []


@pytest.mark.parametrize(("deviation", "is_named"), [(1.4, False), (1.5, True)])
def test_a_deviation_of_few_outputs_may_exceed_the_largest(deviation, is_named):
    """Of the two outputs 1 and -1 it is the root of 2, as it divides by n - 1."""
    seen = {"modules": {"0": {"largest": 1.0, "std": deviation}}, "loss": 0.1, "first": "0", "last": "0"}
    found = [fault.field for fault in faults(partial(Seen, seen))]
    assert found == (["modules.0.largest"] if is_named else [])
