"""A file server on loopback, for tests that load pages or packages over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs


@attrs.frozen
class FileServer:
    """A running server.

    Attributes:
        url: the URL of its folder, which ends with a slash.
        requested: the paths that were requested, in order.
    """

    url: str
    requested: list[str]


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: object, requested: list[str], directory: str) -> None:
        self._requested = requested
        super().__init__(*arguments, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._requested.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        """Print nothing."""


@contextmanager
def serve_files(folder: Path) -> Iterator[FileServer]:
    """Serve a folder on a free port of loopback."""
    requested: list[str] = []
    handler = partial(_Handler, requested=requested, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield FileServer(f"http://127.0.0.1:{server.server_port}/", requested)
        finally:
            server.shutdown()
            thread.join()
