"""A descriptor that wakes a thread that waits for descriptors."""

from __future__ import annotations

import os
import socket
import sys
from typing import Final

_ONE: Final = (1).to_bytes(8, sys.byteorder)


class WakeupFd:
    """Readable from when any thread has woken it until it is drained.

    An eventfd where there are such, as it takes a third of the time of a pair of sockets. Its descriptors are
    given back when nobody knows it any more, and so nobody is in the midst of waking it: their numbers are
    soon those of other files.
    """

    def __init__(self) -> None:
        self._is_closed = False
        self._descriptor = -1
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        if hasattr(os, "eventfd"):
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return
        self._sockets = woken, waking = socket.socketpair()
        woken.setblocking(False)
        waking.setblocking(False)
        self._descriptor = woken.fileno()

    def __del__(self) -> None:
        if self._sockets is not None:
            for one in self._sockets:
                one.close()
        elif self._descriptor >= 0:
            os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._descriptor

    def wake(self) -> None:
        """Wake who waits. Raises OSError when it is closed."""
        if self._is_closed:
            raise OSError("nobody waits here any more")
        if self._sockets is None:
            os.write(self._descriptor, _ONE)
        else:
            self._sockets[1].send(b"x")

    def drain(self) -> None:
        """Note that who waited is awake."""
        if self._sockets is None:
            os.read(self._descriptor, 8)
        else:
            self._sockets[0].recv(64)

    def close(self) -> None:
        """Note that nobody waits any more. Repeatable."""
        self._is_closed = True
