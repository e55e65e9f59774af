"""The claim of a project: what was known before it, and its answer, both from records alone; torch-free.

A run's result holds the seal of the claim under which it was trained. So the records show, without any date, whether a number was
known before the claim: its run has no claim, or another one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mltrainer.errors import InputError
from mltrainer.gates.digests import FileDigests
from mltrainer.gates.statistics import improvements, level_at, sign_flip_p_value
from mltrainer.records.baseline import Baseline
from mltrainer.records.claim import UNDECIDED, Claim, ClaimAnswer, PlannedClaim, Verdict
from mltrainer.records.finalization import Finalization
from mltrainer.records.optimization import Comparison, Searched, Skipped
from mltrainer.records.reading import RECORD_FILE, read_record
from mltrainer.records.tried import TRIED_FILE, Line, read
from mltrainer.reports.claims import late
from mltrainer.reports.values import as_float, counted, finite, given, number
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import ledgers, marks
from mltrainer.tasks.statistics import SHARES, share_difference
from mltrainer.workspace import Project, is_sealed, phase_folder, read_json

if TYPE_CHECKING:
    from mltrainer.configs.project import Metric
    from mltrainer.records.planning import Planning

CLAIM_FILE = "claim.json"
BASELINE = f"{phase_folder('baseline')}/{RECORD_FILE}"
MEASURED = ("baseline", "optimization", "finalization")  # what is begun to measure a number, in the ledger of tried runs
MAKE = 'mltrainer claim "TEXT" --least NUMBER'


def read_claim(project: Project) -> Claim | None:
    """Return the project's claim; None where none was made.

    Raises:
        InputError: Its file was edited, or is no claim.
    """
    path = project.root / CLAIM_FILE
    if not path.exists():
        return None
    content = read_json(path, f"make it again: {MAKE}")
    try:
        claim = Claim.model_validate(content)
    except ValueError as error:
        raise InputError("expected a claim as mltrainer writes it", where=CLAIM_FILE, hint=f"make it again: {MAKE}") from error
    if not is_sealed(content):
        raise InputError("its content does not match its seal: it was edited", where=CLAIM_FILE, hint=f"make it again: {MAKE}")
    return claim


def require_metric(claim: Claim, metric: Metric, where: str) -> None:
    """Require a claim to be about the metric that the phases compare by.

    Raises:
        InputError: It is about another one, or says that the other direction is better.
    """
    if claim.metric != metric.name:
        message = f"the claim is about the unknown metric {claim.metric!r}; expected {metric.name!r}, by which the phases compare"
        raise InputError(message, where=where, hint=f"--metric {metric.name}, or change metric.name in mltrainer.yaml")
    if claim.mode != metric.mode:
        message = f"the claim says {claim.mode} of {claim.metric}; expected {metric.mode}, as metric.mode says"
        raise InputError(message, where=where, hint=f"leave out --direction, or: --direction {metric.mode}")


# --- what was known before --------------------------------------------------------------------------


def _known(runs: Collection[Mapping[str, Any]], begun: Collection[Line], seal: str | None) -> list[str]:
    """Return, in words, what was known before a claim: the numbers of baselines without it, and runs that were begun.

    Baselines on other data count, too: with one row more, or another split, data is other data of nearly the same numbers.

    Args:
        runs: The baselines that the records hold.
        begun: The lines of the ledger of tried runs that count. Nothing else may hold these runs any more.
        seal: The claim's seal; None: of no claim, so that every baseline counts.
    """
    words = [_in_words(run) for run in runs if _is_measured(run) and (seal is None or run.get("claim") != seal)]
    if begun:
        what, first = next(iter(begun)).begun
        words.append(f"{counted(len(begun), 'run')} in {TRIED_FILE}, the first {first}, of {what}")
    return list(dict.fromkeys(words))


def _baselines(project: Project) -> list[Mapping[str, Any]]:
    """Return the runs in the records of baselines, here and in the present history."""
    here = read_record(project, "baseline")
    return _runs([*_committed(project, BASELINE), here.data if here is not None else {}])


def _committed(project: Project, path: str) -> list[Any]:
    """Return the versions of a file in the present commit's history; none without a repository."""
    try:
        return ledgers(project.root, path, every_branch=False)
    except GitError:
        return []


