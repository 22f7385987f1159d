"""Commands for topics and groups on services that refuse administration."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_py import Client, Message
from rocketmq_py import blocking as threads
from rocketmq_py.admin import Admin, SomeBrokersFailedError
from rocketmq_py.broker.profiles import PROFILES
from rocketmq_py.cli.top import ActivityMonitor
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.testing import TestBroker, run_broker
from tests.cli.command import Ended
from tests.cli.conftest import Invoke, options_of
from tests.hostname_resolver import HOSTS_OF_SERVICES, point_to_this_host

Command = Callable[..., Ended]


@pytest.fixture(params=["alibaba-4", "alibaba-5", "alibaba-5-serverless", "tencent-4"])
def service(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A service with five messages in topic Orders, of which group billing has consumed three."""
    with run_broker(profile=request.param, topics=["Orders:1", "Bills:1"]) as broker:
        with threads.Client(broker.name_server_address, **broker.client_options) as client:
            with client.producer("senders") as producer:
                for _ in range(5):
                    producer.send(Message("Orders", b"x"))
            with client.reader() as reader:
                reader.commit("billing", {MessageQueue("Orders", "broker-a", 0): 3})
        yield broker


@pytest.fixture
def command(invoke: Invoke, service: TestBroker) -> Command:
    """Run a command on the service."""

    def run(*words: str) -> Ended:
        return invoke(*words, "-n", service.name_server_address, *options_of(service))

    return run


@pytest.fixture
def member(service: TestBroker) -> Iterator[None]:
    """A member of group billing, whose handler does not return until the end of the test."""
    started, ended = threading.Event(), threading.Event()

    def handle(_: object) -> None:
        started.set()
        ended.wait()

    with (
        threads.Client(service.name_server_address, **service.client_options) as client,
        client.push_consumer("billing") as consumer,
    ):
        consumer.subscribe("Orders")
        thread = threading.Thread(target=consumer.run, args=(handle,))
        thread.start()
        assert started.wait(30)
        yield
        ended.set()
        consumer.stop()
        thread.join()


def reply(ended: Ended) -> Any:
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def notes(ended: Ended) -> list[str]:
    """Return the beginnings of the lines about parts that are not shown."""
    lines = ended.err.splitlines()
    assert all("does not offer" in line for line in lines), lines
    return [line.removeprefix("rocketmq-py: ").partition(". ")[0] for line in lines]


@pytest.mark.parametrize("name", PROFILES)
def test_health_and_top_work_with_what_each_service_offers(invoke: Invoke, name: str) -> None:
    lists_brokers = RequestCode.GET_BROKER_CLUSTER_INFO not in PROFILES[name].not_offered.value
    with run_broker(profile=name, topics=["Orders:1"]) as broker:
        there = ("-n", broker.name_server_address, *options_of(broker))
        checked = reply(invoke("check", "health", *there, "--json"))
        top = reply(invoke("top", "--once", "--interval", "0.1", "-t", "Orders", *there, "--json"))
    assert checked["state"] == "OK"
    assert len(checked["servers"]) == (2 if lists_brokers else 1)
    assert ["does not offer information about the cluster" in one for one in checked["reasons"]] == (
        [] if lists_brokers else [True]
    )
    assert [one["topic"] for one in top["topics"]] == ["Orders"]


def test_top_names_the_options_that_it_needs(command: Command) -> None:
    ended = command("top", "--once", "--interval", "0.1")
    assert (ended.code, ended.out) == (1, b"")
    assert "does not offer information about the cluster (GET_BROKER_CLUSTER_INFO, 106)" in ended.err
    assert ended.err.endswith(". Name topics with --topic, and groups with --group\n")
    assert len(ended.err.splitlines()) == 1


def test_top_of_topics_and_groups_by_name(command: Command) -> None:
    once = ("top", "--once", "--interval", "0.1")
    ended = command(*once, "-t", "Orders", "-t", "Bills", "-G", "billing", "--json")
    value = reply(ended)
    assert [(one["topic"], one["rate"], one["messages"]) for one in value["topics"]] == [
        ("Orders", 0, 5),
        ("Bills", 0, 0),
    ]
    assert value["groups"] == [{"group": "billing", "lag": 2, "rate": 0, "members": 0}]
    assert [*value["not_offered"]] == ["times of the last messages"]
    assert notes(ended) == ["not shown: times of the last messages"]
    tables = command(*once, "-t", "Orders").out.decode()
    assert "Orders" in tables
    assert "GROUP" not in tables


