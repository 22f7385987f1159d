"""Endpoints and delays of services in every place that sends delayed messages.

The services deliver by a property of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from taskiq import BrokerMessage

from rocketmq_py import Message, aio, blocking
from rocketmq_py.address import split_address
from rocketmq_py.integrations import taskiq
from rocketmq_py.testing import TestBroker, run_broker
from tests.hostname_resolver import HOSTS_OF_SERVICES, point_to_this_host
from tests.integrations.kombu_programs import connect, job_queue, publish

pytestmark = pytest.mark.sockets
TOPIC = "Later"
Send = Callable[[str, Mapping[str, Any], "bool | None"], None]
"""Sends a message that is due in an hour: the address, the options of a client, and the setting."""


def by_threads(address: str, client: Mapping[str, Any], setting: bool | None) -> None:
    with blocking.Producer(address, start_deliver_time=setting, **client) as producer:
        producer.send(Message(TOPIC, b"x", delay=3600))


def by_asyncio(address: str, client: Mapping[str, Any], setting: bool | None) -> None:
    async def main() -> None:
        async with (
            aio.Client(address, **client) as opened,
            opened.producer("senders", start_deliver_time=setting) as producer,
        ):
            await producer.send(Message(TOPIC, b"x", delay=3600))

    asyncio.run(main())


def by_kombu(address: str, client: Mapping[str, Any], setting: bool | None) -> None:
    options = {"create_topics": False, "client_options": client, "start_deliver_time": setting}
    eta = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with connect(address, **options) as connection:
        publish(connection, job_queue(TOPIC), "x", headers={"eta": eta})


def by_taskiq(address: str, client: Mapping[str, Any], setting: bool | None) -> None:
    async def main() -> None:
        broker = taskiq.RocketMQBroker(address, topic=TOPIC, start_deliver_time=setting, **client)
        await broker.startup()
        task = BrokerMessage(task_id="1", task_name="bill", message=b"x", labels={"delay": 3600})
        await broker.kick(task)
        await broker.shutdown()

    asyncio.run(main())


def by_faststream(address: str, client: Mapping[str, Any], setting: bool | None) -> None:
    pytest.importorskip("faststream", reason="the extra faststream is not installed")
    from rocketmq_py.integrations.faststream import RocketMQBroker

    async def main() -> None:
        async with RocketMQBroker(address, start_deliver_time=setting, **client) as broker:
            await broker.publish(b"x", TOPIC, delay=3600)

    asyncio.run(main())


def by_data_frame(address: str, client: Mapping[str, Any], setting: bool | None) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra data-frames is not installed")
    from rocketmq_py.integrations.data_frames import write_messages

    frame = pyarrow.table({"body": [b"x"], "delay": [timedelta(hours=1)]})
    # Alibaba Cloud 4.x offers no batches. A delayed row is sent alone.
    write_messages(frame, TOPIC, address, start_deliver_time=setting, **client)


def by_spark(address: str, client: Mapping[str, Any], setting: bool | None) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    from rocketmq_py.spark import connections
    from rocketmq_py.spark.options import Role
    from rocketmq_py.spark.sink_options import SinkOptions

    keys = client["credentials"]
    options: dict[str, str | None] = {
        "nameServer": address,
        "namespace": client.get("namespace"),
        "accessKey": keys.access_key,
        "secretKey": keys.secret_key,
        "topic": TOPIC,
        "startDeliverTime": None if setting is None else str(setting).lower(),
    }
    try:
        producer = connections.producer_for(SinkOptions.parse(options, Role.BATCH_SINK))
        producer.send(Message(TOPIC, b"x", delay=3600))
    finally:
        connections.close_all()  # Spark's stay open until the process ends


PLACES: Mapping[str, Send] = {
    "threads": by_threads,
    "asyncio": by_asyncio,
    "kombu": by_kombu,
    "Taskiq": by_taskiq,
    "FastStream": by_faststream,
    "data frames": by_data_frame,
    "Spark": by_spark,
}


@pytest.fixture(params=HOSTS_OF_SERVICES)
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(profile: str) -> Iterator[TestBroker]:
    with run_broker(profile=profile, topics=[f"{TOPIC}:1:DELAY"]) as broker:
        yield broker


def is_delivered_after_an_hour(broker: TestBroker) -> bool:
    """Return whether the broker delivers the message in an hour, and not at once."""
    before = len(broker.messages(TOPIC))
    broker.advance("1h")
    assert len(broker.messages(TOPIC)) == 1
    return before == 0


@pytest.mark.parametrize("place", PLACES)
def test_the_endpoint_of_a_service_is_enough(
    place: str, profile: str, broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells how messages are delayed. That of Alibaba Cloud 4.x has the namespace, with its capitals."""
    point_to_this_host(monkeypatch, HOSTS_OF_SERVICES[profile])
    _, port = split_address(broker.name_server_address)
    options = broker.client_options
    if profile == "alibaba-4":
        del options["namespace"]
    PLACES[place](f"http://{HOSTS_OF_SERVICES[profile]}:{port}/", options, None)
    assert is_delivered_after_an_hour(broker)


@pytest.mark.parametrize("place", PLACES)
def test_another_address_of_a_service_needs_the_setting(place: str, broker: TestBroker) -> None:
    PLACES[place](broker.name_server_address, broker.client_options, True)
    assert is_delivered_after_an_hour(broker)


@pytest.mark.parametrize("setting", [None, False])
@pytest.mark.parametrize("profile", ["tencent-4"], indirect=True)
@pytest.mark.parametrize("place", PLACES)
def test_without_the_property_a_delay_has_no_effect(
    place: str, setting: bool | None, broker: TestBroker
) -> None:
    """The tests above can fail."""
    PLACES[place](broker.name_server_address, broker.client_options, setting)
    assert not is_delivered_after_an_hour(broker)
