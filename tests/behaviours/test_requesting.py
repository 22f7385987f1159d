"""Requests and replies between two clients, over a broker."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py import Client, Message, PendingReply, ReceivedMessage
from rocketmq_py.client.features import REPLIES
from rocketmq_py.errors import InvalidMessageError, ReplyTimeoutError, UnsupportedByBrokerError
from rocketmq_py.selectors import SelectByHash
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import until_readable

pytestmark = pytest.mark.apis

PATIENCE = 60


async def answer_in_capitals(
    cluster: ClusterUnderTest,
    topic: str,
    group: str,
    *,
    times: int = 1,
    task_status: trio.TaskStatus[Client],
) -> None:
    """Consume, and reply to each request."""
    async with (
        Client(cluster.address) as client,
        client.producer(f"{group}-replies") as producer,
        client.push_consumer(group, consume_from="earliest") as consumer,
    ):

        async def reply(message: ReceivedMessage) -> None:
            for _ in range(times if "CORRELATION_ID" in message.properties else 0):
                await producer.reply(message, message.body.upper(), properties={"form": "capitals"})

        consumer.subscribe(topic)
        task_status.started(client)
        await consumer.run(reply)


@pytest.mark.versions
async def test_many_requests_get_their_own_replies(
    cluster: ClusterUnderTest, client: Client, api: str, topic: str, unique: str
) -> None:
    cluster.needs(REPLIES)
    async with trio.open_nursery() as nursery, client.producer("askers") as producer:
        await nursery.start(answer_in_capitals, cluster, topic, unique)
        with trio.fail_after(PATIENCE):
            reply = await producer.request(Message(topic, b"first", tags="A"), timeout=PATIENCE)
            assert reply.body == b"FIRST"
            assert reply.user_properties == {"form": "capitals"}
            assert reply.topic.endswith("_REPLY_TOPIC")
            done: list[PendingReply] = []
            pending = [
                await producer.submit_request(
                    Message(topic, b"number %d" % number),
                    queue=SelectByHash(number) if number % 2 else None,
                    timeout=PATIENCE,
                )
                for number in range(100)
            ]
            for one in pending:
                one.add_done_callback(done.append)
            bodies = [(await one).body for one in pending]
        assert bodies == [b"NUMBER %d" % number for number in range(100)]
        assert len(done) == 100
        if api == "trio":  # futures have no ``sent``
            assert all(one.sent is not None for one in pending)
        nursery.cancel_scope.cancel()


async def test_repeated_and_late_replies_are_dropped_and_counted(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs(REPLIES)
    async with trio.open_nursery() as nursery, client.producer("askers") as producer:
        with pytest.raises(ReplyTimeoutError, match="no reply within"):
            await producer.request(Message(topic, b"too early"), timeout=3)
        await until_readable(client, topic, count=1)
        await nursery.start(lambda **status: answer_in_capitals(cluster, topic, unique, times=3, **status))
        with trio.fail_after(PATIENCE):
            assert (await producer.request(Message(topic, b"in time"), timeout=PATIENCE)).body == b"IN TIME"
            while (
                producer.statistics.late_replies < 5
            ):  # 3 to the request that timed out, 2 more to the other
                await trio.sleep(0.02)
        assert producer.in_flight == 0
        nursery.cancel_scope.cancel()


async def test_replies_still_come_when_another_producer_of_the_client_has_left(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs(REPLIES)
    async with trio.open_nursery() as nursery, client.producer("askers") as producer:
        async with client.producer("leaving") as leaving:
            await leaving.send(Message(topic, b"no question"))
            await nursery.start(answer_in_capitals, cluster, topic, unique)
            with trio.fail_after(PATIENCE):
                await producer.request(Message(topic, b"before"), timeout=PATIENCE)
        with trio.fail_after(PATIENCE):
            reply = await producer.request(Message(topic, b"after"), timeout=PATIENCE)
        assert reply.body == b"AFTER"
        nursery.cancel_scope.cancel()


@pytest.mark.versions
async def test_a_request_is_refused_at_once_if_the_broker_is_too_old(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    cluster.needs_older_than(REPLIES)
    async with client.producer("askers") as producer:
        with pytest.raises(UnsupportedByBrokerError, match=r"requests with replies, which needs 4\.6\.0"):
            await producer.request(Message(topic, b"x"), timeout=PATIENCE)


async def test_a_message_that_is_not_a_request_cannot_be_replied_to(
    client: Client, topic: str, unique: str
) -> None:
    async with client.producer("askers") as producer:
        await producer.send(Message(topic, b"no question"))
        errors: list[InvalidMessageError] = []
        got = trio.Event()

        async def reply(message: ReceivedMessage) -> None:
            try:
                await producer.reply(message, b"answer")
            except InvalidMessageError as error:
                errors.append(error)
            got.set()

        async with (
            client.push_consumer(unique, consume_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(topic)
            nursery.start_soon(consumer.run, reply)
            with trio.fail_after(PATIENCE):
                await got.wait()
            nursery.cancel_scope.cancel()
        assert "it is not a request" in str(errors[0])
