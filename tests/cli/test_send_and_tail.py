"""What `send` makes of options, templates and lines of JSON, and what `tail` leaves out."""

from __future__ import annotations

import base64
import json
import random

import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.access import Access
from rocketmq_py.cli.bodies import Repeated
from rocketmq_py.cli.making import Pattern, from_json, templates
from rocketmq_py.cli.sending import send_all
from rocketmq_py.cli.tally import Tally
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message, ReceivedMessage
from tests.behaviours.reading import read_all
from tests.cli.conftest import Invoke

PATTERN = Pattern(topic="T", tag="A", keys=("k",), properties={"colour": "green"})


async def create(address: str, topic: str, queues: int) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create(topic, queues=queues)


async def stored(address: str, topic: str, count: int) -> list[ReceivedMessage]:
    async with Client(address) as client:
        return await read_all(client, topic, count=count)


def test_templates_are_filled_in_bodies_keys_and_sharding_keys() -> None:
    pattern = Pattern(topic="T", keys=("order-{n}", "k"), sharding_key="{random}")
    make = templates(pattern, rng=random.Random(7), now=lambda: 1_700_000_000.25)
    first, second = (make(b'{"order": {n}, "at": {time_ms}, "id": "{random}", "not": {m}}') for _ in range(2))
    shown = first.sharding_key
    assert first.body == b'{"order": 1, "at": 1700000000250, "id": "%s", "not": {m}}' % shown.encode()
    assert (first.keys, second.keys) == ("order-1 k", "order-2 k")
    assert len(shown) == 8
    assert second.sharding_key != shown
    assert b"2023-11-1" in make(b"{time}").body


