"""The utilization of the GPU while steps run, sampled during training; nothing without a GPU."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from types import TracebackType

from mltrainer.records.run import Gpu

SAMPLE_S = 0.25
WARM_UP_SAMPLES = 4  # the first second: kernels are loaded, memory is allocated


class GpuWatch:
    """Samples a GPU's utilization while a block runs.

    Args:
        device: "cuda" to watch it, anything else to do nothing.
        is_stepping: The test whether training steps run now; evaluations and checkpoints are not sampled.
    """

    def __init__(self, device: str, is_stepping: Callable[[], bool]) -> None:
        self._is_cuda = device == "cuda"
        self._is_stepping = is_stepping
        self._stop = threading.Event()
        self._samples: list[int] = []
        self._name: str | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> GpuWatch:
        if self._is_cuda:
            import torch

            # Read here: each thread has its own current device, and a new thread's is the first GPU.
            device = torch.cuda.get_device_properties()
            self._name = device.name
            self._thread = threading.Thread(target=self._watch, args=(f"GPU-{device.uuid}",), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, uuid: str) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            # By its UUID: NVML and torch number GPUs in different orders.
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        # A missing package or driver leaves the utilization unknown, and must not end a training.
        except Exception:
            return
        while not self._stop.wait(SAMPLE_S):
            if self._is_stepping():
                self._samples.append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    def summary(self) -> Gpu | None:
        """Return the median utilization of the GPU after warm-up; None without a GPU."""
        if not self._is_cuda:
            return None
        steady = self._samples[WARM_UP_SAMPLES:]
        return Gpu(name=self._name, utilization=statistics.median(steady) if steady else None, samples=len(steady))
