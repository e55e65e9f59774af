"""A claim and its answer in words, for reports, gates and the terminal."""

from __future__ import annotations

from typing import Any

from mltrainer.records.claim import Claim, ClaimAnswer, PlannedClaim
from mltrainer.records.run import Run
from mltrainer.reports.values import counted, given, signed

DIRECTIONS = {"max": "raises", "min": "lowers"}


def asked(claim: Claim) -> str:
    """Return a claim's demand in words."""
    change = f"{DIRECTIONS[claim.mode]} {claim.metric} by at least {given(claim.least)}"
    return f"the search's best config {change} over the baseline's, in the mean of {counted(claim.seeds, 'seed')}"


def answer_text(found: ClaimAnswer) -> str:
    """Return an answer in words: the claim, and what was measured, or why that does not answer it."""
    if found.claim is None:
        return str(found.why)
    parts = [found.why] if found.why else []
    if found.difference is not None:
        parts.append(f"mean improvement {signed(found.difference)} over {counted(found.seeds, 'seed')}")
    if found.rows is not None:
        parts.append(f"95 % interval by the validation rows {' to '.join(map(signed, found.rows))}")
    if found.delivered is not None:
        parts.append(f"of the delivered model, on one seed, {signed(found.delivered)}")
    rule = f"{found.claim.rule} at level {given(found.level or found.claim.level)}"
    return f"{found.claim.hypothesis} ({asked(found.claim)}; {rule}): {'; '.join(parts)}"


def late(found: PlannedClaim, run: Run | None = None) -> str | None:
    """Return why a claim was not fixed before numbers were known; None where it was.

    Args:
        found: The claim, as planning's record holds it.
        run: The baseline's run; None before it.
    """
    when = "after numbers were known" + (f" ({found.known[0]})" if found.known else "")
    if found.removed:
        return f"it was removed {when}"
    if found.before is not None:
        return f"it was changed {when}: {_changes(found.before, found.claim)}"
    if found.known:
        return f"it was made {when}"
    is_other = run is not None and run.claim != found.claim.seal
    return f"it was made or changed {when}: the baseline was not trained under it" if is_other else None


def _changes(before: Claim, now: Claim) -> str:
    names = [name for name in Claim.model_fields if name != "seal" and getattr(before, name) != getattr(now, name)]
    return "; ".join(f"{name} {getattr(before, name)!r} -> {getattr(now, name)!r}" for name in names)


def doubts(evidence: Any) -> list[str]:
    """Return, as a note of a gate, why the claim in a phase's evidence cannot be answered; empty where it can."""
    found = getattr(evidence, "claim", None)
    why = late(found) if isinstance(found, PlannedClaim) else getattr(found, "why", None)  # a run's claim is a seal
    return [f"the claim cannot be answered: {why}"] if why else []
