"""Records as the phases write them: a classification, a regression, a run that met NaN, a skip, a tuning."""

from __future__ import annotations

import math
import random
from typing import Any

import mltrainer
from mltrainer.figures.drawn import draw, rows
from mltrainer.reports.gate_items import GateItem
from mltrainer.workspace import digest

LAYERS = ["0.weight", "2.weight", "4.weight"]


def sha(name: str) -> str:
    return digest(name)


def source(**changes: Any) -> dict[str, Any]:
    files = [
        {"path": "digits/task.py", "sha256": sha("task"), "size": 1834},
        {"path": "digits/model.py", "sha256": sha("model"), "size": 912},
    ]
    found = {
        "files": files,
        "sha256": digest(files),
        "commit": "4f1c2b3a" * 5,
        "branch": "main",
        "dirty": False,
        "diff_sha256": None,
        "snapshot": None,
        "untracked": 0,
        "note": None,
    }
    return {**found, **changes}


def dirty_source() -> dict[str, Any]:
    return source(dirty=True, diff_sha256=sha("diff"), snapshot="refs/mltrainer/" + "ab12" * 10, untracked=3)


def gate(*fails: str, waived: str | None = None) -> list[GateItem]:
    def item(name: str) -> GateItem:
        statement = f"The run is {name}."
        if name == waived:
            return GateItem(name, statement, "waived", {"minutes": 71.3, "budget_minutes": 60}, None)
        if name in fails:
            return GateItem(name, statement, "fail", {"value": "nan"}, f"mltrainer guide {name}")
        return GateItem(name, statement, "pass", {"steps": 400, "of": 400}, None)

    rule = {"rule": "no GPU: trained on the CPU"}
    busy = GateItem("gpu_utilization", "The GPU is busy.", "not_applicable", rule, None)
    return [*map(item, ("finished", "losses_finite", "checkpoints_verified", "within_time_budget")), busy]


def waiver() -> dict[str, Any]:
    return {
        "item": "within_time_budget",
        "reason": "The cluster was shared that day.",
        "by": "Ada Lovelace <ada@example.org>",
        "when": "2026-03-04T05:06:07Z",
        "record": sha("record"),
    }


def _row(epoch: int, of: int, draw: random.Random, kind: str) -> dict[str, Any]:
    falling = math.exp(-epoch / (of / 5))
    train, validation = 2.1 * falling + 0.012, 2.0 * falling + 0.09 + 0.002 * epoch
    metrics = {"accuracy": (1 - 0.8 * falling, 0.969 - 0.8 * falling), "r2": (0.9 - falling, 0.82 - falling)}
    name = "accuracy" if kind == "classification" else "r2"
    return {
        "epoch": epoch,
        "step": 20 * epoch,
        "lr": 1e-3 * 0.5 * (1 + math.cos(math.pi * epoch / (of + 1))),
        "train_loss": train * 1.21 + 0.003,
        "train": {"loss": train, name: metrics[name][0]},
        "validation": {"loss": validation, name: metrics[name][1]},
        "grad_norm": {"median": 0.9 * falling + 0.05 * draw.random(), "max": 3.1 * falling + 0.4, "min": 0.02 * falling + 0.011},
        "layer_norms": [(0.7 * falling + 0.03) / (nr + 1) * (0.9 + 0.2 * draw.random()) for nr in range(3)],
        "update_ratios": [(2e-3 * falling + 1e-4) * (nr + 1) for nr in range(3)],
        "seconds": 0.31 + 0.02 * draw.random(),
        "samples_per_s": 52000 + 3000 * draw.random(),
        "data_wait": 0.02 + 0.01 * draw.random(),
        "clipped": 0.4 * falling,
    }


