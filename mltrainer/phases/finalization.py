"""Finalization: the last training, its reproduction, a combination of models, one look at the test split, and the model.

In: `final_config.yaml` and the production template. Out: `final_model/`, and as evidence the run, its
reproduction in a fresh process, the exports' agreement, and every opening of the test split.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mltrainer.configs.items import FinalizationSettings
from mltrainer.configs.loading import apply, as_typed, parse_assignment, validate_values
from mltrainer.configs.project import Task, TrainingConfig, of_task
from mltrainer.configs.templates import PRODUCTION, Combine, overlay, production_template
from mltrainer.diagnostics.rules import RULES, acceptance_rows, assess, changes_to_try, final_acceptance, findings
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import GateError, InputError
from mltrainer.gates.claims import answer
from mltrainer.phases.baseline import run_inputs, run_source
from mltrainer.phases.context import Context, Result, file_row, rows_with_role
from mltrainer.phases.lacking_classes import lacking_classes
from mltrainer.phases.openings import Ledger, known_openings, salt_of
from mltrainer.phases.training import train
from mltrainer.records.common import InputRow, Metrics
from mltrainer.records.finalization import Combination, Finalization, Reproduction, Test, WayBack
from mltrainer.records.job import TestOpening
from mltrainer.records.openings import LEDGER_FILE
from mltrainer.records.optimization import Searched, Skipped
from mltrainer.records.partial import partial
from mltrainer.records.references import References
from mltrainer.records.run import RunResult, output_name
from mltrainer.records.tried import runs
from mltrainer.reports.advice import next_search
from mltrainer.reproducibility.evidence import TEST_FILE
from mltrainer.runs.combining import combined, refuse_impossible
from mltrainer.runs.contract import key_changes
from mltrainer.runs.exporting import Exported, ExportSettings, run_manager
from mltrainer.runs.references import boosting_ahead, measure_references
from mltrainer.runs.retrain import reproduce
from mltrainer.runs.tried import note_tried
from mltrainer.runs.untaught import untaught
from mltrainer.workspace import MODEL_FOLDER, files_of_model, machine_faults, without_none, write_atomic, write_json

COMBINE = "combine"
PLANNED = {  # keys that planning decides, with the reason
    **dict.fromkeys(
        ("name", "id", "data", "split", "forget", "metric", "acceptance", "conformal"),
        "what a model is judged by is not chosen when it is known",
    ),
    "task": "its code and its first steps are proved there",
    "tracking": "all phases are shown alike",
}


def run(ctx: Context) -> Result:
    """Train the final model, reproduce it, test it once, export it."""
    ctx, template = with_combination(ctx, production_template(ctx.project.root))
    export, asked = ExportSettings(**template.pop("export")), template.pop("combine")
    config = final_config(ctx, template)
    _note_changes(ctx, config)
    found = _measured(ctx, config, export, asked)
    files = [file_row(ctx.project, path, _role(path)) for path in files_of_model(ctx.folder / MODEL_FOLDER)]
    evidence = _evidence(ctx, config, found, files)
    if (answered := answer(ctx.planning.evidence, ctx.baseline.evidence, ctx.tuning.evidence, evidence)) is not None:
        evidence = evidence.model_copy(update={"claim": answered})
    # The ledger after `_measured`, which has written the openings of the record.
    inputs = [
        *run_inputs(ctx, found.run),
        *combined_inputs(found.combination),
        *files,
        *_ledger(ctx),
        *_opened(ctx, found.run, found.test),
    ]
    pages = [row.page for row in evidence.diagnostics or ()]
    return Result(evidence, run_source(ctx, found.run), inputs, [PRODUCTION, *pages])


@dataclass(frozen=True)
class _Measured:
    """The measurements of a final training.

    Attributes:
        run: The training.
        reproduction: Its reproduction in a fresh process.
        references: The plain models on the validation split; None where there are none to compare with.
        combination: The combination of models; None where the template asks for none.
        validated: The metrics on validation of the model that would be delivered.
        exported: The exports.
        test: The look at the test split.
        tested: The plain models on the test split; None where it stayed sealed, or a combination is delivered.
    """

    run: RunResult
    reproduction: Reproduction
    references: References | None
    combination: Combination | None
    validated: Metrics
    exported: Exported
    test: Test
    tested: References | None


def _measured(ctx: Context, config: TrainingConfig, export: ExportSettings, asked: dict[str, Any] | None) -> _Measured:
    """Train the final model, reproduce it, export it, and look at the test split at most once."""
    formats = None if ctx.task.is_opaque else export.formats
    result = train(ctx, config, parent=ctx.baseline.evidence.run.id, formats=formats)
    _refuse_stopped(ctx, result)  # before the test split is looked at
    ctx.note("reproducing the final training in a fresh process")
    # Before the export, which opens the test split: a model that does not repeat must not use up the one look.
    again = reproduce(ctx.tools, result.id)
    references = measure_references(ctx.tools, result, ctx.with_workers(config))
    combination = None if asked is None else _combined(ctx, Combine.model_validate(asked), result, config)
    delivered = combination if combination is not None and combination.delivered else None
    # The criteria are judged on the model that would be delivered.
    validated = {**result.metrics, **(delivered.metrics if delivered else {})}
    sealed = why_sealed(config, validated, again.row, combination)
    exported = _delivered(ctx, result) if ctx.task.is_opaque else _export(ctx, config, result, export, sealed, delivered)
    test = _tested(ctx, exported.test, sealed)
    # After the look at the test rows, as nothing is chosen by it; a combination's members were not tested alone.
    is_open = bool(test.samples) and delivered is None
    tested = measure_references(ctx.tools, result, ctx.with_workers(config), "test") if is_open else None
    return _Measured(result, again.row, references, combination, validated, exported, test, tested)


def _evidence(ctx: Context, config: TrainingConfig, found: _Measured, files: list[InputRow]) -> Finalization:
    """Return the phase's evidence, without the answer to a claim."""
    planned, exported = ctx.planning.evidence, found.exported
    judged = Run(found.run, found.references)
    rows = findings(judged, config.model_dump(), ctx.project.root)
    return Finalization(
        run=found.run,
        baseline_metrics=ctx.diagnosis.evidence.metrics,
        config=config.model_dump(),
        changed=key_changes(ctx.planned_config().model_dump(), config.model_dump()),
        reproduction=found.reproduction,
        exports=exported.exports,
        inference=exported.inference,
        delivered_sha256=exported.weights_sha256,
        test=found.test,
        model_files=files,
        acceptance=final_acceptance(config.acceptance, found.validated, found.test),
        way_back=way_back(ctx, config),
        runs_tried=len(runs(note_tried(ctx.project))),
        data=planned.data,
        environment=planned.environment,
        references=found.references,
        diagnostics=rows,
        expected_diagnostics=sorted(RULES),
        assessment=assess(rows, judged),
        changes=changes_to_try(rows, config.model_dump()),
        **without_none(
            delivered_tree_sha256=exported.weights_tree_sha256,
            conformal=exported.conformal,
            combination=found.combination,
            tested_references=found.tested,
            boosting=boosting_ahead(config, found.references, found.tested),
            lacking=lacking_classes(planned.data, found.run, found.test.lacking),
            untaught=untaught(ctx.project, found.run, config, TrainingConfig.model_validate(ctx.tuning.evidence.config)),
        ),
    )


