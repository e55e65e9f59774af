"""The items of finalization: the final model is the trained one, repeats, is documented, and meets its criterion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.configs.items import AcceptanceSettings, CommitSettings, DocumentSettings, ExportSettings, OpeningSettings
from mltrainer.configs.loading import as_typed
from mltrainer.configs.project import meets
from mltrainer.configs.templates import QUANTIZED, STATIC
from mltrainer.gates.check import RUN_FINALIZATION, RUN_OPTIMIZATION, RUN_PLANNING, Outcome, check, recorded, when
from mltrainer.gates.checks.diagnostics import critical_fired, fired, not_evaluated, with_reason
from mltrainer.gates.checks.training import change_to_try
from mltrainer.gates.coverage import coverage_kept
from mltrainer.records.common import Export, lost_share
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.openings import looks
from mltrainer.records.run import WITHOUT_STEPS, output_name
from mltrainer.reports.values import counted
from mltrainer.reproducibility.drawn import drawn
from mltrainer.workspace import digest

NEW_TEST_SPLIT = "bring new data for a test split, then mltrainer run"


@check(Finalization)
def exports_agree(record: Envelope[Finalization], settings: ExportSettings) -> Outcome:
    """Every exported format, read back from the disk, gives the trained model's outputs; a quantized one keeps its metric."""
    rows = record.evidence.exports
    written = [row for row in rows if row.state == "written"]
    bad = [row.format for row in written if not _agrees(row, settings.tolerance, settings.metric_loss, record.evidence)]
    failed = [row.format for row in rows if row.state == "failed"]
    lost = {row.format: row.quantized.loss for row in written if row.quantized}
    evidence_shown = {
        "agree": [row.format for row in written if row.format not in bad],
        "disagree": bad + failed,
        "not_available": [row.format for row in rows if row.state == "not_available"],
        **({"metric_loss": lost} if lost else {}),
    }
    hint = f"fix the model, or take the format out of configs/production_template.yaml, then {RUN_FINALIZATION}"
    return when(bool(written) and not bad and not failed, evidence_shown, hint)


def _agrees(row: Export, tolerance: float, metric_loss: float, evidence: Finalization) -> bool:
    relative = row.relative_difference
    # A record holds a number that is not finite as a text, since JSON has none for it.
    if row.agrees is not True or isinstance(row.max_difference, str) or not isinstance(relative, int | float):
        return False
    # By the format's name, not by its row's content: a row could otherwise choose how it is judged.
    if row.format in QUANTIZED:
        return _keeps_metric(row, metric_loss, evidence) and _is_calibrated(row, evidence)
    return relative <= tolerance


def _keeps_metric(row: Export, allowed: float, evidence: Finalization) -> bool:
    """Return True if a quantized model's metric is within the allowed loss of the run's and the original's metric."""
    metric, best, quantized = evidence.config["metric"], evidence.run.best, row.quantized
    if quantized is None or quantized.metric != metric["name"]:
        return False
    originals = [quantized.original, *([best.validation.get(metric["name"])] if best else [])]
    return all(lost_share(original, quantized.value, metric["mode"]) <= allowed for original in originals)  # False for NaN


def _is_calibrated(row: Export, evidence: Finalization) -> bool:
    """Return True if a model was calibrated on the training rows that the config's seed draws; a dynamic one needs none."""
    if row.format != STATIC:
        return True
    calibration, rows = row.quantized and row.quantized.calibration, evidence.run.train_samples
    if not calibration or not 0 < calibration.samples <= calibration.of == rows:
        return False
    return calibration.places_sha256 == digest(drawn(rows, calibration.samples, evidence.config["seed"], "calibrate"))


@check(Finalization)
def documentation_written(record: Envelope[Finalization], settings: DocumentSettings) -> Outcome:
    """The model card and the files that a deployment needs are there, none of them empty."""
    sizes = {row.path.rsplit("/", 1)[-1]: row.size for row in record.evidence.model_files}
    missing = [name for name in settings.files.split() if sizes.get(name, 0) == 0]
    return when(not missing, {"files": len(sizes), "missing": missing}, RUN_FINALIZATION)


