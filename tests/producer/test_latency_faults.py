from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.producer import Producer
from rocketmq_py.producer.latency_faults import (
    BrokerHealth,
    LatencyFaultPolicy,
    LatencyFaults,
    tolerated_latency,
    unavailable_for,
)

A, B, C, D = "broker-a", "broker-b", "broker-c", "broker-d"


class Clock:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


def faults_with(policy: LatencyFaultPolicy) -> tuple[LatencyFaults, Clock]:
    clock = Clock()
    return LatencyFaults(policy, now=clock, rng=random.Random(1)), clock


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        (
            LatencyFaultPolicy.JAVA_4,
            {0: 0, 49: 0, 50: 0, 100: 0, 549: 0, 550: 30, 999: 30, 1000: 60, 2000: 120, 2999: 120}
            | {3000: 180, 14999: 180, 15000: 600, 30000: 600},
        ),
        (
            LatencyFaultPolicy.JAVA_5,
            {0: 0, 50: 0, 100: 0, 549: 0, 550: 2, 1799: 2, 1800: 5, 3000: 6, 4999: 6, 5000: 10}
            | {10000: 10, 14999: 10, 15000: 30, 99999: 30},
        ),
    ],
)
def test_the_policies_have_the_tables_of_java(policy: LatencyFaultPolicy, rows: Mapping[int, float]) -> None:
    assert {latency: unavailable_for(policy, latency / 1000) for latency in rows} == rows
    assert tolerated_latency(policy) == 0.55


def test_a_failure_counts_as_much_as_in_java() -> None:
    assert (
        LatencyFaultPolicy.JAVA_4.error_latency,
        unavailable_for(LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_4.error_latency),
    ) == (30.0, 600.0)
    assert (
        LatencyFaultPolicy.JAVA_5.error_latency,
        unavailable_for(LatencyFaultPolicy.JAVA_5, LatencyFaultPolicy.JAVA_5.error_latency),
    ) == (10.0, 10.0)
    assert (LatencyFaultPolicy.JAVA_4.detect, LatencyFaultPolicy.JAVA_5.detect) == (False, True)


@pytest.mark.parametrize("value", [True, "4.x", 5.0, []])
def test_an_invalid_setting_is_rejected(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"latency_faults must be a LatencyFaultPolicy, not"):
        Producer("127.0.0.1:1", latency_faults=value)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"latencies": (), "unavailable": ()}, "latencies is"),
        ({"latencies": (-1.0, 2.0)}, "latencies is"),
        ({"latencies": (1.0, 1.0)}, "in rising order"),
        ({"latencies": (1.0, float("inf"))}, "finite"),
        ({"latencies": (float("nan"), 1.0)}, "latencies is"),
        ({"unavailable": (1.0,)}, "unavailable has 1 entries; it must have one for each of the 2 latencies"),
        ({"unavailable": (2.0, 1.0)}, "that do not fall"),
        ({"unavailable": (-1.0, 1.0)}, "from 0 on"),
        ({"unavailable": (1.0, float("inf"))}, "finite"),
        ({"unavailable": (1.0, float("nan"))}, "finite"),
        ({"error_latency": 0.0}, "error_latency is 0.0; it must be above 0"),
    ],
)
def test_invalid_policies_are_rejected(wrong: dict[str, Any], text: str) -> None:
    right: dict[str, Any] = {"latencies": (1.0, 2.0), "unavailable": (3.0, 4.0), "error_latency": 5.0}
    LatencyFaultPolicy(**right)
    with pytest.raises(ConfigurationError, match=text):
        LatencyFaultPolicy(**right | wrong)


def test_a_policy_accepts_lists() -> None:
    policy = LatencyFaultPolicy(latencies=[0.5], unavailable=[2], error_latency=1)
    assert policy == LatencyFaultPolicy(latencies=(0.5,), unavailable=(2,), error_latency=1)


def test_a_table_without_times_avoids_no_broker() -> None:
    faults, _ = faults_with(LatencyFaultPolicy(latencies=(0.0,), unavailable=(0.0,), error_latency=1.0))
    faults.record(A, 1000.0)
    faults.failed(A, reachable=True)
    assert faults.is_available(A)
    assert faults.all_clear


@pytest.mark.parametrize("policy", [LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5])
def test_answers_in_time_leave_no_entry(policy: LatencyFaultPolicy) -> None:
    faults, _ = faults_with(policy)
    for name in (A, B, A):
        faults.record(name, 0.549)
    assert faults.all_clear
    assert faults.is_available(A)
    assert faults.is_reachable("never heard of")
    assert faults.states() == {}


