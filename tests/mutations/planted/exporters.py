"""Faults planted in `mltrainer/exporters`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a quantized model is calibrated on validation rows",
        "mltrainer/exporters/quantized.py",
        '    samples = task.split("train")',
        '    samples = task.split("validation")',
        "tests/exporters/test_quantized.py::test_it_is_calibrated_on_training_rows_that_the_seed_draws",
    ),
    Fault(
        "the first training rows calibrate, whatever the seed",
        "mltrainer/exporters/quantized.py",
        'places = drawn(len(samples), most, config.seed, "calibrate")',
        "places = [*range(min(most, len(samples)))]",
        "tests/exporters/test_quantized.py::test_it_is_calibrated_on_training_rows_that_the_seed_draws",
    ),
    Fault(
        "the trained model's own metric is taken for the quantized one's",
        "mltrainer/exporters/quantized.py",
        "        return _replaced(outputs, found)",
        "        return outputs if found else None",
        "tests/exporters/test_quantized.py::test_answers_take_their_places_in_the_models_outputs",
    ),
    Fault(
        "after a metric was measured, formats are made of a model in training mode",
        "mltrainer/exporters/quantized.py",
        "        model.cpu().eval()  #",
        "        model.cpu()  #",
        "tests/exporters/test_quantized.py::test_formats_after_it_are_made_of_a_model_in_evaluation_mode",
    ),
    Fault(
        "an untrained model is judged by a metric that it never had",
        "mltrainer/exporters/quantized.py",
        "        if job.checkpoint is None:",
        "        if job.checkpoint == '':",
        "tests/exporters/test_quantized.py::test_planning_tries_it_without_a_metric",
    ),
    Fault(
        "batch-norm statistics of averaged weights are not measured anew",
        "mltrainer/exporters/combining.py",
        "        if self.statistics:",
        "        if not self.statistics:",
        "tests/phases/test_combining.py::test_a_greedy_mean_is_of_what_its_members_have_and_batch_norm_is_measured_anew",
    ),
    Fault(
        "the same model is combined with itself",
        "mltrainer/exporters/combining.py",
        "if twin is not one:",
        "if False:",
        "tests/phases/test_combining.py -k search",
    ),
)
