"""``send`` with templates, JSON lines, rates and queues, and the filters of ``tail``."""

from __future__ import annotations

import base64
import inspect
import json
import random
from typing import Any

import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.message_input import (
    JsonLines,
    MessageFields,
    RepeatedBody,
    json_message,
    template_messages,
)
from rocketmq_py.cli.runner import CommandError
from rocketmq_py.cli.send_loop import send_all
from rocketmq_py.cli.send_statistics import SendStatistics
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message, ReceivedMessage
from tests.behaviours.reading import read_all
from tests.cli.conftest import Invoke

FIELDS = MessageFields(topic="T", tags="A", keys=("k",), properties={"colour": "green"})


async def create(address: str, topic: str, queues: int) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create(topic, queues=queues)


async def stored(address: str, topic: str, count: int) -> list[ReceivedMessage]:
    async with Client(address) as client:
        return await read_all(client, topic, count=count)


def test_template_tokens_are_replaced_in_bodies_keys_and_sharding_keys() -> None:
    fields = MessageFields(topic="T", keys=("order-{n}", "k"), sharding_key="{random}")
    make = template_messages(fields, rng=random.Random(7), now=lambda: 1_700_000_000.25)
    first, second = (make(b'{"order": {n}, "at": {time_ms}, "id": "{random}", "not": {m}}') for _ in range(2))
    shown = first.sharding_key
    assert first.body == b'{"order": 1, "at": 1700000000250, "id": "%s", "not": {m}}' % shown.encode()
    assert (first.keys, second.keys) == (("order-1", "k"), ("order-2", "k"))
    assert len(shown) == 8
    assert second.sharding_key != shown
    assert b"2023-11-1" in make(b"{time}").body


def test_a_line_of_json_takes_missing_fields_from_options() -> None:
    assert json_message(FIELDS, b'{"body": "x"}') == Message("T", b"x", "A", "k", {"colour": "green"})
    line = {
        "topic": "Elsewhere",
        "queue_offset": 7,
        "tags": "B",
        "keys": ["k1", "k2"],
        "user_properties": {"size": "a=b", "__SHARDINGKEY": "order-7"},
        "body_base64": base64.b64encode(b"\xff\x00").decode(),
    }
    assert json_message(FIELDS, json.dumps(line).encode()) == Message(
        "T", b"\xff\x00", "B", "k1 k2", {"colour": "green", "size": "a=b"}, sharding_key="order-7"
    )


