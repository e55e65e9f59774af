"""The speed of a run, with the operations of a sample: counted once, when no bit of the run can change any more."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mltrainer.configs.pages import peak_flops_per_s
from mltrainer.records.run import Speed
from mltrainer.redaction import redact
from mltrainer.tasks.structures import length
from mltrainer.trainers.native.optimization.precision import choose, full
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.signals.observing import LEAST_SAMPLES, Watch, batch_of, forwarded
from mltrainer.workspace import OF_MANY


def speed_of(session: Session, *, counts: bool) -> Speed:
    """Return the speed of a run that has ended, by the times that its steps were measured with.

    Args:
        session: The session after its training, with the whole model in this process.
        counts: Whether operations are counted, of which a run of a search needs none.
    """
    rates = [row["samples_per_s"] for row in session.trainer.history]
    return Speed(
        samples_per_s=statistics.median(rates) if rates else None,
        tokens_per_sample=session.tokens_per_sample,
        flops_per_sample=_flops_per_sample(session) if counts and session.job.phase not in OF_MANY else None,
        peak_flops_per_s=_peak(session),
    )


def _peak(session: Session) -> float | None:
    """Return the peak rate of all processes' devices; of a CPU none is known."""
    config = session.config
    if config.device != "cuda":
        return None
    chosen = choose(config.precision, config.device).chosen
    peak = peak_flops_per_s(torch.cuda.get_device_name(), chosen, session.root)
    return None if peak is None else peak * session.ranks.size


@contextlib.contextmanager
def _counted_kernels(device: str) -> Iterator[None]:
    """Have PyTorch take the kernels that its counter knows: no fused attention on a CPU, no recurrent layers of cuDNN."""
    attention = sdpa_kernel(SDPBackend.MATH) if device == "cpu" else contextlib.nullcontext()
    with attention, torch.backends.cudnn.flags(enabled=False):
        yield


def _flops_per_sample(session: Session) -> float | None:
    """Return the operations of a sample, of few of which the loss goes forward and backward; None if the model refuses that.

    None, too, of a compiled model, whose kernels the counter does not see, and of one that computes activations again, which
    are no operations of a sample (Chowdhery et al., 2022, arXiv 2204.02311, appendix B).
    """
    config, task, model = session.config, session.task, session.model
    if config.compile or config.gradient_checkpointing:
        return None
    trained = [p for p in model.parameters() if p.requires_grad]
    try:
        batch = batch_of(task, config, "train", Watch(1, min(config.batch_size, LEAST_SAMPLES)))
        counter = FlopCounterMode(display=False)
        with (
            counter,
            _counted_kernels(config.device),
            forwarded(task.task, model, config, batch, training=True) as (outputs, target),
        ):
            torch.autograd.grad(task.task.loss(full(outputs), target), trained, allow_unused=True)
        return float(counter.get_total_flops()) / length(batch)
    except Exception as error:  # from the user's code, which the counter may disturb: the run is complete without a count
        why = f"{type(error).__name__}: {redact(str(error))}"
        session.events.send("note", text=f"the operations of a sample were not counted: {why}")
        return None
