"""A project's claim: written and sealed before anything is measured, and shown with its answer."""

from __future__ import annotations

import math

from mltrainer.configs import yaml
from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.loading import read_text
from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.gates.claims import CLAIM_FILE, MAKE, planned, require_metric
from mltrainer.gates.statistics import fewest_pairs, level_at
from mltrainer.records.claim import RULE, Claim, ClaimAnswer
from mltrainer.records.reading import sound_record
from mltrainer.redaction import redacted
from mltrainer.tasks.statistics import LEVEL
from mltrainer.workspace import Project, locked_project, seal, write_json

MOST_SEEDS = 20


def make_claim(
    project: Project, hypothesis: str, least: float, seeds: int | None = None, metric: str | None = None, mode: str | None = None
) -> tuple[Claim, list[str]]:
    """Write the project's claim, in place of an earlier one, and return it with the numbers that were known before.

    Args:
        project: The project.
        hypothesis: The claim in words.
        least: The least mean improvement over the baseline.
        seeds: The number of seeds; None: as many as optimization's gate asks for.
        metric: The metric; None: the project's, which is the only one that the phases compare by.
        mode: "max" or "min"; None: the project's.

    Raises:
        InputError: The claim is not one that can be answered.
        InUseError: Another process works on the project.
        GateError: The ledger of tried runs was changed; the claim was written.
    """
    own = load_project(project.file).metric
    count = _seeds(project) if seeds is None else seeds
    _require_answerable(hypothesis, least, count)
    content = seal(
        redacted(
            {
                "hypothesis": hypothesis.strip(),
                "metric": metric or own.name,
                "mode": mode or own.mode,
                "least": least,
                "seeds": count,
                "rule": RULE,
                "level": LEVEL,
            }
        )
    )
    claim = Claim.model_validate(content)
    require_metric(claim, own, yaml.parse(read_text(project.file, "the project file"), project.file.name).where(("metric",)))
    with locked_project(project):
        write_json(project.root / CLAIM_FILE, content)
    planning = sound_record(project, "planning")
    found = planned(project, getattr(planning.evidence, "claim", None) if planning else None)
    return claim, found.known if found is not None else []


def _seeds(project: Project) -> int:
    """Return the number of seeds on which optimization compares the best config with the baseline."""
    item = next(item for item in phase_page("optimization", project.root).items if item.id == "improvement_validated")
    return ImprovementSettings.model_validate(item.settings).seeds


def _require_answerable(hypothesis: str, least: float, seeds: int) -> None:
    if not hypothesis.strip():
        raise InputError(expected="a hypothesis in words", found="none", where="mltrainer claim", hint=MAKE)
    if not (math.isfinite(least) and least >= 0):
        raise InputError(expected="a least difference of 0 or more", found=least, where="--least", hint=MAKE)
    fewest = fewest_pairs(level_at(1, LEVEL))
    if not fewest <= seeds <= MOST_SEEDS:
        message = f"expected {fewest} to {MOST_SEEDS} seeds, found {seeds}: with fewer the {RULE} cannot pass at level {LEVEL}"
        raise InputError(message, where="--seeds", hint=f"--seeds {fewest}")


def answered(project: Project) -> ClaimAnswer | None:
    """Return the newest answer that the records hold; None where they hold none."""
    records = (sound_record(project, phase) for phase in ("finalization", "optimization"))
    return next((record.evidence.claim for record in records if record and record.evidence.claim), None)
