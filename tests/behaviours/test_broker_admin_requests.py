"""Answers of brokers and name servers to the requests of administration tools."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import (
    GroupSubscription,
    Heartbeat,
    KeyValueTable,
    ProducerConnection,
    ProducerData,
    ProducerTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfigTable,
    TopicList,
    read_properties,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    AddWritePermissionAnswer,
    AddWritePermissionRequest,
    CloneGroupOffsetRequest,
    DeleteKvConfigRequest,
    DeleteSubscriptionGroupRequest,
    GetAllProducerInfoRequest,
    GetAllSubscriptionGroupRequest,
    GetAllTopicConfigAnswer,
    GetAllTopicConfigRequest,
    GetBrokerConfigRequest,
    GetBrokerRuntimeInfoRequest,
    GetKvConfigRequest,
    GetKvListRequest,
    GetProducerConnectionListRequest,
    GetSubscriptionGroupConfigRequest,
    HeartbeatRequest,
    PutKvConfigRequest,
    PutSubscriptionGroupRequest,
    QueryConsumerOffsetRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicsByConsumerRequest,
    Request,
    WipeWritePermissionAnswer,
    WipeWritePermissionRequest,
)
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.peers import Peer, open_peer
from tests.behaviours.test_broker_consumer_requests import commit, join, send


@pytest.fixture
async def peer(client: Client) -> AsyncIterator[Peer]:
    async with open_peer(client) as peer:
        yield peer


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


async def ask_name_server(client: Client, header: Request) -> Command:
    return await core_of(client).name_servers.request(header.code, header.to_fields())


async def ask_embedded_broker(header: Request) -> Command:
    async with (
        EmbeddedBroker() as broker,
        Client(broker.name_server_address) as client,
        open_peer(client) as peer,
    ):
        return await peer.ask(header)


# The broker


async def test_runtime_info_contains_the_figures_of_the_broker(
    client: Client, peer: Peer, topic: str, is_4: bool
) -> None:
    await send(client, topic, b"one", b"two")
    answer = await peer.ask(GetBrokerRuntimeInfoRequest())
    figures = KeyValueTable.decode(answer.body).table
    assert figures["brokerVersionDesc"] == ("V4_9_7" if is_4 else "V5_5_0")
    # A real broker samples its counters at an interval, and has no rates before the second sample.
    assert all(float(rate) >= 0 for rate in figures["putTps"].split())
    assert int(figures["msgPutTotalTodayNow"]) >= 2
    assert int(figures["commitLogMaxOffset"]) > int(figures["commitLogMinOffset"])
    assert figures["runtime"].startswith("[ 0 days, ")
    if not is_4:
        assert 0 < int(figures["earliestMessageTimeStamp"]) <= core_of(client).now_ms()
        embedded = KeyValueTable.decode((await ask_embedded_broker(GetBrokerRuntimeInfoRequest())).body).table
        assert set(embedded) <= set(figures), "the embedded broker uses names of real brokers only"


async def test_the_settings_of_a_broker_can_be_read(client: Client, peer: Peer, is_4: bool) -> None:
    answer = await peer.ask(GetBrokerConfigRequest())
    settings = read_properties(answer.body)
    assert settings["brokerName"] == peer.broker_name
    assert settings["brokerId"] == "0"
    assert settings["listenPort"] == peer.address.rpartition(":")[2]
    assert settings["autoCreateTopicEnable"] == "true"
    assert settings["maxMessageSize"] == str(4 * 1024 * 1024)
    assert "counter" in answer.fields["version"]
    if not is_4:
        embedded = read_properties((await ask_embedded_broker(GetBrokerConfigRequest())).body)
        assert set(embedded) <= set(settings), "the embedded broker uses names of real brokers only"


# Topics and groups


async def test_all_topics_can_be_listed(peer: Peer, topic: str, is_4: bool) -> None:
    header = GetAllTopicConfigRequest(topic_seq=0, data_version="", max_topic_num=2000)
    answer = await peer.ask(header)
    table = TopicConfigTable.decode(answer.body)
    config = table.topic_config_table[topic]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 2, 6)
    assert "TBW102" in table.topic_config_table
    total = GetAllTopicConfigAnswer.from_fields(answer.fields).total_topic_num
    assert total == (None if is_4 else len(table.topic_config_table))
    assert table.data_version is not None
    assert table.data_version.counter > 0


async def test_a_group_can_be_created_changed_and_deleted(
    peer: Peer, topic: str, group: str, is_4: bool
) -> None:
    async def known() -> SubscriptionGroupConfig | None:
        answer = await peer.ask(GetAllSubscriptionGroupRequest(group_seq=0, max_group_num=2000))
        return SubscriptionGroupTable.decode(answer.body).subscription_group_table.get(group)

    async def committed() -> int:
        answer = await peer.ask(QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0))
        return int(answer.fields.get("offset", "-1"))

    assert await known() is None
    for retries in (3, 5):
        config = SubscriptionGroupConfig(group_name=group, retry_max_times=retries, consume_enable=False)
        assert (await peer.ask(PutSubscriptionGroupRequest(), config.encode())).code == ResponseCode.SUCCESS
        found = await known()
        assert found is not None
        assert (found.retry_max_times, found.consume_enable) == (retries, False)
    if not is_4:
        answer = await peer.ask(GetSubscriptionGroupConfigRequest(group=group))
        assert SubscriptionGroupConfig.decode(answer.body).retry_max_times == 5
    await commit(peer, group, topic, 7)
    before = await committed()
    header = DeleteSubscriptionGroupRequest(group=group)
    assert (await peer.ask(header)).code == ResponseCode.SUCCESS
    found = await known()
    # With automatic creation, 5.5.0 creates the group again at once, with default settings.
    assert found is None or (found.retry_max_times, found.consume_enable) == (16, True)
    assert await committed() == before == 7
    header = DeleteSubscriptionGroupRequest(group=group, clean_offset=True)
    assert (await peer.ask(header)).code == ResponseCode.SUCCESS
    if not is_4:
        assert await committed() <= 0


async def test_members_of_a_producer_group_can_be_listed(
    client: Client, peer: Peer, topic: str, group: str, is_4: bool
) -> None:
    answer = await peer.ask(GetProducerConnectionListRequest(producer_group=group))
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"the producer group[{group}] not exist",
    )
    heartbeat = Heartbeat(client_id="me", producer_data_set=(ProducerData(group_name=group),))
    await peer.ask(HeartbeatRequest(), heartbeat.encode())
    answer = await peer.ask(GetProducerConnectionListRequest(producer_group=group))
    (connection,) = ProducerConnection.decode(answer.body).connection_set
    assert (connection.client_id, connection.language) == ("me", "PYTHON")
    assert connection.client_addr.startswith("127.0.0.1:")
    answer = await peer.ask(GetAllProducerInfoRequest())
    (info,) = ProducerTable.decode(answer.body).data[group]
    assert (info.client_id, info.language) == ("me", "PYTHON")
    assert info.remote_ip.startswith("/127.0.0.1:")
    assert 0 <= core_of(client).now_ms() - info.last_update_timestamp < 60_000


async def test_topics_and_subscription_of_a_group_can_be_queried(
    client: Client, peer: Peer, topic: str, group: str, is_4: bool
) -> None:
    async def topics() -> tuple[str, ...]:
        answer = await peer.ask(QueryTopicsByConsumerRequest(group=group))
        return TopicList.decode(answer.body).topic_list

    async def subscription() -> GroupSubscription:
        answer = await peer.ask(QuerySubscriptionByConsumerRequest(group=group, topic=topic))
        return GroupSubscription.decode(answer.body)

    if is_4:
        answer = await peer.ask(QueryTopicsByConsumerRequest(group=group))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return
    assert await topics() == ()
    assert await subscription() == GroupSubscription(group=group, topic=topic)
    await send(client, topic, b"one")
    await join(peer, "one", group, topic)
    await commit(peer, group, topic, 1)
    assert await topics() == (topic,)
    found = (await subscription()).subscription_data
    assert found is not None
    assert (found.topic, found.sub_string) == (topic, "*")


@pytest.mark.parametrize("names_topic", [True, False])
async def test_offsets_can_be_cloned_to_another_group(
    client: Client, peer: Peer, topic: str, group: str, names_topic: bool
) -> None:
    other = f"{group}-2"

    async def committed(name: str, queue_id: int) -> Command:
        header = QueryConsumerOffsetRequest(
            consumer_group=name, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        return await peer.ask(header)

    await send(client, topic, b"one", b"two")
    await commit(peer, group, topic, 2)
    header = CloneGroupOffsetRequest(
        src_group=group, dest_group=other, topic=topic if names_topic else None, offline=True
    )
    assert (await peer.ask(header)).code == ResponseCode.SUCCESS
    # Java's brokers answer a request without a topic with success, but copy nothing.
    assert (await committed(other, 0)).fields.get("offset", "0") == ("2" if names_topic else "0")
    header = CloneGroupOffsetRequest(src_group="unknown", dest_group=other, topic=topic, offline=True)
    assert (await peer.ask(header)).code == ResponseCode.SUCCESS


# The name server


async def test_kv_configs_are_stored(client: Client, unique: str) -> None:
    answer = await ask_name_server(client, GetKvListRequest(kv_namespace=unique))
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        f"No config item, Namespace: {unique}",
    )
    for value in ("one", "two"):
        await ask_name_server(client, PutKvConfigRequest(kv_namespace=unique, key="k", value=value))
        answer = await ask_name_server(client, GetKvConfigRequest(kv_namespace=unique, key="k"))
        assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, {"value": value})
    answer = await ask_name_server(client, GetKvListRequest(kv_namespace=unique))
    assert KeyValueTable.decode(answer.body).table == {"k": "two"}
    for _ in range(2):
        answer = await ask_name_server(client, DeleteKvConfigRequest(kv_namespace=unique, key="k"))
        assert answer.code == ResponseCode.SUCCESS
    answer = await ask_name_server(client, GetKvConfigRequest(kv_namespace=unique, key="k"))
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        f"No config item, Namespace: {unique} Key: k",
    )
    answer = await ask_name_server(client, GetKvListRequest(kv_namespace=unique))
    assert KeyValueTable.decode(answer.body).table == {}


async def test_the_write_permission_of_a_broker_can_be_removed_and_added(
    client: Client, peer: Peer, topic: str
) -> None:
    async def perm() -> int:
        (queues,) = (await core_of(client).name_servers.route(topic)).queue_datas
        return queues.perm

    answer = await ask_name_server(client, WipeWritePermissionRequest(broker="unknown"))
    assert WipeWritePermissionAnswer.from_fields(answer.fields).wipe_topic_count == 0
    assert await perm() == 6
    answer = await ask_name_server(client, WipeWritePermissionRequest(broker=peer.broker_name))
    try:
        known = await core_of(client).name_servers.topics()
        assert WipeWritePermissionAnswer.from_fields(answer.fields).wipe_topic_count == len(known)
        assert await perm() == 4
    finally:
        answer = await ask_name_server(client, AddWritePermissionRequest(broker=peer.broker_name))
    assert AddWritePermissionAnswer.from_fields(answer.fields).add_topic_count == len(known)
    assert await perm() == 6


async def test_system_topics_can_be_listed(peer: Peer) -> None:
    answer = await peer.send(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {})
    topics = TopicList.decode(answer.body).topic_list
    assert {"TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", peer.broker_name} <= set(topics)
