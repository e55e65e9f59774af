"""A program's secrets stay out of everything that its run writes, and out of a project that is begun with them."""

from __future__ import annotations

import pytest

from mltrainer.errors import InputError
from mltrainer.tools.program import noting_errors

SECRET = "Zq8" + "vN2rT6wXk41pL"


@pytest.mark.parametrize("said", ["{}", "login ada:{} failed", "-u {}"])
def test_the_error_file_of_a_failing_program_holds_no_secret(tmp_path, said, monkeypatch):
    monkeypatch.setenv("REGISTRY_PW", SECRET)
    with pytest.raises(InputError), noting_errors(tmp_path / "error.json"):
        raise InputError(f"the program ended with 1: {said.format(SECRET)}")
    told = (tmp_path / "error.json").read_text()
    assert "the program ended with 1" in told
    assert SECRET not in told


@pytest.mark.parametrize(
    "option", ["--password {}", "--token={}", "--db-passwd '{}'", "--api-key {}", "--url https://ada:{}@x.org"]
)
def test_init_refuses_a_command_with_a_secret_before_anything_is_written(tmp_path, option, cli):
    said = cli("init", tmp_path / "new", "--script", f"python train.py {option.format('horsebattery')}")
    assert (said.code, (tmp_path / "new").exists()) == (1, False)
    assert "environment variable" in said.err
    assert "horsebattery" not in said.err
