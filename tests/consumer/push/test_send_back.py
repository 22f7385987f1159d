from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.dead_letters import Cause, DeadLetter, FailedDelivery
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER
from rocketmq_py.consumer.push.send_back import SendBack
from rocketmq_py.errors import BrokerError, RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.compression import CompressionType, decompress
from rocketmq_py.protocol.headers import ConsumerSendMsgBackRequest
from rocketmq_py.remoting import Connection
from tests.consumer.received import received
from tests.environment import created
from tests.scripted import ScriptedCluster, scripted_cluster

COMPRESSED_ZLIB = 0x301
ID = "7F0000010000"


@attrs.define
class Broker:
    """A broker that accepts or refuses messages sent back and copies."""

    takes_back: bool = True
    takes_copies: bool = True
    copy_status: int = ResponseCode.SUCCESS
    silent: bool = False
    asked: list[Command] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        self.asked.append(request)
        taken, status = True, int(ResponseCode.SUCCESS)
        if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            taken = self.takes_back
        elif request.code == RequestCode.SEND_MESSAGE_V2:
            taken, status = self.takes_copies, self.copy_status
        if not self.silent:
            connection.respond(request, status if taken else ResponseCode.SYSTEM_ERROR, remark="scripted")

    def kinds(self) -> list[str]:
        return [RequestCode(request.code).name for request in self.asked]


@asynccontextmanager
async def send_back(
    *brokers: Broker, namespace: str = "", max_reconsume_times: int = 16
) -> AsyncIterator[tuple[SendBack, ScriptedCluster]]:
    topics = ["T", "%RETRY%g", "ns%T", "%RETRY%ns%g"]
    async with (
        scripted_cluster(*brokers, topics=topics, queues=1) as cluster,
        created(
            Client, cluster.address, request_timeout=1, now_ms=lambda: 4711, namespace=namespace
        ) as client,
    ):
        await core_of(client).routes.get("T")
        yield (
            SendBack(core_of(client), "g", ConsumerCounters(), max_reconsume_times=max_reconsume_times),
            cluster,
        )


def message(**attributes: Any) -> ReceivedMessage:
    plain = received(7, UNIQ_KEY=ID, TAGS="A", KEYS="k", own="x", TRAN_MSG="true", WAIT="false", DELAY="9")
    return attrs.evolve(plain, **attributes)


async def test_message_is_sent_back_to_its_broker() -> None:
    other, own = Broker(), Broker()
    async with send_back(other, own) as (giving, _):
        await giving.send_back(FailedDelivery(message(broker_name="broker-b"), 5))
    assert other.asked == []
    (request,) = own.asked
    assert ConsumerSendMsgBackRequest.from_fields(request.fields) == ConsumerSendMsgBackRequest(
        offset=700,
        group="g",
        delay_level=5,
        origin_msg_id=ID,
        origin_topic="T",
        max_reconsume_times=16,
        broker_name="broker-b",
    )


async def test_copy_goes_to_another_broker_if_its_broker_fails() -> None:
    own, other = Broker(takes_back=False), Broker()
    async with send_back(own, other) as (giving, _):
        await giving.send_back(FailedDelivery(message(reconsume_times=2, flag=3), 0))
    assert own.kinds() == ["CONSUMER_SEND_MSG_BACK"]
    (copy,) = other.asked
    assert copy.body == b"body"
    assert {name: value for name, value in copy.fields.items() if name != "i"} == {
        "a": "CLIENT_INNER_PRODUCER", "b": "%RETRY%g", "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": "4711", "h": "3", "j": "3", "k": "false", "l": "16", "m": "false", "n": "broker-b",
    }  # fmt: skip
    assert decode_properties(copy.fields["i"]) == {
        "UNIQ_KEY": ID, "WAIT": "true", "DELAY": "5", "TAGS": "A", "KEYS": "k", "own": "x",
        "ORIGIN_MESSAGE_ID": ID, "RETRY_TOPIC": "T",
    }  # fmt: skip


async def test_requests_contain_the_namespace() -> None:
    broker = Broker(takes_back=False)
    async with send_back(broker, namespace="ns") as (giving, _):
        await giving.send_back(FailedDelivery(message(), 0))
    back, copy = broker.asked
    assert (back.fields["group"], back.fields["originTopic"]) == ("ns%g", "ns%T")
    assert copy.fields["b"] == "%RETRY%ns%g"
    assert decode_properties(copy.fields["i"])["RETRY_TOPIC"] == "ns%T"


@pytest.mark.parametrize(
    ("delay_level", "failures", "written", "counted"),
    [(0, 0, "3", "1"), (0, 16, "18", "17"), (1, 4, "1", "5"), (18, 0, "18", "1"), (-1, 0, None, "17")],
)
async def test_copy_has_a_delay(delay_level: int, failures: int, written: str | None, counted: str) -> None:
    broker = Broker()
    async with send_back(broker) as (giving, _):
        await giving.send_copy(message(reconsume_times=failures), delay_level)
    (copy,) = broker.asked
    assert decode_properties(copy.fields["i"]).get("DELAY") == written
    assert (copy.fields["j"], copy.fields["l"]) == (counted, "16")


