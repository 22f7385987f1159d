from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from rocketmq_py.errors import ConfigurationError, InvalidMessageError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage
from rocketmq_py.names import (
    check_group,
    check_topic,
    dead_letter_topic,
    is_system_topic,
    retry_topic,
)
from rocketmq_py.producer.batch import may_be_batched
from rocketmq_py.properties import decode_properties, encode_properties
from rocketmq_py.protocol.sends import encode_message_properties


def test_a_body_may_be_anything_bytes_like() -> None:
    for body in (b"x", bytearray(b"x"), memoryview(b"x")):
        assert Message("T", body).body == b"x"


def test_keys_are_a_tuple_however_they_are_passed() -> None:
    assert (
        Message("T", b"x").keys == Message("T", b"x", keys="").keys == Message("T", b"x", keys=[]).keys == ()
    )
    assert Message("T", b"x", keys="a").keys == Message("T", b"x", keys=("a",)).keys == ("a",)
    assert Message("T", b"x", keys=iter(["a", "b"])).keys == ("a", "b")


def test_a_text_of_keys_is_split_at_blanks_as_brokers_do() -> None:
    assert Message("T", b"x", keys="a b").keys == Message("T", b"x", keys=" a  b ").keys == ("a", "b")
    assert Message("T", b"x", keys=" ").keys == ()
    assert Message("T", b"x", keys="a\tb").keys == ("a\tb",)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"body": "text"}, "body must be bytes, not str; encode"),
        ({"body": b""}, "body is empty"),
        ({"topic": ""}, "topic name is empty"),
        ({"topic": "a b"}, "only letters, digits"),
        ({"topic": "x" * 128}, "has 128 characters; at most 127"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "RocketMQ's own"),
        ({"tags": "a\x01b"}, r"tags .* contains \\x01 or \\x02"),
        ({"keys": "a\x02b"}, r"keys .* contains \\x01 or \\x02"),
        ({"keys": ["a b"]}, "has no blank"),
        ({"keys": 7}, "keys must be a str or several str, not int"),
        ({"properties": {"a": "\x01"}}, r"property 'a' .* contains"),
        ({"properties": {"a\x02": "b"}}, "name in properties .* contains"),
        ({"properties": {"": "b"}}, "may be empty"),
        ({"properties": {"a": ""}}, "may be empty"),
        ({"properties": {"a": 1}}, "property 'a' must be a str, not int"),
        ({"properties": {"UNIQ_KEY": "x"}}, "set by RocketMQ itself"),
        ({"delay_level": 19}, "0 to 18"),
        ({"delay": None}, "delay is None; it must be a number"),
        ({"delay": ""}, "delay is ''; it must be a number"),
        ({"delay": False}, "delay is False; it must be a number"),
        ({"deliver_at_ms": None}, "deliver_at_ms must be an int, not NoneType"),
        ({"properties": None, "sharding_key": "k"}, "properties must be a mapping of str, not NoneType"),
        ({"properties": None, "lite_topic": "k"}, "properties must be a mapping of str, not NoneType"),
        ({"delay_level": -1}, "0 to 18"),
        ({"delay_level": True}, "delay_level must be an int, not bool"),
        ({"flag": 2**31}, "does not fit 32 bits"),
        ({"flag": 1.5}, "flag must be an int, not float"),
        ({"flag": 0.0}, "flag must be an int, not float"),
        ({"flag": True}, "flag must be an int, not bool"),
        ({"deliver_at_ms": 1.7e12}, "deliver_at_ms must be an int, not float"),
        ({"deliver_at_ms": "soon"}, "deliver_at_ms must be an int, not str"),
        ({"deliver_at_ms": -1}, "must be epoch milliseconds, 0 or more"),
        ({"deliver_at_ms": 1_700_000_000}, "in 1970 as epoch milliseconds; multiply epoch seconds by 1000"),
        (
            {"delay": "10s"},
            r"delay is '10s'; it must be a number of seconds \(delay_level accepts a level's name\)",
        ),
        ({"delay": 1e300}, "delay is 1e\\+300 seconds; .* must fit 64 bits"),
        ({"deliver_at_ms": 2**63}, "deliver_at_ms is 9223372036854775808; .* fit 64 bits"),
        ({"delay": math.nan}, "delay is nan seconds; it must be 0 or more"),
        ({"wait_store_ok": "false"}, "wait_store_ok must be a bool, not str"),
        ({"sharding_key": 7}, "sharding_key must be a str, not int"),
        (
            {"sharding_key": "k", "properties": {"__SHARDINGKEY": "k"}},
            "sharding_key and the property .* give one",
        ),
        ({"topic": b"T"}, "topic must be a str, not bytes"),
        ({"topic": ["T"]}, "topic must be a str, not list"),
        ({"topic": 5}, "topic must be a str, not int"),
        ({"properties": [("a", "b")]}, "properties must be a mapping of str, not list"),
        ({"properties": {"a": "half \ud800"}}, "property 'a' .* contains a lone surrogate"),
        ({"keys": "\udfff"}, "keys .* contains a lone surrogate"),
    ],
)
def test_invalid_fields_are_refused_with_their_name(fields: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidMessageError, match=text):
        Message(**{"topic": "T", "body": b"x", **fields})  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize("fields", [{"properties": {"a": "\x01"}}, {"tags": "\x02"}, {"keys": "a\x01b"}])