def test_top_reports_names_that_do_not_exist(command: Command) -> None:
    ended = command("top", "--once", "--interval", "0.1", "-t", "Orders", "-t", "Missing", "-G", "nobody")
    assert ended.code == 1
    assert "Orders" in ended.out.decode()
    assert "rocketmq-py: topic Missing: topic 'Missing' does not exist" in ended.err
    assert "rocketmq-py: group nobody: group 'nobody' has no members, and no offsets in" in ended.err


@pytest.mark.usefixtures("member")
def test_top_of_a_group_with_members_needs_no_topic(command: Command) -> None:
    ended = command("top", "--once", "--interval", "0.1", "-G", "billing", "--json")
    value = reply(ended)
    assert value["groups"] == [{"group": "billing", "lag": 2, "rate": 0, "members": 1}]
    assert notes(ended) == ["not shown: lag in topics that no member subscribes to"]


async def test_the_rate_of_a_group_is_that_of_its_offsets(service: TestBroker) -> None:
    monitor = ActivityMonitor(["Orders"], ["billing"])
    queue = MessageQueue("Orders", "broker-a", 0)
    async with Admin(service.name_server_address, **service.client_options) as admin:
        (group,) = (await monitor.sample(admin)).groups
        assert (group.lag, group.rate) == (2, None)
        async with (
            Client(service.name_server_address, **service.client_options) as client,
            client.reader() as reader,
        ):
            await reader.commit("billing", {queue: 5})
        (group,) = (await monitor.sample(admin)).groups
        assert group.lag == 0
        assert (group.rate or 0) > 0


def test_a_topic_is_described_from_its_route_and_offsets(command: Command) -> None:
    ended = command("topic", "describe", "Orders", "--json")
    value = reply(ended)
    (broker,), (queue,) = value["brokers"], value["queues"]
    assert (value["message_type"], value["messages"], value["last_message_ms"]) == (None, 5, None)
    assert (broker["read_queues"], broker["write_queues"], broker["permission"]) == (1, 1, "RW")
    assert (broker["order"], broker["attributes"]) == (None, None)
    assert (queue["min_offset"], queue["max_offset"], queue["last_message_ms"]) == (0, 5, None)
    expected = ["order, type and attributes", "times of the last messages"]
    assert [*value["not_offered"]] == expected
    assert notes(ended) == [f"not shown: {part}" for part in expected]
    assert command("topic", "describe", "Orders").out.startswith(b"Orders: unknown type, 5 messages\n")
    ended = command("topic", "describe", "Missing")
    assert (ended.code, ended.out) == (1, b"")
    assert "topic 'Missing' does not exist" in ended.err


def test_a_group_without_members_is_described_by_topic(command: Command) -> None:
    ended = command("group", "describe", "billing", "--topic", "Orders", "--json")
    value = reply(ended)
    (topic,) = value["topics"]
    (queue,) = topic["queues"]
    assert (topic["topic"], value["lag"], value["rate"], value["members"]) == ("Orders", 2, None, [])
    assert (queue["max_offset"], queue["committed"], queue["last_consumed_ms"]) == (5, 3, None)
    assert notes(ended) == [
        "not shown: settings of the group",
        "not shown: rate, and times of the last consumed messages",
    ]
    ended = command("group", "describe", "billing", "--topic", "Orders", "--topic", "Bills")
    assert ended.code == 0
    assert "rocketmq-py: group billing has no offsets in topic Bills" in ended.err


def test_a_group_that_is_not_found_is_one_line(command: Command) -> None:
    for words, expected in (
        (("billing",), "Name the topics of group 'billing' (topics=, or --topic in commands)"),
        (("nobody", "--topic", "Orders"), "group 'nobody' has no members, and no offsets in Orders"),
        (("billing", "--topic", "Missing"), "topic 'Missing' does not exist"),
    ):
        ended = command("group", "describe", *words)
        assert (ended.code, ended.out) == (1, b"")
        assert expected in ended.err
        assert len(ended.err.splitlines()) == 1


