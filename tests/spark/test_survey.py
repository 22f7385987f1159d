"""Which queues there are, and which are away or lost."""

from __future__ import annotations

import logging

import pytest

from rocketmq_py.errors import (
    ConfigurationError,
    ConnectError,
    NameServerError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.spark.options import Use
from rocketmq_py.spark.planning import Loss
from rocketmq_py.spark.positions import Edge, Positions
from rocketmq_py.spark.source_options import SourceOptions
from rocketmq_py.spark.survey import ABSENCE_SECONDS, PAUSES, Absences, Survey, check_named
from tests.spark.clusters import PlainCluster, queue

RANGES = {
    queue(queue_id=0): (0, 9),
    queue(queue_id=1): (3, 4),
    queue("payments"): (0, 1),
    queue("more"): (0, 1),
}


def survey(cluster: PlainCluster, waits: list[float] | None = None, **options: str) -> Survey:
    read = SourceOptions.read({"nameServer": "ns:9876", **options}, Use.READ_STREAM)
    return Survey(cluster, read, sleep=(waits if waits is not None else []).append)


def test_topics_by_name() -> None:
    found = survey(PlainCluster(RANGES), topic="orders,payments").first_look()
    assert found == {each: ends for each, ends in RANGES.items() if each.topic != "more"}


def test_topics_by_pattern_must_match_to_the_end() -> None:
    cluster = PlainCluster({**RANGES, queue("moreover"): (0, 1)})
    one = survey(cluster, topicPattern="more|pay.*")
    assert sorted([each.topic for each in one.first_look()]) == ["more", "payments"]
    cluster.ranges[queue("paywall")] = (0, 5)
    assert sorted([each.topic for each in one.look()]) == ["more", "payments", "paywall"]


def test_assigned_queues_only() -> None:
    one = survey(PlainCluster(RANGES), assign='{"orders": {"broker-a": [1]}}')
    assert one.first_look() == {queue(queue_id=1): (3, 4)}


def test_assigned_queues_that_do_not_exist() -> None:
    cluster = PlainCluster(RANGES)
    one = survey(cluster, assign='{"orders": {"broker-a": [1, 7], "broker-x": [0]}}')
    with pytest.raises(ConfigurationError, match="do not exist: orders broker-a 7, orders broker-x 0"):
        one.first_look()
    assert one.look() == {queue(queue_id=1): (3, 4)}


def test_a_topic_must_be_there_at_first_and_may_be_away_later() -> None:
    cluster = PlainCluster(RANGES)
    one = survey(cluster, topic="orders,none")
    with pytest.raises(TopicNotFoundError, match="none"):
        one.first_look()
    assert {each.topic for each in one.look()} == {"orders"}


def test_who_does_not_answer_is_asked_again_once_the_cluster_was_reached() -> None:
    waits: list[float] = []
    cluster = PlainCluster(RANGES)
    one = survey(cluster, waits, topic="orders")
    one.first_look()
    cluster.failures = [ConnectError("b:1", "refused"), NameServerError({"ns:1": "gone"})]
    assert len(one.look()) == 2
    assert waits == list(PAUSES[:2])
    cluster.failures = [ConnectError("b:1", "refused") for _ in range(len(PAUSES) + 1)]
    with pytest.raises(ConnectError):
        one.look()
    assert waits[2:] == list(PAUSES)
    assert sum(PAUSES) == ABSENCE_SECONDS


def test_a_cluster_that_was_never_reached_is_not_waited_for() -> None:
    waits: list[float] = []
    cluster = PlainCluster(RANGES)
    cluster.failures = [NameServerError({"ns:1": "gone"})]
    with pytest.raises(NameServerError):
        survey(cluster, waits, topic="orders").look()
    assert waits == []


def test_what_no_second_try_mends_is_not_tried_again() -> None:
    waits: list[float] = []
    cluster = PlainCluster(RANGES)
    one = survey(cluster, waits, topic="orders")
    one.first_look()
    cluster.failures = [RocketMQError("no")]
    with pytest.raises(RocketMQError, match="no"):
        one.look()
    assert waits == []


def test_names_that_do_not_exist_are_told() -> None:
    positions = Positions(Edge.LATEST, {("orders", "broker-a", 7): 1, ("orders", "broker-a", 0): 1})
    with pytest.raises(ConfigurationError, match="name what does not exist: orders broker-a 7"):
        check_named(positions, RANGES)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


A0, A1, B0 = queue(queue_id=0), queue(queue_id=1), queue(broker="broker-b")
PLACES = {A0: 5, A1: 5, B0: 5}
ALL = {A0: (0, 9), A1: (0, 9), B0: (0, 9)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def absences(clock: Clock) -> Absences:
    return Absences(60.0, clock=clock)


def test_nothing_is_lost_while_all_is_there(absences: Absences) -> None:
    assert absences.losses(PLACES, ALL) == []


def test_a_queue_whose_broker_still_serves_the_topic_is_lost(absences: Absences) -> None:
    absences.losses(PLACES, ALL)
    assert absences.losses(PLACES, {A0: (0, 9), B0: (0, 9)}) == [
        Loss(A1, 5, 9, "the queue was deleted, or may no longer be read")
    ]


def test_a_broker_may_be_away_for_a_while(absences: Absences, clock: Clock) -> None:
    absences.losses(PLACES, ALL)
    rest = {A0: (0, 9), A1: (0, 9)}
    assert absences.losses(PLACES, rest) == []
    clock.now = 59.0
    assert absences.losses(PLACES, rest) == []
    absences.losses(PLACES, ALL)  # it is back: the time begins anew
    clock.now = 118.0
    assert absences.losses(PLACES, rest) == []
    clock.now = 178.0
    assert absences.losses(PLACES, rest) == [Loss(B0, 5, 9, "its topic was deleted, or its broker is away")]


def test_what_the_options_no_longer_name_is_not_waited_for() -> None:
    absences = Absences(60.0, named=lambda queue: queue != B0)
    cause = "the checkpoint names it, and the options no longer do"
    assert absences.losses(PLACES, {A0: (0, 9)}) == [
        Loss(A1, 5, None, "the queue was deleted, or may no longer be read"),
        Loss(B0, 5, None, cause),
    ]
    assert absences.losses(PLACES, {A0: (0, 9)}) == []


def test_a_loss_is_told_once_until_the_queue_is_back(absences: Absences) -> None:
    rest = {A0: (0, 9), B0: (0, 9)}
    assert len(absences.losses(PLACES, rest)) == 1
    assert absences.losses(PLACES, rest) == []
    absences.losses(PLACES, ALL)
    assert len(absences.losses(PLACES, rest)) == 1


def test_what_was_read_to_the_end_is_not_lost(absences: Absences, clock: Clock) -> None:
    absences.losses({**PLACES, B0: 9, A1: 9}, ALL)
    clock.now = 1000.0
    assert absences.losses({**PLACES, B0: 9, A1: 9}, {A0: (0, 9)}) == []


def test_of_a_queue_that_was_never_seen_nobody_knows_the_end(absences: Absences, clock: Clock) -> None:
    assert absences.losses(PLACES, {}) == []
    clock.now = 60.0
    assert [(loss.queue, loss.first, loss.end) for loss in absences.losses(PLACES, {})] == [
        (A0, 5, None), (A1, 5, None), (B0, 5, None),
    ]  # fmt: skip


def test_who_does_not_wait_does_not_say_so(absences: Absences, caplog: pytest.LogCaptureFixture) -> None:
    absences.patience = 0.0
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        assert len(absences.losses(PLACES, {A0: (0, 9)})) == 2
    assert caplog.records == []


def test_an_absence_is_logged_once(absences: Absences, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        for _ in range(3):
            absences.losses(PLACES, {A0: (0, 9), A1: (0, 9)})
    (record,) = caplog.records
    assert "broker-b" in record.getMessage()
