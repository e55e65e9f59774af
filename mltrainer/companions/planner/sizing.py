"""The memory of a traced config and of the other ways to train it, and the way that fits: from a trace and a measured peak."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

from pydantic import Field

from mltrainer.companions.planner import memory
from mltrainer.companions.planner.memory import Parts, Setup
from mltrainer.companions.planner.recommendation import Choice, Recommendation, Way, largest, recommend
from mltrainer.configs.loading import assign, validate_values
from mltrainer.configs.pages import Device
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.common import Part
from mltrainer.records.planner import Precise, Traced, TracedVariant, Variant

MIB = 2**20
EIGHT_BIT = "adamw_8bit"
RECOMPUTED = "gradient_checkpointing"
SAVES_NOTHING = "it holds fewer tensors, but on a CPU no resident memory was seen to be saved by it: the heap keeps the holes"


def variants(config: TrainingConfig) -> list[Variant]:
    """Return the variants that are traced: the config's own, and on it each other precision that its device computes well."""
    own: Precise = "fp32" if config.precision == "auto" else config.precision
    others: list[Precise] = ["fp32", "bf16"]
    names = [own, *(name for name in others if name != own)]
    return [Variant(precision=name, recomputed=config.gradient_checkpointing) for name in names]


class Sizing:
    """Memory of one process of a training, by micro-batch and way.

    Args:
        config: The config.
        traced: Its trace.
        settings: The planner's settings.
        processes: Number of processes that train together.
        device: Device whose memory is planned with; None: this machine.
    """

    def __init__(
        self, config: TrainingConfig, traced: Traced, settings: PlannerSettings, processes: int, device: Device | None = None
    ) -> None:
        self.config, self.traced, self.settings = config, traced, settings
        self.processes, self.device = processes, device
        self.own = traced.variants[0]
        self.samples = config.batch_size * config.accumulate
        self._share: float | None = None  # the allocator's share, once measured
        self._framework_bytes = traced.resident_bytes + settings.first_use_mb * MIB

    def calibrate(self, peak_bytes: float) -> None:
        """Calibrate the allocator's share and the framework's bytes by the measured peak of the config's steps."""
        limits = self.settings
        noise = limits.noise_mb * MIB
        shares = memory.Shares(limits.fragmentation_low, limits.fragmentation_usual, limits.fragmentation_high, noise)
        parts = self.own_parts(self.config.batch_size)
        self._share, self._framework_bytes = memory.calibrated(parts, peak_bytes, shares)

    def own_parts(self, batch: int) -> Parts:
        """Return the parts of the config's own way with a micro-batch."""
        return self._parts(self.own, self._setup(batch, self.config.accumulate))

    def device_bytes(self, batch: int) -> float:
        """Return the bytes that a device's memory holds: the tensors; framework, data and checkpoints are in the host's."""
        parts = self.own_parts(batch)
        return parts.tensors - parts.copies + self.traced.own.layer_bytes

    @property
    def checkpoints(self) -> int:
        """Checkpoints that are held at once."""
        return memory.checkpoints(self.traced.samples, self.samples, self.settings.probe_steps)

    def _setup(self, batch: int, accumulate: int, **others: Any) -> Setup:
        parallel = self.config.launch.parallel
        shared = parallel if parallel in ("zero1", "fsdp") else "ddp"
        own = {"processes": self.processes, "parallel": shared, "observes": self.config.signals, "checkpoints": self.checkpoints}
        return Setup(batch, accumulate, **{**own, **others})

    def _parts(self, variant: TracedVariant, setup: Setup) -> Parts:
        """Return parts with the libraries' memory, and with the allocator's measured share, else the page's largest."""
        parts = replace(memory.parts(self.traced, variant, setup), framework=self._framework_bytes)
        if self._share is None:
            return memory.with_fragmentation(parts, self.settings.fragmentation_high)
        whole = memory.with_fragmentation(parts, self._share)
        if variant is self.own and setup == self._setup(self.config.batch_size, self.config.accumulate):
            return whole
        return replace(whole, fragmentation=whole.fragmentation + whole.total * self.settings.headroom)

    def _on_the_device(self, parts: Parts, device: Device) -> Parts:
        """Return the parts in a device's memory: checkpoints, data and Python are in the host's."""
        framework = float(device.framework_mb.value or 0) * MIB
        return replace(parts, copies=self.traced.own.layer_bytes, framework=framework, fragmentation=0.0)

    def ways(self) -> list[Way]:
        """Return the ways to train, the config's own first, the cheapest first."""
        ways = [self._way("as it is", {}, self.own)]
        for variant in self.traced.variants[1:]:
            changes: dict[str, Any] = {}
            if variant.variant.precision != self.own.variant.precision:
                changes["precision"] = variant.variant.precision
            if variant.variant.recomputed != self.own.variant.recomputed:
                changes[RECOMPUTED] = variant.variant.recomputed
            ways.append(self._way(_named(changes), changes, variant))
        # Changes that leave the numbers as they are come first.
        ways.sort(key=lambda way: len({"precision"} & way.changes.keys()))
        if self.config.optimizer.name in ("adam", "adamw") and not self.own.not_known:
            state = memory.eight_bit_bytes(self.traced)
            ways.append(self._way("8-bit AdamW", {"optimizer.name": EIGHT_BIT}, self.own, optimizer_bytes=state))
        for parallel in ("zero1", "fsdp") if self.processes > 1 else ():
            method = {"zero1": "ZeRO-1", "fsdp": "FSDP2"}[parallel]
            ways.append(self._way(f"{method} over {self.processes}", {"launch.parallel": parallel}, self.own, parallel=parallel))
        return ways

    def _way(self, name: str, changes: dict[str, Any], variant: TracedVariant, **setup: Any) -> Way:
        if self.processes > 1:
            changes = {**changes, "launch.processes": self.processes}
        if variant.not_known:
            return Way(name, changes, None, not_known=variant.not_known)

        def parts(batch: int, accumulate: int) -> Parts:
            found = self._parts(variant, self._setup(batch, accumulate, **setup))
            return self._on_the_device(found, self.device) if self.device else found

        return Way(name, changes, parts, refused=self._refused(changes))

    def _refused(self, changes: dict[str, Any]) -> str | None:
        """Return the reason why the trainer cannot take the config with some changes; None: it can."""
        sizes = {"batch_size": 1, "accumulate": self.samples} if self.processes > 1 else {}
        if RECOMPUTED in changes and not self.device:
            return SAVES_NOTHING
        if changes.get("optimizer.name") == EIGHT_BIT and importlib.util.find_spec("bitsandbytes") is None:
            return 'bitsandbytes is not installed: pip install "mltrainer[eightbit]"'
        values = assign(self.config.model_dump(), {**changes, **sizes}.items())
        try:
            validate_values(TrainingConfig, values, "the planned config")
        except InputError as error:
            return error.message.replace("the planned config: ", "")
        return None

    def variant_of(self, way: Way) -> TracedVariant:
        """Return the variant that was traced for a way, by its precision and whether blocks are computed again."""
        own = self.own.variant
        recomputed, precision = way.changes.get(RECOMPUTED, own.recomputed), way.changes.get("precision", own.precision)
        wanted = own.model_copy(update={"recomputed": recomputed, "precision": precision})
        return next(variant for variant in self.traced.variants if variant.variant == wanted)

    def recommended(self, ways: list[Way], limit_bytes: float | None, limit: str) -> tuple[list[Choice | None], Recommendation]:
        """Return the largest micro-batch of each way within a limit, and the way to take.

        Args:
            ways: The result of `ways`.
            limit_bytes: Limit of one process, in bytes; None if unknown.
            limit: The limit in words, or the reason why it is unknown.
        """
        if limit_bytes is None or self.own.not_known:
            reason = f"no recommendation: {self.own.not_known or limit}"
            return [None for _ in ways], Recommendation(None, {}, reason)
        choices = [largest(way, self.samples, limit_bytes, self.processes, self.traced.samples) for way in ways]
        return choices, recommend(choices, self.config.batch_size, self.config.accumulate, limit)


def _named(changes: dict[str, Any]) -> str:
    words = {"precision": str(changes.get("precision")), RECOMPUTED: "blocks computed again"}
    return ", ".join(words[key] for key in changes) or "as it is"


class PlannerSettings(Part):
    """Shares, bytes and steps.

    Attributes:
        first_use_mb: Memory that the libraries take at their first computation, in MiB; measured.
        fragmentation_low: Smallest share of all tensors that the C library's allocator took beyond them; measured.
        fragmentation_usual: Median of these shares.
        fragmentation_high: Largest of these shares.
        noise_mb: Difference in memory of two starts of the same process, in MiB; measured.
        headroom: Share of the whole process that is added if another batch or way is derived from measured steps.
        memory_share: Share of a memory that may be planned with.
        time_error: Relative error of another batch's time; measured.
        probe_steps: Number of measured real steps.
        stale_days: Age at which a price is reported as old, in days.
    """

    first_use_mb: float
    fragmentation_low: float
    fragmentation_usual: float
    fragmentation_high: float
    noise_mb: float
    headroom: float = Field(0.0, description="pages of a team's own that were copied before it have none")
    memory_share: float
    time_error: float
    probe_steps: int
    stale_days: float
