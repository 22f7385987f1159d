"""Traces and delays of clouds equal those of Java's client 5.5.0, captured by ``integration/capture.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocketmq_py.client import core_of
from rocketmq_py.client.tracing import TraceDispatcher
from rocketmq_py.codes import RequestCode
from rocketmq_py.message import Message
from rocketmq_py.producer import Producer
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.trace import TracedType, decode_records, read_records
from tests.producer.test_tracing import store_in_region
from tests.scripted import ScriptedCluster, scripted_cluster

FILE = Path(__file__).parents[1] / "data" / "frames" / "cloud" / "java-5.5.0.jsonl"
NAMESPACE, GROUP, REGION = "MQ_INST_1380_BbXb", "cloud-group", "cn-test"
TRACES = f"rmq_sys_TRACE_DATA_{REGION}"
TOPICS = [f"{NAMESPACE}%CloudTopic", TRACES]
DUE_MS = 4_102_444_800_000
OF_THE_SENDER = {"a", "e", "g", "i"}
"""The fields that differ between two clients: group, queue, time and properties."""


def captured() -> list[Command]:
    """Return the sends of Java's client."""
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    frames = b"".join(bytes.fromhex(line["hex"]) for line in lines if line["from"] == "client")
    return FrameDecoder().feed(frames)


JAVAS_TRACES = [request for request in captured() if request.fields["b"] == TRACES]
JAVAS_PLAIN, JAVAS_DELAYED = [request for request in captured() if request.fields["b"] != TRACES]
MESSAGES = {
    "plain": (JAVAS_PLAIN, Message("CloudTopic", b"12345", tags="TagA", keys="order-1 order-2")),
    "delayed": (JAVAS_DELAYED, Message("CloudTopic", b"later", deliver_at_ms=DUE_MS)),
    "property": (
        JAVAS_DELAYED,
        Message("CloudTopic", b"later", properties={"__STARTDELIVERTIME": str(DUE_MS)}),
    ),
}


def sends(cluster: ScriptedCluster, topic: str) -> list[Command]:
    asked = cluster.brokers["broker-a"].asked(RequestCode.SEND_MESSAGE_V2)
    return [request for request in asked if request.fields["b"] == topic]


def shared(request: Command) -> Mapping[str, str]:
    """Return the fields that are equal in all clients. Missing ones are those that have a default."""
    return {name: value for name, value in request.fields.items() if name not in OF_THE_SENDER}


def properties_of(request: Command) -> dict[str, str]:
    """Return the properties without the message's id."""
    properties = dict(decode_properties(request.fields["i"]))
    assert properties.pop("UNIQ_KEY")
    return properties


def test_records_of_each_kind_were_captured() -> None:
    kinds = [record[0] for request in JAVAS_TRACES for record in read_records(request.body)]
    assert kinds.count("Pub") == 2
    assert kinds.count("SubBefore") == kinds.count("SubAfter") == 4


@pytest.mark.parametrize("java", JAVAS_TRACES)
async def test_the_message_with_the_same_records_is_equal(java: Command) -> None:
    async with scripted_cluster(store_in_region(REGION), topics=TOPICS) as cluster:
        async with Producer(cluster.address, namespace=NAMESPACE) as producer:
            dispatcher = TraceDispatcher(core_of(producer), GROUP, "cloud")
            for record in decode_records(java.body):
                dispatcher.append(record, REGION)
            await dispatcher.flush()
        (request,) = sends(cluster, TRACES)
    assert request.body == java.body
    assert shared(request) == shared(java)
    properties, javas = properties_of(request), properties_of(java)
    assert set(properties.pop("KEYS").split()) == set(javas.pop("KEYS").split())
    assert properties == javas
    for one in (request, java):
        assert one.fields["a"].startswith(f"{NAMESPACE}%_INNER_TRACE_PRODUCER-")


@pytest.mark.parametrize(("java", "message"), MESSAGES.values(), ids=MESSAGES)
async def test_the_message_and_its_record_are_equal(java: Command, message: Message) -> None:
    async with scripted_cluster(store_in_region(REGION), topics=TOPICS) as cluster:
        async with Producer(
            cluster.address, group=GROUP, namespace=NAMESPACE, trace="cloud", start_deliver_time=True
        ) as producer:
            await producer.send(message)
        (request,) = sends(cluster, f"{NAMESPACE}%CloudTopic")
        (trace,) = sends(cluster, TRACES)
    assert request.body == java.body
    assert request.fields["a"] == java.fields["a"]
    assert shared(request) == shared(java)
    # The property of open-source brokers, which Java's client does not add.
    open_source = {"TIMER_DELIVER_MS": str(DUE_MS)} if message.deliver_at_ms else {}
    assert properties_of(request) == properties_of(java) | open_source
    [record], [javas] = read_records(trace.body), javas_record(java)
    for index in (0, 2, 3, 4, 6, 7, 9, 11, 13):  # not times, ids and addresses
        assert record[index] == javas[index], index
    assert record[11] == str(int(TracedType.NORMAL if java is JAVAS_PLAIN else TracedType.DELAY))


def javas_record(java: Command) -> list[list[str]]:
    """Return Java's record of a message."""
    message_id = decode_properties(java.fields["i"])["UNIQ_KEY"]
    return [
        record
        for request in JAVAS_TRACES
        for record in read_records(request.body)
        if record[0] == "Pub" and record[5] == message_id
    ]
