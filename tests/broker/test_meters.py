"""Rates in the answers of brokers."""

from __future__ import annotations

from rocketmq_py.broker.storage.meters import MinuteRate


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def test_a_minute_rate_covers_the_last_minute_in_steps_of_10_seconds() -> None:
    clock = Clock()
    rate = MinuteRate(clock)
    rate.add(300, clock.now_ms)
    rate.add(300, clock.now_ms)
    rates = []
    for _ in range(9):
        rates.append(rate.value())
        clock.now_ms += 10_000
    assert rates == [0, 60, 30, 20, 15, 12, 10, 0, 0]


def test_a_minute_rate_leaves_out_the_current_10_seconds() -> None:
    clock = Clock()
    rate = MinuteRate(clock)
    rate.add(10, clock.now_ms)
    clock.now_ms += 10_000
    rate.add(30, clock.now_ms)
    assert rate.value() == 1
    clock.now_ms += 9_999
    assert rate.value() == 1
    clock.now_ms += 1
    assert rate.value() == 2


def test_a_minute_rate_forgets_counts_from_before_a_pause() -> None:
    clock = Clock()
    rate = MinuteRate(clock)
    rate.add(1000, clock.now_ms)
    clock.now_ms += 3_600_000
    rate.add(60, clock.now_ms)
    assert rate.value() == 0
    clock.now_ms += 10_000
    assert rate.value() == 1