def _note_changes(ctx: Context, config: TrainingConfig) -> None:
    if changed := key_changes(ctx.tuning.evidence.config, config.model_dump()):
        keys = ", ".join(f"{row.key} {row.before} -> {row.after}" for row in changed)
        ctx.note(f"the final training has {keys} ({PRODUCTION}; `mltrainer phase run finalization --set KEY=VALUE` changes that)")


def _ledger(ctx: Context) -> list[InputRow]:
    """Return the row of the openings of the test split; none where it was never opened."""
    path = ctx.folder / LEDGER_FILE
    return [file_row(ctx.project, path, "ledger")] if path.exists() else []


def _opened(ctx: Context, result: RunResult, test: Test) -> list[InputRow]:
    """Return the row of the file of the test split's results; none where it stayed sealed."""
    return [file_row(ctx.project, ctx.project.runs_dir / result.id / TEST_FILE, "run")] if test.samples else []


# --- the criteria of the model --------------------------------------------------------------------


def why_sealed(
    config: TrainingConfig, validated: Metrics, again: Reproduction, combination: Combination | None = None
) -> str | None:
    """Return the reason to keep the test split sealed, or None: only a model that could be delivered is worth the one look."""
    if not again.identical:
        return "the final training was not reproduced"
    if combination is not None and combination.rebuilt_sha256 != combination.weights_sha256:
        return "the combination of models came out otherwise when it was made again"
    missed = [row for row in acceptance_rows(config.acceptance, validated) if not row.met]
    reasons = (f"{row.metric} on {row.split} is {row.value}, {row.criterion} is required" for row in missed)
    return "; ".join(reasons) or None


