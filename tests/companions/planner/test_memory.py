"""Memory by part: arithmetic against numbers that are counted by hand."""

from __future__ import annotations

import pytest

from mltrainer.companions.planner import memory, timing
from mltrainer.companions.planner.memory import Setup
from mltrainer.records.planner import Rates, Sizes, Traced, TracedBatch, TracedVariant, Variant

RATES = Rates(flops_per_s=1e9, bytes_per_s=1e9, overhead_s=1e-6)


def row(batch: int, step: int, update: int = 100) -> TracedBatch:
    return TracedBatch(
        batch=batch,
        step_bytes=step,
        update_bytes=update,
        flops=batch * 1000,
        moved_bytes=0,
        operations=0,
        update_moved_bytes=0,
        update_operations=0,
    )


def traced(*rows: TracedBatch, evaluation: int = 0, **changes: int) -> Traced:
    variant = TracedVariant(
        variant=Variant(precision="fp32", recomputed=[]), rows=list(rows), evaluation_bytes=evaluation, not_known=None
    )
    sizes = {
        "parameters": 25,
        "parameter_bytes": 100,
        "trainable_bytes": 100,
        "layer_bytes": 80,
        "buffer_bytes": 8,
        "optimizer_bytes": 200,
        "largest_block_bytes": 40,
        "shared_bytes": 80,
        **changes,
    }
    own = Sizes.model_validate({**sizes, "blocks": []})
    return Traced(sizes=own, samples=1000, resident_bytes=5000, rates=RATES, variants=[variant])


THREE = (row(10, 300), row(20, 500), row(40, 900))


def found(setup: Setup, *rows: TracedBatch, **changes: int) -> memory.Parts:
    whole = traced(*(rows or THREE), **changes)
    return memory.parts(whole, whole.variants[0], setup)


def test_parts_of_one_process_add_up_to_the_traced_peak_and_the_copies():
    parts = found(Setup(batch=20))
    assert (parts.weights, parts.buffers, parts.gradients, parts.optimizer, parts.activations) == (100, 8, 100, 200, 400)
    assert parts.copies == 80 + (100 + 8 + 200)  # layers before an update, and a checkpoint that is being written
    assert parts.total == 100 + 8 + 200 + 500 + parts.copies + 5000


def test_two_checkpoints_are_held_where_an_epoch_is_shorter_than_the_disk_takes():
    assert (memory.checkpoints(1000, 100, 6), memory.checkpoints(600, 100, 6), memory.checkpoints(601, 100, 6)) == (1, 2, 1)
    assert found(Setup(20, checkpoints=2)).copies == 80 + 2 * (100 + 8 + 200)


@pytest.mark.parametrize(("batch", "activations"), [(10, 200), (30, 600), (80, 1600)])
def test_other_batches_lie_on_the_line_through_two_traced_ones(batch, activations):
    assert found(Setup(batch)).activations == activations


def test_the_update_decides_where_it_takes_more_than_the_backward_pass():
    assert found(Setup(20), row(10, 300, 700), row(20, 500, 700)).activations == 600


def test_an_evaluation_decides_where_its_batch_takes_more_than_a_step():
    assert found(Setup(20), evaluation=900).activations == 800


def test_a_trace_that_bends_is_seen():
    assert memory.bend(list(THREE)) == 0
    assert memory.bend([row(10, 100), row(20, 400), row(40, 1600)]) == pytest.approx(0.333, abs=0.01)


@pytest.mark.parametrize(("count", "sums"), [(1, 0), (2, 1), (3, 1), (4, 2), (8, 3)])
def test_as_many_sums_are_held_as_a_binary_tree_holds_before_its_last_leaf(count, sums):
    assert memory.held_sums(count) == sums


def test_accumulation_holds_sums_of_gradients():
    assert found(Setup(20, accumulate=4)).gradients == 300
    assert found(Setup(20, accumulate=4, processes=4)).gradients == 100


def test_sharing_divides_what_the_trainer_divides_and_no_more():
    setups = (Setup(20, 4, 1, "ddp"), Setup(20, 4, 4, "ddp"), Setup(20, 4, 4, "zero1"), Setup(20, 4, 4, "fsdp"))
    alone, ddp, zero1, fsdp = map(found, setups)
    assert ddp.optimizer == alone.optimizer == 200
    assert zero1.optimizer == fsdp.optimizer == 200 * (0.2 + 0.8 / 4)
    assert (zero1.weights, fsdp.weights) == (100, 100 - 80 * 3 / 4 + 40)
    assert fsdp.gradients == 100 * (0.2 + 0.8 / 4)
    assert fsdp.activations == ddp.activations


def test_nothing_is_divided_where_no_parameter_is_large():
    assert found(Setup(20, 4, 4, "zero1"), shared_bytes=0).optimizer == 200


def test_8_bits_keep_half_a_number_for_each_in_place_of_two():
    eight_bit = memory.eight_bit_bytes(traced(*THREE))  # 25 parameters of two moments of a byte, and scales of 4 bytes
    assert eight_bit == pytest.approx(25 * 2 * (1 + 4 / 256))


@pytest.mark.parametrize(
    ("peak", "noise", "share"),
    [(5000, 0, 0.0), (5000 + 1196 * 1.5, 0, 0.5), (5000 + 1196 * 9, 0, 1.0), (5000 + 1196 * 9, 1196, 0.9)],
)
def test_a_measured_peak_comes_out_again_with_a_share_within_bounds(peak, noise, share):
    parts = found(Setup(20))
    got, framework = memory.calibrated(parts, peak, memory.Shares(0.0, 0.8, 1.0, noise))
    assert got == pytest.approx(share)
    assert framework + parts.tensors * (1 + got) == pytest.approx(peak)


# --- time -----------------------------------------------------------------------------------------


def test_work_counts_the_update_once_and_each_micro_batch():
    one = row(10, 300).model_copy(
        update={"moved_bytes": 3000, "operations": 30, "update_moved_bytes": 1000, "update_operations": 10}
    )
    # 10 us of operations, 2 us of bytes and 20 us of overhead each; 1 us of bytes and 10 us of overhead once.
    assert timing.work_s(one, 1, RATES) == pytest.approx(43e-6)
    assert timing.work_s(one, 4, RATES) == pytest.approx(139e-6)


def test_the_time_of_another_step_grows_with_its_work_and_by_the_error_alone():
    measured = timing.Interval(low=1.0, high=2.0)
    own, double = (timing.work_s(timing.row_at(list(THREE), batch), 1, RATES) for batch in (20, 40))
    assert timing.scaled(measured, own, own, 0.2) == measured
    scaled = timing.scaled(measured, own, double, 0.2)
    assert (scaled.low, scaled.high) == (pytest.approx(1.6), pytest.approx(4.8))
