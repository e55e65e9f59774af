"""A row says the same of its steps however they came in, and needs no more memory for many than for some."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from mltrainer.checkpointing.format import load, save, snapshot
from mltrainer.trainers.native.recording import FETCH_STEPS, KEPT_STEPS, RECENT_STEPS, Interval
from mltrainer.trainers.native.session import Session
from tests.trainers.native.digits_runs import make, train


def steps(count: int) -> tuple[list[float], list[int], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.rand(count, generator=generator).tolist(),
        torch.randint(1, 9, (count,), generator=generator).tolist(),
        torch.rand(count, 4, generator=generator),
    )


def row(count: int, block: int, clip_norm: float | None = None) -> tuple[Interval, dict[str, Any]]:
    losses, sizes, norms = steps(count)
    interval = Interval()
    for low in range(0, count, block):
        part = slice(low, low + block)
        interval.extend(losses[part], sizes[part], norms[part], clip_norm)
    return interval, interval.row([0, 2])


def test_a_row_sums_up_its_steps():
    losses, sizes, norms = steps(10)
    _, found = row(10, 3, clip_norm=0.5)
    assert found["train_loss"] == pytest.approx(np.average(losses, weights=sizes))
    assert found["grad_norm"]["median"] == pytest.approx(norms[:, 0].median().item(), abs=0.2)
    assert (found["grad_norm"]["max"], found["grad_norm"]["min"]) == (norms[:, 0].max().item(), norms[:, 0].min().item())
    assert found["layer_norms"] == pytest.approx(np.median(norms[:, [1, 3]].numpy(), axis=0))
    assert found["clipped"] == (norms[:, 0] > 0.5).sum().item() / 10
    assert found["skipped"] == 0


def test_the_norms_that_are_kept_are_evenly_spaced_and_bounded():
    count = 5 * KEPT_STEPS
    interval, found = row(count, 64)
    assert len(interval.kept) <= KEPT_STEPS
    assert torch.equal(interval.kept, steps(count)[2][:: interval.stride])
    assert interval.stride == 8
    assert found["grad_norm"]["median"] == pytest.approx(0.5, abs=0.03)


def test_what_is_kept_does_not_depend_on_where_the_steps_were_fetched():
    assert torch.equal(row(9_000, 64)[0].kept, row(9_000, 50)[0].kept)


@pytest.mark.parametrize("block", [7, 64])
def test_the_terms_of_a_loss_are_summed_up_as_the_loss_is(block):
    losses, sizes, norms = steps(150)
    doubled = [2 * loss for loss in losses]
    interval = Interval()
    for low in range(0, len(losses), block):
        part = slice(low, low + block)
        interval.extend(losses[part], sizes[part], norms[part], None, {"same": losses[part], "doubled": doubled[part]})
        interval = Interval(**interval.tree())
    found = interval.row([])
    assert found["terms"] == {"same": found["train_loss"], "doubled": 2 * found["train_loss"]}
    assert "terms" not in row(150, 64)[1]


def mean_loss(losses: list[float], *ends: int) -> float:
    """Return the mean over steps of 7 samples that were fetched up to each end, and then to the last."""
    interval = Interval()
    for low, high in itertools.pairwise([0, *ends, len(losses)]):
        interval.extend(losses[low:high], [7] * (high - low), torch.ones(high - low, 1), None)
    return float(interval.row([])["train_loss"])


def test_a_mean_loss_has_the_same_bits_wherever_the_steps_were_fetched():
    generator = torch.Generator().manual_seed(0)
    losses = (8 * torch.randn(1_000, generator=generator)).exp().tolist()  # of such unlike sizes that their sums are rounded
    expected = 0.0  # as it comes where nothing but a row is due
    for low in range(0, 1_000, FETCH_STEPS):
        expected += math.fsum(7 * loss for loss in losses[low : low + FETCH_STEPS])
    found = {mean_loss(losses, *range(block, 1_000, block)) for block in range(1, 2 * FETCH_STEPS)}
    assert found == {expected / 7_000}


def test_the_interval_of_an_earlier_versions_checkpoint_goes_on():
    losses = steps(200)[0]
    interval = Interval()
    interval.extend(losses[:50], [7] * 50, torch.ones(50, 1), None)
    kept = interval.tree()
    kept["loss_sum"] = math.fsum(kept.pop("rest"))
    again = Interval(**kept)
    again.extend(losses[50:], [7] * 150, torch.ones(150, 1), None)
    assert again.row([])["train_loss"] == pytest.approx(mean_loss(losses), rel=1e-12)


def test_steps_that_were_skipped_have_no_norms():
    interval = Interval()
    norms = torch.tensor([[1.0, 1.0], [math.inf, math.nan], [3.0, 2.0]])
    interval.extend([0.1, 0.2, 0.3], [1, 1, 1], norms, clip_norm=2.0)
    found = interval.row([0])
    assert found["grad_norm"] == {"median": 2.0, "max": 3.0, "min": 1.0}
    assert (found["clipped"], found["skipped"], found["layer_norms"]) == (0.5, 1 / 3, [1.5])


def test_a_row_of_nothing_but_skipped_steps_tells_no_norm_and_no_share_of_clipped_steps():
    interval = Interval()
    interval.extend([0.1], [1], torch.full((1, 3), math.inf), None)
    found = interval.row([0, 1])
    assert found["grad_norm"] == {"median": None, "max": None, "min": None}
    assert (found["layer_norms"], found["clipped"], found["skipped"]) == ([None, None], None, 1.0)


def test_only_the_last_numbers_are_remembered():
    interval, _ = row(100, 64)
    assert interval.recent["losses"] == steps(100)[0][-RECENT_STEPS:]


def test_an_interval_goes_through_a_checkpoint(tmp_path):
    interval, found = row(200, 64)
    save(tmp_path / "step-00000001", snapshot({"interval": interval.tree()}), {})
    again = Interval(**load(tmp_path / "step-00000001")[0]["interval"])
    assert again.row([0, 2]) == found


@pytest.mark.slow
def test_the_first_row_does_not_count_the_time_of_what_was_prepared(tmp_path, monkeypatch):
    rehearse = Session._rehearse_evaluation

    def for_an_hour(session: Session) -> None:
        rehearse(session)
        session.trainer._row_started -= 3600

    monkeypatch.setattr(Session, "_rehearse_evaluation", for_an_hour)
    assert train(make(tmp_path), epochs=1)["history"][0]["seconds"] < 3600
