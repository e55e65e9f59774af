"""A config and variants of it, trained on the same seeds: shared by ablations, seed variance and trials of remedies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mltrainer.companions.questions.ablation.findings import ChangedKey
from mltrainer.configs.components import Swap
from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.loading import at
from mltrainer.configs.pages import ORCHESTRATOR, phase_page, trained_by
from mltrainer.configs.project import TrainingConfig, config_digest, load_project
from mltrainer.errors import InputError
from mltrainer.gates.gate import Gate, check_gates, why_closed
from mltrainer.records.job import AblationJob, Variant
from mltrainer.records.reading import Record
from mltrainer.runs.contract import contract_of, planned_files
from mltrainer.workspace import Project, digest

TOOL = "ablation_study"
PHASE = "ablation"  # the phase that the runs name
FEWEST_SEEDS, MOST_SEEDS = 2, 20  # the exact test goes through 2**n sums


def whole_config(project: Project, planning: Gate) -> tuple[TrainingConfig, bool, str, str]:
    """Return the ablated config, whether optimization decided it, its file, and the reason for the choice."""
    assert planning.record is not None
    gate = next(gate for gate in check_gates(project) if gate.phase == "optimization")
    planned = planning.record.trusted.evidence
    if gate.holds and gate.record is not None:
        evidence, file, why = gate.record.trusted.evidence, "final_config.yaml", "the gate of optimization holds"
    else:
        evidence, file, why = planned, "training_config.yaml", why_closed(gate)
    config = TrainingConfig.model_validate(evidence.config)
    workers = planned.loader.workers if planned.loader else 0
    folder = project.phase_dir("optimization" if gate.holds else "planning")
    return config.with_workers(workers), gate.holds, project.relative(folder / file), why


def level_of(project: Project) -> float:
    """Return the level of the comparison of a search's winner, by which components are judged, too."""
    items = phase_page("optimization", project.root).items
    settings = next(item.settings for item in items if item.id == "improvement_validated")
    return ImprovementSettings.model_validate(settings).level


def require_one_trainer(project: Project, what: str) -> None:
    """Refuse a comparison if the phases train with another tool than the shipped trainer.

    Raises:
        InputError: The comparison, `what`, works with the shipped trainer only.
    """
    task = load_project(project.file).task
    trained = trained_by("baseline", project.root, task.trainer).tool
    if trained == task.trainer and task.is_opaque:
        hint = "vary its arguments (mltrainer phase run optimization), or write it as a custom task (task.use)"
        raise InputError(f"{what} changes and trains a model of mltrainer's, and this project's task is a program", hint=hint)
    if trained != task.trainer:
        raise InputError(f"{what} trains with {ORCHESTRATOR}, and this project's baseline is trained by {trained}")


def job_of(root: Path, planning: Record, config: TrainingConfig, swaps: Sequence[Swap], seeds: int, phase: str) -> AblationJob:
    """Return the tool's job; periodic checkpoints are not kept, which renames no run.

    Args:
        root: The project's folder.
        planning: Planning's record.
        config: The whole config.
        swaps: Changes that are trained beside it.
        seeds: Number of fresh seeds; 0: the config's seed.
        phase: The phase that its runs name.
    """
    # Checkpoints for resumption alone would fill the disk: there is a run for each variant and seed.
    if not config.task.is_opaque:
        config = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"keep": 0})})
    contract = {key: value for key, value in contract_of(planning, config, root).items() if key != "config_sha256"}
    variants = [{"name": swap.name, "changes": swap.changes} for swap in swaps]
    # Only inputs that decide bits name the study, so that the same question reuses its runs.
    run = digest({**contract, "config": config_digest(config), "variants": variants, "seeds": seeds})[:12]
    return AblationJob(
        run=run,
        phase=phase,
        folder=f".mltrainer/ablations/{run}",
        config=config,
        variants=[Variant.model_validate(row) for row in variants],
        seeds=seeds,
        contract=contract,
        code_files=planning.trusted.source.files,
        gate=planning.sha256,
        parent=None,
        threads=config.threads,
        **planned_files(planning.trusted.evidence, config.task.is_opaque),
    )


def changed_keys(config: TrainingConfig, swap: Swap) -> list[ChangedKey]:
    """Return the keys that a swap changes, each with old and new value; unchanged keys are left out."""
    values = config.model_dump()
    rows = [ChangedKey(key=key, before=_held(values, key), after=value) for key, value in swap.changes.items()]
    return [row for row in rows if row.before != row.after]


def _held(values: Any, key: str) -> Any:
    """Return the value at a dotted key; for a group, its entries that are not None."""
    held = at(values, key)
    return {name: item for name, item in held.items() if item is not None} if isinstance(held, dict) else held
