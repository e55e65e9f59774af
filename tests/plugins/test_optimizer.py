"""An optimizer of another distribution: named in a config, its options checked, its code part of what names a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mltrainer.configs import yaml
from mltrainer.configs.components import swaps_of
from mltrainer.configs.loading import validate
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.looking import looking
from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.plugins.installing import install, install_by_pip, use, write_metadata
from tests.projects import recorded, write_light_template

MINIMAL = """\
name: digits
task: {kind: image_classification}
data: {source: "sklearn:digits"}
model: {name: mlp}
metric: {name: accuracy, mode: max}
acceptance: {accuracy: ">= 0.5"}
"""


@pytest.fixture
def signum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    site = install(tmp_path / "site", "mltrainer-signum")
    use(monkeypatch, site)
    yield site
    for name in set(sys.modules) - before:
        if name.startswith("mltrainer_signum"):
            del sys.modules[name]


def config(optimizer: str) -> TrainingConfig:
    return validate(TrainingConfig, yaml.parse(f"{MINIMAL}optimizer: {optimizer}\n", "t.yaml"))


def refusal(optimizer: str) -> str:
    with pytest.raises(InputError) as caught:
        config(optimizer)
    return str(caught.value)


def test_its_options_are_checked_and_complete(signum):
    found = config("{name: signum, lr: 0.01, weight_decay: 0.1, options: {}}").model_dump()["optimizer"]
    assert found["options"] == {"momentum": 0.9}
    assert found["weight_decay"] == 0.1
    assert config("{name: signum, lr: 0.01, options: {momentum: 0.5}}").model_dump()["optimizer"]["options"] == {"momentum": 0.5}
    assert "torch" not in sys.modules or "mltrainer_signum.update" not in sys.modules


def test_wrong_options_are_named_with_file_and_line(signum):
    assert "t.yaml:7" in refusal("{name: signum, lr: 0.01, options: {momentum: 2.0}}")
    told = refusal("{name: signum, lr: 0.01, options: {momentum: 2.0}}")
    assert told.splitlines()[0].endswith("key optimizer.options: momentum: Input should be less than 1; found 2.0")
    assert "signum has no option 'momentun'; its options: momentum" in refusal(
        "{name: signum, lr: 0.01, options: {momentun: 0.5}}"
    )
    assert "did you mean 'weight_decay'" in refusal("{name: signum, lr: 0.01, weigth_decay: 0.5}")


def test_a_name_that_nobody_has_is_refused_with_those_that_there_are(signum):
    told = refusal("{name: signom, lr: 0.01}")
    assert told.startswith("t.yaml:7")
    assert "'signom' is not one of 'sgd', 'adam', " in told
    assert "'own', 'signum'; did you mean 'signum'?" in told


def test_a_built_in_name_is_not_taken_over(signum):
    write_metadata(signum, "thief", "mltrainer.optimizers", {"adamw": "mltrainer_signum:Signum"})
    assert type(config("{name: adamw}").optimizer).__name__ == "AdamW"


def test_a_record_is_read_where_the_plugin_is_not():
    values: dict[str, Any] = {"name": "gone", "lr": 0.1, "options": {"x": 1}}
    with looking(lambda _root, _path: True):
        assert config("{name: gone, lr: 0.1, options: {x: 1}}").optimizer.model_dump()["options"] == {"x": 1}
    written = config("{name: adamw}").model_dump()
    assert TrainingConfig.model_validate({**written, "optimizer": values}).optimizer.name == "gone"


def test_an_ablation_swaps_an_option_of_it(signum):
    (swap,) = swaps_of(config("{name: signum, lr: 0.01}"), ["optimizer.options.momentum=0.5"])
    assert swap.changes == {"optimizer.options.momentum": 0.5}


def test_a_config_of_built_in_names_looks_for_no_distribution(monkeypatch):
    def refuse(_path: tuple[str, ...]) -> None:
        raise AssertionError("distributions were looked for")

    monkeypatch.setattr("mltrainer.plugins._all", refuse)
    assert config("{name: adamw}").optimizer.name == "adamw"


def walk(cli: Cli, folder: Path) -> Project:
    write_light_template(folder)
    (folder / "mltrainer.yaml").write_text(f"{MINIMAL}seed: 1\n", "utf-8")
    changes = ["--set", "epochs=3", "--set", "optimizer.name=signum", "--set", "optimizer.lr=0.002"]
    cli("phase", "run", "planning", *changes, "--project", folder, code=0)
    cli("phase", "run", "baseline", "--project", folder, code=0)
    return Project(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("real_tools")
@pytest.mark.long
def test_it_trains_with_equal_bits_and_its_code_and_version_are_bound(cli, tmp_path, monkeypatch):
    site = install_by_pip(tmp_path / "site", "mltrainer-signum")
    use(monkeypatch, site)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = walk(cli, tmp_path / "one"), walk(cli, tmp_path / "two")
    runs = [recorded(project, "baseline")["evidence"]["run"] for project in (one, two)]
    assert runs[0]["chain"] == runs[1]["chain"]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    assert runs[0]["metrics"]["accuracy"] > 0.8

    planned = recorded(one, "planning")
    assert planned["evidence"]["config"]["optimizer"]["options"] == {"momentum": 0.9}
    row = next(row for row in planned["evidence"]["environment"]["distributions"] if row["name"] == "mltrainer-signum")
    assert row["version"] == "1.0"
    assert row["record_sha256"]
    files = {row["path"] for row in planned["source"]["files"]}
    assert files == {f"site-packages/mltrainer_signum/{name}.py" for name in ("__init__", "update")}
    assert {row["path"] for row in planned["inputs"] if row["role"] == "plugin"} == files

    cli("gate", "check", "--project", one.root, code=0)
    code = site / "mltrainer_signum/update.py"
    text = code.read_text("utf-8")
    code.write_text(text.replace("mean.sign()", "mean.sign().neg()"), "utf-8")
    said = cli("gate", "check", "-v", "--project", one.root, code=4)
    assert "site-packages/mltrainer_signum/update.py (plugin) changed" in said.out
    code.write_text(text, "utf-8")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(site)])
    monkeypatch.delitem(sys.modules, "mltrainer_signum")
    said = cli("gate", "check", "--json", "--project", one.root, code=0)
    assert "site-packages/mltrainer_signum/update.py: not here, digest recorded" in said.out


@pytest.mark.slow
def test_an_editor_takes_it_and_sees_wrong_keys_of_built_in_ones(signum):
    schema = TrainingConfig.model_json_schema()
    jsonschema.validate(config("{name: signum, lr: 0.01}").model_dump(), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {**config("{name: adamw}").model_dump(), "optimizer": {"name": "adamw", "lr": 1.0, "options": {}}}, schema
        )
    assert "options" not in refusal("{name: adamw, opt: 1}")
