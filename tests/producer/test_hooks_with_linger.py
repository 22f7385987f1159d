"""Hooks see each message by itself, with its own outcome, whether or not ``linger`` collects batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import (
    ClosedError,
    InvalidMessageError,
    MessageRefusedError,
    MessageTooLargeError,
    RocketMQError,
    SendForbiddenError,
    TopicNotFoundError,
)
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import PendingSend, Producer, ProducerHook, SendContext, SendMode
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.selectors import SelectByHash
from tests.cancelling import cancel_at_each_await
from tests.producer.test_linger import NEVER, ONE, QUEUE, Store, batching
from tests.scripted import ScriptedCluster, scripted_cluster

LINGERS = [None, 0.005]


@attrs.define(eq=False)
class Notes(ProducerHook):
    """Notes the bodies of the messages that each method sees, and the contexts of those that have ended."""

    checked: list[bytes] = attrs.field(factory=list)
    started: list[bytes] = attrs.field(factory=list)
    contexts: list[SendContext] = attrs.field(factory=list)

    def check_forbidden(self, context: SendContext) -> None:
        (message,) = context.messages
        self.checked.append(message.body)
        if message.tags == "secret":
            raise ValueError("secrets stay here")

    def before_send(self, context: SendContext) -> None:
        (message,) = context.messages
        self.started.append(message.body)

    def after_send(self, context: SendContext) -> None:
        self.contexts.append(context)

    @property
    def ended(self) -> dict[bytes, SendContext]:
        by_body = {context.messages[0].body: context for context in self.contexts}
        assert len(by_body) == len(self.contexts), "each message has one outcome"
        return by_body


Outcome = SendResult | RocketMQError


async def send_each(producer: Producer, messages: list[Message]) -> list[Outcome]:
    outcomes: list[Outcome | None] = [None] * len(messages)

    async def send(index: int) -> None:
        try:
            outcomes[index] = await producer.send(messages[index])
        except RocketMQError as error:
            outcomes[index] = error

    async with trio.open_nursery() as nursery:
        for index in range(len(messages)):
            nursery.start_soon(send, index)
    return [one for one in outcomes if one is not None]


async def submit_each(producer: Producer, messages: list[Message]) -> list[Outcome]:
    pending: list[PendingSend | RocketMQError] = []
    for message in messages:
        try:
            pending.append(await producer.submit(message))
        except RocketMQError as error:
            pending.append(error)
    await producer.flush()
    return [one if isinstance(one, RocketMQError) else one.exception() or one.result() for one in pending]


async def send_all(producer: Producer, messages: list[Message]) -> list[Outcome]:
    return await producer.send_all(messages)


@pytest.mark.parametrize("linger", LINGERS)
@pytest.mark.parametrize("sending", [send_each, submit_each, send_all])
async def test_hooks_see_each_message_and_its_own_outcome(
    sending: Callable[[Producer, list[Message]], Awaitable[list[Outcome]]], linger: float | None
) -> None:
    store = Store(refuses=frozenset({b"refused"}))
    secret = Message("T", b"secret", tags="secret")
    messages = [Message("T", b"a"), secret, Message("T", b"b"), Message("T", b"refused"), Message("T", b"c")]
    async with scripted_cluster(store) as cluster, batching(cluster.address, linger=linger) as producer:
        producer.add_hook(hook := Notes())
        outcomes = await sending(producer, messages)
        assert producer.in_flight == 0
    assert sorted(hook.checked) == [b"a", b"b", b"c", b"refused", b"secret"]
    assert sorted(hook.started) == sorted(hook.ended) == [b"a", b"b", b"c", b"refused"]
    for message, outcome in zip(messages, outcomes, strict=True):
        if message is secret:
            assert isinstance(outcome, SendForbiddenError)
            assert str(outcome) == "Notes forbids the send: secrets stay here"
            continue
        context = hook.ended[message.body]
        assert context.broker_address == cluster.brokers["broker-a"].address
        if message.body == b"refused":
            assert isinstance(outcome, MessageRefusedError)
            assert (str(context.error), context.results) == (str(outcome), ())
            assert (len(context.message_ids), context.retries) == (1, 1)
        else:
            assert isinstance(outcome, SendResult)
            assert context.error is None
            assert context.results == (outcome,)
            assert (context.queue, context.message_ids) == (outcome.queue, [outcome.message_id])
            assert context.retries == 0
    assert len({context.message_ids[0] for context in hook.ended.values()}) == 4
    if linger is not None:
        first, *halves = store.sends
        assert sorted(first) == [b"a", b"b", b"c", b"refused"]
        assert sorted(body for sent in halves if b"refused" not in sent for body in sent) == [
            b"a",
            b"b",
            b"c",
        ]


@pytest.mark.parametrize("linger", LINGERS)
async def test_submit_raises_the_error_of_a_hook(linger: float | None) -> None:
    async with scripted_cluster(Store()) as cluster, batching(cluster.address, linger=linger) as producer:
        producer.add_hook(Notes())
        with pytest.raises(SendForbiddenError, match="Notes forbids the send"):
            await producer.submit(Message("T", b"x", tags="secret"))
        with pytest.raises(InvalidMessageError, match="message must be a Message, not bytes"):
            await producer.submit(b"x")  # type: ignore[arg-type]  # the fault that is tested


class Lengthen(ProducerHook):
    """Makes bodies a hundred times as long."""

    def before_send(self, context: SendContext) -> None:
        context.messages = [attrs.evolve(one, body=one.body * 100) for one in context.messages]


async def test_batches_have_room_for_what_hooks_add() -> None:
    store = Store()
    options = {"max_batch_bytes": 700, "max_message_size": 700}
    async with scripted_cluster(store) as cluster, batching(cluster.address, **options) as producer:
        producer.add_hook(Lengthen())
        producer.add_hook(hook := Notes())
        pending = [
            await producer.submit(Message("T", body), queue=QUEUE) for body in (b"a", b"b", b"c", b"d")
        ]
        with pytest.raises(MessageTooLargeError, match="the body has 800 bytes; max_message_size is 700"):
            await producer.submit(Message("T", b"too-long"))
        pending.append(await producer.submit(Message("T", b"sixsix"), queue=QUEUE))
        await producer.flush()
        requests = cluster.brokers["broker-a"].asked(RequestCode.SEND_BATCH_MESSAGE)
    assert [[body[:2] for body in bodies] for bodies in store.sends] == [
        [b"aa", b"bb", b"cc"],
        [b"dd"],
        [b"si"],
    ]
    assert [one.exception() for one in pending] == [None] * 5
    assert max(len(request.body) for request in requests) <= 700
    assert isinstance(hook.ended[b"too-long" * 100].error, MessageTooLargeError)


@pytest.mark.parametrize("linger", LINGERS)
async def test_a_hook_may_choose_the_topic_and_the_sharding_key(linger: float | None) -> None:
    class Route(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            (message,) = context.messages
            context.messages = [
                attrs.evolve(message, topic=message.tags, sharding_key=f"key of {message.tags}")
            ]

    async with scripted_cluster(Store(), topics=["T", "A", "B"]) as cluster:
        async with batching(cluster.address, linger=linger) as producer:
            producer.add_hook(Route())
            outcomes = await producer.send_all([Message("T", b"x", tags=topic) for topic in "ABAB"])
        assert isinstance(outcomes, list)
        queues = [one.queue for one in outcomes if isinstance(one, SendResult)]
        assert [queue.topic for queue in queues] == ["A", "B", "A", "B"]
        assert queues[:2] == queues[2:]
        assert {one["__SHARDINGKEY"] for one in properties_of(cluster)} == {"key of A", "key of B"}


def properties_of(cluster: ScriptedCluster) -> list[dict[str, str]]:
    """Return the properties of each message that was sent."""
    broker = cluster.brokers["broker-a"]
    batched = [
        one for batch in broker.asked(RequestCode.SEND_BATCH_MESSAGE) for one in decode_batch(batch.body)
    ]
    return [
        *[decode_properties(request.fields["i"]) for request in broker.asked(RequestCode.SEND_MESSAGE_V2)],
        *[decode_properties(message.properties.decode()) for message in batched],
    ]


async def test_hooks_of_a_batch_see_the_seconds_of_its_attempts(
    jumping_clock: trio.testing.MockClock,
) -> None:
    store = Store(holds_back=True)
    async with scripted_cluster(store) as cluster, batching(cluster.address, linger=10) as producer:
        producer.add_hook(hook := Notes())
        pending = [await producer.submit(Message("T", body)) for body in (b"a", b"b")]
        await store.came(1)
        await trio.sleep(2)
        store.answer_next()
        for one in pending:
            await one
    assert [context.mode for context in hook.ended.values()] == [SendMode.PIPELINED] * 2
    assert [context.seconds for context in hook.ended.values()] == pytest.approx([2, 2], abs=0.1)


async def test_messages_that_were_accepted_before_a_hook_was_added_share_the_batch() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        pending = [await producer.submit(Message("T", b"a"))]
        remove = producer.add_hook(hook := Notes())
        pending.append(await producer.submit(Message("T", b"b")))
        remove()
        pending.append(await producer.submit(Message("T", b"c")))
        await producer.flush()
    assert store.sends == [[b"a", b"b", b"c"]]
    assert list(hook.ended) == [b"b"]
    assert hook.ended[b"b"].results == (pending[1].result(),)


async def test_a_batch_is_in_flight_until_its_hooks_have_run() -> None:
    release = trio.Event()

    class Slow(ProducerHook):
        async def after_send(self, context: SendContext) -> None:
            await release.wait()

    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        producer.add_hook(Slow())
        pending = [await producer.submit(Message("T", b"x")) for _ in range(2)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.flush)
            await store.came(1)
            assert ([one.done() for one in pending], producer.in_flight) == ([False, False], 2)
            release.set()
        assert ([one.done() for one in pending], producer.in_flight) == ([True, True], 0)


@pytest.mark.parametrize("linger", LINGERS)
async def test_hooks_see_that_the_topic_of_a_selector_does_not_exist(linger: float | None) -> None:
    async with scripted_cluster(Store(), topics=["T"]) as cluster:
        async with batching(cluster.address, linger=linger) as producer:
            producer.add_hook(hook := Notes())
            with pytest.raises(TopicNotFoundError):
                await producer.send(Message("Missing", b"x"), queue=SelectByHash("k"))
        assert isinstance(hook.ended[b"x"].error, TopicNotFoundError)
        assert producer.statistics.failed == 1


async def test_hooks_see_that_a_message_was_cancelled_while_it_waited_for_space(
    jumping_clock: trio.testing.MockClock,
) -> None:
    store = Store(holds_back=True)
    async with scripted_cluster(store) as cluster:
        async with batching(cluster.address, max_in_flight_bytes=200) as producer:
            producer.add_hook(hook := Notes())
            await producer.submit(Message("T", b"first" * 10))
            with trio.move_on_after(2) as scope:
                await producer.submit(Message("T", b"waits" * 10))
            assert scope.cancelled_caught
            assert isinstance(hook.ended[b"waits" * 10].error, trio.Cancelled)
            store.answer_next()
            await producer.flush()
        assert store.sends == [[b"first" * 10]]


async def test_a_message_whose_hook_runs_while_the_producer_closes_is_not_sent() -> None:
    errors: list[RocketMQError] = []
    is_waiting, go_on = trio.Event(), trio.Event()

    class Slow(ProducerHook):
        async def before_send(self, context: SendContext) -> None:
            is_waiting.set()
            await go_on.wait()

    async def send(producer: Producer) -> None:
        try:
            await producer.send(Message("T", b"x"))
        except RocketMQError as error:
            errors.append(error)

    store = Store()
    async with scripted_cluster(store) as cluster, trio.open_nursery() as nursery:
        async with batching(cluster.address) as producer:
            producer.add_hook(Slow())
            producer.add_hook(hook := Notes())
            nursery.start_soon(send, producer)
            await is_waiting.wait()
        go_on.set()
    assert [type(error) for error in errors] == [ClosedError]
    assert isinstance(hook.ended[b"x"].error, ClosedError)
    assert store.sends == []


@pytest.mark.parametrize("linger", [None, 0])
async def test_sends_with_hooks_can_be_cancelled_at_each_await(linger: float | None) -> None:
    class Wait(Notes):
        async def before_send(self, context: SendContext) -> None:  # type: ignore[override]
            super().before_send(context)
            await trio.lowlevel.checkpoint()

        async def after_send(self, context: SendContext) -> None:  # type: ignore[override]
            await trio.lowlevel.checkpoint_if_cancelled()
            super().after_send(context)

    options = {"linger": linger, "max_in_flight_bytes": 100}
    async with scripted_cluster(Store()) as cluster, batching(cluster.address, **options) as producer:
        producer.add_hook(hook := Notes())
        producer.add_hook(Wait())

        async def send() -> None:
            await producer.submit(Message("T", b"a" * 60), queue=SelectByHash("k"))
            await producer.submit(Message("T", b"b" * 60))  # waits for the space of the first
            await producer.send(Message("T", b"c" * 60))
            await producer.flush()

        async def check() -> None:
            await producer.flush()
            assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)
            assert sorted(hook.started) == sorted(context.messages[0].body for context in hook.contexts)

        assert await cancel_at_each_await(send, check) >= 4


async def test_messages_of_one_queue_keep_their_order_with_hooks() -> None:
    class Wait(ProducerHook):
        async def before_send(self, context: SendContext) -> None:
            if context.messages[0].body.endswith(b"3"):
                await trio.testing.wait_all_tasks_blocked()

    store = Store()
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_batch_bytes=4 * (ONE + 1)) as producer,
    ):
        producer.add_hook(Wait())
        bodies = [b"%d" % number for number in range(20)]
        for body in bodies:
            await producer.submit(Message("T", body), queue=QUEUE)
        await producer.flush()
    assert [body for sent in store.sends for body in sent] == bodies


@pytest.mark.parametrize("linger", LINGERS)
async def test_a_message_with_a_lite_topic_is_sent(linger: float | None) -> None:
    async with scripted_cluster(Store(), topics=["Parent"]) as cluster:
        async with batching(cluster.address, linger=linger) as producer:
            (outcome,) = await producer.send_all([Message("Parent", b"x", lite_topic="s1")])
        assert isinstance(outcome, SendResult)
        (properties,) = properties_of(cluster)
    assert properties["__LITE_TOPIC"] == "s1"


async def test_messages_for_a_relay_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", 407)
    store = Store()
    async with scripted_cluster(store, topics=["T", "Relay"]) as cluster:
        async with batching(cluster.address, delay_relay="Relay", linger=NEVER) as producer:
            producer.add_hook(hook := Notes())
            outcomes = await producer.send_all([Message("T", body, delay=5) for body in (b"a", b"b")])
            with pytest.raises(InvalidMessageError, match="cannot have a queue"):
                await producer.submit(Message("T", b"x", delay=1), queue=QUEUE)
        sent = properties_of(cluster)
    assert store.sends == [[b"a", b"b"]]
    assert [one["RELAY_TOPIC"] for one in sent] == ["T", "T"]
    assert [one["UNIQ_KEY"] for one in sent] == [
        one.message_id for one in outcomes if isinstance(one, SendResult)
    ]
    assert [context.messages[0].topic for context in hook.ended.values()] == ["Relay", "Relay"]


@pytest.mark.parametrize("linger", LINGERS)
async def test_closing_keeps_outcomes_whose_hooks_have_not_ended(
    linger: float | None, jumping_clock: trio.testing.MockClock
) -> None:
    class Slow(Notes):
        async def after_send(self, context: SendContext) -> None:  # type: ignore[override]  # hooks may be async
            self.contexts.append(context)
            await trio.sleep(60)

    hook = Slow()
    async with (
        scripted_cluster(Store()) as cluster,
        Producer(cluster.address, group="g", linger=linger, close_timeout=0.5) as producer,
    ):
        producer.add_hook(hook)
        pending = [await producer.submit(Message("T", b"%d" % number)) for number in range(9)]
    assert [one.exception() for one in pending] == [None] * 9
    assert len(hook.ended) == 9
    statistics = producer.statistics
    assert (statistics.sent, statistics.failed, statistics.given_up) == (9, 0, 0)


async def test_hooks_of_a_batch_run_at_once(jumping_clock: trio.testing.MockClock) -> None:
    class Slow(ProducerHook):
        async def after_send(self, context: SendContext) -> None:
            await trio.sleep(1)

    async with scripted_cluster(Store()) as cluster, batching(cluster.address, linger=0.005) as producer:
        producer.add_hook(Slow())
        pending = [await producer.submit(Message("T", b"x")) for _ in range(100)]
        began = trio.current_time()
        await pending[-1]
        assert trio.current_time() - began < 2


async def test_a_hook_is_called_once_although_its_send_is_cancelled_meanwhile(
    jumping_clock: trio.testing.MockClock,
) -> None:
    class Slow(Notes):
        async def after_send(self, context: SendContext) -> None:  # type: ignore[override]  # hooks may be async
            self.contexts.append(context)
            await trio.sleep(1)

    hook = Slow()
    async with (
        scripted_cluster(Store(), topics=()) as cluster,
        batching(cluster.address, linger=0.005) as producer,
    ):
        producer.add_hook(hook)
        with trio.move_on_after(0.5) as scope:
            await producer.send(Message("T", b"x"), queue=SelectByHash("key"))
    assert scope.cancelled_caught
    assert len(hook.contexts) == 1
