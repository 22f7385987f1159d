"""Filter a topic's messages by tags, or by a SQL filter on their properties.

    python examples/filters.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876. Brokers need ``enablePropertyFilter=true`` for SQL filters.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Client, Message
from rocketmq_py.errors import SqlFilterRefusedError

TOPIC = "FiltersTest"


async def send(client: Client) -> None:
    """Send orders of several sizes from two countries."""
    async with client.producer("examples") as producer:
        for number in range(20):
            country = "FR" if number % 2 else "DE"
            message = Message(TOPIC, b"%d" % number, tags=country, properties={"size": str(number)})
            await producer.send(message)


async def read(client: Client, count: int, tags: str = "*", *, sql: str | None = None) -> list[int]:
    """Read matching messages. Every consumer's ``subscribe`` takes the same tags and SQL filters."""
    async with (
        client.reader() as reader,
        reader.open(TOPIC, tags, sql=sql, start="earliest") as messages,
    ):
        return sorted([int((await anext(messages)).body) for _ in range(count)])


async def consume(client: Client) -> None:
    """Subscribe with an invalid SQL filter, which brokers refuse, then with a valid one."""
    async with client.lite_pull_consumer("examples-filters") as consumer:
        consumer.subscribe(TOPIC, sql="size >")
        try:
            await consumer.poll()
        except SqlFilterRefusedError as error:
            print(f"refused: {error.sql}")
        await consumer.check_sql(TOPIC, "size > 5")
        consumer.subscribe(TOPIC, sql="size > 5")
        print("accepted: size > 5")


async def main(address: str | None) -> None:
    """Send, then filter in each way."""
    async with Client(address) as client:
        await send(client)
        print("by tags:", await read(client, 10, "FR || IT"))
        print(
            "by a SQL filter:", await read(client, 6, sql="size BETWEEN 5 AND 8 OR TAGS = 'FR' AND size > 15")
        )
        await consume(client)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
