"""Claims: what answers one, and what was known before it; from records alone."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from mltrainer.gates.claims import CLAIM_FILE, answer, planned, read_claim
from mltrainer.records.baseline import Baseline
from mltrainer.records.claim import Claim, ClaimAnswer, PlannedClaim
from mltrainer.records.optimization import Searched, Skipped
from mltrainer.records.partial import partial
from mltrainer.records.planning import Planning
from mltrainer.records.tried import TRIED_FILE, Begun, appended, read
from mltrainer.reports.claims import answer_text
from mltrainer.reports.criteria import Version, moved
from mltrainer.workspace import Project, pretty_json, seal, write_text
from tests.conftest import commit
from tests.projects import PROJECT

ROWS = 1000
MADE: dict[str, Any] = {"hypothesis": "Dropout helps", "metric": "accuracy", "mode": "max", "least": 0.1, "seeds": 5}
OLD = [0.5, 0.51, 0.49, 0.5, 0.52]


def claim(**changes: Any) -> Claim:
    return Claim.model_validate(seal({**MADE, "rule": "exact sign-flip test", "level": 0.05, **changes}))


def answered(
    gains: list[float],
    made: PlannedClaim | None = None,
    under: str | None = "",
    rows: int = ROWS,
    number: int = 1,
    **changes: Any,
) -> ClaimAnswer | None:
    """Return the answer to a claim by these gains over the baseline; the baseline was trained under it, or as `under` says."""
    found = made or PlannedClaim(claim=claim(**changes), known=[])
    run = {"claim": found.claim.seal if under == "" else under, "measured_samples": {"validation": rows}}
    comparison = {"baseline": OLD[: len(gains)], "candidate": [old + gain for old, gain in zip(OLD, gains, strict=False)]}
    return answer(
        partial(Planning, {"claim": found.written()}),
        partial(Baseline, {"run": run, "folds": None}),
        partial(Searched, {"comparison": {**comparison, "number": number}}),
    )


@pytest.mark.parametrize(
    ("gains", "changes", "verdict", "why"),
    [
        ([0.3, 0.31, 0.29, 0.3, 0.32], {}, "holds", None),
        ([0.01, 0.0, -0.01, 0.0, 0.01], {}, "does not hold", None),
        ([-0.3, -0.31, -0.29, -0.3, -0.32], {"mode": "min"}, "holds", None),
        ([0.3, 0.31, 0.29, 0.3, 0.32], {"mode": "min"}, "does not hold", None),
        ([0.3, 0.31, 0.29, 0.3, 0.05], {}, "undecided", "seeds or rows alone"),  # one seed of five is below
        ([0.3, 0.31, 0.29, 0.3, 0.32], {"rows": 20}, "undecided", "seeds or rows alone"),
        ([0.3, 0.31, 0.29, 0.3, 0.32], {"number": 2}, "undecided", "seeds or rows alone"),  # half of the rest of the level
        ([0.3, 0.31, 0.29, 0.3], {}, "undecided", "it states 5 seeds, and 4 seeds were compared"),
        ([0.3, 0.31, 0.29, 0.3, 0.32], {"seeds": 8}, "undecided", "it states 8 seeds, and 5 seeds were compared"),
        ([], {}, "undecided", "it states 5 seeds, and 0 seeds were compared"),
    ],
)
def test_a_claim_is_answered_beyond_seeds_and_rows_alone(gains, changes, verdict, why):
    found = answered(gains, **changes)
    assert found is not None
    assert (found.verdict, (found.why or "").startswith(why or "")) == (verdict, True)
    assert (found.why is None) == (why is None)


def test_rows_count_where_the_metric_is_a_share_of_them_alone():
    gains = [0.3, 0.31, 0.29, 0.3, 0.32]
    few, other = answered(gains, rows=20), answered(gains, rows=20, metric="r2")
    assert few is not None
    assert few.rows is not None
    assert few.rows[0] < 0.1
    assert other is not None
    assert (other.rows, other.verdict) == (None, "holds")


def test_a_skipped_search_answers_nothing():
    found = PlannedClaim(claim=claim(), known=[])
    run = {"claim": found.claim.seal}
    skipped = partial(Skipped, {"rule": "the baseline meets every acceptance criterion"})
    said = answer(partial(Planning, {"claim": found.written()}), partial(Baseline, {"run": run}), skipped)
    assert said is not None
    assert (said.verdict, said.why) == (
        "undecided",
        "nothing was compared with the baseline: the baseline meets every acceptance criterion",
    )


# --- fixed beforehand -------------------------------------------------------------------------------

GAINS = [0.3, 0.31, 0.29, 0.3, 0.32]
KNOWN = ["accuracy 0.9722 of run 0123"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (PlannedClaim(claim=claim(), known=KNOWN), "it was made after numbers were known (accuracy 0.9722 of run 0123)"),
        (PlannedClaim(claim=claim(), known=KNOWN, removed=True), "it was removed after numbers were known"),
        (
            PlannedClaim(claim=claim(), known=KNOWN, before=claim(least=0.5, mode="min")),
            "it was changed after numbers were known (accuracy 0.9722 of run 0123): mode 'min' -> 'max'; least 0.5 -> 0.1",
        ),
    ],
)
def test_a_claim_that_was_not_fixed_beforehand_is_called_so_and_not_answered(made, why):
    found = answered(GAINS, made)
    assert found is not None
    assert (found.verdict, (found.why or "").startswith(why)) == ("undecided", True)
    assert why in answer_text(found)


@pytest.mark.parametrize("under", [None, "0" * 64])
def test_a_baseline_that_was_not_trained_under_the_claim_shows_that_it_is_late(under):
    found = answered(GAINS, under=under)
    assert found is not None
    assert found.why == "it was made or changed after numbers were known: the baseline was not trained under it"


def test_a_baseline_that_was_trained_under_a_claim_that_nobody_names_shows_that_it_was_removed():
    planning, searched = partial(Planning, {"claim": None}), partial(Searched, {})
    found = answer(planning, partial(Baseline, {"run": {"claim": "0" * 64}}), searched)
    assert found is not None
    assert answer_text(found) == "it was removed after numbers were known: the baseline was trained under it"
    assert answer(planning, partial(Baseline, {"run": {"claim": None}}), searched) is None  # no claim, no answer


def test_a_reviewer_is_told_of_a_claim_that_moved_after_numbers_were_known():
    def version(made: Claim | None, accuracy: float | None = None) -> Version:
        held = {"claim": {"claim": made.written(), "known": []}} if made else {}
        run = {"metrics": {"accuracy": accuracy}}
        planning = {"evidence": {"config": {"metric": {"name": "accuracy", "mode": "max"}}, **held}}
        return Version(None, None, {"planning": planning, "baseline": {"evidence": {"run": run}}})

    fixed, changed = version(claim()), version(claim(least=0.01), 0.9)
    assert moved([version(None), fixed, version(claim(), 0.9)]) == []
    assert [(row.key, row.after["least"]) for row in moved([version(claim(), 0.9), changed])] == [("claim", 0.01)]
    assert [(row.key, row.after) for row in moved([version(claim(), 0.9), version(None, 0.9)])] == [("claim", {})]


# --- what planning binds ----------------------------------------------------------------------------


def baseline_of(project: Project, under: str | None, data: str = "d" * 64, accuracy: float = 0.9, run: str = "0123") -> None:
    """Write a baseline's record as far as it says under which claim a number was measured."""
    metric = {"metric": {"name": "accuracy"}, "metrics": {"accuracy": accuracy}}
    content = {"evidence": {"run": {"id": run, "data_sha256": data, "claim": under, **metric}}}
    folder = project.phase_dir("baseline")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_bytes(pretty_json(content))