def test_separators_in_properties_raise_their_own_error(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError, match="which separate properties"):
        Message("T", b"x", **fields)


def test_a_message_is_a_value() -> None:
    message = Message("T", b"x")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        message.topic = "U"  # type: ignore[misc]  # the test
    assert message == Message("T", b"x")
    assert len({message, Message("T", b"x"), Message("T", b"x", properties={"a": "b"})}) == 2
    assert attrs.evolve(message, tags="A").tags == "A"


def test_a_number_of_another_kind_is_sent_as_an_int() -> None:
    class Number:
        def __init__(self, value: int) -> None:
            self.value = value

        def __index__(self) -> int:
            return self.value

    flag, time = Number(7), Number(2**40)
    message = Message("T", b"x", flag=flag, deliver_at_ms=time)  # type: ignore[arg-type]  # as numpy's
    assert [(type(one), one) for one in (message.flag, message.deliver_at_ms)] == [(int, 7), (int, 2**40)]


def test_properties_are_copied_and_do_not_change() -> None:
    mine = {"colour": "green"}
    message = Message("T", b"x", properties=mine)
    mine["colour"] = "an injected\x02TAGS\x01tag"
    assert message.properties == {"colour": "green"}
    properties: Any = message.properties
    for change in (
        lambda: properties.update(a="b"),
        lambda: properties.__setitem__("a", "b"),
        lambda: properties.pop("colour"),
        lambda: properties.__ior__({"a": "b"}),
        properties.clear,
    ):
        with pytest.raises(TypeError, match="properties are immutable"):
            change()
    assert attrs.evolve(message, properties={**message.properties, "a": "b"}).properties["a"] == "b"
    assert Message("T", b"x").properties is Message("T", b"y").properties, (
        "messages without properties share one empty mapping"
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_messages_can_be_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    message = Message("T", b"x", properties={"a": "b"})
    assert copied(message) == message
    one = received(b"a\x01b\x02")
    assert one.properties == {"a": "b"}
    assert copied(one).properties == {"a": "b"}


def test_queues_are_sorted_as_java_does() -> None:
    queues = [MessageQueue("T", "b", 0), MessageQueue("T", "a", 10), MessageQueue("T", "a", 2)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]


def received(encoded_properties: bytes, **changes: Any) -> ReceivedMessage:
    message = ReceivedMessage(
        topic="T", body=b"x", broker_name="a", queue_id=1, queue_offset=2, commit_log_offset=0x1234,
        flag=0, system_flag=0, born_time_ms=0, born_address=bytes([10, 0, 0, 1, 0, 0, 0, 80]),
        store_time_ms=0, store_address=bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F]), reconsume_times=0,
        prepared_transaction_offset=0, body_crc=0, store_size=100, encoded_properties=encoded_properties,
    )  # fmt: skip
    return attrs.evolve(message, **changes)


def test_attributes_of_a_received_message() -> None:
    message = received(
        b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01abc\x02colour\x01green\x02__transactionId__\x01abc\x02"
    )
    assert (message.tags, message.keys, message.message_id) == ("A", ("k1", "k2"), "abc")
    assert message.user_properties == {"colour": "green"}
    assert message.offset_message_id == "7F00000100002A9F0000000000001234"
    assert (message.born_host, message.store_host) == ("10.0.0.1:80", "127.0.0.1:10911")
    assert message.queue == MessageQueue("T", "a", 1)
    assert received(b"").message_id == message.offset_message_id
    assert received(b"", born_address=bytes(15) + b"\x01" + bytes([0, 0, 0, 80])).born_host == "[::1]:80"


def test_the_keys_of_a_received_message_are_those_that_brokers_index() -> None:
    assert received("KEYS\x01a\tb c\u3000d  e\x02".encode()).keys == ("a\tb", "c\u3000d", "e")


