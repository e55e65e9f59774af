"""The files by which another trainer trains a project: `TrainingArguments`, accelerate's config, and a script."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mltrainer.configs import yaml
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.generated_files import DIGEST, folder_within, write_generated
from mltrainer.phases.planning import planned_config
from mltrainer.project.training_arguments import Exported, Field, exported, installed, known_to, listed
from mltrainer.records.reading import sound_record
from mltrainer.workspace import Project, machine_faults, read_whole

ARGUMENTS, ACCELERATE, DEEPSPEED, SCRIPT = "training_arguments.yaml", "accelerate.yaml", "deepspeed.json", "train.py"
OUTPUT = Field("output_dir", "out", "the folder of checkpoints and the model, relative to the folder where the script is started")
MAX_BYTES = 1 << 20
PICKLES = (".bin", ".pt", ".pth")

TRAIN = '''{head}
"""Trains the project's task by transformers' Trainer, with the arguments beside this file.

    accelerate launch --config_file {folder}/accelerate.yaml {folder}/train.py
"""

from pathlib import Path

from transformers import {imports}HfArgumentParser, TrainingArguments

from mltrainer.trainers.task_trainer import TaskTrainer

HERE = Path(__file__).resolve().parent


def main() -> None:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_yaml_file(str(HERE / "training_arguments.yaml"))
    trainer = TaskTrainer(HERE.parent, arguments{callbacks})
    trainer.train()
    trainer.save_model()
    trainer.save_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main()
'''


def write_arguments(project: Project, folder: str, force: bool = False) -> list[str]:
    """Write a planned project's files for transformers' Trainer into a folder of the project, and return lines for the person.

    Args:
        project: The project.
        folder: Within it.
        force: Overwrite files that a person made or changed.

    Raises:
        InputError: The project is not planned, or its config has something without a counterpart that decides everything; the
            folder is outside the project, or a file there is a person's.
    """
    target = folder_within(project, folder)
    config = planned_config(project)
    arguments = exported(config, _training_samples(project))
    version = installed()
    if version is not None:
        arguments = known_to(arguments, *version)
    files = files_of(config, arguments, folder.rstrip("/"))
    write_generated(project, {target / name: text for name, text in files.items()}, force)
    checked = "transformers is not installed: no field was looked up" if version is None else f"for transformers {version[0]}"
    return [
        f"wrote {', '.join(files)} in {folder}/, {checked}",
        *(f"not carried over: {line}" for line in listed(arguments.left_out)),
    ]


def _training_samples(project: Project) -> int:
    record = sound_record(project, "planning")
    if record is None:
        message = "there is no sound record of planning, which has the number of training samples"
        raise InputError(message, where=project.relative(project.phase_dir("planning")), hint="mltrainer phase run planning")
    return int(record.evidence.data.splits.train.samples)


def files_of(config: TrainingConfig, arguments: Exported, folder: str) -> dict[str, str]:
    """Return the text of each file by its name."""
    files = {
        ARGUMENTS: _arguments(arguments),
        ACCELERATE: _accelerate(config),
        SCRIPT: _script(config, folder),
    }
    return files | ({DEEPSPEED: _deepspeed(config)} if _uses_deepspeed(config) else {})


def _arguments(arguments: Exported) -> str:
    """Return the fields as YAML, below the keys that no field covers."""
    left_out = "".join(f"# Not carried over: {line}.\n" for line in listed(arguments.left_out))
    return _head("TrainingArguments of transformers") + left_out + "\n" + _lines([OUTPUT, *arguments.fields])


def _head(what: str) -> str:
    return f"# {what}, by `mltrainer export-config` from phases/01_planning/training_config.yaml.\n# Yours to change. {DIGEST}\n"


def _lines(fields: Iterable[Field]) -> str:
    """Return fields as YAML, each on a line with its reason."""
    return "".join(f"{_pair(field.name, field.value)}  # {field.reason}\n" for field in fields)


def _pair(name: str, value: Any) -> str:
    # Quoted: of YAML 1.1, which these readers follow, `no` is false.
    return f"{name}: {json.dumps(value)}" if isinstance(value, str) else yaml.dump({name: value}).strip()


def _uses_deepspeed(config: TrainingConfig) -> bool:
    return config.processes > 1 and config.launch.parallel == "zero1"


def _accelerate(config: TrainingConfig) -> str:
    """Return the config of `accelerate launch`."""
    several, launch = config.processes > 1, config.launch
    plain = "MULTI_CPU" if config.device == "cpu" else "MULTI_GPU"
    kind = {"zero1": "DEEPSPEED", "fsdp": "FSDP"}.get(launch.parallel, plain) if several else "NO"
    fields = [
        Field("compute_environment", "LOCAL_MACHINE", "started by you, not by a cloud's service"),
        Field("distributed_type", kind, f"launch: {launch.parallel}" if several else "launch.processes: 1"),
        Field("num_processes", config.processes, "launch.processes"),
        Field("num_machines", launch.machines, "launch.machines"),
        Field("mixed_precision", config.precision if config.precision in ("bf16", "fp16") else "no", "precision"),
        Field("use_cpu", config.device == "cpu", "device"),
    ]
    if kind == "DEEPSPEED":
        fields.append(
            Field("deepspeed_config", {"deepspeed_config_file": DEEPSPEED, "zero3_init_flag": False}, "beside this file")
        )
    if kind == "FSDP":
        options = {"fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_state_dict_type": "FULL_STATE_DICT"}
        fields.append(Field("fsdp_config", options, "torch's fully_shard; a checkpoint holds whole tensors"))
    return _head("What `accelerate launch --config_file` reads") + "\n" + _lines(fields)


def _deepspeed(config: TrainingConfig) -> str:
    """Return DeepSpeed's config: the optimizer's state is sharded, and the rest is as in `TrainingArguments`."""
    parts: dict[str, Any] = {
        "zero_optimization": {"stage": 1},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }
    if config.precision in ("bf16", "fp16"):
        parts[config.precision] = {"enabled": "auto"}
    return json.dumps(parts, indent=2) + "\n"


def _script(config: TrainingConfig, folder: str) -> str:
    head, stopping = _head("A script").rstrip(), config.early_stopping
    if stopping is None or not config.checkpoint.save_best:
        return TRAIN.format(head=head, folder=folder, imports="", callbacks="")
    stop = f"EarlyStoppingCallback({stopping.patience}, {stopping.min_delta})"
    return TRAIN.format(head=head, folder=folder, imports="EarlyStoppingCallback, ", callbacks=f", callbacks=[{stop}]")


def read_arguments(path: Path) -> dict[str, Any]:
    """Return the fields of a file of `TrainingArguments`, YAML or JSON.

    Raises:
        InputError: It is a pickle, which is not opened, or not readable, or holds no fields.
    """
    if path.suffix in PICKLES:
        hint = "write them as JSON where they are: open('arguments.json', 'w').write(arguments.to_json_string())"
        raise InputError(expected="YAML or JSON", found="a pickle, which is never executed", where=str(path), hint=hint)
    if not path.is_file():
        raise InputError("no such file", where=str(path), hint="name a YAML or JSON file of TrainingArguments")
    with machine_faults(str(path)):
        fields = yaml.parse(read_whole(path, MAX_BYTES).decode("utf-8", "replace"), str(path)).value
    if not isinstance(fields, dict) or not fields:
        raise InputError("the file has no fields by name", where=str(path), hint="name a YAML or JSON file of TrainingArguments")
    return {str(name): value for name, value in fields.items()}
