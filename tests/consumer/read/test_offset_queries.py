"""Queries of topics and offsets."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_py import Client, Position
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.read.reader import Reader
from rocketmq_py.errors import BrokerError, ClosedError, NoQueueError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.consumer.conftest import Fill
from tests.consumer.read.test_reader import ScriptedQueue, body_of
from tests.scripted import scripted_cluster


async def test_topics_returns_only_topics_of_users(
    client: Client, fill: Fill, broker: EmbeddedBroker
) -> None:
    await fill("orders", 1)
    await fill("Bills", 1)
    for name in ("%RETRY%g", "%DLQ%g", "n%orders", "RMQ_SYS_X"):
        await core_of(client).brokers.create_topic(broker.broker_address, name, queues=1)
    async with Reader(client) as reader:
        assert await reader.topics() == ["Bills", "n%orders", "orders"]
    async with Reader(broker.name_server_address, namespace="n") as reader:
        assert await reader.topics() == ["orders"]


async def test_offsets_of_many_topics(client: Client, fill: Fill) -> None:
    wanted: dict[MessageQueue, tuple[int, int]] = {}
    for number in range(40):
        await fill(f"T{number}", number, queues=2)
        wanted |= {MessageQueue(f"T{number}", "broker-a", at): (0, (number + 1 - at) // 2) for at in (0, 1)}
    async with Reader(client) as reader:
        assert await reader.offsets([queue.topic for queue in wanted]) == wanted
        assert [queue.topic for queue in await reader.offsets(["T3", "T1", "T3"])] == ["T3"] * 2 + ["T1"] * 2
        assert await reader.offsets([]) == {}
        with pytest.raises(TopicNotFoundError, match="'nowhere'"):
            await reader.offsets(["T3", "nowhere"])


async def test_offsets_at_a_time(client: Client, fill: Fill, jumping_clock: object) -> None:
    await fill("T", 10, queues=2)
    await trio.sleep(100)
    now_ms = 1_700_000_000_000 + int(trio.current_time() * 1000)
    await fill("T", 11, queues=2)
    first, second = (MessageQueue("T", "broker-a", number) for number in (0, 1))
    async with Reader(client) as reader:
        assert await reader.offsets_at(["T"], Position.time(0)) == {first: 0, second: 0}
        assert await reader.offsets_at(["T"], Position.time(now_ms - 50_000)) == {first: 5, second: 5}
        assert await reader.offsets_at(["T"], Position.time(now_ms + 100_000)) == {first: 11, second: 10}


async def test_offsets_at_a_position(client: Client, fill: Fill) -> None:
    await fill("T", 11, queues=2)
    first, second = (MessageQueue("T", "broker-a", number) for number in (0, 1))
    async with Reader(client) as reader:
        for position, expected in (
            ("earliest", (0, 0)),
            ("latest", (6, 5)),
            (Position.offset(4), (4, 4)),
            (Position.last(2), (4, 3)),
            (Position.last(100), (0, 0)),
        ):
            assert await reader.offsets_at("T", position) == dict(zip((first, second), expected, strict=True))


async def test_commit_without_joining_the_group(client: Client, fill: Fill) -> None:
    await fill("T", 100, queues=4)
    await fill("U", 4, queues=4)
    queues = [MessageQueue(topic, "broker-a", number) for topic in "TU" for number in range(4)]
    async with Reader(client) as reader:
        assert await reader.committed("g", queues) == dict.fromkeys(queues)
        offsets = {queue: number for number, queue in enumerate(queues)}
        await reader.commit("g", offsets)
        assert await reader.committed("g", queues) == offsets
        await reader.commit("g", {queues[5]: 2})
        assert await reader.committed("g", queues[4:6]) == {queues[4]: 4, queues[5]: 2}
        await reader.commit("g", {})
    with pytest.raises(ClosedError):
        await reader.commit("g", offsets)


def at_seven(connection: Connection, request: Command) -> None:
    """Answer as a broker on which the committed offset of every group is 7."""
    connection.respond(request, ResponseCode.SUCCESS, {"offset": "7"})


async def test_route_is_refreshed_for_an_unknown_broker() -> None:
    here, away = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)
    async with scripted_cluster(at_seven, at_seven) as cluster:
        server = cluster.brokers.pop("broker-b")
        async with Reader(cluster.address) as one, Reader(cluster.address) as two:
            await one.committed("g", [here])
            await two.commit("g", {here: 7})
            asked = len(cluster.name_server.requests)
            for ask in (one.committed("g", [here, away]), two.commit("g", {here: 8, away: 8})):
                with pytest.raises(NoQueueError, match="'broker-b'"):
                    await ask
            assert len(cluster.name_server.requests) == asked + 2, "one request for each topic"
            cluster.brokers["broker-b"] = server
            assert await one.committed("g", [here, away]) == {here: 7, away: 7}
            await two.commit("g", {here: 8, away: 9})
            assert await two.committed("g", [away]) == {away: 7}
            assert len(cluster.name_server.requests) == asked + 4, (
                "routes with known brokers are not requested"
            )
    (commit,) = server.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert (commit.fields["topic"], commit.fields["commitOffset"]) == ("T", "9")


class Broker5:
    """A 5.x broker, which may create a group when it receives a pull of that group."""

    def __init__(self, *, creates: bool) -> None:
        self.creates = creates
        self.is_known = False
        self.codes: list[int] = []

    def __call__(self, connection: Connection, request: Command) -> None:
        self.codes.append(request.code)
        if request.code == RequestCode.PULL_MESSAGE:
            self.is_known = self.creates
            fields = dict.fromkeys(("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"), "0")
            connection.respond(request, self._code(ResponseCode.PULL_NOT_FOUND), fields)
        else:
            connection.respond(request, self._code(ResponseCode.SUCCESS), remark="Group g not exist!")

    def _code(self, code: int) -> int:
        return code if self.is_known else ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_commit_creates_an_unknown_group() -> None:
    broker = Broker5(creates=True)
    async with scripted_cluster(broker) as cluster, Reader(cluster.address) as reader:
        await reader.commit("g", {MessageQueue("T", "broker-a", number): 1 for number in range(4)})
    commit, pull = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE
    assert broker.codes == [commit, pull, commit, commit, commit, commit]


async def test_commit_fails_if_the_broker_creates_no_groups() -> None:
    broker = Broker5(creates=False)
    async with scripted_cluster(broker) as cluster, Reader(cluster.address) as reader:
        with pytest.raises(BrokerError, match="SUBSCRIPTION_GROUP_NOT_EXIST"):
            await reader.commit("g", {MessageQueue("T", "broker-a", 0): 1})


class ShrunkBroker(ScriptedQueue):
    """Returns a minimum offset without a message, as after a file was deleted."""

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            connection.respond(request, ResponseCode.SUCCESS, {"timestamp": "-1"})
        else:
            super().__call__(connection, request)


@pytest.mark.parametrize(
    ("answers", "first"),
    [
        ([(ResponseCode.PULL_OFFSET_MOVED, 7, b"")] * 2 + [(ResponseCode.SUCCESS, 8, body_of([7]))], 7),
        ([(ResponseCode.PULL_OFFSET_MOVED, 10, b"")] * 2, 10),
    ],
)
async def test_present_returns_the_offset_of_the_first_message(
    answers: list[tuple[int, int, bytes]], first: int, jumping_clock: trio.testing.MockClock
) -> None:
    async with (
        scripted_cluster(ShrunkBroker(10, *answers), queues=1) as cluster,
        Reader(cluster.address) as reader,
    ):
        queue = MessageQueue("T", "broker-a", 0)
        assert await reader.offsets(["T"]) == {queue: (0, 10)}
        assert await reader.offsets(["T"], present=True) == {queue: (first, 10)}


async def test_other_errors_of_a_commit_are_raised() -> None:
    def refuse(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.NO_PERMISSION, remark="scripted")

    async with scripted_cluster(refuse) as cluster, Reader(cluster.address) as reader:
        with pytest.raises(BrokerError, match="NO_PERMISSION"):
            await reader.commit("g", {MessageQueue("T", "broker-a", 0): 1})
        assert len(cluster.brokers["broker-a"].requests) == 1
