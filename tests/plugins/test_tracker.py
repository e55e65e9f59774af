"""A tracker of another distribution: it is sent what every tracker is, and a name that nobody has is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.beside import Beside
from mltrainer.companions.trackers.sanity_check import Rehearsal
from mltrainer.companions.trackers.sink import adapter
from mltrainer.configs import yaml
from mltrainer.configs.loading import validate, without_defaults
from mltrainer.configs.project import ProjectConfig, config_digest
from mltrainer.configs.tracking import Tracking
from mltrainer.errors import InputError
from mltrainer.records.planning import Tracker
from tests.companions.monitor.invented import PROJECT, Training, empty_project
from tests.plugins.installing import install, use
from tests.plugins.test_optimizer import config


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = install(tmp_path / "site", "mltrainer-lines")
    use(monkeypatch, site)
    yield site
    sys.modules.pop("mltrainer_lines", None)


def tracking(text: str) -> Tracking:
    found = validate(ProjectConfig, yaml.parse(f"{PROJECT}tracking: {text}\n", "mltrainer.yaml")).tracking
    assert found is not None
    return found


def tried(root: Path, text: str) -> Tracker:
    with Rehearsal(empty_project(root), lambda _event: None) as rehearsal:
        (row,) = rehearsal.begin(tracking(text))()
    return row


def test_it_is_named_beside_built_in_ones(lines):
    found = tracking("[lines, tensorboard]")
    assert [name for name, _ in found.named()] == ["tensorboard", "lines"]
    assert without_defaults(tracking("{lines: {options: {file: a}}}"))["lines"]["options"] == {"file": "a"}
    assert Tracking.model_validate_json(found.model_dump_json()) == found


def test_a_name_that_nobody_has_is_refused_with_the_nearest(lines):
    with pytest.raises(InputError, match=r"mltrainer.yaml:6.*did you mean 'lines'"):
        tracking("[line]")
    with pytest.raises(
        InputError, match=r"no 'graphs' among the trackers .*installed: lines\); pip install the package that adds it"
    ):
        tracking("[graphs]")


def test_an_option_beside_the_keys_of_a_tracker_is_refused_with_these(lines):
    with pytest.raises(InputError, match=r"tracking.lines.file: unknown key 'file'; known keys: every_n_steps, options, wait_s"):
        tracking("{lines: {file: a}}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "missing"), [("class Lines: pass", "model_validate"), ("from pydantic import BaseModel as Lines", "begin")]
)
def test_one_that_is_no_tracker_is_reported_with_what_it_lacks(tmp_path, lines, body, missing):
    (lines / "mltrainer_lines.py").write_text(f"{body}\n")
    (tmp_path / "project").mkdir()
    row = tried(tmp_path / "project", "[lines]")
    expected = "a pydantic model of its options with begin and check was expected"
    assert row.reason == f"tracking.lines: lines of mltrainer-lines 1.0: {expected}; {missing} is missing"


def test_it_decides_nothing(lines):
    plain = config("{name: adamw}")
    assert config_digest(plain.model_copy(update={"tracking": tracking("[lines]")})) == config_digest(plain)


@pytest.mark.slow
def test_it_receives_the_rows_of_a_run(tmp_path, lines):
    (tmp_path / "project").mkdir()
    project = empty_project(tmp_path / "project")
    training = Training(project, name="invented")
    heard: list[dict[str, Any]] = []
    with Beside(project, "baseline", tracking("{lines: {options: {file: sent.jsonl}}}"), heard.append):
        training.epoch(0.5)
    assert heard == []
    sent = [json.loads(line) for line in (project.root / "sent.jsonl").read_text("utf-8").splitlines()]
    assert {"run", "params"} == set(sent[0])
    assert [row["metrics"]["step"] for row in sent if "step/loss" in row.get("metrics", ())] == list(range(1, 21))
    assert "close" in sent[-1]


def test_planning_tries_it(tmp_path, lines):
    (tmp_path / "project").mkdir()
    assert tried(tmp_path / "project", "[lines]").state == "ready"
    row = tried(tmp_path / "project", "{lines: {options: {fil: a}}}")
    assert (row.state, row.reason) == ("failed", "tracking.lines.options: lines has no option 'fil'; its options: file")
    assert row.mend.startswith("fix `tracking.lines` in mltrainer.yaml, or in phases/01_planning/training_config.yaml where ")


@pytest.mark.slow
def test_a_value_of_an_option_is_refused_in_one_line_as_a_built_in_tracker_refuses_it(tmp_path, lines):
    (tmp_path / "project").mkdir()
    row = tried(tmp_path / "project", "{lines: {options: {file: 3}}}")
    assert row.reason == "tracking.lines.options: file: Input should be a valid string; found 3"


TOLD = """
from pydantic import BaseModel, model_validator

class Lines(BaseModel{config}):
    host: str
    port: int
    key: str = ""

    @model_validator(mode="after")
    def _both(self):
        raise ValueError("a host needs a key:\\nask for one")

    def begin(self, place): ...
    def check(self, root, project): ...
"""


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        (
            "",
            "{port: x}",
            "host: Field required; port: Input should be a valid integer, unable to parse string as an integer; found 'x'",
        ),
        ("", "{host: a, port: 1, key: hush}", "a host needs a key:; ask for one"),
        (", hide_input_in_errors=True", "{host: a, port: 1, key: 7}", "key: Input should be a valid string"),
    ],
)
def test_a_message_repeats_no_option_but_the_wrong_one(tmp_path, lines, config, options, reason):
    (lines / "mltrainer_lines.py").write_text(TOLD.replace("{config}", config), "utf-8")
    ((_, given),) = tracking(f"{{lines: {{options: {options}}}}}").named()
    with pytest.raises(InputError) as caught:
        adapter("lines").check()(tmp_path, "project", given)
    assert str(caught.value) == f"tracking.lines.options: {reason}"


def test_one_that_is_gone_is_reported_and_stops_nothing(tmp_path):
    heard: list[dict[str, Any]] = []
    with Beside(empty_project(tmp_path), "baseline", Tracking.model_validate({"lines": {}}), heard.append):
        pass
    way = "pip install the package that adds the tracker lines"
    assert [event["text"] for event in heard] == [f"lines is not installed, so that it shows nothing: {way}"]
