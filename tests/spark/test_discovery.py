"""Discovery of queues, and the decision whether missing queues are lost."""

from __future__ import annotations

import logging

import attrs
import pytest

from rocketmq_py import Position
from rocketmq_py.errors import (
    ConfigurationError,
    ConnectError,
    NameServerError,
    NoQueueError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.spark.discovery import (
    BROKER_PATIENCE,
    RETRY_DELAYS,
    LostOffsets,
    MissingQueues,
    QueueDiscovery,
    check_positions_exist,
)
from rocketmq_py.spark.offsets import StreamOffset
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.positions import Positions
from rocketmq_py.spark.source_options import SourceOptions
from tests.spark.fake_clients import FakeOffsetClient, queue, stream_options
from tests.spark.stream_fixtures import Clock, clock

__all__ = ["clock"]  # a fixture

RANGES = {
    queue(queue_id=0): (0, 9),
    queue(queue_id=1): (3, 4),
    queue("payments"): (0, 1),
    queue("more"): (0, 1),
}


def discovery_of(client: FakeOffsetClient, clock: Clock | None = None, **options: str) -> QueueDiscovery:
    """Return a discovery that does not sleep."""
    parsed = SourceOptions.parse({"nameServer": "ns:9876", **options}, Role.STREAM_SOURCE)
    return QueueDiscovery(client, parsed, clock or Clock())


# --- discovery


def test_topics_are_selected_by_name() -> None:
    ranges = discovery_of(FakeOffsetClient(RANGES), topic="orders,payments").initial_ranges()
    assert ranges == {each: ends for each, ends in RANGES.items() if each.topic != "more"}


def test_a_topic_that_may_not_be_read_is_an_error_unless_a_pattern_matches_it() -> None:
    unreadable = NoQueueError("topic 'payments' has no readable queue", "payments")
    client = FakeOffsetClient(RANGES)
    client.failures = [unreadable, unreadable, unreadable]
    by_name = discovery_of(client, topic="orders,payments")
    for ranges in (by_name.initial_ranges, by_name.current_ranges):
        with pytest.raises(NoQueueError, match="'payments' has no readable queue"):
            ranges()
    by_pattern = discovery_of(client, topicPattern=".*")
    assert {each.topic for each in by_pattern.current_ranges()} == {"orders", "more"}


def test_topic_pattern_must_match_the_whole_name() -> None:
    client = FakeOffsetClient({**RANGES, queue("moreover"): (0, 1)})
    discovery = discovery_of(client, topicPattern="more|pay.*")
    assert sorted([each.topic for each in discovery.initial_ranges()]) == ["more", "payments"]
    client.ranges[queue("paywall")] = (0, 5)
    assert sorted([each.topic for each in discovery.current_ranges()]) == ["more", "payments", "paywall"]


def test_topic_that_is_deleted_after_a_pattern_matched_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeOffsetClient(RANGES)
    client.expired = {queue("more")}
    monkeypatch.setattr(client, "topics", lambda: ["deleted", "more", "payments"])
    discovery = discovery_of(client, topicPattern=".*")
    assert discovery.initial_ranges() == {queue("more"): (1, 1), queue("payments"): (0, 1)}


def test_only_assigned_queues_are_selected() -> None:
    discovery = discovery_of(FakeOffsetClient(RANGES), assign='{"orders": {"broker-a": [1]}}')
    assert discovery.initial_ranges() == {queue(queue_id=1): (3, 4)}


def test_assigned_queues_must_exist_at_the_start_only() -> None:
    client = FakeOffsetClient(RANGES)
    discovery = discovery_of(client, assign='{"orders": {"broker-a": [1, 7], "broker-x": [0]}}')
    with pytest.raises(ConfigurationError, match="no such queues: orders broker-a 7, orders broker-x 0"):
        discovery.initial_ranges()
    assert discovery.current_ranges() == {queue(queue_id=1): (3, 4)}


def test_topics_must_exist_at_the_start_only() -> None:
    client = FakeOffsetClient(RANGES)
    discovery = discovery_of(client, topic="orders,none")
    with pytest.raises(TopicNotFoundError, match="none"):
        discovery.initial_ranges()
    assert {each.topic for each in discovery.current_ranges()} == {"orders"}


def test_discovery_retries_once_the_cluster_has_been_reached(clock: Clock) -> None:
    client = FakeOffsetClient(RANGES)
    discovery = discovery_of(client, clock, topic="orders")
    discovery.initial_ranges()
    client.failures = [ConnectError("b:1", "refused"), NameServerError({"ns:1": "gone"})]
    assert len(discovery.current_ranges()) == 2
    assert clock.delays == list(RETRY_DELAYS[:2])
    client.failures = [ConnectError("b:1", "refused") for _ in range(len(RETRY_DELAYS) + 1)]
    with pytest.raises(ConnectError):
        discovery.current_ranges()
    assert clock.delays[2:] == list(RETRY_DELAYS)
    assert sum(RETRY_DELAYS) == BROKER_PATIENCE


def test_discovery_does_not_retry_before_the_cluster_has_been_reached(clock: Clock) -> None:
    client = FakeOffsetClient(RANGES)
    client.failures = [NameServerError({"ns:1": "gone"})]
    with pytest.raises(NameServerError):
        discovery_of(client, clock, topic="orders").current_ranges()
    assert clock.delays == []


def test_discovery_does_not_retry_after_a_fatal_error(clock: Clock) -> None:
    client = FakeOffsetClient(RANGES)
    discovery = discovery_of(client, clock, topic="orders")
    discovery.initial_ranges()
    client.failures = [RocketMQError("no")]
    with pytest.raises(RocketMQError, match="no"):
        discovery.current_ranges()
    assert clock.delays == []


def test_positions_of_queues_that_do_not_exist_are_rejected() -> None:
    positions = Positions(
        Position.latest,
        {("orders", "broker-a", 7): Position.offset(1), ("orders", "broker-a", 0): Position.offset(1)},
    )
    with pytest.raises(ConfigurationError, match="name queues that do not exist: orders broker-a 7"):
        check_positions_exist(positions, RANGES)


# --- missing queues


A0, A1, B0 = queue(queue_id=0), queue(queue_id=1), queue(broker="broker-b")
OFFSETS = StreamOffset({A0: 5, A1: 5, B0: 5})
ALL = {A0: (0, 9), A1: (0, 9), B0: (0, 9)}
DELETED = "the queue was deleted, or is no longer readable"
AWAY = "its topic was deleted, or its broker is away"


@pytest.fixture
def missing_queues(clock: Clock) -> MissingQueues:
    return MissingQueues(stream_options(), clock, patience=60.0)


def test_existing_queues_are_not_lost(missing_queues: MissingQueues) -> None:
    assert missing_queues.check(OFFSETS, ALL) == ([], frozenset())


def test_missing_queue_is_lost_if_its_broker_still_serves_the_topic(missing_queues: MissingQueues) -> None:
    missing_queues.check(OFFSETS, ALL)
    found = missing_queues.check(OFFSETS, {A0: (0, 9), B0: (0, 9)})
    assert found == ([LostOffsets(A1, 5, 9, DELETED)], frozenset({A1}))


def test_queues_of_a_missing_broker_are_lost_once_patience_ends(
    missing_queues: MissingQueues, clock: Clock
) -> None:
    missing_queues.check(OFFSETS, ALL)
    without_b = {A0: (0, 9), A1: (0, 9)}
    assert missing_queues.check(OFFSETS, without_b) == ([], frozenset())
    clock.time = 59.0
    assert missing_queues.check(OFFSETS, without_b) == ([], frozenset())
    missing_queues.check(OFFSETS, ALL)  # the broker is back, which restarts the time
    clock.time = 118.0
    assert missing_queues.check(OFFSETS, without_b) == ([], frozenset())
    clock.time = 178.0
    assert missing_queues.check(OFFSETS, without_b) == ([LostOffsets(B0, 5, 9, AWAY)], frozenset({B0}))


def test_queues_that_the_options_no_longer_select_are_lost_at_once(clock: Clock) -> None:
    options = SourceOptions.parse(
        {"nameServer": "ns:9876", "assign": '{"orders": {"broker-a": [0, 1]}}'}, Role.STREAM_SOURCE
    )
    missing_queues = MissingQueues(options, clock, patience=60.0)
    cause = "the checkpoint contains the queue, but the options no longer select it"
    losses, gone = missing_queues.check(OFFSETS, {A0: (0, 9)})
    assert losses == [LostOffsets(A1, 5, None, DELETED), LostOffsets(B0, 5, None, cause)]
    assert gone == {A1, B0}


def test_loss_is_returned_once_until_the_queue_is_back(missing_queues: MissingQueues) -> None:
    without_a1 = {A0: (0, 9), B0: (0, 9)}
    losses, gone = missing_queues.check(OFFSETS, without_a1)
    assert len(losses) == 1
    accepted = attrs.evolve(OFFSETS, gone=gone)
    assert missing_queues.check(accepted, without_a1) == ([], frozenset({A1}))
    assert missing_queues.check(accepted, ALL) == ([], frozenset())
    assert len(missing_queues.check(OFFSETS, without_a1)[0]) == 1


def test_queue_that_was_read_to_its_end_is_gone_without_a_loss(
    missing_queues: MissingQueues, clock: Clock
) -> None:
    start = StreamOffset({A0: 5, A1: 9, B0: 9})
    missing_queues.check(start, ALL)
    missing_queues.can_wait = False  # the next run may find the broker
    assert missing_queues.check(start, {A0: (0, 9)}) == ([], frozenset({A1}))
    clock.time = 60.0
    assert missing_queues.check(start, {A0: (0, 9)}) == ([], frozenset({A1, B0}))


def test_replica_that_lags_behind_hides_no_unread_messages(
    missing_queues: MissingQueues, clock: Clock
) -> None:
    missing_queues.check(OFFSETS, ALL)
    missing_queues.check(OFFSETS, {A0: (0, 9), A1: (0, 9), B0: (0, 5)}, {"broker-b"})
    without_b = {A0: (0, 9), A1: (0, 9)}
    missing_queues.check(OFFSETS, without_b)
    clock.time = 60.0
    assert missing_queues.check(OFFSETS, without_b)[0] == [LostOffsets(B0, 5, 9, AWAY)]
    missing_queues.check(OFFSETS, {A0: (0, 9), A1: (0, 9), B0: (0, 5)})  # the master itself has lost messages
    missing_queues.check(OFFSETS, without_b)
    clock.time = 120.0
    assert missing_queues.check(OFFSETS, without_b) == ([], frozenset({B0}))


def test_loss_of_a_queue_that_was_never_seen_has_no_end(missing_queues: MissingQueues, clock: Clock) -> None:
    assert missing_queues.check(OFFSETS, {}) == ([], frozenset())
    clock.time = 60.0
    assert [(loss.queue, loss.first, loss.end) for loss in missing_queues.check(OFFSETS, {})[0]] == [
        (A0, 5, None), (A1, 5, None), (B0, 5, None),
    ]  # fmt: skip


def test_no_wait_is_logged_if_the_run_cannot_wait(
    missing_queues: MissingQueues, caplog: pytest.LogCaptureFixture
) -> None:
    missing_queues.can_wait = False
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        assert len(missing_queues.check(OFFSETS, {A0: (0, 9)})[0]) == 2
    assert caplog.records == []


def test_wait_for_a_missing_queue_is_logged_once(
    missing_queues: MissingQueues, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        for _ in range(3):
            missing_queues.check(OFFSETS, {A0: (0, 9), A1: (0, 9)})
    (record,) = caplog.records
    assert record.getMessage() == (
        "queue missing topic=orders broker=broker-b queue=0: its broker is away; waiting up to 60 s for its "
        "messages from offset 5 on"
    )