async def test_dead_letter_of_an_unlimited_group_exceeds_the_limit() -> None:
    broker = Broker()
    async with send_back(broker, max_reconsume_times=2**31 - 1) as (giving, _):
        await giving.send_copy(message(), DEAD_LETTER)
    (copy,) = broker.asked
    assert int(copy.fields["l"]) < int(copy.fields["j"]) < 2**31


async def test_copy_keeps_the_first_message_id() -> None:
    broker = Broker()
    async with send_back(broker) as (giving, _):
        await giving.send_copy(received(1, UNIQ_KEY="B", ORIGIN_MESSAGE_ID="A"), 0)
    properties = decode_properties(broker.asked[0].fields["i"])
    assert (properties["UNIQ_KEY"], properties["ORIGIN_MESSAGE_ID"]) == ("B", "A")


async def test_large_bodies_are_compressed_and_corrupt_ones_are_not() -> None:
    broker = Broker()
    large = b"large" * 100_000
    async with send_back(broker) as (giving, _):
        await giving.send_copy(message(body=large), 0)
        await giving.send_copy(
            message(body=large, corruption="no zlib", system_flag=COMPRESSED_ZLIB | 0x8), 0
        )
    compressed, broken = broker.asked
    assert decompress(compressed.body, CompressionType.ZLIB) == large
    assert broken.body == large
    assert [int(copy.fields["f"]) for copy in broker.asked] == [COMPRESSED_ZLIB] * 2


@pytest.mark.parametrize("status", [10, 11, 12])
async def test_unflushed_copy_counts_as_stored(status: int) -> None:
    broker = Broker(takes_back=False, copy_status=status)
    async with send_back(broker) as (giving, _):
        await giving.send_back(FailedDelivery(message(), 0))
    assert broker.kinds() == ["CONSUMER_SEND_MSG_BACK", "SEND_MESSAGE_V2"]


async def test_own_broker_is_tried_last() -> None:
    brokers = [Broker(takes_back=False, takes_copies=name == "a") for name in "abc"]
    async with send_back(*brokers) as (giving, _):
        await giving.send_back(FailedDelivery(message(broker_name="broker-a"), 0))
    assert [broker.kinds()[-1] for broker in brokers] == ["SEND_MESSAGE_V2"] * 3
    assert brokers[0].kinds() == ["CONSUMER_SEND_MSG_BACK", "SEND_MESSAGE_V2"]


async def test_unresponsive_broker_is_skipped(jumping_clock: trio.testing.MockClock) -> None:
    frozen, other = Broker(silent=True), Broker()
    async with send_back(frozen, other) as (giving, _):
        await giving.send_back(FailedDelivery(message(), 0))
        assert trio.current_time() == pytest.approx(1, abs=0.5)
    assert other.kinds() == ["SEND_MESSAGE_V2"]


async def test_error_of_the_last_broker_is_raised() -> None:
    broker = Broker(takes_back=False, takes_copies=False)
    async with send_back(broker) as (giving, _):
        with pytest.raises(BrokerError, match="scripted"):
            await giving.send_back(FailedDelivery(message(), 0))


Change = Callable[[ScriptedCluster], None]


def no_queue(cluster: ScriptedCluster) -> None:
    cluster.topics["%RETRY%g"] = (1, 1, 4)


def no_topic(cluster: ScriptedCluster) -> None:
    del cluster.topics["%RETRY%g"]


@pytest.mark.parametrize(
    ("change", "text"), [(no_queue, "has no queue that may be written"), (no_topic, "does not exist")]
)
async def test_missing_retry_topic_is_an_error(change: Change, text: str) -> None:
    broker = Broker(takes_back=False)
    async with send_back(broker) as (giving, cluster):
        change(cluster)
        with pytest.raises(RocketMQError, match=text):
            await giving.send_back(FailedDelivery(message(), 0))


async def test_message_that_cannot_be_copied_is_an_error() -> None:
    broker = Broker(takes_back=False)
    async with send_back(broker) as (giving, _):
        with pytest.raises(RocketMQError, match="body is empty"):
            await giving.send_back(FailedDelivery(message(body=b""), 0))


async def test_a_message_whose_last_delivery_failed_is_reported_as_a_dead_letter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    async with send_back(Broker(), max_reconsume_times=2) as (giving, _):
        await giving.send_back(FailedDelivery(message(reconsume_times=1), 0))
        assert not caplog.records
        await giving.send_back(FailedDelivery(message(reconsume_times=2), 0))
        await giving.send_back(FailedDelivery(message(), -1))
        await giving.send_to_dead_letters(DeadLetter(message(), Cause.UNUSABLE, "it cannot be decoded"))
    prefix = f"message sent to the dead-letter queue: group=g topic=T message={ID} keys=k"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"{prefix} deliveries=3: its last delivery failed"),
        ("INFO", f"{prefix} deliveries=1: the handler returned ConsumeLater(-1)"),
        ("WARNING", f"{prefix} deliveries=1: it cannot be decoded"),
    ]
