"""What each rule of `mltrainer wrap` is worth: switched off alone, and the runs of all labelled faults judged again.

    PYTHONPATH=. python tests/benchmarks/bench_wrap_rules.py [--group G ...] [--only NAME ...] [--kept FOLDER] [--write]

Each fault of bench_wrap_programs.py runs once, as with `--warm`; its traces, and the changes that alone make it differ, are kept.
Prints a line of JSON for each rule; `--write` puts a table into docs/WRAP.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.wrap import blame, suspects
from mltrainer.companions.wrap.data_flow import DataFlow, Fate
from mltrainer.companions.wrap.givers import Givers
from mltrainer.companions.wrap.origins import Origins
from mltrainer.companions.wrap.paired_values import PairedValues
from mltrainer.companions.wrap.reaching import Reach, reach
from mltrainer.observe.logs import Key
from mltrainer.programs.causes import Judged
from mltrainer.programs.chains import traces
from mltrainer.programs.checking import CHANGES, Cause, Check, Computed, Traced
from mltrainer.programs.starting import FinishedRun, WrappedProgram
from tests.benchmarks.bench_diagnostics import table
from tests.benchmarks.bench_wrap_programs import STEPS, place_of, written
from tests.benchmarks.scorecard.table import placed
from tests.benchmarks.wrap.programs import GROUPS, Variant, variants

KEPT = Path(tempfile.gettempdir()) / "mltrainer-wrap-rules"
PAGE = Path(__file__).parents[2] / "docs" / "WRAP.md"
MARKS = "<!-- rules: written by bench_wrap_rules.py -->", "<!-- rules: end -->"
CHANGED = Computed({})  # what a run computes whose steps differ
NAMED = ("guilty line first", "among the first three", "right kind")


# --- runs -----------------------------------------------------------------------------------------


class Recording(Check):
    """A check that notes what its search for the line hangs on.

    Attributes:
        changes: By kind of change: 1 where it alone makes other steps, 2 where it does so once more; without a kind: 0.
        pair: The traced runs; None without a search.
    """

    def __init__(self, program: WrappedProgram, scratch: Path) -> None:
        super().__init__(program, scratch, lambda event: None)
        self.changes: dict[str, int] = {}
        self.pair: Traced | None = None

    def _changes(self, expected: Computed, kind: str, steps: int) -> Computed | None:
        if kind == "chance":
            self._try_all(expected, steps)
        return CHANGED if self.changes.get(kind, 0) > (expected is CHANGED) else None

    def _try_all(self, expected: Computed, steps: int) -> None:
        if super()._changes(expected, "chance", steps) is not None:
            self.changes["chance"] = 1
            return
        for kind in CHANGES:
            if (found := super()._changes(expected, kind, steps)) is not None:
                self.changes[kind] = 1 + (super()._changes(found, kind, steps) is not None)

    def _traced(self, *given: Any) -> Traced:
        self.pair = super()._traced(*given)
        return self.pair


def recorded(variant: Variant) -> dict[str, Any]:
    """Return what the search for a fault's line hangs on; empty where its runs do not differ."""
    with tempfile.TemporaryDirectory() as scratch:
        check = Recording(written(variant, Path(scratch), is_warm=True), Path(scratch) / "runs")
        check.repeats(STEPS)
        if check.pair is None:
            return {}
        one, other = check.pair.one, check.pair.other
        rows = [[[*key, each] for key, each in traces(run.lines).items()] for run in (one, other)]
        return {"changes": check.changes, "rows": rows, "place": str(one.place), "is_cut": check.pair.is_cut}


class Again(Recording):
    """The same search over what is kept of one."""

    def __init__(self, kept: dict[str, Any], text: str) -> None:
        super().__init__(WrappedProgram(("python", "train.py"), Path(kept["place"])), Path())
        self.changes, self._kept, self._text = kept["changes"], kept, text
        self._rows: list[dict[Key, Any]] = [{(name, number): each for name, number, each in run} for run in kept["rows"]]

    def searched(self) -> Cause:
        """Return the cause by the rules as they are now."""
        return self._found_cause(Computed({}), 0, 0)

    def _try_all(self, expected: Computed, steps: int) -> None:
        """Nothing runs: `changes` is known."""

    def _traced(self, *_: Any) -> Traced:
        place = Path(self._kept["place"])
        run = FinishedRun(self._program, 0, Path(), Path(), place, 0.0, {})
        return Traced(blame.first_difference(*self._rows), run, run, self._kept["is_cut"])

    def _judged(self, traced: Traced, kinds: tuple[str, ...]) -> tuple[Judged, Traced]:
        is_cut = traced.is_cut and traced.shown is None
        return blame.judged(traced.shown, kinds, *self._rows, self._source, is_cut=is_cut), traced

    def _source(self, file: str) -> str:
        return self._text if Path(file).name == "train.py" else ""


# --- rules ----------------------------------------------------------------------------------------


