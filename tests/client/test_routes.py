from __future__ import annotations

import gc

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import Route, core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import NameServerError, NoQueueError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import BrokerData, QueueData, TopicRoute
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedCluster, ignore, scripted_cluster, store

ROUTE_QUESTIONS = RequestCode.GET_ROUTEINFO_BY_TOPIC


def questions(cluster: ScriptedCluster) -> int:
    return len(cluster.name_server.asked(ROUTE_QUESTIONS))


def wire_route(*queues: QueueData, conf: str | None = None, **addresses: dict[int, str]) -> TopicRoute:
    return TopicRoute(
        queue_datas=queues,
        broker_datas=tuple(
            BrokerData(cluster="c", broker_name=name, announced=table) for name, table in addresses.items()
        ),
        order_topic_conf=conf,
    )


def queues_on(name: str, *, read: int = 2, write: int = 2, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)


class TestRoute:
    def test_writing_needs_the_permission_and_a_master(self) -> None:
        route = Route.of(
            "T",
            wire_route(
                queues_on("b"),
                queues_on("a", read=3, write=1),
                queues_on("readonly", perm=4),
                queues_on("slaves"),
                a={0: "a:1"},
                b={0: "b:1", 1: "b:2"},
                readonly={0: "r:1"},
                slaves={1: "s:1"},
            ),
        )
        assert route.write_queues == (
            MessageQueue("T", "a", 0),
            MessageQueue("T", "b", 0),
            MessageQueue("T", "b", 1),
        )
        assert [(queue.broker_name, queue.queue_id) for queue in route.read_queues] == [
            ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1),
            ("readonly", 0), ("readonly", 1), ("slaves", 0), ("slaves", 1),
        ]  # fmt: skip
        assert list(route.read_queues) == sorted(route.read_queues)

    def test_ipv6_addresses_of_masters_and_replicas_get_brackets(self) -> None:
        wire = wire_route(queues_on("a"), a={0: "::1:10911", 1: "2001:db8::7:10911", 2: "10.0.0.1:10911"})
        for route in (Route.of("T", wire), Route.of_default("T", wire, 4)):
            assert route.brokers["a"] == {
                0: "[::1]:10911",
                1: "[2001:db8::7]:10911",
                2: "10.0.0.1:10911",
            }

    def test_an_order_configuration_replaces_the_queues_to_write(self) -> None:
        route = Route.of("T", wire_route(queues_on("a"), conf="b:1;a:2", a={0: "a:1"}))
        assert [(queue.broker_name, queue.queue_id) for queue in route.write_queues] == [
            ("b", 0),
            ("a", 0),
            ("a", 1),
        ]

    def test_the_default_route_has_few_queues_and_none_to_read(self) -> None:
        route = Route.of_default("T", wire_route(queues_on("a", read=8, write=8), a={0: "a:1"}), 4)
        assert [queue.queue_id for queue in route.write_queues] == [0, 1, 2, 3]
        assert route.read_queues == ()
        assert route.is_default


async def test_concurrent_requests_for_a_route_are_coalesced() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(core_of(client).routes.get, "T")
        assert questions(cluster) == 1
        assert core_of(client).routes.get_nowait("T") is await core_of(client).routes.get("T")


