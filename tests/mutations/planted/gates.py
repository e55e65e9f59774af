"""Faults planted in `mltrainer/gates`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a record of another chain is taken",
        "mltrainer/gates/gate.py",
        'if data.get("previous") != expected:',
        "if False:",
        "tests/gates",
    ),
    Fault(
        "an input of any role may be missing",
        "mltrainer/gates/gate.py",
        'if found is None and row["role"] in AWAY_ROLES:',
        "if found is None:",
        "tests/gates",
    ),
    Fault(
        "any difference of an export passes",
        "mltrainer/gates/checks/finalization.py",
        "isinstance(relative, int | float) and relative <= limit",
        "isinstance(relative, int | float) and relative <= 1e9",
        "tests/gates",
    ),
    Fault(
        "the verdict of a custom check is taken from a record of evidence that it never saw",
        "mltrainer/gates/custom.py",
        "    if digest(evidence) != row.evidence_sha256:",
        "    if digest(evidence) != row.evidence_sha256 and not row.code:",
        "tests/gates/test_custom.py -k binds_evidence",
    ),
    Fault(
        "an absent verdict of a custom check passes",
        "mltrainer/gates/custom.py",
        'return Outcome("fail", {"own_check": NOT_RECORDED}, f"mltrainer phase run {record.phase}")',
        'return Outcome("pass", {"own_check": NOT_RECORDED}, f"mltrainer phase run {record.phase}")',
        "tests/gates/test_custom.py -k recorded_verdict",
    ),
    Fault(
        "what a report shows as waived is read as a pass",
        "mltrainer/gates/custom.py",
        'SHOWN["waived"]: "fail"}',
        'SHOWN["waived"]: "pass"}',
        "tests/gates/test_custom.py -k report_shows",
    ),
    Fault(
        "a report is read outside of its gate's table",
        "mltrainer/gates/custom.py",
        'text.partition("\\n## Gate\\n")[2].partition("\\n## ")[0]',
        "text",
        "tests/gates/test_custom.py -k report_shows",
    ),
    Fault(
        "of a check's code only its own module is bound",
        "mltrainer/gates/custom.py",
        "files = sorted({own, *_files_of(answer, root)})",
        "files = [own]",
        "tests/gates/test_custom.py -k imports_and_opens",
    ),
    Fault(
        "a check that says the same for another reason counts as the same",
        "mltrainer/gates/rerun.py",
        'return "as_reported" in recorded.evidence or recorded.evidence == found.evidence',
        "return True",
        "tests/gates/test_custom.py -k does_not_give",
    ),
    Fault(
        "a custom item is shown as recomputed",
        "mltrainer/gates/gate.py",
        "recomputed=item.check is None)",
        "recomputed=True)",
        "tests/gates/test_custom.py -k how_many",
    ),
    Fault(
        "who looks at a gate calls the project's check",
        "mltrainer/gates/gate.py",
        "        return recorded_outcome(item, record, root)",
        "        from mltrainer.gates.custom import call\n\n"
        "        return call(item, record.phase, {}, root or Path(), False)[0]",
        "tests/hostile/test_code.py -k neither_a_recorded",
    ),
    Fault(
        "a check runs without limits of time",
        "mltrainer/gates/custom.py",
        'float(item.settings.get("seconds", SECONDS))',
        "600.0",
        "tests/gates/test_custom.py -k takes_too_long",
    ),
    Fault(
        "a finished phase whose record follows a gate that does not hold holds",
        "mltrainer/gates/gate.py",
        "    if previous is not None and not previous.holds:",
        "    if previous is not None and previous.stale:",
        "tests/gates/test_gate.py tests/gates/test_machine.py",
    ),
    Fault(
        "a gate without items holds",
        "mltrainer/gates/gate.py",
        "self.record is not None and not self.stale and bool(self.items) and not self.failing",
        "self.record is not None and not self.stale and not self.failing",
        "tests/gates/test_gate.py",
    ),
    Fault(
        "the sign-flip test counts sums that are larger, not those as large",
        "mltrainer/gates/statistics.py",
        "    return sum(total <= limit for total in sums) / len(sums)",
        "    return sum(total < -limit for total in sums) / len(sums)",
        "tests/gates/test_statistics.py",
    ),
    Fault(
        "the interval of a mean difference is one order statistic too wide",
        "mltrainer/gates/statistics.py",
        "return means[nth - 1], means[-nth]",
        "return means[nth - 2 if nth > 1 else 0], means[-nth]",
        "tests/gates/test_statistics.py",
    ),
    Fault(
        "the spread over folds is divided by their number",
        "mltrainer/gates/statistics.py",
        "{name: statistics.stdev(found) for",
        "{name: statistics.pstdev(found) for",
        "tests/gates/test_statistics.py",
    ),
    Fault(
        "an entry of the decisions that a person makes is dropped",
        "mltrainer/gates/machine.py",
        '    "final_run_diagnosed",\n',
        "",
        "tests/gates/test_machine.py",
    ),
    Fault(
        "files that planning did not bind are taken from the record",
        "mltrainer/gates/gate.py",
        "    if found != told:\n        words = [",
        "    if found and told is None:\n        words = [",
        "tests/gates/test_recomputed.py::test_a_record_that_hides_a_file_which_planning_did_not_bind_is_told",
    ),
    Fault(
        "a program's files are bound by their paths alone",
        "mltrainer/gates/checks/training.py",
        "missing = unbound(read, [row.model_dump() for row in record.inputs])",
        "missing = []",
        "tests/gates/test_checks.py",
    ),
)
