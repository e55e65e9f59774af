"""Starts a project: the files of `mltrainer init`."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from mltrainer.configs import yaml
from mltrainer.configs.loading import validate
from mltrainer.configs.programs import SEED, places
from mltrainer.configs.project import STOPS, TEXT, TOKENS, ColumnKind, ProjectConfig, Tokens
from mltrainer.configs.schema import header, write_schemas
from mltrainer.configs.templates import BASELINE, TrainingChanges
from mltrainer.errors import InputError, MachineError
from mltrainer.project import boosting, model_size_defaults, text_corpora
from mltrainer.project.argument_files import read_arguments
from mltrainer.project.croissant import ANSWERS_FILE, DOCUMENTS, is_description, read_description
from mltrainer.project.from_training_arguments import imported
from mltrainer.project.model_size_defaults import Values
from mltrainer.project.training_arguments import listed
from mltrainer.redaction import option_with_secret, scan_text
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.repository import start_repository
from mltrainer.runs.references import library
from mltrainer.workspace import PROJECT_FILE, machine_faults, write_atomic, write_text

if TYPE_CHECKING:
    from mltrainer.tasks.tables.config_inference import InferredConfig

NEED_NO_TARGET = (".txt", ".npz", ".npy")  # a text, and arrays, whose target is y
NETWORK, BOOSTING = "network", "boosting"
SEED_VALUE = 42
FINE_TUNING, BASE = "mltrainer.integrations.fine_tuning:FineTuning", "weights/base"
NO_CRITERION = "no acceptance criterion yet: name one in mltrainer.yaml now, or `mltrainer run` asks after the baseline"
ELSEWHERE = "ANOTHER_FOLDER"
ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")  # as a path has it, with one stroke
EXAMPLES: dict[str, Values] = {
    "digits": {
        "task": {"kind": "image_classification"},
        "data": {"source": "sklearn:digits"},
        "model": {"name": "mlp", "hidden": [256, 256]},
        "metric": {"name": "accuracy", "mode": "max"},
        "acceptance": {"accuracy": ">= 0.95"},
    },
    "wine": {
        "task": {"kind": "tabular_classification"},
        "data": {"source": "sklearn:wine"},
        "model": model_size_defaults.MODEL,
        "metric": {"name": "accuracy", "mode": "max"},
        "acceptance": {"accuracy": ">= 0.9"},
    },
    "diabetes": {
        "task": {"kind": "tabular_regression"},
        "data": {"source": "sklearn:diabetes"},
        "model": {"name": "mlp", "hidden": [32], "dropout": 0.1},
        "metric": {"name": "r2", "mode": "max"},
        "acceptance": {"r2": ">= 0.4"},
    },
    "sentiment": {
        "task": {"kind": "text_classification"},
        "data": {"source": "reviews.csv", "target": "sentiment", "text": "review", "tokens": Tokens().model_dump()},
        "model": {"name": "text_cnn"},
        "metric": {"name": "accuracy", "mode": "max"},
        "acceptance": {"accuracy": ">= 0.85"},
    },
    "trades": {
        "task": {"kind": "tabular_classification"},
        "data": {"source": "trades.csv", "target": "next_day", "columns": {"date": "date"}},
        "split": {"validation": 0.2, "test": 0.2, "stratify": False, "time": "date"},
        "model": model_size_defaults.MODEL,
        "metric": {"name": "roc_auc", "mode": "max"},
        "acceptance": {"roc_auc": ">= 0.6"},
    },
    "textgen": {
        "task": {"kind": "text_generation"},
        "data": {"source": "log.txt", "tokens": {"kind": "char", "vocabulary": 1000, "length": 64, "file": None}},
        "model": {"name": "transformer", "width": 64, "heads": 2, "layers": 1, "dropout": 0.1},
        "metric": {"name": "bits_per_byte", "mode": "min"},
        "acceptance": {"bits_per_byte": "<= 1.1"},
    },
}
SHIPPED = {"wine": 178}  # examples whose tables scikit-learn ships, trained by how many rows they have
WRITTEN: dict[str, tuple[str, Callable[[], str], int]] = {  # the data file of an example, what makes it, and how many samples
    "sentiment": ("reviews.csv", text_corpora.reviews, text_corpora.REVIEWS),
    "textgen": ("log.txt", text_corpora.ships_log, 1300),
    "trades": ("trades.csv", text_corpora.trades, text_corpora.TRADES),
}
MODELS = {"text_classification": {"name": "text_cnn"}, "text_generation": {"name": "transformer"}}  # others begin with an mlp
LOWER_IS_BETTER = ("rmse", "mae", "loss", "perplexity", "bits_per_byte")
GITIGNORE = """# Runs, checkpoints and caches stay out of git; they are found again by digest.
.mltrainer/
phases/05_finalization/final_model/*.safetensors
phases/05_finalization/final_model/*.onnx
phases/05_finalization/final_model/*.onnx.data
phases/05_finalization/final_model/*.pt
phases/05_finalization/final_model/*.pt2
weights/*/model*.safetensors
__pycache__/
.venv/
.env*
!.env.example
"""


GITATTRIBUTES = """# Digests are of bytes: git must not change line endings.
* -text
# Written by mltrainer from what it measured: pull requests fold them, and show them where they are asked for.
phases/*/record.json linguist-generated
phases/tried_runs.txt linguist-generated merge=union
phases/*/gate.json linguist-generated
phases/*/*.svg linguist-generated
phases/01_planning/reproducibility_manifest.md linguist-generated
phases/02_baseline/baseline_results.md linguist-generated
phases/03_diagnostics/diagnostic_report.md linguist-generated
phases/04_optimization/tuning_results.md linguist-generated
phases/05_finalization/final_report.md linguist-generated
phases/05_finalization/final_model/** linguist-generated
"""


@dataclass(frozen=True)
class Beginning:
    """The first values of a project.

    Attributes:
        values: The values of its `mltrainer.yaml`.
        explanation: Sentences that explain the values.
        templates: The text of the project's own config templates and answers, by path.
        doubts: Sentences for the project file, above its `data`.
    """

    values: Values
    explanation: list[str]
    templates: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Script:
    """A program that trains by itself, as its user types it, with the file and the metric that it is judged by."""

    command: str
    metrics: str
    metric: str


def make_project(
    folder: Path,
    example: str | None,
    data: Path | None,
    target: str | None,
    held_out: Mapping[str, Path | None] | None = None,
    script: Script | None = None,
    arguments: Path | None = None,
    model: str = NETWORK,
    ignore: Sequence[str] = (),
    sheet: str | None = None,
    skip_lines: int | None = None,
) -> list[str]:
    """Write a project's first files and return the lines to show the person.

    Args:
        folder: The project's folder; made where it is missing.
        example: A built-in example, or None.
        data: A table, pictures or texts whose task is inferred, or a folder with a part for each split; or None.
        target: The column to predict, for `data`.
        held_out: The splits' separate data, by split.
        script: A program that trains by itself, or None.
        arguments: A file of `TrainingArguments` of transformers, which planning is to start from, or None.
        model: The model that learns from `data`: the default network, or gradient boosting as a program.
        ignore: Columns of the table that are no features.
        sheet: The sheet of a workbook that is read; None: the first.
        skip_lines: The number of lines above the table; None: those that look like a title.

    Raises:
        InputError: The folder holds a project already, a file is in its place, or the arguments do not fit together.
        MachineError: The folder cannot be made or written.
    """
    if (in_the_way := _file_in_the_way(folder)) is not None:
        raise InputError(expected="a folder", found="a file", where=str(in_the_way), hint=f"mltrainer init {ELSEWHERE}")
    if (folder / PROJECT_FILE).exists():
        raise InputError(f"there is a {PROJECT_FILE} already", where=str(folder), hint="mltrainer status")
    if script is not None and (example is not None or data is not None):
        raise InputError("give one of --example, --data and --script", hint="leave the others out")
    if script is not None:
        _require_no_secret(script.command)
    _require_known(model)
    table = {"target": target, "ignore": ignore or None, "sheet": sheet, "skip-lines": skip_lines}
    beginning = _from_script(folder, script) if script is not None else _beginning(folder, example, data, held_out or {}, table)
    if model != NETWORK:
        beginning = _boosted(folder, beginning, model, has_data=data is not None)
    if arguments is not None:
        beginning = _with_arguments(folder, beginning, arguments)
    content = {"name": _name(folder), "id": _new_id(), "seed": SEED_VALUE, **beginning.values, "budget": {"minutes": 60}}
    text = yaml.dump(content)
    # Before anything is written: what does not fit leaves no half a project in the way of the next attempt.
    config = validate(ProjectConfig, yaml.parse(text, PROJECT_FILE))
    _make_folder(folder)
    written = [_extend(folder / ".gitignore", GITIGNORE), _extend(folder / ".gitattributes", GITATTRIBUTES), PROJECT_FILE]
    written += _write_templates(folder, beginning.templates)
    written += _data_file(folder, example)
    write_schemas(folder)
    commented = header("mltrainer.json") + _commented(text, beginning.doubts) + _open_criterion(config)
    write_atomic(folder / PROJECT_FILE, commented.encode())  # last: with it, the folder is a project
    explanation = [*beginning.explanation, f"wrote {', '.join(written)} in {folder}", _git(folder, written)]
    place = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    asks = boosting.TABLE if model == BOOSTING else PROJECT_FILE
    answer = f"answer what stops planning, in {asks}; then " if any(STOPS in line for line in explanation) else ""
    return [*explanation, f"next: {answer}{place}mltrainer run"]


COMMENTS = {  # a line of the project file: what a person should know of it
    "  ignore:": "left out of the features; take a name away to use it",
    "  columns:": "taken so from their cells, change what is wrong; known are " + ", ".join(get_args(ColumnKind)),
    "  missing:": "cells that mean no value, beside empty ones; [] for none",
    "  wrong_cells: stop": "cells that are not of their column's kind: stop, missing (take them so), or drop (their rows)",
    "  repeats: together": "rows with equal features lie in one split; group: COLUMN, time: COLUMN or column: COLUMN bind more",
    "  largest_repeat:": "a row whose copies are a larger share of all rows is trained on, so that it fills no other split",
}


def _commented(text: str, doubts: Sequence[str]) -> str:
    """Return the project file's text with a comment above each inferred value, and the doubts above `data`."""
    comments = {key: f"  # {comment}\n" for key, comment in COMMENTS.items()}
    comments["data:"] = "".join(f"# {doubt}\n" for doubt in doubts)
    lines = text.splitlines(keepends=True)
    return "".join(next((comment for key, comment in comments.items() if line.startswith(key)), "") + line for line in lines)


def _open_criterion(config: ProjectConfig) -> str:
    """Return a comment that shows how to write a criterion; empty if there is one."""
    if config.acceptance:
        return ""
    shown = f'acceptance: {{{config.metric.name}: "{">=" if config.metric.mode == "max" else "<="} ..."}}'
    return f"# {shown}  # a good enough value, in units of the metric\n"


def _require_no_secret(command: str) -> None:
    """Refuse a command with a secret in it, before it is written to a file and committed.

    Raises:
        InputError: A secret was found; the message has the option or the kind, not the secret.
    """
    secret = option_with_secret(command) or next((row["kind"] for row in scan_text(command, "--script")), None)
    if secret is not None:
        raise InputError(
            f"a secret is in the command ({secret}), which would be committed; nothing was written",
            where="--script",
            hint="read it from an environment variable in your program, and leave the option out",
        )


def _file_in_the_way(folder: Path) -> Path | None:
    """Return the nearest existing part of a folder's path if it is no folder."""
    # A link that leads nowhere does not exist, and is in the way all the same.
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists() or place.is_symlink())
    return None if there.is_dir() else there


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it.

    Raises:
        MachineError: None can be made there.
    """
    with machine_faults(str(folder)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError as error:  # as in /proc, which has no place for it
            raise MachineError("no folder can be made here", where=str(folder), hint=f"mltrainer init {ELSEWHERE}") from error


def _new_id() -> str:
    """Return a new project's id.

    It begins with a letter: other YAML libraries write one such as 5e2855886828 without quotes, which is then a number.
    """
    return secrets.choice("abcdf") + secrets.token_hex(6)[1:]


def _name(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")
    return name[:64] or "project"


def _write_templates(folder: Path, templates: dict[str, str]) -> list[str]:
    """Write those of the project's own config templates that are missing, and return their paths."""
    new = {path: text for path, text in templates.items() if not (folder / path).exists()}
    for path, text in new.items():
        write_text(folder / path, text)
    return list(new)


def _beginning(
    folder: Path,
    example: str | None,
    data: Path | None,
    held_out: Mapping[str, Path | None],
    table: Values,
) -> Beginning:
    """Return the starting values of a project from an example or from data, with the options on reading its table."""
    if example is not None and data is not None:
        raise InputError("give either --example or --data", hint="leave --example out to begin with your data")
    if data is not None:
        return _from_data(folder, data, held_out, table)
    for option in [name for name, value in {**table, **held_out}.items() if value is not None]:
        raise InputError(f"--{option} belongs to --data", hint="mltrainer init --data file.csv --target column")
    chosen = example or "digits"
    if chosen not in EXAMPLES:
        raise InputError.unknown("example", chosen, EXAMPLES)
    note = (
        [] if example else ["no --example and no --data: starting from the digits example; edit mltrainer.yaml for your own task"]
    )
    split = {"validation": 0.2, "test": 0.1, "stratify": chosen != "diabetes"}
    return Beginning({"split": split, **EXAMPLES[chosen]}, note, _example_templates(chosen))


def _with_arguments(folder: Path, beginning: Beginning, path: Path) -> Beginning:
    """Return a beginning with the seed, metric and baseline template of `TrainingArguments`.

    Raises:
        InputError: The file is not readable, a value of it has no counterpart, or the task is a program; or the folder has a
            template already.
    """
    if (folder / BASELINE).exists():
        hint = f"move it, or mltrainer init {ELSEWHERE} ..."
        raise InputError(f"there is a {BASELINE} already, by which planning would start", where=str(folder), hint=hint)
    if "script" in beginning.values["task"]:
        raise InputError(
            "--from-training-arguments needs a task whose steps mltrainer makes", where="--script", hint="leave one out"
        )
    fields = read_arguments(path)
    read = imported(fields)
    origin = f"From {path.name} by `mltrainer init`: TrainingArguments of transformers."
    text = model_size_defaults.changed_template(BASELINE, origin, read.values)
    validate(TrainingChanges, yaml.parse(text, path.name))  # now, not once planning reads it
    values = beginning.values | {"seed": read.seed}
    named = [] if read.metric is None else [f"the file chooses the best by {read.metric['name']}: see metric in {PROJECT_FILE}"]
    left_out = [f"not carried over: {line}" for line in listed(read.left_out)]
    explanation = [*beginning.explanation, f"planning starts from {path.name}, by {BASELINE}", *named, *left_out]
    return replace(beginning, values=values, explanation=explanation, templates=beginning.templates | {BASELINE: text})


def _typed(command: str) -> str:
    """Return a command as it is typed in a shell: a single Python file is given to Python."""
    return f"python {command}" if re.match(r"[^/\s]+\.py(\s|$)", command) else command


def _from_script(folder: Path, script: Script) -> Beginning:
    """Return the starting values of a project whose training is a program of the user."""
    task = {"script": _typed(script.command), "metrics": script.metrics}
    shown = f"{{{json.dumps(script.metric)}: 0.93}}"
    explanation = [f"at its end the program writes {script.metrics}, such as {shown}; nothing else of it changes"]
    if SEED not in places(script.command):
        explanation.append("it is given no seed: write {seed} in task.script where it takes one, or a search can promote nothing")
    missing = [word for word in script.command.split() if word.endswith(".py") and not (folder / word).exists()]
    explanation += [f"{name} is not there yet: put it into {folder} before you type mltrainer run" for name in missing]
    explanation.append(
        "add its arguments, the files that it leaves and the command that resumes it: mltrainer guide tools/script_runner/README"
    )
    mode = "min" if script.metric.endswith(LOWER_IS_BETTER) else "max"
    return Beginning({"task": task, "metric": {"name": script.metric, "mode": mode}}, [*explanation, NO_CRITERION])


def _require_known(model: str) -> None:
    if model not in (NETWORK, BOOSTING):
        raise InputError.unknown(
            "model to begin with", model, (NETWORK, BOOSTING), where="--model", hint=f"--model {BOOSTING}, or leave it out"
        )


def _boosted(folder: Path, beginning: Beginning, model: str, *, has_data: bool) -> Beginning:
    """Return the beginning of a project whose program boosts trees on the rows that a network would learn from.

    Raises:
        InputError: There is no table with one target, or a file of the program's is there already.
    """
    kind = str(beginning.values["task"].get("kind", "a file of conversations"))
    if not has_data or kind not in boosting.KINDS:
        what = f"{model} learns from a table with one target" + (f", and this is {kind}" if has_data else "")
        raise InputError(what, where="--model", hint=f"mltrainer init --data table.csv --target COLUMN --model {model}")
    there = [name for name in (boosting.PROGRAM, boosting.TABLE) if (folder / name).exists()]
    if there:
        raise InputError(f"there is a {there[0]} already", where=str(folder), hint=f"move it, or mltrainer init {ELSEWHERE} ...")
    of = library()
    # The comments on the data are beside the table there.
    doubts, explanation = ([_of_table(line) for line in lines] for lines in (beginning.doubts, beginning.explanation))
    table = boosting.ABOUT + _commented(boosting.table_text(beginning.values, SEED_VALUE), doubts)
    files = {boosting.PROGRAM: boosting.program_text(kind, of), boosting.TABLE: table, **boosting.templates()}
    return Beginning(boosting.program_values(beginning.values), [*explanation, *boosting.sentences(of)], files)


def _of_table(line: str) -> str:
    return line if line == NO_CRITERION else line.replace(PROJECT_FILE, boosting.TABLE)


def _example_templates(example: str) -> dict[str, str]:
    """Return the config templates of an example with data, by the amount of that."""
    if example in SHIPPED:
        return model_size_defaults.templates_for(SHIPPED[example])
    if example not in WRITTEN:
        return {}
    is_table = str(EXAMPLES[example]["task"]["kind"]).startswith("tabular")
    sized = model_size_defaults.templates_for if is_table else model_size_defaults.templates_for_texts
    return sized(WRITTEN[example][2])


def _from_data(folder: Path, data: Path, held_out: Mapping[str, Path | None], table: Values) -> Beginning:
    """Return the starting values of a project from its data, with the sources of separate splits."""
    from mltrainer.tasks.predefined_splits import own_splits
    from mltrainer.tasks.sources import near
    from mltrainer.tasks.text.config_inference import holds_conversations

    for option, path in {"data": data, **held_out}.items():
        if path is not None and ADDRESS.match(str(path)):  # not repeated: a path no longer has the form that reveals a password
            hint = "copy the file here; a custom task reads addresses (data.source)"
            raise InputError(expected="a file or folder of this machine", found="an address", where=f"--{option}", hint=hint)
        if path is not None and not path.exists():
            hint = "name one that exists; a path is relative to the current folder"
            raise InputError(f"no such file or folder: {str(path)!r}{near(path)}", where=f"--{option}", hint=hint)
    if is_description(data):
        return _from_description(folder, data, held_out, table)
    if table["target"] is None and holds_conversations(data):
        return _from_conversations(folder, data, {**table, **held_out})
    splits = own_splits(data, held_out)
    beginning = _from_pictures(folder, splits["train"], table["target"]) or _from_table(folder, splits, table)
    own = {name: _source(folder, path) for name, path in splits.items() if name != "train"}
    given = beginning.values["data"]
    source = {"source": given["source"], **own}
    explanation = [*beginning.explanation, *(f"the {name} split comes from {path}" for name, path in own.items())]
    return replace(beginning, values={**beginning.values, "data": {**source, **given, **source}}, explanation=explanation)


def _from_description(folder: Path, description: Path, held_out: Mapping[str, Path | None], table: Values) -> Beginning:
    """Return the starting values from the file that a description in Croissant leads to, with what it says of the data."""
    found = read_description(description)
    beginning = _from_data(folder, found.path, held_out, table)
    compared = "its digest is the described one" if found.is_compared else "the description has no digest to compare it with"
    explanation = [f"{description.name} describes {found.path.name}: {compared}", *beginning.explanation]
    answers = {f"{DOCUMENTS}/{ANSWERS_FILE}": yaml.dump({"data": found.answers})} if found.answers else {}
    return replace(beginning, explanation=explanation, templates=beginning.templates | answers)


def _from_pictures(folder: Path, data: Path, target: str | None) -> Beginning | None:
    """Return the starting values for a folder of pictures or a table of their paths; None if the data is neither."""
    from mltrainer.tasks.config_inference import refuse_target
    from mltrainer.tasks.images.config_inference import holds_pictures, infer_pictures

    if not holds_pictures(data):
        return None
    if target is not None and data.is_dir():
        refuse_target(target, "a folder of pictures, whose classes are its folders", str(data))
    found = infer_pictures(data, _source(folder, data), target)
    return Beginning(found.values, [*found.notes, NO_CRITERION], model_size_defaults.templates_for_pictures(found.pictures))


def _from_conversations(folder: Path, data: Path, options: Mapping[str, object]) -> Beginning:
    """Return the starting values for a file of conversations, on whose answers a language model is fine-tuned.

    Raises:
        InputError: An option belongs to other data.
    """
    if (named := next((option for option, value in options.items() if value is not None), None)) is not None:
        what = f"--{named} belongs to other data, and each line of {data.name} is a conversation"
        raise InputError(what, where=str(data), hint=f"leave --{named} out: {_again(folder, data)}")
    task = {"use": FINE_TUNING, "options": {"data": _source(folder, data), "model": BASE, "length": 1024, "pack": False}}
    values = {"task": task, "split": {"validation": 0.2, "test": 0.1}, "metric": {"name": "perplexity", "mode": "min"}}
    explanation = [
        f"each line of {data.name} is a conversation: a causal model of Hugging Face is fine-tuned on its answers",
        f"put the model to begin with into {BASE}, as save_pretrained writes it, and its tokenizer; nothing is downloaded",
    ]
    return Beginning(values, [*explanation, NO_CRITERION])


def _again(folder: Path, data: Path, *options: str) -> str:
    """Return the command that starts a project in a folder from data, as it can be typed."""
    place = [] if folder == Path() else [str(folder)]
    return shlex.join(["mltrainer", "init", *place, "--data", str(data), *options])


def _source(folder: Path, data: Path) -> str:
    return Path(os.path.relpath(data.resolve(), folder.resolve())).as_posix()


def _data_file(folder: Path, example: str | None) -> list[str]:
    """Write the data file of an example that has one, unless it is there already, and return its name."""
    if example not in WRITTEN:
        return []
    name, make, _ = WRITTEN[example]
    if not (folder / name).exists():
        write_text(folder / name, make())
    return [name]


def _from_table(folder: Path, splits: Mapping[str, Path], table: Values) -> Beginning:
    from mltrainer.tasks.config_inference import Reading, infer_project
    from mltrainer.tasks.data_findings import LARGEST_REPEAT
    from mltrainer.tasks.text.config_inference import FORMS, first_row, found_in

    data, target = splits["train"], table["target"]
    if target is None and not data.is_dir() and data.suffix.lower() not in NEED_NO_TARGET:
        what, row = "--data needs --target, the column to predict", first_row(data)
        or_chats = "" if row is None else f", or lines of {FORMS}; the first has {found_in(row)}"
        raise InputError(what + or_chats, hint=_again(folder, data, "--target", "COLUMN"))
    inferred = infer_project(splits, target, Reading(table["ignore"] or (), table["sheet"], table["skip-lines"]))
    source = _source(folder, data)
    classification = inferred.kind in ("tabular_classification", "text_classification")
    tokens = Tokens.model_validate(TOKENS.get(inferred.kind, {})).model_dump() if inferred.kind.startswith(TEXT) else None
    given = {"target": target, **_columns(inferred), "text": inferred.text, "tokens": tokens}
    values = {
        "task": {"kind": inferred.kind},
        "data": {"source": source, **{key: value for key, value in given.items() if value or value is False}},
        "split": {
            "validation": 0.2,
            "test": 0.1,
            "stratify": classification,
            "repeats": "together",
            "largest_repeat": LARGEST_REPEAT,
            **inferred.split,
        },
        "model": _model(inferred),
        "metric": {"name": inferred.metric, "mode": "min" if inferred.metric in LOWER_IS_BETTER else "max"},
    }
    explanation = [*inferred.explanation, *(f"warning: {w}" for w in inferred.warnings), NO_CRITERION]
    return Beginning(values, explanation, _templates(inferred), inferred.doubted)


def _model(inferred: InferredConfig) -> Values:
    is_table = inferred.kind.startswith("tabular")
    return (
        model_size_defaults.model_for(inferred.width)
        if is_table
        else MODELS.get(inferred.kind, {"name": "mlp", "hidden": [64, 64], "dropout": 0.1})
    )


def _templates(inferred: InferredConfig) -> dict[str, str]:
    """Return the project's own config templates, if its size needs them."""
    if inferred.kind.startswith("tabular"):
        return model_size_defaults.templates_for(inferred.rows)
    return model_size_defaults.templates_for_texts(inferred.rows) if inferred.kind in MODELS else {}


def _columns(inferred: InferredConfig) -> Values:
    """Return the inferred reading of a table's columns, as the project file states it."""
    wrong = "stop" if inferred.has_wrong_cells else None
    said = {"ignore": inferred.ignored, "columns": inferred.columns, "missing": inferred.missing, "wrong_cells": wrong}
    return {**inferred.reading, **{key: value for key, value in said.items() if value}}


def _extend(path: Path, lines: str) -> str:
    # An ignore file may name files whose names are no UTF-8: its bytes must come back as they were.
    old = os.fsdecode(path.read_bytes()) if path.exists() else ""
    missing = [line for line in lines.splitlines() if line not in old.splitlines()]
    if missing:
        write_atomic(path, os.fsencode(old + ("\n" if old and not old.endswith("\n") else "") + "\n".join(missing) + "\n"))
    return path.name


def _git(folder: Path, written: list[str]) -> str:
    """Make the folder a repository with a first commit when it is in none; work without git where that fails."""
    try:
        return start_repository(folder, written)
    except GitError as error:
        return f"no git repository was made ({error}): files are identified by their digests"