Patch = tuple[Any, str, Any]  # what takes the place of which attribute
KINDS = ("random draw", "clock", "identity", "hash order", "listing order", "threads", "unwritten memory")


def _suspects_but(kind: str) -> Any:
    return lambda *given: [suspect for suspect in suspects.suspects(*given) if suspect.kind != kind]


def _first_in_time(*traces: Any) -> Reach:
    return Reach((), (), reach(*traces).first)


def _giving(value: Any) -> Any:
    return lambda *_, **__: value


def _only(origin: Any, *_: Any) -> Any:
    return [origin]


def _confirmed(own: Again, _: Computed, kind: str, steps: int) -> Computed | None:
    return CHANGED if kind != "chance" or kind in own.changes else None


_NOTHING = _giving([])
RULES: dict[str, tuple[Patch, ...]] = {
    "values are followed back, line by line": ((Origins, "_back", _NOTHING),),
    "- through the passed argument alone": ((Givers, "_parts", lambda own, line: own._run_by(line.event)),),
    "- through what has no digest, such as a file or a thread's work": (
        (Givers, "_unseen_givers", _NOTHING),
        (blame, "_unseen_of", _only),
    ),
    "- into another thread": (
        (Givers, "_by_another_thread", lambda own, variable, event, seen: event),
        (Origins, "_handed_over", _NOTHING),
    ),
    "- out of a fork": ((Origins, "of_inherited", _NOTHING),),
    "- to the test after which the runs take different ways": (
        (PairedValues, "parted", _giving(None)),
        (Givers, "_parted_since", _giving(None)),
    ),
    "- to the draw or seed that changed a generator": ((Givers, "draws", _giving(False)),),
    "- from written files and tests, where no operation differs": (
        (Origins, "of_written", _NOTHING),
        (Origins, "of_decisions", _NOTHING),
    ),
    "the difference that reaches a gradient counts, not the first in time": ((blame, "reach", _first_in_time),),
    **{f"a line is suspect by its source: {kind}": ((blame, "suspects", _suspects_but(kind)),) for kind in KINDS},
    "what is only printed, logged or timed is no suspect": (
        (DataFlow, "fate", _giving(Fate.UNSEEN)),
        (blame, "only_shown", _giving(set())),
        (suspects._SourceReader, "_only_times", _giving(False)),
    ),
    "names that hold a set are known": ((suspects._SourceReader, "_names_of_sets", _giving(set())),),
    "the line that computes with a printed moment comes first": ((Origins, "_used", _giving(None)),),
    "the hash of what differs is no beginning": ((blame, "_rank", lambda origin, _, asks: 2 * (origin.place not in asks)),),
    "a late seed is named before the draw": ((Origins, "_late_seed", _giving(None)),),
    "an estimator draws where it is fitted": ((blame, "draws_when_fitted", _giving(False)),),
    "a further run confirms the kind": ((Again, "_changes", _confirmed),),
}


# --- the page -------------------------------------------------------------------------------------


def points(kept: Sequence[tuple[Variant, Again]]) -> Counter[str]:
    """Return how many faults are named first, among the first three, and by the right kind."""
    found: Counter[str] = Counter()
    for variant, again in kept:
        cause = again.searched()
        place = place_of(cause, variant)
        found += Counter(dict(zip(NAMED, (place == 1, 0 < place <= 3, cause.kind in variant.kinds), strict=True)))
    return found


def without(rule: str, kept: Sequence[tuple[Variant, Again]]) -> Counter[str]:
    """Return the same without a rule."""
    with pytest.MonkeyPatch.context() as patch:
        for target, name, instead in RULES[rule]:
            patch.setattr(target, name, instead)
        return points(kept)


def kept_runs(folder: Path, chosen: Sequence[Variant]) -> list[tuple[Variant, Again]]:
    """Return faults with their kept runs; those that are missing run now, and those that do not differ are left out."""
    found = []
    for variant in chosen:
        path = folder / f"{variant.group}-{variant.program}-{variant.number}.json"
        if not path.exists():
            path.write_text(json.dumps(recorded(variant)), "utf-8")
        if noted := json.loads(path.read_text("utf-8")):
            found.append((variant, Again(noted, variant.source)))
    return found


def main() -> None:
    """Run what is missing, switch each rule off, and print its worth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", nargs="*", default=GROUPS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    faults = [one for one in variants() if one.number and one.group in given.group]
    runs = kept_runs(given.kept, [one for one in faults if not given.only or one.program in given.only])
    before, rows = points(runs), []
    print(json.dumps({"faults": len(runs), **before}), flush=True)
    for rule in RULES:
        after = without(rule, runs)
        rows.append([rule, *(after[name] - before[name] for name in NAMED)])
        print(json.dumps(rows[-1]), flush=True)
    if given.write:
        head = [f"without this rule, of {len(runs)} faults", *NAMED]
        text = PAGE.read_text("utf-8")
        PAGE.write_text(placed(text, table(head, len(NAMED), rows), MARKS), "utf-8")


if __name__ == "__main__":
    main()
