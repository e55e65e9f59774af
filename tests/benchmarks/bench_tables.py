"""What a project's default, and a short search from it, reach on tables beside what a colleague would try first.

Each table is written as CSV and begun as `mltrainer init --data` does. Of five seeds each draws the table where a formula makes
it, the splits, and the weights. The scikit-learn models learn the same training rows and are judged on the same test rows; the
validation rows choose the network's epoch and the search's winner. `init`'s model, epochs and batches are the default; the search
draws from the project's own space and keeps the default as one candidate.

    python tests/benchmarks/bench_tables.py [--tables iris] [--seeds 0 1] [--trials 4] [--kept FILE] [--write]

What was measured is kept in a file, so that an interrupted benchmark goes on; `--write` puts the outcome into docs/TABLES.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template, overlay, tuning_template
from mltrainer.project.start import make_project
from mltrainer.references.models import MOST_CATEGORIES
from mltrainer.search.space import trial_config, trial_values
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.trainers.native.fitting import train
from tests.benchmarks.tables.formulas import FORMULAS, TARGET

PAGE = Path(__file__).parents[2] / "docs" / "TABLES.md"
SPLIT = {"validation": 0.2, "test": 0.2}
BUDGET_S = 2 * 20 * 60  # of CPU: twenty minutes on two cores
NEAR = 0.02  # the default's share below the better reference that still counts as near


# --- one table, one seed --------------------------------------------------------------------------


def begun(name: str, seed: int, folder: Path) -> tuple[TrainingConfig, dict[str, Any]]:
    """Return what `init` and planning make of a table: the baseline's config, and the search's template."""
    FORMULAS[name].write(seed, folder / "table.csv")
    make_project(folder / "project", None, folder / "table.csv", TARGET)
    root = folder / "project"
    project = load_project(root / "mltrainer.yaml").model_dump()
    values = overlay({**baseline_template(root), **project}, {"seed": seed, "split": SPLIT})
    return validate_values(TrainingConfig, values, "bench"), tuning_template(root)


def network(config: TrainingConfig, root: Path) -> dict[str, float]:
    """Return a training's metric on the validation and on the test rows, the epoch it took, and its CPU seconds."""
    started = time.process_time()
    found = train(config, root, tell=lambda _event: None)
    spent = time.process_time() - started
    opened = open_task(config, root)
    rows, targets = opened.open_test().tensors or ()
    with torch.no_grad():
        test = opened.task.metrics(found.model(rows), targets)
    compared = test.get("accuracy", test.get("r2"))
    return {"validation": found.metrics[config.metric.name], "test": compared, "epochs": len(found.history), "seconds": spent}


def searched(config: TrainingConfig, template: dict[str, Any], trials: int, root: Path) -> list[dict[str, float]]:
    """Return what trials of a search gave; each is a config of the space, trained as the template says."""
    values = overlay(config.model_dump(), template["trial"])
    drawn = [trial_values(template["space"], config.seed, number) for number in range(1, trials + 1)]
    return [network(trial_config(values, one), root) for one in drawn]


def references(opened: OpenTask) -> dict[str, float]:
    """Return the accuracy or R2 of the plain models with their defaults on the test rows."""
    categories = [place for place, count in enumerate(opened.task.categories()) if count is not None]
    splits = [opened.split("train"), opened.open_test()]
    (x, y), (rows, targets) = ([part.numpy() for part in split.tensors or ()] for split in splits)
    is_class, known = y.dtype == np.int64, gaps(x, categories)
    with threadpool_limits(1):
        boosting = boosting_model(is_class, few(known, categories)).fit(known, y)
    return {
        "boosting": boosting.score(gaps(rows, categories), targets),
        "linear": linear_model(is_class, categories, x.shape[1]).fit(x, y).score(rows, targets),
    }


def few(x: np.ndarray, categories: list[int]) -> list[int]:
    """Return the category columns that have no more than histogram gradient boosting's bins; others it reads as numbers."""
    return [place for place in categories if np.nanmax(x[:, place], initial=0) < MOST_CATEGORIES]


def gaps(x: np.ndarray, categories: list[int]) -> np.ndarray:
    """Return a matrix in which an unknown category is missing, as histogram gradient boosting wants it."""
    x = x.copy()
    x[:, categories] = np.where(x[:, categories] < 0, np.nan, x[:, categories])
    return x


def boosting_model(is_class: bool, categories: list[int]) -> Any:
    kind = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
    return kind(categorical_features=categories or None, random_state=0)


def linear_model(is_class: bool, categories: list[int], columns: int) -> Any:
    numbers = [place for place in range(columns) if place not in categories]
    filled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    prepared = make_column_transformer((filled, numbers), (OneHotEncoder(handle_unknown="ignore"), categories))
    return make_pipeline(prepared, LogisticRegression(max_iter=5000) if is_class else Ridge())


def measure(name: str, seed: int, trials: int) -> dict[str, Any]:
    """Return what everybody reaches on a table's test rows; the search's winner is the best on the validation rows."""
    with tempfile.TemporaryDirectory() as folder:
        config, template = begun(name, seed, Path(folder))
        root = Path(folder) / "project"
        peers = references(open_task(config, root))
        default = network(config, root)
        found = [default, *searched(config, template, trials, root)]
    best = max(found, key=lambda one: one["validation"])
    return {"table": name, "seed": seed, **peers, "default": default["test"], "tuned": best["test"], "trials": found}


# --- the outcome ----------------------------------------------------------------------------------


