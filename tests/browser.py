"""A headless Chromium, driven through a pipe: no other package, and no port, is needed for it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
)


class Page:
    """One page of a browser.

    Attributes:
        requests: The address of everything that the page asked for.
        complaints: What it wrote to the console as an error.
    """

    def __init__(self, send_to: int, read_from: int) -> None:
        self._send_to, self._read_from, self._rest, self._nr = send_to, read_from, b"", 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Call a method of the browser's protocol and return its result."""
        self._nr += 1
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._send_to, json.dumps({"id": self._nr, "method": method, "params": values, **session}).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._nr:
                assert "error" not in told, told
                return dict(told["result"])
            self._note(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read_from, 1 << 20)
            assert data, "the browser ended"
            self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(line))

    def _note(self, told: dict[str, Any]) -> None:
        values = told.get("params", {})
        if told.get("method") == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(values)[:2000])
        elif told.get("method") == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.complaints.append(values["entry"]["text"])

    def open(self, url: str, width: int = 1280, height: int = 900, is_dark: bool = False) -> None:
        """Go to an address, with a window of so many pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def js(self, code: str) -> Any:
        """Return what an expression gives."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, code: str, seconds: float = 15.0) -> Any:
        """Wait until an expression gives something true, and return it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(AssertionError):
                if found := self.js(code):
                    return found
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s: {code}; {self.complaints}")

    def key(self, key: str, code: int = 0, text: str = "") -> None:
        """Press a key and let it go."""
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write what is seen as a PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """Yield a page of a browser that ends with the block."""
    assert CHROMIUM is not None
    (to_read, to_send), (from_read, from_send) = os.pipe(), os.pipe()

    def as_three_and_four() -> None:
        first, second = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, from_send))  # neither is 3 or 4 now
        os.dup2(first, 3)
        os.dup2(second, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "--remote-debugging-pipe"]
        process = subprocess.Popen(
            command, preexec_fn=as_three_and_four, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(from_send)
        try:
            yield Page(to_send, from_read)
        finally:
            process.kill()
            process.wait()
            os.close(to_send)
            os.close(from_read)
