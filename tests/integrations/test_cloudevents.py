"""CloudEvents in messages: the names of the binding, both modes, and events of other SDKs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

pytest.importorskip("cloudevents.core", reason="the extra cloudevents is not installed")

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v03.event import CloudEvent as CloudEventV03
from cloudevents.core.v1.event import CloudEvent

from rocketmq_py import Message
from rocketmq_py.blocking import Client
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.integrations.cloudevents import from_message, to_binary, to_structured
from rocketmq_py.testing import run_broker
from tests.blocking.conftest import run_program

ATTRIBUTES: dict[str, Any] = {
    "id": "1234-1234",
    "source": "/shop",
    "type": "order.placed",
    "specversion": "1.0",
    "time": datetime(2026, 11, 23, 3, 56, 24, 500000, UTC),
    "datacontenttype": "application/json",
    "subject": "grün",
    "partitionkey": "customer-7",
}


def event(data: dict[str, Any] | str | bytes | None = None, **attributes: Any) -> CloudEvent:
    return CloudEvent({**ATTRIBUTES, **attributes}, data)


def same(one: BaseCloudEvent, other: BaseCloudEvent) -> bool:
    return one.get_attributes() == other.get_attributes() and one.get_data() == other.get_data()


def test_binary_mode_has_attributes_in_properties() -> None:
    message = to_binary(event({"order": 7}), "Orders", tags="placed", keys=["order-7"])
    assert message.properties == {
        "CE_contenttype": "application/json",
        "CE_id": "1234-1234",
        "CE_partitionkey": "customer-7",
        "CE_source": "/shop",
        "CE_specversion": "1.0",
        "CE_subject": "grün",
        "CE_time": "2026-11-23T03:56:24.500000Z",
        "CE_type": "order.placed",
    }
    assert json.loads(message.body) == {"order": 7}
    assert (message.topic, message.tags, message.keys) == ("Orders", "placed", ("order-7",))
    assert message.sharding_key == "customer-7"


def test_structured_mode_has_everything_in_the_body() -> None:
    message = to_structured(event({"order": 7}), "Orders", tags="placed", keys="order-7")
    assert message.properties == {"CE_contenttype": "application/cloudevents+json"}
    body = json.loads(message.body)
    assert (body["data"], body["id"], body["partitionkey"]) == ({"order": 7}, "1234-1234", "customer-7")
    assert (message.tags, message.keys, message.sharding_key) == ("placed", ("order-7",), "customer-7")


@pytest.mark.parametrize("convert", [to_binary, to_structured])
@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ({"order": 7}, "application/json"),
        ("plain grün", "text/plain"),
        (b"\x00\xff", "application/octet-stream"),
        (None, "application/json"),
    ],
)
def test_an_event_survives_a_round_trip(convert: Any, data: Any, content_type: str) -> None:
    sent = event(data, datacontenttype=content_type)
    assert same(from_message(convert(sent, "Orders")), sent)


@pytest.mark.parametrize("convert", [to_binary, to_structured])
def test_events_of_version_0_3(convert: Any) -> None:
    sent = CloudEventV03({**ATTRIBUTES, "specversion": "0.3", "schemaurl": "/schema"}, {"order": 7})
    received = from_message(convert(sent, "Orders"))
    assert isinstance(received, CloudEventV03)
    assert same(received, sent)


def test_values_of_extensions_are_canonical_texts() -> None:
    message = to_binary(event(sampled=True, attempt=3, digest=b"\xff", absent=None), "Orders")
    extensions = {name: message.properties[f"CE_{name}"] for name in ("sampled", "attempt", "digest")}
    assert extensions == {"sampled": "true", "attempt": "3", "digest": "/w=="}
    assert "CE_absent" not in message.properties
    assert from_message(message).get_extension("attempt") == "3"


def test_a_message_of_the_sdk_for_java() -> None:
    """Its properties have the prefix, other applications' have not, and its body without data is a zero."""
    properties = {
        "CE_specversion": "1.0", "CE_id": "1", "CE_source": "/java", "CE_type": "t", "ordinary": "x",
        "CE_time": "2018-11-23T03:56:24.123456789Z", "CE_contenttype": "application/json; charset=UTF-8",
    }  # fmt: skip
    received = from_message(Message("T", b"\0", properties=properties))
    assert received.get_data() is None
    assert received.get_time() == datetime(2018, 11, 23, 3, 56, 24, 123456, UTC)
    assert received.get_extension("ordinary") is None
    received = from_message(Message("T", b'{"a": [1]}', properties=properties))
    assert received.get_data() == {"a": [1]}


