"""RemoteOffsetStore commits offsets to brokers, and StartingOffsets looks up where a group starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client, Position
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.offset_commits import RemoteOffsetStore, StartingOffsets
from rocketmq_py.errors import BrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.position import PositionKind
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedCluster, scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 1)
OTHER = MessageQueue("T", "broker-a", 2)
RETRIES = MessageQueue("%RETRY%g", "broker-a", 0)

# The offsets that the scripted broker reports for every queue.
MAX_OFFSET, OFFSET_AT_TIME = 100, 40


@attrs.define
class Broker:
    """A broker that answers offset queries, and records commits.

    Attributes:
        committed: the offset of all queues. None if the group is unknown.
        refuse: whether all requests get an error response.
        hold_commits: whether commits are answered only by :meth:`release`.
        held: the commits to be answered.
        commits: topic, queue number and offset of each commit, and whether it was oneway.
        requests: all requests.
    """

    committed: int | None = None
    refuse: bool = False
    hold_commits: bool = False
    held: list[tuple[Connection, Command]] = attrs.field(factory=list)
    commits: list[tuple[str, str, int, bool]] = attrs.field(factory=list)
    requests: list[Command] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        self.requests.append(request)
        fields = request.fields
        if self.refuse:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")
        elif request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            commit = fields["topic"], fields["queueId"], int(fields["commitOffset"]), request.is_oneway
            self.commits.append(commit)
            if self.hold_commits:
                self.held.append((connection, request))
            else:
                connection.respond(request, ResponseCode.SUCCESS)
        elif request.code == RequestCode.QUERY_CONSUMER_OFFSET and self.committed is None:
            connection.respond(request, ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        else:
            offset = {
                RequestCode.QUERY_CONSUMER_OFFSET: self.committed,
                RequestCode.GET_MAX_OFFSET: MAX_OFFSET,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: OFFSET_AT_TIME,
            }[RequestCode(request.code)]
            connection.respond(request, ResponseCode.SUCCESS, {"offset": str(offset)})

    def release(self) -> None:
        """Answer the held commits."""
        held, self.held = self.held, []
        for connection, request in held:
            connection.respond(request, ResponseCode.SUCCESS)


@asynccontextmanager
async def offsets_of(
    broker: Broker,
) -> AsyncIterator[tuple[RemoteOffsetStore, Client, ScriptedCluster]]:
    async with scripted_cluster(broker) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        yield RemoteOffsetStore(core_of(client), "g"), client, cluster


@pytest.mark.parametrize(
    ("consume_from", "queue", "expected"),
    [
        # The results of Java's RebalancePushImpl, except for the last one.
        (Position.latest, QUEUE, MAX_OFFSET),
        (Position.latest, RETRIES, 0),
        (Position.earliest, QUEUE, 0),
        (Position.earliest, RETRIES, 0),
        (Position(PositionKind.TIME, 1234), QUEUE, OFFSET_AT_TIME),
        (Position(PositionKind.TIME, 1234), RETRIES, 0),
    ],
)
async def test_start_of_a_new_group(consume_from: Position, queue: MessageQueue, expected: int) -> None:
    broker = Broker()
    async with offsets_of(broker) as (offsets, client, _):
        starts = StartingOffsets(core_of(client), offsets, consume_from)
        assert await starts.of(queue) == expected
        broker.committed = 7
        assert await starts.of(queue) == 7
    searches = [
        request for request in broker.requests if request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    ]
    assert {request.fields["timestamp"] for request in searches} <= {"1234"}


@pytest.mark.parametrize("uncommitted", [None, 0], ids=["unknown", "zero for a new group"])
async def test_a_chosen_start_is_kept_until_an_offset_is_committed(
    uncommitted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([10, 50, 90])
    broker = Broker()
    async with offsets_of(broker) as (offsets, client, _):

        async def max_offset(_: MessageQueue) -> int:
            return next(ends)

        monkeypatch.setattr(core_of(client).brokers, "max_offset", max_offset)
        starts = StartingOffsets(core_of(client), offsets, Position.latest)
        assert await starts.of(QUEUE) == 10
        broker.committed = uncommitted
        assert await starts.of(QUEUE) == 10, "messages have come in between"
        starts.moved(QUEUE, 4)
        assert await starts.of(QUEUE) == 4
        broker.committed = 20
        assert await starts.of(QUEUE) == 20
        broker.committed = None
        assert await starts.of(QUEUE) == 50


@pytest.mark.parametrize("last", [0, 105])
@pytest.mark.parametrize("oneway", [False, True])
async def test_a_group_that_was_reset_to_zero_starts_there(oneway: bool, last: int) -> None:
    """A zero means a new group only as long as the group has not committed an offset."""
    broker = Broker()
    async with offsets_of(broker) as (offsets, client, _):
        starts = StartingOffsets(core_of(client), offsets, Position.latest)
        assert await starts.of(QUEUE) == MAX_OFFSET
        if oneway:
            offsets.update(OTHER, 5)
            await offsets.commit_and_wait([OTHER])  # the first commit for a topic is never oneway
        offsets.update(QUEUE, last)
        await offsets.commit([QUEUE])
        offsets.forget(QUEUE)  # revoked
        broker.committed = 0
        assert await starts.of(QUEUE) == 0
        broker.committed = None  # the broker has lost its offsets
        assert await starts.of(QUEUE) == MAX_OFFSET


async def test_an_offset_is_committed_again_after_a_failed_commit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After the failure it is unknown which offset the broker has, even if it was confirmed before."""
    broker = Broker(committed=5)
    async with offsets_of(broker) as (offsets, _, _):
        await offsets.read(QUEUE)
        broker.refuse = True
        offsets.update(QUEUE, 7)
        assert list(await offsets.commit_and_wait([QUEUE])) == [QUEUE]
        broker.refuse = False
        offsets.update(QUEUE, 5)
        assert await offsets.commit_and_wait([QUEUE]) == {}
        assert [offset for *_, offset, _ in broker.commits] == [5]
        assert await offsets.commit_and_wait([QUEUE]) == {}
        assert len(broker.commits) == 1


