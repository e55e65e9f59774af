"""What targets are: what a task declares, what types and shapes make certain, and the class numbers of each form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

from mltrainer.errors import InputError
from mltrainer.tasks.targets import class_numbers, declared, derived
from mltrainer.tasks.task import Task

LABELS = torch.tensor([0, 2, 1, 2])


def of(targets: Any) -> Task:
    task = Task()
    task.targets = targets
    return task


def test_a_task_says_what_its_targets_are_or_nothing():
    assert [declared(of(kind)) for kind in ("classes", "values", "tokens", None)] == ["classes", "values", "tokens", None]


@pytest.mark.parametrize(("given", "shown"), [("class", "'class'"), (torch.zeros(3), "an object of type Tensor")])
def test_another_word_is_refused(given, shown):
    with pytest.raises(InputError, match=rf"targets of Task: expected 'classes', 'values', 'tokens' or None, found {shown}"):
        declared(of(given))


def test_one_whole_number_beside_an_output_for_each_class_is_a_class():
    assert derived(torch.zeros(4, 3), LABELS) == "classes"
    assert derived(SimpleNamespace(logits=None), LABELS) is None
    assert derived((torch.zeros(4, 3), torch.zeros(4)), LABELS) == "classes"


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.zeros(4, 3), LABELS.float()),
        (torch.zeros(4, 3), LABELS.int()),
        (torch.zeros(4), LABELS),
        (torch.zeros(4, 1), LABELS),
        (torch.zeros(2, 3, 5), torch.zeros(2, 5, dtype=torch.int64)),
        (torch.zeros(4, 1), torch.tensor([[0.0], [1.0], [1.0], [0.0]])),
    ],
)
def test_of_other_types_and_shapes_the_kind_is_not_certain(outputs, targets):
    assert derived(outputs, targets) is None


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (torch.tensor([0.0, 1.0, 1.0]), [0, 1, 1]),
        (torch.tensor([[True], [False]]), [1, 0]),
        (functional.one_hot(LABELS, 3).float(), LABELS.tolist()),
        (LABELS.int()[:, None], LABELS.tolist()),
        (torch.tensor([-1.0, 1.0, 1.0]), [0, 1, 1]),
        (torch.tensor([[-1], [1]]), [0, 1]),
    ],
)
def test_classes_have_numbers_in_each_form(targets, expected):
    found = class_numbers(targets, "classes")
    assert found.tolist() == expected
    assert class_numbers(targets, "values") is None
    assert class_numbers(targets, None) is None


@pytest.mark.parametrize(
    "targets",
    [
        *(torch.tensor([0.5, 1.0]), torch.tensor([float("nan"), 1.0]), torch.tensor([-1, 2])),
        *(torch.ones(3, 2), torch.arange(6).reshape(2, 3), torch.tensor(1), torch.zeros(0)),
    ],
)
def test_what_is_not_one_class_a_sample_has_no_numbers(targets):
    assert class_numbers(targets, "classes") is None
