"""Faults planted in `mltrainer/records`."""

from __future__ import annotations

from tests.mutations.fault import Fault

OPENINGS = "mltrainer/records/openings.py"
TESTS = "tests/records/test_openings.py"

FAULTS = (
    Fault(
        "a smaller error counts as lost",
        "mltrainer/records/common.py",
        'worse = original - value if mode == "max" else value - original',
        "worse = original - value",
        "tests/gates/test_quantized.py::test_what_is_lost_is_a_share_of_what_was_there",
    ),
    Fault(
        "splits that share a row through a third are two",
        OPENINGS,
        "ours, left = ours | found, left - found",
        "ours, left = ours | found, set()",
        TESTS,
    ),
    Fault(
        "rows under another salt do not count",
        OPENINGS,
        "if rows.salt != others.salt:",
        "if False:",
        TESTS,
    ),
    Fault(
        "two looks by the same weights are two models",
        OPENINGS,
        "models = {openings[place].weights_sha256 or openings[place].run for place in ours}",
        "models = {openings[place].run for place in ours}",
        TESTS,
    ),
    Fault(
        "an opening without a data digest is of no split",
        OPENINGS,
        "row.run == run or row.data_sha256 in (None, data)",
        "row.run == run or row.data_sha256 == data",
        TESTS,
    ),
    Fault(
        "an estimate after two models is called unbiased",
        OPENINGS,
        'no longer an unbiased estimate" if self.models > 1 else ""',
        'no longer an unbiased estimate" if self.models > 2 else ""',
        TESTS,
    ),
    Fault(
        "an entry of the ledger does not cover the one before",
        OPENINGS,
        "before = digest([before, entry])",
        "before = digest([None, entry])",
        TESTS,
    ),
    Fault(
        "the number of the entry that breaks the chain is one too low",
        OPENINGS,
        "for number, (row, made) in enumerate(pairs, 1)",
        "for number, (row, made) in enumerate(pairs, 0)",
        TESTS,
    ),
    Fault(
        "what one source does not know hides what another knows",
        OPENINGS,
        "if value is not None}",
        "if True}",
        TESTS,
    ),
    Fault(
        "the same weights on other data are the same opening",
        OPENINGS,
        'return (row.get("data_sha256"), row.get("weights_sha256") or row.get("run"))',
        'return (row.get("weights_sha256") or row.get("run"),)',
        TESTS,
    ),
    Fault(
        "a key that stands twice in a record is not noticed",
        "mltrainer/records/reading.py",
        "if len(found) < len(pairs):",
        "if len(found) < len(pairs) - 1:",
        "tests/records/test_records.py::test_a_key_that_stands_twice_is_named_wherever_it_stands",
    ),
    Fault(
        "a record of another phase is believed",
        "mltrainer/records/reading.py",
        'if data.get("phase") != phase:',
        'if data.get("phase") is None:',
        "tests/records/test_records.py::test_a_record_of_another_phase_is_told",
    ),
    Fault(
        "an edited table of trials is taken",
        "mltrainer/records/trial_table.py",
        "if sha256_bytes(table) != reference.table:",
        "if False:",
        "tests/records/test_trial_table.py -k edited_missing",
    ),
    Fault(
        "a record's seal is looked at without its trials",
        "mltrainer/records/reading.py",
        "if not is_sealed(data):",
        'if not is_sealed(data) and len(data["evidence"].get("trials") or ()) < 30:',
        "tests/records/test_trial_table.py -k fit_the_seal",
    ),
    Fault(
        "of the Pareto set, trials that share one metric fall out",
        "mltrainer/records/pareto.py",
        "all(a >= b for a, b in zip(one, other, strict=True))",
        "any(a >= b for a, b in zip(one, other, strict=True))",
        "tests/records/test_pareto.py",
    ),
    Fault(
        "metrics are scaled to their range over all trials",
        "mltrainer/records/pareto.py",
        "    points = _points(found, mode, objectives)",
        "    points = _points(trials, mode, objectives)",
        "tests/records/test_pareto.py",
    ),
    Fault(
        "the metric that trials are ranked by is taken for larger is better",
        "mltrainer/records/pareto.py",
        "modes = [mode, *objectives.values()]",
        "modes = ['max', *objectives.values()]",
        "tests/records/test_pareto.py",
    ),
)
