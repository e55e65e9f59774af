"""The metrics that the model of a run with a teacher reaches without it: the runs on record, and the command that trains some."""

from __future__ import annotations

import shlex

from mltrainer.configs.loading import as_assignments
from mltrainer.configs.project import TrainingConfig, bits_config, config_digest
from mltrainer.records.baseline import Untaught, UntaughtRun
from mltrainer.records.run import RunResult
from mltrainer.reproducibility.evidence import sound_result
from mltrainer.runs.contract import key_changes
from mltrainer.runs.find import runs_here
from mltrainer.workspace import Project

SAME = ("code_sha256", "environment_sha256")


def untaught(project: Project, result: RunResult, config: TrainingConfig, ablated: TrainingConfig) -> Untaught | None:
    """Return the runs that differ from one run by its teacher, and perhaps the seed, on the same samples and splits.

    Args:
        project: The project.
        result: The run's.
        config: The run's.
        ablated: The config that `mltrainer ablate` trains beside each swap of it.

    Returns:
        None of a run without a teacher.
    """
    if result.taught is None:
        return None
    alike = {"data_sha256": result.taught.untaught_sha256, **{key: getattr(result, key) for key in SAME}}
    results = [sound_result(project.runs_dir / run, alike) for run in runs_here(project)]
    runs = [one for one in results if one is not None and one.state == "finished" and _is_untaught(one, config)]
    rows = [UntaughtRun(run=one.id, seed=one.seed, metrics=one.metrics) for one in sorted(runs, key=lambda one: one.seed)]
    return Untaught(runs=rows, command=_command(ablated, config.untaught))


def _is_untaught(other: RunResult, config: TrainingConfig) -> bool:
    """Return True if a run's config is another one without its teacher, as it is or under another seed on the same splits."""
    plain = config.untaught
    splits = plain.split.model_copy(update={"seed": plain.data_seed})
    reseeded = plain.model_copy(update={"seed": other.seed, "split": splits})
    return other.config_sha256 in (config_digest(reseeded), *([config_digest(plain)] if other.seed == plain.seed else []))


def _command(before: TrainingConfig, after: TrainingConfig) -> str:
    """Return the ablation that trains a config as a swap of another one."""
    changes = {row.key: row.after for row in key_changes(bits_config(before), bits_config(after))}
    return shlex.join(["mltrainer", "ablate", "+".join(as_assignments(changes))])
