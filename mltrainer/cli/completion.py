"""Shell completion: runs, config keys and pages of the current project. A project with a fault offers nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from mltrainer.errors import MltrainerError
from mltrainer.workspace import PHASES, Project, find_project


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of runs: phases that may have one, and ids."""
    from mltrainer.runs.find import run_ids

    project = _project(ctx)
    return [name for name in (*PHASES[1:], *run_ids(project)) if name.startswith(incomplete)] if project else []


def config_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the dotted keys of the config to change, each with its present value."""
    project = _project(ctx)
    values = _present(project) if project else {}
    return [f"{key}={_typed(value)}" for key, value in values.items() if key.startswith(incomplete.partition("=")[0])]


def swaps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the components that can be taken out of the planned config, and its options and keys to swap."""
    from mltrainer.configs.components import components, options_of
    from mltrainer.configs.project import load_training

    project = _project(ctx)
    file = project.phase_dir("planning") / "training_config.yaml" if project else None
    try:
        config = load_training(file, file.name) if file else None
    except MltrainerError:
        config = None
    keys = [*(next(iter(swap.changes)) for swap in components(config)), *options_of(config)] if config else []
    return [*(key for key in keys if key.startswith(incomplete)), *config_keys(ctx, incomplete)]


def gate_items(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the items of the phase's gate."""
    from mltrainer.configs.pages import phase_page

    project, phase = _project(ctx), ctx.params.get("phase")
    items = phase_page(phase, project.root).items if project and phase else ()
    return [item.id for item in items if item.id.startswith(incomplete)]


def pages(incomplete: str) -> list[str]:
    """Return the pages of the handbook."""
    from mltrainer.handbook import page_paths

    return [page for path in page_paths() if (page := path.removesuffix(".md")).startswith(incomplete)]


def _project(ctx: typer.Context) -> Project | None:
    try:
        return find_project(ctx.params.get("folder") or Path.cwd())
    except MltrainerError:
        return None


def _present(project: Project) -> dict[str, Any]:
    """Return the config's values by dotted key: the planned ones, or before planning those of project file and template."""
    from mltrainer.configs import yaml
    from mltrainer.configs.loading import flatten
    from mltrainer.configs.templates import BASELINE
    from mltrainer.handbook import locate

    planned = project.phase_dir("planning") / "training_config.yaml"
    files = [planned] if planned.is_file() else [locate(BASELINE, project.root)[0], project.file]
    values: dict[str, Any] = {}
    for file in files:
        try:
            values |= flatten(yaml.parse(file.read_text("utf-8"), file.name).value or {})
        except (MltrainerError, OSError, AttributeError):
            continue
    return values


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
