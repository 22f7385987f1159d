"""Names of RocketMQ's versions, which the wire has as ordinals. Java: ``MQVersion``."""

from __future__ import annotations

FIRST_5 = 412
"""The ordinal of V5_0_0_SNAPSHOT: brokers keep exact times and know pop from 5.0 on."""
_V4_0_0 = 213
"""The ordinal of V4_0_0: nine patches follow, then the next minor version, each after its snapshot."""


def version_name(ordinal: int) -> str:
    """Return what an ordinal stands for: ``5.5.0``, ``4.9.8-SNAPSHOT``, or ``3.x`` for all that is older."""
    if ordinal < _V4_0_0 - 1:
        return "3.x"
    number, is_release = divmod(ordinal - _V4_0_0 + 1, 2)
    major, minor, patch = 4 + number // 100, number // 10 % 10, number % 10
    return f"{major}.{minor}.{patch}" + ("" if is_release else "-SNAPSHOT")