def write(project: Project, made: Claim) -> None:
    (project.root / CLAIM_FILE).write_bytes(pretty_json(made.written()))


@pytest.fixture
def project(tmp_path) -> Project:
    (tmp_path / "mltrainer.yaml").touch()
    return Project(tmp_path)


def test_a_claim_before_the_first_baseline_is_fixed_beforehand_and_stays_so(project):
    write(project, claim())
    first = planned(project, None)
    assert first == PlannedClaim(claim=claim(), known=[])
    baseline_of(project, claim().seal)
    assert planned(project, first) == first


def test_a_claim_after_a_baseline_is_late_and_stays_so_once_that_one_is_gone(project):
    baseline_of(project, None)
    write(project, claim())
    late = planned(project, None)
    assert late is not None
    assert late.known == ["accuracy 0.900 of run 0123"]
    baseline_of(project, claim().seal, accuracy=0.95)
    assert planned(project, late) == late


def test_a_number_on_other_data_is_known_since_one_row_more_makes_other_data(project):
    baseline_of(project, None, data="e" * 64)
    write(project, claim())
    late = planned(project, None)
    assert late is not None
    assert late.known == ["accuracy 0.900 of run 0123"]


LEFT = "1 run in phases/tried_runs.txt, the first"


def begin(project: Project, what: str, run: str) -> None:
    """Write the ledger of tried runs with one more line."""
    lines = appended(read(project), [Begun(what, run)], "2026-11-29T23:15:29Z")
    write_text(project.root / TRIED_FILE, "".join(f"{line.text}\n" for line in lines))


