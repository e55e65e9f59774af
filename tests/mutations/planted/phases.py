"""Faults planted in `mltrainer/phases`."""

from __future__ import annotations

from tests.mutations.fault import Fault

PROBING = "tests/phases/test_probing.py"
INPUTS = " ".join(
    f"tests/phases/test_inputs.py::test_what_{name}"
    for name in (
        "either_probe_opened_is_bound",
        "one_probe_changes_for_the_other_is_named_and_not_bound",
        "a_run_opened_counts_where_task_and_code_are_the_same",
    )
)

FAULTS = (
    Fault(
        "a model of 3 G parameters is given a large one's rates",
        "mltrainer/phases/fine_tuning.py",
        "    if parameters > settings.fine_tuning_large:",
        "    if parameters >= settings.fine_tuning_large:",
        "tests/phases/test_fine_tuning.py::test_the_rate_falls_with_the_size",
    ),
    Fault(
        "a rate that is too low is not raised",
        "mltrainer/phases/fine_tuning.py",
        "min(max(lr, low), high)",
        "min(lr, high)",
        "tests/phases/test_fine_tuning.py::test_the_nearest_end_is_proposed_where_the_config_lies_outside",
    ),
    Fault(
        "models of drawn weights are told the rates of fine-tuning",
        "mltrainer/phases/fine_tuning.py",
        "config.optimizer.name not in ADAM or not begins_with_weights(config)",
        "config.optimizer.name not in ADAM",
        "tests/phases/test_fine_tuning.py::test_nothing_is_advised_of",
    ),
    Fault(
        "adapters are told the rates of all weights",
        "mltrainer/phases/fine_tuning.py",
        'if any(one.name == "lora" for one in config.strategies):',
        'if any(one.name == "peft" for one in config.strategies):',
        "tests/phases/test_fine_tuning.py::test_adapters_take_other_rates",
    ),
    Fault(
        "the warm-up's share is that of an epoch",
        "mltrainer/phases/fine_tuning.py",
        "share = config.schedule.warmed_up(steps // probe.planned_epochs) / steps",
        "share = config.schedule.warmed_up(steps // probe.planned_epochs) / (steps // probe.planned_epochs)",
        "tests/phases/test_fine_tuning.py::test_the_warm_up_is_a_share_of_all_steps",
    ),
    Fault(
        "planning an older project again changes its bits",
        "mltrainer/phases/planning.py",
        'generated["rules"] = current["rules"]',
        'current["rules"] = generated["rules"]',
        "tests/phases/test_planning.py -k rules",
    ),
    Fault(
        "loader processes beside a training are not counted",
        "mltrainer/phases/side_by_side.py",
        "config.threads + config.loader.processes < cores",
        "config.threads < cores",
        "tests/phases/test_side_by_side.py",
    ),
    Fault(
        "no probe rehearses an evaluation",
        "mltrainer/phases/probing.py",
        '"rehearse": True,',
        '"rehearse": False,',
        PROBING,
    ),
    Fault(
        "the second probe stops after its first step",
        "mltrainer/phases/probing.py",
        "return max(1, steps // 2)",
        "return 1",
        PROBING,
    ),
    Fault(
        "both probes are fed by as many processes",
        "mltrainer/phases/probing.py",
        "max(0, config.loader.processes - 1)",
        "max(0, config.loader.processes)",
        PROBING,
    ),
    Fault(
        "new memory is plain in the second probe",
        "mltrainer/phases/probing.py",
        "resumable=True, disturbances=ALL.names)",
        "resumable=True)",
        PROBING,
    ),
    Fault(
        "the second probe's last part hashes strings as the first probe does",
        "mltrainer/phases/probing.py",
        'second = trainer.probe(halves.model_copy(update={"config": _other_workers(as_fed)}), OTHER_HASHES)',
        'second = trainer.probe(halves.model_copy(update={"config": _other_workers(as_fed)}))',
        PROBING,
    ),
    Fault(
        "averaged weights cost no time of an evaluation",
        "mltrainer/phases/probing.py",
        "(3 if config.averages else 2) * validation",
        "2 * validation",
        PROBING,
    ),
    Fault(
        "outputs of an evaluation are held once",
        "mltrainer/phases/probing.py",
        "return float(2 * per_sample",
        "return float(per_sample",
        PROBING,
    ),
    Fault(
        "memory is that of the first probe",
        "mltrainer/phases/probing.py",
        "max(one.memory.peak_rss_mb for one in probes.both)",
        "probe.memory.peak_rss_mb",
        PROBING,
    ),
    Fault(
        "a file that training changes is bound",
        "mltrainer/phases/inputs.py",
        "for row in probed if row.path not in unsteady}",
        "for row in probed}",
        INPUTS,
    ),
    Fault(
        "files of the second probe alone are not bound",
        "mltrainer/phases/inputs.py",
        "for probe in probes for row in probe.opened or ()]",
        "for probe in probes[:1] for row in probe.opened or ()]",
        INPUTS,
    ),
    Fault(
        "what a run of other code opened is bound",
        "mltrainer/phases/inputs.py",
        "run.code_sha256 != digest(dumped(probe.code_files)) or ",
        "",
        INPUTS,
    ),
    Fault(
        "what a run of another task opened is bound",
        "mltrainer/phases/inputs.py",
        " or planned != config.task.model_dump()",
        "",
        INPUTS,
    ),
    Fault(
        "the rehearsal of a config without sets stands for one with them",
        "mltrainer/phases/sanity_check.py",
        'return [*(["conformal"] if config.conformal else []), *',
        "return [*",
        "tests/phases/test_conformal.py -k too_few",
    ),
    Fault(
        "the record forgets the calibration",
        "mltrainer/phases/finalization.py",
        "conformal=exported.conformal,",
        "conformal=None,",
        "tests/phases/test_conformal.py -k walks",
    ),
)
