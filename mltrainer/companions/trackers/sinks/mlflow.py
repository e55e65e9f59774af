"""MLflow: a run in a database file of the project's, another database, or on a server.

References:
    Limits of a request: https://mlflow.org/docs/latest/api_reference/rest-api.html, Log Batch.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from mltrainer.companions.trackers.folders import check_folder
from mltrainer.companions.trackers.sink import Param as Value
from mltrainer.companions.trackers.sink import Place, Point, Sink
from mltrainer.configs.tracking import VARIABLE, MLflow
from mltrainer.errors import InputError

SQLITE = "sqlite:///"
ARTIFACTS = ".mltrainer/mlflow"  # beside a database file, which holds no files itself
MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 6000
STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def filled(url: str) -> str:
    """Return a URL with its `${NAME}` replaced by environment variables; beside other text, quoted as URLs need it.

    Raises:
        InputError: A variable is not set.
    """
    missing = [name for name in VARIABLE.findall(url) if not os.environ.get(name)]
    if missing:
        raise InputError(f"the environment variable {missing[0]} is not set", where="tracking", hint=f"export {missing[0]}=...")
    if (whole := VARIABLE.fullmatch(url)) is not None:
        return os.environ[whole[1]]
    return VARIABLE.sub(lambda name: quote(os.environ[name[1]], safe=""), url)


def _taken(name: str) -> str:
    """Return a name as MLflow takes it: `recall@5` is `recall_5`."""
    return re.sub(r"[^A-Za-z0-9_./: -]", "_", name)


def _taken_apart(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values by the names that MLflow takes, `_2` and so on after one that is there already: it takes each once."""
    found: dict[str, Value] = {}
    for name, value in values.items():
        taken = _taken(name)
        more = (f"{taken}_{number}" for number in itertools.count(2))
        found[taken if taken not in found else next(one for one in more if one not in found)] = value
    return found


class _Run:
    """A run that MLflow knows."""

    def __init__(self, client: MlflowClient, id: str) -> None:
        self.id, self._client = id, client

    def params(self, values: Mapping[str, Value]) -> None:
        """Log the config."""
        rows = [Param(key, str(value)[:LONGEST_PARAM]) for key, value in _taken_apart(values).items()]
        for first in range(0, len(rows), MOST_PARAMS):
            self._client.log_batch(self.id, params=rows[first : first + MOST_PARAMS])

    def metrics(self, points: Sequence[Point]) -> None:
        """Log the numbers with their steps."""
        rows = [Metric(_taken(key), value, int(p.time_s * 1000), p.step) for p in points for key, value in p.values.items()]
        for first in range(0, len(rows), MOST_METRICS):
            self._client.log_batch(self.id, metrics=rows[first : first + MOST_METRICS])

    def tags(self, values: Mapping[str, str]) -> None:
        """Set the tags."""
        self._client.log_batch(self.id, tags=[RunTag(key, value) for key, value in values.items()])

    def figure(self, name: str, path: Path) -> None:
        """Log a figure as an artifact, which MLflow draws."""
        self.artifact(name, path)

    def artifact(self, name: str, path: Path) -> None:
        """Log a file."""
        self._client.log_artifact(self.id, str(path), PurePosixPath(name).parent.as_posix())

    def close(self, state: str) -> None:
        """Set the run's status."""
        self._client.set_terminated(self.id, STATUS.get(state, "FAILED"))


def begin(place: Place, options: MLflow) -> Sink:
    """Begin a run in the project's experiment, or go on with it."""
    uri = _located(filled(options.uri), place.root)
    client = MlflowClient(uri)
    if place.known is not None:
        client.update_run(place.known, status="RUNNING")
        return _Run(client, place.known)
    experiment = _experiment(client, options.experiment or place.project, place.root if uri.startswith(SQLITE) else None)
    run = client.create_run(experiment, run_name=f"{place.phase}-{place.run}")
    return _Run(client, str(run.info.run_id))


def check(root: Path, project: str, options: MLflow) -> None:
    """Ask the database or the server for the experiment; beside a database file, write in the folder of artifacts."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # of its 7, which take minutes, none says more
    address = filled(options.uri)
    if address.startswith(SQLITE):
        check_folder(root, ARTIFACTS, "tracking.mlflow")
        check_folder(root, str(Path(address.removeprefix(SQLITE)).parent), "tracking.mlflow.uri")
    MlflowClient(_located(address, root)).get_experiment_by_name(options.experiment or project)


def _located(uri: str, root: Path) -> str:
    """Return the URI with a relative path of a database file taken from the project's folder."""
    if not uri.startswith(SQLITE):
        return uri
    path = (root / uri.removeprefix(SQLITE)).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"{SQLITE}{path}"


def _experiment(client: MlflowClient, name: str, root: Path | None) -> str:
    """Return the id of an experiment, created if missing; a database file's artifacts are in the project."""
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    return str(client.create_experiment(name, artifact_location=None if root is None else (root / ARTIFACTS).as_uri()))
