"""The learning rate and the warm-up that are usual where a model of this size begins with given weights, beside the config's own.

It is advice: no gate reads it. The numbers stand with their sources in planning's page.
"""

from __future__ import annotations

import math

from mltrainer.configs.items import PlanningSettings
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.planning import FineTuning, Usual
from mltrainer.records.run import ProbeResult

ADAM = ("adam", "adamw", "nadam", "radam")  # the rates are theirs: SGD and Lion take others by orders of magnitude
TRANSFORMERS = "mltrainer.integrations.transformers:"
OF_THEIR_OWN = ("own", "one_cycle", "sequence")  # schedules that rise by themselves, or whose parts do


def fine_tuning(config: TrainingConfig, probe: ProbeResult, settings: PlanningSettings) -> FineTuning | None:
    """Return the usual ranges beside the config's values; None of drawn weights, of adapters, and of other optimizers.

    Args:
        config: The config.
        probe: What a probe of it showed: parameters, and the steps of the whole run.
        settings: Planning's.
    """
    if config.optimizer.name not in ADAM or not begins_with_weights(config):
        return None
    low, high = _rates(probe.parameters, settings)
    lr = config.optimizer.lr
    proposed = None if low <= lr <= high else min(max(lr, low), high)
    rate = Usual(low=low, high=high, value=lr, key="optimizer.lr", proposed=proposed)
    return FineTuning(parameters=probe.parameters, rate=rate, warmup=_warmup(config, probe, settings))


def begins_with_weights(config: TrainingConfig) -> bool:
    """Return True if all of a model's weights are trained from given ones; adapters beside held ones take other rates."""
    if any(one.name == "lora" for one in config.strategies):
        return False
    options = config.task.options
    of_a_folder = (config.task.use or "").startswith(TRANSFORMERS) and isinstance(options.get("model"), str)
    return config.start is not None or (of_a_folder and not options.get("lora"))


def _rates(parameters: int, settings: PlanningSettings) -> tuple[float, float]:
    """Return the ends of the range of a model's size."""
    if parameters < settings.fine_tuning_small:
        return settings.rate_small_low, settings.rate_small_high
    if parameters > settings.fine_tuning_large:
        return settings.rate_large_low, settings.rate_large_high
    return settings.rate_middle_low, settings.rate_middle_high


def _warmup(config: TrainingConfig, probe: ProbeResult, settings: PlanningSettings) -> Usual | None:
    """Return the usual share of the steps for the warm-up, and the config's; None of a schedule that rises by itself."""
    low, high, steps = settings.warmup_low, settings.warmup_high, probe.planned_steps
    if config.schedule.name in OF_THEIR_OWN:
        return None
    share = config.schedule.warmed_up(steps // probe.planned_epochs) / steps
    by_epochs = bool(config.schedule.warmup_epochs)
    key = "schedule.warmup_epochs" if by_epochs else "schedule.warmup_steps"
    # Inwards: a proposal that is rounded out of the range would be advised against by the next planning.
    least, most = math.ceil(low * steps), math.floor(high * steps)
    if low <= share <= high or not 1 <= least <= most:
        return Usual(low=low, high=high, value=share, key=key, proposed=None)
    wanted = least if share < low else most
    proposed = round(wanted * probe.planned_epochs / steps, 4) if by_epochs else wanted
    return Usual(low=low, high=high, value=share, key=key, proposed=proposed)
