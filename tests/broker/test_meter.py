"""Rates as brokers tell them."""

from __future__ import annotations

from rocketmq_py.broker.meter import MinuteRate


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def test_a_rate_is_of_the_last_minute_as_it_was_at_the_last_look() -> None:
    clock = Clock()
    rate = MinuteRate(clock)
    rate.add(300, clock.now_ms)
    rate.add(300, clock.now_ms)
    rates = []
    for _ in range(9):
        rates.append(rate.value())
        clock.now_ms += 10_000
    assert rates == [0, 60, 30, 20, 15, 12, 10, 0, 0]


def test_what_comes_later_counts_when_it_is_looked_at() -> None:
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


def test_after_a_pause_it_is_of_the_last_minute_only() -> None:
    clock = Clock()
    rate = MinuteRate(clock)
    rate.add(1000, clock.now_ms)
    clock.now_ms += 3_600_000
    rate.add(60, clock.now_ms)
    assert rate.value() == 0
    clock.now_ms += 10_000
    assert rate.value() == 1