def _runs(records: Iterable[Any]) -> list[Mapping[str, Any]]:
    return [run for record in records if (run := _run(record))]


def _run(record: Any) -> Mapping[str, Any]:
    """Return the run in a baseline's record of any version; empty where there is none."""
    for key in ("evidence", "run"):
        record = record.get(key) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) and isinstance(record.get("metric"), Mapping) else {}


def _is_measured(run: Mapping[str, Any]) -> bool:
    return finite((run.get("metrics") or {}).get(run["metric"].get("name")))


def _in_words(run: Mapping[str, Any]) -> str:
    name = run["metric"]["name"]
    return f"{name} {number(run['metrics'][name])} of run {run.get('id')}"


def planned(project: Project, last: PlannedClaim | None) -> PlannedClaim | None:
    """Return the claim that planning binds, with what was known before it; None where there is none.

    Args:
        project: The project.
        last: The claim in planning's record before.

    Raises:
        InputError: The claim's file was edited, or is no claim.
        GateError: The ledger of tried runs was changed.
    """
    claim, runs = read_claim(project), _baselines(project)
    begun = [line for line in read(project) if line.begun.what in MEASURED]
    if claim is None:
        known = _known(runs, begun, None) if last is not None else []
        return PlannedClaim(claim=last.claim, known=known, removed=True) if last is not None and known else None
    if last is None:  # nothing can have been begun under it
        return PlannedClaim(claim=claim, known=_known(runs, begun, claim.seal))
    if last.claim == claim and not last.removed:
        # The baseline of a record may have been replaced since by one that was trained under the claim.
        known = list(dict.fromkeys([*last.known, *_known(runs, [], claim.seal)]))
        return PlannedClaim(claim=claim, known=known, before=last.before)
    # A claim that is back: what was begun under it is no fault of it. A search has a baseline before it, whose line says enough.
    under = {run.get("id") for run in runs if run.get("claim") == claim.seal}
    begun = [line for line in begun if line.begun.what == "baseline" and line.begun.run not in under]
    known = _known(runs, begun, claim.seal)
    return PlannedClaim(claim=claim, known=known, before=last.before if last.claim == claim else last.claim if known else None)


def hidden(project: Project, planning: Planning, digests: FileDigests) -> Iterator[str]:
    """Yield the contradictions of planning's record about the claim and git's history, each with the next step.

    Where nothing is contradicted, git is not asked again before the repository or the record changes.
    """
    found = planning.claim
    if found is None and (project.root / CLAIM_FILE).exists():
        yield f"{CLAIM_FILE} was made, and planning's record does not bind it"
    record, state = project.phase_dir("planning") / RECORD_FILE, marks(project.root)
    if state is None or digests.agreed("claim", record, state):
        return
    faults = [*(_removed(project) if found is None else _known_before(project, found))]
    yield from faults
    if not faults:
        digests.agree("claim", record, state)


def _removed(project: Project) -> Iterator[str]:
    """Yield the claims in the history that a baseline was trained under, and that are gone."""
    seals = {
        seal: content
        for content in _committed(project, CLAIM_FILE)
        if isinstance(content, Mapping) and (seal := content.get("seal"))
    }
    baselines = _committed(project, BASELINE) if seals else []
    for seal in dict.fromkeys(_run(record).get("claim") for record in baselines):
        if seal in seals:
            words = repr(seals[seal].get("hypothesis"))
            yield f"the claim was removed after numbers were known: {words} is in git's history and not here"


