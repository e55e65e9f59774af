"""What is found of installed distributions, without importing any, and what is refused."""

from __future__ import annotations

import sys

import pytest

from mltrainer import plugins
from mltrainer.errors import InputError
from tests.plugins.installing import install, use, write_metadata


def test_a_plugin_is_found_by_name_with_its_distribution_and_not_imported(tmp_path, monkeypatch):
    use(monkeypatch, install(tmp_path / "site", "mltrainer-signum"))
    found = plugins.find("optimizers", "signum")
    assert (found.value, found.distribution, found.version) == ("mltrainer_signum:Signum", "mltrainer-signum", "1.0")
    assert list(plugins.installed("optimizers")) == ["signum"]
    assert plugins.find("trackers", "signum") is None
    assert "mltrainer_signum" not in sys.modules


def test_one_that_lies_in_a_project_is_none(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/mltrainer.yaml").write_text("name: p\n")
    site = install(tmp_path / "project/vendored/site", "mltrainer-signum")
    link = tmp_path / "link"
    link.symlink_to(site)
    use(monkeypatch, site, link)
    assert plugins.find("optimizers", "signum") is None
    monkeypatch.chdir(site)
    monkeypatch.setattr(sys, "path", ["", *sys.path[2:]])
    assert plugins.find("optimizers", "signum") is None


def test_the_interpreters_own_environment_may_lie_in_a_project(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/mltrainer.yaml").write_text("name: p\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "project/.venv"))
    use(monkeypatch, install(tmp_path / "project/.venv/lib", "mltrainer-signum"))
    assert plugins.find("optimizers", "signum") is not None


def test_two_distributions_with_one_name_are_refused_and_others_are_not(tmp_path, monkeypatch):
    one, two = (
        install(tmp_path / "one", "mltrainer-signum"),
        install(tmp_path / "two", "mltrainer-signum", as_name="other-signum"),
    )
    write_metadata(two, "third", "mltrainer.optimizers", {"alone": "mltrainer_signum:Signum"})
    use(monkeypatch, one, two)
    with pytest.raises(InputError, match=r"mltrainer-signum 1\.0 and other-signum 1\.0: no one of them is taken"):
        plugins.find("optimizers", "signum")
    assert plugins.find("optimizers", "alone") is not None


def test_the_first_of_two_installations_of_one_distribution_counts(tmp_path, monkeypatch):
    use(monkeypatch, install(tmp_path / "one", "mltrainer-signum"), install(tmp_path / "two", "mltrainer-signum"))
    assert plugins.find("optimizers", "signum") is not None


def test_one_that_cannot_be_imported_is_named_with_its_distribution(tmp_path, monkeypatch):
    write_metadata(tmp_path / "site", "broken", "mltrainer.optimizers", {"broken": "broken_module:Broken"})
    (tmp_path / "site/broken_module.py").write_text("raise RuntimeError('not here')\n")
    use(monkeypatch, tmp_path / "site")
    with pytest.raises(InputError, match=r"broken of broken 1\.0 cannot be imported: RuntimeError: not here"):
        plugins.load("optimizers", "broken", "optimizer.name")


def test_a_record_names_a_file_of_a_plugin_wherever_it_is_installed(tmp_path, monkeypatch):
    site = install(tmp_path / "site", "mltrainer-signum")
    use(monkeypatch, site)
    path = "site-packages/mltrainer_signum/update.py"
    assert plugins.located(tmp_path, path) == site / "mltrainer_signum/update.py"
    assert plugins.located(tmp_path, "task.py") == tmp_path / "task.py"
    assert plugins.located(tmp_path, "site-packages/mltrainer_signum/../../../etc") == (
        tmp_path / "site-packages/mltrainer_signum/../../../etc"
    )
