"""Hash seeds under which small sets begin otherwise, and the strings that a program is about."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mltrainer.reproducibility.hash_seeds import MOST, Chosen, firsts, hash_seeds
from mltrainer.reproducibility.short_strings import LONGEST, MOST_TOGETHER, Group, Named, named

PAIRS = [("no", "yes"), ("cat", "dog"), ("male", "female"), ("0", "1"), ("True", "False"), ("pos", "neg"), ("ham", "spam")]
TRIPLES = [("red", "green", "blue"), ("low", "mid", "high"), ("setosa", "versicolor", "virginica"), ("a", "b", "c")]
GIVEN = [*PAIRS, *TRIPLES, ("x", "y"), ("good", "bad"), ("up", "down"), ("train", "test", "val")]


def order(seed: str, names: Group) -> list[str]:
    """The oracle: what a program of its own prints under a seed."""
    code = f"import json; print(json.dumps(list(set({list(names)!r}))))"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return list(json.loads(subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, env=environment).stdout))


def sources_of(folder: Path, text: str, name: str = "train.py") -> list[Path]:
    (folder / name).write_text(text)
    return [folder / name]


@pytest.mark.slow
def test_each_set_of_fifteen_begins_with_another_name_under_two_of_the_seeds_whichever_way_it_was_filled():
    seeds, alike = hash_seeds(Named(tuple(GIVEN), ()))
    assert (seeds[0], alike) == ("0", ())
    assert 3 <= len(seeds) <= MOST
    filled = [turned for names in GIVEN for turned in itertools.permutations(names)]
    begins = [firsts(sys.executable, seed, filled) for seed in seeds]
    assert [names for names, found in zip(filled, zip(*begins, strict=True), strict=True) if len(set(found)) == 1] == []


def test_what_an_interpreter_tells_is_what_a_program_under_that_seed_sees():
    for names, seed in ((PAIRS[0], "0"), (PAIRS[1], "17"), (TRIPLES[2], "3")):
        (first,) = firsts(sys.executable, seed, [names])
        assert names[first] == order(seed, names)[0]


def test_zero_and_one_alone_would_have_missed_half_of_the_pairs():
    begins = [firsts(sys.executable, seed, PAIRS) for seed in ("0", "1")]
    assert 0 < sum(left == right for left, right in zip(*begins, strict=True)) < len(PAIRS)


def told(alike_under: int) -> tuple[Chosen, list[str]]:
    """Choose where a pair begins alike under all seeds below a number; return what was asked, too."""
    asked: list[str] = []

    def of(seed: str, sets: Sequence[Group]) -> tuple[int, ...]:
        asked.append(seed)
        return tuple(int(int(seed) >= alike_under) for _ in sets)

    return hash_seeds(Named((("a", "b"),), ()), asked=of), asked


def test_a_third_seed_is_taken_though_two_are_enough_and_few_are_asked():
    found, asked = told(1)
    assert (found.seeds, len(asked)) == (("0", "1", "2"), 13)


def test_the_seed_that_parts_most_comes_second_wherever_it_is_found():
    found, _ = told(20)
    assert (found.seeds, found.alike) == (("0", "20", "1"), ())


def test_what_no_seed_parts_is_named_and_the_seeds_stay_few():
    found, _ = told(1000)
    assert (len(found.seeds), found.alike) == (MOST, (("a", "b"),))


def test_for_strings_that_only_a_library_can_make_sets_of_no_run_is_added():
    seeds = hash_seeds(Named((), (("a", "b"),)), asked=lambda seed, sets: tuple(0 for _ in sets)).seeds
    assert len(seeds) == 3


def test_an_interpreter_that_cannot_be_started_is_stood_in_for():
    assert firsts("/no/such/python", "1", PAIRS) == firsts(sys.executable, "1", PAIRS)


WAYS = {
    "a list": "names = ['yes', 'no']; s = set(names)",
    "two alternatives": "s = {('yes' if x else 'no') for x in data}",
    "two comparisons": "s = set()\nif label == 'yes': s.add(0)\nif label == 'no': s.add(1)",
    "a text that is split": "s = set('yes,no'.split(','))",
    "keys": "s = set({'yes': 1, 'no': 0})",
    "members of an enumeration": "class Label(Enum):\n    yes = 1\n    no = 0\ns = set(Label)",
}


@pytest.mark.parametrize("way", WAYS)
def test_names_that_stand_together_in_a_source_are_found(tmp_path, way):
    assert {"yes", "no"} in [set(group) for group in named(sources_of(tmp_path, WAYS[way]), []).likely]


def test_names_with_a_number_in_them_are_found(tmp_path):
    assert ("fold0", "fold1", "fold2") in named(sources_of(tmp_path, "s = {f'fold{n}' for n in range(3)}"), []).likely


DATA = {
    "table.csv": "age,label\n1,yes\n2,no\n3,yes\n",
    "table.tsv": "age\tlabel\n1\tyes\n2\tno\n",
    "rows.jsonl": '{"label": "yes"}\n{"label": "no"}\n',
    "config.json": '{"data": {"labels": ["yes", "no"]}}',
    "labels.txt": "yes\nno\n",
}


@pytest.mark.parametrize("name", DATA)
def test_labels_are_found_in_data(tmp_path, name):
    (data,) = sources_of(tmp_path, DATA[name], name)
    assert {"yes", "no"} in [set(group) for group in named(sources_of(tmp_path, "s = set()"), [data]).likely]


def test_labels_are_found_in_the_names_of_folders_and_in_the_command(tmp_path):
    for label in ("yes", "no"):
        (tmp_path / "data" / label).mkdir(parents=True)
    opened = tmp_path / "data" / "yes" / "1.png"
    opened.write_bytes(b"\0")
    found = named(sources_of(tmp_path, "s = set()"), [opened], ("python", "train.py", "--classes=x", "ja,nein")).likely
    assert {frozenset(("yes", "no")), frozenset(("ja", "nein"))} <= {frozenset(group) for group in found}


def test_without_a_set_in_the_sources_nothing_is_likely(tmp_path):
    found = named(sources_of(tmp_path, "names = ['yes', 'no']"), [])
    assert found.likely == ()
    assert ("yes", "no") in found.other


def test_sentences_many_strings_and_what_is_no_text_are_left_out(tmp_path):
    many = [f"name {number}" for number in range(MOST_TOGETHER + 1)]
    text = f"s = set(); a = {many!r}; b = {['x' * (LONGEST + 1), 'short']!r}; c = ['\\0', 'z']"
    sources = [*sources_of(tmp_path, text), *sources_of(tmp_path, "no python (", "broken.py"), tmp_path / "missing.py"]
    assert not {"short", "z", "name 0"} & {name for group in named(sources, [tmp_path]).likely for name in group}
