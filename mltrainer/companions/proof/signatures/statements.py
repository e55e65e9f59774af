"""The statements that are signed: each gate, the origin of the delivered model, and the list of them.

They follow from records and gates alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mltrainer.gates.gate import STATEMENT_TYPE, subjects_of
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.reading import GATE_FILE, RECORD_FILE, read_record
from mltrainer.records.verdict import VERDICT_FILE, Verdict
from mltrainer.workspace import MODEL_FOLDER, PHASES, Project, phase_folder, pretty_json, read_json, sha256_bytes

PROVENANCE = "https://slsa.dev/provenance/v1"
SUMMARY = "https://slsa.dev/verification_summary/v1"
REFEREE = "urn:mltrainer:referee:v1"  # the verifier and its policy: a training of its own, as docs/REVIEW.md describes it
TRAINING = "urn:mltrainer:training:v1"  # the build type: docs/predicates/training.v1.json has its parameters
SIGNED = "urn:mltrainer:signed:v1"  # the predicate of the list: docs/predicates/signed.v1.json has its fields
OWN_MACHINE = "urn:mltrainer:own-machine:v1"  # the builder: a machine that the signer answers for
DIGEST = "mltrainer-sha256"  # a digest of a run's contract, which is none of a file's bytes
ORIGIN = "the model's origin"
LIST = "the list of what was signed"
MODEL_PREFIX = f"{phase_folder('finalization')}/{MODEL_FOLDER}/"

Statement = dict[str, Any]


def signed_statements(project: Project) -> dict[str, bytes]:
    """Return the statements of a project as they are signed, by what each is about.

    A phase whose record or gate cannot be read has none: its gate does not hold.
    """
    found: dict[str, bytes] = {}
    for phase in PHASES:
        record, gate = read_record(project, phase), _gate(project, phase)
        if record is None or record.typed is None or gate is None:
            continue
        if isinstance(record.typed.evidence, Finalization):
            gate = with_model(gate, record.typed.evidence)
            found[ORIGIN] = pretty_json(provenance(record.typed, record.sha256, model_digests(gate)))
        found[gate_of(phase)] = pretty_json(gate)
    return found


def list_of(statements: Mapping[str, bytes]) -> bytes:
    """Return the statement that names all others by their digests, so that none can be removed; it is signed last."""
    return pretty_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [subject(what, sha256_bytes(payload)) for what, payload in statements.items()],
            "predicateType": SIGNED,
            "predicate": {"statements": len(statements)},
        }
    )


def gate_of(phase: str) -> str:
    """Return the words for a phase's statement, in messages."""
    return f"the gate of {phase}"


def _gate(project: Project, phase: str) -> Statement | None:
    path = project.phase_dir(phase) / GATE_FILE
    if subjects_of(path) is None:  # missing, or a stranger's text of another form
        return None
    gate: Statement = read_json(path)
    return gate


def with_model(gate: Statement, evidence: Finalization) -> Statement:
    """Return finalization's gate with the model's files among its subjects, beside the reports."""
    files = [subject(row.path, row.sha256) for row in evidence.model_files]
    return {**gate, "subject": sorted([*gate["subject"], *files], key=lambda row: str(row["name"]))}


def subject(name: str, sha256: str) -> dict[str, Any]:
    """Return a file as in-toto names it."""
    return {"name": name, "digest": {"sha256": sha256}}


def model_digests(gate: Statement) -> dict[str, str]:
    """Return the digests of the delivered model's files, its card included, by their name in the model's folder."""
    named = {str(row["name"]): str(row["digest"]["sha256"]) for row in gate["subject"]}
    return {name.removeprefix(MODEL_PREFIX): sha256 for name, sha256 in named.items() if name.startswith(MODEL_PREFIX)}


def provenance(record: Envelope[Finalization], sha256: str, model: Mapping[str, str]) -> Statement:
    """Return the origin of the delivered model, as SLSA describes that of a build (Provenance v1).

    Args:
        record: Finalization's record.
        sha256: The digest of the record's file.
        model: The digests of the model's files by name.
    """
    evidence, run = record.evidence, record.evidence.run
    return {
        "_type": STATEMENT_TYPE,
        "subject": [subject(f"{MODEL_PREFIX}{name}", digest) for name, digest in sorted(model.items())],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": TRAINING,
                "externalParameters": {"config": evidence.config},
                "internalParameters": {"device": run.device, "numerics_class": run.numerics_class, "threads": run.threads},
                "resolvedDependencies": _dependencies(record),
            },
            "runDetails": {
                "builder": {"id": OWN_MACHINE, "version": {"mltrainer": record.mltrainer}},
                "metadata": {"invocationId": run.id},
                "byproducts": [subject(f"{phase_folder(record.phase)}/{RECORD_FILE}", sha256)],
            },
        },
    }


def _policy(verdict: Verdict) -> str:
    """Return the referee's policy with the ways in which this verdict asked for less than a whole training, closed off."""
    less = {
        "segments": verdict.sample is not None,
        "not-closed-off": verdict.open is not None,
        "no-held-rows": verdict.held is None,
        "own-code": verdict.foreign is not None,
    }
    return ":".join([REFEREE, *(name for name, is_so in less.items() if is_so)])


def verification_summary(verdict: Verdict) -> Statement:
    """Return a referee's verdict as SLSA summarizes a verification (Verification Summary v1), on a record and its commit."""
    commit = [{"name": "repository", "digest": {"gitCommit": verdict.commit}}] if verdict.commit else []
    return {
        "_type": STATEMENT_TYPE,
        "subject": [*commit, {"name": f"{phase_folder('finalization')}/{RECORD_FILE}", "digest": {DIGEST: verdict.record}}],
        "predicateType": SUMMARY,
        "predicate": {
            "verifier": {"id": REFEREE},
            "timeVerified": f"{verdict.made}T00:00:00Z",  # a verdict names its day alone
            "resourceUri": f"urn:mltrainer:run:{verdict.run}",
            "policy": {"uri": _policy(verdict)},
            "inputAttestations": [{"uri": VERDICT_FILE, "digest": {DIGEST: verdict.seal}}],
            "verificationResult": "PASSED" if verdict.holds else "FAILED",
            "verifiedLevels": ["SLSA_BUILD_LEVEL_UNEVALUATED"],
            "slsaVersion": "1.0",
        },
    }


def _dependencies(record: Envelope[Finalization]) -> list[dict[str, Any]]:
    """Return the inputs of a training: commit, code, data, config and environment by their digests, and each package."""
    evidence, run = record.evidence, record.evidence.run
    parts = {"code": run.code_sha256, "config": run.config_sha256, "data": run.data_sha256, "environment": run.environment_sha256}
    commit = [{"name": "repository", "digest": {"gitCommit": record.source.commit}}] if record.source.commit else []
    contract = [{"name": name, "digest": {DIGEST: sha256}} for name, sha256 in parts.items() if sha256]
    files = [subject(row.path, row.sha256) for row in evidence.data.files]
    packages = [{"uri": package_url(row.name, row.version)} for row in evidence.environment.distributions]
    return [*commit, *contract, *files, *packages]


def package_url(name: str, version: str) -> str:
    """Return the address of a distribution of Python's index, as package URLs spell it (purl, type pypi)."""
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version.replace('+', '%2B')}"
