"""JSON Schemas of the two files that people edit, for editors that complete and check YAML."""

from __future__ import annotations

from pathlib import Path

from mltrainer.configs.project import ProjectConfig, TrainingConfig
from mltrainer.workspace import pretty_json, write_atomic

FOLDER = "phases/01_planning/schema"  # committed with the artifacts, so that a fresh clone has it
MODELS = {"mltrainer.json": ProjectConfig, "training_config.json": TrainingConfig}


def header(name: str, up: str = "") -> str:
    """Return the comment by which editors find a schema (the convention of yaml-language-server).

    Args:
        name: A file of `MODELS`.
        up: The way from the YAML file's folder to the project's, such as "../../".
    """
    return f"# yaml-language-server: $schema={up}{FOLDER}/{name}\n"


def write_schemas(root: Path) -> None:
    """Write the schemas into a project, where they are not what this version would write."""
    for name, model in MODELS.items():
        path = root / FOLDER / name
        content = pretty_json(model.model_json_schema())
        if not path.is_file() or path.read_bytes() != content:
            write_atomic(path, content)
