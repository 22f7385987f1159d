"""Push consumers whose brokers assign pop, and change the assignment during a run (5.x)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from rocketmq_py import Client, ConsumeLater, Message, PushConsumer, ReceivedMessage
from rocketmq_py.allocation import AllocateByBroker
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import dead_letter_topic
from rocketmq_py.protocol.bodies import ConsumerRunningInfo, RequestMode, RequestModeSetting
from rocketmq_py.protocol.headers import GetConsumerRunningInfoRequest
from tests.behaviours.apis import new
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.peers import open_peer
from tests.behaviours.reading import PATIENCE, read_all, until_readable

pytestmark = pytest.mark.apis(real=True)

NOWHERE = -1


@attrs.define
class PopScenario:
    """A group to which a broker assigns pop for a topic of four queues, and a handler of its members."""

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
        """Wait until these bodies were delivered ``times`` times."""
        with trio.fail_after(PATIENCE):
            while any(count < times for count in map(self.counts.__getitem__, bodies)):
                await self._more.park()

    @property
    def counts(self) -> Counter[bytes]:
        return Counter([message.body for message in self.got])

    @asynccontextmanager
    async def member(self, **options: Any) -> AsyncIterator[PushConsumer]:
        """Run a member with its own client during the block."""
        options = {"invisible": 5.0, "rebalance_interval": 0.5, **options}
        async with (
            new(
                self.client,
                PushConsumer,
                self.address,
                group=self.group,
                consume_from="earliest",
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
        return [queue for queue in consumer.assignment if queue.topic == self.topic]


@pytest.fixture
async def scenario(cluster: ClusterUnderTest, client: Client, topic: str) -> PopScenario:
    cluster.needs(POP)
    group = PopScenario(client, cluster.address, topic, f"group-{topic}")
    await group.set_mode(RequestMode.POP)
    return group


def numbers(*ranges: range) -> list[bytes]:
    return [b"%d" % number for one in ranges for number in one]


async def test_processed_messages_are_not_redelivered(scenario: PopScenario) -> None:
    bodies = numbers(range(100))
    async with scenario.member(invisible=10) as consumer:
        await scenario.until_it_has(consumer, NOWHERE)
        await scenario.send(*bodies)
        await scenario.until(*bodies)
        assert scenario.counts == dict.fromkeys(bodies, 1)
        await scenario.send(b"later")
        await scenario.until(b"later")
    async with scenario.member(invisible=10):
        with trio.move_on_after(14):  # longer than the time until a redelivery
            await scenario.until(b"never")
    assert scenario.counts == dict.fromkeys([*bodies, b"later"], 1)
    assert {message.topic for message in scenario.got} == {scenario.topic}


async def test_more_members_than_queues_share_the_messages(scenario: PopScenario) -> None:
    bodies = numbers(range(200))
    others = [attrs.evolve(scenario, got=[]) for _ in range(5)]
    async with (
        others[0].member(pop_batch_nums=2, invisible=60),
        others[1].member(pop_batch_nums=2, invisible=60),
        others[2].member(pop_batch_nums=2, invisible=60),
        others[3].member(pop_batch_nums=2, invisible=60),
        others[4].member(pop_batch_nums=2, invisible=60),
    ):
        await scenario.send(*bodies)
        with trio.fail_after(PATIENCE):
            while sum(len(other.got) for other in others) < 200:
                await trio.sleep(0.05)
        assert sum([other.counts for other in others], Counter()) == dict.fromkeys(bodies, 1)
    assert sum(1 for other in others if other.got) > 1


async def test_pop_share_queues_limits_the_sharing(scenario: PopScenario) -> None:
    await scenario.set_mode(RequestMode.POP, share=1)
    async with scenario.member() as one, scenario.member() as two, scenario.member() as three:
        with trio.fail_after(PATIENCE):
            while Counter(
                [queue.queue_id for member in (one, two, three) for queue in scenario.queues(member)]
            ) != {0: 2, 1: 2, 2: 2, 3: 2}:
                await trio.sleep(0.05)
        await scenario.send(*numbers(range(50)))
        await scenario.until(*numbers(range(50)))


async def test_failed_message_is_redelivered_after_its_delay(scenario: PopScenario) -> None:
    failures: dict[bytes, Any] = {b"later": ConsumeLater(1), b"in a list": ConsumeLater(1)}

    async def fail_once(message: ReceivedMessage) -> Any:
        return failures.get(message.body) if not message.reconsume_times else None

    scenario.answer = fail_once
    async with scenario.member(invisible=300):
        await scenario.send(b"fine", b"later", b"in a list")
        await scenario.until(b"later", b"in a list", times=2)
    assert scenario.counts == {b"fine": 1, b"later": 2, b"in a list": 2}
    again = [message for message in scenario.got if message.reconsume_times]
    assert {(message.topic, message.reconsume_times) for message in again} == {(scenario.topic, 1)}


async def test_consume_later_redelivers_only_the_rest_of_a_list(scenario: PopScenario) -> None:
    got: list[list[bytes]] = []

    async def handle(messages: list[ReceivedMessage]) -> ConsumeLater | None:
        got.append([message.body for message in messages])
        return ConsumeLater(1, done=1) if not any(message.reconsume_times for message in messages) else None

    queue = (await core_of(scenario.client).routes.get(scenario.topic)).write_queues[0]
    async with scenario.client.producer("senders") as producer:
        for body in (b"a", b"b", b"c"):
            await producer.send(Message(scenario.topic, body), queue=queue)
    await until_readable(scenario.client, scenario.topic, count=3)
    async with (
        new(
            scenario.client,
            PushConsumer,
            scenario.address,
            group=scenario.group,
            batch_size=10,
            consume_from="earliest",
            allocate=AllocateByBroker(),
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(scenario.topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            while sum(map(len, got)) < 5:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert got[0] == [b"a", b"b", b"c"]
    assert sorted(body for bodies in got[1:] for body in bodies) == [b"b", b"c"]


async def test_message_becomes_a_dead_letter_after_the_last_retry(scenario: PopScenario) -> None:
    async def fail(message: ReceivedMessage) -> ConsumeLater:
        return ConsumeLater(-1 if message.body == b"at once" else 1)

    scenario.answer = fail
    async with scenario.member(max_reconsume_times=1):
        await scenario.send(b"at once", b"later", keys="k")
        await scenario.until(b"later", times=2)
        dead = await until_dead(scenario, 2)
    assert {message.body for message in dead} == {b"at once", b"later"}
    assert scenario.counts == {b"at once": 1, b"later": 2}


async def until_dead(scenario: PopScenario, count: int) -> list[ReceivedMessage]:
    name = dead_letter_topic(scenario.group)
    with trio.fail_after(PATIENCE):
        while True:
            try:
                await core_of(scenario.client).routes.refresh(name)
                return await read_all(scenario.client, name, count=count)
            except Exception:  # noqa: BLE001  # it does not exist yet
                await trio.sleep(0.1)


async def test_messages_of_a_cancelled_member_are_redelivered(scenario: PopScenario) -> None:
    """None of the member's messages is acknowledged, as after a kill."""

    async def hang(_: ReceivedMessage) -> None:
        await trio.sleep_forever()

    scenario.answer = hang
    async with scenario.client.producer("senders") as producer:
        for body in numbers(range(5)):
            await producer.send(Message(scenario.topic, body))
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            async with scenario.member():
                await trio.sleep_forever()

        nursery.start_soon(run)
        await scenario.until(*numbers(range(5)))
        nursery.cancel_scope.cancel()
    scenario.answer = None
    async with scenario.member(invisible=60):
        await scenario.until(*numbers(range(5)), times=2)
    assert scenario.counts == dict.fromkeys(numbers(range(5)), 2)
    # More than one redelivery if a held pop of the cancelled member was the first to get the message again.
    assert all(message.reconsume_times for message in scenario.got[5:])


