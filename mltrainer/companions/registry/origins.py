"""What a project's records, and the runs that are here, say of where each thing came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mltrainer.companions.registry.changes import Added, Model, Moved
from mltrainer.companions.registry.entries import FINAL, MODEL_PREFIX, Registered, registered
from mltrainer.companions.registry.graph import Lineage, Node
from mltrainer.configs.loading import at
from mltrainer.gates.gate import Gate
from mltrainer.gates.verdicts import read_verdict
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.imported import ORIGIN_FILE, Imported
from mltrainer.records.optimization import Searched
from mltrainer.records.partial import partial
from mltrainer.records.planning import Planning
from mltrainer.records.run import TrainingResult
from mltrainer.reports.runs import RunRow
from mltrainer.runs.find import config_of, list_runs, result_of
from mltrainer.workspace import Project, read_if_whole

MODEL = "model final_model"
DIGESTS = {"data": "data_sha256", "code": "code_sha256", "config": "config_sha256", "environment": "environment_sha256"}


def of_project(project: Project, gates: Sequence[Gate]) -> Lineage:
    """Return the lineage of everything that a project's records, and the runs that are here, speak of."""
    found = Lineage()
    records: dict[str, Envelope[Any]] = {gate.phase: gate.content for gate in gates if gate.content is not None}
    rows = list_runs(project)
    for row in rows:
        _add_run(found, project, row, records)
    for gate in gates:
        _add_gate(found, gate, records)
    if FINAL in records:
        _add_model(found, project, gates[-1], records[FINAL].evidence)
    for version in registered(project):
        _add_registered(found, version)
    return found


def _add_registered(found: Lineage, version: Registered) -> None:
    """Add a version that was made of the present model, or of an earlier one, of which the run alone may be here."""
    source = MODEL if version.record in found.files else f"run {version.run}"
    if source in found.nodes:
        facts = {"registry": version.registry, "record": version.record}
        found.link(source, "registeredAs", found.add(Node("version", f"{version.model}:{version.version}", None, facts)))


def _add_run(found: Lineage, project: Project, row: RunRow, records: Mapping[str, Envelope[Any]]) -> None:
    facts = {"phase": row.phase, "state": row.state, "steps": row.steps}
    run = found.add(Node("run", row.id, row.weights_sha256, facts))
    for kind, key in DIGESTS.items():
        sha256 = getattr(row, key)
        if sha256 is not None:
            found.link(run, "used", found.add(Node(kind, sha256[:12], sha256, _facts(kind, sha256, records))))
    config = config_of(project, row.id)
    if (weights := at(config, "start.weights")) is not None:
        found.link(run, "used", _add_weights(found, project, str(weights)))
    if row.parent is not None:
        found.link(run, "wasInformedBy", found.add(Node("run", row.parent)))
    result = partial(TrainingResult, result_of(project, row.id) or {"checkpoints": []})
    for checkpoint in result.checkpoints:
        node = found.add(Node("checkpoint", checkpoint.path, None, {"run": row.id, "step": checkpoint.step}))
        found.link(node, "wasGeneratedBy", run)
        found.files |= {file.sha256: node for file in checkpoint.files}


def _add_weights(found: Lineage, project: Project, weights: str) -> str:
    """Add the weights that a run began with; of imported ones the foreign files, too."""
    origin = read_if_whole(project.root / weights / ORIGIN_FILE)
    imported = partial(Imported, {"files": [], **origin})
    node = found.add(Node("weights", weights, origin.get("weights_sha256")))
    for file in imported.files:
        found.link(node, "wasDerivedFrom", found.add(Node("file", file.path, file.sha256)))
    return node


def _facts(kind: str, sha256: str, records: Mapping[str, Envelope[Any]]) -> dict[str, Any]:
    """Return the records' entries on data, code, config or environment with a digest."""
    if kind == "data":
        return next((_of_data(record.evidence) for record in records.values() if _is_on(record, sha256)), {})
    if kind == "code":
        sources = (record.source for record in records.values() if record.source.sha256 == sha256)
        return next(({"commit": source.commit, "files": len(source.files)} for source in sources), {})
    return {}


