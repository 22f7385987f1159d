from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.config import ConsumeFrom
from rocketmq_py.consumer.group.offset_store import RemoteOffsetStore, starting_offset
from rocketmq_py.errors import BrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedCluster, scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 1)
OTHER = MessageQueue("T", "broker-a", 2)
RETRIES = MessageQueue("%RETRY%g", "broker-a", 0)

# What the scripted broker says of every queue.
LAST, AT_TIME = 100, 40


@attrs.define
class Offsets:
    """Answers what consumers ask about offsets; keeps what they commit."""

    committed: int | None = None
    refuse: bool = False
    hold_commits: bool = False
    held: list[tuple[Connection, Command]] = attrs.field(factory=list)
    commits: list[tuple[str, str, int, bool]] = attrs.field(factory=list)
    asked: list[Command] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        self.asked.append(request)
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
                RequestCode.GET_MAX_OFFSET: LAST,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: AT_TIME,
            }[RequestCode(request.code)]
            connection.respond(request, ResponseCode.SUCCESS, {"offset": str(offset)})

    def release(self) -> None:
        """Answer the commits that are held."""
        held, self.held = self.held, []
        for connection, request in held:
            connection.respond(request, ResponseCode.SUCCESS)


@asynccontextmanager
async def offsets_of(
    broker: Offsets,
) -> AsyncIterator[tuple[RemoteOffsetStore, Client, ScriptedCluster]]:
    async with scripted_cluster(broker) as cluster, Client(cluster.address) as client:
        await client.routes.get("T")
        yield RemoteOffsetStore(client, "g"), client, cluster


@pytest.mark.parametrize(
    ("consume_from", "queue", "expected"),
    [
        # As Java's RebalancePushImpl computes it.
        (ConsumeFrom.LAST, QUEUE, LAST),
        (ConsumeFrom.LAST, RETRIES, 0),
        (ConsumeFrom.FIRST, QUEUE, 0),
        (ConsumeFrom.FIRST, RETRIES, 0),
        (ConsumeFrom.TIMESTAMP, QUEUE, AT_TIME),
        (ConsumeFrom.TIMESTAMP, RETRIES, LAST),
    ],
)
async def test_where_a_group_begins(consume_from: ConsumeFrom, queue: MessageQueue, expected: int) -> None:
    broker = Offsets()
    async with offsets_of(broker) as (offsets, client, _):
        assert await starting_offset(client, offsets, queue, consume_from, 1234) == expected
        broker.committed = 7
        assert await starting_offset(client, offsets, queue, consume_from, 1234) == 7
    searches = [request for request in broker.asked if request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP]
    assert {request.fields["timestamp"] for request in searches} <= {"1234"}


