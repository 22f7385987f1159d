"""Transaction requests equal those of Java clients, as captured by ``integration/capture.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_py.client import core_of
from rocketmq_py.client.client import BorrowedClient
from rocketmq_py.message import Message
from rocketmq_py.producer import (
    TransactionProducer,
)
from rocketmq_py.producer.hooks import Hooks
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.transaction_reports import TransactionReporter
from rocketmq_py.producer.transaction_values import HalfMessage
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.frames import FrameDecoder
from tests.producer.transacting import (
    ASKS,
    COMMIT,
    ENDS,
    ON_WIRE,
    ROLLBACK,
    always,
    asked_by_broker,
)

FRAMES = Path(__file__).parents[1] / "data" / "frames"


def captured(client: str) -> list[Command]:
    """Return the reports and checks that were captured between a Java client and a real broker."""
    lines = [json.loads(line) for line in (FRAMES / f"java-{client}.jsonl").read_text().splitlines()]
    frames = [bytes.fromhex(line["hex"]) for line in lines if line["code"] in (ASKS, ENDS)]
    return [command for frame in frames for command in FrameDecoder().feed(frame)]


@pytest.mark.parametrize("client", ["4.9.8-json", "4.9.8-rocketmq", "5.5.0-json", "5.5.0-rocketmq"])
async def test_the_report_equals_javas(client: str) -> None:
    states = {wire: state for state, wire in ON_WIRE.items()}
    javas = [command for command in captured(client) if command.fields.get("fromTransactionCheck") == "false"]
    assert javas
    async with asked_by_broker(always(COMMIT)) as (producer, broker):
        config = ProducerSettings(group="capture-transactions")
        ends = TransactionReporter(core_of(producer), config, Hooks())
        for number, java in enumerate(javas):
            fields = java.fields
            half = HalfMessage(
                Message("CaptureTopic", b"x"), fields["msgId"], fields.get("transactionId"), fields["bname"],
                int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"]),
            )  # fmt: skip
            assert await ends.report(half, states[fields["commitOrRollback"]]) is None
            *_, end = await broker.ends(number + 1)
            assert end.fields == {**fields, "topic": "CaptureTopic"}, "Java 4 does not send the topic"
            assert end.is_oneway is java.is_oneway is True


@pytest.mark.parametrize("client", ["4.9.8-json", "4.9.8-rocketmq"])
async def test_a_check_is_answered_like_javas(client: str) -> None:
    commands = captured(client)
    (question,) = [command for command in commands if command.code == ASKS]
    (java,) = [command for command in commands if command.fields.get("fromTransactionCheck") == "true"]
    async with (
        asked_by_broker(always(ROLLBACK)) as (producer, broker),
        TransactionProducer(
            BorrowedClient(core_of(producer)), group="capture-transactions", check=always(COMMIT)
        ),
    ):
        broker.ask_with(question.fields, question.body)
        (end,) = await broker.ends(1)
    assert end.fields == {**java.fields, "topic": "CaptureTopic", "bname": "broker-a"}
    assert end.is_oneway is java.is_oneway is True