def test_the_media_type_of_the_binding_has_a_character_set() -> None:
    message = Message(
        "T",
        JSONFormat().write(event({"order": 7})),
        properties={"CE_contentType": "application/cloudevents+json; charset=UTF-8"},
    )
    assert same(from_message(message), event({"order": 7}))


GOOD = {"CE_specversion": "1.0", "CE_id": "1", "CE_source": "/s", "CE_type": "t"}


@pytest.mark.parametrize(
    ("properties", "body", "mistake"),
    [
        ({}, b"x", "it has no property CE_specversion, CE_id, CE_source, CE_type"),
        ({"CE_specversion": "1.0", "CE_id": "1", "CE_type": "t"}, b"x", "it has no property CE_source"),
        ({**GOOD, "CE_time": "yesterday"}, b"x", "Invalid isoformat string: 'yesterday'"),
        ({**GOOD, "CE_time": "2026-11-23T03:56:24"}, b"x", "timezone"),
        ({**GOOD, "CE_specversion": "7"}, b"x", "specversion"),
        ({**GOOD, "CE_no_name": "x"}, b"x", "no_name"),
        ({"CE_contenttype": "application/cloudevents+avro"}, b"x", "application/cloudevents\\+avro, and"),
        ({"CE_contenttype": "application/cloudevents-batch+json"}, b"[]", "cloudevents-batch\\+json"),
        ({"CE_contenttype": "application/cloudevents+json"}, b"{", "Expecting property name"),
        ({"CE_contenttype": "application/cloudevents+json"}, b"\xff", "can't decode"),
        ({"CE_contenttype": "application/cloudevents+json"}, b"[]", ""),
        ({"CE_contenttype": "application/cloudevents+json"}, b'{"time": 5}', ""),
    ],
)
def test_a_message_that_is_no_event(properties: dict[str, str], body: bytes, mistake: str) -> None:
    with pytest.raises(
        InvalidMessageError, match=f"a message of topic 'T' is not a valid CloudEvent: .*{mistake}"
    ):
        from_message(Message("T", body, properties=properties))


def test_an_attribute_that_a_property_cannot_hold() -> None:
    with pytest.raises(InvalidMessageError, match="CE_comment"):
        to_binary(event(comment=""), "Orders")


def test_events_through_a_broker() -> None:
    sent = [event({"order": number}, id=str(number)) for number in range(4)]
    with run_broker(topics={"Orders": 4}) as broker, Client(broker.name_server_address) as client:
        with client.producer("shop") as producer:
            for one in sent[:2]:
                producer.send(to_binary(one, "Orders"))
            for one in sent[2:]:
                producer.send(to_structured(one, "Orders"))
        with (
            client.reader() as reader,
            reader.open("Orders", start="earliest", stop_at_end=True) as messages,
        ):
            found = list(messages)
    assert len({message.queue_id for message in found}) == 1, "one partition key, one queue"
    received = sorted([from_message(message) for message in found], key=lambda one: one.get_id())
    assert all(map(same, received, sent))
    assert len(received) == 4


def test_a_received_message_is_named_in_the_error() -> None:
    with run_broker(topics=["T"]) as broker, Client(broker.name_server_address) as client:
        with client.producer("shop") as producer:
            sent = producer.send(Message("T", b"no event"))
        [received] = broker.messages("T")
    with pytest.raises(InvalidMessageError, match=f"message {sent.message_id} of topic 'T' is not"):
        from_message(received)


def test_a_received_body_that_cannot_be_decompressed_is_no_event() -> None:
    with run_broker(topics=["T"]) as broker, Client(broker.name_server_address) as client:
        with client.producer("shop") as producer:
            producer.send(to_binary(event("text", datacontenttype="text/plain"), "T"))
        [received] = broker.messages("T")
    with pytest.raises(InvalidMessageError, match="is not a valid CloudEvent: not zlib"):
        from_message(attrs.evolve(received, corruption="not zlib"))


def test_the_extra_is_named_where_it_is_missing() -> None:
    program = """
        import sys
        sys.modules["cloudevents.core.base"] = None
        from rocketmq_py.errors import ConfigurationError
        try:
            import rocketmq_py.integrations.cloudevents
        except ConfigurationError as error:
            print(error)
    """
    assert "install rocketmq-py[cloudevents]" in run_program(program)
