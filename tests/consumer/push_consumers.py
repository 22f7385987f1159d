"""Push consumers for tests."""

from __future__ import annotations

import trio

from rocketmq_py import Client
from rocketmq_py.consumer import PushConsumer
from rocketmq_py.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("T", "broker-a", 0)
RETRIES = MessageQueue("%RETRY%g", "broker-a", 0)


def consumer_of(address: str | Client, group: str = "g", **options: object) -> PushConsumer:
    consumer = PushConsumer(
        address,
        group=group,
        consume_from="earliest",
        **options,  # type: ignore[arg-type]  # options of the test
    )
    consumer.subscribe("T")
    return consumer


class RecordingHandler:
    """A handler that records the numbers in the bodies."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._more = trio.lowlevel.ParkingLot()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.numbers.append(int(message.body))
        self._more.unpark_all()

    async def until(self, count: int) -> None:
        while len(self.numbers) < count:
            await self._more.park()


async def never(_: ReceivedMessage) -> None:
    await trio.sleep_forever()
