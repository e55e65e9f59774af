"""The items of planning: config, seeds, environment, data, a probe that repeats, and the cost of the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mltrainer.configs.items import MemorySettings, ProbeSettings, SourceSettings
from mltrainer.configs.pages import NOT_OFFERED
from mltrainer.configs.project import SCRIPT_RUNNER, TrainingConfig, config_digest
from mltrainer.gates.check import RUN_PLANNING, Outcome, check, recorded, when
from mltrainer.programs.causes import KINDS
from mltrainer.records.common import Cause, Divergence
from mltrainer.records.envelope import Envelope
from mltrainer.records.planning import Planned, Planning, UnsoundData
from mltrainer.records.run import WITHOUT_STEPS, Determinism
from mltrainer.reproducibility.causes import KINDS as WORDS
from mltrainer.workspace import digest

SWITCHES = {
    "deterministic_algorithms": True,
    "warn_only": False,
    "cudnn_benchmark": False,
    "cudnn_deterministic": True,
    "tf32": False,
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


@check(Planned)
def config_valid(record: Envelope[Planned]) -> Outcome:
    """The recorded config is valid and the one whose digest names the probe's runs."""
    config, sha256 = record.evidence.config, record.evidence.config_sha256
    shown = {"keys": len(config), "sha256": sha256}
    hint = f"fix phases/01_planning/training_config.yaml, then {RUN_PLANNING}"
    return when(config_digest(TrainingConfig.model_validate(config)) == sha256, shown, hint)


@check(Planning)
def seeds_fixed(record: Envelope[Planning]) -> Outcome:
    """Both fresh processes drew the same first numbers from every generator and built the same initial weights."""
    first, second = record.evidence.probe.runs
    is_program = record.evidence.program is not None
    if is_program and not (first.draws or second.draws):
        return _not_read("draws")
    drawn = {name for name in first.draws if first.draws[name] == second.draws.get(name)}
    same_weights = first.init_sha256 == second.init_sha256
    hash_seeds = [run.determinism.PYTHONHASHSEED for run in (first, second)]
    every = _generators(record)
    is_same = every <= drawn and drawn == {*first.draws, *second.draws}
    shown = {"seed": record.evidence.config["seed"], "equal_draws": sorted(drawn)}
    shown |= {} if is_program else {"equal_initial_weights": same_weights}
    if first.determinism.jax is not None:
        shown["jax"] = "draws by keys that the program passes itself: there is nothing to seed"
    hint = f"look for randomness in your code that is not drawn from a seeded global generator; then {RUN_PLANNING}"
    # Under one hash seed the sets of both processes have one order, and a draw that follows it would seem to repeat.
    are_other = all(seed.isdigit() for seed in hash_seeds) and hash_seeds[0] != hash_seeds[1]
    return when(is_same and same_weights and are_other, shown, hint)


@check(Planning)
def determinism_on(record: Envelope[Planning]) -> Outcome:
    """The switches, read back after the user's code ran, still ask for deterministic operations."""
    read = [run.determinism for run in record.evidence.probe.runs]
    is_program = record.evidence.program is not None
    wanted = {**({} if is_program else SWITCHES), **_of_frameworks(read)}
    if not wanted:
        return _not_read("switches", read[0].jax and "JAX has no such switch on a CPU")
    wrong = {
        name: getattr(switches, name) for switches in read for name, value in wanted.items() if getattr(switches, name) != value
    }
    shown = {"switches": len(wanted), "threads": read[0].threads, **({"changed": wrong} if wrong else {})}
    return when(not wrong, shown, f"remove the code of yours that changes these switches; then {RUN_PLANNING}")


def _generators(record: Envelope[Planning]) -> set[str]:
    """Return the generators that must have been seeded."""
    if record.evidence.program is None:
        return {"python", "numpy", "torch"}
    return {"python", *(["tensorflow"] if any(run.determinism.tensorflow for run in record.evidence.probe.runs) else [])}


def _of_frameworks(read: Sequence[Determinism]) -> dict[str, bool]:
    """Return the switches of the frameworks in use, as they must be."""
    with_tensorflow = any(switches.tensorflow is not None for switches in read)
    on_gpu = any(switches.jax_backend not in (None, "cpu") for switches in read)
    return {
        **({"tensorflow_op_determinism": True} if with_tensorflow else {}),
        **({"jax_deterministic_ops": True} if on_gpu else {}),
    }


