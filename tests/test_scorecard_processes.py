"""The verdicts on numbers of processes, without any trainer; and this trainer's own runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.scorecard import process
from tests.benchmarks.scorecard.case import Weights
from tests.benchmarks.scorecard.judging import judge
from tests.benchmarks.scorecard.processes.case import BATCH, EVEN, UNEVEN, Case, Outcome
from tests.benchmarks.scorecard.processes.rows import KILLED_AT, ROWS, SAVED_AT, Unmeasured, agree, witnessed
from tests.benchmarks.scorecard.rows import Cell
from tests.benchmarks.scorecard.table import PROCESSES_MARKS, placed


def weights(value: float) -> Weights:
    return {"w": np.full((2, 2), value, np.float32), "b": np.zeros(2, np.float32)}


def ended(value: float = 1.0, loss: float = 0.5, taken: tuple[int, ...] = (32,)) -> Outcome:
    return Outcome(0, "", weights(value), taken, loss)


def died(said: str = "", code: int = 1) -> Outcome:
    return Outcome(code, said, None)


REFERENCE = ended()


@pytest.mark.parametrize(
    ("others", "cell"),
    [
        ([ended(), ended()], Cell("same bits", "pass")),
        ([ended(), ended(1.1, 0.6)], Cell("differs (weights 10 %, loss 20 %)", "fail")),
        ([ended(3.0, 0.5), ended(1.05, 0.4)], Cell("differs (weights 200 %, loss 20 %)", "fail")),
        ([ended(1.000001, 0.5)], Cell("differs (weights 9.5e-05 %, loss 0 %)", "fail")),  # an equal loss is no equal training
        ([ended(), died("Traceback\nx.LostError: rank 3")], Cell("crashes: LostError", "fail")),
        ([died()], Cell("crashes: exit code 1", "fail")),
    ],
)
def test_numbers_of_processes_are_compared_bit_for_bit(others, cell):
    assert agree(REFERENCE, *others) == cell


def test_a_reference_without_weights_is_no_agreement():
    assert agree(died("a.GoneError: x"), died(), ended()) == Cell("crashes: GoneError", "fail")


def test_a_run_counts_when_all_its_processes_took_all_its_steps():
    four = ended(taken=(32,) * 4)
    assert witnessed(four, Case(4), resumed=False) is four
    again = ended(taken=(32 - SAVED_AT,) * 2)
    assert witnessed(again, Case(2), resumed=True) is again


@pytest.mark.parametrize(
    ("taken", "resumed"),
    [((), False), ((32,), False), ((32, 32), False), ((32,) * 5, False), ((32, 32, 32, 31), False), ((32,) * 4, True)],
    ids=["nobody", "one", "half", "one too many", "a step less", "from the start, not the checkpoint"],
)
def test_weights_of_another_run_than_the_row_asks_for_are_not_judged(taken, resumed):
    with pytest.raises(Unmeasured):
        witnessed(ended(taken=taken), Case(4), resumed)


def test_a_run_that_failed_is_judged_by_its_end():
    assert witnessed(died(), Case(4), resumed=False) == died()


class Perfect:
    """Runs whose number of processes does not matter."""

    buckets = True

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        return ended(1.0 + case.dropout + case.samples)

    def resumed(self, case: Case, processes: int) -> Outcome:
        return self.fresh(case)


class Stock(Perfect):
    """Runs whose processes and portions decide the order of sums, and that resume exactly on as many processes."""

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        return ended(case.processes + case.small)

    def resumed(self, case: Case, processes: int) -> Outcome:
        return ended(processes)


class Unsteady(Perfect):
    """Runs that are never twice the same."""

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        return ended(number)


class Whole(Perfect):
    """Runs that exchange all gradients at once."""

    buckets = False


class Unshared(Perfect):
    """Runs that one process takes, whatever is asked."""

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        return witnessed(ended(), case, resumed=False)


def marks(runs: Perfect) -> list[str]:
    return [cell.mark for cell in judge(runs, ROWS, lambda row, cell: None)]


def test_every_row_can_be_passed_and_failed():
    assert marks(Perfect()) == ["pass"] * len(ROWS)
    assert [row.title for row, mark in zip(ROWS, marks(Stock()), strict=True) if mark == "pass"] == [
        "4 processes, repeated",
        "one of 4 killed (`kill -9`), resumed on 4",
    ]
    assert marks(Unsteady())[0] == "fail"
    assert [row.title for row, mark in zip(ROWS, marks(Whole()), strict=True) if mark == "unasked"] == [
        "4 processes, other buckets; no dropout"
    ]
    assert set(marks(Unshared())[:-3]) == {"unknown"}


def test_the_work_has_uneven_last_steps_and_is_killed_after_a_checkpoint():
    assert EVEN % BATCH == 0 != UNEVEN % BATCH
    assert Case(samples=EVEN).steps == Case(samples=UNEVEN).steps == 32
    per_epoch = EVEN // BATCH
    assert SAVED_AT < KILLED_AT < SAVED_AT + per_epoch
    assert SAVED_AT % per_epoch == 0


def test_a_case_travels_as_text_and_sheds_its_fault():
    case = Case(4, 0.0, UNEVEN, small=True, save=True, kill_at=20)
    assert Case.loads(case.dumps()) == case
    assert case.unharmed() == Case(4, 0.0, UNEVEN, small=True, save=True)


def test_the_page_has_the_place_of_the_table():
    page = (Path(__file__).parents[1] / "docs/SCORECARD.md").read_text("utf-8")
    assert placed(page, "new", PROCESSES_MARKS)


@pytest.mark.slow
def test_a_run_that_hangs_is_killed_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LIMIT_S", 2)
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('child').write_text(str(child.pid)); time.sleep(60)\n"
    )
    code, said = process.run([sys.executable, "-c", program], tmp_path, Case())
    assert (code, said) == (process.HUNG, "TimeoutError: no end within 2 s")
    assert not _runs(int((tmp_path / "child").read_text()))


def _runs(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_steps_are_witnessed_by_process(tmp_path, monkeypatch):
    import torch

    from tests.benchmarks.scorecard.processes import work

    monkeypatch.setattr(work, "register_optimizer_step_post_hook", lambda hook: None)
    work.forget_steps(tmp_path)
    assert work.steps_taken(tmp_path) == ()
    batch = torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)
    trained, fitted = (kind([torch.zeros(1, requires_grad=True)]) for kind in (torch.optim.AdamW, torch.optim.LBFGS))
    for pid, count in ((1, 2), (2, 1)):
        probe = work.Probe(Case(), tmp_path)
        monkeypatch.setattr(work.os, "getpid", lambda pid=pid: pid)
        probe._stepped(trained)  # of zeros, by which FSDP2 makes room for an optimizer's states
        for _ in range(count):
            assert float(probe.loss(*batch)) == pytest.approx(np.log(2))
            probe._stepped(trained)
            probe._stepped(fitted)
        probe._stepped(trained)  # a process may have no micro-batch of an epoch's last step
    assert work.steps_taken(tmp_path) == (2, 3)


def test_only_the_last_process_is_killed_and_only_in_training(tmp_path, monkeypatch):
    import torch

    from tests.benchmarks.scorecard.processes import work

    killed: list[str] = []
    monkeypatch.setattr(work, "register_optimizer_step_post_hook", lambda hook: None)
    monkeypatch.setattr(work, "SETTLE_S", 0)
    monkeypatch.setattr(work.os, "kill", lambda pid, number: killed.append(work.os.environ["RANK"]))
    batch = torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64)
    for rank in "0123":
        monkeypatch.setenv("RANK", rank)
        probe = work.Probe(Case(4, kill_at=1), tmp_path)
        probe.loss(*batch)
        probe.done = 1
        with torch.no_grad():
            probe.loss(*batch)
        assert killed == []
        probe.loss(*batch)
        assert killed == (["3"] if rank == "3" else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PyTorch DDP", pytest.param("mltrainer", marks=pytest.mark.long)])
def test_the_work_is_shared_and_resumed_for_real(tmp_path, name):
    from tests.benchmarks.scorecard.processes.measure import Bench
    from tests.benchmarks.scorecard.processes.trainers import TRAINERS

    bench = Bench(next(trainer for trainer in TRAINERS if trainer.name == name), tmp_path)
    outcome = bench.resumed(Case(2, 0.0, UNEVEN), 1)
    assert outcome.weights is not None, outcome.said
    assert outcome.taken == (32 - SAVED_AT,)
    assert 0 < float(outcome.loss or 0) < np.log(2)
