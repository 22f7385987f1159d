"""One question about many things, asked side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rocketmq_py.errors import RocketMQError
from rocketmq_py.remoting.running import open_nursery

MOST_AT_ONCE = 256
"""Questions that are under way at the same time: their answers may carry messages."""

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


async def map_over_brokers(
    keys: Iterable[_Key], ask: Callable[[_Key], Awaitable[_Answer]]
) -> dict[_Key, _Answer]:
    """Ask about all of them, many at the same time; return the answers in their order, or raise an error."""
    keys = list(keys)
    answers: dict[_Key, _Answer] = {}
    errors: list[RocketMQError] = []
    left = iter(keys)

    async def ask_in_turn(first: _Key) -> None:
        key: _Key | None = first
        while key is not None and not errors:
            try:
                answers[key] = await ask(key)
            except RocketMQError as error:
                errors.append(error)
            key = next(left, None)

    async with open_nursery() as nursery:
        for _, key in zip(range(MOST_AT_ONCE), left, strict=False):
            nursery.start_soon(ask_in_turn, key)
    if errors:
        raise errors[0]
    return {key: answers[key] for key in keys}
