"""Alerts sent to a command or a webhook that the environment names, in the background."""

from __future__ import annotations

import json
import os
import shlex
import threading
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mltrainer.executors.executor import Command
from mltrainer.executors.local import answered

COMMAND = "MLTRAINER_ALERT_COMMAND"  # gets the alert as JSON on its standard input
WEBHOOK = "MLTRAINER_ALERT_WEBHOOK"  # gets it as the body of a POST
SECONDS = 10.0


def send(alert: Mapping[str, Any], complain: Callable[[str], None]) -> list[threading.Thread]:
    """Send an alert in the background to the destinations that the environment names.

    Args:
        alert: The alert, which is sent as JSON.
        complain: A function that takes a sentence where the alert could not be sent; the address, which may hold a key, is not
            in it.

    Returns:
        The threads that send, one for each destination.
    """
    body = json.dumps(dict(alert)).encode()
    places = {COMMAND: _run, WEBHOOK: _post}
    threads = [
        # A destination that does not answer must not keep the command from ending.
        threading.Thread(target=_try, args=(name, post, os.environ[name], body, complain), daemon=True)
        for name, post in places.items()
        if os.environ.get(name)
    ]
    for thread in threads:
        thread.start()
    return threads


def _try(name: str, post: Callable[[str, bytes], None], where: str, body: bytes, complain: Callable[[str], None]) -> None:
    try:
        post(where, body)
    except (OSError, ValueError) as error:
        complain(f"an alert could not be sent by {name}: {type(error).__name__}")


def _run(command: str, body: bytes) -> None:
    ended = answered(Command(arguments=shlex.split(command), folder=Path(), environment=os.environ), body, SECONDS)
    if not ended.in_time:
        raise TimeoutError
    if ended.code:
        raise ChildProcessError


def _post(url: str, body: bytes) -> None:
    if not url.startswith(("http://", "https://")):
        raise ValueError("not a web address")
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310 - checked above
        pass
