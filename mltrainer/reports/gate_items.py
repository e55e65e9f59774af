"""A gate's items as reports and `--json` show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mltrainer.reports import markdown as md
from mltrainer.reports.values import counted, labelled, number

if TYPE_CHECKING:
    from mltrainer.records.envelope import Waiver


@dataclass(frozen=True)
class GateItem:
    """One item of a gate with its recomputed verdict.

    Attributes:
        id: The item's name in the checklist.
        statement: The requirement in a sentence.
        verdict: The verdict: pass, fail, waived or not_applicable.
        evidence: The measured values that decided it.
        mend: The next step where it fails; None where it was not measured because of another item.
        recomputed: Whether the verdict is computed from the record's evidence now; False for the verdict that a project's custom
            check gave when the phase ran.
    """

    id: str
    statement: str
    verdict: str
    evidence: dict[str, Any]
    mend: str | None
    recomputed: bool = True

    @property
    def is_unmeasured(self) -> bool:
        """Whether its phase stopped before it was measured: another item gives the reason and the next step."""
        return self.verdict == "fail" and self.mend is None and isinstance(self.evidence.get("missing"), str)

    @property
    def measured(self) -> str:
        """The evidence on one line; that of a custom check names the check."""
        shown = "; ".join(" ".join(labelled(key, value)) for key, value in self.evidence.items())
        return shown if self.recomputed else f"by the project's own check, not recomputed here: {shown}"

    def view(self) -> dict[str, Any]:
        """Return the item as `--json` prints it."""
        return dict(vars(self))


Items = Sequence[GateItem]


def failing(gate: Items) -> list[GateItem]:
    """Return the items that do not hold."""
    return [item for item in gate if item.verdict == "fail"]


def not_passed(gate: Items) -> list[GateItem]:
    """Return the items that a reader must look at: failed or waived."""
    return [item for item in gate if item.verdict in ("fail", "waived")]


def gate_line(gate: Items) -> str:
    """Return the gate's verdict as a bold sentence of Markdown."""
    if failed := failing(gate):
        measured = [item for item in failed if not item.is_unmeasured]
        rest = f" Not measured: {counted(len(failed) - len(measured), 'item')}." if 0 < len(measured) < len(failed) else ""
        return f"❌ **The gate does not hold**: {', '.join(md.code(item.id) for item in measured or failed)}.{rest}"
    if not gate:
        return "❌ **The gate does not hold**: nothing was checked."
    return f"✅ **The gate holds** ({verdict_counts(gate)})."


def verdict_counts(gate: Items) -> str:
    """Return the number of items that pass, and of those that were waived or do not apply."""
    verdicts = [item.verdict for item in gate]
    beside = [(verdicts.count(verdict), verdict.replace("_", " ")) for verdict in ("waived", "not_applicable")]
    others = "".join(f", {number(count)} {words}" for count, words in beside if count)
    return f"{number(verdicts.count('pass'))} of {number(len(gate))} items pass{others}"


def no_effect(waiver: Waiver, gate: Items) -> bool:
    """Return True if a waiver changes no verdict of this gate; one of an earlier phase, named in it, is not judged here."""
    is_waived = any(item.id == waiver.item and item.verdict == "waived" for item in gate)
    return bool(gate) and ": " not in waiver.item and not is_waived
