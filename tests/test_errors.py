"""The failures that a user can meet."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest
import torch

from mltrainer import errors
from mltrainer.errors import (
    FaultAt,
    GateError,
    InputError,
    MltrainerError,
    StoppedError,
    did_you_mean,
    ended_with,
    error_for_exit,
    is_out_of_memory,
    killed,
)
from mltrainer.records.event import Error, read
from mltrainer.tools.program import Events, _report, explained


def test_a_message_says_where_what_and_what_to_do_next():
    error = InputError("expected a number, found 'x'", where="mltrainer.yaml:3", hint="write 3")
    assert str(error) == "mltrainer.yaml:3: expected a number, found 'x'\n  next: write 3"


def test_what_is_compared_is_said_once():
    error = InputError("seeds", expected="3 or more", found=2, where="--seeds", hint="--seeds 3")
    assert str(error) == "--seeds: seeds: expected 3 or more, found 2\n  next: --seeds 3"
    written = error.written()
    assert (written["where"], written["expected"], written["found"]) == ("--seeds", "3 or more", "2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian", "there is no split 'trian'; did you mean 'train'?"),
        ("all", "there is no split 'all'; there are train, test"),
        ("Test", "there is no split 'Test'; did you mean 'test'?"),
        (3, "there is no split 3; there are train, test"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_or_with_all(name, message):
    error = InputError.unknown("split", name, ("train", "test"))
    assert error.message == message
    assert error.faults == (FaultAt(None, "one of train, test", repr(name)),)


def test_a_name_that_is_the_beginning_of_others_means_these():
    known = ("NVIDIA H100 SXM", "NVIDIA H100 PCIe", "NVIDIA H200")
    assert did_you_mean("nvidia h100", known) == "; did you mean 'NVIDIA H100 SXM' or 'NVIDIA H100 PCIe'?"
    assert did_you_mean("nvidia h20", known) == "; did you mean 'NVIDIA H200'?"


def test_a_tools_error_tells_the_workflow_what_it_expected_and_found():
    end, start = os.pipe()
    _report(Events(start), GateError("the data differs", expected="a", found="b", where="data.csv"))
    raised = Error.model_validate(read(os.read(end, 10_000))).raised()
    assert (str(raised), raised.faults) == ("data.csv: the data differs: expected a, found b", (FaultAt("data.csv", "a", "b"),))
    os.close(start)
    os.close(end)


def test_a_message_alone_stays_as_it_is():
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
def test_each_failure_has_the_exit_code_of_the_contract(name, code):
    assert getattr(errors, name).exit_code == code


@pytest.mark.parametrize("code", [1, 4, 5, 6, 7, 130, 143])
def test_a_tools_exit_code_becomes_the_same_failure(code):
    error = error_for_exit(code, "it failed")
    assert error.exit_code == code
    assert error.message == "it failed"


@pytest.mark.parametrize("code", [3, -9, 99])
def test_any_other_exit_code_is_a_fault_of_ours(code):
    assert type(error_for_exit(code, "it failed")) is MltrainerError


def test_a_stop_carries_its_own_exit_code():
    assert StoppedError("stopped", exit_code=143).exit_code == 143


# --- memory, and who killed a process -------------------------------------------------------------


def allocated(kind: str) -> BaseException:
    """What a real allocation raises that no machine can serve."""
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        bytearray(1 << 62) if kind == "Python" else torch.empty(1 << 50)
    return caught.value


@pytest.mark.parametrize("kind", ["Python", "torch"])
def test_an_allocation_that_fails_is_the_machines_failure(kind, tmp_path):
    found = explained(allocated(kind), tmp_path, tmp_path)  # type: ignore[arg-type]
    assert (found.exit_code, found.message[:14]) == (7, "out of memory:")
    assert "lower batch_size" in str(found.hint)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_a_gpus_and_the_systems_memory_count_too(error, tmp_path):
    assert is_out_of_memory(error)
    assert explained(error, tmp_path, tmp_path).exit_code == 7


@pytest.mark.parametrize("error", [ValueError("column out of memory bounds"), RuntimeError("shapes differ"), OSError(2, "no")])
def test_other_failures_are_none_of_the_memory(error):
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(("signal", "code"), [("Killed", 7), ("Bus error", 7), ("Segmentation fault", 1)])
def test_a_loaders_process_that_the_machine_killed_is_the_machines_failure(signal, code, tmp_path):
    error = RuntimeError(f"DataLoader worker (pid 7) is killed by signal: {signal}. ")
    assert explained(error, tmp_path, tmp_path).exit_code == code


@pytest.mark.parametrize(
    ("code", "words", "by_machine"),
    [
        (-9, "signal 9 (SIGKILL)", True),
        (137, "signal 9 (SIGKILL)", True),
        (-7, "signal 7 (SIGBUS)", True),
        (-11, "signal 11 (SIGSEGV)", False),
        (143, "signal 15 (SIGTERM)", False),
        (1, "exit code 1", False),
        (128, "exit code 128", False),
        (255, "exit code 255", False),
    ],
)
def test_how_a_process_ended_is_told_by_name(code, words, by_machine):
    assert (ended_with(code), killed(code) is not None) == (words, by_machine)


def test_a_command_that_runs_out_of_memory_ends_with_the_machines_exit_code(tmp_path):
    code = "import mltrainer.cli.main as m; m._answered = lambda _: bytearray(1 << 40); raise SystemExit(m.run([]))"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, preexec_fn=limit, check=False
    )
    assert (done.returncode, "error: out of memory" in done.stderr) == (7, True)
    assert not (tmp_path / "mltrainer-fault.txt").exists()
