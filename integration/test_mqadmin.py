"""RocketMQ's own tools inspect and control consumers of this client as they do Java's."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.mqadmin import CountingHandler, mqadmin, running, send, show_all, until_committed
from rocketmq_py import Client
from rocketmq_py.client import core_of
from tests.behaviours.reading import read_all, until_readable

pytestmark = pytest.mark.usefixtures("java_and_maven")


@pytest.fixture
def group(unique: str) -> str:
    return f"group-{unique}"


def rows(table: str, topic: str) -> list[list[str]]:
    """Return the words of the lines about a topic."""
    return [line.split() for line in table.splitlines() if line.startswith(topic)]


async def test_mqadmin_shows_the_members_and_progress_of_a_group(
    real: Cluster, client: Client, topic: str, group: str
) -> None:
    handler = CountingHandler()
    await send(client, topic, range(40))
    async with running(real, group, topic, handler) as consumer:
        await handler.until(range(40))
        await until_committed(consumer)
        connections = await mqadmin(real, f"consumerConnection -g {group}")
        assert core_of(consumer).client_id in connections
        assert "PYTHON" in connections
        assert [topic, "*"] in rows(connections, topic)
        assert "ConsumeType: CONSUME_PASSIVELY" in connections
        assert "MessageModel: CLUSTERING" in connections
        assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in connections

        progress = await mqadmin(real, f"consumerProgress -g {group} -s true")
        of_topic = rows(progress, topic)
        assert [line[2] for line in of_topic] == ["0", "1", "2", "3"]
        assert [line[3:5] for line in of_topic] == [["10", "10"]] * 4, "stored and consumed"
        host = core_of(consumer).client_id.partition("@")[0]
        assert all(host in line for line in of_topic), "the client that owns the queue"
        assert "Diff Total: 0" in progress


@pytest.mark.parametrize("orderly", [False, True])
async def test_mqadmin_shows_the_status_of_a_consumer(
    real: Cluster, client: Client, topic: str, group: str, orderly: bool
) -> None:
    handler = CountingHandler()
    await send(client, topic, range(40))
    async with running(real, group, topic, handler, orderly=orderly) as consumer:
        await handler.until(range(40))
        status = await mqadmin(real, f"consumerStatus -g {group} -i {core_of(consumer).client_id} -s")
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
        assert "task " in status, "the stack traces of its tasks"
        overview = await mqadmin(real, f"consumerStatus -g {group}")
        assert core_of(consumer).client_id in overview
        assert "Same subscription in the same group of consumer" in overview
        assert "Rebalance OK" in overview


@pytest.mark.parametrize("orderly", [False, True])
async def test_offsets_of_a_running_group_are_reset_backward_and_forward(
    real: Cluster, client: Client, topic: str, group: str, orderly: bool
) -> None:
    handler = CountingHandler()
    await send(client, topic, range(20))
    between_ms = max(message.store_time_ms for message in await read_all(client, topic, count=20)) + 1
    while core_of(client).now_ms() <= between_ms:
        await trio.sleep(0.001)
    await send(client, topic, range(20, 40))
    async with running(real, group, topic, handler, orderly=orderly) as consumer:
        await handler.until(range(40))
        await until_committed(consumer)
        output = await mqadmin(real, f"resetOffsetByTime -g {group} -t {topic} -s {between_ms}")
        assert topic in output
        await handler.until(range(40), range(20, 40))
        await send(client, topic, range(40, 44))
        await handler.until(range(44), range(20, 40))
        repeated = handler.got - Counter(range(44))
        # 4.x brokers return the offset before the one at that time, in each queue.
        assert Counter(range(20, 40)) <= repeated <= Counter(range(16, 40))

        consumer.pause()
        # These messages complete the pending pulls, one for each queue.
        await send(
            client, topic, range(44, 48), queues=list((await core_of(client).routes.get(topic)).write_queues)
        )
        await handler.until(range(44, 48))
        await send(client, topic, range(48, 60))
        await until_readable(client, topic, count=60)
        await mqadmin(real, f"resetOffsetByTime -g {group} -t {topic} -s -1 -f true")
        consumer.resume()
        await send(client, topic, range(60, 64))
        await handler.until(range(60, 64))
        await until_readable(client, topic, count=64)
        await until_committed(consumer)
    assert not set(range(48, 60)) & set(handler.got), "messages before the new offset were skipped"


async def test_mqadmin_makes_a_consumer_handle_one_message(
    real: Cluster, client: Client, topic: str, group: str
) -> None:
    handler = CountingHandler()
    ids = await send(client, topic, range(4))
    async with running(real, group, topic, handler) as consumer:
        await handler.until(range(4))
        command = f"queryMsgById -i {ids[2]} -g {group} -d {core_of(consumer).client_id}"
        if real.version.startswith("5"):
            command += f" -t {topic}"
        output = await mqadmin(real, command)
        assert "CR_SUCCESS" in output
        assert handler.got == Counter(range(4)) + Counter([2])
        handler.fails = True
        output = await mqadmin(real, command)
        assert "CR_THROW_EXCEPTION" in output
        assert "ValueError: not now" in output


async def test_the_script_runs_the_tools_against_a_consumer(real: Cluster, topic: str, group: str) -> None:
    shown: dict[str, str] = {}
    await show_all(real, topic, group, lambda command, output: shown.update({command.split()[0]: output}))
    assert list(shown) == ["consumerConnection", "consumerStatus", "consumerProgress", "resetOffsetByTime"]
    assert "PYTHON" in shown["consumerConnection"]
    assert "rocketmq-py" in shown["consumerStatus"]
    assert "Diff Total: 0" in shown["consumerProgress"]
    assert topic in shown["resetOffsetByTime"]
