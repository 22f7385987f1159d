"""Everything that starts, seeks, resets or reads accepts the same words and positions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest

from rocketmq_py import Admin, Client, LitePullConsumer, MessageQueue, Position, Reader
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.position import EVERY_KIND, OF_GROUPS, PositionKind
from tests.behaviours.conftest import create_topic
from tests.behaviours.test_consuming import fill

AT_ENDS = frozenset({PositionKind.EARLIEST, PositionKind.LATEST})


@attrs.frozen
class Place:
    """An open client with a reader, an admin and a consumer, and a queue with messages."""

    client: Client
    reader: Reader
    admin: Admin
    consumer: LitePullConsumer
    queue: MessageQueue


async def push_consumer(place: Place, position: Any) -> None:
    place.client.push_consumer("g", consume_from=position)


async def lite_pull_consumer(place: Place, position: Any) -> None:
    place.client.lite_pull_consumer("g", consume_from=position)


async def pop_consumer(place: Place, position: Any) -> None:
    place.client.pop_consumer("g", consume_from=position)


async def seek(place: Place, position: Any) -> None:
    await place.consumer.seek(place.queue, position)


async def open_stream(place: Place, position: Any) -> None:
    async with place.reader.open(place.queue.topic, start=position, stop_at_end=True):
        pass


async def range_from(place: Place, position: Any) -> None:
    async for message in place.reader.range(place.queue, position):
        assert message.queue == place.queue


async def range_to(place: Place, position: Any) -> None:
    async for message in place.reader.range(place.queue, 0, position):
        assert message.queue == place.queue


async def offsets_at(place: Place, position: Any) -> None:
    await place.reader.offsets_at(place.queue.topic, position)


async def reset(place: Place, position: Any) -> None:
    group = f"group-{place.queue.topic}"
    await place.admin.offsets.reset(group, place.queue.topic, position, dry_run=True)


POSITIONS: tuple[Position | str, ...] = (
    "earliest",
    "latest",
    "EARLIEST",
    Position.earliest,
    Position.latest,
    Position.time(1_700_000_000_000),
    Position.time(timedelta(minutes=10)),
    Position.offset(3),
    Position.last(3),
)


@pytest.mark.parametrize(
    ("use", "kinds"),
    [
        (push_consumer, OF_GROUPS),
        (lite_pull_consumer, OF_GROUPS),
        (pop_consumer, AT_ENDS),
        (seek, EVERY_KIND),
        (open_stream, EVERY_KIND),
        (range_from, EVERY_KIND),
        (range_to, EVERY_KIND),
        (offsets_at, EVERY_KIND),
        (reset, EVERY_KIND),
    ],
)
async def test_every_place_accepts_the_same_positions(
    client: Client, unique: str, use: Callable[[Place, Any], Awaitable[None]], kinds: frozenset[PositionKind]
) -> None:
    await create_topic(client, unique, queues=1)
    await fill(client, unique, 10)
    queue = MessageQueue(unique, "broker-a", 0)
    async with (
        client.reader() as reader,
        client.admin() as admin,
        client.lite_pull_consumer(f"group-{unique}") as consumer,
    ):
        await consumer.assign([queue])
        await admin.groups.create(f"group-{unique}", if_not_exists=True)
        place = Place(client, reader, admin, consumer, queue)
        for position in POSITIONS:
            if isinstance(position, str) or position.kind in kinds:
                await use(place, position)
                continue
            with pytest.raises(ConfigurationError, match=r"; it must be 'earliest',? ") as caught:
                await use(place, position)
            for kind in (PositionKind.TIME, PositionKind.OFFSET, PositionKind.LAST):
                allowed = str(caught.value).partition("must be")[2]
                assert (f"Position.{kind.value}(" in allowed) == (kind in kinds)
        for wrong in ("beginning", "first", "end", "last", 1.5, None):
            with pytest.raises(ConfigurationError, match=r"must be 'earliest',? "):
                await use(place, wrong)
