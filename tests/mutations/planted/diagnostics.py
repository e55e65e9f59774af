"""Faults planted in `mltrainer/diagnostics`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "R2's gap needs no rise of the validation loss",
        "mltrainer/diagnostics/overfitting.py",
        "found.train > skill and risen > rise",
        "found.train > skill or risen > rise",
        "tests/diagnostics/test_overfitting.py",
    ),
    Fault(
        "the standard error is that of one sample less than a variance",
        "mltrainer/diagnostics/overfitting.py",
        "return math.sqrt(share * (1 - share) / samples)",
        "return share * (1 - share) / samples",
        "tests/diagnostics/test_overfitting.py",
    ),
    Fault(
        "the bound on the accuracy is taken from a weighted loss",
        "mltrainer/diagnostics/overfitting.py",
        "for accuracy, least in pairs) or _is_weighted(run):",
        "for accuracy, least in pairs):",
        "tests/diagnostics/test_overfitting.py",
    ),
    Fault(
        "progress of the metric is lost where the loss stands still",
        "mltrainer/diagnostics/convergence_stall.py",
        "last = epochs[max(loss, metric)]",
        "last = epochs[min(loss, metric)]",
        "tests/diagnostics/test_convergence_stall.py",
    ),
    Fault(
        "a gain in the loss is absolute",
        "mltrainer/diagnostics/convergence_stall.py",
        "step = gain * abs(best) if relative and math.isfinite(best) else gain",
        "step = gain",
        "tests/diagnostics/test_convergence_stall.py",
    ),
    Fault(
        "the usual norm counts the later, small ones of a run that learned",
        "mltrainer/diagnostics/exploding_gradients.py",
        "median(medians[: place + 1]))]",
        "median(medians[place:]))]",
        "tests/diagnostics/test_exploding_gradients.py tests/diagnostics/test_recorded_runs.py",
    ),
    Fault(
        "the first observation, before caches are filled, counts as memory growth",
        "mltrainer/diagnostics/memory_growth.py",
        "rows = _recorded(run)[1:]",
        "rows = _recorded(run)",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py",
    ),
    Fault(
        "memory that grew only in the first half fires",
        "mltrainer/diagnostics/memory_growth.py",
        "late = held[-1] - held[len(held) // 2] >= grown * late_share",
        "late = True",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py",
    ),
    Fault(
        "a wait of a moment is told as starvation",
        "mltrainer/diagnostics/input_starvation.py",
        "run.data_wait > limit and not run.waited_s < least_s",
        "run.data_wait > limit",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py tests/diagnostics/test_rules.py",
    ),
    Fault(
        "the recall is a column's, the precision",
        "mltrainer/diagnostics/class_imbalance.py",
        "[ratio(row[place], sum(row)) for place, row in enumerate(run.confusion) if sum(row)]",
        "[ratio(row[n], sum(column)) for n, (row, column) in enumerate(zip(m := run.confusion, zip(*m))) if sum(column)]",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py",
    ),
    Fault(
        "the swings of a curve count its rises too",
        "mltrainer/diagnostics/loss_oscillation.py",
        "if values[before] - values[after] >= least]",
        "if abs(values[before] - values[after]) >= least]",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py tests/diagnostics/test_recorded_runs.py",
    ),
    Fault(
        "the pace of the last third is that of its evaluations",
        "mltrainer/diagnostics/undertrained.py",
        "late=late / (len(losses) - 1),",
        "late=late / len(losses),",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py tests/diagnostics/test_recorded_runs.py",
    ),
    Fault(
        "repeated training samples are taken for leakage",
        "mltrainer/diagnostics/leakage.py",
        "max(shared, times * repeated)",
        "shared",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py",
    ),
    Fault(
        "the first layer's gradient is compared with the second's",
        "mltrainer/diagnostics/vanishing_gradients.py",
        "alive = [ratio(row[0], row[-1]) for row in deep if row[0] > 0]",
        "alive = [ratio(row[0], row[1]) for row in deep if row[0] > 0]",
        "tests/diagnostics/test_vanishing_gradients.py",
    ),
    Fault(
        "labels are judged where neighbours are far, in many features",
        "mltrainer/diagnostics/label_noise.py",
        "number(run.result.train_samples) < samples * number(data.features)",
        "False",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py",
    ),
    Fault(
        "a spike is any loss above the largest before it",
        "mltrainer/diagnostics/loss_spike.py",
        "number(spike.loss) > times_largest * number(spike.largest_before) and",
        "number(spike.loss) > number(spike.largest_before) and",
        "tests/diagnostics/test_observed.py tests/diagnostics/test_firing.py",
    ),
    Fault(
        "of many evaluations the last one is not among those by which memory is judged",
        "mltrainer/diagnostics/memory_growth.py",
        "last = len(rows) - 1\n",
        "last = len(rows) - 2\n",
        "tests/diagnostics/test_firing.py",
    ),
    Fault(
        "the step of a norm is that of another evaluation",
        "mltrainer/diagnostics/exploding_gradients.py",
        "run.step_at(place) if fired",
        "run.step_at(place - 1) if fired",
        "tests/diagnostics/test_exploding_gradients.py",
    ),
)
