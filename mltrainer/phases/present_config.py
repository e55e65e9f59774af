"""The config that planning would use now, with nothing written."""

from __future__ import annotations

import json
from typing import Any

from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.phases.context import Context
from mltrainer.phases.planning import plan_config
from mltrainer.records.reading import sound_record
from mltrainer.redaction import scan_text
from mltrainer.runs.launcher import Tools


def present_config(tools: Tools, assignments: tuple[str, ...]) -> TrainingConfig:
    """Return the config that template, project file, edits and `--set` give together; nothing is written.

    `loader.workers: auto` becomes the number that the present planning found; 0 without one.

    Raises:
        InputError: A file or a `--set` is not valid, or holds a secret.
    """
    project = tools.project
    current = sound_record(project, "planning")
    page = phase_page("planning", project.root)
    config = plan_config(Context(project, page, {}, current, None, assignments, tools.tell, tools.launch)).config
    require_no_secret(config.model_dump())
    loader = getattr(current.evidence, "loader", None) if current else None
    return config.with_workers(loader.workers if loader else 0)


def require_no_secret(values: Any) -> None:
    """Refuse values of a config that contain a secret.

    Raises:
        InputError: A secret is in the values; the message has its kind, not the secret.
    """
    if found := scan_text(json.dumps(values), ""):
        message = f"the config contains a secret ({found[0]['kind']}), which is neither written nor run"
        raise InputError(message, hint="keep it in an environment variable that your code reads")
