"""The failures that a user can meet."""

from __future__ import annotations

import pytest

from mltrainer import errors
from mltrainer.errors import InputError, MltrainerError, StoppedError, error_for_exit


def test_a_message_says_where_what_and_what_to_do_next() -> None:
    error = InputError("expected a number, found 'x'", where="mltrainer.yaml:3", mend="write 3")
    assert str(error) == "mltrainer.yaml:3: expected a number, found 'x'\n  next: write 3"


def test_a_message_alone_stays_as_it_is() -> None:
    assert str(MltrainerError("no run")) == "no run"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("InputError", 1),
        ("UsageError", 2),
        ("MltrainerError", 3),
        ("GateError", 4),
        ("DifferenceError", 5),
        ("InUseError", 6),
        ("MachineError", 7),
    ],
)
def test_each_failure_has_the_exit_code_of_the_contract(name: str, code: int) -> None:
    assert getattr(errors, name).exit_code == code


@pytest.mark.parametrize("code", [1, 4, 5, 6, 7, 130, 143])
def test_a_tools_exit_code_becomes_the_same_failure(code: int) -> None:
    error = error_for_exit(code, "it failed")
    assert error.exit_code == code
    assert error.message == "it failed"


@pytest.mark.parametrize("code", [3, -9, 99])
def test_any_other_exit_code_is_a_fault_of_ours(code: int) -> None:
    assert type(error_for_exit(code, "it failed")) is MltrainerError


def test_a_stop_carries_its_own_exit_code() -> None:
    assert StoppedError("stopped", exit_code=143).exit_code == 143
