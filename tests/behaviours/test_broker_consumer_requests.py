"""Answers of brokers to the requests of consumers, and of tools about consumers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    ConsumerConnection,
    ConsumerData,
    ConsumerOffsets,
    ConsumeStats,
    ConsumeTimeSpans,
    GroupList,
    Heartbeat,
    LockedQueues,
    QueueLock,
    QueueTimeSpan,
    ResetOffsets,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    ConsumeMessageDirectlyRequest,
    ConsumerSendMsgBackRequest,
    DeleteTopicInBrokerRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    GetConsumeStatsRequest,
    HeartbeatRequest,
    LockBatchMqRequest,
    OffsetAnswer,
    PullMessageAnswer,
    PullMessageRequest,
    PutSubscriptionGroupRequest,
    QueryConsumerOffsetRequest,
    QueryConsumeTimeSpanRequest,
    QueryMessageRequest,
    QueryTopicConsumeByWhoRequest,
    ResetOffsetRequest,
    UnlockBatchMqRequest,
    UnregisterClientRequest,
    UpdateConsumerOffsetRequest,
    ViewMessageRequest,
)
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.stored_message import decode_messages
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.peers import Peer, open_peers
from tests.behaviours.reading import PATIENCE, until_readable

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
UNSET_REMARK = "not set any response code"
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4


@pytest.fixture
async def connect(client: Client) -> AsyncIterator[Callable[[], Peer]]:
    async with open_peers(client) as connect:
        yield connect


@pytest.fixture
async def peer(connect: Callable[[], Peer]) -> Peer:
    return connect()


@pytest.fixture
def is_4(cluster: ClusterUnderTest) -> bool:
    return cluster.name.startswith("4.")


@pytest.fixture
async def topic(client: Client, unique: str) -> str:
    """A topic with two queues."""
    await create_topic(client, unique, queues=2)
    return unique


@pytest.fixture
def group(unique: str) -> str:
    return f"group-{unique}"


async def join(peer: Peer, client_id: str, group: str, topic: str) -> None:
    subscription = SubscriptionData(topic=topic, sub_string="*", sub_version=1)
    data = ConsumerData(group_name=group, subscription_data_set=(subscription,))
    heartbeat = Heartbeat(client_id=client_id, consumer_data_set=(data,))
    assert (await peer.ask(HeartbeatRequest(), heartbeat.encode())).code == ResponseCode.SUCCESS


async def send(client: Client, topic: str, *bodies: bytes, **changes: Any) -> list[str]:
    """Send messages to queue 0, and wait until they can be read. Returns their offset message ids."""
    info = await core_of(client).name_servers.cluster_info()
    (broker_name,) = info.broker_addr_table
    async with client.producer("senders") as producer:
        results = [
            await producer.send(Message(topic, body, **changes), queue=MessageQueue(topic, broker_name, 0))
            for body in bodies
        ]
    await until_readable(client, topic, count=results[-1].queue_offset + 1)
    return [result.offset_message_id for result in results]


async def pull(peer: Peer, group: str, topic: str, offset: int = 0, **changes: Any) -> Command:
    values = {
        "consumer_group": group, "topic": topic, "queue_id": 0, "queue_offset": offset, "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION_FLAG, "commit_offset": 0, "suspend_timeout_millis": 0, "sub_version": 0,
        "subscription": "*", "expression_type": "TAG", **changes,
    }  # fmt: skip
    return await peer.ask(PullMessageRequest(**values))


async def pull_until(peer: Peer, group: str, topic: str, offset: int = 0) -> ReceivedMessage:
    """Wait for the message at an offset of queue 0, and for its topic."""
    with trio.fail_after(PATIENCE):
        while True:
            answer = await pull(peer, group, topic, offset)
            if answer.code == ResponseCode.SUCCESS:
                return decode_messages(answer.body, peer.broker_name)[0]
            await trio.sleep(0.05)


async def commit(peer: Peer, group: str, topic: str, offset: int, queue_id: int = 0) -> Command:
    # The first pull creates the group on the broker.
    await pull(peer, group, topic)
    header = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    return await peer.ask(header)


async def committed(peer: Peer, group: str, topic: str) -> int:
    answer = await peer.ask(QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0))
    return OffsetAnswer.from_fields(answer.fields).offset


def queues(peer: Peer, topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, peer.broker_name, queue_id) for queue_id in range(2)]


def answer_with(body: bytes, _: Command) -> bytes:
    return body


def refusal(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


# Pulls


async def test_a_message_of_a_topic_that_was_created_again_answers_a_held_pull(
    client: Client, peer: Peer, group: str, topic: str
) -> None:
    messages: list[ReceivedMessage] = []

    async def wait() -> None:
        flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG
        while not messages:
            answer = await pull(peer, group, topic, sys_flag=flags, suspend_timeout_millis=28_000)
            messages.extend(decode_messages(answer.body, peer.broker_name))

    with trio.fail_after(25):  # the broker looks at held pulls every five seconds, too
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await peer.ask(DeleteTopicInBrokerRequest(topic=topic))
            await create_topic(client, topic, queues=2)
            await send(client, topic, b"a")
    assert [message.body for message in messages] == [b"a"]


# Members


async def test_a_group_without_notices_is_notified_of_lost_connections_only(
    client: Client, peer: Peer, group: str, topic: str
) -> None:
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    config = SubscriptionGroupConfig(group_name=group, notify_consumer_ids_changed_enable=False)
    await peer.ask(PutSubscriptionGroupRequest(), config.encode())
    await join(peer, "staying@x", group, topic)
    async with open_peers(client) as connect:
        leaving, lost = connect(), connect()
        await join(lost, "lost@x", group, topic)
        await join(leaving, "leaving@x", group, topic)
        await leaving.ask(UnregisterClientRequest(client_id="leaving@x", consumer_group=group))
        assert peer.asked(code) == []
    await peer.until_asked(code)


# Locks


async def test_a_queue_is_locked_by_one_client(peer: Peer, group: str, topic: str) -> None:
    first, second = queues(peer, topic)

    async def lock(client_id: str, *locked: MessageQueue) -> set[MessageQueue]:
        answer = await peer.ask(LockBatchMqRequest(), QueueLock.of(group, client_id, locked).encode())
        assert refusal(answer) == (ResponseCode.SUCCESS, None)
        return set(LockedQueues.decode(answer.body).queues)

    async def unlock(client_id: str, *unlocked: MessageQueue) -> None:
        answer = await peer.ask(UnlockBatchMqRequest(), QueueLock.of(group, client_id, unlocked).encode())
        assert refusal(answer) == (ResponseCode.SUCCESS, None)

    assert await lock("one@x", first) == {first}
    assert await lock("one@x", first) == {first}
    assert await lock("two@x", first, second) == {second}
    await unlock("two@x", first)
    assert await lock("two@x", first) == set(), "only the client with the lock unlocks it"
    await unlock("one@x", first)
    assert await lock("two@x", first) == {first}


async def test_a_lock_outlives_the_connection(client: Client, peer: Peer, group: str, topic: str) -> None:
    """A client that reconnects immediately keeps its locks."""
    first, _ = queues(peer, topic)
    async with open_peers(client) as connect:
        leaving = connect()
        await join(leaving, "one@x", group, topic)
        body = QueueLock.of(group, "one@x", [first]).encode()
        assert LockedQueues.decode((await leaving.ask(LockBatchMqRequest(), body)).body).queues == (first,)
    body = QueueLock.of(group, "two@x", [first]).encode()
    assert LockedQueues.decode((await peer.ask(LockBatchMqRequest(), body)).body).queues == ()


# Retries


async def send_back(peer: Peer, group: str, message_id: str, **changes: Any) -> Command:
    values = {
        "offset": OffsetMessageId.parse(message_id).commit_log_offset,
        "group": group,
        "delay_level": 1,
        "origin_topic": "where-it-was",
        "max_reconsume_times": 16,
        **changes,
    }
    return await peer.ask(ConsumerSendMsgBackRequest(**values))


async def test_a_message_sent_back_is_delivered_again(
    client: Client, peer: Peer, group: str, topic: str
) -> None:
    (message_id,) = await send(client, topic, b"failed", tags="A", keys="k")
    await join(peer, "one@x", group, topic)
    assert refusal(await send_back(peer, group, message_id)) == (ResponseCode.SUCCESS, None)
    again = await pull_until(peer, group, f"%RETRY%{group}")
    assert (again.body, again.reconsume_times, again.tags) == (b"failed", 1, "A")
    assert again.properties["RETRY_TOPIC"] == topic
    assert again.properties["ORIGIN_MESSAGE_ID"] == message_id
    assert (again.properties["DELAY"], again.properties["WAIT"]) == ("1", "false")
    await send_back(peer, group, again.offset_message_id)
    third = await pull_until(peer, group, f"%RETRY%{group}", 1)
    assert third.reconsume_times == 2
    assert third.properties["RETRY_TOPIC"] == topic
    assert third.properties["ORIGIN_MESSAGE_ID"] == message_id


@pytest.mark.parametrize("changes", [{"delay_level": -1}, {"max_reconsume_times": 0}])
async def test_a_message_becomes_a_dead_letter(
    client: Client, peer: Peer, group: str, topic: str, changes: dict[str, int]
) -> None:
    (message_id,) = await send(client, topic, b"failed")
    await join(peer, "one@x", group, topic)
    assert (await send_back(peer, group, message_id, **changes)).code == ResponseCode.SUCCESS
    dead = await pull_until(peer, group, f"%DLQ%{group}")
    assert (dead.body, dead.reconsume_times, dead.properties["DELAY"]) == (b"failed", 1, "0")
    assert dead.properties["RETRY_TOPIC"] == topic


async def test_an_invalid_send_back_is_refused(
    client: Client, peer: Peer, group: str, topic: str, is_4: bool
) -> None:
    (message_id,) = await send(client, topic, b"a")
    await join(peer, "one@x", group, topic)
    assert refusal(await send_back(peer, group, message_id, offset=2**40)) == (
        ResponseCode.SYSTEM_ERROR,
        f"look message by offset failed, {2**40}",
    )
    if not is_4:  # brokers of 4.x create a group of any name
        code, remark = refusal(await send_back(peer, "a b", message_id))
        assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (remark or "").startswith("subscription group not exist, a b")


# Queries for messages


async def test_queries_find_messages_by_key_and_by_id(
    client: Client, peer: Peer, topic: str, unique: str, is_4: bool
) -> None:
    ids = await send(client, topic, b"a", b"b", keys=["k1", "k2"])
    first = await pull_until(peer, unique, topic)

    async def query(key: str, *, by_id: bool = False) -> list[bytes]:
        header = QueryMessageRequest(
            topic=topic, key=key, max_num=10, begin_timestamp=0, end_timestamp=2**53, unique_key_query=by_id
        )
        with trio.fail_after(PATIENCE):
            while (answer := await peer.ask(header)).code == ResponseCode.QUERY_NOT_FOUND:
                await trio.sleep(0.05)  # real brokers index messages with a delay
        assert answer.code == ResponseCode.SUCCESS
        return [message.body for message in decode_messages(answer.body, peer.broker_name)]

    assert sorted(await query("k2")) == [b"a", b"b"]
    assert await query(first.message_id, by_id=True) == [b"a"]
    header = ViewMessageRequest(offset=OffsetMessageId.parse(ids[1]).commit_log_offset, topic=topic)
    answer = await peer.ask(header)
    (viewed,) = decode_messages(answer.body, peer.broker_name)
    assert (answer.code, viewed.body) == (ResponseCode.SUCCESS, b"b")
    assert refusal(await peer.ask(ViewMessageRequest(offset=2**40, topic=topic))) == (
        ResponseCode.SYSTEM_ERROR,
        f"can not find message by the offset, {2**40}",
    )


# Requests that the broker forwards to consumers


async def test_running_info_comes_from_the_consumer(
    connect: Callable[[], Peer], peer: Peer, group: str, topic: str
) -> None:
    member = connect()
    member.bodies[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda request: request.fields["clientId"].encode()
    await join(member, "one@x", group, topic)
    request = GetConsumerRunningInfoRequest(consumer_group=group, client_id="one@x", jstack_enable=True)
    answer = await peer.ask(request)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"one@x")
    (asked,) = member.asked(RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert asked.fields.items() >= request.to_fields().items()
    member.bodies.clear()
    assert (await peer.ask(request)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    gone = GetConsumerRunningInfoRequest(consumer_group=group, client_id="two@x")
    assert refusal(await peer.ask(gone)) == (
        ResponseCode.SYSTEM_ERROR,
        f"The Consumer <{group}> <two@x> not online",
    )


async def test_consume_directly_sends_the_message_to_the_consumer(
    client: Client, connect: Callable[[], Peer], peer: Peer, group: str, topic: str, is_4: bool
) -> None:
    (message_id,) = await send(client, topic, b"hello")
    member = connect()
    member.bodies[RequestCode.CONSUME_MESSAGE_DIRECTLY] = lambda request: b"done"
    await join(member, "one@x", group, topic)
    request = ConsumeMessageDirectlyRequest(
        consumer_group=group, client_id="one@x", msg_id=message_id, topic=topic
    )
    answer = await peer.ask(request)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"done")
    (asked,) = member.asked(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    (message,) = decode_messages(asked.body, peer.broker_name)
    assert message.body == b"hello"
    header = ConsumeMessageDirectlyRequest.from_fields(asked.fields)
    assert (header.msg_id, header.source_broker_name) == (message_id, peer.broker_name)
    if not is_4:
        assert (header.topic_sys_flag, header.group_sys_flag) == (0, 0)


async def test_status_collects_the_offsets_of_all_members(
    connect: Callable[[], Peer], peer: Peer, group: str, topic: str
) -> None:
    members = {"one@x": connect(), "two@x": connect()}
    tables = {"one@x": {queues(peer, topic)[0]: 5}, "two@x": {queues(peer, topic)[1]: 7}}
    for client_id, member in members.items():
        table = ConsumerOffsets(tables[client_id])
        member.bodies[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = partial(answer_with, table.encode())
        await join(member, client_id, group, topic)

    async def ask(client_id: str) -> ConsumerOffsets:
        header = GetConsumerStatusRequest(topic=topic, group=group, client_addr=client_id)
        answer = await peer.ask(header, code=RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
        assert refusal(answer) == (ResponseCode.SUCCESS, UNSET_REMARK)
        return ConsumerOffsets.decode(answer.body)

    assert await ask("") == ConsumerOffsets({}, tables)
    assert await ask("two@x") == ConsumerOffsets({}, {"two@x": tables["two@x"]})
    assert await ask("three@x") == ConsumerOffsets({}, {})


async def test_consumer_connections_list_members_and_subscriptions(
    cluster: ClusterUnderTest, connect: Callable[[], Peer], peer: Peer, group: str, topic: str
) -> None:
    request = GetConsumerConnectionListRequest(consumer_group=group)
    assert refusal(await peer.ask(request)) == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        f"the consumer group[{group}] not online",
    )
    for client_id in ("one@x", "two@x"):
        await join(connect(), client_id, group, topic)
    answer = await peer.ask(request)
    body = ConsumerConnection.decode(answer.body)
    assert {each.client_id for each in body.connection_set} == {"one@x", "two@x"}
    assert {each.language for each in body.connection_set} == {"PYTHON"}
    assert all(each.client_addr.startswith(f"{cluster.sees_clients_at}:") for each in body.connection_set)
    assert set(body.subscription_table) == {topic}
    assert (body.consume_type, body.message_model, body.consume_from_where) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )


# Progress of groups


async def test_consume_stats_contain_the_offsets_of_a_group(
    client: Client, peer: Peer, group: str, topic: str, is_4: bool
) -> None:
    await send(client, topic, b"a", b"b", b"c")
    assert (await commit(peer, group, topic, 2)).code == ResponseCode.SUCCESS
    first, second = queues(peer, topic)
    answer = await peer.ask(GetConsumeStatsRequest(consumer_group=group))
    table = ConsumeStats.decode(answer.body).offset_table
    assert set(table) == {first, second}
    assert (table[first].broker_offset, table[first].consumer_offset) == (3, 2)
    assert table[first].last_timestamp > 0
    assert (table[second].broker_offset, table[second].last_timestamp) == (0, 0)
    if not is_4:
        assert table[first].pull_offset == 3
    answer = await peer.ask(GetConsumeStatsRequest(consumer_group="unknown-group"))
    assert (answer.code, ConsumeStats.decode(answer.body).offset_table) == (ResponseCode.SUCCESS, {})


async def test_a_time_span_contains_the_delay_of_the_group(
    client: Client, peer: Peer, group: str, topic: str
) -> None:
    await send(client, topic, b"a", b"b")
    messages = [await pull_until(peer, group, topic, offset) for offset in range(2)]
    times = [message.store_time_ms for message in messages]
    request = QueryConsumeTimeSpanRequest(topic=topic, group=group)

    async def spans() -> list[QueueTimeSpan]:
        answer = await peer.ask(request)
        assert refusal(answer) == (ResponseCode.SUCCESS, None)
        found = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
        return sorted(found, key=lambda span: span.message_queue.queue_id)

    await commit(peer, group, topic, 1)
    first, second = await spans()
    assert (first.min_time_ms, first.max_time_ms, first.consume_time_ms) == (times[0], times[1], times[0])
    assert first.delay_ms >= now_ms() - times[1] - 60_000
    assert (second.min_time_ms, second.max_time_ms, second.consume_time_ms) == (-1, -1, -1)
    await commit(peer, group, topic, 2)
    first, _ = await spans()
    assert (first.consume_time_ms, first.delay_ms) == (times[1], 0)
    unknown = QueryConsumeTimeSpanRequest(topic="no-such-topic", group=group)
    assert refusal(await peer.ask(unknown)) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[no-such-topic] not exist",
    )


async def test_groups_of_a_topic_are_those_with_members_or_offsets(
    client: Client, peer: Peer, group: str, topic: str
) -> None:
    await send(client, topic, b"a")
    await commit(peer, f"{group}-committed", topic, 1)
    await join(peer, "one@x", group, topic)
    answer = await peer.ask(QueryTopicConsumeByWhoRequest(topic=topic))
    assert set(GroupList.decode(answer.body).group_list) >= {group, f"{group}-committed"}


# Offset resets


def reset_request(topic: str, group: str, timestamp: int, **changes: Any) -> ResetOffsetRequest:
    values = {"topic": topic, "group": group, "timestamp": timestamp, "is_force": True, **changes}
    return ResetOffsetRequest(**values)


async def test_the_broker_resets_offsets(
    client: Client, peer: Peer, group: str, topic: str, is_4: bool
) -> None:
    if is_4:
        pytest.skip("brokers of 4.x notify the members")
    await send(client, topic, b"a", b"b", b"c")
    await commit(peer, group, topic, 3)
    first, second = queues(peer, topic)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    answer = await peer.ask(reset_request(topic, group, 0), code=code)
    assert refusal(answer) == (ResponseCode.SUCCESS, None)
    assert ResetOffsets.decode(answer.body).offset_table == {first: 0, second: 0}
    assert await committed(peer, group, topic) == 0
    answer = await commit_only(peer, group, topic, 3)
    assert refusal(answer) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    answer = await pull(peer, group, topic, 3)
    assert refusal(answer) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    header = PullMessageAnswer.from_fields(answer.fields)
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (0, 0, 3)
    assert (await pull(peer, group, topic, 0)).code == ResponseCode.SUCCESS
    assert refusal(await commit_only(peer, group, topic, 2)) == (ResponseCode.SUCCESS, None)
    assert await committed(peer, group, topic) == 2

    answer = await peer.ask(reset_request(topic, group, -1, queue_id=0, offset=1), code=code)
    assert ResetOffsets.decode(answer.body).offset_table == {first: 1}
    answer = await peer.ask(reset_request(topic, group, -1), code=code)
    assert ResetOffsets.decode(answer.body).offset_table == {first: 3, second: 0}
    assert refusal(await peer.ask(reset_request(topic, group, -1, queue_id=0, offset=9), code=code)) == (
        ResponseCode.SYSTEM_ERROR,
        "Target offset 9 not in consume queue range [0-3]",
    )
    assert refusal(await peer.ask(reset_request("nope", group, -1), code=code)) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "Topic nope does not exist",
    )
    assert refusal(await peer.ask(reset_request(topic, "unknown-group", -1), code=code)) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "Group unknown-group does not exist",
    )


async def commit_only(peer: Peer, group: str, topic: str, offset: int) -> Command:
    header = UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0, commit_offset=offset)
    return await peer.ask(header)


@pytest.fixture
async def notified_client(cluster: ClusterUnderTest, client: Client) -> AsyncIterator[Client]:
    """A client of a broker that notifies the members of a reset, as brokers of 4.x do."""
    if cluster.name == "embedded":
        async with (
            EmbeddedBroker(use_server_side_reset_offset=False) as broker,
            Client(broker.name_server_address) as notified_client,
        ):
            yield notified_client
    elif cluster.name.startswith("4."):
        yield client
    else:
        pytest.skip("brokers of 5.x reset offsets themselves")


async def test_members_are_notified_of_a_reset(notified_client: Client, unique: str, group: str) -> None:
    await create_topic(notified_client, unique, queues=2)
    await send(notified_client, unique, b"a", b"b", b"c")
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    async with open_peers(notified_client) as connect:
        peer, members = connect(), [connect(), connect()]
        first, second = queues(peer, unique)
        for queue_id in range(2):
            await commit(peer, group, unique, 3 if queue_id == 0 else 0, queue_id)
        not_online = (
            f"Consumer not online, so can not reset offset, Group: {group} Topic: {unique} Timestamp: 0"
        )
        assert refusal(await peer.ask(reset_request(unique, group, 0), code=code)) == (
            ResponseCode.CONSUMER_NOT_ONLINE,
            not_online,
        )
        for number, member in enumerate(members):
            await join(member, f"{number}@x", group, unique)
        answer = await peer.ask(reset_request(unique, group, 0), code=code)
        assert refusal(answer) == (ResponseCode.SUCCESS, UNSET_REMARK)
        assert ResetOffsets.decode(answer.body).offset_table == {first: 0, second: 0}
        for member in members:
            asked = await member.until_asked(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            assert asked.is_oneway
            notice = ResetOffsetRequest.from_fields(asked.fields)
            assert (notice.topic, notice.group, notice.timestamp, notice.is_force) == (
                unique,
                group,
                0,
                False,
            )
            assert ResetOffsets.decode(asked.body).offset_table == {first: 0, second: 0}
        assert await committed(peer, group, unique) == 3
        await commit_only(peer, group, unique, 1)
        answer = await peer.ask(reset_request(unique, group, -1, is_force=False), code=code)
        assert ResetOffsets.decode(answer.body).offset_table[first] == 1, (
            "a reset without force does not skip messages"
        )
        answer = await peer.ask(reset_request(unique, group, -1), code=code)
        assert ResetOffsets.decode(answer.body).offset_table[first] == 3
        code_of_unknown, remark = refusal(await peer.ask(reset_request(unique, "unknown", 0), code=code))
        assert (code_of_unknown, remark) == (
            ResponseCode.SYSTEM_ERROR,
            "THe consumer group <unknown> not exist",
        )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
