"""The files of `mltrainer init --model boosting`: a program that boosts trees on the rows of the project that `init` writes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from mltrainer.configs import yaml
from mltrainer.configs.templates import TUNING
from mltrainer.project.model_size_defaults import Values, changed_template

PROGRAM, TABLE = "boosting.py", "table.yaml"
OUTPUTS = ["model.joblib", "inference.json", "inference.py"]
ARGUMENTS: Values = {"learning_rate": 0.1, "rounds": 100, "leaves": 31, "least_rows": 20}  # both libraries' defaults
SPACE: Values = {
    "task.arguments.learning_rate": {"log_uniform": [0.01, 0.3]},
    "task.arguments.rounds": {"integer": [50, 500]},
    "task.arguments.leaves": {"integer": [7, 127]},
    "task.arguments.least_rows": {"integer": [5, 100]},
}
KINDS = {"tabular_classification": "Classifier", "tabular_regression": "Regressor"}
LIBRARIES = {
    "lightgbm": {
        "title": "LightGBM",
        "import": "from lightgbm import LGBM{kind}",
        "model": """LGBM{kind}(
        learning_rate=asked.learning_rate,
        n_estimators=asked.rounds,
        num_leaves=asked.leaves,
        min_child_samples=asked.least_rows,
        random_state=asked.seed,
        deterministic=True,  # with one order of sums and one thread the same bits each time
        force_row_wise=True,
        n_jobs=1,
        verbose=-1,
    )""",
        "fit": "model.fit(table.train.cells, table.train.target, categorical_feature=table.categories)",
    },
    "boosting": {
        "title": "scikit-learn's histogram gradient boosting",
        "import": "from sklearn.ensemble import HistGradientBoosting{kind}",
        "model": """HistGradientBoosting{kind}(
        learning_rate=asked.learning_rate,
        max_iter=asked.rounds,
        max_leaf_nodes=asked.leaves,
        min_samples_leaf=asked.least_rows,
        categorical_features=table.declared(255),  # it has bins for 255 categories; a column of more counts as a number
        early_stopping=False,
        random_state=asked.seed,
    )""",
        "fit": "model.fit(table.train.cells, table.train.target)",
    },
}
TEXT = '''"""Boosts trees on the table of {table}: `python {program}` trains, `python {program} FILE` answers the rows of a file.

Written by `mltrainer init --model boosting`, and yours to change. Cells are read, and rows are split, as in a network's project
on the same table; the metrics are that project's, too. Rounds are not stopped by the validation rows, which judge the model.
The test rows stay sealed; `python {program} --open-test` trains and measures on them, for you to look at once, at the end.
"""

import argparse
import json
import shutil
from pathlib import Path

import joblib
{import}

from mltrainer.tables import open_table, print_answers

HERE = Path(__file__).parent


def train(asked):
    table = open_table(HERE / "{table}", asked.sources)
    model = {model}
    {fit}
    if asked.open_test:
        return {{f"test_{{name}}": value for name, value in table.metrics(model, table.open_test()).items()}}
    of_training = {{f"train_{{name}}": value for name, value in table.metrics(model, table.train).items()}}
    measured = {{**table.metrics(model, table.validation), **of_training}}
    (HERE / "metrics.json").write_text(json.dumps(measured))
    # What is delivered: the model, how it reads new rows, and this program, which answers them.
    joblib.dump(model, HERE / "model.joblib")
    (HERE / "inference.json").write_text(json.dumps(table.describe()))
    shutil.copyfile(__file__, HERE / "inference.py")
    return measured


parser = argparse.ArgumentParser()
parser.add_argument("rows", nargs="?", type=Path, help="rows to answer with the model in this folder; none: train one")
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--learning_rate", type=float, default={learning_rate})
parser.add_argument("--rounds", type=int, default={rounds}, help="trees, of each class")
parser.add_argument("--leaves", type=int, default={leaves}, help="leaves of a tree, at most")
parser.add_argument("--least_rows", type=int, default={least_rows}, help="training rows in a leaf, at least")
parser.add_argument("--sources", nargs="+", default=[], help="where the data lie, seen from here, in place of {table}'s paths")
parser.add_argument("--open-test", action="store_true", help="train and measure on the test rows; writes nothing")
asked = parser.parse_args()
if asked.rows is None:
    print(json.dumps(train(asked)))
else:
    print_answers(joblib.load(HERE / "model.joblib"), asked.rows, json.loads((HERE / "inference.json").read_text()))
'''
ABOUT = f"""# What {PROGRAM} learns from: read and split as `mltrainer init` without --model would have it for a network.
# Files are relative to this folder.
"""


def sentences(of: str) -> list[str]:
    """Return sentences on the program, for the person who began the project."""
    better = [] if of == "lightgbm" else ['LightGBM is not installed here (pip install "mltrainer[boosting]")']
    return [
        *better,
        f"{PROGRAM} boosts trees with {LIBRARIES[of]['title']} on the rows of {TABLE}; both files are yours to change",
    ]


def program_values(values: Values) -> Values:
    """Return the values of a project file whose program learns from the table that a network's project file describes."""
    data = values["data"]
    sources = [data[name] for name in ("source", "validation", "test") if data.get(name)]
    # In a copy of the folder, a path out of it leads elsewhere, unless it is in the command.
    named = f" --sources {shlex.join(sources)}" if any(Path(source).parts[0] == ".." for source in sources) else ""
    task = {
        "script": f"python {PROGRAM} --seed {{seed}}{named}",
        "arguments": ARGUMENTS,
        "metrics": "metrics.json",
        "outputs": OUTPUTS,
        "reads": sources,
        "table": TABLE,
    }
    return {"task": task, "metric": {key: values["metric"][key] for key in ("name", "mode")}}


def table_text(values: Values, seed: int) -> str:
    """Return the text of the file that describes the table; it has the seed of its splits, whatever the program's is."""
    split = {**values["split"], "seed": seed}
    return yaml.dump({"task": values["task"], "data": values["data"], "split": split})


def program_text(kind: str, of: str) -> str:
    """Return the program.

    Args:
        kind: The kind of the network's task.
        of: The library.
    """
    parts: dict[str, Any] = {name: text.format(kind=KINDS[kind]) for name, text in LIBRARIES[of].items()}
    return TEXT.format(**parts, table=TABLE, program=PROGRAM, **ARGUMENTS)


def templates() -> dict[str, str]:
    """Return the text of the project's tuning template, by path."""
    comment = "By `mltrainer init --model boosting`: the arguments of its program are what is searched."
    return {TUNING: changed_template(TUNING, comment, {"space": SPACE})}
