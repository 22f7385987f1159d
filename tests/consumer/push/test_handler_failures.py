"""The descriptions of failed deliveries in log lines."""

from __future__ import annotations

import logging
import math

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.group.handler_results import delay_seconds
from rocketmq_py.consumer.push.handler_failures import describe_deliveries
from rocketmq_py.consumer.settings import UNLIMITED_RECONSUME_TIMES
from tests.consumer.dispatching import DeadLetters, SentBackMessages, concurrent_dispatch, filled_queue
from tests.consumer.push.test_orderly_dispatch import locked_queue, orderly_dispatch
from tests.consumer.received import received


@pytest.mark.parametrize(
    ("failures", "limit", "level", "text"),
    [
        ([0], 16, 0, "delivery 1 of 17, next in about 10 s"),
        ([1], 16, 0, "delivery 2 of 17, next in about 30 s"),
        ([2], 16, 0, "delivery 3 of 17, next in about 1 min"),
        ([15], 16, 0, "delivery 16 of 17, next in about 2 h"),
        ([16], 16, 0, "delivery 17 of 17, the last one"),
        ([18], 16, 0, "delivery 19 of 17, the last one"),
        ([0], 0, 0, "delivery 1 of 1, the last one"),
        ([4], 16, 3, "delivery 5 of 17, next in about 10 s"),
        ([7], UNLIMITED_RECONSUME_TIMES, 0, "delivery 8, next in about 6 min"),
        ([7], math.inf, 1, "delivery 8, next in about 1 s"),
        ([1, 1], 16, 0, "delivery 2 of 17, next in about 30 s"),
        ([1, 16, 0], 16, 0, "delivery 1 of 17, next in about 10 s, up to delivery 17 of 17, the last one"),
    ],
)
def test_failed_deliveries_are_described(failures: list[int], limit: float, level: int, text: str) -> None:
    messages = [received(offset, reconsume_times=times) for offset, times in enumerate(failures)]
    assert describe_deliveries(messages, limit, lambda one: delay_seconds(level, one.reconsume_times)) == text


async def test_the_last_failure_of_an_ordered_message_says_so(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: object) -> None:
        raise ValueError("no")

    dispatch = orderly_dispatch(nursery, fail, max_reconsume_times=1, send_to_dead_letters=DeadLetters())
    dispatch.offer(locked_queue(1))
    await trio.sleep(10)
    described = [record.message.rpartition(": ")[2] for record in caplog.records]
    assert described == ["delivery 1 of 2, next in about 1 s", "delivery 2 of 2, the last one"]


async def test_the_line_of_a_timeout_says_when_the_message_comes_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(_: object) -> None:
        await trio.sleep_forever()

    caplog.set_level(logging.ERROR)
    dispatch = concurrent_dispatch(nursery, hang, 1, send_back=SentBackMessages(), timeout=5)
    dispatch.offer(filled_queue(1))
    await trio.sleep(10)
    assert caplog.records[0].message.endswith(": delivery 1 of 17, next in about 10 s")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_an_ordered_consumer_ends_with_errors_that_are_no_exceptions(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: object) -> None:
        raise error

    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            orderly_dispatch(nursery, fail).offer(locked_queue(1))
    assert caught.group_contains(type(error))
    name = type(error).__name__
    assert f"the consumer ends, because its handler raised {name}: message=" in caplog.text
