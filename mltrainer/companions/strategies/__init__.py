"""The training strategies that a config may name; `mltrainer/tasks/strategy.py` defines the interface."""

_MODULES = (
    *("adversarial", "balancing", "contrastive", "curriculum", "distillation"),
    *("lora", "masked", "progressive", "quantization"),
)
PARTS = {
    "strategies": {name: f"mltrainer.companions.strategies.{name}:{name.capitalize()}" for name in _MODULES},
    "adapters": {"reread": "mltrainer.companions.strategies.lora:reread"},
}