@pytest.mark.parametrize("what", ["baseline", "optimization", "finalization"])
def test_a_run_of_which_the_ledger_alone_is_left_makes_a_claim_late(project, what):
    begin(project, "diagnostics", "0" * 12)
    write(project, claim())
    assert planned(project, None) == PlannedClaim(claim=claim(), known=[])
    begin(project, what, "0123456789ab")
    late = planned(project, None)
    assert late is not None
    assert late.known == [f"{LEFT} 0123456789ab, of {what}"]
    begin(project, "baseline", "ba9876543210")  # under the claim, once it is bound
    assert planned(project, late) == late


def test_a_run_that_was_begun_under_a_claim_does_not_make_it_late_when_it_is_back(project):
    begin(project, "baseline", "0123456789ab")
    baseline_of(project, claim().seal, run="0123456789ab")
    begin(project, "optimization", "ba9876543210")
    write(project, claim(least=0.01))
    changed = planned(project, PlannedClaim(claim=claim(), known=[]))
    assert changed is not None
    assert changed.known == ["accuracy 0.900 of run 0123456789ab", f"{LEFT} 0123456789ab, of baseline"]
    write(project, claim())
    assert planned(project, changed) == PlannedClaim(claim=claim(), known=[])
    begin(project, "baseline", "00000000ffff")
    assert planned(project, changed) == PlannedClaim(
        claim=claim(), known=[f"{LEFT} 00000000ffff, of baseline"], before=claim(least=0.01)
    )


def test_the_command_calls_late_what_planning_will_call_late(project, cli):
    project.file.write_text(yaml.safe_dump(PROJECT))
    begin(project, "baseline", "0123456789ab")
    said = cli("claim", "Dropout helps", "--least", "0.1", "--project", project.root, code=0)
    assert f"numbers are known already ({LEFT} 0123456789ab, of baseline)" in said.out


def test_a_changed_claim_is_shown_beside_the_one_that_it_replaced_and_the_old_one_may_come_back(project):
    baseline_of(project, claim().seal)
    write(project, claim(least=0.01))
    changed = planned(project, PlannedClaim(claim=claim(), known=[]))
    assert changed is not None
    assert (changed.before, changed.claim.least) == (claim(), 0.01)
    write(project, claim())
    assert planned(project, changed) == PlannedClaim(claim=claim(), known=[])


def test_a_claim_may_be_removed_before_a_number_is_known_and_is_kept_afterwards(project):
    last = PlannedClaim(claim=claim(), known=[])
    assert planned(project, last) is None
    baseline_of(project, claim().seal)
    removed = planned(project, last)
    assert removed is not None
    assert (removed.claim, removed.removed) == (claim(), True)
    write(project, claim())
    assert planned(project, removed) == last  # it is back, as it was


def test_a_baseline_in_gits_history_is_known_though_it_is_gone_here(project):
    baseline_of(project, None)
    commit(project.root, new=True)
    (project.phase_dir("baseline") / "record.json").unlink()
    write(project, claim())
    late = planned(project, None)
    assert late is not None
    assert late.known == ["accuracy 0.900 of run 0123"]


@pytest.mark.parametrize("content", [{**claim().written(), "least": 0.0}, {"seal": 1}, [], {**claim().written(), "more": 1}])
def test_an_edited_claim_is_refused(project, content, cli):
    (project.root / CLAIM_FILE).write_bytes(pretty_json(content))
    said = cli("claim", "--project", project.root, code=1)
    assert "claim.json" in said.err
    assert "next: make it again" in said.err


def test_no_claim_is_no_fault(project):
    assert read_claim(project) is None
    assert planned(project, None) is None
