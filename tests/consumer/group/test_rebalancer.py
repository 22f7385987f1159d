"""A Rebalancer assigns queues when the members, the routes or the subscriptions change."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.allocation import AllocateStrategy, allocate_averagely
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.rebalancer import Rebalancer
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumerData, ConsumerList, Heartbeat
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedCluster, scripted_cluster

settled = trio.testing.wait_all_tasks_blocked


@attrs.define
class Broker:
    """A broker that lists ``others`` and the senders of heartbeats as members of the group."""

    others: list[str] = attrs.field(factory=list)
    counts_heartbeats: bool = True
    refuses: bool = False
    heartbeats: list[str] = attrs.field(factory=list)
    log: list[str] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        self.log.append(RequestCode(request.code).name)
        if request.code == RequestCode.HEART_BEAT:
            self.heartbeats.append(Heartbeat.decode(request.body).client_id)
            connection.respond(request, ResponseCode.SUCCESS)
        elif request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP and not self.refuses:
            members = self.others + (sorted(set(self.heartbeats)) if self.counts_heartbeats else [])
            connection.respond(
                request, ResponseCode.SUCCESS, {}, ConsumerList(consumer_id_list=tuple(members)).encode()
            )
        else:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")

    @property
    def rounds(self) -> int:
        return self.log.count("GET_CONSUMER_LIST_BY_GROUP")


class Member:
    """A member with a Rebalancer that records its changes of assignment."""

    def __init__(
        self,
        client: Client,
        cluster: ScriptedCluster,
        *topics: str,
        allocate: AllocateStrategy = allocate_averagely,
    ) -> None:
        self.client = client
        self.cluster = cluster
        self.topics = list(topics)
        self.assigned: dict[str, Collection[MessageQueue]] = {}
        self.changes: list[tuple[str, int]] = []
        core_of(client).heartbeats.add_consumer("g", lambda: ConsumerData(group_name="g"))
        self.rebalancer = Rebalancer(
            core_of(client),
            "g",
            self,
            allocate=allocate,
            interval=20,
        )
        core_of(client).watch_members("g", self.rebalancer.wake)
        core_of(client).watch_routes(self.rebalancer.route_changed)

    def subscribed_topics(self) -> Collection[str]:
        return self.topics

    def assigned_topics(self) -> Collection[str]:
        return self.assigned.keys()

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        await trio.lowlevel.checkpoint()
        if set(queues) != set(self.assigned.get(topic, ())):
            self.changes.append((topic, len(queues)))
        if queues:
            self.assigned[topic] = queues
        else:
            self.assigned.pop(topic, None)


@asynccontextmanager
async def member_of(
    *brokers: Broker, subscribed: Sequence[str] = ("T",), existing: Sequence[str] = ("T", "U", "V")
) -> AsyncIterator[Member]:
    async with (
        scripted_cluster(*brokers, topics=existing) as cluster,
        Client(cluster.address, route_refresh_interval=1e6, heartbeat_interval=1e6) as client,
        trio.open_nursery() as nursery,
    ):
        member = Member(client, cluster, *subscribed)
        nursery.start_soon(member.rebalancer.run)
        yield member
        nursery.cancel_scope.cancel()


async def test_a_heartbeat_is_sent_before_the_members_are_queried(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        assert member.changes == [("T", 4)]
    assert broker.log[0] == "HEART_BEAT"
    assert broker.rounds == 1


async def test_the_members_are_queried_once_a_round_for_all_topics(
    jumping_clock: trio.testing.MockClock,
) -> None:
    brokers = Broker(), Broker()
    async with member_of(*brokers, subscribed=["T", "U", "V"]) as member:
        await trio.sleep(1)
        assert sorted(member.changes) == [("T", 8), ("U", 8), ("V", 8)]
    assert [broker.rounds for broker in brokers] == [1, 0]


async def test_rounds_run_every_20_seconds_and_when_a_broker_reports_a_change(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        await trio.sleep(41)
        assert broker.rounds == 3
        broker.others = ["a-member-that-comes-first"]
        notice = {"consumerGroup": "g"}
        for connection in member.cluster.brokers["broker-a"].connections:
            connection.oneway_nowait(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, notice)
        await trio.sleep(1)
        assert broker.rounds == 4
        assert member.changes == [("T", 4), ("T", 2)]


@pytest.mark.parametrize("others", [[], ["another"]], ids=["empty", "without this member"])
async def test_a_member_list_without_this_member_changes_nothing(
    jumping_clock: trio.testing.MockClock, others: list[str]
) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        broker.counts_heartbeats = False
        broker.others = others
        member.rebalancer.wake()
        heartbeats = broker.log.count("HEART_BEAT")
        await trio.sleep(4)
        assert member.changes == [("T", 4)]
        assert broker.rounds == 4, "incomplete rounds are repeated after 1, 2, 4 seconds"
        assert broker.log.count("HEART_BEAT") == heartbeats + 2, (
            "the member sends another heartbeat each time"
        )
        broker.counts_heartbeats = True
        broker.others = []
        await trio.sleep(10)
        assert member.changes == [("T", 4)]


async def test_a_member_listed_twice_counts_once(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        broker.others = [core_of(member.client).client_id]
        await trio.sleep(1)
        assert member.changes == [("T", 4)]


async def test_another_broker_is_asked_if_one_fails(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_of(Broker(refuses=True), Broker()) as member:
        await trio.sleep(1)
        assert member.changes == [("T", 8)]
    assert "member lookup failed, retrying: group=g broker=broker-a" in caplog.text


async def test_a_missing_topic_is_assigned_once_it_exists(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_of(Broker(), subscribed=["T", "New", "%RETRY%g"]) as member:
        await trio.sleep(100)
        assert member.changes == [("T", 4)]
        assert len(caplog.records) == 3, "logged after 0, 31 and 91 seconds"
        for record in caplog.records:
            assert record.message.startswith("route lookup failed, retrying: group=g topic=New ")
        member.cluster.topics["New"] = (2, 2, 6)
        member.cluster.topics["%RETRY%g"] = (1, 1, 6)
        await trio.sleep(21)
        assert sorted(member.changes) == [("%RETRY%g", 1), ("New", 2), ("T", 4)]
        await trio.sleep(100)
    assert len(caplog.records) == 3


async def test_known_topics_are_rebalanced_without_a_name_server(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rocketmq_py.consumer")
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        member.cluster.name_server.stop()
        await settled()
        member.topics[:] = ["U", "V", "T"]
        broker.others = ["a-member-that-comes-first"]
        member.rebalancer.announce()
        await trio.sleep(0.5)
        assert member.changes == [("T", 4), ("T", 2)]
        await trio.sleep(3)
    [record] = [record for record in caplog.records if record.name == "rocketmq_py.consumer"]
    assert record.message.startswith("route lookup failed, retrying: group=g topics=U,V,T name_servers=127")


async def test_a_failed_route_lookup_does_not_stop_the_other_topics(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(Broker(), topics=["T", "U"]) as cluster:
        answer_routes = cluster.route

        def refuse_one(connection: Connection, request: Command) -> None:
            if request.fields["topic"] == "T":
                connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")
            else:
                answer_routes(connection, request)

        cluster.name_server.answer = refuse_one
        async with Client(cluster.address) as client, trio.open_nursery() as nursery:
            member = Member(client, cluster, "T", "U")
            nursery.start_soon(member.rebalancer.run)
            await trio.sleep(0.5)
            assert member.changes == [("U", 4)]
            nursery.cancel_scope.cancel()
    assert "route lookup failed, retrying: group=g topic=T" in caplog.text


async def test_a_subscription_during_a_round_starts_another_round(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(Broker(), topics=["T", "U"]) as cluster:
        member: Member
        answer_routes = cluster.route

        def subscribe_and_answer(connection: Connection, request: Command) -> None:
            if "U" not in member.topics:
                member.topics.append("U")
                member.rebalancer.announce()
            answer_routes(connection, request)

        cluster.name_server.answer = subscribe_and_answer
        async with Client(cluster.address) as client, trio.open_nursery() as nursery:
            member = Member(client, cluster, "T")
            nursery.start_soon(member.rebalancer.run)
            await trio.sleep(0.5)
            assert member.changes == [("T", 4), ("U", 4)]
            nursery.cancel_scope.cancel()


async def test_a_changed_route_starts_a_round(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        member.cluster.topics["T"] = (6, 6, 6)
        await core_of(member.client).routes.refresh("T")
        await trio.sleep(1)
        assert member.changes == [("T", 4), ("T", 6)]
        await core_of(member.client).routes.get("U")
        await trio.sleep(1)
        assert broker.rounds == 2, "routes of other topics start no round"


async def test_the_queues_of_a_topic_that_is_no_longer_readable_are_revoked(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with member_of(Broker()) as member:
        await trio.sleep(1)
        member.cluster.topics["T"] = (4, 4, 2)
        await core_of(member.client).routes.refresh("T")
        await trio.sleep(1)
        assert member.changes == [("T", 4), ("T", 0)]


async def test_subscribing_and_unsubscribing_changes_the_assignment(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        heartbeats = broker.log.count("HEART_BEAT")
        member.topics.append("U")
        member.rebalancer.announce()
        await trio.sleep(1)
        assert member.changes == [("T", 4), ("U", 4)]
        assert broker.log.count("HEART_BEAT") > heartbeats
        member.topics.remove("T")
        member.rebalancer.announce()
        await trio.sleep(1)
        assert member.changes == [("T", 4), ("U", 4), ("T", 0)]


async def test_an_exception_of_the_strategy_is_raised() -> None:
    def broken(*_: object) -> Sequence[MessageQueue]:
        raise ZeroDivisionError("a bug")

    async with scripted_cluster(Broker()) as cluster, Client(cluster.address) as client:
        member = Member(client, cluster, "T", allocate=broken)
        with pytest.raises(ZeroDivisionError):
            await member.rebalancer.run()
        assert member.changes == []
