"""Portable numerics: the tools' kernels are those that every CPU has, and planning says what that costs."""

from __future__ import annotations

import pytest

from mltrainer.reproducibility.numerics import libraries
from tests.projects import evidence_of, write_rings


@pytest.mark.slow
@pytest.mark.long
def test_portable_numerics_are_another_class_and_their_cost_is_measured(tmp_path, cli):
    native, portable = write_rings(tmp_path / "native"), write_rings(tmp_path / "portable")
    for project, numerics in ((native, "native"), (portable, "portable")):
        cli("phase", "run", "planning", "--set", f"numerics={numerics}", "--project", project.root, code=0)
    assert evidence_of(native, "planning")["numerics_class"] != evidence_of(portable, "planning")["numerics_class"]
    assert evidence_of(native, "planning")["options"] == []
    (cost,) = evidence_of(portable, "planning")["options"]  # type: ignore[misc]
    assert (cost["key"], cost["with"]["step_us"] > 0, cost["without"]["step_us"] > 0) == ("numerics", True, True)
    report = (portable.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    assert "`numerics`: portable in place of native" in report
    assert "R3" in report


@pytest.mark.parametrize("other", ["threads=2", "device=cuda", "compile=true"])
def test_portable_numerics_need_one_thread_on_a_cpu(tmp_path, cli, other):
    project = write_rings(tmp_path)
    said = cli("phase", "run", "planning", "--set", "numerics=portable", "--set", other, "--project", project.root)
    assert (said.code, "portable needs threads: 1 and device: cpu" in said.err) == (1, True)


def test_the_native_libraries_are_named_with_their_versions():
    found = libraries()
    assert {"PyTorch", "MKL", "oneDNN", "OpenMP", "BLAS", "CUDA", "cuDNN", "OpenMP runtimes loaded"} == set(found)
    assert all(found.values())