def row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a table's means over its seeds, and how default and tuned compare with the better of the two others."""
    mean = {key: statistics.mean(one[key] for one in found) for key in ("linear", "boosting", "default", "tuned")}
    better = "linear" if mean["linear"] > mean["boosting"] else "boosting"
    ahead = [one["tuned"] - one[better] for one in found]
    error = statistics.stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else 0.0
    seconds = statistics.mean(one["trials"][0]["seconds"] for one in found)
    search_s = statistics.mean(sum(trial["seconds"] for trial in one["trials"]) for one in found)
    near = mean["default"] >= (1 - NEAR) * mean[better]
    verdict = {"near": near, "level": statistics.mean(ahead) >= -error, "ahead": statistics.mean(ahead), "error": error}
    return {"title": FORMULAS[name].title, "better": better, **mean, **verdict, "seconds": seconds, "search_s": search_s}


def outcome(found: dict[str, list[dict[str, Any]]], trials: int) -> str:
    """Return the outcome in Markdown.

    Args:
        found: What was measured of each table, by seed.
        trials: Of the search.
    """
    rows, seeds = [row(name, each) for name, each in found.items()], len(next(iter(found.values())))
    near, level = (sum(one[key] for one in rows) for key in ("near", "level"))
    behind = [one["title"] for one in rows if not one["level"]]
    far = [one["title"] for one in rows if not one["near"]]
    dearest = max(one["search_s"] for one in rows)
    lines = [HEAD.format(seeds=seeds, trials=trials, validation=SPLIT["validation"], test=SPLIT["test"], near=f"{NEAR:.0%}")]
    lines += [_line(one) for one in rows]
    lines += [
        f"\nThe default is within {NEAR:.0%} of the better of the two in **{near} of {len(rows)}** tables"
        + (f"; it is not on {'; '.join(far)}." if far else "."),
        f"The tuned model is at least level with it in **{level} of {len(rows)}**"
        + (f"; it loses on {'; '.join(behind)}." if behind else "."),
        f"By its mean alone it is ahead in {sum(one['ahead'] >= 0 for one in rows)}; {seeds} seeds tell no smaller difference.",
        f"A tuned model took {dearest:.0f} s of one core at most: {dearest / BUDGET_S:.0%} of twenty minutes on two cores.",
    ]
    return "\n".join(lines) + "\n"


def _line(one: dict[str, Any]) -> str:
    bold = {key: f"**{one[key]:.4f}**" if key == one["better"] else f"{one[key]:.4f}" for key in ("linear", "boosting")}
    marks = {key: f"{one[value]:.4f}{'' if one[flag] else ' ✗'}" for key, value, flag in MARKED}
    ahead = f"{one['ahead']:+.4f} ± {one['error']:.4f}"
    cells = [one["title"], *bold.values(), *marks.values(), ahead, f"{one['seconds']:.0f}", f"{one['search_s']:.0f}"]
    return f"| {' | '.join(cells)} |"


MARKED = (("default", "default", "near"), ("tuned", "tuned", "level"))
HEAD = """# Tables: the default model and a tuned one beside what a colleague would try first

Written by `tests/benchmarks/bench_tables.py --write`. The tables ship with scikit-learn or come from published formulas; all are
written as CSV, begun by `mltrainer init --data`, and split alike for everybody: {validation:.0%} for validation, {test:.0%}
for the test, the rest to train. Figures are means over {seeds} seeds of the test rows' accuracy, or R2 where a quantity is
predicted. Linear is logistic or ridge regression (median for gaps, standardized, one-hot categories), boosting scikit-learn's
histogram gradient boosting with categories and gaps told; both with their defaults, learning the same training rows.

Default is what `init` and planning give. Tuned is the best on the validation rows of it and {trials} draws from the project's own
`configs/tuning_template.yaml`. The better of linear and boosting is bold. ✗ marks a default more than {near} below it, and a
tuned model that is behind it by more than one standard error of the seeds' differences, which stands behind it. The last
columns are CPU seconds on one core, of one default training and of all that the tuned model took.

| table | linear | boosting | default | tuned | tuned, ahead of the better | s | all, s |
|---|---:|---:|---:|---:|---:|---:|---:|"""


def main() -> None:
    """Measure what the command line names, go on where a file of earlier results ends, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=list(FORMULAS), default=list(FORMULAS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--trials", type=int, default=4, help="of the search")
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "bench_tables.jsonl")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    kept = [json.loads(line) for line in given.kept.read_text("utf-8").splitlines()] if given.kept.exists() else []
    known = {(one["table"], one["seed"]): one for one in kept}
    for seed in given.seeds:
        for name in given.tables:
            if (name, seed) not in known:
                known[name, seed] = measure(name, seed, given.trials)
                with given.kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[name, seed]) + "\n")
    text = outcome({name: [known[name, seed] for seed in given.seeds] for name in given.tables}, given.trials)
    if given.write:
        PAGE.write_text(placed(PAGE.read_text("utf-8"), text), "utf-8")
    print(text)


def placed(page: str, text: str) -> str:
    """Return a page with a part in the place of the one with the same heading, or behind the first part where there is none."""
    first, *parts = re.split(r"(?m)^(?=## )", page)
    heading = text.partition("\n")[0]
    if heading.startswith("# "):
        return "".join([text + "\n", *parts])
    others = [part for part in parts if not part.startswith(heading + "\n")]
    return "".join([first, text + "\n", *others])


if __name__ == "__main__":
    main()
