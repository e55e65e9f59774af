"""Whether an edited config still has the values that a phase was decided by; their notation does not count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.records.planning import Planned

# The observers of a running training. Names and criteria decide no bit either, but reports and verdicts are made of them.
LOOKS_ON = frozenset({"tracking"})
PLACES = frozenset({"engine", "slurm", "ray"})  # keys of `launch`: where trials are trained, which the search reads from the file


def says_the_same(path: Path, role: str, evidence: Planned) -> bool:
    """Return True if an edited config file has the values that planning recorded, apart from the keys of LOOKS_ON and PLACES.

    Args:
        path: `mltrainer.yaml`, or the training config.
        role: "project" or "config", as planning's record calls it.
        evidence: Planning's evidence: `generated` has the project file's values, `config` the training config's.
    """
    import pydantic

    from mltrainer.configs.loading import read_text
    from mltrainer.configs.project import ProjectConfig, TrainingConfig, load_project, load_training, of_task
    from mltrainer.configs.yaml import parse

    try:
        loaded: ProjectConfig = load_project(path) if role == "project" else load_training(path, path.name)
        said = parse(read_text(path, "the config"), path.name).value
        then = TrainingConfig.model_validate(evidence.generated if role == "project" else evidence.config)
    except (InputError, pydantic.ValidationError):
        return False
    if role == "config" and not _has_keys(said, of_task(evidence.config, loaded.task)):
        return False  # what planning wrote and is cut off would be taken for its default
    now, before = (one.model_dump(exclude={"launch": set(PLACES)}) for one in (loaded, then))
    return all(value == before[key] for key, value in now.items() if key not in LOOKS_ON)


def _has_keys(said: Any, written: Mapping[str, Any]) -> bool:
    """Return True if a file still has each key that planning wrote, at any depth; keys of LOOKS_ON may be missing."""
    asked = {key: value for key, value in written.items() if key not in LOOKS_ON}
    return isinstance(said, dict) and all(
        key in said and (not isinstance(value, dict) or _has_keys(said[key], value)) for key, value in asked.items()
    )