def run(kind: str = "classification", epochs: int = 20, **changes: Any) -> dict[str, Any]:
    rows = [_row(epoch, epochs, random.Random(epoch), kind) for epoch in range(1, epochs + 1)]
    best = rows[-3]
    name, mode = ("accuracy", "max") if kind == "classification" else ("r2", "max")
    files = [{"path": f"weights-{step}.safetensors", "sha256": sha(f"w{step}"), "size": 341208 + step} for step in (360, 400)]
    found = {
        "schema": 1,
        "id": "a1b2c3d4e5f6",
        "phase": "baseline",
        "state": "finished",
        "stop_reason": "epochs",
        "parent": None,
        **{f"{part}_sha256": sha(part) for part in ("config", "data", "code", "environment", "weights")},
        "numerics_class": "9f8e7d6c5b4a3210",
        "seed": 42,
        "steps": 20 * epochs,
        "epochs": epochs,
        "planned_steps": 20 * epochs + 20,
        "planned_epochs": epochs + 1,
        "batch_size": 64,
        "accumulate": 2,
        "train_samples": 1258,
        "measured_samples": {"train": 360, "validation": 360},
        "metric": {"name": name, "mode": mode},
        "best": {key: best[key] for key in ("epoch", "step", "validation", "train")},
        "final": {key: rows[-1][key] for key in ("epoch", "step", "validation", "train")},
        "metrics": {
            name: best["validation"][name],
            "loss": best["validation"]["loss"],
            f"train_{name}": best["train"][name],
            "train_loss": best["train"]["loss"],
        },
        "history": rows,
        "layers": LAYERS,
        "groups": [
            {"lr": 1.0, "weight_decay": 0.0125, "parameters": ["0.weight"]},
            {"lr": 0.35, "weight_decay": 0.0, "parameters": ["0.bias", "1.weight"]},
        ],
        "first_loss": 2.3071,
        "nonfinite": None,
        "parameters": 85002,
        "step_time_us": {"median": 712.4, "p95": 1093.8},
        "wall_s": 9.87,
        "time_s": {"setup": 1.41, "train": 6.21, "evaluate": 0.83, "checkpoint": 0.42},
        "memory": {"peak_rss_mb": 412.3, "device_peak_mb": None},
        "gpu": None,
        "checkpoints": [
            {
                "step": step,
                "epoch": step // 20,
                "roles": [role],
                "path": f".mltrainer/runs/a1b2c3d4e5f6/checkpoints/step-{step:08d}",
                "verified": True,
                "files": [file],
            }
            for step, role, file in zip((360, 400), ("best", "last"), files, strict=True)
        ],
        "chain": {"entries": 401, "head": sha("chain")[:32]},
        "interruptions": [{"step": 120, "cause": "SIGINT"}],
        "evaluation": confusion() if kind == "classification" else residuals(),
        "errors": errors(kind),
        "device": "cpu",
        "threads": 1,
        "libraries": {"PyTorch": "2.13.0", "MKL": "2024.2"},
    }
    return {**found, **changes}


def confusion() -> dict[str, Any]:
    draw = random.Random(7)
    counts = [[34 - t % 3 if t == p else int(draw.random() < 0.12) for p in range(10)] for t in range(10)]
    return {"kind": "classification", "labels": [str(nr) for nr in range(10)], "confusion": counts}


def residuals() -> dict[str, Any]:
    draw = random.Random(3)
    targets = [30 + 300 * draw.random() for _ in range(80)]
    pairs = [[target, target * 0.8 + 30 + draw.gauss(0, 35)] for target in targets]
    return {"kind": "regression", "pairs": pairs, "residual_quantiles": [-61.2, -24.9, 1.13, 22.7, 58.4]}


