"""Which trackers a phase shows its runs in: those that the project file names now, unless the training config names its own."""

from __future__ import annotations

import pytest
import yaml

from mltrainer.configs.project import TrainingConfig
from mltrainer.phases.planning import CONFIG_FILE
from mltrainer.project.engine import _tracking
from mltrainer.records.envelope import Envelope
from mltrainer.records.partial import partial
from mltrainer.records.planning import Planning
from mltrainer.records.reading import Record
from mltrainer.workspace import Project
from tests.projects import PROJECT, write_rings

VALUES = TrainingConfig.model_validate({**PROJECT, "tracking": ["mlflow"]}).model_dump()
CONTENT = {"evidence": {"config": VALUES, "generated": VALUES}}
PLANNED = {"planning": Record(CONTENT, sha256="0", typed=partial(Envelope[Planning], CONTENT))}


def shown_in(project: Project) -> list[str]:
    tracking = _tracking(project, PLANNED)
    return [name for name, _ in tracking.named()] if tracking is not None else []


@pytest.mark.parametrize(("now", "shown"), [({}, []), ({"tracking": ["tensorboard"]}, ["tensorboard"])])
def test_what_the_project_file_names_now_counts_also_after_planning(tmp_path, now, shown):
    assert shown_in(write_rings(tmp_path, **now)) == shown


def test_what_the_training_config_names_in_its_place_counts_more(tmp_path):
    project = write_rings(tmp_path, tracking=["tensorboard"])
    path = project.phase_dir("planning") / CONFIG_FILE
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({**VALUES, "tracking": ["wandb"]}))
    assert shown_in(project) == ["wandb"]
    path.write_text(yaml.safe_dump(VALUES))
    assert shown_in(project) == ["tensorboard"]
