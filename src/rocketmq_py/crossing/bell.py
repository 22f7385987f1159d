"""What wakes a thread that waits for descriptors."""

from __future__ import annotations

import os
import socket
import sys
from typing import Final

_ONE: Final = (1).to_bytes(8, sys.byteorder)


class Bell:
    """Becomes readable when it is rung, in any thread, until it is hushed.

    An eventfd where there are such, as it takes a third of the time of a pair of sockets.
    """

    def __init__(self) -> None:
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        if hasattr(os, "eventfd"):
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return
        self._sockets = woken, waking = socket.socketpair()
        woken.setblocking(False)
        waking.setblocking(False)
        self._descriptor = woken.fileno()

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """Return what is readable when it has been rung; -1 when it is closed."""
        return self._descriptor

    def ring(self) -> None:
        """Wake who waits. Raises OSError when it is closed."""
        if self._sockets is None:
            os.write(self._descriptor, _ONE)
        else:
            self._sockets[1].send(b"x")

    def hush(self) -> None:
        """Note that who waited is awake."""
        if self._sockets is None:
            os.read(self._descriptor, 8)
        else:
            self._sockets[0].recv(64)

    def close(self) -> None:
        """Give up its descriptors. Repeatable."""
        descriptor, self._descriptor = self._descriptor, -1
        if self._sockets is not None:
            for one in self._sockets:
                one.close()
        elif descriptor >= 0:
            os.close(descriptor)
