"""Results of trainings as trainers write them, small and complete, for tests of what reads them."""

from __future__ import annotations

from typing import Any

from mltrainer.records.run import ProbeResult, RunResult

SWITCHES = {
    "PYTHONHASHSEED": "0",
    "hash_randomization": False,
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "deterministic_algorithms": True,
    "warn_only": False,
    "cudnn_benchmark": False,
    "cudnn_deterministic": True,
    "tf32": False,
    "matmul_precision": "highest",
    "threads": 1,
    "cpu_capability": "AVX2",
    "device": "cpu",
}
RESULT: dict[str, Any] = {
    "schema": 1,
    "id": "a1b2c3d4e5f6",
    "phase": "baseline",
    "purpose": "train",
    "parent": None,
    "gate": None,
    "seal": "s",
    "config_sha256": "c",
    "data_sha256": "d",
    "code_sha256": "o",
    "environment_sha256": "e",
    "numerics_class": "n",
    "code_files": [],
    "code_as_contracted": True,
    "weights_sha256": "w",
    "init_sha256": "i",
    "draws": {},
    "determinism": SWITCHES,
    "seed": 42,
    "device": "cpu",
    "threads": 1,
    "numerics": "native",
    "precision": {"asked": "fp32", "chosen": "fp32", "reason": ""},
    "libraries": {},
    "data": None,
    "rehearsal": {"samples": 10, "seconds": 0.1},
    "state": "finished",
    "stop_reason": "epochs",
    "steps": 30,
    "epochs": 3,
    "planned_steps": 30,
    "planned_epochs": 3,
    "batch_size": 8,
    "accumulate": 1,
    "train_samples": 80,
    "measured_samples": {},
    "chain": {"entries": 30, "head": "h"},
    "interruptions": [],
    "first_divergence": None,
    "nonfinite": None,
    "metric": {"name": "accuracy", "mode": "max"},
    "best": None,
    "final": None,
    "metrics": {"accuracy": 0.9},
    "history": [],
    "saved": {"every_n_epochs": 1, "save_best": True, "save_last": True, "keep": 2},
    "layers": [],
    "groups": [],
    "first_loss": 1.0,
    "parameters": 1,
    "checkpoints": [],
    "evaluation": None,
    "gpu": None,
    "time_s": {"setup": 1.0},
    "wall_s": 1.0,
    "step_time_us": {"median": 9, "p95": 9},
    "step_pace_us": 9,
    "shortest_step_us": 9,
    "memory": {"peak_rss_mb": 300, "device_peak_mb": None},
}


def run_result(**changes: Any) -> RunResult:
    """Return the result of a run of 30 steps."""
    return RunResult.model_validate({**RESULT, **changes})


def probe_result(**changes: Any) -> ProbeResult:
    """Return the result of a probe."""
    return ProbeResult.model_validate({**RESULT, "purpose": "probe", **changes})


def program(*outputs: dict[str, Any]) -> dict[str, Any]:
    """Return what a result has of a program that left some files."""
    counts = {"processes": 1, "evaluations": 1, "losses": 30}
    return {"command": ["python"], **counts, "outputs": [*outputs], "read": [], "resumed": None}
