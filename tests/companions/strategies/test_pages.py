"""Pages of the strategies: what each does not go with stands there, as the program refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from mltrainer import handbook, plugins
from mltrainer.configs.strategies import Strategy
from mltrainer.configs.strategy_limits import OWN_AVERAGE, OWN_PARTS, limits_of

# Each strategy as it is refused the most, with the settings that all of them together need.
FORMS: dict[str, list[dict[str, Any]]] = {
    "distillation": [
        {"teacher": {"weights": "t.pt"}, "features": [{"student": "a", "teacher": "b"}]},
        {"teacher": {"ema": 0.9}},
    ],
    "lora": [{}],
    "adversarial": [{"epsilon": 0.1, "layer": "a"}],
    "curriculum": [{"epochs": 1}],
    "contrastive": [{}],
    "masked": [{}],
    "progressive": [{"epochs": 2}],
    "balancing": [{}, {"method": "gradients"}],
    "quantization": [{}],
}
WORDS = {"averaged weights": "averaged weights", "precision: fp16": "fp16"}


def settings(name: str) -> list[Any]:
    return [TypeAdapter(Strategy).validate_python({"name": name, **form}) for form in FORMS[name]]


def page(name: str) -> str:
    return " ".join(handbook.read_page(f"configs/strategies/{name}.md", Path()).body.lower().split())


def test_each_strategy_is_looked_at():
    assert FORMS.keys() == plugins.parts("strategies").keys()


@pytest.mark.parametrize("name", plugins.parts("strategies"))
def test_a_page_names_what_its_strategy_does_not_go_with(name):
    excluded = {word for one in settings(name) for limit in limits_of(one, None) for word in limit.excludes}
    assert [word for word in sorted(excluded) if WORDS.get(word, word) not in page(name)] == []


@pytest.mark.parametrize("name", plugins.parts("strategies"))
def test_a_page_names_the_strategies_that_change_the_model_too(name):
    def changes(one: str) -> bool:
        return any(limit.does in (OWN_PARTS, OWN_AVERAGE) for form in settings(one) for limit in limits_of(form, None))

    others = [one for one in plugins.parts("strategies") if one != name and changes(one)] if changes(name) else []
    assert [one for one in others if f"`{one}`" not in page(name)] == []
