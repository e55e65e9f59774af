"""What a traced operation is given and gives, digested."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mltrainer.observe.process import Process, Settings
from mltrainer.observe.trace import Trace

ATEN = torch.ops.aten


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    found = Trace(Process(Settings(folder=str(tmp_path))), "")
    found._torch = torch
    return found


def is_unwritten(trace: Trace, folder: Path) -> list[bool]:
    """Return, for each operation that was noted, whether it reads what nobody wrote."""
    trace._lines.flush()
    return [json.loads(line)[-1] for line in next(folder.glob("trace-*")).read_text().splitlines()]


def test_a_library_is_not_taken_for_ones_own_code_by_a_file_that_is_as_empty(trace, tmp_path):
    code = compile("", str(tmp_path / "package" / "__init__.py"), "exec")
    empty = compile("", str(Path(torch.__file__).parent / "cuda" / "sparse.py"), "exec")
    assert code == empty  # as Python compares them
    frames = [SimpleNamespace(f_code=one, f_globals={}, f_lineno=1) for one in (code, empty)]
    assert [trace._place(frame) for frame in frames] == [code.co_filename, None]  # type: ignore[arg-type]  # frames that stand still


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.5]).expand(1, 1),
        torch.ones(2, 3).t(),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(3, dtype=torch.complex64).conj().imag,
        torch.ones(2, 2).to_sparse(),
        torch.empty(0),
        torch.tensor([True, False]),
    ],
)
def test_any_tensor_has_a_digest_of_its_own(tensor, tmp_path_factory):
    trace = Trace(Process(Settings(folder=str(tmp_path_factory.mktemp("lines")))), "")
    trace._torch = torch
    [digest], [of_copy], of_two = (trace._digests(found) for found in ([tensor], [tensor.clone()], [tensor, tensor]))
    assert digest.partition("@")[0] == of_copy.partition("@")[0]
    assert of_two == [digest, digest]
    if tensor.layout is torch.strided:
        assert digest.partition("@")[2] == f"{tensor.untyped_storage().data_ptr():x}"


def test_memory_that_a_tensor_is_made_of_is_told_by_what_it_holds(trace):
    one, same, other = (torch.tensor([number]).untyped_storage() for number in (1, 1, 2))
    assert trace._digests([one]) == trace._digests([same]) != trace._digests([other])


def test_an_operation_that_goes_on_with_what_nobody_wrote_reads_it(trace, tmp_path):
    memory = trace._operation(ATEN.empty.memory_format, ([4],), {})
    trace._operation(ATEN.mul_.Tensor, (memory, 0.9), {})
    assert is_unwritten(trace, tmp_path) == [False, True]


def test_memory_is_unwritten_until_its_parts_are_all_written(trace, tmp_path):
    memory = trace._operation(ATEN.empty.memory_format, ([2, 3],), {})
    for row in (0, 1):
        part = trace._operation(ATEN.select.int, (memory, 0, row), {})
        trace._operation(ATEN.copy_.default, (part, torch.ones(3)), {})
        trace._operation(ATEN.sum.default, (memory,), {})
    assert is_unwritten(trace, tmp_path)[-3:] == [True, False, False]


def test_a_value_that_cannot_be_read_does_not_disturb_the_program(trace):
    def note(*_arguments: object) -> None:
        raise KeyError

    trace._values = SimpleNamespace(note=note)
    trace._note_values(sys._getframe(), "line", None)
    assert not trace._busy.now


@pytest.mark.parametrize(("places", "unwritten"), [([0, 1, 2], [False, True]), ([0, 1, 2, 3], [False, False, False])])
def test_memory_that_is_written_by_an_index_is_unwritten_beside_it(trace, tmp_path, places, unwritten):
    memory = trace._operation(ATEN.empty.memory_format, ([4],), {})
    trace._operation(ATEN.index_put_.default, (memory, [torch.tensor(places)], torch.ones(len(places))), {})
    trace._operation(ATEN.add.Tensor, (memory, 1), {})
    assert is_unwritten(trace, tmp_path) == unwritten


def test_what_an_operation_writes_in_place_is_among_what_it_gives_though_it_returns_nothing(trace, tmp_path):
    x, y = torch.ones(2), torch.ones(2)
    trace._operation(ATEN._foreach_mul_.Scalar, ([x, y], 2.0), {})
    trace._lines.flush()
    [row] = [json.loads(line) for line in next(tmp_path.glob("trace-*")).read_text().splitlines()]
    assert row[6][1:] == trace._digests([x, y])
    assert torch.equal(x, torch.full((2,), 2.0))