# --- several models -------------------------------------------------------------------------------


def with_combination(ctx: Context, template: dict[str, Any]) -> tuple[Context, dict[str, Any]]:
    """Return the phase's context without the command line's changes of `combine`, and the template with them.

    Raises:
        InputError: The changes do not fit.
    """
    own = tuple(row for row in ctx.assignments if parse_assignment(row)[0].partition(".")[0] == COMBINE)
    values, where = apply({COMBINE: template[COMBINE]}, own, PRODUCTION)
    if values[COMBINE] is not None:
        asked = validate_values(Combine, values[COMBINE], where)
        refuse_impossible(asked, _study(ctx), is_program=ctx.task.is_opaque)
        values = {COMBINE: asked.model_dump()}
    others = tuple(row for row in ctx.assignments if row not in own)
    return replace(ctx, assignments=others), {**template, **values}


def _study(ctx: Context) -> Searched | None:
    return ctx.tuning.evidence if isinstance(ctx.tuning.evidence, Searched) else None


def _combined(ctx: Context, asked: Combine, result: RunResult, config: TrainingConfig) -> Combination:
    ctx.note(f"combining {asked.of}: {asked.how}, at most {asked.most}")
    made = combined(ctx.tools, asked, result, ctx.with_workers(config), _study(ctx))
    ctx.note("the combination is better on validation: it is delivered" if made.delivered else "no better: the run's own model")
    return made


def combined_inputs(combination: Combination | None) -> list[InputRow]:
    """Return the files that bind a combination and its members to the gate."""
    if combination is None:
        return []
    rows = [*combination.files, *(row for member in combination.members for row in member.files)]
    return rows_with_role({row.path: row for row in rows}.values(), "checkpoint")


def way_back(ctx: Context, config: TrainingConfig) -> WayBack:
    """Return the next changes to try with a final model that misses its criterion on validation.

    Returns:
        `set`: the values, by dotted key, that make the final training the baseline's, which met the criterion; empty where
        the baseline did not. `trials`: the number of configs that optimization tried; None where it was skipped. `search`: the
        advice of its report on the next search.
    """
    tuning = ctx.tuning.evidence
    if isinstance(tuning, Skipped):
        return WayBack(set=taken_back(tuning.config, config.model_dump()), trials=None, search=None)
    return WayBack(set={}, trials=tuning.planned_trials, search=next_search(tuning, keep=False))


