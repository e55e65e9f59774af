"""What a dimension of the default space brings: the same draws of a search with it and without it, paired by trial.

    PYTHONPATH=. python tests/benchmarks/bench_space.py [--tables moons ...] [--pictures] [--seeds 0 1] [--trials 8] [--kept FILE]

Each data set is begun as `mltrainer init` does, with the tables' split. A trial draws every other dimension alike with and
without those that are examined, so the difference of two trials is theirs. Prints for each value the mean difference of both
metrics over all pairs, of tables and of pictures, and that of the best of each search's trials by the validation metric.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from PIL import Image as Pillow
from sklearn.datasets import load_digits

from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template, overlay, tuning_template
from mltrainer.project.start import make_project
from mltrainer.search.space import active, trial_config, trial_values
from mltrainer.tasks.opening import open_task
from mltrainer.trainers.native.fitting import train
from tests.benchmarks.bench_public_tables import SPLIT
from tests.benchmarks.tables.formulas import FORMULAS, TARGET

Row = dict[str, Any]
PICTURES = "digits as pictures"
TABLES = ["diabetes", "moons", "friedman2", "classification"]
SCHEDULES = {"schedule.name": {"choice": ["cosine", "linear", "one_cycle", "constant"]}}
AUGMENT: dict[str, Row] = {
    "mixup": {"augment.mixup": {"choice": [None, 0.2]}},
    "affine": {"augment.affine.translate": {"uniform": [0.0, 0.15]}, "augment.affine.rotate": {"uniform": [0.0, 15.0]}},
    "erase": {"augment.erase": {"choice": [None, 0.25]}},
}


def begun(name: str, seed: int, folder: Path) -> tuple[TrainingConfig, Row, Path]:
    """Return the baseline's config, the search's template, and the project's folder."""
    root = folder / "project"
    if name == PICTURES:
        _paint(folder / "pictures")
        make_project(root, None, folder / "pictures", None)
    else:
        FORMULAS[name].write(seed, folder / "table.csv")
        make_project(root, None, folder / "table.csv", TARGET)
    project = load_project(root / "mltrainer.yaml").model_dump()
    values = overlay({**baseline_template(root), **project}, {"seed": seed, "split": SPLIT})
    return validate_values(TrainingConfig, values, "bench"), tuning_template(root), root


def _paint(folder: Path) -> None:
    digits = load_digits()
    for number, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(digit) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray((pixels * 15).astype("uint8")).save(path)


def network(config: TrainingConfig, root: Path) -> dict[str, float]:
    """Return a training's metric on the validation and on the test rows."""
    found = train(config, root, tell=lambda _event: None)
    opened = open_task(config, root)
    rows, targets = opened.open_test().tensors or ()
    with torch.no_grad():
        test = opened.task.metrics(found.model(rows), targets)
    return {"validation": found.metrics[config.metric.name], "test": test.get("accuracy", test.get("r2"))}


def measure(name: str, seed: int, trials: int) -> list[Row]:
    """Return a row for each trial and examined group of dimensions; equal configs are trained once."""
    with tempfile.TemporaryDirectory() as folder:
        config, template, root = begun(name, seed, Path(folder))
        usual = int(config.schedule.warmup_epochs)
        warmups = {"schedule.warmup_epochs": {"choice": [0, usual, 4 * usual]}}
        examined = {"name": SCHEDULES, "warmup": warmups, **(AUGMENT if name == PICTURES else {})}
        trial = overlay(config.model_dump(), template["trial"])
        return [row for nr in range(1, trials + 1) for row in _pairs(trial, template["space"], examined, nr, root)]


def _pairs(config: Row, space: Row, examined: dict[str, Row], nr: int, root: Path) -> list[Row]:
    values = trial_values(space, config["seed"], nr)
    plain = trial_config(config, active(space, values, config))
    without = network(plain, root)
    rows = []
    for group, dimensions in examined.items():
        drawn = trial_values(dimensions, config["seed"], nr)
        changed = trial_config(config, {**values, **drawn})
        found = without if changed == plain else network(changed, root)
        rows.append({"nr": nr, "group": group, "drawn": drawn, "without": without, "with": found})
    return rows


def summary(rows: list[Row]) -> None:
    """Print what each value brings, of tables and of pictures, and what the groups bring to the best of each search."""
    for kind in ("tables", "pictures"):
        mine = [row for row in rows if (row["data"] == PICTURES) == (kind == "pictures")]
        for group in dict.fromkeys(row["group"] for row in mine):
            some = [row for row in mine if row["group"] == group]
            searches = [
                [row for row in some if (row["data"], row["seed"]) == one] for one in {(r["data"], r["seed"]) for r in some}
            ]
            for value in dict.fromkeys(map(_value, some)):
                pairs = [(row["without"], row["with"]) for row in some if _value(row) == value]
                print(json.dumps({"kind": kind, "group": group, "value": value, "pairs": len(pairs), **_gains(pairs)}))
            told = {"kind": kind, "group": group, "best of each search": len(searches)}
            print(json.dumps({**told, **_gains([_best(search) for search in searches])}), flush=True)


def _value(row: Row) -> str:
    if row["group"] == "warmup":
        return "as planned" if row["with"] == row["without"] else "none" if 0 in row["drawn"].values() else "four times"
    return row["group"] if len(row["drawn"]) > 1 else str(*row["drawn"].values())


def _best(rows: list[Row]) -> tuple[Row, Row]:
    """Return the winner by validation without the dimensions, and with them."""
    first, second = (max((row[key] for row in rows), key=lambda one: float(one["validation"])) for key in ("without", "with"))
    return first, second


def _gains(pairs: list[tuple[Row, Row]]) -> dict[str, str]:
    return {key: _mean([after[key] - before[key] for before, after in pairs]) for key in ("validation", "test")}


def _mean(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):+.4f} +- {error:.4f}"


def main() -> None:
    """Measure what the command line names, go on where a file of earlier results ends, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", choices=list(FORMULAS), default=TABLES)
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "bench_space.jsonl")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in given.kept.read_text("utf-8").splitlines()] if given.kept.exists() else []
    known = {(row["data"], row["seed"]) for row in rows}
    for seed in given.seeds:
        for name in [*given.tables, *([PICTURES] if given.pictures else [])]:
            if (name, seed) not in known:
                new = [{"data": name, "seed": seed, **row} for row in measure(name, seed, given.trials)]
                rows += new
                with given.kept.open("a", encoding="utf-8") as file:
                    file.write("".join(json.dumps(row) + "\n" for row in new))
    summary(rows)


if __name__ == "__main__":
    main()