@check(Finalization)
def reproduction_verified(record: Envelope[Finalization]) -> Outcome:
    """The final training, repeated in a fresh process, gave the same bits in every step."""
    run, again = record.evidence.run, record.evidence.reproduction
    same = again.weights_sha256 == run.weights_sha256 and again.chain_head == run.chain.head
    same = same and again.weights_tree_sha256 == run.weights_tree_sha256
    left = again.outputs or {}
    wanted = {output_name(row.path) for row in run.program.outputs} if run.program else set()
    # all() of no outputs is true: the names are compared, too, so that a file which is missing the second time fails.
    holds = same and again.identical and again.steps_compared == run.steps and all(left.values()) and wanted == set(left)
    combination = record.evidence.combination
    rebuilt = combination is None or combination.rebuilt_sha256 == combination.weights_sha256
    if run.program is not None and run.program.left is not None:
        holds = holds and bool(run.program.left) and digest(run.program.left) == run.weights_sha256
    shown = {
        "steps_compared": f"not applicable: {WITHOUT_STEPS}" if run.is_without_steps else again.steps_compared,
        "identical": again.identical,
        "first_divergence": recorded(again.first_divergence),
        **({"outputs": left} if run.program else {}),
        **({} if combination is None else {"combination_rebuilt": rebuilt}),
    }
    return when(holds and rebuilt, shown, f"find the cause with `mltrainer reproduce {run.id}`, then {RUN_FINALIZATION}")


@check(Finalization)
def final_run_diagnosed(record: Envelope[Finalization]) -> Outcome:
    """Every diagnostic was evaluated on the final run, no faulty one fired, and it beats a constant answer."""
    evidence = record.evidence
    rows, assessment = evidence.diagnostics or [], evidence.assessment
    missing = not_evaluated(rows, evidence.expected_diagnostics or [])
    critical = critical_fired(rows)
    fit = assessment.fit if assessment else None
    beats_constant = assessment.beats_constant if assessment else None
    judged = {"fit": fit, "beats_constant": beats_constant}
    shown = {"evaluated": len(with_reason(rows)), "fired": fired(rows), "missing": missing, **judged}
    named = f"fix the faults that `mltrainer diagnose finalization` names, then {RUN_PLANNING}"
    # First back to the training that was decided: that one was diagnosed before it was decided.
    hint = _way_back(evidence) or change_to_try(record.phase, evidence.changes) or named
    is_complete = bool(rows) and bool(evidence.expected_diagnostics) and not missing
    return when(is_complete and not critical and beats_constant is not False, shown, hint)


@check(Finalization)
def test_opened_once(record: Envelope[Finalization], settings: OpeningSettings) -> Outcome:
    """The sealed test split was opened for this model alone; the same weights measured again are no second opening."""
    evidence = record.evidence
    test, run = evidence.test, evidence.run
    if evidence.data.splits.test.samples == 0:
        return Outcome("not_applicable", {"rule": _without_test_split(evidence)})
    opened = looks(test.openings, test.splits, run.data_sha256, run.id)
    few = opened.models <= settings.max_openings
    shown = {"opened": opened.sentence, "openings": opened.openings, "models": opened.models, "metrics": test.metrics}
    if test.samples == 0:
        shown["sealed"] = test.sealed
        if few and _missed(evidence.config["acceptance"], evidence.validation):
            rule = "a model that misses its criterion on validation leaves the test split sealed"
            return Outcome("not_applicable", {"rule": rule, **shown})
        return Outcome("fail", shown, f"fix the reason that keeps the test split sealed, then {RUN_FINALIZATION}")
    ours = any((row.weights_sha256 or row.run) in (run.id, evidence.delivered_sha256) for row in test.openings)
    return when(ours and few, shown, NEW_TEST_SPLIT)


