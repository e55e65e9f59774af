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
        "if not HERE.fullmatch(host):",
        "if not HERE.match(host):",
        "tests/serving/test_hostile.py::test_what_is_malformed_or_hostile_is_refused_with_where_and_what",
    ),
    Fault(
        "an answer is given before it is kept",
        "mltrainer/serving/application.py",
        "            await self.keeping.keep(name, rows, answers, self.admitted.identity)",
        "            asyncio.create_task(self.keeping.keep(name, rows, answers, self.admitted.identity))",
        "tests/serving/test_store.py::test_what_cannot_be_kept_is_not_answered",
    ),
    Fault(
        "rows are kept though nobody asked for it",
        "mltrainer/serving/keeping.py",
        "as_sent(row) if self.with_inputs else None",
        "as_sent(row)",
        "tests/serving/test_store.py::test_each_answer_is_kept_before_it_is_given_without_what_it_was_made_from",
    ),
    Fault(
        "labels of unknown answers are taken",
        "mltrainer/serving/store.py",
        "if place not in known]:",
        "if place.id not in {one.id for one in known}]:",
        "tests/serving/test_store.py::test_labels_come_later_and_the_newest_counts",
    ),
    Fault(
        "an earlier label stays",
        "mltrainer/serving/store.py",
        "newest = dict(labels)",
        "newest = dict(reversed(labels))",
        "tests/serving/test_store.py::test_of_two_labels_in_one_request_the_last_counts",
    ),
    Fault(
        "labels of deleted answers stay",
        "mltrainer/serving/store.py",
        '        "foreign_keys": "ON",\n',
        "",
        "tests/serving/test_store.py::test_what_is_older_than_it_may_be_is_deleted_with_its_labels",
    ),
    Fault(
        "an accuracy that chance explains is told as worse",
        "mltrainer/serving/watching.py",
        "is_worse=ends[1] < 0)",
        "is_worse=live < test)",
        "tests/serving/test_watching.py -k chance_does_not",
    ),
    Fault(
        "chance alone raises alarms of few rows",
        "mltrainer/serving/watching.py",
        "ALARM = 0.01 ",
        "ALARM = 0.5 ",
        "tests/serving/test_watching.py -k chance_alone",
    ),
    Fault(
        "answers of an earlier model count",
        "mltrainer/serving/store.py",
        ".where(PREDICTIONS.c.weights_sha256 == weights_sha256, PREDICTIONS.c.at >= after)",
        ".where(PREDICTIONS.c.at >= after)",
        "tests/serving/test_watching.py::test_the_command_tells_what_differs_and_sends_it_on",
    ),
    Fault(
        "a body without a length may be as large as it likes",
        "mltrainer/serving/guard.py",
        "        if size > most:\n",
        "        if len(parts[-1]) > most:\n",
        "tests/serving/test_guard.py -k larger_than_may_be",
    ),
    Fault(
        "a body may come as slowly as it likes",
        "mltrainer/serving/guard.py",
        "async with asyncio.timeout(self._limits.seconds):",
        "async with asyncio.timeout(None):",
        "tests/serving/test_guard.py -k in_time",
    ),
    Fault(
        "a name of a project goes on in a comment's next line",
        "mltrainer/serving/templates/languages.py",
        """    return re.sub(r"[^\\x20-\\x7e]", "?", text)""",
        "    return text",
        "tests/serving/test_templates.py -k on_lines_of_its_own",
    ),
    Fault(
        "servers that start at once make the tables at once",
        "mltrainer/serving/store.py",
        """{"sqlite": "BEGIN IMMEDIATE", """,
        """{"sqlite": "SELECT 1", """,
        "tests/serving/test_store.py -k make_the_tables_once",
    ),
    Fault(
        "a head may come as slowly as it likes",
        "mltrainer/serving/server.py",
        "self.loop.call_later(HEAD_S, self.transport.close)",
        "self.loop.call_later(9999, self.transport.close)",
        "tests/serving/test_server.py -k too_slowly",
    ),
    Fault(
        "an answer that takes longer than a head may is cut off",
        "mltrainer/serving/server.py",
        "if self.conn.their_state is not h11.IDLE:",
        "if self.conn.their_state is h11.ERROR:",
        "tests/serving/test_server.py -k longer_than_a_head",
    ),
)
