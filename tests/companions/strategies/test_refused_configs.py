"""What does not go with a strategy is refused with the config, before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainers.native.digits_runs import config

ADVERSARIAL = {"name": "adversarial", "epsilon": 0.1}
BALANCING, CONTRASTIVE, LORA = ({"name": name} for name in ("balancing", "contrastive", "lora"))
GRADIENTS = {**BALANCING, "method": "gradients"}
MASKED, ROUNDED = {"name": "masked"}, {"name": "quantization"}
TAUGHT = {"name": "distillation", "teacher": {"weights": "teacher.pt"}}
AVERAGED = {"name": "distillation", "teacher": {"ema": 0.8}}
PAIRED = {**TAUGHT, "features": [{"student": "1", "teacher": "2"}], "feature_weight": 0.3}
EMA, START = {"averaging": {"name": "ema"}}, {"start": {"weights": "w.pt"}}
DIGITS = {"task": {"kind": "image_classification"}, "data": {"source": "sklearn:digits"}, "model": {"name": "mlp"}}
TABLE = {"task": {"kind": "tabular_regression"}, "data": {"source": "d.csv", "target": "y"}, "model": {"name": "mlp"}}
TEXTS = {"task": {"kind": "text_classification"}, "data": {"source": "x.csv"}, "model": {"name": "transformer"}}


def shared(parallel: str) -> dict[str, Any]:
    return {"accumulate": 2, "batch_size": 4, "launch": {"processes": 2, "parallel": parallel}}


REFUSED: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([ADVERSARIAL], {"compile": True}, "adversarial, which goes through the model again in a step, does not go with"),
    ([ADVERSARIAL], {"tensor_parallel": 2}, "adversarial, which goes through the model again in a step, does not go with"),
    ([ADVERSARIAL], shared("fsdp"), "adversarial, which goes through the model again"),
    ([ADVERSARIAL], shared("pipeline"), "adversarial, which goes through the model again"),
    ([{**ADVERSARIAL, "limits": [1, 0]}], {}, "are in the wrong order"),
    (
        [{**ADVERSARIAL, "method": "trades", "weight": 0.5}],
        {},
        "weight: 0.5 has no meaning for method: trades; give beta",
    ),
    ([{**ADVERSARIAL, "beta": 3}], {}, "beta: 3.0 has no meaning for method: pgd; give weight instead"),
    (
        [{**ADVERSARIAL, "layer": "codes"}],
        {"gradient_checkpointing": ["codes"]},
        "adversarial, which changes what a layer gives, does not go with gradient_checkpointing",
    ),
    ([BALANCING], TABLE, "tabular_regression has one; tabular_multitask has several"),
    ([{**BALANCING, "aggregator": "mgda"}], {}, "aggregator: mgda belongs to method: gradients"),
    ([BALANCING, LORA], {}, "balancing and lora both change or freeze the model"),
    ([BALANCING], EMA, "does not go with averaged weights"),
    ([GRADIENTS], {"gradient_checkpointing": ["0"]}, "does not go with gradient_checkpointing"),
    ([GRADIENTS], {"precision": "fp16"}, "before that is scaled, does not go with precision: fp16"),
    ([GRADIENTS], {"compile": True}, "in a step, does not go with compile"),
    ([GRADIENTS], shared("fsdp"), "balancing, which goes through the model again"),
    ([GRADIENTS], shared("pipeline"), "balancing, which goes through the model again"),
    ([GRADIENTS, ADVERSARIAL], {}, "adversarial with weight: 1 leaves nothing of the task's own loss"),
    ([LORA, CONTRASTIVE], START, "lora and contrastive both change or freeze the model"),
    ([CONTRASTIVE], shared("fsdp"), "contrastive, which goes through the model again"),
    ([CONTRASTIVE], shared("pipeline"), "contrastive, which goes through the model again"),
    ([TAUGHT, TAUGHT], {}, "distillation is listed twice"),
    ([{**TAUGHT, "teacher": {"weights": "t", "model": {"name": "mlp"}}}], {}, "makes its teacher in teacher"),
    ([PAIRED], {"compile": True}, "reads the model's layers, does not go with compile"),
    ([PAIRED], {"gradient_checkpointing": ["0"]}, "does not go with gradient_checkpointing"),
    ([PAIRED], shared("fsdp"), "the strategy distillation, which reads the model's layers"),
    ([PAIRED], shared("pipeline"), "the strategy distillation, which reads"),
    ([{**PAIRED, "features": []}], {}, "feature_weight: 0.3 weighs features"),
    ([AVERAGED], shared("fsdp"), "the average of whole parameters"),
    ([AVERAGED], shared("pipeline"), "the average of whole parameters"),
    (
        [AVERAGED],
        {"tensor_parallel": 2, "launch": {"processes": 2}},
        "average of whole parameters, does not go with tensor_parallel",
    ),
    ([AVERAGED, LORA], START, "distillation and lora both change or freeze the model"),
    ([AVERAGED, CONTRASTIVE], {}, "distillation and contrastive both change or freeze the model"),
    ([AVERAGED, BALANCING], {}, "distillation and balancing both change or freeze the model"),
    ([LORA], {**START, **EMA}, "does not go with averaged weights"),
    ([LORA], DIGITS, "name them under start"),
    ([LORA], {"start": {"weights": "w.pt", "freeze": ["^0"]}}, "lora freezes all that its key train does not name"),
    (
        [LORA],
        {"start": {"weights": "w.pt", "freeze": ["^0"], "unfreeze": [{"epoch": 2, "match": "^0"}]}},
        "lora freezes all that its key train does not name",
    ),
    ([MASKED], {**TEXTS, "model": {"name": "bag"}}, "masked needs a state for each token"),
    ([MASKED], {**TEXTS, "model": {"name": "text_cnn"}}, "masked needs a state for each token"),
    ([MASKED], {**TEXTS, "task": {"kind": "text_generation"}, "model": {"name": "gru"}}, "sees those before alone"),
    (
        [MASKED],
        {**TEXTS, "gradient_checkpointing": ["body"]},
        "what a layer gives, does not go with gradient_checkpointing",
    ),
    ([MASKED], {**TEXTS, "compile": True}, "in a step, does not go with compile"),
    ([MASKED], {**TEXTS, **shared("fsdp")}, "masked, which goes through the model again"),
    ([MASKED, CONTRASTIVE], TEXTS, "masked and contrastive both change or freeze the model"),
    ([MASKED, {"name": "progressive", "epochs": 2}], TEXTS, "progressive changes their size"),
    ([ROUNDED], EMA, "parts of its own, does not go with averaged weights"),
    ([ROUNDED], {"tensor_parallel": 2}, "parts of its own, does not go with tensor_parallel"),
    ([ROUNDED, CONTRASTIVE], {}, "quantization and contrastive both change"),
]


@pytest.mark.parametrize(("strategies", "changes", "message"), REFUSED)
def test_what_does_not_go_with_a_strategy_is_refused(strategies, changes, message):
    with pytest.raises(ValueError, match=message):
        config({"strategies": strategies, **changes})
