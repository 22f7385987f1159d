"""``tail --wait``, ``reply --wait`` and ``relay`` find a topic within a second of its creation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.message_formats import compile_format
from rocketmq_py.cli.option_values import parse_position
from rocketmq_py.cli.relay import run_relay
from rocketmq_py.cli.request import Replier
from rocketmq_py.cli.tail_loop import Tail
from rocketmq_py.relay import Relay
from tests.cli.conftest import Invoke

WAIT_FOR = 60.0
"""Seconds until a topic is created. A client with exponential backoff would then ask every 30 s."""


class RecordingSink:
    """A sink that records the time and the text of each message."""

    def __init__(self, texts: list[tuple[float, str]]) -> None:
        self._texts = texts

    async def put(self, _: ReceivedMessage, parts: Sequence[bytes]) -> None:
        self._texts.append((trio.current_time(), b"".join(parts).decode()))

    put_now = put

    async def flush(self) -> None:
        pass


@pytest.fixture
async def broker(jumping_clock: object) -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as broker:
        yield broker


def tail_of(
    broker: EmbeddedBroker, topics: Sequence[str], texts: list[tuple[float, str]], *, offset: str, count: int
) -> Tail:
    return Tail(
        Access(address=broker.name_server_address),
        tuple(topics),
        "*",
        parse_position(offset),
        compile_format("%t %s"),
        count,
        sink=lambda _: RecordingSink(texts),
        wait=True,
    )


async def create_and_send(broker: EmbeddedBroker, *topics: str) -> float:
    """Create topics and send a message to each. Return the time."""
    async with Client(broker.name_server_address) as client:
        async with client.admin() as admin:
            for topic in topics:
                await admin.topics.create(topic, queues=4)
        async with client.producer("senders") as producer:
            for topic in topics:
                await producer.send(Message(topic, b"first"))
    return trio.current_time()


@pytest.mark.parametrize(
    ("group", "offset"),
    [(None, "latest"), (None, "-1"), (None, "earliest"), ("readers", "latest"), ("readers", "earliest")],
)
async def test_tail_reads_a_topic_that_is_created_later_from_its_first_message(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], group: str | None, offset: str
) -> None:
    texts: list[tuple[float, str]] = []
    tail = tail_of(broker, ["Late"], texts, offset=offset, count=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: tail.as_member(group) if group else tail.as_reader(stop_at_end=False))
        await trio.sleep(WAIT_FOR)
        created = await create_and_send(broker, "Late")
    ((time, text),) = texts
    assert text == "Late first"
    assert time - created < 2
    assert capsys.readouterr().err.splitlines()[0] == (
        f"rocketmq-py: topic 'Late' does not exist (asked {broker.name_server_address}); "
        "waiting until it is created"
    )


@pytest.mark.parametrize("group", [None, "readers"])
async def test_tail_reads_the_topics_that_exist_while_it_waits_for_another(
    broker: EmbeddedBroker, group: str | None
) -> None:
    await create_and_send(broker, "Early")
    texts: list[tuple[float, str]] = []
    tail = tail_of(broker, ["Late", "Early"], texts, offset="earliest", count=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: tail.as_member(group) if group else tail.as_reader(stop_at_end=False))
        await trio.sleep(WAIT_FOR)
        assert [text for _, text in texts] == ["Early first"]
        created = await create_and_send(broker, "Late")
    assert texts[1][1] == "Late first"
    assert texts[1][0] - created < 2


@pytest.mark.parametrize("group", [None, "readers"])
async def test_tail_waits_until_a_topic_matches_its_pattern(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], group: str | None
) -> None:
    texts: list[tuple[float, str]] = []
    tail = tail_of(broker, ["order-*"], texts, offset="latest", count=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: tail.as_member(group) if group else tail.as_reader(stop_at_end=False))
        await trio.sleep(WAIT_FOR)
        created = await create_and_send(broker, "order-new")
    ((time, text),) = texts
    assert text == "order-new first"
    assert time - created < 2
    assert "no topic matches 'order-*'; waiting until it is created" in capsys.readouterr().err


async def test_reply_waits_for_its_topic(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    access = Access(address=broker.name_server_address)
    replier = Replier(access, "Questions", "repliers", b"42", None, count=1, wait=True)
    async with (
        trio.open_nursery() as nursery,
        Client(broker.name_server_address) as client,
        client.admin() as admin,
        client.producer("askers") as producer,
    ):
        nursery.start_soon(replier.run)
        await trio.sleep(WAIT_FOR)
        await admin.topics.create("Questions", queues=1)
        reply = await producer.request(Message("Questions", b"?"), timeout=3)
        assert reply.body == b"42"
    assert "topic 'Questions' does not exist" in capsys.readouterr().err


async def test_a_relay_finds_its_buffer_topic_when_it_is_created(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    pytest.importorskip("rocksdict", reason="the extra relay is not installed")
    async with (
        Client(broker.name_server_address) as client,
        Relay(client, topic="Buffer", store=tmp_path) as relay,
    ):
        await trio.sleep(WAIT_FOR)
        created = await create_and_send(broker, "Buffer")
        while not relay.assignment:
            await trio.sleep(0.1)
        assert trio.current_time() - created < 2


async def test_relay_reports_that_it_waits_for_its_topic(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rocksdict", reason="the extra relay is not installed")
    with trio.move_on_after(5):
        access = Access(address=broker.name_server_address)
        await run_relay(access, "Buffer", str(tmp_path), None, 1000)
    assert capsys.readouterr().err.splitlines() == [
        f"rocketmq-py: relaying topic Buffer with the store {tmp_path}",
        f"rocketmq-py: topic 'Buffer' does not exist (asked {broker.name_server_address}); "
        "waiting until it is created",
    ]


@pytest.mark.parametrize(
    "command",
    ["tail -t Nope", "tail -t Nope -G g", "tail -t no-*", "tail -t no-* -G g", "reply -t Nope -G g x"],
)
def test_without_wait_the_error_names_the_option(invoke: Invoke, threaded_broker: str, command: str) -> None:
    ended = invoke(*command.split(), "-n", threaded_broker, *(["--to", "x"] if "tail" in command else []))
    assert (ended.code, ended.out) == (1, b"")
    said = (
        "no topic matches 'no-*'"
        if "*" in command
        else f"topic 'Nope' does not exist (asked {threaded_broker})"
    )
    assert ended.err == f"rocketmq-py: {said}; --wait waits until it is created\n"