@pytest.mark.usefixtures("member")
def test_a_group_with_members_is_described_without_topics(command: Command, service: TestBroker) -> None:
    ended = command("group", "describe", "billing", "--json")
    value = reply(ended)
    lags = {topic["topic"]: topic["lag"] for topic in value["topics"]}
    assert lags["Orders"] == 2
    assert {*lags} <= {"Orders", "%RETRY%billing"}
    assert [one["topic"] for one in value["subscriptions"]] == ["Orders"]
    (one,) = value["members"]
    assert len(one["queues"]) == 2  # with that of the retry topic
    assert notes(ended)[2:] == ["not shown: lag in topics that no member subscribes to"]
    service.fail(RequestCode.GET_CONSUMER_CONNECTION_LIST, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    ended = command("group", "describe", "billing", "--topic", "Orders")
    assert ended.out.startswith(b"billing: lag 2, unknown members\n")
    assert notes(ended)[2:] == ["not shown: members and subscriptions"]


@pytest.mark.usefixtures("member")
def test_the_lag_is_checked(command: Command) -> None:
    ended = command("check", "lag", "billing", "--critical", "3")
    assert (ended.code, ended.err) == (0, "")
    assert b"lag 2, 1 members; not counted: lag in topics that no member subscribes to" in ended.out
    value = reply(command("check", "lag", "billing", "--json"))
    assert value["not_counted"] == "lag in topics that no member subscribes to"
    ended = command("check", "lag", "billing", "--prometheus")
    assert ended.err.startswith("rocketmq-py: not counted: ")
    ended = command("check", "lag", "billing", "--topic", "Orders", "--critical", "2")
    assert ended.code == 2
    assert b"lag 2 in Orders, 1 members |" in ended.out


async def test_several_topics_that_are_missing_are_one_error(service: TestBroker) -> None:
    async with Admin(service.name_server_address, **service.client_options) as admin:
        described = await admin.groups.describe("billing", ["Orders", "Missing"])
        assert [*described.failures] == ["topic Missing"]
        with pytest.raises(SomeBrokersFailedError, match="describing group 'billing' failed on 2 of 2"):
            await admin.groups.describe("billing", ["Missing", "Gone"])


@pytest.mark.parametrize("profile", HOSTS_OF_SERVICES)
@pytest.mark.parametrize(
    ("place", "is_delayed"),
    [
        ("host", True),
        ("option", True),
        ("environment", True),
        ("named cluster", True),
        ("nowhere", False),
        ("host, but switched off", False),
        ("named cluster, but switched off", False),
    ],
)
def test_sends_are_delayed_by_the_property_of_a_service(
    invoke: Invoke,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    profile: str,
    place: str,
    is_delayed: bool,
) -> None:
    with run_broker(profile=profile, topics=["Later:1:DELAY", "Orders:1"]) as broker:
        address, words = broker.name_server_address, options_of(broker)
        topic = "Later" if is_delayed else "Orders"
        if place.startswith("host"):
            point_to_this_host(monkeypatch, HOSTS_OF_SERVICES[profile])
            address = f"http://{HOSTS_OF_SERVICES[profile]}:{address.rpartition(':')[2]}"
        there = ["-n", address]
        if place == "option":
            words.append("--start-deliver-time")
        elif place == "environment":
            monkeypatch.setenv("ROCKETMQ_START_DELIVER_TIME", "1")
        elif place.startswith("named cluster"):
            monkeypatch.setenv("ROCKETMQ_CONFIG", str(tmp_path / "config.toml"))
            settings = ["start_deliver_time=true", f"address={address}"]
            assert invoke("config", "set", "service", *settings).code == 0
            there = ["-C", "service"]
        if place.endswith("switched off"):
            words.append("--no-start-deliver-time")
        sent = invoke("send", "-t", topic, "x", "--delay", "1h", *there, *words)
        assert sent.code == 0, sent.err
        assert len(broker.messages(topic)) == (0 if is_delayed else 1)
        broker.advance("1h")
        assert len(broker.messages(topic)) == 1
