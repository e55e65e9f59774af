"""The page of `mltrainer wrap --out`, as who reviews a pull request reads it."""

from __future__ import annotations

import pytest

from mltrainer.companions.wrap.report import MOST_FILES, page
from mltrainer.observe.inputs import Read
from mltrainer.programs.chains import ChainDifference
from mltrainer.programs.checking import ResumeVerdict, Verdict
from mltrainer.programs.subject import Subject


def verdict(same: bool = True, files: int = 1) -> Verdict:
    data = tuple(Read(f"data/{number:04}.npy", 8, "0" * 64) for number in range(files))
    judged = Subject((Read("train.py", 9, "1" * 64),), data, {"python": "3.11"})
    return Verdict("python train.py", same, 20, 1, (1.0, 1.0), judged, None if same else ChainDifference(3, "the gradients", "a"))


@pytest.mark.parametrize(
    ("repeats", "resumes", "said"),
    [
        (True, None, "It repeats."),
        (False, None, "It does not repeat."),
        (True, True, "It repeats, and resuming holds."),
        (True, False, "It repeats, but resuming does not hold."),
        (False, False, "It does not repeat, and resuming does not hold."),
    ],
)
def test_the_first_sentence_tells_all_that_was_found(repeats, resumes, said):
    resumed = None if resumes is None else ResumeVerdict("python train.py --resume", resumes, 20, 12, 10, None, "the weights")
    found = page(verdict(repeats), resumed)
    assert f"**{said}**" in found
    assert ("was compared in the same way, from the step at which it resumed" in found) == (resumed is not None)


def test_of_many_files_the_first_are_listed_and_the_others_counted():
    found = page(verdict(files=MOST_FILES + 3), None)
    assert (f"data/{MOST_FILES - 1:04}.npy" in found, f"data/{MOST_FILES:04}.npy" in found) == (True, False)
    assert "and 3 files more, which `--json` lists" in found
