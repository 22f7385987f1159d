"""A headless Chromium, driven through its debugging protocol over a pipe, so that nothing has to be installed
but the browser.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
)


class ChromiumError(Exception):
    """Chromium refused a command, or has ended."""


def find_chromium() -> str | None:
    """Return the path of Chromium, or None if the machine has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab of the browser.

    Attributes:
        events: the events since they were last cleared, each with ``method`` and ``params``.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._received = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while (answer := self._receive()).get("id") != self._number:
            self._keep(answer)
        if "error" in answer:
            raise ChromiumError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for an event, which may have arrived already."""
        while not any(condition(event) for event in self.events):
            self._keep(self._receive())

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. A promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ChromiumError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def _keep(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.events.append(message)

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\0" not in self._received:
            piece = self._process.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not piece:
                raise ChromiumError(f"{self._process.args!r} has ended")
            self._received += piece
        first, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


@contextmanager
def open_page(chromium: str, profile: Path) -> Iterator[Page]:
    """Start Chromium, and return a page.

    Args:
        chromium: its path.
        profile: an empty folder for its profile.
    """
    # Chromium reads commands from descriptor 3 and writes to 4.
    script = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
    command = ["sh", "-c", script, "sh", chromium, *OPTIONS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Page(process)
    finally:
        process.kill()
        with process:  # closes the pipes, and waits
            pass
