"""Push consumers that pop where the broker says so, and change over while they run (5.x)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from rocketmq_py import (
    AllocateByBroker,
    Client,
    ConsumeFrom,
    ConsumeLater,
    Message,
    PushConsumer,
    ReceivedMessage,
)
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import dead_letter_topic
from rocketmq_py.protocol.bodies import ConsumerRunningInfo, RequestMode, RequestModeSetting
from rocketmq_py.protocol.headers import GetConsumerRunningInfoRequest
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.doors import new
from tests.behaviours.peers import open_peer
from tests.behaviours.reading import PATIENCE, read_all, until_readable

pytestmark = pytest.mark.doors(real=True)

NOWHERE = -1


@attrs.define
class Popping:
    """A group that a broker has pop a topic of four queues, and one of its members' handlers."""

    client: Client
    address: str
    topic: str
    group: str
    got: list[ReceivedMessage] = attrs.field(factory=list)
    answer: Callable[[ReceivedMessage], Awaitable[Any]] | None = None
    _more: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def set_mode(self, mode: RequestMode, share: int = 0) -> None:
        setting = RequestModeSetting(
            topic=self.topic, consumer_group=self.group, mode=mode, pop_share_queue_num=share
        )
        async with open_peer(self.client) as peer:
            answer = await peer.send(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, setting.encode())
            assert answer.code == ResponseCode.SUCCESS

    async def handle(self, message: ReceivedMessage) -> Any:
        self.got.append(message)
        self._more.unpark_all()
        return await self.answer(message) if self.answer is not None else None

    async def send(self, *bodies: bytes, **changes: Any) -> None:
        async with self.client.producer(f"senders-{self.topic}") as producer:
            for body in bodies:
                await producer.send(Message(self.topic, body, **changes))

    async def until(self, *bodies: bytes, times: int = 1) -> None:
        """Wait until these have come so often, and nothing more seldom."""
        with trio.fail_after(PATIENCE):
            while any(count < times for count in map(self.counts.__getitem__, bodies)):
                await self._more.park()

    @property
    def counts(self) -> Counter[bytes]:
        return Counter([message.body for message in self.got])

    @asynccontextmanager
    async def member(self, **options: Any) -> AsyncIterator[PushConsumer]:
        """Run a member with a client of its own until the end of the block."""
        options = {"pop_invisible_time": 5.0, "rebalance_interval": 0.5, **options}
        async with (
            new(
                self.client,
                PushConsumer,
                self.address,
                group=self.group,
                consume_from=ConsumeFrom.FIRST,
                allocate=AllocateByBroker(),
                **options,
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(self.topic)
            nursery.start_soon(consumer.run, self.handle)
            yield consumer
            consumer.stop()

    async def until_it_has(self, consumer: PushConsumer, *numbers: int) -> None:
        with trio.fail_after(PATIENCE):
            while [queue.queue_id for queue in self.queues(consumer)] != [*numbers]:
                await trio.sleep(0.05)

    def queues(self, consumer: PushConsumer) -> list[MessageQueue]:
        return [queue for queue in consumer.queues if queue.topic == self.topic]


@pytest.fixture
async def popping(cluster: ClusterUnderTest, client: Client, topic: str) -> Popping:
    if cluster.name.startswith("4."):
        pytest.skip("brokers of 4.x do not know pop")
    group = Popping(client, cluster.address, topic, f"group-{topic}")
    await group.set_mode(RequestMode.POP)
    return group


def numbers(*ranges: range) -> list[bytes]:
    return [b"%d" % number for one in ranges for number in one]


async def test_what_is_handled_does_not_come_again(popping: Popping) -> None:
    bodies = numbers(range(100))
    async with popping.member() as consumer:
        await popping.until_it_has(consumer, NOWHERE)
        await popping.send(*bodies)
        await popping.until(*bodies)
        assert popping.counts == dict.fromkeys(bodies, 1)
        await popping.send(b"later")
        await popping.until(b"later")
    async with popping.member():
        with trio.move_on_after(7):  # as long as it would take to come again
            await popping.until(b"never")
    assert popping.counts == dict.fromkeys([*bodies, b"later"], 1)
    assert {message.topic for message in popping.got} == {popping.topic}


async def test_more_members_than_queues_share_the_messages(popping: Popping) -> None:
    bodies = numbers(range(200))
    others = [attrs.evolve(popping, got=[]) for _ in range(5)]
    async with (
        others[0].member(pop_batch_nums=2),
        others[1].member(pop_batch_nums=2),
        others[2].member(pop_batch_nums=2),
        others[3].member(pop_batch_nums=2),
        others[4].member(pop_batch_nums=2),
    ):
        await popping.send(*bodies)
        with trio.fail_after(PATIENCE):
            while sum(len(other.got) for other in others) < 200:
                await trio.sleep(0.05)
        assert sum([other.counts for other in others], Counter()) == dict.fromkeys(bodies, 1)
    assert sum(1 for other in others if other.got) > 1


async def test_queues_may_be_shared_by_some(popping: Popping) -> None:
    await popping.set_mode(RequestMode.POP, share=1)
    async with popping.member() as one, popping.member() as two, popping.member() as three:
        with trio.fail_after(PATIENCE):
            while Counter(
                [queue.queue_id for member in (one, two, three) for queue in popping.queues(member)]
            ) != {0: 2, 1: 2, 2: 2, 3: 2}:
                await trio.sleep(0.05)
        await popping.send(*numbers(range(50)))
        await popping.until(*numbers(range(50)))


async def test_what_fails_comes_again_when_it_is_wanted(popping: Popping) -> None:
    failures: dict[bytes, Any] = {b"later": ConsumeLater(1), b"in a list": ConsumeLater(1)}

    async def fail_once(message: ReceivedMessage) -> Any:
        return failures.get(message.body) if not message.reconsume_times else None

    popping.answer = fail_once
    async with popping.member(pop_invisible_time=300):
        await popping.send(b"fine", b"later", b"in a list")
        await popping.until(b"later", b"in a list", times=2)
    assert popping.counts == {b"fine": 1, b"later": 2, b"in a list": 2}
    again = [message for message in popping.got if message.reconsume_times]
    assert {(message.topic, message.reconsume_times) for message in again} == {(popping.topic, 1)}


async def test_lists_of_which_a_part_is_done(popping: Popping) -> None:
    got: list[list[bytes]] = []

    async def handle(messages: list[ReceivedMessage]) -> ConsumeLater | None:
        got.append([message.body for message in messages])
        return ConsumeLater(1, done=1) if not any(message.reconsume_times for message in messages) else None

    queue = (await popping.client.routes.get(popping.topic)).write_queues[0]
    async with popping.client.producer("senders") as producer:
        for body in (b"a", b"b", b"c"):
            await producer.send(Message(popping.topic, body), queue=queue)
    await until_readable(popping.client, popping.topic, count=3)
    async with (
        new(
            popping.client,
            PushConsumer,
            popping.address,
            group=popping.group,
            batch_size=10,
            consume_from=ConsumeFrom.FIRST,
            allocate=AllocateByBroker(),
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(popping.topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            while sum(map(len, got)) < 5:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert got[0] == [b"a", b"b", b"c"]
    assert sorted(body for bodies in got[1:] for body in bodies) == [b"b", b"c"]


async def test_what_fails_too_often_is_a_dead_letter(popping: Popping) -> None:
    async def fail(message: ReceivedMessage) -> ConsumeLater:
        return ConsumeLater(-1 if message.body == b"at once" else 1)

    popping.answer = fail
    async with popping.member(max_reconsume_times=1):
        await popping.send(b"at once", b"later", keys="k")
        await popping.until(b"later", times=2)
        dead = await until_dead(popping, 2)
    assert {message.body for message in dead} == {b"at once", b"later"}
    assert popping.counts == {b"at once": 1, b"later": 2}


async def until_dead(popping: Popping, count: int) -> list[ReceivedMessage]:
    name = dead_letter_topic(popping.group)
    with trio.fail_after(PATIENCE):
        while True:
            try:
                await popping.client.routes.refresh(name)
                return await read_all(popping.client, name, count=count)
            except Exception:  # noqa: BLE001  # it does not exist yet
                await trio.sleep(0.1)


async def test_what_a_member_did_not_finish_comes_again(popping: Popping) -> None:
    """Cancelled is as killed: nothing of it is acknowledged."""

    async def hang(_: ReceivedMessage) -> None:
        await trio.sleep_forever()

    popping.answer = hang
    async with popping.client.producer("senders") as producer:
        for body in numbers(range(5)):
            await producer.send(Message(popping.topic, body))
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            async with popping.member():
                await trio.sleep_forever()

        nursery.start_soon(run)
        await popping.until(*numbers(range(5)))
        nursery.cancel_scope.cancel()
    popping.answer = None
    async with popping.member():
        await popping.until(*numbers(range(5)), times=2)
    assert popping.counts == dict.fromkeys(numbers(range(5)), 2)
    assert {message.reconsume_times for message in popping.got[5:]} == {1}


async def test_what_takes_too_long_comes_again_and_does_not_count(
    popping: Popping, caplog: pytest.LogCaptureFixture
) -> None:
    async def be_late_once(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await trio.sleep(5.5)

    popping.answer = be_late_once
    async with popping.member():
        await popping.send(b"a")
        await popping.until(b"a", times=2)
        await popping.send(b"b")
        await popping.until(b"b", times=2)
    assert "is not done with in time: it comes again" in caplog.text


@pytest.mark.doors("trio", "asyncio", "uvloop", real=True)  # nobody can cancel a thread
async def test_a_call_that_hangs_is_given_up(popping: Popping) -> None:
    async def hang_once(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await trio.sleep_forever()

    popping.answer = hang_once
    async with popping.member(consume_timeout=1.0, concurrency=1, pop_invisible_time=300) as consumer:
        await popping.send(b"a")
        await popping.until(b"a")
        await popping.send(b"b")
        await popping.until(b"b")  # the only worker has gone on
        assert consumer.queues


async def test_no_more_is_popped_than_may_be_here(popping: Popping) -> None:
    gate = trio.Event()

    async def wait(_: ReceivedMessage) -> None:
        await gate.wait()

    popping.answer = wait
    other = attrs.evolve(popping, got=[], answer=None)
    bodies = numbers(range(60))
    await popping.send(*bodies)
    await until_readable(popping.client, popping.topic, count=60)
    async with popping.member(pop_threshold_for_queue=10, pop_batch_nums=5, pop_invisible_time=60):
        with trio.fail_after(PATIENCE):
            while len(popping.got) < 11:
                await trio.sleep(0.05)
        async with other.member():
            with trio.fail_after(PATIENCE):
                while len(popping.got) + len(other.got) < 60:
                    await trio.sleep(0.05)
            assert len(popping.got) <= 15
            gate.set()
    assert popping.counts + other.counts == dict.fromkeys(bodies, 1)


async def test_members_change_over_to_pulling_and_back(popping: Popping) -> None:
    """Nothing is lost on the way: what was popped and failed is found by those who pull."""
    fails = True

    async def fail(message: ReceivedMessage) -> ConsumeLater | None:
        return ConsumeLater(3) if fails and message.body == b"failed" else None

    popping.answer = fail
    async with popping.member() as consumer:
        await popping.until_it_has(consumer, NOWHERE)
        await popping.send(*numbers(range(10)), b"failed")
        await popping.until(*numbers(range(10)), b"failed")
        await popping.set_mode(RequestMode.PULL)
        await popping.until_it_has(consumer, 0, 1, 2, 3)
        fails = False
        await popping.send(*numbers(range(10, 20)))
        await popping.until(*numbers(range(20)))
        await popping.until(b"failed", times=2)
        await popping.set_mode(RequestMode.POP)
        await popping.until_it_has(consumer, NOWHERE)
        await popping.send(*numbers(range(20, 30)))
        await popping.until(*numbers(range(30)))
        assert consumer.queues
    assert {message.topic for message in popping.got} == {popping.topic}


async def test_what_is_popped_is_filtered(popping: Popping) -> None:
    async with popping.member() as consumer:
        consumer.subscribe(popping.topic, sql="size > 5")
        await popping.until_it_has(consumer, NOWHERE)
        await popping.send(b"small", properties={"size": "3"})
        await popping.send(b"large", properties={"size": "8"})
        await popping.until(b"large")
    popping.got.clear()
    async with popping.member() as consumer:
        consumer.subscribe(popping.topic, "BB")
        await popping.until_it_has(consumer, NOWHERE)
        await popping.send(b"same hash", tags="Aa")
        await popping.send(b"right", tags="BB")
        await popping.until(b"right")
    assert popping.counts == {b"right": 1}


@pytest.mark.doors("trio")  # it asks for a client by its id
async def test_operators_see_it(popping: Popping) -> None:
    gate = trio.Event()

    async def wait(_: ReceivedMessage) -> None:
        await gate.wait()

    popping.answer = wait
    async with popping.member() as consumer, open_peer(popping.client) as peer:
        await popping.send(b"a", b"b")
        await popping.until(b"a", b"b")
        answer = await peer.ask(
            GetConsumerRunningInfoRequest(
                consumer_group=popping.group, client_id=consumer.client.client_id, jstack_enable=False
            )
        )
        assert answer.code == ResponseCode.SUCCESS
        info = ConsumerRunningInfo.decode(answer.body)
        [queue] = popping.queues(consumer)
        assert info.pop_queue_table[queue].wait_ack_count == 2
        assert info.pop_queue_table[queue].last_pop_timestamp > 0
        assert info.properties["popInvisibleTime"] == "5000"
        assert popping.topic in info.status_table
        gate.set()


async def test_a_topic_that_is_unsubscribed_is_left_alone(popping: Popping) -> None:
    async with popping.member() as consumer:
        await popping.until_it_has(consumer, NOWHERE)
        consumer.unsubscribe(popping.topic)
        await popping.until_it_has(consumer)
        await popping.set_mode(RequestMode.PULL)
        consumer.subscribe(popping.topic)
        await popping.until_it_has(consumer, 0, 1, 2, 3)
        consumer.unsubscribe(popping.topic)
        await popping.until_it_has(consumer)
        with trio.fail_after(PATIENCE):
            while len(consumer.queues) > 1:
                await trio.sleep(0.05)
        assert [queue.topic for queue in consumer.queues] == [f"%RETRY%{popping.group}"]


async def test_in_a_namespace(popping: Popping, cluster: ClusterUnderTest) -> None:
    async with Client(cluster.address, namespace="tenant") as client:
        await create_topic(client, popping.topic, queues=4)
        wire = attrs.evolve(popping, topic=f"tenant%{popping.topic}", group=f"tenant%{popping.group}")
        await wire.set_mode(RequestMode.POP)
        inside = attrs.evolve(popping, client=client, got=[])
        failing = True

        async def fail_once(_: ReceivedMessage) -> ConsumeLater | None:
            return ConsumeLater(3) if failing else None

        inside.answer = fail_once
        async with inside.member(namespace="tenant") as consumer:
            await inside.until_it_has(consumer, NOWHERE)
            await inside.send(b"a")
            await inside.until(b"a")
            await wire.set_mode(RequestMode.PULL)
            await inside.until_it_has(consumer, 0, 1, 2, 3)
            failing = False
            await inside.until(b"a", times=2)  # it was pulled from the retry topic of pop
        assert {message.topic for message in inside.got} == {popping.topic}


async def test_members_in_order_leave_it_alone_and_say_so(
    popping: Popping, caplog: pytest.LogCaptureFixture
) -> None:
    async with popping.member(orderly=True) as consumer:
        await popping.send(b"a")
        with trio.fail_after(PATIENCE):
            while "has set the group to pop this topic" not in caplog.text:
                await trio.sleep(0.05)
        assert popping.queues(consumer) == []
    assert popping.got == []