def _is_on(record: Envelope[Any], data_sha256: str) -> bool:
    return isinstance(record.evidence, Planning) and record.evidence.data.sha256 == data_sha256


def _of_data(evidence: Planning) -> dict[str, Any]:
    data = evidence.data
    return {"source": data.source, "samples": data.samples, "files": {row.path: row.sha256 for row in data.files}}


def _add_gate(found: Lineage, gate: Gate, records: Mapping[str, Envelope[Any]]) -> None:
    if gate.record is None:
        return
    state = "holds" if gate.holds else "does not hold"
    node = found.add(Node("gate", gate.phase, gate.record.sha256, {"state": state}))
    found.files[gate.record.sha256] = node
    record = records.get(gate.phase)
    before = found.files.get(str(record.previous)) if record is not None else None
    if before is not None:
        found.link(node, "wasInformedBy", before)
    evidence = getattr(record, "evidence", None)
    run = getattr(evidence, "run", None)
    if run is not None and f"run {run.id}" in found.nodes:
        found.link(f"run {run.id}", "judgedBy", node)
    if isinstance(evidence, Searched):
        _add_search(found, node, evidence)


def _add_search(found: Lineage, gate: str, evidence: Searched) -> None:
    """Add a search, which gave the final config, with the trial that it took."""
    facts = {"trials": len(evidence.trials), "promoted": evidence.promoted}
    node = found.add(Node("search", evidence.strategy, None, facts))
    found.link(node, "judgedBy", gate)
    if evidence.best is not None:
        found.link(node, "used", found.add(Node("run", evidence.trials[evidence.best - 1].run)))
    for run in [one for one in found.nodes.values() if one.kind == "run" and one.facts.get("phase") == FINAL]:
        found.link(run.id, "wasInformedBy", node)


def _add_model(found: Lineage, project: Project, gate: Gate, evidence: Finalization) -> None:
    facts = {"path": MODEL_PREFIX.rstrip("/"), "files": {row.path: row.sha256 for row in evidence.model_files}}
    model = found.add(Node("model", "final_model", evidence.delivered_sha256, facts))
    found.files |= {row.sha256: model for row in evidence.model_files}
    origins = [*_origins(evidence)]
    for path in origins:
        found.link(model, "wasDerivedFrom", found.add(Node("checkpoint", path)))
    if not origins:  # a program's files
        found.link(model, "wasGeneratedBy", f"run {evidence.run.id}")
    found.link(model, "judgedBy", f"gate {FINAL}")
    verdict = read_verdict(project, FINAL, gate.record)[0] if gate.record is not None else None
    if verdict is not None:
        state = "all values hold" if verdict.holds else "a value does not hold"
        found.link(model, "judgedBy", found.add(Node("verdict", verdict.made, verdict.seal, {"state": state})))


def _origins(evidence: Finalization) -> Iterator[str]:
    """Yield the checkpoints whose weights were delivered: the members of a combination, or the run's best."""
    combined = evidence.delivered_combination
    if combined is not None:
        yield from (member.path for member in combined.members if member.used)
    elif evidence.run.best_checkpoint is not None:
        yield evidence.run.best_checkpoint.path


def with_version(found: Lineage, model: Model, added: Added) -> str:
    """Add a registered version, with what was checked when a stage took it, and return its id."""
    moves = [entry for entry in model.entries if isinstance(entry.change, Moved) and entry.change.version == added.version]
    changes = [{"when": one.when, "by": one.by, **one.change.written()} for one in moves]
    facts = {"project": added.project, "commit": added.commit, **model.named(added.version), "changes": changes}
    node = found.add(Node("version", f"{model.name}:{added.version}", added.weights_sha256, facts))
    found.link(node, "wasDerivedFrom", MODEL)
    return node
