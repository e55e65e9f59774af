"""The reports of a phase, from its record alone: identical records give identical bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mltrainer
from mltrainer import handbook
from mltrainer.errors import InputError
from mltrainer.workspace import MODEL_CARD, MODEL_FOLDER, PHASES, sha256_file

if TYPE_CHECKING:
    from mltrainer.reports.gate_items import Items

FRAME = "phases/frame.md.j2"
CARD_FRAME = "phases/card_frame.md.j2"
CARD = f"{MODEL_FOLDER}/{MODEL_CARD}"
REPORTS = {
    "planning": "reproducibility_manifest.md",
    "baseline": "baseline_results.md",
    "diagnostics": "diagnostic_report.md",
    "optimization": "tuning_results.md",
    "finalization": "final_report.md",
}
_WRONG_SHAPE = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)


def template_paths(phase: str) -> dict[str, str]:
    """Return the template of each of a phase's reports, by the report's name."""
    folder = f"phases/{PHASES.index(phase) + 1:02d}_{phase}"
    card = {CARD: f"{folder}/model_card.md.j2"} if phase == "finalization" else {}
    return {REPORTS[phase]: f"{folder}/report.md.j2", **card}


def made_by(phase: str, project: Path | None) -> list[Any]:
    """Return a report's inputs beside its record: version, digests of the templates, sizes and times of this package's files."""
    templates = [handbook.locate(path, project)[0] for path in (*template_paths(phase).values(), *handbook.FRAMES)]
    program = sorted(Path(__file__).parent.glob("*.py"))
    files = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in program]
    return [mltrainer.__version__, [sha256_file(path) for path in templates], files]


def render(record: dict[str, Any], waivers: list[dict[str, Any]], gate: Items, project: Path | None = None) -> dict[str, str]:
    """Return the Markdown files of a phase's folder, by file name.

    Args:
        record: The phase's record.
        waivers: The waivers, each with `item`, `reason`, `by` and, where it is known, `when`.
        gate: The items of the checklist with their verdicts.
        project: The project's folder, whose own templates fill the blocks of the reports; None for the shipped ones.

    Raises:
        InputError: The record is of no phase, its evidence lacks values that the report needs, or the project's own
            template does something forbidden.
    """
    phase = record.get("phase")
    if not isinstance(phase, str) or phase not in REPORTS:
        raise InputError.unknown("phase", str(phase), REPORTS, where="record.json")
    from jinja2 import TemplateRuntimeError  # here, because most commands render nothing

    try:
        return {name: _rendered(name, path, record, waivers, gate, project) for name, path in template_paths(phase).items()}
    except (*_WRONG_SHAPE, TemplateRuntimeError) as error:
        message = f"the record of {phase} lacks what its report is made from: {type(error).__name__} {error}"
        raise InputError(message, where="record.json", hint=f"mltrainer phase run {phase}") from error


def _rendered(
    name: str,
    path: str,
    record: dict[str, Any],
    waivers: list[dict[str, Any]],
    gate: Items,
    project: Path | None,
) -> str:
    from mltrainer.reports import templates
    from mltrainer.reports.phase_names import names as names_of

    names = names_of(record, gate)
    own = templates.report(path, project).blocks(names)
    frame = templates.frame(CARD_FRAME if name == CARD else FRAME)
    return templates.filled(frame, {**names, "own": own, "waivers": waivers})
