"""A file descriptor that wakes up a thread that waits for descriptors."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial


class WakeupFd:
    """Readable from the first :attr:`wake` until :meth:`drain`, from any thread.

    It is an eventfd where the system has one (a third of the cost of a socket pair). The descriptors are
    closed only when the object is garbage-collected: as long as another thread may still write to them,
    their numbers must not belong to another file.

    Attributes:
        wake: makes it readable. Where there are eventfds it is a C function, so that a signal handler runs
            before or after it, never within.
    """

    _descriptor = -1  # of the class, as __init__ may be interrupted before __del__
    _sockets: tuple[socket.socket, socket.socket] | None = None

    def __init__(self) -> None:
        self.wake: Callable[[], object]
        if hasattr(os, "eventfd"):
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.wake = partial(os.eventfd_write, self._descriptor, 1)
            return
        self._sockets = reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._descriptor = reader.fileno()
        self.wake = partial(_send_if_possible, writer)

    def __del__(self) -> None:
        if self._sockets is not None:
            for one in self._sockets:
                one.close()
        elif self._descriptor >= 0:
            os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._descriptor

    def drain(self) -> None:
        """Make it unreadable until the next wake-up."""
        try:
            if self._sockets is None:
                os.eventfd_read(self._descriptor)
            else:
                self._sockets[0].recv(4096)
        except BlockingIOError:  # drained already: a loop that was interrupted may call its reader twice
            pass


def _send_if_possible(writer: socket.socket) -> None:
    with suppress(BlockingIOError):  # a full buffer wakes the reader, too
        writer.send(b"x")
