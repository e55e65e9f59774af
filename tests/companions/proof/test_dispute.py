"""Two parties who compute a step otherwise end at the first operator that differs, and a third party computes it again."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from mltrainer.companions.proof.dispute import first_unlike
from mltrainer.companions.proof.findings import Case, Operator, Recomputed
from mltrainer.companions.proof.replay.cases import _decoded, digests, recomputed
from mltrainer.companions.proof.verify_case import text
from mltrainer.errors import InputError
from mltrainer.reproducibility.determinism import kept
from tests.conftest import Cli, shared, train_baseline
from tests.projects import write_rings


def _train(folder: Path) -> None:
    train_baseline(write_rings(folder).root, "epochs=2", "checkpoint.segments=4")


class Forged(TorchDispatchMode):
    """A machine on which one operator gives a result that is a little larger."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if str(func) == self._name:
            (found[0] if isinstance(found, list | tuple) else found).mul_(1 + 1e-6)
        return found


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "disputed", _train)


@pytest.fixture
def dispute(cli: Cli, tools_here: None) -> Callable[..., Any]:
    def call(root: Path, *more: str | Path, step: str = "3", code: int | None = None, err: str = "") -> Any:
        said = cli("reproduce", "baseline", "--dispute", step, "--json", "--project", root, *more, code=code, err=err)
        return said.json if said.code in (0, 5) else said

    return call


def copied(project: Path, folder: Path) -> Path:
    return Path(shutil.copytree(project, folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aten.addmm.default", "aten.threshold_backward.default", "aten.mm.default"])
def test_a_forged_operator_is_where_the_dispute_ends_and_a_third_party_tells_who_is_right(tmp_path, cli, dispute, name):
    author = tmp_path / "author"
    with Forged(name):
        _train(author)
    auditor = copied(author, tmp_path / "auditor")
    first = dispute(auditor, step="first", code=5)
    assert first["step"] == 1
    assert first["numbers"] != first["claimed"]
    with Forged(name):
        theirs = dispute(author, step="1", code=0)
    said = dispute(auditor, "--against", author / theirs["trace"], step="1", code=5)
    assert (said["kind"], said["operator"]) == ("outputs", name)
    case = auditor / said["case"]
    found = cli("verify-case", case, "--json", code=0).json
    assert (found["right"], found["outputs"]) == ("here", found["case"]["here"])
    assert f"{name}, operator {said['number']} of step 1" in cli("verify-case", case, code=0).out
    with Forged(name):
        assert recomputed(case).right == "there"


@pytest.mark.slow
def test_two_honest_parties_agree_on_every_operator(trained, tmp_path, dispute):
    author, auditor = copied(trained, tmp_path / "author"), copied(trained, tmp_path / "auditor")
    theirs = dispute(author, code=0)
    assert (theirs["numbers"], theirs.get("kind"), theirs.get("case")) == (theirs["claimed"], None, None)
    assert theirs["operators"] > 30
    said = dispute(auditor, "--against", author / theirs["trace"], code=0)
    assert "both machines compute every operator of the step with the same bits" in said["verdict"]
    dispute(auditor, step="first", code=1, err="there is nothing to dispute")


@pytest.mark.slow
def test_the_operators_of_another_step_or_of_another_file_are_refused(trained, tmp_path, dispute):
    author, auditor = copied(trained, tmp_path / "author"), copied(trained, tmp_path / "auditor")
    theirs = dispute(author, step="2", code=0)
    dispute(auditor, "--against", author / theirs["trace"], code=1, err="are of step 2 of run")
    dispute(auditor, "--against", author / "mltrainer.yaml", code=1, err="mltrainer.yaml")
    dispute(auditor, step="9", code=1, err="has the steps 1 to 8, not 9")
    dispute(auditor, step="last", code=2, err="expected the number of a step, or first")


ROW = Operator(name="aten.mm.default", inputs=["a", "b"], outputs=["c"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": "aten.bmm.default", "outputs": ["x"]}, (1, "operators")),
        ({"inputs": ["a", "x"], "outputs": ["x"]}, (1, "inputs")),
        ({"outputs": ["x"]}, (1, "outputs")),
        ({}, None),
    ],
)
def test_the_first_operator_that_differs_is_named_by_what_decides_the_rest(change, expected):
    assert first_unlike([ROW, ROW, ROW], [ROW, ROW.model_copy(update=change), ROW]) == expected


def test_an_operator_more_is_a_difference():
    assert first_unlike([ROW], [ROW, ROW]) == first_unlike([ROW, ROW], [ROW]) == (1, "operators")


# --- cases of strangers ---------------------------------------------------------------------------


def case_file(path: Path, **changes: Any) -> Path:
    values = {
        "run": "a",
        "step": 1,
        "number": 0,
        "operator": "aten.add.Tensor",
        "threads": 1,
        "numerics_class": "a",
        "libraries": {},
    }
    one = {"tensor": 0, "dtype": "float32", "shape": [2], "strides": [1]}
    values |= {"here": [], "there": [], "arguments": [[one, one], {"arguments": {}}, None], **changes}
    with contextlib.suppress(Exception):  # of some, the inputs cannot even be made
        tensors = {"in0": torch.ones(2).view(torch.uint8)}
        values.setdefault("inputs", [*digests(tuple(_decoded(values["arguments"], tensors)))])
    values.setdefault("inputs", [])
    save_file({"in0": torch.ones(2).view(torch.uint8)}, path, metadata={"case": json.dumps(values)})
    return path


@pytest.mark.slow
def test_a_case_is_computed_from_its_file_alone(tmp_path, cli):
    said = cli("verify-case", case_file(tmp_path / "case"), "--json", code=5).json
    assert (said["right"], len(said["outputs"])) == ("neither", 1)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"operator": "aten.from_file.default", "arguments": [["/etc/passwd", False, 2], {"arguments": {}}, None]},
            "aten.from_file.default may read more than its arguments, and is refused",
        ),
        ({"operator": "os.system"}, "'os.system' is not an operator of PyTorch"),
        ({"operator": "aten.add.__class__"}, "is not an operator of PyTorch"),
        ({"operator": "aten.add.overloads", "arguments": [[], {"arguments": {}}, None]}, "is not an operator of PyTorch"),
        ({"operator": "aten.__init__.default"}, "is not an operator of PyTorch"),
        ({"operator": "aten.mm.default"}, "aten.mm.default does not take these arguments"),
        ({"arguments": [[{"dtype": "load"}], {"arguments": {}}, None]}, "not a valid case of an operator"),
        (
            {"arguments": [[{"tensor": 0, "dtype": "float32", "shape": [9], "strides": [1]}], {"arguments": {}}, None]},
            "not a valid case of an operator",
        ),
        (
            {"arguments": [[{"tensor": 7, "dtype": "float32", "shape": [2], "strides": [1]}], {"arguments": {}}, None]},
            "not a valid case of an operator",
        ),
        ({"arguments": {}}, "not a valid case of an operator"),
        ({"arguments": [[{"foo": "x"}], {"arguments": {}}, None]}, "not a valid case of an operator"),
        ({"arguments": [[], {"arguments": [1]}, None]}, "not a valid case of an operator"),
        ({"threads": 0}, "not a valid case of an operator"),
        ({"threads": 10**9}, "not a valid case of an operator"),
        ({"inputs": ["a"]}, "its inputs do not have the digests that it names"),
        ({"operator": "aten.segment_reduce.default"}, "aten.segment_reduce.default may read more than its arguments"),
        ({"operator": "aten.add.Scalar", "arguments": [[10**40, 1], {"arguments": {}}, None]}, "does not take these arguments"),
        ({"here": "x"}, "not a valid case of an operator"),
    ],
)
def test_a_case_that_asks_for_more_than_an_operator_is_refused(tmp_path, changes, told):
    with kept(), pytest.raises(InputError, match=re.escape(told)):
        recomputed(case_file(tmp_path / "case", **changes))


