"""Faults planted in `mltrainer/configs`."""

from __future__ import annotations

from tests.mutations.fault import Fault

IDENTITY = "tests/configs/test_identity.py"
SCHEDULES = "tests/configs/test_schedules.py"

FAULTS = (
    Fault(
        "a default is another number once it was read back",
        "mltrainer/configs/loading.py",
        "defer_build=True, validate_default=True",
        "defer_build=True",
        "tests/configs/test_round_trip.py::test_the_job_of_a_trial_with_another_schedule_is_the_one_that_it_is_named_by",
    ),
    Fault(
        "a key that came later renames every run",
        "mltrainer/configs/loading.py",
        " if not _is_neutral(fields[name], getattr(model, name))}",
        "}",
        IDENTITY,
    ),
    Fault(
        "a callback that only watches renames a run",
        "mltrainer/configs/project.py",
        "for callback in config.callbacks if not callback.watch]",
        "for callback in config.callbacks]",
        IDENTITY,
    ),
    Fault(
        "a metric that just meets its criterion does not",
        "mltrainer/configs/project.py",
        '">=": value >= limit',
        '">=": value > limit',
        "tests/configs/test_project.py",
    ),
    Fault(
        "the split's own seed draws nothing",
        "mltrainer/configs/project.py",
        "return self.seed if self.split.seed is None else self.split.seed",
        "return self.seed",
        "tests/configs/test_project.py",
    ),
    Fault(
        "folds are trained from the first, whichever is the config's own",
        "mltrainer/configs/project.py",
        "return [(self.split.fold + nr) % count for nr in range(count)]",
        "return [nr % count for nr in range(count)]",
        "tests/configs/test_project.py",
    ),
    Fault(
        "the warm-up begins at nothing and ends a step late",
        "mltrainer/configs/schedules.py",
        "risen = step / warmup",
        "risen = (step - 1) / warmup",
        SCHEDULES,
    ),
    Fault(
        "cycles of restarts grow by a constant",
        "mltrainer/configs/schedules.py",
        "length * self.growth",
        "length + self.growth",
        SCHEDULES,
    ),
    Fault(
        "the last part of a sequence has the whole rate",
        "mltrainer/configs/schedules.py",
        "return self.parts[-1].factor * self.parts[-1]",
        "return self.parts[-1]",
        SCHEDULES,
    ),
    Fault(
        "reductions fall below the smallest share",
        "mltrainer/configs/schedules.py",
        "return max(self.final, self.factor**reductions)",
        "return self.factor**reductions",
        SCHEDULES,
    ),
    Fault(
        "of keys that exclude one another one is forgotten",
        "mltrainer/configs/loading.py",
        '("norm", "value", "adaptive")',
        '("norm", "value")',
        "tests/configs/test_loading.py",
    ),
    Fault(
        "a plug-in's defaults do not stand in the config",
        "mltrainer/configs/optimizers.py",
        'options, "optimizer.options", ("build",)).model_dump())',
        'options, "optimizer.options", ("build",)).model_dump(exclude_defaults=True))',
        "tests/plugins/test_optimizer.py",
    ),
    Fault(
        "a refused address is repeated",
        "mltrainer/configs/tracking.py",
        'is ${NAME} alone"\n        raise PydanticCustomError("secret", message)',
        'is ${NAME} alone"\n        raise ValueError(message)',
        "tests/trackers/test_key.py -k repeated",
    ),
    Fault(
        "a signed address of data stands in a config",
        "mltrainer/configs/addresses.py",
        "return is_signed or bool(secrets_of(source))",
        "return bool(secrets_of(source))",
        "tests/configs/test_project.py -k repeated",
    ),
    Fault(
        "another number of processes computes a split model",
        "mltrainer/configs/project.py",
        "        if count != planned:",
        "        if count < 1:",
        "tests/trainers/native/test_tensor_parallel.py -k another_number",
    ),
    Fault(
        "a figure without a date is taken",
        "mltrainer/configs/pages.py",
        "if self.value is not None and not (self.source and self.read):",
        "if self.value is not None and not (self.source or self.read):",
        "tests/planner/test_devices.py",
    ),
)
