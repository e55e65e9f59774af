"""What this version of mltrainer would change of a planned project: its rules, its templates' values, its policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mltrainer.configs.loading import as_assignments, flatten
from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import bits_config, of_task
from mltrainer.configs.templates import TRAINING_KEYS, newest_rules
from mltrainer.errors import InputError
from mltrainer.gates.policy import policy_of
from mltrainer.phases.context import Context
from mltrainer.phases.planning import plan_config, planned_config
from mltrainer.records.reading import sound_record, sound_records
from mltrainer.runs.launcher import launch
from mltrainer.workspace import Project


@dataclass(frozen=True)
class Upgrade:
    """What adopting this version's policy changes.

    Attributes:
        adopted: What planning is told for it, by key, as after `--set`.
        changes: Keys of the training config, each with its value now and then, but for those of `mltrainer.yaml`.
        other_bits: Whether runs of the changed config are other runs: each gets a new name, and its phases run again.
        policies: What a phase's gate is judged by in place of this version's policy, by phase.
    """

    adopted: Mapping[str, Any]
    changes: dict[str, tuple[Any, Any]]
    other_bits: bool
    policies: dict[str, tuple[str, ...]]

    @property
    def plans(self) -> bool:
        """Whether planning adopts something of it; what is left are other phases' policies, which they adopt when they run."""
        return bool(self.changes) or "planning" in self.policies


def upgrade_of(project: Project) -> Upgrade:
    """Return the changes that this version would make to a planned project; nothing is written.

    Raises:
        InputError: The project has no plan yet or no sound record of it, or a file of it is not valid.
    """
    now = planned_config(project)
    adopted = of_task({"rules": max(now.rules, newest_rules())}, now.task)  # a program has none
    page, record = phase_page("planning", project.root), sound_record(project, "planning")
    if record is None:
        what = "there is no sound record of planning, which tells what it is judged by"
        raise InputError(what, where=project.relative(project.phase_dir("planning")), mend="mltrainer phase run planning")
    ctx = Context(project, page, {}, record, None, as_assignments(adopted), lambda _event: None, launch)
    then = plan_config(ctx).config
    before, after = flatten(_training_keys(now.model_dump())), flatten(_training_keys(then.model_dump()))
    changes = {key: (before.get(key), after.get(key)) for key in {**before, **after} if before.get(key) != after.get(key)}
    asked = {str(record.phase): policy_of(project, record).newer for record in sound_records(project)}
    policies = {phase: notes for phase, notes in asked.items() if notes}
    other_bits = _training_keys(bits_config(now)) != _training_keys(bits_config(then))
    return Upgrade(adopted, changes, other_bits, policies)


def _training_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in TRAINING_KEYS}
