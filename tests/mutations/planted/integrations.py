"""Faults planted in `mltrainer/integrations`."""

from __future__ import annotations

from tests.mutations.fault import Fault

DIGESTS = "tests/integrations/test_reporting.py -k digest"
TOLD = "tests/integrations/test_reporting.py"
FAULTS = (
    Fault(
        "a batch's digest does not know the names of its parts",
        "mltrainer/integrations/batches.py",
        "        yield list(map(str, value))\n",
        "        yield len(value)\n",
        DIGESTS,
    ),
    Fault(
        "a batch's digest does not know which parts are a list's",
        "mltrainer/integrations/batches.py",
        "        yield len(value)\n        for part in value:",
        "        for part in value:",
        DIGESTS,
    ),
    Fault(
        "a batch's digest does not know the type of its numbers",
        "mltrainer/integrations/batches.py",
        "yield [str(value.dtype), list(value.shape)]",
        "yield list(value.shape)",
        DIGESTS,
    ),
    Fault(
        "the first number of a batch on a device counts for nothing",
        "mltrainer/integrations/batches.py",
        "torch.arange(1, len(bits) + 1, device=bits.device)",
        "torch.arange(0, len(bits), device=bits.device)",
        "tests/integrations/test_reporting.py -k bits_on_a_device",
    ),
    Fault(
        "of a step's batches those that are known are told as if they were all",
        "mltrainer/integrations/batches.py",
        "if known and len(known) == len(digests):",
        "if known:",
        TOLD,
    ),
    Fault(
        "a step's loss is summed where it is a mean",
        "mltrainer/integrations/reporting_transformers.py",
        "self._is_known |= self._step.tell(state.global_step, mean=self._is_mean)",
        "self._is_known |= self._step.tell(state.global_step)",
        "tests/integrations/test_reporting.py -k losses_told",
    ),
    Fault(
        "rates are told as metrics",
        "mltrainer/integrations/reporting_transformers.py",
        'NOT_MEASURED = ("epoch", "runtime", "_per_second",',
        'NOT_MEASURED = ("epoch", "runtime",',
        "tests/integrations/test_reporting.py -k metrics_told",
    ),
    Fault(
        "the epoch of a batch is that before it",
        "mltrainer/integrations/reporting_lightning.py",
        "(batch_idx + 1) / trainer.num_training_batches",
        "batch_idx / trainer.num_training_batches",
        "tests/integrations/test_reporting.py -k lightning",
    ),
)
