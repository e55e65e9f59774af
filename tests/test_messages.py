"""The sentences that the product shows are in plain words."""

import ast
import re

from tests.messages import PACKAGE, messages

# The word, and what to write in its place.
WORDS = {
    "anew": "again",
    "told": "reported, known",
    "tells?": "predicts, shows, distinguishes, reports",
    "likewise": "the same",
    "by heart": "memorized",
    "one's own": "custom",
    "so many": "this number of, at most N",
    "stands? (?:in|there|above|apart)": "is",
    "lies": "is",
    "affair": "the subject itself",
    "none of (?:none|this|it)": "not one of",
}
EXAMPLES = "mltrainer/project/text_corpora.py"  # sentences of an example's data set, not the product's
VALUE = re.compile(r"\{[^}]*\}")  # a name in the code
IDIOM = re.compile(r"\b(?:" + "|".join(WORDS) + r")\b")


def test_a_message_uses_plain_words():
    odd = [
        f"{place}: {text}" for place, text in messages() if not place.startswith(EXAMPLES) and IDIOM.search(VALUE.sub("", text))
    ]
    assert not odd, "\n".join([*odd, *(f"{word} -> {plain}" for word, plain in WORDS.items())])


ERRORS = {"InputError", "UsageError", "GateError", "DifferenceError", "InUseError", "MachineError"}
# The functions whose errors need no next step: a caller adds it or writes the message into a report, a browser shows a page
# that is not there, or what was expected says how to write the user's own code.
WITHOUT = {
    "checkpointing/format.py": {"save"},
    "companions/monitor/server.py": {"report_file", "guide", "_answer"},
    "companions/proof/replay/cases.py": {"_encode", "recomputed", "_read", "_operator"},
    "companions/trackers/sink.py": {"_plugin"},
    "integrations/transformers.py": {"__init__"},
    "project/engine.py": {"waive"},
    "project/object_store.py": {"check_address"},
    "records/job.py": {"parsed"},
    "references/job.py": {"_stand_in"},
    "runs/combining.py": {"_of_trial"},
    "tasks/array_files.py": {"arrays", "_labels"},
    "tasks/samples.py": {"samples_of"},
    "tasks/sanity_check.py": {"check"},
    "trainers/native/optimization/custom.py": {"_checked"},
    "trainers/script/metrics.py": {"evaluation_of"},
}


def _without_a_step(tree: ast.AST) -> set[str]:
    """Return the functions that make an error without a next step."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {function.name for function in functions for node in ast.walk(function) if _is_without_a_step(node)}


def _is_without_a_step(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS):
        return False
    return all(word.arg not in ("hint", None) for word in node.keywords)


def test_an_error_says_what_to_do_next():
    found = {
        path.relative_to(PACKAGE).as_posix(): _without_a_step(ast.parse(path.read_bytes())) for path in PACKAGE.rglob("*.py")
    }
    assert {name: functions for name, functions in found.items() if functions} == WITHOUT