def errors(kind: str = "classification") -> dict[str, Any]:
    """Return what a model gets wrong: the calibration of a classifier, the residuals of a regression, and one segment."""
    sure = [
        {
            "probability": 0.55 + nr / 10,
            "frequency": 0.5 + nr / 9,
            "low": 0.31 + nr / 11,
            "high": 0.7 + nr / 12,
            "samples": 31 + nr,
        }
        for nr in range(3)
    ]
    quantiles = [[-61.5 - nr, -22.5 - nr, 1.5 + nr, 23.5 + nr, 59.5 + nr] for nr in range(3)]
    off = [
        {"prediction": 90.5 + 41 * nr, "quantiles": quantiles[nr], "covered": 0.93 - nr / 30, "samples": 27} for nr in range(3)
    ]
    worse = {"column": "city", "value": "Lima", "samples": 141, "error": 0.279, "low": 0.211, "high": 0.358, "rest": 0.126}
    told = {"measure": "error rate", "overall": 0.162, "samples": 607, "tested": 23, "level": 0.05, "fewest": 20, "found": 1}
    where = {"segments": {**told, "rows": [{**worse, "p": 0.00073}]}}
    if kind == "regression":
        return {"along": {"half_width": 71.25, "level": 0.9, "bins": off}, **where}
    means = {"error": 0.0462, "by_luck": 0.0436, "probability": 0.513, "frequency": 0.494}
    return {"calibration": {**means, "bins": sure}, **where}