def test_properties_of_a_line_take_precedence_over_printed_ones() -> None:
    line = {"body": "x", "user_properties": {"a": "1", "b": "1"}, "properties": {"b": "2", "c": "2"}}
    sent = json_message(MessageFields(topic="T", properties={"a": "0", "d": "0"}), json.dumps(line).encode())
    assert sent.properties == {"a": "1", "b": "2", "c": "2", "d": "0"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"not JSON", "not a message in JSON"),
        (b"[]", "not a message in JSON"),
        (b"{}", "needs either body or body_base64"),
        (b'{"body": "x", "body_base64": "eA=="}', "needs either body or body_base64"),
        (b'{"body_base64": "%"}', "not a message in JSON"),
        ('{"body_base64": "é"}'.encode(), "not a message in JSON"),
        (b'{"body": ""}', "the body is empty"),
        (b'{"body": "x", "keys": ["a b"]}', "has no blank"),
        (b'{"body": "x", "properties": {"UNIQ_KEY": "1"}}', "set by RocketMQ itself"),
        (b'{"body": "x", "user_properties": {"UNIQ_KEY": "1"}}', "set by RocketMQ itself"),
        (b'{"body": "\xff"}', "not a message in JSON"),
    ],
)
def test_an_invalid_line_of_json_is_rejected(line: bytes, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        json_message(FIELDS, line)


def test_a_line_of_json_takes_every_argument_of_message() -> None:
    names = inspect.signature(Message).parameters.keys() - {"topic", "body"}
    values: dict[str, Any] = {
        "tags": "B", "keys": "k1 k2", "properties": {"size": "L"}, "flag": 7, "delay_level": 3,
        "deliver_at_ms": 1_700_000_000_000, "delay": 2.5, "wait_store_ok": False, "sharding_key": "order-7",
        "priority": 2, "lite_topic": "session-1",
    }  # fmt: skip
    assert names == values.keys()
    for name, value in values.items():
        expected = Message("T", b"x", **{name: value})
        for written in (value, value.split()) if name == "keys" else (value,):
            line = json.dumps({"body": "x", name: written}).encode()
            assert json_message(MessageFields(topic="T"), line) == expected


def test_a_delay_of_a_line_replaces_that_of_the_command() -> None:
    fields = MessageFields(topic="T", delay=5.0)
    assert json_message(fields, b'{"body": "x"}').delay == 5.0
    assert json_message(fields, b'{"body": "x", "deliver_at_ms": 1700000000000}') == Message(
        "T", b"x", deliver_at_ms=1_700_000_000_000
    )


@pytest.mark.parametrize("name", ["tag", "shardingKey", "Keys"])
def test_an_unknown_field_of_json_ends_the_command_before_anything_is_sent(
    invoke_with_files: Invoke, threaded_broker: str, name: str
) -> None:
    trio.run(create, threaded_broker, "Orders", 1)
    lines = b'{"body": "x"}\n' * 20_000 + b'\n{"body": "y", "%s": "A"}\n' % name.encode()
    ended = invoke_with_files("send", "-t", "Orders", "--json", "-n", threaded_broker, stdin=lines)
    assert ended.code == 1
    assert (
        f"line 20002 of the input has unknown fields: '{name}'; the names are those of Message" in ended.err
    )
    described = invoke_with_files("topic", "describe", "Orders", "--json", "-n", threaded_broker)
    assert json.loads(described.out)["messages"] == 0


async def test_an_unknown_field_ends_a_pipe_before_the_lines_that_came_with_it() -> None:
    chunks = iter([b'{"body": "x"}\n', b'{"body": "y"}\n{"boddy": "z"}\n'])
    lines = JsonLines(lambda: next(chunks))
    assert await lines.next_batch() == [b'{"body": "x"}']
    with pytest.raises(CommandError, match="line 3 of the input has unknown fields: 'boddy'"):
        await lines.next_batch()


def test_malformed_lines_of_json_are_named(invoke_with_files: Invoke, threaded_broker: str) -> None:
    trio.run(create, threaded_broker, "Orders", 1)
    lines = b'{"body": "x"}\n\n{"body": 1}\n{"tags": "A"}\n{"body": "y", "tags": "a||b"}\n{"body": "z"}\n'
    ended = invoke_with_files("send", "-t", "Orders", "--json", "-n", threaded_broker, stdin=lines)
    assert ended.code == 1
    _, _, head, *reasons = ended.err.splitlines()
    assert head == "rocketmq-py: 2 of 5 messages failed:"
    assert reasons == [
        "  1 not sent: line 3: it is not a message in JSON: Expected `str | null`, got `int` - at `$.body`",
        "  1 not sent: line 4: it needs either body or body_base64",
    ]


@pytest.mark.parametrize("oneway", [False, True], ids=["awaited", "oneway"])
async def test_send_keeps_a_rate(jumping_clock: object, oneway: bool) -> None:
    async with EmbeddedBroker() as broker:
        access = Access(address=broker.name_server_address)
        statistics = SendStatistics()
        started = trio.current_time()
        bodies = RepeatedBody(b"x", 20)
        await send_all(access, MessageFields(topic="T").message, bodies, statistics, rate=4, oneway=oneway)
        assert statistics.sent == 20
        assert 19 / 4 <= trio.current_time() - started < 5.5


def test_output_of_tail_can_be_sent(invoke_with_files: Invoke, threaded_broker: str) -> None:
    trio.run(create, threaded_broker, "Orders", 4)
    trio.run(create, threaded_broker, "Copies", 4)
    at = ("-n", threaded_broker)
    sent = invoke_with_files(
        *("send", "-t", "Orders", "order {n}", "-c", "3", "--template", "-k", "order-{n}"),
        *("--tags", "A", "-H", "size=a=b", "--sharding-key", "customer-7", *at),
    )
    assert sent.code == 0, sent.err
    tailed = invoke_with_files("tail", "-t", "Orders", "-o", "earliest", "-e", "-J", *at)
    assert (tailed.code, len(tailed.lines)) == (0, 3)
    assert invoke_with_files("send", "-t", "Copies", "--json", *at, stdin=tailed.out).code == 0
    copies = trio.run(stored, threaded_broker, "Copies", 3)
    assert [(one.body, one.tags, one.keys) for one in copies] == [
        (b"order %d" % number, "A", (f"order-{number}",)) for number in (1, 2, 3)
    ]
    assert {one.sharding_key for one in copies} == {"customer-7"}
    assert {one.queue for one in copies} == {copies[0].queue}
    assert copies[0].user_properties["size"] == "a=b"
    wrong = invoke_with_files("send", "-t", "Copies", "--json", *at, stdin=b'{}\n{"body": "x"}\n')
    assert wrong.code == 1
    assert "line 1: it needs either body or body_base64" in wrong.err


def test_queue_option_selects_the_queue(invoke_with_files: Invoke, threaded_broker: str) -> None:
    trio.run(create, threaded_broker, "Orders", 4)
    send = ("send", "-t", "Orders", "x", "-c", "5", "-n", threaded_broker)
    assert invoke_with_files(*send, "--queue", "broker-a/2").code == 0
    assert {one.queue_id for one in trio.run(stored, threaded_broker, "Orders", 5)} == {2}


def test_tail_filters_by_body_property_and_time(invoke_with_files: Invoke, threaded_broker: str) -> None:
    trio.run(create, threaded_broker, "Orders", 2)
    at = ("-n", threaded_broker)
    for number, colour in enumerate(("red", "green", "green")):
        invoke_with_files("send", "-t", "Orders", f"{colour} {number}", "-H", f"colour={colour}", *at)
    tail = ("tail", "-t", "Orders", "-e", *at)
    beginning = (*tail, "-o", "earliest")
    assert sorted(invoke_with_files(*beginning, "--grep", r"^green \d$").lines) == [b"green 1", b"green 2"]
    assert len(invoke_with_files(*beginning, "--grep", "green", "-c", "1").lines) == 1
    assert invoke_with_files(*beginning, "--sql", "colour = 'red'").lines == [b"red 0"]
    assert len(invoke_with_files(*tail, "--since", "5m").lines) == 3
    times = [one.store_time_ms for one in trio.run(stored, threaded_broker, "Orders", 3)]
    last = max(times)
    assert len(invoke_with_files("tail", "-t", "Orders", "--until", f"@{last + 1}", *at).lines) == 3
    early = invoke_with_files("tail", "-t", "Orders", "--until", f"@{min(times)}", *at)
    assert (early.code, early.out) == (0, b"")
    between = ("--since", f"@{last}", "--until", f"@{last + 1}")
    assert len(invoke_with_files("tail", "-t", "Orders", *between, *at).lines) == times.count(last)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["send", "-t", "T", "x", "--queue", "2"], "'2' is not BROKER/N"),
        (["send", "-t", "T", "x", "--queue", "b/1", "--sharding-key", "k"], "give --queue or --sharding-key"),
        (["send", "-t", "T", "x", "--json"], "--json reads lines of stdin"),
        (["send", "-t", "T", "--json", "--template"], "--json reads lines of stdin"),
        (["send", "-t", "T", "x", "--rate", "0"], "0.0 is not in the range"),
        (["tail", "-t", "T", "--grep", "("], "'(' is not a regular expression"),
        (["tail", "-t", "T", "--tags", "A", "--sql", "a = 1"], "give --tags or --sql"),
        (
            ["tail", "-t", "T", "--tag", "A"],
            "No such option '--tag'. (Did you mean one of: '--lag', '--tags'",
        ),
        (["send", "-t", "T", "--tag", "A", "x"], "'--tags'"),
        (["tail", "-t", "T", "-o", "latest", "--since", "1m"], "give -o or --since"),
        (["tail", "-t", "T", "--until", "@99999999999999"], "--until must be a time in the past"),
        (["tail", "-t", "T", "--until", "1m", "-G", "g"], "--until cannot be used with -G"),
        (["tail", "-t", "T", "--since", "never"], "none of 2026-01-31T08:00"),
    ],
)
def test_usage_errors(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert error in line
