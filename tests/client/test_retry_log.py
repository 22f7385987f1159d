"""Background loops log a lasting failure once, then at growing intervals, and once when it is over."""

from __future__ import annotations

import logging

import pytest
import trio

from rocketmq_py.client.retry_log import (
    FIRST_QUIET_SECONDS,
    LONGEST_QUIET_SECONDS,
    RepeatedLog,
    RetryLog,
    RetryLogs,
)
from rocketmq_py.library_logger import LibraryLogger

logger = LibraryLogger("rocketmq_py.client")


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger.name)


def new_log() -> RetryLog:
    return RetryLog(logger, "route lookup", group="billing")


async def test_a_failure_that_lasts_is_logged_at_growing_intervals(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    log = new_log()
    began = trio.current_time()
    times: list[float] = []
    for number in range(1000):
        log.failed(OSError(f"refused {number}"), topics="Orders", retry_in=2)
        if len(caplog.records) > len(times):
            times.append(trio.current_time() - began)
        await trio.sleep(2)
    assert times == [0, 30, 90, 210, 450, 930, 1830]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert caplog.messages[:2] == [
        "route lookup failed, retrying: group=billing topics=Orders retry_in=2 error=refused 0",
        "route lookup failed, retrying: group=billing topics=Orders retry_in=2 "
        "failures=16 seconds=30 error=refused 15",
    ]
    caplog.clear()
    log.succeeded()
    log.succeeded()
    assert caplog.messages == ["route lookup succeeded again: group=billing failures=1000 seconds=2000"]
    assert caplog.records[0].levelname == "INFO"


async def test_a_success_without_a_failure_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    new_log().succeeded()
    assert not caplog.messages


async def test_a_failure_that_comes_and_goes_is_logged_once_in_an_interval(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    log = new_log()
    for _ in range(int(2.5 * FIRST_QUIET_SECONDS)):
        log.failed(OSError("refused"))
        log.succeeded()
        await trio.sleep(1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 3


async def test_each_key_has_its_own_log(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    logs = RetryLogs(logger, "heartbeat", "broker", group="billing")
    logs.failed("broker-a", OSError("refused"))
    logs.failed("broker-b", OSError("timed out"))
    logs.failed("broker-a", OSError("refused"))
    logs.succeeded("broker-b")
    logs.succeeded("broker-c")
    assert caplog.messages == [
        "heartbeat failed, retrying: group=billing broker=broker-a error=refused",
        "heartbeat failed, retrying: group=billing broker=broker-b error=timed out",
        "heartbeat succeeded again: group=billing broker=broker-b failures=1 seconds=0",
    ]
    await trio.sleep(LONGEST_QUIET_SECONDS)
    logs.succeeded("broker-a")
    assert len(logs) == 1, "broker-b, until it may be logged again"
    logs.failed("broker-b", OSError("timed out"))
    logs.succeeded("broker-b")
    await trio.sleep(LONGEST_QUIET_SECONDS)
    logs.failed("broker-b", OSError("timed out"))
    assert caplog.messages[-1] == "heartbeat failed, retrying: group=billing broker=broker-b error=timed out"


def test_an_expected_failure_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    log = new_log()
    log.failed_as_expected(OSError("closed"), topics="Orders")
    assert not caplog.records
    caplog.set_level(logging.DEBUG, logger.name)
    log.failed_as_expected(OSError("closed"), topics="Orders")
    assert caplog.messages == ["route lookup failed, retrying: group=billing topics=Orders error=closed"]


async def test_a_repeated_condition_is_logged_with_the_number_of_lines_left_out(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    log = RepeatedLog(logger)
    for _ in range(3):
        log.warning("dropped a check: topic=%s", "Orders")
    await trio.sleep(FIRST_QUIET_SECONDS)
    log.warning("dropped a check: topic=%s", "Orders")
    assert caplog.messages == ["dropped a check: topic=Orders", "dropped a check: topic=Orders not_logged=2"]
