"""Programs in the manner of public examples, each with three subtle faults, or one, that its own comments hold.

A line `# [2] code` stands in variant 2 alone; a line that ends in `# [-2]` is left out of it, one that ends in `# [!2]` is guilty
in it as it is, as is one put in that ends in `# guilty`. Variant 0 is the program without fault. What is run has none of
these comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "programs"
VARIANTS = range(4)
# Folders, in the order in which they were written: each was measured once before anything was changed for what it showed.
GROUPS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
)  # those of the sixth have a single fault, after an innocent difference
HELD_OUT = (  # of the first group every second one by name: no rule was made with what is named in these in sight
    *("checkpoints", "distillation", "kfold", "mixed_precision", "multi_task"),
    *("reinforce", "super_resolution", "text_classification", "transformer", "word_language_model"),
)
PUT_IN = re.compile(r"^( *)# \[(\d)\] (.*)$")
NOTE = re.compile(r"  # \[([-!\d ]+)\]$")
KINDS = re.compile(r"^# fault (\d): (.*)$", re.MULTILINE)
GUILTY = "  # guilty"


class Variant(NamedTuple):
    """A program with one of its faults.

    Attributes:
        group: The folder of its program.
        program: Its name.
        number: Of the fault; 0 for none.
        source: What is run.
        guilty: The numbers of the lines that may be named.
        kinds: The kinds of cause that are right.
    """

    group: str
    program: str
    number: int
    source: str
    guilty: tuple[int, ...]
    kinds: tuple[str, ...]


def variants() -> list[Variant]:
    """Return all variants, those without fault first."""
    texts = {(group, path.stem): path.read_text("utf-8") for group in GROUPS for path in sorted((FOLDER / group).glob("*.py"))}
    numbers = {key: {0, *(int(number) for number, _ in KINDS.findall(text))} for key, text in texts.items()}
    return [_variant(*key, text, number) for number in VARIANTS for key, text in texts.items() if number in numbers[key]]


def _variant(group: str, name: str, text: str, number: int) -> Variant:
    lines = list(_lines(text, number))
    kinds = {int(found): tuple(words.split(", ")) for found, words in KINDS.findall(text)}
    guilty = tuple(place for place, (_, is_guilty) in enumerate(lines, 1) if is_guilty)
    return Variant(group, name, number, "\n".join(line for line, _ in lines) + "\n", guilty, kinds.get(number, ()))


def _lines(text: str, number: int) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a variant, and whether each is guilty."""
    for line in text.splitlines():
        put_in, note = PUT_IN.match(line), NOTE.search(line)
        marks = note[1].split() if note else []
        if KINDS.match(line) or f"-{number}" in marks:
            continue
        if put_in is None:
            yield NOTE.sub("", line), f"!{number}" in marks
        elif int(put_in[2]) == number:
            yield put_in[1] + put_in[3].removesuffix(GUILTY), put_in[3].endswith(GUILTY)
