"""The table of features that need a version of the brokers."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_py import Admin, Message, Producer, TransactionProducer
from rocketmq_py.client.features import FEATURE_OF_REQUEST, FEATURES, Feature, raise_if_older
from rocketmq_py.codes import RequestCode, ResponseCode, version_name, version_ordinal
from rocketmq_py.errors import UnsupportedByBrokerError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.remoting import Connection
from tests.producer.transacting import always
from tests.scripted import Answering, ignore, scripted_cluster, store

HANDLE = RecallHandle("T", "broker-a", "1900000000000", "unique").encode()


def set_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Set the version in requests and answers."""
    monkeypatch.setattr("rocketmq_py.protocol.command.VERSION", version_ordinal(version))


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "4.6.0", "4.9.7", "5.0.0", "5.3.2", "5.5.0"])
def test_the_ordinal_of_a_version(version: str) -> None:
    assert version_name(version_ordinal(version)) == version


def test_rows_are_complete_and_sorted() -> None:
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    assert [one.since for one in FEATURES] == sorted(one.since for one in FEATURES)
    assert set(FEATURE_OF_REQUEST.values()) <= set(FEATURES)
    for feature in FEATURES:
        assert feature.on_older
        first = version_ordinal(feature.since)
        assert feature.is_supported_by(first)
        assert not feature.is_supported_by(first - 1)


def test_the_error_names_the_broker_its_version_and_the_needed_one() -> None:
    feature = Feature("doors", "5.1.3", "raises", "Use windows")
    assert str(feature.unsupported("127.0.0.1:1", 407)) == (
        "broker 127.0.0.1:1 (version 4.9.7) does not support doors, which needs 5.1.3 or newer. Use windows"
    )
    assert "support a green door, which needs" in str(feature.unsupported("a:1", 407, name="a green door"))


def test_only_requests_of_newer_brokers_raise() -> None:
    raise_if_older("a:1", RequestCode.RECALL_MESSAGE, version_ordinal("5.3.2"))
    raise_if_older("a:1", RequestCode.HEART_BEAT, version_ordinal("4.0.0"))
    with pytest.raises(UnsupportedByBrokerError, match=r"recalls of timed messages, which needs 5\.3\.2"):
        raise_if_older("a:1", RequestCode.RECALL_MESSAGE, version_ordinal("5.3.1"))


async def test_requests_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, jumping_clock: trio.testing.MockClock
) -> None:
    """Brokers before 4.6 would store the request, and could not deliver a reply."""
    set_version(monkeypatch, "4.5.2")
    text = r"\(version 4\.5\.2\) does not support requests with replies, which needs 4\.6\.0 or newer"
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        started = trio.current_time()
        for _ in range(2):  # the second time its version is known already
            with pytest.raises(UnsupportedByBrokerError, match=text):
                await producer.request(Message("T", b"x"), timeout=30)
            with pytest.raises(UnsupportedByBrokerError, match=text):
                await (await producer.submit_request(Message("T", b"x"), timeout=30))
        assert trio.current_time() - started < 1
        assert not cluster.brokers["broker-a"].asked(RequestCode.SEND_MESSAGE_V2)
        await producer.send(Message("T", b"x"))


async def test_brokers_that_do_not_check_transactions_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    set_version(monkeypatch, "4.2.0")
    async with (
        scripted_cluster(store) as cluster,
        TransactionProducer(cluster.address, group="g", check=always("commit")) as producer,
    ):
        with pytest.raises(UnsupportedByBrokerError, match=r"transactional messages, which needs 4\.3\.0"):
            async with producer.transaction(Message("T", b"x")):
                pass
        assert not cluster.brokers["broker-a"].asked(RequestCode.SEND_MESSAGE_V2)


async def test_a_request_that_a_broker_refuses_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(connection: Connection, request: Command) -> None:
        code = ResponseCode.SUCCESS
        if request.code == RequestCode.RECALL_MESSAGE:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        connection.respond(request, code)

    set_version(monkeypatch, "5.3.2")
    text = r"\(version 5\.3\.2\) does not offer recalls of timed messages"
    async with scripted_cluster(refuse) as cluster, Producer(cluster.address) as producer:
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await producer.recall("T", HANDLE)


async def test_requests_are_not_sent_to_servers_that_would_not_answer(
    monkeypatch: pytest.MonkeyPatch, jumping_clock: trio.testing.MockClock
) -> None:
    """Brokers before 4.9.1 and name servers before 5.0.0 ignore requests that they do not know."""
    set_version(monkeypatch, "4.9.0")
    recalls = r"\(version 4\.9\.0\) does not support recalls of timed messages, which needs 5\.3\.2 or newer"
    permission = r"\(version 4\.9\.0\) does not support giving back the write permission .* needs 4\.9\.2"
    async with scripted_cluster(ignore) as cluster, Producer(cluster.address) as producer:
        broker, name_server = cluster.brokers["broker-a"], cluster.name_server
        broker.answer = only({RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.HEART_BEAT}, store)
        name_server.answer = only(
            {RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ROUTEINFO_BY_TOPIC}, cluster.route
        )
        started = trio.current_time()
        for _ in range(2):  # the second time its version is known already
            with pytest.raises(UnsupportedByBrokerError, match=recalls):
                await producer.recall("T", HANDLE)
        assert len(broker.asked(RequestCode.GET_BROKER_RUNTIME_INFO)) == 1
        async with Admin(cluster.address) as admin:
            with pytest.raises(UnsupportedByBrokerError, match=permission):
                await admin.brokers.add_write_permission("broker-a")
        assert trio.current_time() - started < 1
        assert not broker.asked(RequestCode.RECALL_MESSAGE)
        assert not name_server.asked(RequestCode.ADD_WRITE_PERM_OF_BROKER)


@pytest.mark.parametrize(("version", "count"), [("4.6.1", 1), ("4.7.0", 0)])
async def test_a_change_of_no_setting_follows_changes_of_topics_that_brokers_answer_too_early(
    monkeypatch: pytest.MonkeyPatch, version: str, count: int
) -> None:
    set_version(monkeypatch, version)
    async with scripted_cluster(store) as cluster, Admin(cluster.address) as admin:
        await admin.topics.create("New")
        broker = cluster.brokers["broker-a"]
        assert len(broker.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)) == 1
        assert len(broker.asked(RequestCode.UPDATE_BROKER_CONFIG)) == count


def only(codes: set[RequestCode], answer: Answering) -> Answering:
    """Answer the requests with these codes, and ignore others."""

    def answer_some(connection: Connection, request: Command) -> None:
        if request.code in codes:
            answer(connection, request)

    return answer_some
