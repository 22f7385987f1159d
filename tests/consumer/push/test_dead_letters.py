"""The report of a dead letter names the cause of its failure, whichever consumer has sent it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.consumer.group.dead_letters import Cause, DeadLetter, FailedDelivery
from rocketmq_py.message import ReceivedMessage
from tests.consumer.conftest import Fill
from tests.consumer.push_consumers import consumer_of
from tests.consumer.received import received


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"batch_size": 2}], ids=str)
async def test_the_line_of_a_dead_letter_ends_with_the_exception_of_its_last_delivery(
    client: Client,
    fill: Fill,
    options: dict[str, Any],
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: object) -> None:
        raise ValueError("out of\nstock")

    await fill("T", 1)
    consumer = consumer_of(client, max_reconsume_times=0, **options)
    async with consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, fail)
        while not consumer.statistics.dead_letters:
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    (line,) = [record.message for record in caplog.records if "dead-letter queue" in record.message]
    assert line.endswith(" deliveries=1: its last delivery failed: ValueError: out of stock")


async def test_the_line_of_a_dead_letter_names_a_timeout(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await fill("T", 1)
    consumer = consumer_of(client, max_reconsume_times=0, consume_timeout=60)
    async with consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, _hang)
        while not consumer.statistics.dead_letters:
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert ": its last delivery failed: TimeoutError: a handler call took more than 60 s" in caplog.text


async def _hang(_: ReceivedMessage) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize(
    ("failures", "level", "cause"),
    [
        (0, 0, None),
        (1, 3, None),
        (2, 0, Cause.LAST_DELIVERY_FAILED),
        (0, -1, Cause.REQUESTED),
        (2, -1, Cause.REQUESTED),
    ],
)
def test_a_failed_delivery_decides_whether_another_one_follows(
    failures: int, level: int, cause: Cause | None
) -> None:
    message, error = received(0, reconsume_times=failures), ValueError("no")
    dead_letter = FailedDelivery(message, level, error).dead_letter(2)
    if cause is None:
        assert dead_letter is None
    else:
        assert dead_letter is not None
        assert (dead_letter.message, dead_letter.cause, dead_letter.error) == (message, cause, error)
        assert dead_letter.deliveries == failures + 1


def test_the_stored_reason_is_the_one_in_the_log() -> None:
    dead_letter = DeadLetter(received(0), Cause.UNUSABLE, "it has no price")
    assert dead_letter.reason == "it has no price"


def test_an_exception_without_a_text_has_a_reason() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    dead_letter = DeadLetter(received(0), Cause.LAST_DELIVERY_FAILED, error=UnprintableError())
    assert dead_letter.reason.startswith("its last delivery failed: ")
    assert "UnprintableError" in dead_letter.reason
