"""Faults planted in `mltrainer/serving`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a model is served though a gate does not hold",
        "mltrainer/serving/admission.py",
        "        if not gate.holds:\n            yield _Fault(why",
        "        if gate.record is None:\n            yield _Fault(why",
        "tests/serving/test_admission.py::test_a_gate_that_does_not_hold_is_refused_and_told_in_every_answer_where_it_is_allowed",
    ),
    Fault(
        "answers of one batch go to the wrong requests",
        "mltrainer/serving/batching.py",
        "            for (_, _, future), result in zip(batch, found, strict=True):",
        "            for (_, _, future), result in zip(batch, reversed(found), strict=True):",
        "tests/serving/test_batching.py -k own",
    ),
    Fault(
        "a token that begins right is let in",
        "mltrainer/serving/guard.py",
        "not hmac.compare_digest(given.encode(), self._token.encode())",
        "not self._token.startswith(given)",
        "tests/serving/test_hostile.py::test_only_who_has_the_token_may_ask",
    ),
    Fault(
        "another site's name for this machine is answered",
        "mltrainer/serving/guard.py",
        'if _host_of(headers.get("host", "")) not in LOOPBACK:',
        'if not _host_of(headers.get("host", "")).startswith(LOOPBACK):',
        "tests/serving/test_hostile.py::test_what_is_malformed_or_hostile_is_refused_with_where_and_what",
    ),
)