def _not_read(what: str, why: str | None = None) -> Outcome:
    why = why or f"of a program, {what} are read back where it imports TensorFlow or JAX"
    return Outcome("not_applicable", {"rule": f"{NOT_OFFERED[SCRIPT_RUNNER]}{why}"})


@check(Planned)
def environment_captured(record: Envelope[Planned]) -> Outcome:
    """Every installed distribution is pinned, and interpreter, platform and CPU are named."""
    environment = record.evidence.environment
    installed, python = environment.distributions, environment.python.version
    pinned = [row for row in installed if row.name and row.version]
    has_torch = any(row.name.lower() == "torch" for row in installed)
    shown = {"distributions": len(pinned), "python": python, "gpus": len(environment.gpu)}
    return when(len(pinned) == len(installed) and has_torch and bool(python), shown, RUN_PLANNING)


@check(Planned)
def source_recorded(record: Envelope[Planned], settings: SourceSettings) -> Outcome:
    """The code that ran is known by commit or by digest; whether a dirty tree may pass is the item's setting."""
    source = record.source
    # Runs are named by the digest, and gates compare the files: the two must belong together.
    known = digest([recorded(row) for row in source.files]) == source.sha256
    noted = {"note": source.note} if source.note else {}
    shown = {"commit": source.commit, "dirty": source.dirty, "files": len(source.files), **noted}
    return when(known and (not source.dirty or settings.allow_dirty), shown, f"commit your changes, then {RUN_PLANNING}")


@check(Planning, UnsoundData)
def data_valid(record: Envelope[Planning | UnsoundData]) -> Outcome:
    """The data has no error-level finding, is fingerprinted, and its splits do not overlap."""
    data = record.evidence.data
    if isinstance(record.evidence, Planning) and record.evidence.program is not None:
        shown = {"files": len(data.files), "sha256": data.sha256, "splits": "not shown: only the program knows them"}
        return when(bool(data.sha256), shown, f"fix the data, then {RUN_PLANNING}")
    errors = [finding.what for finding in data.findings if finding.severity == "error"]
    samples = {name: split.samples for name, split in data.splits}
    holds = not errors and bool(data.sha256) and data.splits.train.samples > 0 and data.splits.validation.samples > 0
    shown = {"samples": samples, "sha256": data.sha256, **_accepted(record), **({"errors": errors} if errors else {})}
    described = record.evidence.config["task"].get("table") or "mltrainer.yaml"
    fix = f"{'; '.join(errors)} (fix the data, or {described})" if errors else "fix the data"
    return when(holds, shown, f"{fix}, then {RUN_PLANNING}")


def _accepted(record: Envelope[Planning | UnsoundData]) -> dict[str, Any]:
    """Return the columns that were accepted although planning asks about them, each with its reason; empty without any."""
    data = record.evidence.config.get("data") or {}
    accepted = {**data.get("leak_accepted", {}), **data.get("sentinel_accepted", {})}
    return {"accepted": accepted} if accepted else {}


@check(Planning)
def probe_identical(record: Envelope[Planning], settings: ProbeSettings) -> Outcome:
    """Two fresh processes trained a few real steps and ended in the same bits; a program without steps left the same files."""
    probe, program = record.evidence.probe, record.evidence.program
    first, second = probe.runs
    steps = min(first.steps, second.steps)
    same = first.chain_head == second.chain_head and first.weights_sha256 == second.weights_sha256
    same = same and first.weights_tree_sha256 == second.weights_tree_sha256
    resumes = record.evidence.program is None or record.evidence.program.resumed is None or record.evidence.program.resumed.same
    named = _way_out(probe.cause)
    changed = {"changed": probe.changed} if probe.changed else {}
    if program is not None and program.left is not None:
        # The record's own list of the files: the digest of both must be that list's.
        holds = same and bool(program.left) and digest(program.left) == second.weights_sha256
        shown: dict[str, Any] = {
            "steps": f"not applicable: {WITHOUT_STEPS}",
            "left": first.weights_sha256 if holds else [first.weights_sha256, second.weights_sha256],
            "compared": sorted(program.left),
            "first_difference": _apart(probe.first_difference),
            "not_interrupted": f"not applicable: {WITHOUT_STEPS}, so it has no step to be killed after",
            **changed,
        }
        return when(holds, shown, f"{named}; then {RUN_PLANNING}")
    holds = same and resumes and steps >= settings.min_steps
    weights = first.weights_sha256 if holds else [first.weights_sha256, second.weights_sha256]
    shown = {"steps": steps, "weights": weights, "first_difference": recorded(probe.first_difference), **changed}
    if probe.resumed_at == 0:
        shown["not_interrupted"] = _why_not_interrupted(record.evidence)
    return when(holds, shown, f"{named}; then {RUN_PLANNING}")


