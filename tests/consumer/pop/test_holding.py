"""``PopConsumer.holding`` renews the invisible time of a message while its block runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.codes import RequestCode
from rocketmq_py.consumer import PopConsumer, PoppedMessage
from rocketmq_py.errors import BrokerError, ClosedError, ConfigurationError
from tests.consumer.pop.test_consumer import consumer_of
from tests.consumer.pop_broker import PopBroker, message, pop_brokers

RENEW = RequestCode.CHANGE_MESSAGE_INVISIBLETIME.name
ACK = RequestCode.ACK_MESSAGE.name


@pytest.fixture
async def scene(
    jumping_clock: trio.testing.MockClock,
) -> AsyncIterator[tuple[PopBroker, PopConsumer, PoppedMessage]]:
    """A broker, a consumer, and a message that it has received."""
    async with pop_brokers() as (cluster, [broker]), consumer_of(cluster.address) as consumer:
        broker.put(message(0))
        [popped] = await consumer.receive()
        broker.log.clear()
        yield broker, consumer, popped


Scene = tuple[PopBroker, PopConsumer, PoppedMessage]


async def test_a_message_is_renewed_while_the_block_runs_and_then_acknowledged(scene: Scene) -> None:
    broker, consumer, popped = scene
    async with consumer.holding(popped, invisible=60):
        await trio.sleep(595)
        assert broker.acked == []
    assert broker.log == [RENEW] * 30 + [ACK], "at once, and every 20 s"
    await trio.sleep(100)
    assert len(broker.log) == 31
    assert consumer.statistics.topics["T"].handled == 1
    assert consumer.statistics.topics["T"].sent_back == 0


async def test_a_failed_block_leaves_the_message_unacknowledged(scene: Scene) -> None:
    broker, consumer, popped = scene

    async def fail() -> None:
        async with consumer.holding(popped, invisible=60):
            await trio.sleep(25)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()
    await trio.sleep(100)
    assert broker.log == [RENEW] * 2


async def test_a_cancelled_block_leaves_the_message_unacknowledged(scene: Scene) -> None:
    broker, consumer, popped = scene
    with trio.move_on_after(25):
        async with consumer.holding(popped, invisible=60):
            await trio.sleep_forever()
    await trio.sleep(100)
    assert broker.log == [RENEW] * 2


async def test_failed_renewals_are_logged_and_repeated(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    broker, consumer, popped = scene
    async with consumer.holding(popped, invisible=60):
        broker.refused = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
        await trio.sleep(50)
        assert f"message={popped.message_id}" in caplog.text
        assert "renewal of the invisible time failed" in caplog.text
        broker.refused = set()
        await trio.sleep(20)
    assert broker.log == [RENEW] * 4 + [ACK]


async def test_the_block_does_not_run_if_the_first_renewal_fails(scene: Scene) -> None:
    broker, consumer, popped = scene
    broker.refused = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
    with pytest.raises(BrokerError):
        async with consumer.holding(popped):
            raise AssertionError("the block ran")
    assert broker.log == [RENEW]


async def test_a_renewal_in_flight_ends_before_the_acknowledgement(scene: Scene) -> None:
    broker, consumer, popped = scene
    async with consumer.holding(popped, invisible=3):
        broker.delays = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME: 0.5}
        await trio.sleep(1.2)
        assert broker.log == [RENEW] * 2
        assert broker.answered == 1
    assert broker.answered == 2
    assert broker.log == [RENEW] * 2 + [ACK]


async def test_a_consumer_that_is_closed_during_the_first_renewal_raises_closed_error(
    jumping_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    async with pop_brokers() as (cluster, [broker]), Client(cluster.address) as client:
        consumer = consumer_of(client)
        await consumer.start(nursery)
        broker.put(message(0))
        [popped] = await consumer.receive()
        broker.delays = {RequestCode.CHANGE_MESSAGE_INVISIBLETIME: 1.0}

        async def hold() -> None:
            with pytest.raises(ClosedError):
                async with consumer.holding(popped):
                    pytest.fail("not reached")

        async with trio.open_nursery() as holding:
            holding.start_soon(hold)
            await trio.sleep(0.5)
            await consumer.aclose()


async def test_a_closed_consumer_ends_the_renewals(scene: Scene) -> None:
    broker, consumer, popped = scene
    with pytest.raises(ClosedError):
        async with consumer.holding(popped, invisible=3):
            await consumer.aclose()
    await trio.sleep(10)
    assert broker.log == [RENEW, RequestCode.UNREGISTER_CLIENT.name]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"invisible": 0}, "invisible is 0; it must be above 0"),
        ({"invisible": -1}, "invisible"),
        ({"invisible": float("inf")}, "invisible is inf; it must be a number of seconds"),
    ],
)
async def test_invalid_times_are_rejected(scene: Scene, options: dict[str, Any], text: str) -> None:
    broker, consumer, popped = scene
    with pytest.raises(ConfigurationError, match=text):
        async with consumer.holding(popped, **options):
            raise AssertionError("the block ran")
    assert broker.log == []
