"""What MLflow's own client finds in the database file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.sink import ADAPTERS, Place, Point
from mltrainer.configs.tracking import MLflow
from mltrainer.errors import InputError

pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow's own making

RUN = "0123456789ab"
SECRET = "hunter2-Zx81kQ9w"


@pytest.fixture(autouse=True)
def _as_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ADAPTERS["mlflow"].variables.items():
        monkeypatch.setenv(name, value)


def begin(root: Path, known: str | None = None) -> Any:
    from mltrainer.companions.trackers.sinks import mlflow

    return mlflow.begin(Place(root, "invented", RUN, "baseline", known, 0), MLflow())


def client(root: Path) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(f"sqlite:///{root}/.mltrainer/mlflow.db")


@pytest.mark.slow
def test_its_client_finds_all_that_it_was_given_and_one_run_for_who_goes_on(tmp_path):
    curve = tmp_path / "curve.svg"
    curve.write_text("<svg/>")
    run = begin(tmp_path)
    run.params({f"key{nr}": nr for nr in range(120)})
    run.params({"columns.Total ($)": "number", "columns.Total (€)": "number"})  # as people name the columns of their tables
    run.metrics([Point(nr, 1e9 + nr, {"step/loss": 1 / nr, "step/grad_norm": 2.0}) for nr in range(1, 701)])
    run.tags({"gate.baseline": "does not hold: no_nan", "state": "running"})
    run.close("interrupted")
    found = client(tmp_path)
    assert found.get_run(run.id).info.status == "KILLED"
    again = begin(tmp_path, known=run.id)
    assert found.get_run(run.id).info.status == "RUNNING"
    again.metrics([Point(701, 2e9, {"step/loss": float("nan")})])
    again.tags({"gate.baseline": "holds"})
    again.figure("phases/02_baseline/curve.svg", curve)
    again.close("finished")
    (experiment,) = found.search_experiments(filter_string="name = 'invented'")
    (shown,) = found.search_runs([experiment.experiment_id])
    assert (shown.info.run_name, shown.info.status) == (f"baseline-{RUN}", "FINISHED")
    assert (len(shown.data.params), shown.data.params["key7"]) == (122, "7")
    assert {"columns.Total _$_".replace("$", "_"), "columns.Total ____2"} <= shown.data.params.keys()
    assert shown.data.tags["gate.baseline"] == "holds"
    losses = found.get_metric_history(run.id, "step/loss")
    assert [row.step for row in losses] == list(range(1, 702))
    assert (losses[1].value, losses[1].timestamp) == (0.5, (10**9 + 2) * 1000)
    assert [file.path for file in found.list_artifacts(run.id, "phases/02_baseline")] == ["phases/02_baseline/curve.svg"]
    assert {path.name for path in tmp_path.iterdir()} == {".mltrainer", "curve.svg"}  # nothing beside the state folder


def test_a_password_in_the_address_is_refused_without_repeating_it():
    for url in (f"http://me:{SECRET}@host", f"postgresql://me:{SECRET}@host/db"):
        with pytest.raises(ValueError, match="the address contains a password"):
            MLflow(uri=url)
    with pytest.raises(ValueError, match="an address begins with"):
        MLflow(uri="ftp://host")


def test_variables_are_filled_in_where_the_address_is_used(monkeypatch):
    from mltrainer.companions.trackers.sinks.mlflow import filled

    monkeypatch.setenv("MY_PASSWORD", "p@ss/word")
    monkeypatch.setenv("WHOLE", "https://me:p@host")
    assert filled(MLflow(uri="https://me:${MY_PASSWORD}@host").uri) == "https://me:p%40ss%2Fword@host"
    assert filled(MLflow(uri="${WHOLE}").uri) == "https://me:p@host"
    monkeypatch.delenv("WHOLE")
    with pytest.raises(InputError, match="WHOLE is not set"):
        filled("${WHOLE}")


def check(root: Path, uri: str = "sqlite:///own/mlflow.db") -> None:
    from mltrainer.companions.trackers.sinks import mlflow

    mlflow.check(root, "invented", MLflow(uri=uri))


@pytest.mark.slow
def test_a_database_that_opens_passes_the_check_and_gets_no_run_and_no_experiment(tmp_path):
    from mlflow.tracking import MlflowClient

    check(tmp_path)
    found = MlflowClient(f"sqlite:///{tmp_path}/own/mlflow.db")
    (own,) = found.search_experiments()
    assert own.name == "Default"  # MLflow's own
    assert len(found.search_runs([own.experiment_id])) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.slow
def test_what_would_take_no_run_is_found_by_the_check(tmp_path, monkeypatch):
    (tmp_path / "text.db").write_text("no database, but a text that is longer than its header")
    monkeypatch.delenv("NOT_SET", raising=False)
    for uri, why in {
        "sqlite:///text.db": "file is not a database",
        "sqlite:///text.db/mlflow.db": "tracking.mlflow.uri: the folder text.db cannot be written: ",
        "http://127.0.0.1:9": "refused",
        "${NOT_SET}": "the environment variable NOT_SET is not set",
    }.items():
        with pytest.raises(Exception, match=why):
            check(tmp_path, uri)
    (tmp_path / ".mltrainer").write_text("where MLflow's files should be")
    with pytest.raises(InputError, match=r"the folder .mltrainer/mlflow cannot be written"):
        check(tmp_path)