def test_the_sharding_key_of_a_received_message() -> None:
    assert received(b"__SHARDINGKEY\x01order-1\x02").sharding_key == "order-1"
    assert received(b"").sharding_key == ""


def test_repr_of_a_received_message() -> None:
    message = received(b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01abc\x02colour\x01green\x02")
    assert repr(message) == (
        "ReceivedMessage(topic='T', broker_name='a', queue_id=1, queue_offset=2, message_id='abc', tags='A', "
        "keys=('k1', 'k2'), body=b'x', properties={'colour': 'green'})"
    )
    long = attrs.evolve(message, body=b"0123456789" * 1000, reconsume_times=2, corruption="no zlib")
    assert "body=b'0123456789012345678901234567890123456789'... (10000 bytes), " in repr(long)
    assert repr(long).endswith("properties={'colour': 'green'}, reconsume_times=2, corruption='no zlib')")


def test_properties_are_frozen() -> None:
    with pytest.raises(TypeError):
        received(b"a\x01b\x02").properties["a"] = "c"  # type: ignore[index]  # the test


def test_properties_are_read_with_and_without_the_last_separator() -> None:
    properties = {"a": "1", "b": "2=3"}
    encoded = encode_properties(properties)
    assert decode_properties(encoded) == decode_properties(encoded[:-1]) == properties
    assert decode_properties("") == {}
    assert decode_properties("no separator\x02a\x01b\x02") == {"a": "b"}


def test_names_of_topics_and_groups() -> None:
    assert check_topic("%RETRY%" + "g" * 120) == retry_topic("g" * 120)
    assert dead_letter_topic("g") == "%DLQ%g"
    assert check_group("a|b_c-1") == "a|b_c-1"
    assert is_system_topic("rmq_sys_x")
    assert is_system_topic("TBW102")
    assert not is_system_topic("T")
    with pytest.raises(ConfigurationError, match="at most 120"):
        check_group("g" * 121)
    with pytest.raises(ConfigurationError, match="group must be a str, not int"):
        check_group(5)  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": -1}, "must be 0 or more"),
        ({"priority": 2**31}, "fit 32 bits"),
        ({"priority": "high"}, "priority must be an int, not str"),
        ({"priority": 1, "sharding_key": "k"}, "neither a sharding key nor a delay"),
        ({"priority": 1, "delay_level": 1}, "neither a sharding key nor a delay"),
        ({"priority": 1, "deliver_at_ms": 2**40}, "neither a sharding key nor a delay"),
    ],
)
def test_a_priority_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        Message("T", b"x", **options)


def test_a_priority_goes_along_as_a_property() -> None:
    assert "_SYS_MSG_PRIORITY_\x017\x02" in encode_message_properties(Message("T", b"x", priority=7), "id")
    assert "PRIORITY" not in encode_message_properties(Message("T", b"x"), "id")
    assert not may_be_batched(Message("T", b"x", priority=0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lite_topic": "a b"}, "must have 1 to 64 letters, digits, _ or -"),
        ({"lite_topic": "s" * 65}, "must have 1 to 64 letters"),
        ({"lite_topic": 5}, "lite_topic must be a str, not int"),
        ({"lite_topic": "s", "sharding_key": "k"}, "neither a sharding key nor a priority nor a delay"),
        ({"lite_topic": "s", "properties": {"__SHARDINGKEY": "k"}}, "neither a sharding key nor"),
        ({"lite_topic": "s", "priority": 1}, "neither a sharding key nor a priority nor a delay"),
        ({"lite_topic": "s", "delay_level": 1}, "neither a sharding key nor a priority nor a delay"),
        ({"lite_topic": "s", "delay": 1.0}, "neither a sharding key nor a priority nor a delay"),
        ({"lite_topic": "s", "deliver_at_ms": 2**40}, "neither a sharding key nor a priority nor a delay"),
    ],
)
def test_a_lite_topic_that_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        Message("T", b"x", **options)


def test_a_lite_topic_is_sent_as_a_property() -> None:
    message = Message("T", b"x", lite_topic="session-42_a")
    assert "__LITE_TOPIC\x01session-42_a\x02" in encode_message_properties(message, "id")
    assert not may_be_batched(message)


def test_a_message_with_nothing_but_a_body_is_equal_to_one_with_all_defaults_given() -> None:
    bare = Message("T", b"x")
    given = Message("T", b"x", "", "", {}, flag=0, delay_level=0, delay=0.0, deliver_at_ms=0, sharding_key="")
    assert bare == given == pickle.loads(pickle.dumps(bare)) == copy.copy(bare)
    assert attrs.asdict(bare) == attrs.asdict(given)
    assert not attrs.evolve(bare, tags="A")._is_bare
    assert not given._is_bare
