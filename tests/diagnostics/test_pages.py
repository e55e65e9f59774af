"""Page and module: paired by id, thresholds read by the rule, commands that the config accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer import handbook
from mltrainer.configs.loading import assign, parse_assignment
from mltrainer.configs.pages import diagnostic_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.diagnostics.rules import RULES, diagnose, page_path, shipped_pages, suggested_changes
from mltrainer.diagnostics.signals import Run
from tests.diagnostics.conftest import RECORDED
from tests.diagnostics.firing import FIRING, UNLEARNED, curve, holding, stepping
from tests.diagnostics.observed import OBSERVED, beside, exploded, observed, of_numbers, of_sorted_numbers, unlearned
from tests.diagnostics.test_observed import FAULTS, TRAPS

SECTIONS = ["Signs", "Check", "Fix", "Limits"]
CONFIG: dict[str, Any] = {
    "name": "p",
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
}


class Watched(float):
    """A threshold that notes whether a rule calculated with it."""

    is_used = False


def noting(name: str) -> Callable[..., Any]:
    def calculate(self: Watched, *others: Any) -> Any:
        self.is_used = True
        return getattr(float, name)(self, *others)

    return calculate


for operation in ("lt", "le", "gt", "ge", "mul", "rmul", "radd"):
    setattr(Watched, f"__{operation}__", noting(f"__{operation}__"))


def body(name: str) -> str:
    return handbook.read_page(page_path(name), None).body


ELSEWHERE = {"class_numbering": "test_beside_constant.py", "wrong_setup": "test_causes.py"}


def test_each_rule_has_a_faulty_run_beside_healthy_ones():
    here = Path(__file__).parent
    own = {name for name in RULES if (here / ELSEWHERE.get(name, f"test_{name}.py")).is_file()}
    faulty, healthy = {name for name, _, _ in FAULTS}, {name for name, _, _ in TRAPS}
    missing = set(RULES) - own - {*FIRING} - faulty
    assert not missing, f"add a run on which {sorted(missing)} fires: to FAULTS of test_observed.py, or in test_<rule>.py"
    missing = faulty - own - {*FIRING} - healthy
    assert not missing, f"add a healthy run that looks like {sorted(missing)}: to TRAPS of test_observed.py"


def test_every_page_has_a_rule_and_every_rule_a_page():
    assert shipped_pages() == sorted(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_page_names_its_module_and_a_finding_its_page(name):
    assert diagnostic_page(name, None).diagnostic == name
    assert RULES[name].__module__ == f"mltrainer.diagnostics.{name}"
    assert [row.page for row in diagnose(Run.of({}), None) if row.id == name] == [page_path(name)]


@pytest.mark.parametrize("name", RULES)
def test_every_threshold_decides_something(name):
    thresholds = {key: Watched(value) for key, value in diagnostic_page(name, None).thresholds.items()}
    by_loss = {"history": [{"train": {"loss": 1.0}, "validation": {"loss": 2.0}}]}
    gpu, features = {"gpu": {"utilization": 20}}, {"history": [{"validation": {"feature_spread": 0.4}}]}
    opposed = observed(**{f"history__{nr}__signals__cosines": {"near, far": -0.9} for nr in range(10)})
    still = {f"history__{nr}__update_ratios": [0.0, 0.0] for nr in range(10)}
    negative = observed(history__4__train_loss=-3.0, signals__start__model__training_calls=["dropout of 0.5"], **still)
    binary = observed(history__4__train_loss=-3.0, signals__start__model__as_binary=2.0)
    creeping = stepping(curve([0.7 - 0.0005 * n for n in range(12)], UNLEARNED), *[1e-4] * 6)
    layers = {str(nr): {"bits": 32} for nr in range(3)}
    precision = {"asked": "bf16", "chosen": "bf16", "reason": ""}
    lowered = observed(precision=precision, signals__start__model__modules=layers)
    too_small = observed(precision={**precision, "chosen": "fp16"}, signals__start__model__reached=["0.weight"])
    rare = observed(signals__start__data__counts=None, history__9__signals__validation__by_class=[[90, 80, 90], [12, 1, 90]])
    rare["signals"]["early"].pop("counts", None)
    held = observed(layers=[], signals__start__model__weights={"0": 0.58})
    recorded = [entry["run"] for entry in RECORDED.values()]
    for run in [
        *recorded,
        by_loss,
        gpu,
        features,
        opposed,
        of_sorted_numbers(),
        beside(2.3, constant=2.3, linear=1.0),
        negative,
        too_small,
        binary,
        held,
        creeping,
        lowered,
        rare,
        OBSERVED,
        unlearned(),
        exploded(),
        of_numbers(),
        holding(*[100.0 + 4 * nr for nr in range(8)], what="allocated_mb"),
        *FIRING.values(),
    ]:
        RULES[name](Run.of(run, config=CONFIG), **thresholds)
    assert [key for key, threshold in thresholds.items() if not threshold.is_used] == []


@pytest.mark.parametrize("name", RULES)
def test_every_threshold_has_a_source(name):
    page = diagnostic_page(name, None)
    sourced = {name for source in page.sources for name in source.partition(" - ")[0].split(", ")}
    assert set(page.thresholds) <= sourced


@pytest.mark.parametrize("name", RULES)
def test_a_page_answers_its_readers_questions_in_order(name):
    assert re.findall(r"^## (.+)$", body(name), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("name", RULES)
def test_every_command_of_a_page_sets_what_the_config_knows(name):
    commands = re.findall(r"^ *\$ (mltrainer phase run planning .+)$", body(name), re.MULTILINE)
    for command in [*commands, *re.findall(r"`(--set .+?)`", body(name))]:
        words = shlex.split(command)
        config = CONFIG
        for place in (n for n, word in enumerate(words) if word == "--set"):
            config = assign(config, [parse_assignment(words[place + 1])])
        defaults = TrainingConfig.model_validate(CONFIG).model_dump()
        TrainingConfig.model_validate(_merged(defaults, config))


def _merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    inner = {k: _merged(values[k], v) for k, v in changes.items() if isinstance(v, dict) and isinstance(values.get(k), dict)}
    return {**values, **changes, **inner}


@pytest.mark.parametrize("name", [name for name, entry in RECORDED.items() if entry["must"]])
def test_every_suggested_change_is_a_valid_config(name):
    config = TrainingConfig.model_validate(CONFIG).model_dump()
    for change in suggested_changes(diagnose(Run.of(RECORDED[name]["run"]), None), config):
        assert TrainingConfig.model_validate(assign(config, change.set.items()))


def test_links_between_the_pages_lead_somewhere():
    texts = [body(name) for name in RULES] + [handbook.read_page("diagnostics/README.md", None).body]
    targets = {target for text in texts for target in re.findall(r"\]\((\w+)\.md\)", text)}
    assert targets <= set(RULES)
