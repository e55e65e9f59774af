"""Faults planted in `mltrainer/project`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "what a person changed in the project file is told as a version's news",
        "mltrainer/project/upgrade.py",
        "for key, value in values.items() if key in TRAINING_KEYS",
        "for key, value in values.items() if key or TRAINING_KEYS",
        "tests/project/test_upgrade.py",
    ),
    Fault(
        "a cluster's job is not queued again after its checkpoint",
        "mltrainer/project/cluster_scripts.py",
        'if [ "$code" -eq 143 ]',
        'if [ "$code" -eq 144 ]',
        "tests/project/test_cluster_scripts.py",
    ),
    Fault(
        "a search's first rung lies within the warm-up",
        "mltrainer/project/model_size_defaults.py",
        "max(1, epochs // 9)",
        "max(1, epochs // 90)",
        "tests/project/test_model_size_defaults.py",
    ),
    Fault(
        "what arrives from a store with another digest is taken",
        "mltrainer/project/object_store.py",
        "if found != row.sha256:",
        "if not found:",
        "tests/project/test_store.py::test_damage_in_the_store_is_named_and_replaces_nothing",
    ),
    Fault(
        "what changed on both sides counts as changed in the store alone",
        "mltrainer/project/stored_files.py",
        "found.there if ours == before else found.both",
        "found.there if ours != theirs else found.both",
        "tests/project/test_store.py::test_what_counts_is_what_changed_since_both_were_the_same",
    ),
    Fault(
        "the list of a store replaces another one that was written meanwhile",
        "mltrainer/project/object_store.py",
        "if self.listed()[1] != before:",
        "if not self.listed() != before:",
        "tests/project/test_store.py::test_two_pushes_at_once_do_not_take_each_others_place",
    ),
    Fault(
        "a pull writes over links",
        "mltrainer/project/syncing.py",
        "    _refuse_links(project, wanted)",
        "    _refuse_links(project, [])",
        "tests/project/test_store.py::test_no_link_leads_out",
    ),
)