@pytest.mark.parametrize(
    "consume_from", [Position.earliest, Position.latest, Position(PositionKind.TIME, 1234)]
)
async def test_brokers_may_answer_zero_to_new_groups_unless_a_time_is_given(
    consume_from: Position,
) -> None:
    broker = Broker(committed=0)
    async with offsets_of(broker) as (offsets, client, _):
        await StartingOffsets(core_of(client), offsets, consume_from).of(QUEUE)
    requested = broker.requests[0].fields.get("setZeroIfNotFound")
    assert requested == ("false" if consume_from == Position(PositionKind.TIME, 1234) else None)


async def test_starting_offset_raises_the_error_of_the_broker() -> None:
    async with offsets_of(Broker(refuse=True)) as (offsets, client, _):
        with pytest.raises(BrokerError, match="scripted"):
            await StartingOffsets(core_of(client), offsets, Position.latest).of(QUEUE)


async def wait_for_broker(client: Client) -> None:
    """Wait until the broker has processed all earlier requests."""
    await core_of(client).brokers.max_offset(QUEUE)


async def test_commit_sends_changed_offsets_oneway() -> None:
    broker = Broker(committed=5)
    async with offsets_of(broker) as (offsets, client, _):
        await offsets.read(QUEUE)
        offsets.update(QUEUE, 5)
        await offsets.commit()
        assert broker.commits == []
        offsets.update(QUEUE, 8)
        offsets.update(OTHER, 3)
        for _ in range(2):
            await offsets.commit()
        await wait_for_broker(client)
        assert broker.commits == [("T", "1", 8, True), ("T", "2", 3, True)]
        offsets.update(QUEUE, 6)  # an offset can decrease after the broker has lost messages
        offsets.update(OTHER, 4)
        await offsets.commit([QUEUE])
        await wait_for_broker(client)
        assert broker.commits[2:] == [("T", "1", 6, True)]