def test_a_line_of_json_says_what_it_says_and_the_options_the_rest() -> None:
    assert from_json(PATTERN, b'{"body": "x"}') == Message("T", b"x", "A", "k", {"colour": "green"})
    line = {
        "topic": "Elsewhere",
        "offset": 7,
        "tag": "B",
        "keys": ["k1", "k2"],
        "properties": {"size": "a=b", "__SHARDINGKEY": "order-7"},
        "body_base64": base64.b64encode(b"\xff\x00").decode(),
    }
    assert from_json(PATTERN, json.dumps(line).encode()) == Message(
        "T", b"\xff\x00", "B", "k1 k2", {"colour": "green", "size": "a=b"}, sharding_key="order-7"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"not JSON", "no message as JSON"),
        (b"[]", "no message as JSON"),
        (b"{}", "needs body or body_base64"),
        (b'{"body": "x", "body_base64": "eA=="}', "needs body or body_base64"),
        (b'{"body_base64": "%"}', "no message as JSON"),
        (b'{"body": ""}', "the body is empty"),
        (b'{"body": "x", "keys": ["a b"]}', "has no blank"),
        (b'{"body": "x", "properties": {"UNIQ_KEY": "1"}}', "set by RocketMQ itself"),
        (b'{"body": "\xff"}', "no message as JSON"),
    ],
)
def test_a_line_that_is_no_message(line: bytes, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        from_json(PATTERN, line)


@pytest.mark.parametrize("oneway", [False, True], ids=["awaited", "oneway"])
async def test_a_rate_is_kept(jumping_clock: object, oneway: bool) -> None:
    async with EmbeddedBroker() as broker:
        access = Access(name_servers=broker.name_server_address)
        tally = Tally()
        begun = trio.current_time()
        bodies = Repeated(b"x", 20)
        await send_all(access, Pattern(topic="T").make, bodies, tally, rate=4, oneway=oneway)
        assert tally.sent == 20
        assert 19 / 4 <= trio.current_time() - begun < 5.5


def test_what_tail_prints_can_be_sent(invoke_with_files: Invoke, broker_aside: str) -> None:
    trio.run(create, broker_aside, "Orders", 4)
    trio.run(create, broker_aside, "Copies", 4)
    at = ("-n", broker_aside)
    sent = invoke_with_files(
        *("send", "-t", "Orders", "order {n}", "-c", "3", "--template", "-k", "order-{n}"),
        *("--tag", "A", "-H", "size=a=b", "--sharding-key", "customer-7", *at),
    )
    assert sent.code == 0, sent.err
    tailed = invoke_with_files("tail", "-t", "Orders", "-o", "beginning", "-e", "-J", *at)
    assert (tailed.code, len(tailed.lines)) == (0, 3)
    assert invoke_with_files("send", "-t", "Copies", "--json", *at, stdin=tailed.out).code == 0
    copies = trio.run(stored, broker_aside, "Copies", 3)
    assert [(one.body, one.tags, one.keys) for one in copies] == [
        (b"order %d" % number, "A", (f"order-{number}",)) for number in (1, 2, 3)
    ]
    assert {one.sharding_key for one in copies} == {"customer-7"}
    assert {one.queue for one in copies} == {copies[0].queue}
    assert copies[0].user_properties["size"] == "a=b"
    wrong = invoke_with_files("send", "-t", "Copies", "--json", *at, stdin=b'{}\n{"body": "x"}\n')
    assert wrong.code == 1
    assert "a line of JSON needs body or body_base64" in wrong.err


def test_all_go_to_the_queue_that_is_named(invoke_with_files: Invoke, broker_aside: str) -> None:
    trio.run(create, broker_aside, "Orders", 4)
    send = ("send", "-t", "Orders", "x", "-c", "5", "-n", broker_aside)
    assert invoke_with_files(*send, "--queue", "broker-a/2").code == 0
    assert {one.queue_id for one in trio.run(stored, broker_aside, "Orders", 5)} == {2}


def test_tail_leaves_out_what_is_not_wanted(invoke_with_files: Invoke, broker_aside: str) -> None:
    trio.run(create, broker_aside, "Orders", 2)
    at = ("-n", broker_aside)
    for number, colour in enumerate(("red", "green", "green")):
        invoke_with_files("send", "-t", "Orders", f"{colour} {number}", "-H", f"colour={colour}", *at)
    tail = ("tail", "-t", "Orders", "-e", *at)
    beginning = (*tail, "-o", "beginning")
    assert sorted(invoke_with_files(*beginning, "--grep", r"^green \d$").lines) == [b"green 1", b"green 2"]
    assert len(invoke_with_files(*beginning, "--grep", "green", "-c", "1").lines) == 1
    assert invoke_with_files(*beginning, "--sql", "colour = 'red'").lines == [b"red 0"]
    assert len(invoke_with_files(*tail, "--since", "5m").lines) == 3
    times = [one.store_time_ms for one in trio.run(stored, broker_aside, "Orders", 3)]
    last = max(times)
    assert len(invoke_with_files("tail", "-t", "Orders", "--until", f"@{last}", *at).lines) == 3
    early = invoke_with_files("tail", "-t", "Orders", "--until", f"@{min(times) - 1}", *at)
    assert (early.code, early.out) == (0, b"")
    between = ("--since", f"@{last}", "--until", f"@{last}")
    assert len(invoke_with_files("tail", "-t", "Orders", *between, *at).lines) == times.count(last)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["send", "-t", "T", "x", "--queue", "2"], "'2' is not BROKER/N"),
        (["send", "-t", "T", "x", "--queue", "b/1", "--sharding-key", "k"], "give --queue or --sharding-key"),
        (["send", "-t", "T", "x", "--json"], "--json is for lines of stdin"),
        (["send", "-t", "T", "--json", "--template"], "--json is for lines of stdin"),
        (["send", "-t", "T", "x", "--rate", "0"], "0.0 is not in the range"),
        (["tail", "-t", "T", "--grep", "("], "'(' is no regular expression"),
        (["tail", "-t", "T", "--tag", "A", "--sql", "a = 1"], "give --tag or --sql"),
        (["tail", "-t", "T", "-o", "end", "--since", "1m"], "give -o or --since"),
        (["tail", "-t", "T", "--until", "@99999999999999"], "--until is a time that has passed"),
        (["tail", "-t", "T", "--until", "1m", "-G", "g"], "--until does not go with -G"),
        (["tail", "-t", "T", "--since", "never"], "neither @MS"),
    ],
)
def test_a_wrong_command_line(invoke: Invoke, arguments: list[str], words: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert words in line
