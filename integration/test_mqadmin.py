"""RocketMQ's own tools look at consumers of this client, and steer them, as they do with Java's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import CLIENT_OF_SERVER, run_java_async
from rocketmq_py import Client, ConsumeFrom, Message, PushConsumer, ReceivedMessage

pytestmark = pytest.mark.usefixtures("java_and_maven")

PATIENCE = 90


@pytest.fixture
def group(unique: str) -> str:
    return f"group-{unique}"


async def mqadmin(real: Cluster, command: str) -> str:
    java = CLIENT_OF_SERVER[real.version]
    (line,) = await run_java_async(java, "Admin", "--namesrv", real.name_servers, "--command", command)
    return str(line["output"])


async def send(client: Client, topic: str, numbers: range) -> list[str]:
    """Send numbers, and return the ids that the brokers gave to their messages."""
    async with client.producer("senders") as producer:
        return [(await producer.send(Message(topic, b"%d" % number))).offset_message_id for number in numbers]


class Kept:
    """A handler that counts the numbers that it gets."""

    def __init__(self) -> None:
        self.got: Counter[int] = Counter()
        self.fails = False
        self._more = trio.lowlevel.ParkingLot()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.got[int(message.body)] += 1
        self._more.unpark_all()
        if self.fails:
            raise ValueError("not now")

    async def until(self, *expected: range) -> None:
        """Wait until everything in ``expected`` has been got as often as it is in there."""
        wanted = Counter(number for numbers in expected for number in numbers)
        with trio.fail_after(PATIENCE):
            while not wanted <= self.got:
                await self._more.park()


@asynccontextmanager
async def running(
    real: Cluster, group: str, topic: str, kept: Kept, *, orderly: bool = False
) -> AsyncIterator[PushConsumer]:
    consumer = PushConsumer(
        real.name_servers, group=group, consume_from=ConsumeFrom.FIRST, orderly=orderly, commit_interval=1
    )
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, kept)
        yield consumer
        nursery.cancel_scope.cancel()


def rows(table: str, topic: str) -> list[list[str]]:
    """Return the words of the lines that are about a topic."""
    return [line.split() for line in table.splitlines() if line.startswith(topic)]


async def test_who_is_in_a_group_and_how_far_it_is(
    real: Cluster, client: Client, topic: str, group: str
) -> None:
    kept = Kept()
    await send(client, topic, range(40))
    async with running(real, group, topic, kept) as consumer:
        await kept.until(range(40))
        connections = await mqadmin(real, f"consumerConnection -g {group}")
        assert consumer.client.client_id in connections
        assert "PYTHON" in connections
        assert [topic, "*"] in rows(connections, topic)
        assert "ConsumeType: CONSUME_PASSIVELY" in connections
        assert "MessageModel: CLUSTERING" in connections
        assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in connections

        progress = await mqadmin(real, f"consumerProgress -g {group} -s true")
        of_topic = rows(progress, topic)
        assert [line[2] for line in of_topic] == ["0", "1", "2", "3"]
        assert [line[3:5] for line in of_topic] == [["10", "10"]] * 4, "stored and consumed"
        host = consumer.client.client_id.partition("@")[0]
        assert all(host in line for line in of_topic), "which client has the queue"
        assert "Diff Total: 0" in progress


@pytest.mark.parametrize("orderly", [False, True])
async def test_how_a_consumer_is_doing(
    real: Cluster, client: Client, topic: str, group: str, orderly: bool
) -> None:
    kept = Kept()
    await send(client, topic, range(40))
    async with running(real, group, topic, kept, orderly=orderly) as consumer:
        await kept.until(range(40))
        status = await mqadmin(real, f"consumerStatus -g {group} -i {consumer.client.client_id} -s")
        properties = {
            name.strip(): value.strip()
            for name, colon, value in (line.partition(":") for line in status.splitlines())
            if colon
        }
        assert properties["PROP_CONSUMEORDERLY"] == ("true" if orderly else "false")
        assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert properties["PROP_NAMESERVER_ADDR"] == real.name_servers
        assert properties["PROP_CLIENT_VERSION"] == "V5_5_0 (rocketmq-py)"
        of_topic = rows(status, topic)
        assert sorted(line[2:4] for line in of_topic if len(line) == 4) == [
            [str(number), "10"] for number in range(4)
        ]
        details = [" ".join(line) for line in of_topic if "ProcessQueueInfo" in " ".join(line)]
        assert len(details) == 4
        assert all(f"locked={'true' if orderly else 'false'}" in line for line in details)
        (rates,) = [line for line in of_topic if len(line) == 7]
        assert float(rates[4]) > 0, "messages a second"
        assert "task " in status, "what its tasks are doing"
        overview = await mqadmin(real, f"consumerStatus -g {group}")
        assert consumer.client.client_id in overview
        assert "Same subscription in the same group of consumer" in overview
        assert "Rebalance OK" in overview


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_group_is_set_back_and_forward_while_it_runs(
    real: Cluster, client: Client, topic: str, group: str, orderly: bool
) -> None:
    kept = Kept()
    await send(client, topic, range(20))
    await trio.sleep(1)
    between_ms = int(time.time() * 1000)
    await trio.sleep(1)
    await send(client, topic, range(20, 40))
    async with running(real, group, topic, kept, orderly=orderly) as consumer:
        await kept.until(range(40))
        await trio.sleep(2)
        output = await mqadmin(real, f"resetOffsetByTime -g {group} -t {topic} -s {between_ms}")
        assert topic in output
        await kept.until(range(40), range(20, 40))
        await send(client, topic, range(40, 44))
        await kept.until(range(44), range(20, 40))
        repeated = kept.got - Counter(range(44))
        # 4.x brokers name the message before that of the time, in each queue.
        assert Counter(range(20, 40)) <= repeated <= Counter(range(16, 40))

        consumer.pause()
        # A pull that is under way may still bring something; brokers keep one for 20 s at the most.
        await trio.sleep(21)
        await send(client, topic, range(44, 60))
        await mqadmin(real, f"resetOffsetByTime -g {group} -t {topic} -s -1 -f true")
        consumer.resume()
        await trio.sleep(1)
        await send(client, topic, range(60, 64))
        await kept.until(range(60, 64))
        await trio.sleep(2)
    assert not set(range(44, 60)) & set(kept.got), "they were skipped"


async def test_one_message_is_handled_at_an_operators_wish(
    real: Cluster, client: Client, topic: str, group: str
) -> None:
    kept = Kept()
    ids = await send(client, topic, range(4))
    async with running(real, group, topic, kept) as consumer:
        await kept.until(range(4))
        command = f"queryMsgById -i {ids[2]} -g {group} -d {consumer.client.client_id}"
        if real.version.startswith("5"):
            command += f" -t {topic}"
        output = await mqadmin(real, command)
        assert "CR_SUCCESS" in output
        assert kept.got == Counter(range(4)) + Counter([2])
        kept.fails = True
        output = await mqadmin(real, command)
        assert "CR_THROW_EXCEPTION" in output
        assert "ValueError: not now" in output
