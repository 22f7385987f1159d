"""Topics are listed, described, created, altered and deleted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from rocketmq_py import Admin, Client, Message
from rocketmq_py.admin import AlreadyExistsError, MessageType, Permission
from rocketmq_py.client import core_of
from rocketmq_py.client.features import LITE_TOPICS, PRIORITIES, TOPIC_ATTRIBUTES, TOPIC_CHANGES
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    NoQueueError,
    RetriableBrokerError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.protocol.bodies import MASTER_ID
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import CreateTopicRequest, GetKvConfigRequest
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE, until_readable


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


@pytest.mark.versions
async def test_a_topic_is_created_and_described(client: Client, admin: Admin, unique: str) -> None:
    brokers = await admin.topics.create(unique, queues=3)
    assert brokers
    empty = await admin.topics.describe(unique)
    assert (empty.topic, empty.messages, empty.last_message_ms) == (unique, 0, None)
    assert [queue.queue.queue_id for queue in empty.queues] == [0, 1, 2] * len(brokers)

    before_ms = core_of(client).now_ms()
    async with client.producer("senders") as producer:
        results = [await producer.send(Message(unique, b"x")) for _ in range(10)]
    await until_readable(client, unique, count=10)
    full = await admin.topics.describe(unique)
    assert full.failures == {}
    assert full.messages == 10
    assert {queue.queue: queue.max_offset for queue in full.queues if queue.messages} == {
        result.queue: sum(other.queue == result.queue for other in results) for result in results
    }
    assert full.last_message_ms is not None
    assert before_ms - 1000 <= full.last_message_ms <= core_of(client).now_ms() + 1000
    assert full.message_type == "NORMAL"
    for name in brokers:
        settings = full.brokers[name]
        assert (settings.read_queues, settings.write_queues, settings.permission) == (3, 3, "RW")
        assert full.addresses[name]


async def test_admin_opens_its_own_client(cluster: ClusterUnderTest, unique: str) -> None:
    async with Admin(cluster.address) as admin:
        await admin.topics.create(unique, queues=1)
        assert (await admin.topics.describe(unique)).messages == 0
        await admin.topics.delete(unique)


async def test_create_of_an_existing_topic_raises_and_changes_nothing(admin: Admin, unique: str) -> None:
    brokers = await admin.topics.create(unique, queues=2)
    with pytest.raises(AlreadyExistsError, match=f"^topic '{unique}' exists already on {brokers[0]}"):
        await admin.topics.create(unique, queues=5)
    assert {settings.read_queues for settings in (await admin.topics.describe(unique)).brokers.values()} == {
        2
    }


async def test_create_can_be_repeated_with_if_not_exists(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    settings: dict[str, Any] = {"queues": 2, "permission": "R"}
    if cluster.has(TOPIC_ATTRIBUTES):
        settings["message_type"] = "FIFO"
    brokers = await admin.topics.create(unique, if_not_exists=True, **settings)
    assert brokers
    assert await admin.topics.create(unique, if_not_exists=True, **settings) == ()
    with pytest.raises(AlreadyExistsError, match="with other settings") as caught:
        await admin.topics.create(unique, queues=2, write_queues=3, if_not_exists=True)
    assert (caught.value.kind, caught.value.name, caught.value.brokers) == ("topic", unique, brokers)
    expected = ["permission is R, not RW", "write_queues is 2, not 3"]
    assert list(caught.value.differences) == sorted(
        [*expected, *(["message.type is FIFO, not NORMAL"] if cluster.has(TOPIC_ATTRIBUTES) else [])]
    )


async def test_alter_keeps_settings_that_are_not_given(client: Client, admin: Admin, unique: str) -> None:
    await admin.topics.create(unique, queues=4, read_queues=6)
    changed = await admin.topics.alter(unique, write_queues=8)
    assert {(one.read_queues, one.write_queues, one.permission) for one in changed.values()} == {(6, 8, "RW")}
    await admin.topics.alter(unique, permission=Permission.READ)
    described = await admin.topics.describe(unique)
    assert described.brokers == {
        name: type(one)(read_queues=6, write_queues=8, permission=Permission.READ)
        for name, one in changed.items()
    }
    async with client.producer("senders", retries=0) as producer:
        with pytest.raises((RetriableBrokerError, NoQueueError), match=r"NO_PERMISSION|no queue"):
            await producer.send(Message(unique, b"x"))


async def test_message_types_and_attributes_are_set_and_removed(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    if not cluster.has(TOPIC_ATTRIBUTES):
        text = rf"{re.escape(cluster.name)}\) .* a topic with message\.type, which needs 5\.0"
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await admin.topics.create(unique, message_type=MessageType.FIFO)
        with pytest.raises(TopicNotFoundError):
            await admin.topics.describe(unique)
        return
    await admin.topics.create(unique, queues=1, message_type=MessageType.FIFO)
    assert (await admin.topics.describe(unique)).message_type == "FIFO"
    await admin.topics.alter(unique, attributes={"message.type": None, "cleanup.policy": None})
    described = await admin.topics.describe(unique)
    assert (described.message_type, [one.attributes for one in described.brokers.values()]) == (
        "NORMAL",
        [{}],
    )


@pytest.mark.parametrize("kind", [kind for kind in MessageType if kind is not MessageType.MIXED])
async def test_create_and_alter_set_each_message_type(
    cluster: ClusterUnderTest, admin: Admin, unique: str, kind: MessageType
) -> None:
    needed = {MessageType.PRIORITY: PRIORITIES, MessageType.LITE: LITE_TOPICS}.get(kind, TOPIC_ATTRIBUTES)
    if not cluster.has(needed):
        await admin.topics.create(unique, queues=1)
        text = rf"a topic with message\.type.*, which needs {re.escape(needed.since)}"
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await admin.topics.alter(unique, message_type=kind)
        assert (await admin.topics.describe(unique)).message_type == "NORMAL"
        return
    await admin.topics.create(unique, queues=1, message_type=kind)
    assert (await admin.topics.describe(unique)).message_type == kind
    (topic,) = [one for one in (await admin.topics.list()).topics if one.topic == unique]
    assert topic.message_type == kind
    other = MessageType.FIFO if kind is not MessageType.FIFO else MessageType.DELAY
    changed = await admin.topics.alter(unique, message_type=other)
    assert {one.attributes["message.type"] for one in changed.values()} == {other}
    assert (await admin.topics.describe(unique)).message_type == other


async def test_brokers_reject_mixed_topics_by_default(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    if cluster.has(TOPIC_ATTRIBUTES) and not cluster.is_at_least("5.3.0"):
        pytest.skip("brokers before 5.1.4 do not know the type, and 5.1.4 and 5.2.0 accept it")
    expected = BrokerError if cluster.has(TOPIC_ATTRIBUTES) else UnsupportedByBrokerError
    words = "MIXED message type is not supported" if cluster.has(TOPIC_ATTRIBUTES) else r"needs 5\.0\.0"
    with pytest.raises(expected, match=words):
        await admin.topics.create(unique, message_type=MessageType.MIXED)
    with pytest.raises(TopicNotFoundError):
        await admin.topics.describe(unique)


_TYPES = {"UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL"}
CHANGES_OF_A_NEW_TOPIC: list[tuple[str, str | dict[str, str]]] = [
    ("", {}),
    (",", {}),
    ("+message.type=UNSPECIFIED", {"message.type": "UNSPECIFIED"}),
    ("+message.type=FIFO,,", {"message.type": "FIFO"}),
    ("+message.type=FIFO=", {"message.type": "FIFO"}),
    ("+queue.type=BatchCQ", {"queue.type": "BatchCQ"}),
    ("+cleanup.policy=COMPACTION", {"cleanup.policy": "COMPACTION"}),
    ("+reserve.time=-1", {"reserve.time": "-1"}),
    ("+reserve.time=+5", {"reserve.time": "+5"}),
    ("+message.type=LITE,+lite.topic.expiration=0", {"message.type": "LITE", "lite.topic.expiration": "0"}),
    ("+message.type=fifo", "value is not in set: "),
    ("+message.type=A=B", "value is not in set: "),
    ("+cleanup.policy=x", "value is not in set: [DELETE, COMPACTION]"),
    ("+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
    ("+lite.topic.expiration=43201", "value is not in range(-1, 43200)"),
    ("+reserve.time= 5", 'For input string: " 5"'),
    ("+reserve.time=99999999999999999999", 'For input string: "99999999999999999999"'),
    ("+nonsense=1", "unsupported key: nonsense"),
    ("-message.type", "only add attribute is supported while creating topic. key: message.type"),
    ("+message.type=", "Index 1 out of bounds for length 1"),
    ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
    ("-message.type=x", "add/alter attribute format is wrong: -message.type"),
    ("+a", "delete attribute format is wrong: +a"),
    ("-", "kv string format wrong."),
    ("+=1", "kv string format wrong."),
    ("a+b=c", "kv string format wrong."),
    ("+message.type=FIFO,+message.type=DELAY", "key duplication: +message.type"),
]
CHANGES_OF_AN_EXISTING_TOPIC: list[tuple[str, str | dict[str, str]]] = [
    ("+reserve.time=8", {"cleanup.policy": "DELETE", "reserve.time": "8"}),
    ("-reserve.time", {"cleanup.policy": "DELETE"}),
    ("+message.type=DELAY", {"cleanup.policy": "DELETE", "message.type": "DELAY"}),
    ("-message.type", {"cleanup.policy": "DELETE"}),
    ("-message.type", "attempt to delete a nonexistent key: message.type"),
    ("+cleanup.policy=COMPACTION", "attempt to update an unchangeable attribute. key: cleanup.policy"),
    ("-cleanup.policy", "attempt to update an unchangeable attribute. key: cleanup.policy"),
    ("+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: queue.type"),
    ("+message.type=MIXED", "MIXED message type is not supported."),
]


async def test_brokers_validate_changes_of_attributes(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    # LITE is the last of these attributes and types. Older brokers ignore all of them.
    cluster.needs(LITE_TOPICS if cluster.has(TOPIC_ATTRIBUTES) else TOPIC_CHANGES)

    async def check(topic: str, changes: str, expected: str | dict[str, str]) -> None:
        answer = await put(admin, topic, changes)
        if not cluster.has(TOPIC_ATTRIBUTES):
            assert answer.code == ResponseCode.SUCCESS
            expected = {}
        if isinstance(expected, dict):
            assert answer.code == ResponseCode.SUCCESS
            (settings,) = (await admin.topics.describe(topic)).brokers.values()
            assert settings.attributes == expected
            return
        is_mixed = expected.startswith("MIXED")
        assert answer.code == (ResponseCode.INVALID_PARAMETER if is_mixed else ResponseCode.SYSTEM_ERROR)
        assert answer.remark is not None
        assert answer.remark.startswith(expected)
        if "message.type" in changes and expected == "value is not in set: ":
            assert set(answer.remark.removeprefix(f"{expected}[").removesuffix("]").split(", ")) == _TYPES

    for number, (changes, expected) in enumerate(CHANGES_OF_A_NEW_TOPIC):
        await check(f"{unique}-{number}", changes, expected)
    await check(
        unique, "+reserve.time=7,+cleanup.policy=DELETE", {"cleanup.policy": "DELETE", "reserve.time": "7"}
    )
    for changes, expected in CHANGES_OF_AN_EXISTING_TOPIC:
        await check(unique, changes, expected)


async def put(admin: Admin, topic: str, changes: str) -> Command:
    """Create or change a topic without the checks of Admin."""
    header = CreateTopicRequest(
        topic=topic, default_topic=DEFAULT_TOPIC, read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False, attributes=changes,
    )  # fmt: skip
    ((_, broker),) = (await core_of(admin).name_servers.cluster_info()).broker_addr_table.items()
    return await core_of(admin).connections.request(
        broker.broker_addrs[MASTER_ID], header.code, header.to_fields(), timeout=PATIENCE
    )


async def order_configuration(cluster: ClusterUnderTest, admin: Admin, topic: str) -> str | None:
    """Return the order configuration that the name server stores, None if it stores none."""
    header = GetKvConfigRequest(kv_namespace="ORDER_TOPIC_CONFIG", key=topic)
    answer = await core_of(admin).connections.request(
        cluster.address, header.code, header.to_fields(), timeout=PATIENCE
    )
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    return answer.fields.get("value")


async def test_the_order_of_a_topic_is_set_and_removed(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    await admin.topics.create(unique, queues=2, order=True)
    assert all(one.order for one in (await admin.topics.describe(unique)).brokers.values())
    assert await order_configuration(cluster, admin, unique) == "broker-a:2"
    await admin.topics.alter(unique, order=False)
    assert not any(one.order for one in (await admin.topics.describe(unique)).brokers.values())
    assert await order_configuration(cluster, admin, unique) is None
    await admin.topics.alter(unique, order=True)
    assert await order_configuration(cluster, admin, unique) == "broker-a:2"
    await admin.topics.alter(unique, write_queues=6)
    assert await order_configuration(cluster, admin, unique) == "broker-a:6"
    await admin.topics.delete(unique)
    assert await order_configuration(cluster, admin, unique) is None


@pytest.mark.versions
async def test_list_excludes_internal_topics_by_default(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    await admin.topics.create(unique, queues=2)
    listing = await admin.topics.list()
    (topic,) = [topic for topic in listing.topics if topic.topic == unique]
    names = [topic.topic for topic in listing.topics]
    assert names == sorted(names)
    assert not {"TBW102", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC"} & set(names)
    everything = [topic.topic for topic in (await admin.topics.list(system=True)).topics]
    assert {"TBW102", unique} <= set(everything)
    for error in listing.failures.values():
        raise error
    assert (topic.read_queues, topic.write_queues, topic.permissions) == (2, 2, ("RW",))
    assert (topic.message_type, len(topic.brokers)) == ("NORMAL", 1)


@pytest.mark.versions
async def test_a_topic_is_deleted_everywhere(admin: Admin, unique: str) -> None:
    brokers = await admin.topics.create(unique, queues=2)
    assert await admin.topics.delete(unique) == brokers
    with pytest.raises(TopicNotFoundError, match=unique):
        await admin.topics.describe(unique)
    with pytest.raises(TopicNotFoundError, match=unique):
        await admin.topics.delete(unique)
    assert await admin.topics.create(unique, queues=2) == brokers


async def test_topic_names_in_a_namespace_have_no_prefix(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    async with Admin(cluster.address, namespace="tenant-1") as inside:
        await inside.topics.create(unique, queues=1)
        described = await inside.topics.describe(unique)
        assert {queue.queue.topic for queue in described.queues} == {unique}
        assert [topic.topic for topic in (await inside.topics.list()).topics].count(unique) == 1
        assert (await admin.topics.describe(f"tenant-1%{unique}")).messages == 0
        with pytest.raises(TopicNotFoundError):
            await admin.topics.describe(unique)
        await inside.topics.delete(unique)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"queues": 0}, "queues is 0; it must be from 1 to 65536"),
        ({"write_queues": 100_000}, "write_queues is 100000"),
        ({"brokers": ["broker-x"]}, "broker 'broker-x' does not exist; brokers: broker-a"),
        ({"cluster": "Other"}, "cluster 'Other' does not exist; clusters: DefaultCluster"),
        (
            {"attributes": {"a b": "c"}},
            "attribute 'a b'='c' is not possible: names and values must not be empty",
        ),
        ({"attributes": {"a": "b\tc"}}, r"attribute 'a'='b\\tc' is not possible"),
        ({"attributes": {"a": ""}}, "attribute 'a'='' is not possible"),
    ],
)
async def test_create_rejects_wrong_arguments(
    admin: Admin, unique: str, options: dict[str, object], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        await admin.topics.create(unique, **options)  # type: ignore[arg-type]
    with pytest.raises(TopicNotFoundError):
        await admin.topics.describe(unique)


async def test_alter_rejects_the_removal_of_an_impossible_attribute(admin: Admin, topic: str) -> None:
    with pytest.raises(ConfigurationError, match="attribute 'a b' is not possible"):
        await admin.topics.alter(topic, attributes={"a b": None})


async def test_permissions_and_message_types_accept_strings(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    await admin.topics.create(unique, permission="r")
    changed = await admin.topics.alter(
        unique, permission="rw", message_type="fifo" if cluster.has(TOPIC_ATTRIBUTES) else None
    )
    assert {one.permission for one in changed.values()} == {Permission.READ_WRITE}
    described = await admin.topics.describe(unique)
    assert described.brokers == changed
    assert described.message_type == (
        MessageType.FIFO if cluster.has(TOPIC_ATTRIBUTES) else MessageType.NORMAL
    )


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "a b", ""])
async def test_internal_topics_and_invalid_names_are_rejected(admin: Admin, topic: str) -> None:
    with pytest.raises(ConfigurationError):
        await admin.topics.create(topic)
    with pytest.raises(ConfigurationError):
        await admin.topics.delete(topic)


async def test_a_cancelled_create_sends_nothing(admin: Admin, unique: str) -> None:
    with trio.move_on_after(0):
        await admin.topics.create(unique, queues=1)
    with pytest.raises(TopicNotFoundError):
        await admin.topics.describe(unique)