def _known_before(project: Project, found: PlannedClaim) -> Iterator[str]:
    if found.known:
        return
    if known := _known(_runs(_committed(project, BASELINE)), [], found.claim.seal):
        yield f"the claim was made or changed after numbers were known, which the record denies: {known[0]} is in git's history"


# --- the answer -------------------------------------------------------------------------------------


def answer(
    planning: Planning, baseline: Baseline, tuning: Searched | Skipped, final: Finalization | None = None
) -> ClaimAnswer | None:
    """Return the answer to the claim that planning bound; None where none was made.

    It holds where the mean improvement of the candidate over the baseline exceeds the claimed least by the exact sign-flip test,
    and by the number of rows where the metric is a share of them; it does not hold where the same shows that it is below.

    Args:
        planning: Planning's evidence.
        baseline: The baseline's.
        tuning: Optimization's.
        final: Finalization's; None before it.
    """
    found = planning.claim
    if found is None:
        why = "it was removed after numbers were known: the baseline was trained under it"
        return None if baseline.run.claim is None else ClaimAnswer(claim=None, verdict=UNDECIDED, why=why)
    doubt = late(found, baseline.run)
    if found.removed:  # it may be about another metric than the present one
        return ClaimAnswer(claim=found.claim, verdict=UNDECIDED, why=doubt)
    if isinstance(tuning, Skipped):
        return ClaimAnswer(
            claim=found.claim, verdict=UNDECIDED, why=doubt or f"nothing was compared with the baseline: {tuning.rule}"
        )
    return _of_comparison(found.claim, doubt, baseline, tuning.comparison, final)


def _of_comparison(
    claim: Claim, why: str | None, baseline: Baseline, comparison: Comparison, final: Finalization | None
) -> ClaimAnswer:
    """Return the answer by a comparison over seeds; `why`: why the claim cannot be answered, whatever was measured."""
    gains = improvements(comparison.candidate, comparison.baseline, claim.mode)
    if len(gains) < claim.seeds:
        why = why or f"it states {counted(claim.seeds, 'seed')}, and {counted(len(gains), 'seed')} were compared"
    if not gains:
        return ClaimAnswer(claim=claim, verdict=UNDECIDED, why=why)
    level, rows = level_at(comparison.number, float(claim.level)), _rows(claim, baseline, comparison)
    verdict = UNDECIDED if why else _verdict(gains, float(claim.least), level, rows)
    if verdict == UNDECIDED:
        why = why or f"seeds or rows alone may make the distance from the claimed {given(claim.least)}"
    return ClaimAnswer(
        claim=claim,
        verdict=verdict,
        why=why,
        seeds=len(gains),
        difference=statistics.fmean(gains),
        level=level,
        rows=[*rows] if rows else None,
        delivered=_delivered(claim, final),
    )


def _verdict(gains: list[float], least: float, level: float, rows: list[float] | None) -> Verdict:
    low, high = rows or (math.inf, -math.inf)
    if sign_flip_p_value([gain - least for gain in gains]) <= level and low >= least:
        return "holds"
    return "does not hold" if sign_flip_p_value([least - gain for gain in gains]) <= level and high < least else UNDECIDED


def _rows(claim: Claim, baseline: Baseline, comparison: Comparison) -> list[float] | None:
    """Return the interval of the mean improvement by the rows; None where the metric is no share of one split's rows."""
    count = baseline.run.measured_samples.get("validation") if baseline.folds is None and claim.metric in SHARES else None
    old, new = (statistics.fmean(map(as_float, side)) for side in (comparison.baseline, comparison.candidate))
    ends = share_difference(old, new, count) if count else None
    return None if ends is None else [*ends] if claim.mode == "max" else [-ends[1], -ends[0]]


def _delivered(claim: Claim, final: Finalization | None) -> float | None:
    if final is None:
        return None
    new, old = (side.get(claim.metric) for side in (final.validation, final.baseline_metrics))
    return (1 if claim.mode == "max" else -1) * (as_float(new) - as_float(old)) if finite(new) and finite(old) else None