async def test_routes_are_refreshed_on_time(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        changes: list[Route] = []
        core_of(client).watch_routes(changes.append)
        await core_of(client).routes.get("T")
        cluster.topics["T"] = (8, 8, 6)
        await trio.sleep(29)
        assert len((await core_of(client).routes.get("T")).write_queues) == 4
        await trio.sleep(2)
        assert len((await core_of(client).routes.get("T")).write_queues) == 8
        assert [len(route.write_queues) for route in changes] == [4, 8]
        await trio.sleep(60)
        assert len(changes) == 2, "on_change is not called for an unchanged route"


async def test_an_invalidated_route_is_refreshed_at_once(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        cluster.topics["T"] = (1, 1, 6)
        for _ in range(100):
            core_of(client).routes.invalidate("T")
        core_of(client).routes.invalidate("never heard of")
        await trio.sleep(1)
        assert len((await core_of(client).routes.get("T")).write_queues) == 1
        assert questions(cluster) == 2


async def test_an_invalidated_route_does_not_wait_for_the_refresh_of_all_routes(
    jumping_clock: trio.testing.MockClock,
) -> None:
    topics = [f"T{number:03}" for number in range(100)]
    async with (
        scripted_cluster(store, topics=topics) as cluster,
        trio.open_nursery() as nursery,
        Client(cluster.address) as client,
    ):
        routes = core_of(client).routes
        for topic in topics:
            await routes.get(topic)

        async def answer(connection: Connection, request: Command) -> None:
            await trio.sleep(0.1)
            cluster.route(connection, request)

        def answer_later(connection: Connection, request: Command) -> None:
            nursery.start_soon(answer, connection, request)

        cluster.name_server.answer = answer_later
        await trio.sleep(31)
        with trio.fail_after(3):  # all routes take 10 s
            await routes.wait_for_refresh("T099")


async def test_old_routes_are_used_while_no_name_server_answers(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        route = await core_of(client).routes.get("T")
        cluster.name_server.stop()
        await trio.sleep(100)
        assert await core_of(client).routes.get("T") == route
        with pytest.raises(NameServerError):
            await core_of(client).routes.get("other")


async def test_the_log_line_about_silent_name_servers_is_short_with_many_topics(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [f"T{number:03}" for number in range(200)]
    async with scripted_cluster(store, topics=topics) as cluster, Client(cluster.address) as client:
        for topic in topics:
            await core_of(client).routes.get(topic)
        cluster.name_server.stop()
        await trio.sleep(40)
    (line,) = [text for text in caplog.messages if text.startswith("route refresh failed")]
    assert "topics=T000,T001," in line
    assert "error=no name server answered" in line
    assert len(line) < 1000


async def test_consumers_get_no_default_route() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        assert (await core_of(client).routes.get("new", for_sending=True)).is_default
        with pytest.raises(TopicNotFoundError):
            await core_of(client).routes.get("new")
        cluster.topics["new"] = (2, 2, 6)
        assert not (await core_of(client).routes.get("new")).is_default


async def test_wait_for_repeats_the_request_until_the_topic_exists(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        async with trio.open_nursery() as nursery:
            started = trio.current_time()
            nursery.start_soon(core_of(client).routes.wait_for, "new")
            await trio.sleep(2.5)
            cluster.topics["new"] = (2, 2, 6)
        assert trio.current_time() - started == pytest.approx(3, abs=0.1)
        assert (await core_of(client).routes.get("new")).read_queues


async def test_addresses_of_brokers() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        address = cluster.brokers["broker-a"].address
        assert core_of(client).routes.broker_address("broker-a") == address
        assert core_of(client).routes.broker_address("broker-a", broker_id=1, any_id=True) == address
        with pytest.raises(NoQueueError, match="replica 1 of broker 'broker-a'"):
            core_of(client).routes.broker_address("broker-a", broker_id=1)
        with pytest.raises(NoQueueError, match="master of broker 'gone'"):
            core_of(client).routes.broker_address("gone")


async def test_the_next_name_server_is_asked_when_one_fails(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with (
        scripted_cluster(store) as dead,
        scripted_cluster(ignore) as silent,
        scripted_cluster(store) as good,
    ):
        dead.name_server.stop()
        silent.name_server.answer = ignore
        addresses = f"{dead.address};{silent.address};{good.address}"
        async with Client(addresses) as client:
            await core_of(client).routes.get("T")
            for _ in range(5):
                await core_of(client).routes.refresh("T")
        assert questions(good) == 6
        assert questions(silent) <= 1, "it stays with a name server that answers"


async def test_missing_topics_leak_nothing() -> None:
    def locks() -> int:
        gc.collect()
        return sum(type(one) is trio.Lock for one in gc.get_objects())

    async with scripted_cluster(store, topics=["T"]) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        before = locks()
        for number in range(20):
            with pytest.raises(TopicNotFoundError):
                await core_of(client).routes.get(f"unknown-{number}")
        assert locks() <= before


@pytest.mark.parametrize(
    "body", [b"[" * 900, b"\xff", b'{"queueDatas":3}', b'{"brokerDatas":[{"brokerAddrs":{"0":"\\ud800:1"}}]}']
)
async def test_a_malformed_route_keeps_the_old_one_and_is_logged(
    body: bytes, jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        route = await core_of(client).routes.get("T")
        cluster.name_server.answer = lambda connection, request: connection.respond(request, 0, {}, body)
        await trio.sleep(client.settings.route_refresh_interval * 2.5)
        assert client.is_open
        assert core_of(client).routes.get_nowait("T") is route
        assert caplog.text.count("route refresh failed, retrying: topic=T") == 2
        cluster.name_server.answer = cluster.route
        assert (await core_of(client).routes.refresh("T")).write_queues == route.write_queues


async def test_a_missing_topic_is_logged_at_growing_intervals(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store, topics=["T"]) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        cluster.name_server.answer = lambda connection, request: connection.respond(request, 17, {})
        for _ in range(round(client.settings.route_refresh_interval * 1.5)):
            core_of(client).routes.invalidate("T")
            await trio.sleep(1)
    assert caplog.text.count("route refresh failed, retrying: topic=T") == 2


async def test_the_zone_is_sent_with_requests_for_routes() -> None:
    async with scripted_cluster(store) as cluster:
        async with Client(cluster.address, zone="zone-1") as client:
            await core_of(client).routes.get("T")
        async with Client(cluster.address, zone="") as client:
            await core_of(client).routes.get("T")
        with_zone, without = [request.fields for request in cluster.name_server.asked(ROUTE_QUESTIONS)]
    assert (with_zone["__ZONE_NAME"], with_zone["__ZONE_MODE"]) == ("zone-1", "true")
    assert not {"__ZONE_NAME", "__ZONE_MODE"} & without.keys()


async def test_a_refresh_in_flight_is_no_failure_when_the_client_closes(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(store) as cluster:
        async with Client(cluster.address, route_refresh_interval=5, request_timeout=60) as client:
            await core_of(client).routes.get("T")
            requests: list[Command] = []
            cluster.name_server.answer = lambda _, request: requests.append(request)
            await trio.sleep(6)
            assert [request.code for request in requests] == [RequestCode.GET_ROUTEINFO_BY_TOPIC]
        assert not caplog.records


async def test_a_route_without_readable_queues_says_how_to_allow_reading() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        assert len((await core_of(client).routes.get("T")).queues_to_read()) == 4
        cluster.topics["T"] = (4, 4, 2)
        with pytest.raises(
            NoQueueError, match="allow reading with: rocketmq-py topic alter T --permission RW"
        ):
            (await core_of(client).routes.refresh("T")).queues_to_read()
        cluster.topics["T"] = (4, 4, 0)
        with pytest.raises(NoQueueError, match=r"topic 'T' has no readable queue$"):
            (await core_of(client).routes.refresh("T")).queues_to_read()


async def test_a_name_server_that_does_not_list_brokers_does_not_delay_the_error_of_a_missing_topic() -> None:
    async with scripted_cluster(store, topics=["T"]) as cluster, Client(cluster.address) as client:

        def offer_routes(connection: Connection, request: Command) -> None:
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                cluster.route(connection, request)
            else:
                connection.respond(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

        cluster.name_server.answer = offer_routes
        with pytest.raises(TopicNotFoundError) as caught:
            await core_of(client).routes.get("Missing", for_sending=True)
        assert not caught.value._not_reached


async def test_a_refresh_that_fails_because_the_client_is_closed_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        cluster.name_server.stop()
        await trio.testing.wait_all_tasks_blocked()
        core_of(client).connections.is_closed = True
        await core_of(client).routes._refresh_in_background("T")
        assert not caplog.records
