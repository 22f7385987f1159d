"""The delay of a task with an ETA or countdown, which brokers keep instead of workers.

Brokers 5.x deliver at an exact time. Brokers 4.x only have delay levels. A delay that a broker cannot keep at
once is kept in several steps: a worker that receives a task more than ``EARLY_SECONDS`` before its ETA sends
it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

LEVEL_SECONDS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""The seconds of delay levels 1 to 18 in the default configuration of brokers."""
EARLY_SECONDS: Final = 1.0
"""A task that comes no earlier than this waits in the worker, which Celery does exactly."""


def due_time(payload: Mapping[str, Any]) -> float | None:
    """Return the ETA in a task's headers (Celery's message protocol 2) as epoch seconds, or None.

    An ETA without a time zone is None: only the worker knows its zone, and waits for it.
    """
    eta = (payload.get("headers") or {}).get("eta")
    if not isinstance(eta, str):
        return None
    try:
        time = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return None if time.tzinfo is None else time.timestamp()


def remaining_delay(payload: Mapping[str, Any], now: float) -> float:
    """Return the seconds that brokers should delay a task. 0 means that it may be delivered."""
    due = due_time(payload)
    return 0.0 if due is None or due - now <= EARLY_SECONDS else due - now


def delay_level(seconds: float) -> int:
    """Return the longest delay level that is not too long. There is one for a second and more."""
    return sum(1 for level in LEVEL_SECONDS if level <= seconds)
