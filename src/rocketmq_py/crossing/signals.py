"""What may interrupt the main thread between any two steps: handlers of signals."""

from __future__ import annotations

import signal

# What signal.getsignal is made of, which takes 20 times as long. Typeshed does not know it.
from _signal import getsignal  # type: ignore[import-not-found]
from typing import Final

_ALL: Final = tuple(signal.valid_signals())
_DEFAULT: Final = (None, signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)


class SignalHandlers:
    """The handlers of signals of this process."""

    def __init__(self) -> None:
        self._seen: list[object] = []
        self._call_nothing = False

    def call_nothing(self) -> bool:
        """Whether none of them is a function of the program's (in the main thread, which alone may set them).

        Python's own handler of Ctrl-C raises KeyboardInterrupt, and calls nothing.
        """
        # Looked at for each send: it takes some microseconds, of tens that those take.
        seen = [*map(getsignal, _ALL)]
        if seen != self._seen:
            self._seen = seen
            self._call_nothing = all(handler in _DEFAULT for handler in seen)
        return self._call_nothing
