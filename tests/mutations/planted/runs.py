"""Faults planted in `mltrainer/runs`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a finished run's checkpoints are not looked at",
        "mltrainer/runs/contract.py",
        'return result if all(_is(project.root / row["path"], row["sha256"]) for row in files) else None',
        "return result if files is not None else None",
        "tests/runs/test_contract.py",
    ),
    Fault(
        "a reproduction with another end counts as identical",
        "mltrainer/runs/retrain.py",
        'same_end = in_part or all(again[key] == result[key] for key in ("weights_sha256", "metrics"))',
        "same_end = True",
        "tests/runs/test_reproduction.py tests/runs/test_reproduce.py",
    ),
    Fault(
        "a tool's exit without a word passes",
        "mltrainer/runs/launcher.py",
        "    if end is None:\n        raise InputError(",
        "    if False:\n        raise InputError(",
        "tests/runs/test_launcher.py::test_a_death_without_a_word_is_never_taken_for_success",
    ),
    Fault(
        "the steps to compare are counted from step 0, also of a fork",
        "mltrainer/runs/retrain.py",
        "begun + max_steps,",
        "max_steps,",
        "tests/runs/test_fork.py::test_a_forks_reproduction_compares_the_steps_after_its_parents",
    ),
    Fault(
        "the parent's steps count as compared",
        "mltrainer/runs/retrain.py",
        '*([divergence["step"]] if divergence else [])) - begun)',
        '*([divergence["step"]] if divergence else [])))',
        "tests/runs/test_reproduction.py",
    ),
    Fault(
        "steps that the original never made count as compared",
        "mltrainer/runs/retrain.py",
        'min(again["steps"], result["steps"], ',
        'min(again["steps"], again["steps"], ',
        "tests/runs/test_reproduction.py",
    ),
    Fault(
        "a file that a program did not leave again counts as the same",
        "mltrainer/runs/retrain.py",
        "other.get(name) == sha256",
        "other.get(name, sha256) == sha256",
        "tests/runs/test_reproduction.py",
    ),
    Fault(
        "one of a program's files that is the same is enough",
        "mltrainer/runs/retrain.py",
        "same_end and all((left or {}).values())",
        "same_end and (not left or any(left.values()))",
        "tests/runs/test_reproduction.py",
    ),
    Fault(
        "a reproduction on other data counts as identical",
        "mltrainer/runs/retrain.py",
        'same_end and again["data_sha256"] == result["data_sha256"]',
        "same_end",
        "tests/runs/test_reproduction.py",
    ),
    Fault(
        "forks of one run from two steps are one run",
        "mltrainer/runs/fork.py",
        '{"run": parent, "manifest_sha256": digest(read_manifest(start))}',
        '{"run": parent, "manifest_sha256": ""}',
        "tests/runs/test_fork.py::test_forks_from_two_steps_are_two_runs",
    ),
    Fault(
        "a fork begins with the oldest checkpoint",
        "mltrainer/runs/fork.py",
        "newest_intact(folder)[0]",
        "known[min(known)]",
        "tests/runs/test_fork.py::test_what_does_not_fit_the_parent_is_refused",
    ),
    Fault(
        "a prefix that fits several runs takes the first of them",
        "mltrainer/runs/find.py",
        "if len(found) == 1 or name in found:",
        "if found:",
        "tests/runs/test_find.py::test_a_prefix_that_fits_several_runs_is_refused_with_their_names",
    ),
    Fault(
        "entries of weights count as steps that were compared",
        "mltrainer/runs/find.py",
        'sum(not line.startswith("w ") for line in chain)',
        "len(chain)",
        "tests/runs/test_find.py::test_entries_of_weights_are_no_steps_that_were_compared",
    ),
    Fault(
        "it takes a third Ctrl-C to kill a tool",
        "mltrainer/runs/launcher.py",
        "if len(self.asked) > 1 else number",
        "if len(self.asked) > 2 else number",
        "tests/runs/test_launcher.py::test_a_second_signal_kills_a_tool_that_does_not_stop",
    ),
    Fault(
        "missing values are no bin of their own in a drift",
        "mltrainer/runs/drift.py",
        "actual = [*(counts / len(values)), float(gone.mean())]",
        'actual = [*(counts / len(values)), float(training["missing"])]',
        "tests/runs/test_predict.py::test_rows_of_another_population_are_told_by_column",
    ),
    Fault(
        "another whole environment is another arithmetic of a program",
        "mltrainer/runs/retrain.py",
        "return not is_class_of_environment(result) and bool(",
        "return bool(",
        "tests/runs/test_recorded.py",
    ),
    Fault(
        "a program's bits are within reach in another environment",
        "mltrainer/runs/recorded.py",
        "is_other = computes_otherwise(result, found) or (elsewhere and is_class_of_environment(result))",
        "is_other = computes_otherwise(result, found)",
        "tests/runs/test_recorded.py",
    ),
    Fault(
        "an arithmetic that was measured is not compared",
        "mltrainer/runs/retrain.py",
        'return not is_class_of_environment(result) and bool(again["numerics_class"] != result["numerics_class"])',
        "return False",
        "tests/runs/test_recorded.py",
    ),
)