def _way_out(cause: Cause | None) -> str:
    """Return the next step for a difference: the fix for its cause, with the likeliest line."""
    if cause is None or cause.kind not in KINDS or cause.kind == "chance":
        return "make the named part of your task deterministic (mltrainer guide reproducibility/determinism)"
    where = f"{cause.calls[0].where}: " if cause.calls else ""
    return f"{where}{WORDS[cause.kind]} decides what is computed; {KINDS[cause.kind].hint}"


def _apart(difference: Divergence | None) -> dict[str, str] | None:
    """Return the difference between the files of two programs without steps; it has no step."""
    return None if difference is None else {"what": difference.what, "expected": difference.expected, "found": difference.found}


def _why_not_interrupted(evidence: Planning) -> str:
    if evidence.program is not None:
        return "not applicable: the program does not offer it (task.resume names what goes on with it)"
    return "the tool that trained cannot go on with an interrupted training"


@check(Planning)
def export_rehearsed(record: Envelope[Planning]) -> Outcome:
    """Finalization's use of the task works on the untrained model: each format, inference, metrics, evaluation."""
    rehearsal = record.evidence.rehearsal
    if rehearsal is None:
        return Outcome("fail", {"missing": "no export was rehearsed"}, RUN_PLANNING)
    if (fault := rehearsal.fault) is not None:
        where = f"{fault.where}: " if fault.where else ""
        return Outcome("fail", {"fault": f"{where}{fault.what}"}, f"{where}{fault.mend or 'fix the task'}; then {RUN_PLANNING}")
    bad = [row for row in rehearsal.exports if row.state == "failed" or row.agrees is False]
    agree = [row.format for row in rehearsal.exports if row.agrees is True]
    away = [row.format for row in rehearsal.exports if row.state == "not_available"]
    faults = {"fault": "; ".join(f"{row.format}: {row.reason}" for row in bad)} if bad else {}
    shown = {**faults, "agree": agree, "not_available": away}
    hint = f"fix the model, or take the format out of configs/production_template.yaml, then {RUN_PLANNING}"
    return when(bool(agree) and not bad, shown, hint)


@check(Planning)
def memory_fits(record: Envelope[Planning], settings: MemorySettings) -> Outcome:
    """The measured peak memory fits in the machine's free memory, and the GPU's in the GPU's memory."""
    estimate = record.evidence.estimate
    shown = {"peak_mb": estimate.peak_mb, "available_mb": estimate.available_mb}
    shares = [estimate.peak_mb / estimate.available_mb]
    if estimate.device_peak_mb is not None:
        total = estimate.device_total_mb or 0  # a GPU whose memory nobody knows holds nothing for sure
        shown |= {"device_peak_mb": estimate.device_peak_mb, "device_total_mb": total}
        # A total of 0 divides by zero, which `run_check` turns into a failed item.
        shares.append(estimate.device_peak_mb / total)
    return when(max(shares) <= settings.max_share, shown, f"lower batch_size or the model's size, then {RUN_PLANNING}")


@check(Planning)
def time_within_budget(record: Envelope[Planning]) -> Outcome:
    """The estimated time of the whole run is within the budget."""
    minutes, budget = record.evidence.estimate.minutes, record.evidence.config["budget"]["minutes"]
    if minutes is None:
        return Outcome("not_applicable", {"rule": "the program does not offer it: only it knows its number of steps"})
    fitting = int(record.evidence.config["epochs"] * budget / minutes) if minutes > budget else 0
    fewer = f"{RUN_PLANNING} --set epochs={fitting}, which fit at the measured rate; or " if fitting else ""
    hint = f"{fewer}raise budget.minutes in mltrainer.yaml, then {RUN_PLANNING}"
    return when(minutes <= budget, {"minutes": minutes, "budget_minutes": budget}, hint)


@check(Planned)
def no_secrets(record: Envelope[Planned]) -> Outcome:
    """No written file contains a key, a token or a password."""
    secrets = record.evidence.secrets
    shown = {"files": len(secrets.scanned), "found": [recorded(place) for place in secrets.found]}
    hint = f"remove the secret from its file (use an environment variable), then {RUN_PLANNING}"
    # Without a scanned file nothing was searched: that is no evidence.
    return when(bool(secrets.scanned) and not secrets.found, shown, hint)
