"""KeyboardInterrupt between two chosen bytecodes of the library, as Ctrl-C may raise it."""

from __future__ import annotations

import dis
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rocketmq_py

LIBRARY = str(Path(rocketmq_py.__file__).parent)


def _raise() -> None:
    raise KeyboardInterrupt


class Interruption:
    """Follows the library's code in the current thread, and raises KeyboardInterrupt before one bytecode.

    Args:
        step: the number of that bytecode, from 1.
        action: called there, as a signal handler would be. By default it raises KeyboardInterrupt.

    Attributes:
        place: the function that was interrupted. None if the code ended before.
    """

    active: Interruption | None = None

    def __init__(self, step: int, action: Callable[[], object] = _raise) -> None:
        self._left = step
        self._action = action
        self._thread = threading.get_ident()
        self.place: str | None = None

    def __enter__(self) -> Interruption:
        Interruption.active = self
        if not HAS_MONITORING:
            sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        Interruption.active = None
        if not HAS_MONITORING:
            sys.settrace(None)

    def count(self, code: CodeType, offset: int) -> None:
        """Count a bytecode of the library, and interrupt before the last one."""
        if self._thread != threading.get_ident() or offset in offsets_of_awaits(code):
            return
        if code.co_name in ("__del__", "report"):
            return  # the interpreter drops an exception of a finalizer
        self._left -= 1
        if not self._left:
            self.place = code.co_qualname
            self._action()

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        frame.f_trace_opcodes = True
        return self._trace_bytecode

    def _trace_bytecode(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode":
            self.count(frame.f_code, frame.f_lasti)
        return self._trace_bytecode


@cache
def offsets_of_awaits(code: CodeType) -> frozenset[int]:
    """Return the bytecodes with which a coroutine resumes the one that it awaits.

    The interpreter handles no signal there, but in the innermost coroutine.
    """
    return frozenset(
        one.offset
        for one in dis.get_instructions(code)
        if one.opname in ("SEND", "YIELD_VALUE", "JUMP_BACKWARD_NO_INTERRUPT")
        or (one.opname == "RESUME" and one.arg is not None and one.arg & 3 >= 2)
    )


HAS_MONITORING = sys.version_info >= (3, 12)
"""Whether bytecodes are followed by sys.monitoring. From 3.12 on, sys.settrace misses some."""

if sys.version_info >= (3, 12):

    def _count_bytecode(code: CodeType, offset: int) -> Any:
        if not code.co_filename.startswith(LIBRARY):
            return sys.monitoring.DISABLE
        active = Interruption.active
        if active is not None:
            active.count(code, offset)
        return None

    TOOL = sys.monitoring.DEBUGGER_ID
    sys.monitoring.use_tool_id(TOOL, "interrupting")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.INSTRUCTION, _count_bytecode)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.INSTRUCTION)


def steps() -> Iterator[int]:
    """Yield 1, 2, 3 and so on; or ascending random numbers if the program has a seed as its last argument."""
    seed = sys.argv[-1]
    if not seed.isdecimal():
        yield from itertools.count(1)
    print(f"seed: {seed}", file=sys.stderr)
    rng, step = random.Random(int(seed)), 0
    while True:
        step += rng.randint(1, 16)
        yield step


def interrupt_everywhere(run: Callable[[], object]) -> Iterator[str | None]:
    """Run a function again and again, interrupted at the next of :func:`steps` each time.

    Yields the place after each run. Ends with a run that is not interrupted, and yields None.
    """
    for step in steps():
        interruption = Interruption(step)
        try:
            with interruption:
                run()
        except KeyboardInterrupt:
            assert interruption.place is not None
        yield interruption.place
        if interruption.place is None:
            return