async def test_commit_and_wait_commits_all_unconfirmed_offsets() -> None:
    broker = Broker(committed=5)
    async with offsets_of(broker) as (offsets, _, _):
        await offsets.read(QUEUE)
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 3)
        await offsets.commit()
        await offsets.commit_and_wait()
        assert broker.commits == [("T", "2", 3, True), ("T", "2", 3, False)]
        await offsets.commit_and_wait()
        assert len(broker.commits) == 2


async def test_unchanged_offsets_are_committed_every_minute(
    jumping_clock: trio.testing.MockClock,
) -> None:
    """A killed broker has lost its last commits, and does not report this."""
    broker = Broker(committed=5)
    async with offsets_of(broker) as (offsets, client, _):
        await offsets.open()
        await offsets.read(QUEUE)
        offsets.update(QUEUE, 5)
        for _ in range(25):
            await offsets.commit()
            await offsets.commit_and_wait()
            await trio.sleep(5)
        await wait_for_broker(client)
        assert broker.commits == [("T", "1", 5, True)] * 2


async def test_the_first_commit_for_a_topic_awaits_its_response() -> None:
    """A broker that receives several first commits at once keeps only one of them."""
    broker = Broker()
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    async with offsets_of(broker) as (offsets, client, _):
        for queue in queues:
            assert not offsets.may_commit_by_pull(queue)
            offsets.update(queue, 9)
        await offsets.commit()
        await wait_for_broker(client)
        assert broker.commits == [("T", "0", 9, False)] + [
            ("T", str(number), 9, True) for number in (1, 2, 3)
        ]
        assert all(offsets.may_commit_by_pull(queue) for queue in queues)
        assert not offsets.may_commit_by_pull(RETRIES)


async def test_commit_and_wait_sends_the_first_commit_alone() -> None:
    broker = Broker()
    async with offsets_of(broker) as (offsets, _, _):
        for number in range(4):
            offsets.update(MessageQueue("T", "broker-a", number), 9)
        broker.hold_commits = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets.commit_and_wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(broker.held) == 1
            broker.release()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(broker.held) == 3
            broker.release()
    assert sorted(broker.commits) == [("T", str(number), 9, False) for number in range(4)]


async def test_concurrent_commits_send_the_first_commit_alone() -> None:
    """Orderly consumers commit each revoked queue by itself, at the same time as the periodic commits."""
    broker = Broker()
    queues = [MessageQueue("T", "broker-a", number) for number in range(3)]
    async with offsets_of(broker) as (offsets, _, _):
        for queue in queues:
            offsets.update(queue, 9)
        broker.hold_commits = True
        async with trio.open_nursery() as nursery:
            for queue in queues:
                nursery.start_soon(offsets.commit_and_wait, [queue])
            for waiting in (1, 2):  # the first creates the entry, then the others go together
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert len(broker.held) == waiting
                broker.release()
    assert sorted(broker.commits) == [("T", str(number), 9, False) for number in range(3)]


async def test_offsets_are_committed_again_after_a_failover() -> None:
    """A killed master may not have replicated the group's entry. The same holds when it returns."""
    master, replica = Broker(), Broker()
    async with scripted_cluster(master, replica) as cluster, Client(cluster.address) as client:
        first, second = cluster.brokers.values()
        offsets = RemoteOffsetStore(core_of(client), "g")
        await core_of(client).routes.get("T")
        for number in range(3):
            offsets.update(MessageQueue("T", "broker-a", number), 9)
        await offsets.commit()
        await wait_for_broker(client)
        del master.commits[:]
        for server, broker, is_new in ((second, replica, True), (first, master, False)):
            cluster.brokers = {"broker-a": server}
            await core_of(client).routes.refresh("T")
            assert offsets.may_commit_by_pull(QUEUE) != is_new
            for _ in range(2):
                await offsets.commit()
            await wait_for_broker(client)
            assert broker.commits == [
                ("T", str(number), 9, not (is_new and number == 0)) for number in range(3)
            ]