def config(kind: str = "classification") -> dict[str, Any]:
    return {
        "name": "digits",
        "seed": 42,
        "task": {
            "kind": "image_classification" if kind == "classification" else "tabular_regression",
            "use": None,
            "options": {},
        },
        "data": {"source": "sklearn:digits", "target": None, "ignore": []},
        "split": {"validation": 0.2, "test": 0.1, "stratify": True},
        "model": {"name": "mlp", "hidden": [256, 128], "dropout": 0.0},
        "metric": {"name": "accuracy", "mode": "max"},
        "acceptance": {"accuracy": ">= 0.95"},
        "budget": {"minutes": 60.0},
        "epochs": 21,
        "accumulate": 2,
        "averaging": {"name": "ema", "decay": 0.995},
        "callbacks": [{"use": "digits.watch:Cooling", "options": {"factor": 0.5}}],
        "precision": "bf16",
        "optimizer": {"name": "adamw", "lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
        "schedule": {"name": "cosine", "warmup_epochs": 1.0},
        "clip": {"norm": 1.5},
        "early_stopping": None,
    }


def acceptance(met: bool = True) -> list[dict[str, Any]]:
    criterion = ">= 0.95" if met else ">= 0.99"
    return [{"metric": "accuracy", "criterion": criterion, "value": 0.9634, "met": met, "split": "validation"}]


def again(found: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose evidence was changed with the figures of that evidence."""
    return {**found, "figures": bound(found["phase"], found["evidence"])}


def record(phase: str, evidence: dict[str, Any], **changes: Any) -> dict[str, Any]:
    content = {
        "schema": 1,
        "mltrainer": mltrainer.__version__,
        "phase": phase,
        "project": {"id": "0123456789abcdef", "name": "digits"},
        "previous": None if phase == "planning" else sha("previous"),
        "inputs": [{"path": "phases/01_planning/training_config.yaml", "sha256": sha("yaml"), "size": 911, "role": "config"}],
        "policy": {"phase": phase, "items": []},
        "policy_overrides": [],
        "policy_changes": [],
        "waived_before": [],
        "source": source(),
        "figures": bound(phase, evidence),
        "since": None,
        "evidence": evidence,
        **changes,
    }
    return {**content, "seal": digest(content)}


def bound(phase: str, evidence: Any) -> list[dict[str, Any]]:
    """Return the figures as a phase binds them; of a baseline for the diagnostics, which link them."""
    if not isinstance(evidence, dict):
        return []
    return rows(phase, evidence, draw(phase, evidence), bound("baseline", {"run": run()}) if phase == "diagnostics" else None)


def environment() -> dict[str, Any]:
    return {
        "python": {"version": "3.11.9", "implementation": "CPython", "build": "main Apr 2 2024", "executable_kind": "venv"},
        "platform": {"system": "Linux", "release": "6.1.0", "machine": "x86_64", "libc": "glibc 2.36"},
        "cpu": {"model": "Example CPU @ 2.40GHz", "cores": 8, "flags_sha256": sha("flags"), "flags": ["avx2", "avx512f", "fma"]},
        "memory_mb": 31942,
        "distributions": [
            {"name": "numpy", "version": "2.4.6", "record_sha256": sha("numpy"), "editable": False},
            {"name": "torch", "version": "2.13.0", "record_sha256": sha("torch"), "editable": False},
            {"name": "digits", "version": "0.1", "record_sha256": None, "editable": True},
        ],
        "variables": {"OMP_NUM_THREADS": "1"},
        "gpu": [],
        "threads": 1,
        "sha256": sha("environment"),
    }


def data() -> dict[str, Any]:
    splits = {
        name: {"samples": count, "sha256": sha(name)} for name, count in (("train", 1258), ("validation", 360), ("test", 179))
    }
    return {
        "sha256": sha("data"),
        "samples": 1797,
        "source": "sklearn:digits",
        "kind": "image_classification",
        "files": [{"path": "data/digits.csv", "sha256": sha("csv"), "size": 264712}],
        "splits": splits,
        "columns": [{"name": "petal|length", "kind": "number", "missing": 4, "distinct": 43}],
        "classes": ["0", "1"],
        "class_counts": {"train": {"0": 125, "1": 127}, "validation": {"0": 35, "1": 36}},
        "target": {"name": "price", "min": 25.2, "max": 346.3, "mean": 152.1, "std": 77.09},
        "shape": [1, 8, 8],
        "findings": [{"severity": "warning", "what": "The column pixel_0_0 is constant."}],
        "duplicates_across_splits": 5,
    }


def planning(**changes: Any) -> dict[str, Any]:
    probes = [
        {
            "chain_head": sha("head")[:32],
            "weights_sha256": sha("probe"),
            "init_sha256": sha("init"),
            "draws": {"python": "0.6394", "numpy": "0.3745", "torch": "0.8823"},
            "determinism": {"deterministic_algorithms": True, "PYTHONHASHSEED": "0", "cudnn_benchmark": False, "threads": 1},
            "parameters": 85002,
            "steps": 8,
            "step_time_us": 731.2 + nr,
            "wall_s": 2.31 + nr,
        }
        for nr in range(2)
    ]
    evidence = {
        "config": config(),
        "config_sha256": sha("config"),
        "edited": {"optimizer.lr": 0.0005},
        "data": data(),
        "environment": environment(),
        "probe": {"steps": 8, "runs": probes, "identical": True, "first_difference": None, "cause": None, "resumed_at": 4},
        "loader": {"workers": 0, "in_memory": True, "rows": []},
        "options": [],
        "libraries": {"PyTorch": "2.13.0", "MKL": "2024.2", "OpenMP runtimes loaded": "libgomp.so.1"},
        "precision": {"asked": "auto", "chosen": "bf16", "reason": "the device has it"},
        "schedule": [[0.05, 5e-5], [1.0, 1e-3], [10.5, 5e-4], [20.0, 0.0]],
        "estimate": {
            "steps": 420,
            "step_time_us": 731.7,
            "minutes": 0.31,
            "budget_minutes": 60.0,
            "peak_mb": 401.5,
            "available_mb": 28111.0,
            "checkpoint_mb": 1.02,
            "disk_free_mb": 81234.0,
        },
        "secrets": {"scanned": ["training_config.yaml", "record.json"], "found": []},
        "numerics_class": "9f8e7d6c5b4a3210",
    }
    return record("planning", {**evidence, **changes})


def baseline(**changes: Any) -> dict[str, Any]:
    return of_baseline(run(**changes))


def of_baseline(found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    waiting = {"share": 0.0243, "limit": 0.3, "starved": False}
    evidence = {"run": found, "budget_minutes": 61.0, "acceptance": acceptance(), "waiting": waiting}
    return record("baseline", evidence, **changes)


def beside_plain_models() -> dict[str, Any]:
    """A baseline with every verdict, and a plain model that failed."""
    nothing = {"metrics": {}, "interval": None, "lead": None, "verdict": None}

    def row(title: str, **found: Any) -> dict[str, Any]:
        return {"name": "x", "title": title, "rows": 1000, "seconds": 1.234, "reason": None, **nothing, **found}

    verdicts = {"majority class": "ahead", "logistic regression": "level", "gradient boosting": "behind"}
    rows = [row(t, metrics={"accuracy": 0.91}, interval=[0.9, 0.92], lead=[-0.1, 0.1], verdict=v) for t, v in verdicts.items()]
    rows.append(row("nearest | neighbours", reason="ValueError: x | y"))
    network = {"metrics": {"accuracy": 0.9634}, "interval": [0.94, 0.98]}
    found = {"metric": "accuracy", "samples": 360, "train_samples": 1258, "level": 0.95, "resamples": 1000, "network": network}
    made = baseline()
    return record("baseline", {**made["evidence"], "references": {**found, "rows": rows, "reason": None}})


def beside_its_teacher(*without: dict[str, Any]) -> dict[str, Any]:
    """A baseline that learned from a teacher, beside runs of it without one."""
    cost, own = ({"parameters": n, "one_ms": n / 7, "batch_ms": n / 3, "batch": 64} for n in (21482, 1210))
    metrics = {"accuracy": 0.98603, "loss": 0.12164}
    taught = {"teacher": "../big|model", "metrics": metrics, "cost": cost, "own_cost": own, "untaught_sha256": sha("data")}
    made = of_baseline({**run(), "taught": taught})
    told = {"runs": [*without], "command": "mltrainer ablate 'strategies=[]'"}
    return record("baseline", {**made["evidence"], "untaught": told})


def regression() -> dict[str, Any]:
    return of_baseline(run("regression"))


def failed() -> dict[str, Any]:
    """A run whose loss became NaN in its fourth epoch."""
    found = run(epochs=4, state="failed", stop_reason="nonfinite", checkpoints=[], evaluation=None)
    found["nonfinite"] = {"step": 71, "epoch": 4, "what": "loss", "samples": [17, 230, 911]}
    last = found["history"][-1]
    last.update(train_loss="nan", grad_norm={"median": "inf", "max": "inf", "min": 0.4}, layer_norms=["nan", "inf", 0.0])
    last["train"], last["validation"] = {"loss": "nan", "accuracy": 0.1}, {"loss": "nan", "accuracy": 0.1}
    found["final"] = {key: last[key] for key in ("epoch", "step", "validation", "train")}
    return of_baseline(found, source=dirty_source())


def broken_at_once() -> dict[str, Any]:
    """A run that ended before its first evaluation."""
    nothing = {
        "history": [],
        "best": None,
        "final": None,
        "metrics": {},
        "checkpoints": [],
        "evaluation": None,
        "layers": [],
        "time_s": {},
    }
    found = run(state="failed", stop_reason="nonfinite", nonfinite={"step": 1, "epoch": 1, "what": "loss", "samples": []})
    return of_baseline({**found, **nothing, "wall_s": 0.4})


def diagnostics(recommendation: str = "optimize", fired: bool = True) -> dict[str, Any]:
    rows = [
        {
            "id": "overfitting",
            "title": "Overfitting",
            "page": "diagnostics/overfitting.md",
            "state": "fired" if fired else "clear",
            "reason": "Training accuracy is 17.2 points above validation accuracy.",
            "evidence": {"gap": 0.172, "epoch": 18},
            "thresholds": {"max_gap": 0.15},
            "severity": "warning",
            "causes": ["The model is too complex for the data."],
            "suggestions": [
                {"why": "Regularize", "set": {"model.dropout": 0.2, "optimizer.weight_decay": 0.05}},
                {"why": "Learn slower", "set": {"optimizer.lr": "x0.1"}},
            ],
            "figures": ["gap.svg"],
        },
        {
            "id": "resource_inefficiency",
            "title": "Resource inefficiency",
            "page": "diagnostics/resource_inefficiency.md",
            "state": "not_applicable",
            "reason": "There is no GPU.",
            "evidence": {},
            "thresholds": {"min_percent": 70},
            "severity": "info",
            "causes": [],
            "suggestions": [],
            "figures": [],
        },
    ]
    evidence = {
        "run_id": "a1b2c3d4e5f6",
        "metrics": {"accuracy": 0.9634, "loss": 0.121},
        "diagnostics": rows,
        "assessment": {
            "curves": "20 evaluations; the loss still falls.",
            "fit": "good",
            "fit_reason": "The gap is 0.9 points.",
            "gradients": "healthy",
            "gradients_reason": "The median norm is 0.21.",
        },
        "acceptance": acceptance(recommendation == "deploy"),
        "recommendation": recommendation,
        "reasons": ["Accuracy 0.9634 is below 0.99."],
        "errors": errors(),
        "mistakes": [{"true": "5", "predicted": "3", "samples": 7}],
    }
    return record("diagnostics", evidence)


def skip() -> dict[str, Any]:
    return record(
        "optimization", {"skipped": True, "rule": "the baseline meets the acceptance criterion", "acceptance": acceptance()}
    )


def tuning() -> dict[str, Any]:
    draw = random.Random(5)
    trials = [
        {
            "nr": nr,
            "run": sha(f"trial{nr}")[:12],
            "values": {"optimizer.lr": 10 ** (-4 + 2 * draw.random()), "batch_size": 32 * (1 + nr % 3)},
            "seed": 1000 + nr,
            "state": "finished" if nr != 4 else "failed",
            "value": 0.94 + 0.004 * nr if nr != 4 else "nan",
            "steps": 400 + nr,
            "wall_s": 7.1 + nr,
        }
        for nr in range(1, 9)
    ]
    evidence = {
        "skipped": False,
        "space": {"optimizer.lr": {"log_uniform": [0.0001, 0.01]}, "batch_size": {"choice": [32, 64, 96]}},
        "strategy": "random",
        "seed": 43,
        "metric": {"name": "accuracy", "mode": "max"},
        "cheaper": [{"key": "epochs", "before": 21, "after": 10}],
        "planned_trials": 8,
        "trials": trials,
        "best": 8,
        "baseline": {"run": "a1b2c3d4e5f6", "value": 0.9634},
        "replay": {"identical": True},
        "comparison": {
            "seeds": [101, 102, 103],
            "baseline": [0.9634, 0.9612, 0.9651],
            "candidate": [0.9721, 0.9688, 0.9643],
            "mean_difference": 0.00517,
            "worst_difference": -0.0008,
            "test": "sign-flip test, one-sided",
        },
        "config": config(),
        "promoted": "baseline",
    }
    policy = {"items": [{"id": "improvement_validated", "settings": {"seeds": 3, "level": 0.05}}]}
    return record("optimization", evidence, policy=policy)


SPACE = {
    "optimizer.lr": {"log_uniform": [1e-4, 1e-2]},
    "batch_size": {"choice": [16, 32, 64]},
    "model.dropout": {"uniform": [0.0, 0.5]},
    "model.width": {"integer": [16, 256], "when": {"model.name": ["mlp"]}},
    "model.name": {"choice": ["mlp", "linear"]},
}


def searched(count: int, seed: int = 5, noise: float = 0.01, epochs: int = 8) -> dict[str, Any]:
    """A search with rungs: the learning rate matters, the higher the better; a few trials fail, a third is stopped early."""
    draw = random.Random(seed)
    found = tuning()
    trials = [_trial(nr, draw, noise, epochs) for nr in range(1, count + 1)]
    ended = [trial for trial in trials if trial["state"] == "finished"]
    best = max(ended, key=lambda trial: (trial["value"], -trial["nr"]))["nr"] if ended else None
    changes = {"space": SPACE, "trials": trials, "best": best, "planned_trials": count, "rungs": [2, 4], "lag": 4}
    baseline = {"run": "a1b2c3d4e5f6", "value": 0.9, "values": {"optimizer.lr": 0.001, "batch_size": 32, "model.dropout": 0.0}}
    cheaper = [{"key": "epochs", "before": 21, "after": epochs}]
    evidence = {**found["evidence"], **changes, "baseline": baseline, "cheaper": cheaper, "search_s": 321.5, "ended": "trials"}
    return again({**found, "evidence": evidence})


def _trial(nr: int, draw: random.Random, noise: float, epochs: int) -> dict[str, Any]:
    values = {
        "optimizer.lr": 10 ** draw.uniform(-4, -2),
        "batch_size": draw.choice([16, 32, 64]),
        "model.dropout": draw.uniform(0.0, 0.5),
        "model.name": draw.choice(["mlp", "linear"]),
    }
    if values["model.name"] == "mlp":
        values["model.width"] = draw.randint(16, 256)
    level = 0.9 + 0.04 * (math.log10(values["optimizer.lr"]) + 3) + draw.gauss(0, noise)
    state = "failed" if nr % 17 == 0 else "pruned" if level < 0.9 and nr % 3 else "finished"
    trained = {"failed": 1, "pruned": 2 if level < 0.88 else 4, "finished": epochs}[state]
    curve = [(epoch, level * (1 - 0.5**epoch)) for epoch in range(1, trained + 1)]
    return {
        "nr": nr,
        "run": sha(f"trial{nr}")[:12],
        "values": values,
        "seed": 1000 + nr,
        "state": state,
        "value": curve[-1][1] if state != "failed" else "nan",
        "reason": f"the loss was not finite at step {nr}" if state == "failed" else None,
        "steps": 40 * trained,
        "wall_s": 0.5 * trained,
        "curve": curve,
        "pruned_at": trained if state == "pruned" else None,
        "attempts": 2 if nr == 7 else 1,
    }


def improvement(verdict: str, p_value: float, **evidence: Any) -> list[GateItem]:
    """Return the gate's view of the comparison's test."""
    return [GateItem("improvement_validated", "It is better.", verdict, {"p_value": p_value, **evidence}, "x")]


def finalization(kind: str = "classification") -> dict[str, Any]:
    exports = [
        {
            "format": "safetensors",
            "file": "model.safetensors",
            "state": "written",
            "reason": None,
            "max_difference": 1.3e-7,
            "relative_difference": 2.1e-8,
            "tolerance": 1e-4,
            "agrees": True,
            "samples": 64,
        },
        {
            "format": "onnx",
            "file": "model.onnx",
            "state": "not_available",
            "reason": "onnx is not installed: pip install mltrainer[onnx]",
        },
    ]
    evidence = {
        "run": run(kind, phase="finalization"),
        "baseline_metrics": run(kind)["metrics"],
        "config": config(kind),
        "changed": [{"key": "early_stopping.patience", "before": 3, "after": 30}],
        "reproduction": {
            "run": "a1b2c3d4e5f6",
            "identical": True,
            "steps_compared": 400,
            "first_divergence": None,
            "grade": "bitwise",
        },
        "exports": exports,
        "delivered_sha256": sha("delivered"),
        "model_files": [{"path": "phases/05_finalization/final_model/model.safetensors", "sha256": sha("safe"), "size": 341992}],
        "test": {
            "samples": 179,
            "metrics": {"accuracy": 0.9553, "loss": 0.1532},
            "intervals": {"level": 0.95, "resamples": 2000, "bounds": {"accuracy": [0.921, 0.983]}, "reason": None},
            "sealed": None,
            "openings": [{"nr": 1, "run": "a1b2c3d4e5f6", "purpose": "final evaluation"}],
        },
        "acceptance": acceptance(),
        "runs_tried": 13,
    }
    return record("finalization", evidence)


ALL = {
    "planning": planning,
    "baseline": baseline,
    "beside_plain_models": beside_plain_models,
    "regression": regression,
    "failed": failed,
    "broken_at_once": broken_at_once,
    "diagnostics": diagnostics,
    "skip": skip,
    "tuning": tuning,
    "searched": lambda: searched(12, epochs=5),
    "finalization": finalization,
    "final_regression": lambda: finalization("regression"),
}