@pytest.mark.parametrize("content", [b"", b"{}", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_file_that_is_no_case_is_named(tmp_path, content):
    (tmp_path / "case").write_bytes(content)
    with pytest.raises(InputError, match="not a valid case of an operator"):
        recomputed(tmp_path / "case")


def test_a_file_that_is_not_there_is_no_case(tmp_path, cli):
    told = f"error: {tmp_path / 'none'}: no such file\n  next: ask for the file that mltrainer reproduce --dispute wrote\n"
    assert cli("verify-case", tmp_path / "none", code=1).err == told


def test_a_machine_that_differs_is_named_by_what_differs():
    case = Case(
        run="a", step=1, number=0, operator="aten.mm.default", threads=1, inputs=["i"], here=["h"], there=["t"],
        numerics_class="n", libraries={"PyTorch": "1", "MKL": "2"},
    )  # fmt: skip
    said = text(Recomputed(case=case, outputs=["t"], numerics_class="n", libraries={"PyTorch": "3", "MKL": "2"}))
    assert "the other party is right: the output is the same" in said
    assert "this machine differs: PyTorch: 1 -> 3" in said
    assert "MKL" not in said


@pytest.mark.slow
def test_the_command_says_why_a_file_is_no_case(tmp_path, cli):
    (tmp_path / "case").write_bytes(b"{}")
    cli("verify-case", tmp_path / "case", code=1, err="not a valid case of an operator")
