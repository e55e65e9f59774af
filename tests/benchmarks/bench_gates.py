"""What each condition inside the diagnostics is worth: switched off alone, and all labelled runs judged again.

A gate is an operand of `and` or `or`, the condition of an `if` statement, or the filter of a comprehension, in a rule.
Off means that it has no say: an operand becomes the one that changes nothing, an `if` is never entered, a filter keeps all.
The runs are those of bench_diagnostics.py, and the pairs of bench_unseen.py, each trained once.

    PYTHONPATH=. python tests/benchmarks/bench_gates.py [--jobs 1] [--kept FOLDER] [--again] [--only WORD] [--write]

Prints a line of JSON for each gate: the labels, names of causes and silent healthy runs that are lost or won without it. The runs
that the unit tests of the rules make up count under `tests`: there any change is a loss. `--write` puts a row for each
module into tests/benchmarks/diagnostics/conditions.md.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from mltrainer.configs.pages import diagnostic_page
from mltrainer.diagnostics import causes, rules
from mltrainer.diagnostics.signals import Run
from tests.benchmarks import bench_diagnostics, bench_unseen
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.judging import CAUSE_NAMES, LABELS, WRONG_CAUSES
from tests.benchmarks.diagnostics.training import config_of, kept

SEEDS = {"first": 11, "second": 11, "published": 11, "causes": 41, "third": 21, "unseen": 41}
PAGES = {name: diagnostic_page(name, None) for name in rules.RULES}
THRESHOLDS = {name: dict(page.thresholds) for name, page in PAGES.items()}
RULE_OF = {rule.__module__: [name] for name, rule in rules.RULES.items()}
RULE_OF["mltrainer.diagnostics.input_starvation"].append("resource_inefficiency")  # which reads it
IN_TESTS = "tests"
NEEDED_BY = ("by labelled runs", "by unit tests alone", "to read what is there", "by none")
TABLE = Path(__file__).parent / "diagnostics" / "conditions.md"
HEAD = """# What each condition inside the diagnostics is worth

Written by `tests/benchmarks/bench_gates.py --write`. A condition, here a gate, is needed by labelled runs where labels or named
faults are lost without it, or healthy runs flagged; "worth most" counts these for one condition of the module. Conditions that
nobody needs choose words, separate "clear" from "not judged" in records that no set has, or keep a figure finite.
"""
BARE = replace(bench_diagnostics.SETS["first"][0], id=IN_TESTS)  # never trained
RULES_TESTS = Path(__file__).parents[1] / "diagnostics"
TESTS = (
    f"{RULES_TESTS}",
    f"--ignore={RULES_TESTS / 'test_structure.py'}",
    "-m",
    "not slow",
    "-q",
    "-n",
    "0",
    "-p",
    "no:cacheprovider",
)


# --- gates ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """One condition: its module, the function that holds it, its place among the module's gates, and its code."""

    module: str
    function: str
    place: int
    code: str

    @property
    def name(self) -> str:
        return f"{self.module.rpartition('.')[2]}.{self.function}"


