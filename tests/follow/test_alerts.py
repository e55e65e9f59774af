"""Alerts while a run trains: each once, as soon as it is so, and sent on without keeping the training waiting."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.diagnostics.rules import RULES
from mltrainer.follow.alert_sinks import COMMAND, WEBHOOK, send
from mltrainer.follow.alerts import AT_ONCE, AT_THE_END, Alerts, may_speak
from mltrainer.follow.progress import alert_text
from mltrainer.records.event import Alert
from tests.diagnostics.observed import observed

CONFIG = {"metric": {"name": "accuracy", "mode": "max"}, "batch_size": 64}
ALERT = {"event": "alert", "diagnostic": "leakage", "title": "Leakage", "severity": "warning", "reason": "So.", "epoch": 3}


def write(folder: Path, run: dict[str, Any], rows: int) -> None:
    """Write the log of a run as far as it came."""
    lines = [{"event": "observed", "layers": run["layers"], "train_samples": 1000, "start": run["signals"]["start"]}]
    lines += [{"event": "row", **row} for row in run["history"][:rows]]
    seen = {key: run["signals"][key] for key in ("early", "spikes")}
    lines.append({"event": "signals", "first_loss": run["first_loss"], **seen})
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def told(folder: Path, run: dict[str, Any], upto: int = 10) -> list[dict[str, Any]]:
    """Return the alerts of a run that is followed from evaluation to evaluation."""
    heard: list[dict[str, Any]] = []
    alerts = Alerts(folder, None, CONFIG, heard.append, pause=0.0)
    for number, row in enumerate(run["history"][:upto], 1):
        write(folder, run, number)
        alerts({"event": "row", "step": row["step"], "steps": 200, "epoch": row["epoch"]})
    return [event for event in heard if event["event"] == "alert"]


def test_a_leak_is_told_at_the_first_evaluation_and_once(tmp_path):
    found = told(tmp_path, observed(signals__start__data__shared=0.5))
    assert [(alert["diagnostic"], alert["epoch"]) for alert in found] == [("leakage", 1)]
    assert alert_text(Alert.model_validate(found[0])).startswith("warning: Leakage, epoch 1: 50 % of the validation samples")
    assert alert_text(Alert.model_validate(found[0])).endswith("(mltrainer guide diagnostics/leakage)")


def test_a_run_that_evaluates_often_is_not_looked_at_each_time(tmp_path):
    write(tmp_path, observed(), 10)
    heard: list[dict[str, Any]] = []
    alerts = Alerts(tmp_path, None, CONFIG, heard.append, pause=1e6)
    alerts({"event": "row", "step": 20, "steps": 200, "epoch": 1})
    write(tmp_path, observed(signals__start__data__shared=0.5), 10)
    alerts({"event": "row", "step": 40, "steps": 200, "epoch": 2})
    assert [event["event"] for event in heard] == ["row", "row"]


def test_of_a_healthy_run_nothing_is_told(tmp_path):
    assert told(tmp_path, observed()) == []


def test_what_needs_time_to_learn_waits_until_half_of_the_run(tmp_path):
    run = observed(unlearned=True, signals__start__model__symmetric=["0.weight"])
    first = {alert["diagnostic"]: alert["epoch"] for alert in told(tmp_path, run)}
    assert first["symmetric_weights"] == 5


def test_the_end_is_the_reports_and_every_rule_has_its_time(tmp_path):
    run = observed(signals__start__data__shared=0.5)
    heard: list[dict[str, Any]] = []
    write(tmp_path, run, 10)
    Alerts(tmp_path, None, CONFIG, heard.append)({"event": "row", "step": 200, "steps": 200, "epoch": 10})
    assert [event["event"] for event in heard] == ["row"]
    assert not AT_ONCE & AT_THE_END
    assert not any(may_speak(name, 0.99) for name in AT_THE_END)
    assert all(may_speak(name, 0.6) for name in set(RULES) - AT_THE_END)


def test_a_command_gets_the_alert_as_json(tmp_path, monkeypatch):
    script = tmp_path / "take.py"
    script.write_text("import sys, pathlib\npathlib.Path(sys.argv[1]).write_text(sys.stdin.read())\n")
    monkeypatch.setenv(COMMAND, f"{sys.executable} {script} {tmp_path / 'told.json'}")
    complaints: list[str] = []
    for thread in send(ALERT, complaints.append):
        thread.join()
    assert json.loads((tmp_path / "told.json").read_text()) == ALERT
    assert complaints == []


def test_a_webhook_gets_the_alert(monkeypatch):
    taken: list[bytes] = []

    class Taker(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Taker)
    threading.Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setenv(WEBHOOK, f"http://127.0.0.1:{server.server_port}/key-of-mine")
    for thread in send(ALERT, print):
        thread.join()
    server.server_close()
    assert json.loads(taken[0]) == ALERT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (COMMAND, "/no/such/program secret-key"),
        (COMMAND, "false secret-key"),
        (WEBHOOK, "http://127.0.0.1:9/secret-key"),
        (WEBHOOK, "ftp:secret-key"),
    ],
)
def test_an_alert_that_cannot_be_sent_is_told_without_its_address(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    complaints: list[str] = []
    begun = time.monotonic()
    threads = send(ALERT, complaints.append)
    assert time.monotonic() - begun < 5  # nobody waits for it
    for thread in threads:
        thread.join()
    assert len(complaints) == 1
    assert name in complaints[0]
    assert "secret-key" not in complaints[0]