async def test_a_commit_after_one_that_failed_is_sent_and_has_its_own_outcome(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The offset that was confirmed before the failure: nobody knows what the broker has now."""
    broker = Offsets(committed=5)
    async with offsets_of(broker) as (offsets, _, _):
        await offsets.read(QUEUE)
        broker.refuse = True
        offsets.update(QUEUE, 7)
        assert list(await offsets.confirm([QUEUE])) == [QUEUE]
        broker.refuse = False
        offsets.update(QUEUE, 5)
        assert await offsets.confirm([QUEUE]) == {}
        assert [offset for *_, offset, _ in broker.commits] == [5]
        assert await offsets.confirm([QUEUE]) == {}
        assert len(broker.commits) == 1


@pytest.mark.parametrize("consume_from", ConsumeFrom)
async def test_a_broker_may_choose_the_beginning_unless_a_time_was_given(consume_from: ConsumeFrom) -> None:
    broker = Offsets(committed=0)
    async with offsets_of(broker) as (offsets, client, _):
        await starting_offset(client, offsets, QUEUE, consume_from, 1234)
    wished = broker.asked[0].fields.get("setZeroIfNotFound")
    assert wished == ("false" if consume_from is ConsumeFrom.TIMESTAMP else None)


async def test_where_to_begin_cannot_be_asked() -> None:
    async with offsets_of(Offsets(refuse=True)) as (offsets, client, _):
        with pytest.raises(BrokerError, match="scripted"):
            await starting_offset(client, offsets, QUEUE, ConsumeFrom.LAST, 0)


async def drained(client: Client) -> None:
    """Return when the broker has worked off what it was sent before."""
    await client.brokers.max_offset(QUEUE)


async def test_only_what_has_changed_is_written_and_without_an_answer() -> None:
    broker = Offsets(committed=5)
    async with offsets_of(broker) as (offsets, client, _):
        await offsets.read(QUEUE)
        offsets.update(QUEUE, 5)
        await offsets.write()
        assert broker.commits == []
        offsets.update(QUEUE, 8)
        offsets.update(OTHER, 3)
        for _ in range(2):
            await offsets.write()
        await drained(client)
        assert broker.commits == [("T", "1", 8, True), ("T", "2", 3, True)]
        offsets.update(QUEUE, 6)  # an offset may go back: the broker has lost messages
        offsets.update(OTHER, 4)
        await offsets.write([QUEUE])
        await drained(client)
        assert broker.commits[2:] == [("T", "1", 6, True)]


async def test_at_the_end_everything_that_no_broker_has_confirmed_is_written_again() -> None:
    broker = Offsets(committed=5)
    async with offsets_of(broker) as (offsets, _, _):
        await offsets.read(QUEUE)
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 3)
        await offsets.write()
        await offsets.confirm()
        assert broker.commits == [("T", "2", 3, True), ("T", "2", 3, False)]
        await offsets.confirm()
        assert len(broker.commits) == 2


async def test_offsets_are_written_every_minute_although_they_have_not_changed(
    jumping_clock: trio.testing.MockClock,
) -> None:
    """A broker that was killed has lost the last ones, and says nothing of it."""
    broker = Offsets(committed=5)
    async with offsets_of(broker) as (offsets, client, _):
        await offsets.open()
        await offsets.read(QUEUE)
        offsets.update(QUEUE, 5)
        for _ in range(25):
            await offsets.write()
            await offsets.confirm()
            await trio.sleep(5)
        await drained(client)
        assert broker.commits == [("T", "1", 5, True)] * 2


async def test_the_first_commits_of_a_group_are_made_one_after_the_other() -> None:
    """A broker that gets several at the same time keeps one."""
    broker = Offsets()
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    async with offsets_of(broker) as (offsets, client, _):
        for queue in queues:
            assert not offsets.has_entry(queue)
            offsets.update(queue, 9)
        await offsets.write()
        await drained(client)
        assert broker.commits == [("T", "0", 9, False)] + [
            ("T", str(number), 9, True) for number in (1, 2, 3)
        ]
        assert all(offsets.has_entry(queue) for queue in queues)
        assert not offsets.has_entry(RETRIES)


async def test_the_first_commits_at_the_end() -> None:
    broker = Offsets()
    async with offsets_of(broker) as (offsets, _, _):
        for number in range(4):
            offsets.update(MessageQueue("T", "broker-a", number), 9)
        broker.hold_commits = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets.confirm)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(broker.held) == 1
            broker.release()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(broker.held) == 3
            broker.release()
    assert sorted(broker.commits) == [("T", str(number), 9, False) for number in range(4)]


async def test_the_first_commits_of_queues_that_are_given_up_at_the_same_time() -> None:
    """Each by itself, as queues are that are consumed in order; and the commits of every few seconds."""
    broker = Offsets()
    queues = [MessageQueue("T", "broker-a", number) for number in range(3)]
    async with offsets_of(broker) as (offsets, _, _):
        for queue in queues:
            offsets.update(queue, 9)
        broker.hold_commits = True
        async with trio.open_nursery() as nursery:
            for queue in queues:
                nursery.start_soon(offsets.confirm, [queue])
            for waiting in (1, 2):  # the first makes the entry; then the others may go together
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert len(broker.held) == waiting
                broker.release()
    assert sorted(broker.commits) == [("T", str(number), 9, False) for number in range(3)]


async def test_who_stands_in_for_a_broker_is_told_everything_and_first_of_all_once() -> None:
    """A master that is killed may not have told its replica of the group; and it must be told in its turn."""
    master, replica = Offsets(), Offsets()
    async with scripted_cluster(master, replica) as cluster, Client(cluster.address) as client:
        first, second = cluster.brokers.values()
        offsets = RemoteOffsetStore(client, "g")
        await client.routes.get("T")
        for number in range(3):
            offsets.update(MessageQueue("T", "broker-a", number), 9)
        await offsets.write()
        await drained(client)
        del master.commits[:]
        for now, broker, answered in ((second, replica, True), (first, master, False)):
            cluster.brokers = {"broker-a": now}
            await client.routes.refresh("T")
            assert offsets.has_entry(QUEUE) != answered
            for _ in range(2):
                await offsets.write()
            await drained(client)
            assert broker.commits == [
                ("T", str(number), 9, not (answered and number == 0)) for number in range(3)
            ]


async def test_offsets_of_a_broker_that_nobody_stands_in_for(
    caplog: pytest.LogCaptureFixture, jumping_clock: trio.testing.MockClock
) -> None:
    """What it was told, it was told: only what is new is to be said."""
    broker = Offsets()
    async with offsets_of(broker) as (offsets, _, cluster):
        offsets.update(QUEUE, 9)
        await offsets.confirm()
        cluster.brokers = {"broker-b": cluster.brokers["broker-a"]}
        await trio.sleep(65)  # two rounds, until the route has forgotten it
        assert not offsets.has_entry(QUEUE)
        await offsets.write()
        await offsets.confirm()
        assert not caplog.records
        offsets.update(QUEUE, 10)
        await offsets.write()
        await offsets.confirm()
    (record,) = caplog.records
    assert record.message.endswith("error=the address of the master of broker 'broker-a' is unknown")


@pytest.mark.parametrize(("committed", "has_entry"), [(None, False), (0, False), (1, True)])
async def test_what_a_broker_says_shows_whether_it_knows_the_group(
    committed: int | None, has_entry: bool
) -> None:
    async with offsets_of(Offsets(committed=committed)) as (offsets, _, _):
        await offsets.read(QUEUE)
        assert offsets.has_entry(OTHER) == has_entry


async def test_a_queue_may_be_forgotten_while_others_are_written() -> None:
    broker = Offsets(hold_commits=True)
    async with offsets_of(broker) as (offsets, client, _):
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets.write)
            await trio.testing.wait_all_tasks_blocked(0.05)
            offsets.forget(OTHER)
            broker.release()
        await drained(client)
    assert broker.commits == [("T", "1", 5, False)]


async def test_a_queue_may_be_forgotten_while_the_first_commit_of_another_is_confirmed() -> None:
    broker = Offsets(hold_commits=True)
    async with offsets_of(broker) as (offsets, _, _):
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offsets.confirm)
            await trio.testing.wait_all_tasks_blocked(0.05)
            (first,) = broker.commits
            offsets.forget(OTHER if first[1] == "1" else QUEUE)
            broker.release()
    assert broker.commits == [first]


async def test_a_queue_that_was_forgotten_is_not_written_any_more() -> None:
    broker = Offsets()
    async with offsets_of(broker) as (offsets, _, _):
        offsets.update(QUEUE, 5)
        offsets.forget(QUEUE)
        offsets.forget(OTHER)
        await offsets.write()
        await offsets.write([QUEUE])
        await offsets.confirm()
    assert broker.commits == []


async def test_a_broker_that_is_gone_is_one_line_for_all_its_queues(
    caplog: pytest.LogCaptureFixture, jumping_clock: trio.testing.MockClock
) -> None:
    broker = Offsets()
    async with offsets_of(broker) as (offsets, _, cluster):
        cluster.brokers["broker-a"].stop()
        await trio.testing.wait_all_tasks_blocked()
        offsets.update(QUEUE, 5)
        offsets.update(OTHER, 6)
        await offsets.write()
    [record] = caplog.records
    assert record.message.startswith(
        "offset commit failed, retrying: group=g broker=broker-a queues=2 error=cannot"
    )


async def test_what_is_refused_counts_as_changed_still(caplog: pytest.LogCaptureFixture) -> None:
    broker = Offsets(refuse=True)
    async with offsets_of(broker) as (offsets, _, _):
        offsets.update(QUEUE, 5)
        await offsets.confirm()
        assert "offset commit failed, retrying: group=g broker=broker-a topic=T queue=1" in caplog.text
        assert "scripted" in caplog.text
        broker.refuse = False
        await offsets.confirm()
    assert broker.commits == [("T", "1", 5, False)]
