"""Every field of transformers' `TrainingArguments` with its default, and the reason if no training key covers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# transformers 5.23. `to_json_string()` writes all of them, a file by hand only those that it changes.
DEFAULTS: dict[str, Any] = {
    "output_dir": None,
    "per_device_train_batch_size": 8,
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "learning_rate": 5e-05,
    "lr_scheduler_type": "linear",
    "lr_scheduler_kwargs": None,
    "warmup_steps": 0,
    "optim": "adamw_torch_fused",
    "optim_args": None,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-08,
    "optim_target_modules": None,
    "gradient_accumulation_steps": 1,
    "average_tokens_across_devices": True,
    "max_grad_norm": 1.0,
    "label_smoothing_factor": 0.0,
    "bf16": False,
    "fp16": False,
    "bf16_full_eval": False,
    "fp16_full_eval": False,
    "tf32": None,
    "activation_checkpointing": None,
    "activation_checkpointing_kwargs": None,
    "gradient_checkpointing": None,
    "gradient_checkpointing_kwargs": None,
    "torch_compile": False,
    "torch_compile_backend": None,
    "torch_compile_mode": None,
    "use_liger_kernel": False,
    "liger_kernel_config": None,
    "use_cache": False,
    "neftune_noise_alpha": None,
    "torch_empty_cache_steps": None,
    "auto_find_batch_size": False,
    "logging_strategy": "steps",
    "logging_steps": 500,
    "logging_first_step": False,
    "log_on_each_node": True,
    "logging_nan_inf_filter": True,
    "include_num_input_tokens_seen": "no",
    "log_level": "passive",
    "log_level_replica": "warning",
    "disable_tqdm": None,
    "report_to": "none",
    "run_name": None,
    "project": "huggingface",
    "trackio_space_id": None,
    "trackio_bucket_id": None,
    "trackio_static_space_id": None,
    "eval_strategy": "no",
    "eval_steps": None,
    "eval_delay": 0,
    "per_device_eval_batch_size": 8,
    "prediction_loss_only": False,
    "eval_on_start": False,
    "eval_do_concat_batches": True,
    "eval_use_gather_object": False,
    "eval_accumulation_steps": None,
    "include_for_metrics": [],
    "batch_eval_metrics": False,
    "save_only_model": False,
    "save_strategy": "steps",
    "save_steps": 500,
    "save_on_each_node": False,
    "save_total_limit": None,
    "enable_jit_checkpoint": False,
    "push_to_hub": False,
    "hub_token": None,
    "hub_private_repo": None,
    "hub_model_id": None,
    "hub_strategy": "every_save",
    "hub_always_push": False,
    "hub_revision": None,
    "load_best_model_at_end": False,
    "metric_for_best_model": None,
    "greater_is_better": None,
    "ignore_data_skip": False,
    "restore_callback_states_from_checkpoint": False,
    "full_determinism": False,
    "seed": 42,
    "data_seed": None,
    "use_cpu": False,
    "accelerator_config": None,
    "parallelism_config": None,
    "dataloader_drop_last": False,
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": True,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "dataloader_multiprocessing_context": None,
    "dataloader_in_order": True,
    "remove_unused_columns": True,
    "label_names": None,
    "train_sampling_strategy": "random",
    "length_column_name": "length",
    "ddp_find_unused_parameters": None,
    "ddp_bucket_cap_mb": None,
    "ddp_broadcast_buffers": None,
    "ddp_static_graph": None,
    "ddp_backend": None,
    "ddp_timeout": 1800,
    "fsdp": None,
    "fsdp_config": None,
    "deepspeed": None,
    "debug": "",
    "skip_memory_metrics": True,
    "do_train": False,
    "do_eval": False,
    "do_predict": False,
    "resume_from_checkpoint": None,
    "local_rank": -1,
}
# What `to_json_string()` writes for a field that nobody has set, where that is not the default.
UNSET: dict[str, tuple[Any, ...]] = {
    "output_dir": ("trainer_output",),
    "activation_checkpointing": (False,),
    "gradient_checkpointing": (False,),
    "disable_tqdm": (False,),
    "report_to": ([], "all", ["all"]),
    "hub_token": ("<HUB_TOKEN>",),
    "push_to_hub_token": ("<PUSH_TO_HUB_TOKEN>",),
    "debug": ([],),
    "eval_strategy": (False,),  # `no`, as YAML 1.1 reads it
    "local_rank": (0,),
    "accelerator_config": (
        {
            "split_batches": False,
            "dispatch_batches": None,
            "even_batches": True,
            "use_seedable_sampler": True,
            "non_blocking": False,
            "gradient_accumulation_kwargs": None,
        },
    ),
    "fsdp": ([],),
    "fsdp_config": ({"min_num_params": 0, "xla": False, "xla_fsdp_v2": False, "xla_fsdp_grad_ckpt": False},),
}
# Defaults of fields that transformers 4 had, where they are more than nothing.
EARLIER: dict[str, Any] = {
    "fp16_backend": "auto",
    "fp16_opt_level": "O1",
    "fsdp_min_num_params": 0,
    "half_precision_backend": "auto",
    "past_index": -1,
    "save_safetensors": True,
    "warmup_ratio": 0.0,
}
RENAMED = {"evaluation_strategy": "eval_strategy", "no_cuda": "use_cpu", "warmup_ratio": "warmup_steps"}  # since transformers 4

_LOGS = "each step and each evaluation is recorded here; trackers are named under `tracking`"
_SAVED = "runs, checkpoints and exports have their places in the project"
_HUB = "nothing is uploaded by a training; `mltrainer export` and the trackers send what you name"
_DEVICES = "processes and what they share are keys of `launch`"
_ALWAYS = "it is always so here"
_COMMANDS = "the command that you type decides it"
_COUNTS = "metrics are computed over the whole split and do not depend on it"
REASONS: dict[str, str] = {
    **dict.fromkeys(
        (
            "logging_strategy", "logging_steps", "logging_first_step", "logging_dir", "logging_nan_inf_filter", "log_level",
            "log_level_replica", "log_on_each_node", "include_num_input_tokens_seen", "disable_tqdm", "report_to", "run_name",
            "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "debug", "skip_memory_metrics",
        ),
        _LOGS,
    ),
    **dict.fromkeys(("output_dir", "overwrite_output_dir", "save_on_each_node", "save_only_model", "save_safetensors"), _SAVED),
    **dict.fromkeys(
        ("push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push", "hub_revision"), _HUB
    ),
    **dict.fromkeys(
        (
            "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph", "ddp_backend",
            "ddp_timeout", "fsdp_config", "deepspeed", "parallelism_config", "accelerator_config", "local_rank",
        ),
        _DEVICES,
    ),
    **dict.fromkeys(
        ("full_determinism", "tf32", "dataloader_in_order", "dataloader_persistent_workers", "average_tokens_across_devices"),
        f"{_ALWAYS}: runs repeat bit for bit, fp32 is computed in full, and a step does not depend on processes or workers",
    ),
    **dict.fromkeys(
        ("do_train", "do_eval", "do_predict", "resume_from_checkpoint", "ignore_data_skip", "eval_on_start"), _COMMANDS
    ),
    **dict.fromkeys(
        (
            "per_device_eval_batch_size", "eval_accumulation_steps", "eval_do_concat_batches", "eval_use_gather_object",
            "batch_eval_metrics", "prediction_loss_only", "include_for_metrics",
        ),
        _COUNTS,
    ),
    **dict.fromkeys(("remove_unused_columns", "label_names"), "the task makes the batches, whatever the model's arguments are"),
    **dict.fromkeys(
        ("train_sampling_strategy", "group_by_length", "length_column_name"), "each epoch draws an order of all samples"
    ),
    **dict.fromkeys(
        ("gradient_checkpointing", "activation_checkpointing"),
        "name the model's blocks: --set gradient_checkpointing='[PATTERN]' of planning",
    ),
    **dict.fromkeys(("bf16_full_eval", "fp16_full_eval"), "an evaluation has the precision of the training"),
    "max_steps": "the length is counted in epochs: --set epochs=N of planning",
    "data_seed": "one seed decides all draws: that of the project",
    "dataloader_drop_last": "the last batch of an epoch is trained too, with the samples that it has",
    "save_strategy": "a run always keeps its best and its last checkpoint",
    "save_steps": "the save_strategy does not count steps",
    "eval_steps": "the eval_strategy does not count steps",
    "eval_delay": "evaluations begin with the first that `evaluate` asks for",
    "load_best_model_at_end": "checkpoint.save_best decides it, and delivers the best",
    "greater_is_better": "metric.mode decides it; the file names no metric",
    "auto_find_batch_size": "planning says which batch size fits",
    **dict.fromkeys(("adam_beta1", "adam_beta2", "adam_epsilon"), "the optimizer that the file names does not take it"),
    "warmup_steps": "the schedule that the file names has no warm-up there",
}  # fmt: skip


def stands_at_default(name: str, value: Any) -> bool:
    """Return True if a field has the value that transformers uses without it."""
    if value is None:
        return True
    nothing: tuple[Any, ...] = (False, "", [], {})
    if name in DEFAULTS:
        default = DEFAULTS[name]
        return _same(value, default) or value in UNSET.get(name, ()) or (default is None and value in nothing[1:])
    return name.startswith("_") or value in nothing or value == EARLIER.get(name)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def modern(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not at their defaults, by their names in transformers 5."""
    given = {name: value for name, value in fields.items() if not stands_at_default(name, value)}
    if given.pop("adafactor", False):
        given["optim"] = "adafactor"
    for old, new in RENAMED.items():
        if old in given:
            given.setdefault(new, given[old])
            del given[old]
    return given