@pytest.mark.parametrize("policy", [LatencyFaultPolicy.JAVA_4, LatencyFaultPolicy.JAVA_5])
def test_a_slow_answer_makes_only_its_broker_unavailable_for_a_time(policy: LatencyFaultPolicy) -> None:
    faults, clock = faults_with(policy)
    faults.record(A, 1.0)
    seconds = unavailable_for(policy, 1.0)
    assert (faults.is_available(A), faults.is_available(B)) == (False, True)
    assert faults.states() == {A: BrokerHealth(A, 1.0, seconds, reachable=True)}
    clock.time += seconds - 0.5
    assert not faults.is_available(A)
    assert faults.states()[A].unavailable_for == 0.5
    clock.time += 0.5
    assert faults.is_available(A)
    assert faults.states()[A].unavailable_for == 0.0
    faults.record(A, 0.01)
    assert faults.all_clear


def test_with_java_4_the_last_answer_decides() -> None:
    faults, _ = faults_with(LatencyFaultPolicy.JAVA_4)
    faults.failed(A, reachable=False)
    assert faults.states()[A] == BrokerHealth(A, 30.0, 600.0, reachable=True)
    faults.record(A, 0.6)
    assert faults.states()[A] == BrokerHealth(A, 0.6, 30.0, reachable=True)
    faults.record(A, 0.5)
    assert faults.is_available(A)
    assert faults.all_clear


def test_with_java_5_the_longest_time_runs_out() -> None:
    faults, clock = faults_with(LatencyFaultPolicy.JAVA_5)
    faults.failed(A, reachable=True)
    faults.record(A, 0.01)
    assert faults.states()[A] == BrokerHealth(A, 0.01, 10.0, reachable=True)
    faults.record(A, 20.0)
    faults.record(A, 2.0)
    assert faults.states()[A] == BrokerHealth(A, 2.0, 30.0, reachable=True)
    clock.time += 30.0
    assert faults.is_available(A)


def test_an_unreachable_broker_is_avoided_until_it_is_reached() -> None:
    faults, clock = faults_with(LatencyFaultPolicy.JAVA_5)
    faults.failed(A, reachable=False)
    faults.failed(B, reachable=False)
    faults.failed(C, reachable=True)
    assert set(faults.unreachable()) == {A, B}
    clock.time += 3600.0
    assert [faults.is_available(name) for name in (A, B, C)] == [False, False, True]
    faults.reached(A)
    assert faults.is_available(A)
    faults.record(B, 0.01)
    assert faults.is_available(B), "an answer to a send shows it as well"
    assert set(faults.unreachable()) == set()


def test_a_broker_that_is_reached_again_is_avoided_until_its_time_is_over() -> None:
    faults, clock = faults_with(LatencyFaultPolicy.JAVA_5)
    faults.failed(A, reachable=False)
    faults.reached(A)
    assert (faults.is_reachable(A), faults.is_available(A)) == (True, False)
    clock.time += 10.0
    assert faults.is_available(A)
    faults.reached(B)
    assert B not in faults.states(), "it had no entry"


def test_without_detection_every_broker_counts_as_reachable() -> None:
    faults, clock = faults_with(LatencyFaultPolicy.JAVA_4)
    faults.failed(A, reachable=False)
    assert faults.is_reachable(A)
    assert not faults.unreachable()
    clock.time += 600.0
    assert faults.is_available(A)


def test_brokers_without_a_route_are_forgotten() -> None:
    faults, _ = faults_with(LatencyFaultPolicy.JAVA_5)
    for name in (A, B, C):
        faults.failed(name, reachable=False)
    faults.forget([B, D])
    assert set(faults.states()) == set(faults.unreachable()) == {B}


def test_the_better_half_is_used_round_robin() -> None:
    faults, _ = faults_with(LatencyFaultPolicy.JAVA_4)
    for name, latency in ((A, 2.0), (B, 1.0), (C, 20.0), (D, 0.6)):
        faults.record(name, latency)
    assert {faults.one_of_the_better([A, B, C, D]) for _ in range(4)} == {D, B}
    first, second = faults.one_of_the_better([A, B, C, D]), faults.one_of_the_better([A, B, C, D])
    assert first != second
    assert {faults.one_of_the_better([A, B, C]) for _ in range(4)} == {B}
    assert faults.one_of_the_better([C]) == C
    assert faults.one_of_the_better([]) is None


def test_of_equally_slow_brokers_the_one_available_sooner_is_better() -> None:
    faults, clock = faults_with(LatencyFaultPolicy.JAVA_4)
    faults.failed(B, reachable=True)
    clock.time += 1.0
    faults.failed(A, reachable=True)
    assert faults.one_of_the_better([A, B]) == B
    clock.time += 1.0
    faults.failed(B, reachable=True)
    assert faults.one_of_the_better([A, B]) == A, "two that fail are used round robin"


