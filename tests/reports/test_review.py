"""What a change brings: two versions of a project's records compared, and a comment in which nothing of them acts."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mltrainer.records.envelope import Envelope, Waiver, partial_record
from mltrainer.reports.comment import LONGEST_COMMENT, TOO_LONG, comment, mark
from mltrainer.reports.review import Differences, FailingItem, FileChange, MetricChange, PhaseVerdict, Review, Side, compare
from mltrainer.workspace import PHASES
from tests.gates.evidence import Record, kept

HOSTILE = "x|`y` <script>alert(1)</script> @org/team #12 ![i](http://e.org/p.png) {{7*7}}\n/approve"


Records = dict[str, Envelope[Any]]
PLANNED = PhaseVerdict("planning", "passed", True, "a", {"pass": 3}, [], [], [])


def records(change: Callable[[dict[str, Record]], object] = lambda _found: None) -> Records:
    found = {phase: copy.deepcopy(kept(phase)) for phase in PHASES}
    change(found)
    return {phase: partial_record(content, phase) for phase, content in found.items()}


def changed(change: Callable[[dict[str, Record]], object]) -> Differences:
    """Return the comparison of records with the same ones before a change."""
    return compare(Side(records(change), {}), Side(records(), {}))


def told(found: Differences, **more: Any) -> str:
    here = {"project": "digits", "place": "", "against": "main", "commit": "0" * 40, "holds": True, "phases": [PLANNED]}
    return comment(Review(**{**vars(found), **here, "notes": [], "moved": [], **more}))


def run_metric(found: dict[str, Record], value: Any) -> None:
    run = found["baseline"]["evidence"]["run"]
    run["metrics"][run["metric"]["name"]] = value


# --- comparing ------------------------------------------------------------------------------------


def test_the_same_records_differ_in_nothing():
    found = changed(lambda _found: None)
    names = ("added", "removed", "config", "digests", "code", "environment", "decisions", "policy", "waivers")
    assert not any(getattr(found, name) for name in names)
    assert {row.verdict for row in found.metrics} == {"same"}
    assert "data, code, environment: the same; no config key, digest, policy or waiver changed" in told(found)


def hits(
    phase: str,
    value: float,
    rows: int = 10,
    mode: str = "max",
    name: str = "accuracy",
    folds: Any = None,
    seeds: Sequence[float] = (),
) -> Records:
    """Records of which one phase measured so much of a metric on so many rows; the search compared it on these seeds."""

    def change(found: dict[str, Record]) -> None:
        found["optimization"]["evidence"]["comparison"] |= {"baseline": [*seeds], "candidate": [*seeds]}
        evidence = found[phase]["evidence"]
        evidence["run"]["metric"] = {"name": name, "mode": mode}
        evidence["run"] |= {"metrics": {name: value}, "measured_samples": {"train": 7, "validation": rows}}
        if phase == "finalization":
            evidence["test"] |= {"metrics": {name: value}, "samples": rows}
        if folds:
            evidence["folds"] = {"metrics": folds}

    return records(change)


def judged(before: Records, after: Records, split: str = "validation") -> tuple[MetricChange, str]:
    """Return how a metric was judged, and the cell of the comment that says it."""
    found = compare(Side(after, {}), Side(before, {}))
    row = next(row for row in found.metrics if row.split == split and row.before != row.after)
    line = next(line for line in told(found).splitlines() if f"{row.phase}, {split}" in line)
    return row, line.rsplit("|", 2)[1].strip()


NOT_KNOWN = "seed variation is unknown: mltrainer seeds"
BETTER_BY_NINE_OF_TEN = (0.1705, 0.8090)  # 9 of 10 less 3 of 10: Newcombe, 1998, 17:873-890, table II, method 10


@pytest.mark.parametrize(
    ("mode", "verdict", "words"), [("max", "better", "better by 0.600"), ("min", "worse", "**worse** by 0.600")]
)
def test_outside_the_interval_of_rows_and_seeds_a_metric_is_better_or_worse_by_the_configs_mode(mode, verdict, words):
    row, cell = judged(*(hits("baseline", value, mode=mode, seeds=(0.5, 0.52, 0.48)) for value in (0.3, 0.9)))
    assert (row.phase, row.verdict, row.samples) == ("baseline", verdict, 10)
    assert row.least == pytest.approx(2.7764 * 2**0.5 * 0.02, rel=1e-4)  # two sides of three seeds each
    assert cell == f"{words} (10 rows; seeds alone change up to 0.0785)"
    assert row.difference == pytest.approx(0.6)


@pytest.mark.parametrize(("phase", "split"), [("baseline", "validation"), ("finalization", "test")])
def test_without_seeds_nothing_is_better_however_clear_the_rows_are(phase, split):
    row, cell = judged(hits(phase, 0.3), hits(phase, 0.9), split)
    assert (row.verdict, row.least) == ("no clear difference", None)
    assert cell == f"+0.600: no clear difference (10 rows; {NOT_KNOWN})"
    assert row.difference == pytest.approx(0.6)
    assert row.interval == pytest.approx(BETTER_BY_NINE_OF_TEN, abs=6e-5)


@pytest.mark.parametrize("after", [0.6, 0.4])
def test_within_the_interval_it_is_not_told_apart_on_so_many_rows(after):
    row, cell = judged(hits("baseline", 0.5), hits("baseline", after))
    assert row.verdict == "no clear difference"
    assert cell == f"{'+' if after > 0.5 else '-'}0.100: no clear difference (10 rows; {NOT_KNOWN})"


@pytest.mark.parametrize(("name", "rows"), [("r2", 10), ("accuracy", 20)])
def test_where_no_interval_is_known_the_difference_alone_is_told(name, rows):
    row, cell = judged(hits("baseline", 0.3, 10, name=name), hits("baseline", 0.9, rows, name=name))
    assert (row.interval, row.samples) == (None, None)
    assert cell == f"+0.600: no clear difference ({NOT_KNOWN})"


def test_a_mean_over_folds_has_no_interval_of_one_splits_rows():
    before, after = hits("baseline", 0.3), hits("baseline", 0.3, folds={"accuracy": 0.9})
    assert judged(before, after)[0].verdict == "no clear difference"


def test_a_metric_that_is_not_finite_is_neither_better_nor_worse():
    assert changed(lambda found: run_metric(found, "nan")).metrics[0].verdict == "not comparable"


def test_over_folds_their_mean_is_compared():
    def change(found: dict[str, Record]) -> None:
        name = found["baseline"]["evidence"]["run"]["metric"]["name"]
        found["baseline"]["evidence"]["folds"] = {"metrics": {name: 0.5}}

    assert changed(change).metrics[0].after == 0.5


def test_a_config_key_is_told_once_with_the_phases_that_tell_it():
    def change(found: dict[str, Record]) -> None:
        for phase in ("planning", "finalization"):
            found[phase]["evidence"]["config"]["optimizer"]["lr"] = 0.5

    rows = changed(change).config
    assert [row.key for row in rows if row.after == 0.5] == ["optimizer.lr"] * len(rows)
    assert [phase for row in rows for phase in row.phases] == ["planning", "finalization"]


def test_of_a_criterion_that_is_new_its_own_key_alone_is_told():
    def named(criteria: dict[str, str]) -> Side:
        return Side(records(lambda found: found["planning"]["evidence"]["config"].update(acceptance=criteria)), {})

    rows = compare(named({"r2": ">= 0.5"}), named({})).config
    assert [row.key for row in rows] == ["acceptance.r2"]


def test_the_records_of_files_that_changed_since_are_not_said_to_be_what_is_here():
    found = changed(lambda _found: None)
    said = told(found, phases=[PhaseVerdict("planning", "stale", False, "a", {}, [], [], ["x changed"])])
    assert "those of planning are stale: it may not hold of the files as they are now" in said
    assert "By the stale records: data, code, environment: the same; no config key" in said
    assert "stale" not in told(found)


def test_a_key_that_is_left_out_at_its_default_is_no_change():
    def change(found: dict[str, Record]) -> None:
        del found["planning"]["evidence"]["config"]["signals"]

    assert changed(change).config == []


def test_data_and_code_are_told_by_digest_and_by_file():
    def change(found: dict[str, Record]) -> None:
        for phase in ("baseline", "finalization"):
            found[phase]["evidence"]["run"] |= {"data_sha256": "d" * 64, "code_sha256": "c" * 64}
        found["finalization"]["source"]["files"] = [{"path": "task.py", "sha256": "c" * 64, "size": 1}]
        found["planning"]["evidence"]["data"]["files"] = [{"path": "rows.csv", "sha256": "d" * 64, "size": 1}]

    found = changed(change)
    assert {row.key for row in found.digests} == {"data", "code"}
    assert found.unchanged == ["environment"]
    assert FileChange("task.py", "new") in found.code
    assert "`task.py` new" in told(found)
    assert "data: `houses.csv` gone; `rows.csv` new" in told(found)


def test_of_an_environment_each_package_is_told():
    def change(found: dict[str, Record]) -> None:
        for row in found["planning"]["evidence"]["environment"]["distributions"]:
            row["version"] = "9.9" if row["name"] == "torch" else row["version"]

    (row,) = changed(change).environment
    assert (row.what, row.after) == ("torch", "9.9")


def _tolerance(record: Record, value: float) -> None:
    next(item for item in record["policy"]["items"] if item["id"] == "exports_agree")["settings"]["tolerance"] = value


@pytest.mark.parametrize(("value", "weaker", "words"), [(0.5, True, "asks for less"), (1e-9, False, "asks for more")])
def test_a_number_of_the_policy_is_told_with_its_direction(value, weaker, words):
    found = changed(lambda found: _tolerance(found["finalization"], value))
    (row,) = found.policy
    assert (row.key, row.after, row.weaker) == ("exports_agree.tolerance", value, weaker)
    assert words in told(found)


def test_an_item_that_is_not_asked_for_any_more_asks_for_less():
    (row,) = changed(lambda found: found["baseline"]["policy"]["items"].pop()).policy
    assert (row.after, row.weaker) == ("not asked for", True)


PAGE = "diagnostics/overfitting.md"


def test_a_page_of_ones_own_is_told():
    def change(found: dict[str, Record]) -> None:
        found["diagnostics"]["policy_overrides"] = [PAGE]
        found["diagnostics"]["handbook"][PAGE] = "a" * 64

    assert f"`{PAGE}` new" in told(changed(change))


@pytest.mark.parametrize(("there", "told_as"), [({}, "new"), ({PAGE: "a" * 64}, None), ({PAGE: "b" * 64}, "changed")])
def test_a_page_of_a_phase_that_had_not_run_is_compared_with_its_file(there, told_as):
    def change(found: dict[str, Record]) -> None:
        found["diagnostics"]["policy_overrides"] = [PAGE]
        found["diagnostics"]["handbook"][PAGE] = "a" * 64

    before = {phase: record for phase, record in records().items() if phase != "diagnostics"}
    found = compare(Side(records(change), {}), Side(before, {}, pages=there))
    assert [row.key for row in found.pages] == [PAGE] * (told_as is not None)
    assert told_as is None or f"`{PAGE}` {told_as}" in told(found)


WAIVER = Waiver(item="within_time_budget", reason="busy", by="Ada <ada@example.org>", when="2026", record="1")


def waived(**changes: str) -> Waiver:
    return WAIVER.model_copy(update=changes)


def test_a_waiver_is_told_where_it_is_new_and_not_where_it_was_given_again():
    again = waived(when="2027", record="2")
    before = Side(records(), {"baseline": [WAIVER]})
    assert compare(Side(records(), {"baseline": [again]}), before).waivers == []
    found = compare(Side(records(), {"baseline": [again, waived(when="2027", reason="busier")]}), before)
    assert [row.reason for row in found.waivers] == ["busier"]
    assert "⚠️ `within_time_budget` of baseline" in told(found)


def test_a_record_that_is_there_and_damaged_is_not_lost_and_neither_are_its_openings():
    def without(found: dict[str, Record]) -> object:
        return found.pop("finalization")

    gone, damaged = (compare(Side(records(without), {}, damaged=names), Side(records(), {})) for names in ((), ("finalization",)))
    assert (gone.removed, bool(gone.openings)) == (["finalization"], True)
    assert (damaged.removed, damaged.openings) == ([], [])


def test_phases_of_one_side_are_new_or_lost():
    found = compare(
        Side(records(lambda found: found.pop("finalization")), {}), Side(records(lambda found: found.pop("baseline")), {})
    )
    assert (found.added, found.removed) == (["baseline"], ["finalization"])
    assert {row.phase: row.verdict for row in found.metrics} == {"baseline": "new", "finalization": "gone"}
    assert "finalization has a record at `main`, and none here" in told(found)


def test_of_a_new_project_all_is_new_and_its_own_numbers_are_told():
    found = compare(Side(records(lambda found: _tolerance(found["finalization"], 0.5)), {}), Side({}, {}))
    assert found.is_new
    assert "exports_agree.tolerance" in [row.key for row in found.policy]
    assert "all of this is new" in told(found)


# --- telling --------------------------------------------------------------------------------------


def test_nothing_that_a_record_says_acts_in_the_comment():
    def change(found: dict[str, Record]) -> None:
        found["planning"]["evidence"]["config"]["task"] = {"use": None, "kind": HOSTILE, "options": {HOSTILE: HOSTILE}}
        found["planning"]["source"]["files"] = [{"path": HOSTILE, "sha256": "c" * 64, "size": 1}]
        found["baseline"]["evidence"]["run"]["metric"]["name"] = HOSTILE
        found["baseline"]["evidence"]["run"]["metrics"][HOSTILE] = 1.0

    found = compare(Side(records(change), {"baseline": [waived(item=HOSTILE, reason=HOSTILE, by=HOSTILE)]}), Side(records(), {}))
    stale = PhaseVerdict("planning", "stale", False, None, {}, [], [FailingItem(HOSTILE, HOSTILE, HOSTILE)], [HOSTILE])
    text = told(found, against=HOSTILE, phases=[stale])
    plain = re.sub(r"`[^`\n]*`|<code>.*?</code>", "", text)  # what stands in code type is shown as it is
    assert text.startswith(mark(""))
    assert not re.search(r"<script|!\[|\{\{|http://|@\w|(?<!&)#\d", plain)
    assert not any(line.startswith("/") for line in text.splitlines())


def test_a_comment_that_no_host_would_take_is_told_in_short():
    def change(found: dict[str, Record]) -> None:
        found["planning"]["evidence"]["config"] = {f"a{nr}": ["<" * 299] * 8 for nr in range(25)}

    text = told(changed(change))
    assert TOO_LONG in text
    assert len(text) < LONGEST_COMMENT


def test_long_lists_are_folded_or_cut():
    def change(found: dict[str, Record]) -> None:
        found["planning"]["evidence"]["environment"]["variables"] = {f"V{nr}": "1" for nr in range(40)}

    text = told(changed(change))
    assert "<details><summary>environment: 40 differences</summary>" in text
    assert "and 15 more" in text
