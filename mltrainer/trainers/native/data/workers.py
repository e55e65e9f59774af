"""The number of loader processes that a run needs: the samples per second of each number of them against the steps' need."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from mltrainer.configs.project import MOST_WORKERS, TrainingConfig
from mltrainer.errors import MltrainerError
from mltrainer.records.planning import Loader, LoaderRow
from mltrainer.reproducibility.environment import cores
from mltrainer.tasks.opening import Samples
from mltrainer.trainers.native.data.addresses import Addresses, Plan, plan_for
from mltrainer.trainers.native.data.reading import batches_of, make_loader

ENDLESS = 10**9  # epochs of a measurement; it ends by time
BATCHES = 10  # the least number of batches read in the time of a measurement
HANGING_S = 30.0  # a worker that takes this long for a batch will never finish


@dataclass(frozen=True)
class Limits:
    """The limits of the search.

    Attributes:
        seconds: The seconds of measuring each number of processes, without their start.
        largest_wait: The share of the time that steps may wait for data.
        least_s: The least seconds of reading all the run's samples; below it, starting processes does not pay.
    """

    seconds: float
    largest_wait: float
    least_s: float


def workers_needed(samples: Samples, config: TrainingConfig, step_s: float, limits: Limits) -> Loader:
    """Measure the loader with 0, 1, 2, 4, ... processes, up to one for each core, until the steps do not wait.

    Args:
        samples: The training split's samples.
        config: The config, with batch size, epochs, seed and loader; the loader's `workers` is ignored.
        step_s: The seconds of a step without its wait for data.
        limits: The limits of the search.
    """
    if samples.tensors is not None:
        return Loader(workers=0, in_memory=True, rows=[])
    plan = plan_for(config, samples)
    needed = min(plan.samples, plan.step_samples) / max(step_s, 1e-9)
    batch_size = _batch_size(samples, config, limits.seconds)
    rows = [_row(samples, config, 0, batch_size, limits.seconds, needed)]
    reading_s = plan.samples * plan.epochs / (rows[0].samples_per_s or math.inf)
    most = 1 if samples.is_stream else cores()  # one process reads a stream, in its order
    for workers in counts(most) if reading_s >= limits.least_s else []:
        if rows[-1].wait is None or rows[-1].wait <= limits.largest_wait:
            break
        rows.append(_row(samples, config, workers, batch_size, limits.seconds, needed))
    chosen = choose(rows, limits.largest_wait)
    return Loader(workers=chosen, in_memory=False, rows=rows, needed_per_s=needed, reading_s=reading_s)


def counts(cores: int) -> list[int]:
    """Return the numbers of processes to measure: doubled each time, the last one equal to the number of cores."""
    most = min(cores, MOST_WORKERS)
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def expected_wait(workers: int, rate: float, needed: float) -> float:
    """Return the share of the time that steps wait: for all reading without workers, else only for missing samples."""
    return needed / (needed + rate) if workers == 0 else max(0.0, 1 - rate / needed)


def choose(rows: list[LoaderRow], largest_wait: float) -> int:
    """Return the smallest number without waiting steps; if there is none, the one with the shortest wait."""
    waits = {row.workers: row.wait for row in rows if row.wait is not None}
    fed = [workers for workers, wait in waits.items() if wait <= largest_wait]
    return fed[0] if fed else min(waits, key=waits.__getitem__, default=0)


def _row(samples: Samples, config: TrainingConfig, workers: int, batch_size: int, seconds: float, needed: float) -> LoaderRow:
    loader = config.loader.model_copy(update={"workers": workers})
    try:
        rate = _rate(samples, config.model_copy(update={"loader": loader}), batch_size, seconds)
    except (MltrainerError, RuntimeError) as error:  # from the data set, or from a process that died or hangs
        return LoaderRow(workers=workers, error=str(error).partition("\n")[0])
    return LoaderRow(workers=workers, samples_per_s=rate, wait=expected_wait(workers, rate, needed))


def _batch_size(samples: Samples, config: TrainingConfig, seconds: float) -> int:
    """Return the config's batch size, or a smaller one if a batch would take too long to read."""
    addresses = Addresses(Plan(samples.slots, 1, 1, ENDLESS), samples, config.seed, 0)
    here = config.model_copy(update={"loader": config.loader.model_copy(update={"workers": 0})})
    batches = batches_of(make_loader(samples, here, "sample", addresses), torch.device("cpu"))
    durations: list[float] = []
    end = time.perf_counter() + seconds / BATCHES
    while not durations or time.perf_counter() < end:
        begun = time.perf_counter()
        next(batches)
        durations.append(time.perf_counter() - begun)
    return max(1, min(config.batch_size, int(seconds / BATCHES / min(durations))))


def _rate(samples: Samples, config: TrainingConfig, batch_size: int, seconds: float) -> float:
    """Return the samples per second that a loader delivers, without those that its processes read while they started."""
    addresses = Addresses(Plan(samples.slots, batch_size, 1, ENDLESS), samples, config.seed, 0)
    batches = batches_of(make_loader(samples, config, "sample", addresses, timeout_s=HANGING_S), torch.device(config.device))
    # This many batches may be ready when counting begins, and would look like speed.
    for _ in range(1 + config.loader.processes * config.loader.prefetch):
        next(batches)
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        next(batches)
        count += min(batch_size, len(samples))
    return count / elapsed