def test_available_brokers_rank_first() -> None:
    faults, clock = faults_with(LatencyFaultPolicy.JAVA_4)
    faults.record(A, 3.0)
    clock.time += 170.0
    faults.record(B, 0.6)
    clock.time += 10.0
    assert faults.one_of_the_better([A, B]) == A


def test_unreachable_brokers_are_never_the_better_ones() -> None:
    faults, _ = faults_with(LatencyFaultPolicy.JAVA_5)
    faults.failed(A, reachable=False)
    faults.record(B, 20.0)
    assert {faults.one_of_the_better([A, B]) for _ in range(3)} == {B}
    assert faults.one_of_the_better([A]) is None


def test_an_avoided_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    faults, _ = faults_with(LatencyFaultPolicy.JAVA_5)
    with caplog.at_level(logging.INFO, "rocketmq_py.producer"):
        for _ in range(100):
            faults.failed(A, reachable=False)
        faults.reached(A)
        faults.reached(A)
    assert [record.message for record in caplog.records] == [
        "avoiding broker: broker=broker-a seconds=10 latency=10.000",
        "broker is reachable again: broker=broker-a",
    ]


@attrs.define
class JavaItem:
    """Java's entry of a broker. Healthy brokers have one, too."""

    latency: float = 0.0
    start: float = 0.0
    reachable: bool = True


class ComparedWithJava(RuleBasedStateMachine):
    """Compares the table with Java's, which has an entry for every broker that ever answered."""

    names = (A, B, C, D)

    @initialize(
        policy=st.sampled_from(
            [
                LatencyFaultPolicy.JAVA_4,
                LatencyFaultPolicy.JAVA_5,
                attrs.evolve(LatencyFaultPolicy.JAVA_5, detect=False),
            ]
        )
    )
    def begin(self, policy: LatencyFaultPolicy) -> None:
        self.faults, self.clock = faults_with(policy)
        self.policy = policy
        self.model: dict[str, JavaItem] = {}

    def update(self, name: str, latency: float, seconds: float, reachable: bool) -> None:
        item = self.model.setdefault(name, JavaItem())
        item.latency = latency
        if self.policy.latest_decides:
            item.start = self.clock.time + seconds
        elif seconds > 0:
            item.start = max(item.start, self.clock.time + seconds)
        item.reachable = reachable or not self.policy.detect

    def available(self, name: str) -> bool:
        item = self.model.get(name, JavaItem())
        return self.clock.time >= item.start and item.reachable

    @rule(name=st.sampled_from(names), latency=st.sampled_from([0.0, 0.25, 0.55, 1.0, 2.0, 5.0, 20.0]))
    def record(self, name: str, latency: float) -> None:
        self.faults.record(name, latency)
        self.update(name, latency, unavailable_for(self.policy, latency), reachable=True)

    @rule(name=st.sampled_from(names), reachable=st.booleans())
    def failed(self, name: str, reachable: bool) -> None:
        self.faults.failed(name, reachable=reachable)
        latency = self.policy.error_latency
        self.update(name, latency, unavailable_for(self.policy, latency), reachable)

    @rule(name=st.sampled_from(names))
    def reached(self, name: str) -> None:
        self.faults.reached(name)
        self.model.setdefault(name, JavaItem()).reachable = True

    @rule(known=st.sets(st.sampled_from(names)))
    def forget(self, known: set[str]) -> None:
        self.faults.forget(known)
        self.model = {name: item for name, item in self.model.items() if name in known}

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 10.0, 30.0, 570.0, 600.0]))
    def wait(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule(names=st.sets(st.sampled_from(names)))
    def better_half(self, names: set[str]) -> None:
        chosen = self.faults.one_of_the_better(names)
        reachable = [name for name in names if self.model.get(name, JavaItem()).reachable]
        if not reachable:
            assert chosen is None
            return
        assert chosen in reachable
        if any(self.available(name) for name in reachable):
            # Java uses it only if there is no entry.
            assert len(reachable) > 3 or self.available(chosen)
            return
        rank = sorted(reachable, key=lambda name: (self.model[name].latency, self.model[name].start))
        worst_of_the_half = self.model[rank[max(len(rank) // 2, 1) - 1]]
        item = self.model[chosen]
        assert (item.latency, item.start) <= (worst_of_the_half.latency, worst_of_the_half.start)

    @invariant()
    def same(self) -> None:
        states = self.faults.states()
        for name in self.names:
            item = self.model.get(name, JavaItem())
            assert self.faults.is_available(name) == self.available(name)
            assert self.faults.is_reachable(name) == item.reachable
            assert (name in self.faults.unreachable()) == (not item.reachable)
            if not self.available(name):
                left = max(item.start - self.clock.time, 0.0)
                assert states[name] == BrokerHealth(name, item.latency, left, item.reachable)
        assert set(states) <= set(self.model)
        assert self.faults.all_clear == (not states)


TestComparedWithJava = ComparedWithJava.TestCase