def _without_test_split(evidence: Finalization) -> str:
    """Return the reason that a project has no test split."""
    if evidence.run.program:
        return "the program does not offer it: only it knows the test samples"
    if (holder := evidence.config["split"].get("held_by")) is not None:
        rows = counted(evidence.config["split"]["held_rows"], "row")
        return f"{rows} to test on are held by {holder}, and are not in this project: acceptance is judged on validation"
    return "split.test is 0: there is no test split"


def _missed(criteria: Mapping[str, str], metrics: Mapping[str, Any]) -> list[str]:
    """Return the metrics that do not meet their criterion; a metric that was not measured meets none."""
    values = {name: metrics.get(name) for name in criteria}
    return [name for name, v in values.items() if not (isinstance(v, int | float) and meets(v, criteria[name]))]


@check(Finalization)
def acceptance_met(record: Envelope[Finalization], settings: AcceptanceSettings) -> Outcome:
    """The final model meets the acceptance criterion, on the test split where there is one, else on validation.

    Where it answers with sets or intervals, these hold the truth as often as was asked, too.
    """
    met, kept = _criteria_met(record.evidence, settings.split), coverage_kept(record.evidence, settings.coverage_level)
    if kept is None:
        return met
    verdicts = {met.verdict, kept.verdict}
    verdict = next(one for one in ("fail", "pass", "not_applicable") if one in verdicts)
    return Outcome(verdict, {**met.evidence, "coverage": kept.evidence}, met.hint or kept.hint)


def _criteria_met(evidence: Finalization, split: str | None) -> Outcome:
    criteria, test, metrics = evidence.config["acceptance"], evidence.test, evidence.validation
    if not criteria:
        return Outcome("not_applicable", {"rule": "mltrainer.yaml names no acceptance criterion"})
    on_test = split == "test" and evidence.data.splits.test.samples > 0
    opened = on_test and test.samples > 0
    # The test split has no train_* metrics: a criterion on one keeps the value that the run reached.
    of_training = {name: value for name, value in metrics.items() if name.startswith("train_")}
    judged = {**of_training, **test.metrics} if opened else metrics
    missed = _missed(criteria, judged)
    shown: dict[str, Any] = {"values": {name: judged.get(name) for name in criteria}, "criteria": criteria}
    if split is not None:
        shown = {"split": "test" if opened else "validation", **shown}
    if opened:
        if test.intervals is None:
            return Outcome("fail", {"missing": "the intervals of the test split's metrics", **shown}, RUN_FINALIZATION)
        shown["interval"] = {name: ends for name, ends in test.intervals.bounds.items() if name in criteria}
        return when(not missed, shown, f"{NEW_TEST_SPLIT}: this one has been seen, so no search may be judged by it again")
    if on_test:
        shown["sealed"] = test.sealed
        return Outcome("fail", shown, _way_on(evidence) if missed else f"fix the other failures, then {RUN_FINALIZATION}")
    return when(not missed, shown, _way_on(evidence))


def _way_back(evidence: Finalization) -> str | None:
    """Return the command that trains the decided config; None if the final training is that already."""
    back = evidence.way_back
    return f"{RUN_FINALIZATION} {as_typed(back.set)}" if back and back.set else None


def _way_on(evidence: Finalization) -> str:
    """Return the next command for a final model that misses its criterion on validation; never the one just run."""
    undone, back = _way_back(evidence), evidence.way_back
    if undone:
        return undone
    if back and back.search:
        return back.search
    if back and back.trials:
        return f"{RUN_OPTIMIZATION} --set trials={2 * back.trials}"
    return "plan again with another model or more data: mltrainer phase run planning --set KEY=VALUE"


@check(Finalization)
def source_committed(record: Envelope[Finalization], settings: CommitSettings) -> Outcome:
    """The code that trained the final model is committed; without git its files' digests suffice."""
    source = record.source
    shown = {"commit": source.commit, "dirty": source.dirty}
    if source.commit is None and source.dirty is None and settings.allow_no_git:
        return Outcome("not_applicable", {**shown, "rule": source.note})
    hint = "commit your changes, then mltrainer run (it begins with planning, where the code is recorded)"
    # None means that git could not answer, which is no clean tree.
    return when(source.commit is not None and source.dirty is False, shown, hint)