async def test_message_processed_after_its_invisible_time_is_redelivered(
    scenario: PopScenario, caplog: pytest.LogCaptureFixture
) -> None:
    async def be_late_once(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await trio.sleep(5.5)

    scenario.answer = be_late_once
    async with scenario.member():
        await scenario.send(b"a")
        await scenario.until(b"a", times=2)
        await scenario.send(b"b")
        await scenario.until(b"b", times=2)
    log_records.flush()
    assert "not processed within the invisible time" in caplog.text


@pytest.mark.apis("trio", "asyncio", "uvloop", real=True)  # threads cannot be cancelled
async def test_timed_out_handler_is_cancelled(scenario: PopScenario) -> None:
    async def hang_once(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await trio.sleep_forever()

    scenario.answer = hang_once
    async with scenario.member(consume_timeout=1.0, concurrency=1, invisible=300) as consumer:
        await scenario.send(b"a")
        await scenario.until(b"a")
        await scenario.send(b"b")
        await scenario.until(b"b")  # the only worker has continued
        assert consumer.assignment


async def test_pop_threshold_limits_popped_messages(scenario: PopScenario) -> None:
    gate = trio.Event()

    async def wait(_: ReceivedMessage) -> None:
        await gate.wait()

    scenario.answer = wait
    other = attrs.evolve(scenario, got=[], answer=None)
    bodies = numbers(range(60))
    await scenario.send(*bodies)
    await until_readable(scenario.client, scenario.topic, count=60)
    async with scenario.member(pop_threshold=10, pop_batch_nums=5, invisible=60):
        with trio.fail_after(PATIENCE):
            while len(scenario.got) < 11:
                await trio.sleep(0.05)
        async with other.member(invisible=60):
            with trio.fail_after(PATIENCE):
                while len(scenario.got) + len(other.got) < 60:
                    await trio.sleep(0.05)
            assert len(scenario.got) <= 15
            gate.set()
    assert scenario.counts + other.counts == dict.fromkeys(bodies, 1)


async def test_a_stopping_member_hands_over_what_no_handler_has_begun_with(scenario: PopScenario) -> None:
    """Its invisible time is a minute. A broker answers the pop that it holds with the next message."""
    gate = trio.Event()

    async def wait(_: ReceivedMessage) -> None:
        await gate.wait()

    scenario.answer = wait
    other = attrs.evolve(scenario, got=[], answer=None)
    async with scenario.member(concurrency=1, invisible=60) as consumer:
        await scenario.until_it_has(consumer, NOWHERE)
        await scenario.send(*numbers(range(4)))
        with trio.fail_after(PATIENCE):
            while not scenario.got:
                await trio.sleep(0.05)
        await trio.sleep(1)  # the others are popped
        consumer.stop()
        async with other.member(invisible=60):
            await other.send(*numbers(range(4, 12)))
            stopped_at = trio.current_time()
            others = {*numbers(range(12))} - {*scenario.counts}
            await other.until(*others)
            assert trio.current_time() - stopped_at < 45
            gate.set()
    assert scenario.counts + other.counts == dict.fromkeys(numbers(range(12)), 1)


async def test_members_change_from_pop_to_pull_and_back(scenario: PopScenario) -> None:
    """No message is lost. Members that pull consume the messages that failed after a pop."""
    fails = True

    async def fail(message: ReceivedMessage) -> ConsumeLater | None:
        return ConsumeLater(3) if fails and message.body == b"failed" else None

    scenario.answer = fail
    async with scenario.member() as consumer:
        await scenario.until_it_has(consumer, NOWHERE)
        await scenario.send(*numbers(range(10)), b"failed")
        await scenario.until(*numbers(range(10)), b"failed")
        await scenario.set_mode(RequestMode.PULL)
        await scenario.until_it_has(consumer, 0, 1, 2, 3)
        fails = False
        await scenario.send(*numbers(range(10, 20)))
        await scenario.until(*numbers(range(20)))
        await scenario.until(b"failed", times=2)
        await scenario.set_mode(RequestMode.POP)
        await scenario.until_it_has(consumer, NOWHERE)
        await scenario.send(*numbers(range(20, 30)))
        await scenario.until(*numbers(range(30)))
        assert consumer.assignment
    assert {message.topic for message in scenario.got} == {scenario.topic}


async def test_a_group_that_popped_goes_on_with_members_that_pull(scenario: PopScenario) -> None:
    """As when a program moves from a proxy, which pops. No operator has chosen a mode for the group."""
    group = attrs.evolve(scenario, group=f"moving-{scenario.group}")
    async with scenario.client.pop_consumer(group.group, consume_from="earliest") as popping:
        popping.subscribe(group.topic)
        await group.send(*numbers(range(10)), b"failed")
        popped: set[bytes] = set()
        with trio.fail_after(PATIENCE):
            while len(popped) < 11:
                messages = await popping.receive(invisible=10, wait=5)
                popped |= {message.body for message in messages}
                await popping.ack(*[message for message in messages if message.body != b"failed"])
    async with group.member():
        await group.send(b"new")
        await group.until(b"failed", b"new")
    assert group.counts == {b"failed": 1, b"new": 1}


async def test_popped_messages_are_filtered(scenario: PopScenario) -> None:
    async with scenario.member() as consumer:
        consumer.subscribe(scenario.topic, sql="size > 5")
        await scenario.until_it_has(consumer, NOWHERE)
        await scenario.send(b"small", properties={"size": "3"})
        await scenario.send(b"large", properties={"size": "8"})
        await scenario.until(b"large")
    scenario.got.clear()
    async with scenario.member() as consumer:
        consumer.subscribe(scenario.topic, "BB")
        await scenario.until_it_has(consumer, NOWHERE)
        await scenario.send(b"same hash", tags="Aa")
        await scenario.send(b"right", tags="BB")
        await scenario.until(b"right")
    assert scenario.counts == {b"right": 1}


@pytest.mark.apis("trio")  # looks up a client by its id
async def test_status_of_popped_queues_for_operators(scenario: PopScenario) -> None:
    gate = trio.Event()

    async def wait(_: ReceivedMessage) -> None:
        await gate.wait()

    scenario.answer = wait
    async with scenario.member() as consumer, open_peer(scenario.client) as peer:
        await scenario.send(b"a", b"b")
        await scenario.until(b"a", b"b")
        answer = await peer.ask(
            GetConsumerRunningInfoRequest(
                consumer_group=scenario.group, client_id=core_of(consumer).client_id, jstack_enable=False
            )
        )
        assert answer.code == ResponseCode.SUCCESS
        info = ConsumerRunningInfo.decode(answer.body)
        [queue] = scenario.queues(consumer)
        assert info.pop_queue_table[queue].wait_ack_count == 2
        assert info.pop_queue_table[queue].last_pop_timestamp > 0
        assert info.properties["popInvisibleTime"] == "5000"
        assert scenario.topic in info.status_table
        gate.set()


async def test_unsubscribed_topic_is_not_popped(scenario: PopScenario) -> None:
    async with scenario.member() as consumer:
        await scenario.until_it_has(consumer, NOWHERE)
        consumer.unsubscribe(scenario.topic)
        await scenario.until_it_has(consumer)
        await scenario.set_mode(RequestMode.PULL)
        consumer.subscribe(scenario.topic)
        await scenario.until_it_has(consumer, 0, 1, 2, 3)
        consumer.unsubscribe(scenario.topic)
        await scenario.until_it_has(consumer)
        with trio.fail_after(PATIENCE):
            while len(consumer.assignment) > 1:
                await trio.sleep(0.05)
        assert [queue.topic for queue in consumer.assignment] == [f"%RETRY%{scenario.group}"]


async def test_pop_in_a_namespace(scenario: PopScenario, cluster: ClusterUnderTest) -> None:
    async with Client(cluster.address, namespace="tenant") as client:
        await create_topic(client, scenario.topic, queues=4)
        wire = attrs.evolve(scenario, topic=f"tenant%{scenario.topic}", group=f"tenant%{scenario.group}")
        await wire.set_mode(RequestMode.POP)
        inside = attrs.evolve(scenario, client=client, got=[])
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
            await inside.until(b"a", times=2)  # pulled from the pop retry topic
        assert {message.topic for message in inside.got} == {scenario.topic}


async def test_ordered_members_do_not_pop_and_log_a_warning(
    scenario: PopScenario, caplog: pytest.LogCaptureFixture
) -> None:
    async with scenario.member(orderly=True) as consumer:
        await scenario.send(b"a")
        with trio.fail_after(PATIENCE):
            while "has set the group to pop this topic" not in caplog.text:
                await trio.sleep(0.05)
        assert scenario.queues(consumer) == []
    assert scenario.got == []