async def test_offsets_of_a_missing_broker_are_committed_only_if_they_change(
    caplog: pytest.LogCaptureFixture, jumping_clock: trio.testing.MockClock
) -> None:
    """Offsets that the broker has confirmed need no commit, so they cause no failure."""
    broker = Broker()
    async with offsets_of(broker) as (offsets, _, cluster):
        offsets.update(QUEUE, 9)
        await offsets.commit_and_wait()
        cluster.brokers = {"broker-b": cluster.brokers["broker-a"]}
        await trio.sleep(65)  # two route refreshes, after which the broker is gone
        assert not offsets.may_commit_by_pull(QUEUE)
        await offsets.commit()
        await offsets.commit_and_wait()
        assert not caplog.records
        offsets.update(QUEUE, 10)
        await offsets.commit()
        await offsets.commit_and_wait()
    (record,) = caplog.records
    assert record.message.endswith("error=the address of the master of broker 'broker-a' is unknown")


@pytest.mark.parametrize(("committed", "may_commit_by_pull"), [(None, False), (0, False), (1, True)])
async def test_a_positive_offset_shows_that_the_broker_has_an_entry(
    committed: int | None, may_commit_by_pull: bool
) -> None:
    async with offsets_of(Broker(committed=committed)) as (offsets, _, _):
        await offsets.read(QUEUE)
        assert offsets.may_commit_by_pull(OTHER) == may_commit_by_pull


async def test_a_queue_can_be_forgotten_during_a_commit() -> None:
    broker = Broker(hold_commits=True)
    async with offsets_of(broker) as (offsets, client, _):
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets.commit)
            await trio.testing.wait_all_tasks_blocked(0.05)
            offsets.forget(OTHER)
            broker.release()
        await wait_for_broker(client)
    assert broker.commits == [("T", "1", 5, False)]


async def test_a_queue_can_be_forgotten_during_the_first_commit() -> None:
    broker = Broker(hold_commits=True)
    async with offsets_of(broker) as (offsets, _, _):
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets.commit_and_wait)
            await trio.testing.wait_all_tasks_blocked(0.05)
            (first,) = broker.commits
            offsets.forget(OTHER if first[1] == "1" else QUEUE)
            broker.release()
    assert broker.commits == [first]


async def test_a_forgotten_queue_is_not_committed() -> None:
    broker = Broker()
    async with offsets_of(broker) as (offsets, _, _):
        offsets.update(QUEUE, 5)
        offsets.forget(QUEUE)
        offsets.forget(OTHER)
        await offsets.commit()
        await offsets.commit([QUEUE])
        await offsets.commit_and_wait()
    assert broker.commits == []


async def test_an_unreachable_broker_is_logged_once_for_all_its_queues(
    caplog: pytest.LogCaptureFixture, jumping_clock: trio.testing.MockClock
) -> None:
    broker = Broker()
    async with offsets_of(broker) as (offsets, _, cluster):
        cluster.brokers["broker-a"].stop()
        await trio.testing.wait_all_tasks_blocked()
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 6)
        await offsets.commit()
    [record] = [record for record in caplog.records if record.name == "rocketmq_py.consumer"]
    assert record.message.startswith(
        "offset commit failed, retrying: group=g broker=broker-a queues=2 error=cannot"
    )


async def test_a_refused_offset_is_committed_again(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(refuse=True)
    async with offsets_of(broker) as (offsets, _, _):
        offsets.update(QUEUE, 5)
        await offsets.commit_and_wait()
        assert "offset commit failed, retrying: group=g broker=broker-a topic=T queue=1" in caplog.text
        assert "scripted" in caplog.text
        broker.refuse = False
        await offsets.commit_and_wait()
    assert broker.commits == [("T", "1", 5, False)]
