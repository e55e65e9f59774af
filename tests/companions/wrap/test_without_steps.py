"""A program of which no step is seen: what it leaves is compared, and the line named that makes it differ."""

from __future__ import annotations

import json
import sys

import pytest

from mltrainer.companions.wrap.report import as_json, text
from mltrainer.errors import InputError
from mltrainer.programs import checking
from mltrainer.programs.checking import NOTHING, computed
from tests.programs.test_checking import check

SEEDED = "import json, pickle, random, time\nbegan = time.time()\nrandom.seed(1)\nweights = [random.random() for _ in range(9)]\n"
LEAVES = """
pickle.dump(weights, open("model.pkl", "wb"))
json.dump({"loss": sum(weights), "fit_seconds": time.time() - began}, open("metrics.json", "w"))
"""


@pytest.mark.slow
def test_a_program_without_steps_repeats_by_what_it_leaves(tmp_path):
    checked, told = check(tmp_path / "mine", SEEDED + LEAVES)
    found = checked.repeats()
    assert (found.same, found.steps, sorted(found.left or {})) == (True, None, ["metrics.json: loss", "model.pkl"])
    assert checking.COMPARES_LEFT in told
    assert {"python"} == found.judged.about.keys()
    assert found.judged.prefix == sys.prefix
    assert "no step of a PyTorch optimizer was seen; in 3 runs it left the same" in text(found, None)
    assert "optimizer step" not in text(found, None)
    assert '"steps": null' in json.dumps(as_json(found, None))
    with pytest.raises(InputError, match="after which it could be killed") as raised:
        checked.resumes(("python", "program.py"))
    assert raised.value.hint == "leave --resume-check out"


UNSEEDED = {
    "a draw": ("random.seed(1)\n", "", "metrics.json: loss, and model.pkl", "random draw", "weights = [random.random()"),
    "a time in a pickle": (
        "dump(weights,",
        "dump([began, weights],",
        "model.pkl, though the values in",
        "clock",
        "began = time.time()",
    ),
    "an order": (
        "= [random",
        "= [hash('a')] + [random",
        "metrics.json",
        "hash order",
        "weights = ",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("why", UNSEEDED)
def test_what_a_program_without_steps_leaves_otherwise_is_named_with_the_line(tmp_path, why):
    before, after, what, kind, line = UNSEEDED[why]
    checked, _ = check(tmp_path / "mine", (SEEDED + LEAVES).replace(before, after))
    found = checked.repeats()
    assert found.difference is not None
    assert (found.same, found.cause.kind) == (False, kind)
    assert found.difference.what.startswith(what)
    assert found.cause.lines[0].text.startswith(line)
    assert f"what it leaves differs: {what}" in text(found, None)


@pytest.mark.parametrize(
    ("more", "told", "hint"),
    [
        ({}, "and it left no file in its folder", "write what it computes to a file there"),
        ({"where": "task.script"}, "in any of its processes", "name the files that it writes in task.metrics and task.outputs"),
        (
            {"where": "task.script", "leaves": ("model.pkl",)},
            "and it left none of model.pkl",
            "what task.metrics and task.outputs",
        ),
    ],
)
def test_a_program_that_neither_steps_nor_leaves_anything_is_told_the_way_out(tmp_path, more, told, hint):
    checked, _ = check(tmp_path / "mine", "print('hello')", **more)
    with pytest.raises(InputError, match="no step of a PyTorch optimizer was seen") as raised:
        computed(checked._run("it", NOTHING, 0))
    assert told in raised.value.message
    assert hint in (raised.value.hint or "")


def test_in_place_only_what_was_written_is_compared(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "old.txt").write_text("not the program's")
    checked, _ = check(tmp_path / "mine", SEEDED + LEAVES, in_place=True)
    assert sorted(checked.repeats().left or {}) == ["metrics.json: loss", "model.pkl"]