class Switch(ast.NodeTransformer):
    """Lists the gates of a module, and switches one of them off."""

    def __init__(self, module: str, off: int | None = None) -> None:
        self.module, self.off = module, off
        self.gates: list[Gate] = []
        self.within: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._inside(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # words of a message

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        neutral = ast.Constant(isinstance(node.op, ast.And))
        node.values = [neutral if self._is_off(one) else self.visit(one) for one in node.values]
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        if self._is_off(node.test):
            node.test = ast.Constant(False)
        return self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.ifs = [one for one in node.ifs if not self._is_off(one)]
        return self.generic_visit(node)

    def _inside(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        self.within.append(node.name)
        node = self.generic_visit(node)  # type: ignore[assignment]  # it stays what it is
        self.within.pop()
        return node

    def _is_off(self, node: ast.expr) -> bool:
        self.gates.append(Gate(self.module, ".".join(self.within), len(self.gates), ast.unparse(node)))
        return self.off == len(self.gates) - 1


def gates_of(module: str) -> list[Gate]:
    """Return the gates of a module, in the order of its code; none outside of functions."""
    switch = Switch(module)
    switch.visit(ast.parse(inspect.getsource(importlib.import_module(module))))
    return [gate for gate in switch.gates if gate.function]


@contextlib.contextmanager
def switched_off(gate: Gate) -> Iterator[None]:
    """Give the function that holds a gate the code without it, as long as this is entered."""
    module = importlib.import_module(gate.module)
    tree = Switch(gate.module, gate.place).visit(ast.parse(inspect.getsource(module)))
    codes = dict(_codes(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")))
    function = _function(module, gate.function)
    before = function.__code__
    function.__code__ = codes[function.__qualname__]
    try:
        yield
    finally:
        function.__code__ = before


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _codes(one)


def _function(module: ModuleType, path: str) -> FunctionType:
    """Return a function of a module, or of a class in it, without what wraps it; for an inner function the outer one."""
    found: Any = module
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
        found = getattr(found, "fget", None) or getattr(found, "func", None) or getattr(found, "__func__", found)
        if isinstance(inner := inspect.unwrap(found) if callable(found) else found, FunctionType):
            return inner
    raise TypeError(f"{module.__name__}.{path} is no function")


# --- judging --------------------------------------------------------------------------------------

Said = dict[str, str]


@dataclass
class Labelled:
    """A recorded run with its labels, or with the words that name its fault; `said` by the rules as they are, or by some."""

    of: str
    case: Case
    run: Run
    words: Sequence[str] = ()
    names: Sequence[str] = (*rules.RULES, IN_TESTS)

    @cached_property
    def said(self) -> Said:
        return self.now(self.names)

    def now(self, names: Sequence[str]) -> Said:
        """Return what some rules say of the run, and the causes; of a unit test's run the states of the rules."""
        states = {name: judged(self.run, name) for name in names if name in rules.RULES}
        found = {name: text if text and self.of != IN_TESTS else state for name, (state, text) in states.items()}
        if self.of != IN_TESTS:
            found = {name: text for name, text in found.items() if states[name][0] == "fired"}
        return found | (found_causes(self.run) if IN_TESTS in names else {})


def judged(run: Run, name: str) -> tuple[str, str]:
    """Return the state of a rule's finding, and what it says where it fires."""
    finding = rules.RULES[name](run, **THRESHOLDS[name])
    page = PAGES[name]
    more = [] if finding.is_elsewhere else [one.why for one in page.suggestions]
    return finding.state, "\n".join([page.title, finding.reason, *page.causes, *more])


def found_causes(run: Run) -> Said:
    """Return what the causes of a run say."""
    return {one.cause.name: f"{one.found.sentence} {one.cause.cure}" for one in causes.causes_of(run)}


def again(one: Labelled, gate: Gate) -> Said:
    """Return what is said of a run by now: what the gate's rule says anew, and the rest as it was."""
    changed = [name for name in one.names if name in RULE_OF[gate.module]]
    return {name: text for name, text in one.said.items() if name not in changed} | one.now(changed)


def score(one: Labelled, said: Said, twin: Said) -> Counter[str]:
    """Return the points of what is said of a run: labels found, faults named, healthy runs left in peace, nothing wrong said."""
    if one.of == IN_TESTS:
        return Counter({"tests": sum(said.get(name) == text for name, text in one.said.items())})
    symptoms = [name for name in said if name in rules.RULES]
    shown = {name: text for name, text in said.items() if name in rules.RULES or causes.SYMPTOMS & set(symptoms)}
    if one.of == "unseen":
        words = [word for word in one.words if not _matches(word, twin)]
        return Counter({"named": any(_matches(word, shown) for word in words)} if words else {"silent": not symptoms})
    labelled = CAUSE_NAMES if one.case.must & CAUSE_NAMES else WRONG_CAUSES
    labels = {LABELS.get(name, name) for name in symptoms if name != causes.ALONE} | {*shown} & labelled
    found = {f"found in {one.of}": len(one.case.must & labels)} if one.case.is_faulty else {"silent": not symptoms}
    return Counter({**found, "wrong": -len(labels - one.case.must - one.case.may) if one.case.is_faulty else 0})


def _matches(word: str, said: Said) -> bool:
    return any(re.search(word, text, re.IGNORECASE) for text in said.values())


def effect(gate: Gate, runs: Sequence[Labelled]) -> dict[str, int]:
    """Return the points that are won (above 0) or lost without a gate; `fails` where it keeps a rule from an error."""
    changes: Counter[str] = Counter()
    twins = {one.case.id: one for one in runs if not one.words}
    with switched_off(gate):
        for one in runs:
            twin = twins.get(f"T{one.case.id}")
            try:
                after = again(one, gate)
                beside = again(twin, gate) if twin and one.words else {}
            except Exception:
                changes["fails"] -= 1
                continue
            if after != one.said or (one.words and twin and beside != twin.said):
                before = score(one, one.said, twin.said if twin else {})
                changes["said of"] += one.of != IN_TESTS and after.keys() != one.said.keys()
                for name, points in score(one, after, beside).items():
                    changes[name] += points - before[name]
    return {name: points for name, points in changes.items() if points}


def tested_runs() -> list[Labelled]:
    """Return the runs that the unit tests of the rules make up, each with the rules and causes that they ask."""
    found: dict[int, tuple[Run, list[str]]] = {}

    def recording(name: str, asked: Any) -> Any:
        def ask(run: Run, **thresholds: float) -> Any:
            found.setdefault(id(run), (run, []))[1].append(name)
            return asked(run, **thresholds)

        return ask

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(causes, "causes_of", recording(IN_TESTS, causes.causes_of))
        for name, rule in rules.RULES.items():
            patch.setitem(rules.RULES, name, recording(name, rule))
            patch.setattr(sys.modules[rule.__module__], "find", recording(name, rule))
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main(list(TESTS))
    return [Labelled(IN_TESTS, BARE, replace(run), names=[*dict.fromkeys(names)]) for run, names in found.values()]


def labelled_runs(folder: Path) -> list[Labelled]:
    """Return the kept runs of all sets."""
    words = {pair.faulty.id: pair.words for pairs in bench_unseen.SETS.values() for pair in pairs}
    found = []
    for of, seed in SEEDS.items():
        for case in bench_diagnostics.KNOWN[of]:
            result = kept(case, seed, folder, of_any_code=True)
            if result is not None and "refused" not in result:
                config = config_of(case, seed, SimpleNamespace(metric=result["metric"]["name"])).model_dump()
                run = Run.of(result, config=config)
                found.append(Labelled(of, case, run, words.get(case.id, ())))
    return found


# --- the page -------------------------------------------------------------------------------------


def lost(without: dict[str, int]) -> int:
    """Return the labels, names and silent healthy runs that are lost without a gate, less those that are won."""
    return -sum(points for name, points in without.items() if name not in ("said of", "fails", IN_TESTS))


def table(rows: Sequence[tuple[Gate, dict[str, int]]]) -> str:
    """Return a table in Markdown: for each module its gates by who needs them, and the one that is worth most."""
    lines: list[list[Any]] = []
    for module in dict.fromkeys(gate.module for gate, _ in rows):
        own = [row for row in rows if row[0].module == module]
        kinds = Counter(_needed_by(without) for _, without in own)
        gate, without = max(own, key=lambda row: lost(row[1]))
        most = f"`{gate.code}`: {lost(without)}".replace("|", "\\|") if lost(without) > 0 else ""
        lines.append([module.rpartition(".")[2], len(own), *(kinds[kind] for kind in NEEDED_BY), most])
    return bench_diagnostics.table(["module", "gates", *NEEDED_BY, "worth most"], 0, lines)


def sums(rows: Sequence[tuple[Gate, dict[str, int]]]) -> str:
    """Return the counts of all gates by who needs them."""
    kinds = Counter(_needed_by(without) for _, without in rows)
    needed = "; ".join(f"{kind}: {kinds[kind]}" for kind in NEEDED_BY)
    return f"{len(rows)} conditions, needed {needed}."


def _needed_by(without: dict[str, int]) -> str:
    kinds = (lost(without) > 0, bool(without.get(IN_TESTS)), bool(without.get("fails")), True)
    return NEEDED_BY[kinds.index(True)]


def main() -> None:
    """Train what is missing, switch each gate off, and print its worth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=bench_diagnostics.KEPT)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for of, seed in SEEDS.items() if not given.again else ():
        bench_diagnostics.train_missing(of, [(case, seed) for case in bench_diagnostics.KNOWN[of]], given.kept, given.jobs)
    runs = [*labelled_runs(given.kept), *tested_runs()]
    base = sum((score(one, one.said, {}) for one in runs), Counter[str]())
    print(json.dumps({"runs": Counter(one.of for one in runs), "points": base}), flush=True)
    rows = []
    for module in sorted(RULE_OF):
        for gate in gates_of(module):
            if given.only in f"{gate.name}: {gate.code}":
                rows.append((gate, effect(gate, runs)))
                print(json.dumps({"gate": gate.name, "code": gate.code, **rows[-1][1]}), flush=True)
    if given.write:
        TABLE.write_text(f"{HEAD}\n{sums(rows)}\n\n{table(rows)}\n", "utf-8")


if __name__ == "__main__":
    main()
