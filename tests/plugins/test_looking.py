"""Commands that only look at a project import no plug-in, and look for none."""

from __future__ import annotations

import pytest

from tests.plugins.installing import use, write_metadata

KINDS = ("trackers", "optimizers", "tasks", "exporters")
LOOKS = (
    ["status"],
    ["gate", "check"],
    ["guide"],
    ["runs", "list"],
    ["checkpoints", "list"],
    ["diagnose", "baseline"],
    ["doctor"],
)


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_none_is_imported_or_looked_for(command, cli, digits_once, tmp_path, monkeypatch):
    site = tmp_path / "site"
    for kind in KINDS:
        write_metadata(site, f"bad-{kind}", f"mltrainer.{kind}", {"bad": "bad_module:Bad"})
    (site / "bad_module.py").write_text("raise SystemExit('a plug-in was imported')\n", "utf-8")
    use(monkeypatch, site)

    def refuse(_path: tuple[str, ...]) -> None:
        raise AssertionError("distributions were looked for")

    monkeypatch.setattr("mltrainer.plugins._all", refuse)
    before = cli(*command, "--project", digits_once)
    assert "plug-in" not in before.err + before.out
    assert before.code == 0, before.err
