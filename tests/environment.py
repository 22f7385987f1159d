"""Clients and brokers with another clock, or a source of randomness that replays a run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from rocketmq_py.environment import use_environment

_T = TypeVar("_T")


def created(
    kind: Callable[..., _T],
    *arguments: Any,
    now_ms: Callable[[], int] | None = None,
    rng: random.Random | None = None,
    **options: Any,
) -> _T:
    """Return ``kind(*arguments, **options)``, created with this clock and this source of randomness."""
    with use_environment(now_ms=now_ms, rng=rng):
        return kind(*arguments, **options)