def taken_back(before: dict[str, Any], after: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values, by dotted key, that turn one config into an earlier one; a group with other keys is given whole."""
    found: dict[str, Any] = {}
    for key in (key for key in before if before[key] != after[key]):
        old, new = before[key], after[key]
        is_group = isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys()
        found |= taken_back(old, new, f"{prefix}{key}.") if is_group else {f"{prefix}{key}": old}
    return found


def final_config(ctx: Context, template: dict[str, Any]) -> TrainingConfig:
    """Return the optimized config under the production template's changes and the command line's.

    Raises:
        InputError: A `--set` or a key of the template does not fit.
    """
    for key, _ in map(parse_assignment, ctx.assignments):
        # Arguments of the task are hyperparameters, which a search may change, too; the rest of the task is fixed.
        if (reason := PLANNED.get(key.partition(".")[0])) is not None and not key.startswith("task.arguments"):
            raise InputError(
                f"--set {key} belongs to planning: {reason}",
                hint=f"mltrainer phase run planning --set {key}=VALUE",
            )
    tuned = ctx.tuning.evidence.config
    values = overlay(tuned, of_task(template, Task.model_validate(tuned["task"])))
    return validate_values(TrainingConfig, *apply(values, ctx.assignments, PRODUCTION))


def _refuse_stopped(ctx: Context, result: RunResult) -> None:
    """Refuse to go on with a training that its time budget stopped.

    Raises:
        GateError: It was; with the command that goes on with the same run.
    """
    if result.stop_reason != "budget":
        return
    again = {key: value for key, value in map(parse_assignment, ctx.assignments) if key.partition(".")[0] != "budget"}
    command = " ".join(filter(None, ("mltrainer phase run finalization", as_typed(again), "--set budget.minutes=MINUTES")))
    what = f"the final training was stopped by its time budget after step {result.steps} of {result.planned_steps}"
    raise GateError(f"{what}; the state is saved", where="budget.minutes", hint=f"{command} goes on to its end")


def _role(path: Path) -> str:
    return "model" if path.suffix in (".safetensors", ".onnx", ".pt2", ".pt", ".data") else "document"


def _tested(ctx: Context, found: Test, sealed: str | None) -> Test:
    """Return the test split's results, or the reason for its seal, with every known opening."""
    still = (sealed or found.sealed) if _test_samples(ctx) else None
    measured = {name: getattr(found, name) for name in found.model_fields_set}
    return Test.model_validate({**measured, "sealed": still, **_kept_ledger(ctx).recorded})


def _kept_ledger(ctx: Context) -> Ledger:
    """Return every known opening, after writing them to the ledger; without any, no file is written."""
    ledger = known_openings(ctx)
    if ledger.openings:
        write_json(ctx.folder / LEDGER_FILE, ledger.recorded)
    return ledger


def _test_samples(ctx: Context) -> int:
    """Return the size of the test split, as planning counted it."""
    return ctx.planning.evidence.data.splits.test.samples


def _export(
    ctx: Context,
    config: TrainingConfig,
    result: RunResult,
    export: ExportSettings,
    sealed: str | None,
    combination: Combination | None = None,
) -> Exported:
    """Run the checkpoint manager: the exports, the files beside them, and last the test split's one opening.

    The manager writes an opening to the ledger before it opens; weights that were measured before do not count again.
    """
    ledger = _kept_ledger(ctx)
    asked = FinalizationSettings.model_validate(ctx.page.settings)
    limits = {"level": asked.interval_level, "resamples": asked.interval_resamples, "numbers": asked.interval_numbers}
    test = TestOpening(
        ledger=ctx.project.relative(ctx.folder / LEDGER_FILE),
        **ledger.recorded,
        salt=salt_of(ctx, ledger),
        interval={**limits, "loss": "loss" in config.acceptance},
    )
    opens = sealed is None and _test_samples(ctx) > 0
    out = ctx.folder / MODEL_FOLDER
    opened = test if opens else None
    return run_manager(ctx.tools, result, ctx.with_workers(config), out, export, opened, combination, is_delivery=True)


def _delivered(ctx: Context, result: RunResult) -> Exported:
    """Copy the files that a program left to the model's folder, with their checksums; a program offers no test split."""
    folder = ctx.folder / MODEL_FOLDER
    # Emptied first: all files there are bound as delivered, and an earlier program may have left others.
    shutil.rmtree(folder, ignore_errors=True)
    rows = {output_name(row.path): row for row in result.outputs}
    for name, row in rows.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with machine_faults(str(folder / name)):
            shutil.copyfile(ctx.project.root / row.path, folder / name)
    sums = "".join(f"{row.sha256}  {name}\n" for name, row in sorted(rows.items()))
    write_atomic(folder / "SHA256SUMS", sums.encode())
    test = partial(Test, {"samples": 0, "metrics": {}, "intervals": None, "sealed": None})
    return Exported(exports=[], inference={}, weights_sha256=result.weights_sha256, test=test)
