"""Faults planted in `mltrainer/checkpointing`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a checkpoint of another run is taken for this one's",
        "mltrainer/checkpointing/registry.py",
        "(other := read_manifest(folder).run) not in (None, run)",
        "(other := read_manifest(folder).run) is None",
        "tests/checkpointing/test_registry.py",
    ),
    Fault(
        "the texts of settled dicts stand in another order",
        "mltrainer/checkpointing/format.py",
        "zip(self._settled, others, strict=True)",
        "zip(self._settled[::-1], others, strict=True)",
        "tests/checkpointing/test_format.py::test_what_is_settled_is_written_as_any_other_dict_and_not_copied",
    ),
    Fault(
        "a file's digest is not compared with the record's",
        "mltrainer/checkpointing/format.py",
        "if name in expected and expected[name] != sha256:",
        "if False:",
        "tests/checkpointing/test_format.py::test_a_checkpoint_other_than_the_recorded_one_is_refused",
    ),
    Fault(
        "a damaged checkpoint is taken for the newest intact one",
        "mltrainer/checkpointing/manifest.py",
        "        if not wrong:\n            return folder, skipped",
        "        if True:\n            return folder, skipped",
        "tests/checkpointing/test_manifest.py",
    ),
    Fault(
        "the best checkpoint may be deleted",
        "mltrainer/checkpointing/retention.py",
        'if "best" in names or "last" in names}',
        'if "last" in names}',
        "tests/checkpointing/test_retention.py",
    ),
    Fault(
        "the oldest periodic checkpoints are kept, not the newest",
        "mltrainer/checkpointing/retention.py",
        "periodic[max(0, len(periodic) - policy.keep) :]",
        "periodic[: policy.keep]",
        "tests/checkpointing/test_retention.py",
    ),
    Fault(
        "one periodic checkpoint too many is kept",
        "mltrainer/checkpointing/retention.py",
        "max(0, len(periodic) - policy.keep)",
        "max(0, len(periodic) - policy.keep - 1)",
        "tests/checkpointing/test_retention.py",
    ),
    Fault(
        "the oldest checkpoint is called the last",
        "mltrainer/checkpointing/retention.py",
        "max((one.step for one in existing), default=None)",
        "min((one.step for one in existing), default=None)",
        "tests/checkpointing/test_retention.py",
    ),
    Fault(
        "a file that the manifest does not list is no fault",
        "mltrainer/checkpointing/manifest.py",
        "if fault is not None] + unlisted(folder, manifest)",
        "if fault is not None]",
        "tests/checkpointing/test_manifest.py",
    ),
    Fault(
        "a checkpoint under another step's name is taken for it",
        "mltrainer/checkpointing/manifest.py",
        "if manifest.step != found:",
        "if False:",
        "tests/checkpointing/test_manifest.py",
    ),
    Fault(
        "the oldest intact checkpoint is gone on with",
        "mltrainer/checkpointing/manifest.py",
        "for folder in reversed(folders(checkpoints_dir)):",
        "for folder in folders(checkpoints_dir):",
        "tests/checkpointing/test_manifest.py",
    ),
    Fault(
        "a checkpoint that a fork begins with may be deleted",
        "mltrainer/checkpointing/registry.py",
        "is not None} | _forked(project, run)",
        "is not None}",
        "tests/checkpointing/test_registry.py",
    ),
    Fault(
        "a fork of another run protects this one's steps",
        "mltrainer/checkpointing/registry.py",
        "for manifest in _starts(project) if manifest.run == run}",
        "for manifest in _starts(project)}",
        "tests/checkpointing/test_registry.py",
    ),
    Fault(
        "the rows of several processes are put together in another order",
        "mltrainer/checkpointing/format.py",
        "torch.cat([file[name] for file in files])",
        "torch.cat([file[name] for file in reversed(files)])",
        "tests/trainers/native/test_partition.py -k goes_on_with_another",
    ),
    Fault(
        "a failed save is reported again and again",
        "mltrainer/checkpointing/writer.py",
        "error, self._error = self._error, None",
        "error = self._error",
        "tests/checkpointing/test_writer.py",
    ),
    Fault(
        "the trained weights are measured where averaged ones are delivered",
        "mltrainer/checkpointing/weights.py",
        'tree.get("delivered") or tree["model"]',
        'tree["model"]',
        "tests/checkpointing/test_weights.py",
    ),
    Fault(
        "a tensor's shape is not part of the weights' digest",
        "mltrainer/checkpointing/weights.py",
        '",".join(map(str, tensor.shape))',
        "str(tensor.numel())",
        "tests/checkpointing/test_weights.py",
    ),
)
