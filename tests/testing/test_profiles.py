"""Programs that connect to brokers with the profile of a managed service, with and without its settings."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rocketmq_py import Client, Message, Producer, ReceivedMessage, TransactionState
from rocketmq_py.address import split_address
from rocketmq_py.broker.profiles import PROFILES
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import (
    AccessDeniedError,
    BrokerError,
    FlowControlError,
    MessageRefusedError,
    ReplyTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.metrics import MetricSource
from rocketmq_py.selectors import SelectByHash
from rocketmq_py.testing import TestBroker, run_broker, run_cluster
from tests.hostname_resolver import Resolver

pytestmark = pytest.mark.sockets
TOPICS = ["Orders", "Ordered:2:FIFO", "Delayed:1:DELAY", "Payments:1:TRANSACTION"]
EXPECTED = {
    ("Orders", b"order", 0),
    ("Orders", b"order", 1),
    ("Ordered", b"first", 0),
    ("Ordered", b"second", 0),
    ("Delayed", b"later", 0),
    ("Payments", b"paid", 0),
}
HAS_OWN_DELAYS = {"alibaba-4", "tencent-4"}
CLOUD_TRACES = {"alibaba-4", "alibaba-5", "alibaba-5-serverless"}


@pytest.fixture(params=PROFILES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def producer_options(name: str) -> dict[str, Any]:
    """Return the options of producers that the documents of a service ask for."""
    trace = "cloud" if name in CLOUD_TRACES else True
    return {"trace": trace, **({"start_deliver_time": True} if name in HAS_OWN_DELAYS else {})}


async def test_a_program_works_with_the_settings_of_the_service(name: str) -> None:
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)
        if not message.reconsume_times and message.topic == "Orders":
            raise ValueError("the first delivery fails")

    async def until_all_are_received() -> None:
        with trio.fail_after(20):
            while {(one.topic, one.body, one.reconsume_times) for one in received} != EXPECTED:
                broker.advance(60)
                await trio.sleep(0.02)

    with run_broker(profile=name, topics=TOPICS) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders", **producer_options(name)) as producer,
            client.transaction_producer("payments", lambda _: TransactionState.COMMIT) as transactions,
            client.push_consumer("readers", consume_from="earliest", rebalance_interval=0.1) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe("Orders")
            consumer.subscribe("Ordered")
            consumer.subscribe("Delayed")
            consumer.subscribe("Payments")
            nursery.start_soon(consumer.run, handle)
            await producer.send(Message("Orders", b"order"))
            await producer.send(Message("Ordered", b"first", sharding_key="7"))
            await producer.send(Message("Ordered", b"second", sharding_key="7"))
            due_ms = int(time.time() * 1000) + 3_600_000
            await producer.send(Message("Delayed", b"later", deliver_at_ms=due_ms))
            async with transactions.transaction(Message("Payments", b"paid")):
                pass
            await until_all_are_received()
            nursery.cancel_scope.cancel()
        assert [one.body for one in received if one.topic == "Ordered"] == [b"first", b"second"]
        (delayed,) = [one for one in received if one.topic == "Delayed"]
        assert delayed.store_time_ms >= due_ms
        assert [one.body for one in broker.messages("Orders")] == [b"order"]
        assert await broker.wait_for_async(PROFILES[name].trace_topic.value)


async def test_the_endpoint_keys_and_a_group_are_enough() -> None:
    """The endpoint of the console has the namespace, and tells how messages are delayed."""
    with run_broker(profile="alibaba-4", topics=TOPICS) as broker:
        options = broker.client_options
        host, port = split_address(broker.name_server_address)
        name = f"{options['namespace']}.cn-hangzhou.mq-internal.aliyuncs.com"
        Resolver.install().addresses[name] = [host]
        endpoint = f"http://{name}:{port}"
        async with Producer(endpoint, group="senders", credentials=options["credentials"]) as producer:
            await producer.send(Message("Orders", b"now"))
            await producer.send(Message("Delayed", b"later", delay=3600))
        assert [one.body for one in await broker.wait_for_async("Orders")] == [b"now"]
        assert broker.messages("Delayed") == []
        broker.advance(3601)
        assert [one.body for one in broker.messages("Delayed")] == [b"later"]


def test_the_program_of_the_page_runs_with_the_settings_of_each_service(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parent.parent.parent / "docs/managed-services.md").read_text()
    found = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found
    program, shown = found.groups()
    with run_broker(profile=name, topics=["orders"]) as broker:
        for given, replaced in (
            ('"127.0.0.1:9876",', f'"{broker.name_server_address}",'),
            ('credentials=Credentials("the access key", "the secret key"),', "**settings,"),
        ):
            assert given in program
            program = program.replace(given, replaced)
        exec(program, {"settings": broker.client_options})
    assert capsys.readouterr().out == shown


async def test_missing_keys_are_an_error_with_the_text_of_the_service(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        options = broker.client_options
        del options["credentials"]
        async with Client(broker.name_server_address, **options) as client:
            if PROFILES[name].hides_routes is None:
                with pytest.raises(AccessDeniedError, match=r"accessKey|username"):
                    await core_of(client).routes.get("Orders")
            else:
                with pytest.raises(TopicNotFoundError):
                    await core_of(client).routes.get("Orders")


@pytest.mark.parametrize("name", ["alibaba-4", "tencent-4"], indirect=True)
async def test_a_missing_namespace_is_a_missing_topic(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        options = broker.client_options
        del options["namespace"]
        async with Client(broker.name_server_address, **options) as client:
            with pytest.raises(TopicNotFoundError):
                await core_of(client).routes.get("Orders")
            assert await core_of(client).routes.get(PROFILES[name].full_name("Orders"))


@pytest.mark.parametrize("given", [None, "rmq-cn-other"])
async def test_a_missing_or_wrong_instance_is_refused(given: str | None) -> None:
    with run_broker(profile="alibaba-5-serverless", topics=TOPICS) as broker:
        assert broker.client_options["namespace_v2"] == "rmq-cn-test1234"
        options = {**broker.client_options, "namespace_v2": given or ""}
        async with Client(broker.name_server_address, **options) as client:
            with pytest.raises(BrokerError, match="do not name the instance rmq-cn-test1234"):
                await core_of(client).routes.get("Orders")


async def test_each_request_to_a_serverless_instance_names_it() -> None:
    """Those of heartbeats, commits, retries and traces, too: the profile would refuse others."""
    with run_broker(profile="alibaba-5-serverless", topics=TOPICS) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders", trace="cloud") as producer,
            client.push_consumer("readers", consume_from="earliest") as consumer,
        ):
            consumer.subscribe("Orders")
            await producer.send(Message("Orders", b"order"))

            async def handle(_: ReceivedMessage) -> None:
                consumer.stop()

            with trio.fail_after(20):
                await consumer.run(handle)
        assert await broker.wait_for_async(PROFILES["alibaba-5-serverless"].trace_topic.value)
        requests = broker.requests()
        assert {"HEART_BEAT", "GET_ROUTEINFO_BY_TOPIC", "PULL_MESSAGE"} <= {
            RequestCode(one.code).name for one in requests
        }
        assert {(one.fields.get("nsd"), one.fields.get("ns")) for one in requests} == {
            ("true", "rmq-cn-test1234")
        }


async def test_verified_tls_fails_on_an_untrusted_certificate() -> None:
    with run_broker(profile="huawei", topics=TOPICS) as broker:
        async with Client(broker.name_server_address, **{**broker.client_options, "tls": True}) as client:
            with pytest.raises(RocketMQError, match="no trusted authority signed its certificate"):
                await core_of(client).routes.get("Orders")


@pytest.mark.parametrize("name", sorted(HAS_OWN_DELAYS), indirect=True)
async def test_a_delay_without_the_property_of_the_service_has_no_effect(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders") as producer,
        ):
            await producer.send(Message("Orders", b"too early", delay=3600))
            assert len(await broker.wait_for_async("Orders")) == 1


@pytest.mark.parametrize("name", ["alibaba-4", "alibaba-5", "alibaba-5-serverless", "huawei"], indirect=True)
async def test_messages_of_another_type_are_refused_with_advice(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders") as producer,
        ):
            with pytest.raises(MessageRefusedError, match=r"sharding_key="):
                await producer.send(Message("Ordered", b"without a key"))
            with pytest.raises(MessageRefusedError, match=r"delay_level="):
                await producer.send(Message("Delayed", b"now"))


async def test_an_ordered_message_of_a_callable_selector_needs_a_sharding_key() -> None:
    with run_broker(profile="alibaba-5", topics=TOPICS) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders") as producer,
        ):
            with pytest.raises(MessageRefusedError, match=r"sharding_key="):
                await producer.send(Message("Ordered", b"x"), queue=lambda queues, _: queues[1])
            keyed = Message("Ordered", b"x", sharding_key="key")
            result = await producer.send(keyed, queue=lambda queues, _: queues[1])
            assert result.queue.queue_id == 1
            await producer.send(Message("Ordered", b"x"), queue=SelectByHash("key"))
        assert [one.sharding_key for one in broker.messages("Ordered")] == ["key", "key"]


async def test_a_limited_rate_is_reported_as_flow_control() -> None:
    profile = attrs.evolve(PROFILES["alibaba-5"], sends_per_second=0)
    with run_broker(profile=profile, topics=TOPICS) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders", retries=0) as producer,
        ):
            with pytest.raises(FlowControlError, match="messages flow control"):
                await producer.send(Message("Orders", b"x"))


@pytest.mark.long
async def test_pops_wait_until_the_service_no_longer_limits_the_rate() -> None:
    """The service answers one pop in a second, and refuses that of the other group until the next one."""
    profile = attrs.evolve(PROFILES["alibaba-5"], receives_per_second=1)
    received: dict[str, list[bytes]] = {}
    source = MetricSource()

    async def receive(client: Client, group: str) -> None:
        async with client.pop_consumer(group, consume_from="earliest") as consumer:
            consumer.subscribe("Orders")
            source.add(consumer)
            received[group] = [one.body for one in await consumer.receive(wait=15)]

    with run_broker(profile=profile, topics=["Orders:1"]) as broker:
        async with Client(broker.name_server_address, **broker.client_options) as client:
            async with client.producer("senders") as producer:
                await producer.send(Message("Orders", b"order"))
            with trio.fail_after(20):
                async with trio.open_nursery() as nursery:
                    for group in ("billing", "shipping", "reports"):
                        nursery.start_soon(receive, client, group)
    assert received == {"billing": [b"order"], "shipping": [b"order"], "reports": [b"order"]}
    assert sum(source.collect("throttled").values()) >= 2


@pytest.mark.long
async def test_pulls_wait_until_the_service_no_longer_limits_the_rate() -> None:
    profile = attrs.evolve(PROFILES["alibaba-5"], receives_per_second=2)
    received: set[bytes] = set()
    bodies = {b"%d" % number for number in range(4)}

    async def handle(message: ReceivedMessage) -> None:
        received.add(message.body)
        if received == bodies:
            consumer.stop()

    with run_broker(profile=profile, topics=["Orders:4"]) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders") as producer,
            client.push_consumer("readers", consume_from="earliest") as consumer,
        ):
            consumer.subscribe("Orders")
            for body in bodies:
                await producer.send(Message("Orders", body))
            with trio.fail_after(30):
                await consumer.run(handle)
            source = MetricSource()
            source.add(consumer)
            assert sum(source.collect("throttled").values()) >= 1


async def test_features_that_a_service_does_not_offer_are_named() -> None:
    with run_broker(profile="alibaba-4", topics=TOPICS) as broker:
        async with Client(broker.name_server_address, **broker.client_options) as client:
            async with client.admin() as admin:
                with pytest.raises(UnsupportedByBrokerError, match="does not offer"):
                    await admin.topics.create("New")
            async with client.producer("senders") as producer:
                with pytest.raises(UnsupportedByBrokerError, match="does not offer batches"):
                    await producer.send_batch([Message("Orders", b"1"), Message("Orders", b"2")])


@pytest.mark.parametrize("name", ["alibaba-5", "alibaba-5-serverless", "huawei"], indirect=True)
async def test_a_service_without_replies_is_named_by_reply_and_not_by_request(name: str) -> None:
    """The service stores the question, and nothing in its answer says that it refuses replies."""
    questions: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        questions.append(message)
        with pytest.raises(UnsupportedByBrokerError, match="does not offer requests with replies"):
            await producer.reply(message, b"answer")
        consumer.stop()

    with run_broker(profile=name, topics=["Orders:1"]) as broker:
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders") as producer,
            client.push_consumer("readers", consume_from="earliest") as consumer,
        ):
            consumer.subscribe("Orders")
            with pytest.raises(
                ReplyTimeoutError, match=r"stored in .* services do not offer replies$"
            ) as caught:
                await producer.request(Message("Orders", b"question"), timeout=3)
            assert caught.value.sent is not None
            with trio.fail_after(20):
                await consumer.run(handle)
    assert [one.body for one in questions] == [b"question"]


async def test_traces_of_a_cloud_use_the_tls_of_the_client() -> None:
    profile = attrs.evolve(PROFILES["alibaba-4"], untrusted_tls=PROFILES["huawei"].untrusted_tls)
    with run_broker(profile=profile, topics=TOPICS) as broker:
        assert broker.client_options["tls"].verify is False
        async with (
            Client(broker.name_server_address, **broker.client_options) as client,
            client.producer("senders", trace="cloud") as producer,
        ):
            await producer.send(Message("Orders", b"order"))
        assert await broker.wait_for_async(profile.trace_topic.value)


def test_the_kit_accepts_short_names() -> None:
    with run_cluster(2, profile="tencent-4", topics=["Orders:1"]) as cluster:
        full_name = PROFILES["tencent-4"].full_name("Late")
        cluster.create_topic("Late", queues=2, message_type="DELAY")
        cluster.change_topic("Late", queues=3)
        topics = cluster._brokers[1].broker.state.topics
        late = topics.get(full_name)
        assert late is not None
        assert (late.write_queue_nums, late.attributes) == (3, {"message.type": "DELAY"})
        assert cluster.messages("Late") == []
        assert cluster.committed("readers") == {}
        assert cluster.requests(topic="Orders") == []


def test_client_options_are_those_of_the_settings() -> None:
    with run_broker() as broker:
        assert isinstance(broker, TestBroker)
        assert broker.client_options == {}
    with run_broker(access_keys={"me": "secret"}) as broker:
        assert broker.client_options["credentials"].access_key == "me"
