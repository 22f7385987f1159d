"""Valid and invalid handlers and results."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.callables import is_async
from rocketmq_py.client import core_of
from rocketmq_py.consumer import PushConsumer
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import ReceivedMessage
from tests.consumer.conftest import Fill
from tests.consumer.push_consumers import consumer_of


async def handle(message: object) -> None:
    pass


def plain(message: object, *, retry: bool = True) -> None:
    pass


async def two(message: object, more: object) -> None:
    pass


class Handles:
    async def __call__(self, message: object) -> None:
        pass

    async def method(self, message: object) -> None:
        pass

    def plain_method(self, message: object) -> None:
        pass


@pytest.mark.parametrize(
    ("handler", "runs_as_task"),
    [
        (handle, True),
        (plain, False),
        (Handles(), True),
        (Handles().method, True),
        (Handles().plain_method, False),
        (functools.partial(two, "more"), True),
        (functools.partial(Handles()), True),
        (functools.partial(plain, retry=False), False),
        (functools.partial(functools.partial(two), more=1), True),
        ([].append, False),
        (print, False),
        (type, False),  # its signature is unknown
        (lambda _: None, False),
    ],
)
def test_callables_that_accept_a_message_are_handlers(
    handler: Callable[..., Any], runs_as_task: bool
) -> None:
    assert prepare_handler(handler, PushConsumerSettings(group="G")) is handler
    assert is_async(handler) is runs_as_task


async def no_parameter() -> None:
    pass


async def yields(message: object) -> AsyncIterator[object]:
    yield message


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (None, r"handle must be a function that accepts \(message\), not None"),
        ("handle", r"handle must be a function that accepts \(message\), not str"),
        (no_parameter, r"handle is called with \(message\), which no_parameter\(\) .* does not accept"),
        (two, r"handle is called with \(message\), which two\(.*\) .* does not accept"),
        (functools.partial(plain, "m"), "which partial.* does not accept"),
        (yields, "handle is yields, which has a yield"),
    ],
)
async def test_invalid_handler_is_rejected_before_the_run(client: Client, handler: Any, text: str) -> None:
    async with consumer_of(client) as consumer:
        with pytest.raises(ConfigurationError, match=text):
            await consumer.run(handler)
        assert not core_of(client).heartbeats.has_consumer("g")


async def test_coroutine_object_is_rejected_as_a_handler(client: Client) -> None:
    async with consumer_of(client, batch_size=3) as consumer:
        with pytest.raises(ConfigurationError, match="give the function without calling it"):
            await consumer.run(handle(None))  # type: ignore[arg-type]  # that is the test
        with pytest.raises(ConfigurationError, match=r"a function that accepts \(messages\)"):
            await consumer.run(3)  # type: ignore[arg-type]  # and this


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("returned", [False, True, "ok", 0])
async def test_unknown_result_is_a_failure_and_its_message_becomes_a_dead_letter(
    client: Client,
    fill: Fill,
    orderly: bool,
    returned: object,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await fill("T", 5)
    numbers: list[int] = []

    async def odd(message: ReceivedMessage) -> object:
        numbers.append(int(message.body))
        return returned if message.body == b"2" else None

    async with (
        consumer_of(client, orderly=orderly, concurrency=1, max_reconsume_times=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, odd)  # type: ignore[arg-type]  # mypy finds the wrong result
        while not consumer.statistics.dead_letters:
            await trio.sleep(1)
        consumer.stop()
    assert sorted(numbers) == [0, 1, 2, 2, 3, 4]
    assert f"the handler returned {returned!r}, which" in caplog.text


@pytest.mark.parametrize("broadcasting", [False, True])
async def test_run_without_a_subscription_logs_a_warning(
    client: Client, broadcasting: bool, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    caplog.set_level(logging.WARNING, "rocketmq_py.consumer")
    options: dict[str, Any] = {"broadcasting": broadcasting, "local_offsets": tmp_path}
    async with PushConsumer(client, group="g", **options) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, handle)
        await trio.testing.wait_all_tasks_blocked()
        consumer.stop()
    assert "no subscription: group=g" in caplog.text


@pytest.mark.parametrize("tags", ["A,B", "A || B;C", "A|B", "A B"])
def test_tag_with_a_separator_of_other_clients_logs_a_warning(
    tags: str, caplog: pytest.LogCaptureFixture
) -> None:
    PushConsumer(group="g").subscribe("T", tags)
    assert "which is a single tag; separate tags with ||" in caplog.text


@pytest.mark.parametrize("tags", ["A", "A||B", " A || B ", "*", "", "a-b_c.d"])
def test_valid_tags_log_no_warning(tags: str, caplog: pytest.LogCaptureFixture) -> None:
    PushConsumer(group="g").subscribe("T", tags)
    assert not caplog.records
