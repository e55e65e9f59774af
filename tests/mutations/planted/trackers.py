"""Faults planted in `mltrainer/trackers`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a tracker is sent the step before the one asked for",
        "mltrainer/trackers/feed.py",
        "self._steps.exact(sent.step + 1,",
        "self._steps.exact(sent.step,",
        "tests/trackers/test_sender.py::test_who_goes_on_sends_nothing_twice_and_in_the_same_run",
    ),
    Fault(
        "an evaluation is sent again on going on",
        "mltrainer/trackers/feed.py",
        "if row.step > sent.row]",
        "if row.step >= sent.row]",
        "tests/trackers/test_sender.py::test_who_goes_on_sends_nothing_twice_and_in_the_same_run",
    ),
    Fault(
        "steps that are left out count as not sent",
        "mltrainer/trackers/feed.py",
        "last, row = steps[-1][0] if steps else sent.step,",
        "last, row = chosen[-1][0] if chosen else sent.step,",
        "tests/trackers/test_sender.py::test_steps_are_sent_that_are_further_apart_than_a_piece",
    ),
    Fault(
        "of validation the training numbers are shown",
        "mltrainer/trackers/feed.py",
        'f"{group}/{key}": value for group in GROUPS for key, value in getattr(row, group).items()',
        'f"{group}/{key}": value for group in GROUPS for key, value in row.train.items()',
        "tests/trackers/test_sender.py::test_each_split_has_its_own_numbers",
    ),
    Fault(
        "a program's unknown norm is sent",
        "mltrainer/trackers/feed.py",
        'return {"step/loss": loss} if is_opaque(self._config) else {"step/loss": loss, "step/grad_norm": norm}',
        'return {"step/loss": loss, "step/grad_norm": norm}',
        "tests/trackers/test_sender.py::test_of_a_program_no_gradient_norm_is_shown",
    ),
    Fault(
        "a secret of the config is sent",
        "mltrainer/trackers/feed.py",
        'return "[removed]" if scan_text(json.dumps({key: value}), "") else text',
        "return text",
        "tests/trackers/test_sender.py::test_no_secret_reaches_a_tracker",
    ),
    Fault(
        "a stale gate is told as holding",
        "mltrainer/trackers/feed.py",
        'if gate.stale:\n        return "stale"',
        'if gate.stale:\n        return "holds"',
        "tests/trackers/test_sender.py::test_an_edited_config_is_told_as_stale",
    ),
    Fault(
        "a changed report is not sent again",
        "mltrainer/trackers/sender.py",
        "if self.sent.files.get(name) != digest:",
        "if name not in self.sent.files:",
        "tests/trackers/test_sender.py::test_of_the_reports_those_that_changed_are_sent_again",
    ),
    Fault(
        "a password's special characters break the address",
        "mltrainer/trackers/urls.py",
        'quote(os.environ[name[1]], safe="")',
        "os.environ[name[1]]",
        "tests/trackers/test_mlflow.py::test_variables_are_filled_in_where_the_address_is_used",
    ),
    Fault(
        "runs of another phase are sent",
        "mltrainer/trackers/sender.py",
        "if changed >= since and known(TrackedJob, read_json(path)).phase == phase:",
        "if changed >= since:",
        "tests/trackers/test_sender.py::test_only_runs_that_the_phase_itself_began_are_followed",
    ),
    Fault(
        "trying a folder leaves it behind",
        "mltrainer/trackers/folders.py",
        "made = [path for path in (target, *target.parents) if not path.exists()]",
        "made = [path for path in target.parents if not path.exists()]",
        "tests/trackers/test_sanity_check.py::test_a_tracker_that_works_is_ready_and_shows_nothing",
    ),
    Fault(
        "a tracker that planning waited for in vain is told to have died",
        "mltrainer/trackers/sanity_check.py",
        "is_late = process.running.poll() is None",
        "is_late = False",
        "tests/trackers/test_sanity_check.py::test_who_is_killed_after_the_time_agreed_is_told_to_be_late",
    ),
    Fault(
        "planning that fails leaves a tracker's process behind",
        "mltrainer/trackers/sanity_check.py",
        "        for process in self._processes:\n            kill(process)\n",
        "        for process in self._processes[1:]:\n            kill(process)\n",
        "tests/trackers/test_sanity_check.py::test_planning_that_fails_waits_for_nobody",
    ),
)
