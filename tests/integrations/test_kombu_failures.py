"""Failures of brokers, connections and workers, injected into the embedded broker."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from kombu import Connection, Exchange, Queue
from kombu.exceptions import OperationalError

import rocketmq_py
from rocketmq_py import Message
from rocketmq_py.admin import SomeBrokersFailedError
from rocketmq_py.blocking import Admin, Producer
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import AccessDeniedError, ConfigurationError, TopicNotFoundError
from rocketmq_py.integrations.kombu import poller, transport
from rocketmq_py.testing import TestBroker, TestCluster, run_broker, run_cluster
from tests.integrations.kombu_programs import Receiver, connect, job_queue, keep, publish

pytestmark = [pytest.mark.long, pytest.mark.sockets]
ROOT = Path(__file__).parents[2]
CREATE = "UPDATE_AND_CREATE_TOPIC"
SOURCE = Path(rocketmq_py.__file__).parents[1]
WAITING_SHORTLY = {"client_options": {"request_timeout": 2.0}}
"""For servers that cannot be reached: requests wait for them until this timeout."""


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker() as broker:
        yield broker


def opened(broker: TestBroker | TestCluster, **options: object) -> Connection:
    return connect(broker.name_server_address, connection_loss_timeout=0.5, **options)


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SOURCE), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_message_is_redelivered_after_the_visibility_timeout(broker: TestBroker) -> None:
    with opened(broker, visibility_timeout=60) as holding, opened(broker) as other:
        publish(holding, job_queue("q"), "task")
        holder = Receiver(holding, job_queue("q"), act=keep, prefetch=1)
        holder.wait_for(1)
        receiver = Receiver(other, job_queue("q"))
        assert receiver.drain(0.5) == []
        broker.advance(61)
        receiver.wait_for(1)
        assert receiver.messages[0].delivery_info["redelivered"]
        holder.messages[0].ack()  # too late, and harmless
        broker.advance(61)
        assert receiver.drain(0.5) == ["task"]


KILLED = """
    import os, sys
    from tests.integrations.kombu_programs import Receiver, connect, job_queue, keep

    with connect(sys.argv[1], visibility_timeout=60) as connection:
        receiver = Receiver(connection, job_queue("q"), act=keep)
        receiver.wait_for(3)
        receiver.messages[0].ack()
        os.kill(os.getpid(), 9)
"""


@pytest.mark.long
def test_a_killed_process_loses_no_message(broker: TestBroker) -> None:
    with opened(broker) as connection:
        publish(connection, job_queue("q"), *range(3))
        run_program(KILLED, broker.name_server_address)
        receiver = Receiver(connection, job_queue("q"))
        broker.advance(61)
        receiver.wait_for(2)
        assert len(set(receiver.drain(0.5))) == 2


def test_a_message_that_is_never_acknowledged_becomes_a_dead_letter(broker: TestBroker) -> None:
    with opened(broker, max_reconsume_times=2) as connection:
        publish(connection, job_queue("q"), "poison")
        receiver = Receiver(connection, job_queue("q"), act=lambda message: message.requeue())
        receiver.wait_for(3)
        assert len(receiver.drain(1.0)) == 3
    assert len(broker.dead_letters("kombu-q")) == 1


FOREIGN = (
    b"\xff",
    b"[1]",
    b'{"properties": 3}',
    b'{"properties": {"delivery_info": {}, "body_encoding": "base64"}, "body": "x"}',
    b"[" * 100_000,
)


def test_a_message_of_another_program_becomes_a_dead_letter_at_once(broker: TestBroker) -> None:
    with opened(broker) as connection:
        publish(connection, job_queue("q"), "task")
        with Producer(broker.name_server_address) as producer:
            for body in FOREIGN:
                producer.send(Message("q", body))
        receiver = Receiver(connection, job_queue("q"))
        assert receiver.wait_for(1) == ["task"]
        broker.wait_until(lambda: len(broker.dead_letters("kombu-q")) == len(FOREIGN))
        assert broker.requests("CHANGE_MESSAGE_INVISIBLETIME") == []
        assert receiver.drain(0.5) == ["task"]


# Connections


def test_a_connection_fails_over_to_another_url(broker: TestBroker) -> None:
    urls = f"rocketmq://127.0.0.1:1;rocketmq://{broker.name_server_address}"
    with Connection(urls, transport_options=WAITING_SHORTLY) as connection:
        connection.ensure_connection(max_retries=2, interval_start=0)
        publish(connection, job_queue("q"), "task")
    assert len(broker.messages("q")) == 1


def test_several_name_servers_of_one_cluster(broker: TestBroker) -> None:
    host, port = broker.name_server_address.rsplit(":", 1)
    with Connection(f"rocketmq://127.0.0.2,{host}:{port}") as connection:
        publish(connection, job_queue("q"), "task")
    assert len(broker.messages("q")) == 1


def test_a_url_without_a_host_takes_the_name_servers_of_the_environment(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:1;{broker.name_server_address}")
    with Connection("rocketmq://") as connection, connection.clone() as clone:
        publish(clone, job_queue("q"), "task")
    assert len(broker.messages("q")) == 1


def test_no_broker_is_an_operational_error() -> None:
    with (
        Connection("rocketmq://127.0.0.1:1", transport_options=WAITING_SHORTLY) as connection,
        pytest.raises(OperationalError),
    ):
        connection.ensure_connection(max_retries=1, interval_start=0)


def test_green_threads_are_refused(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "detect_environment", lambda: "eventlet")
    with opened(broker) as connection, pytest.raises(ConfigurationError, match="which eventlet replaces"):
        connection.connect()


def test_a_short_outage_is_ridden_out(broker: TestBroker) -> None:
    with connect(broker.name_server_address, connection_loss_timeout=60) as connection:
        receiver = Receiver(connection, job_queue("q"))
        publish(connection, job_queue("q"), "before")
        receiver.wait_for(1)
        broker.crash()
        broker.restart()
        publish(connection, job_queue("q"), "after")
        assert receiver.wait_for(2) == ["before", "after"]
        assert connection.connected


def test_workers_go_on_when_the_broker_is_away_for_seconds(broker: TestBroker) -> None:
    """Publishing waits for it, and messages come about a second after it is back."""
    options = {"client_options": {"request_timeout": 10.0}}
    with (
        connect(broker.name_server_address, **options) as connection,
        connect(broker.name_server_address, **options) as other,
    ):
        receiver = Receiver(connection, job_queue("q"))
        publish(other, job_queue("q"), "before")
        receiver.wait_for(1)
        broker.crash()
        back_at = 0.0

        def restart() -> None:
            nonlocal back_at
            back_at = time.monotonic()
            broker.restart()

        timer = threading.Timer(2.0, restart)
        timer.start()
        publish(other, job_queue("q"), "after")
        published_at = time.monotonic()
        assert receiver.wait_for(2) == ["before", "after"]
        received_at = time.monotonic()
        timer.join()
        assert back_at < published_at < back_at + 15
        assert received_at < back_at + 15
        assert connection.connected


def test_a_connection_is_lost_after_the_documented_time(broker: TestBroker) -> None:
    """A request waits for 4 s, but that does not add to the time."""
    options = {"client_options": {"request_timeout": 4.0}, "connection_loss_timeout": 4.0}
    with connect(broker.name_server_address, **options) as connection:
        receiver = Receiver(connection, job_queue("q"))
        publish(connection, job_queue("q"), "before")
        receiver.wait_for(1)
        broker.crash()
        began = time.monotonic()
        with pytest.raises(OperationalError):
            receiver.wait_for(2)
        assert 3.9 < time.monotonic() - began < 7.9


def test_a_lost_connection_is_reported_and_opened_again(broker: TestBroker) -> None:
    """As Celery does it: the error is one of connection_errors, and a new connection works."""
    with opened(broker, **WAITING_SHORTLY) as connection:
        receiver = Receiver(connection, job_queue("q"))
        publish(connection, job_queue("q"), "before")
        receiver.wait_for(1)
        broker.crash()
        with pytest.raises(connection.connection_errors, match=r"127\.0\.0\.1") as raised:
            receiver.wait_for(2)
        assert isinstance(raised.value, OperationalError)
        assert not connection.connected
        connection.collect()
        broker.restart()
        connection.ensure_connection(max_retries=3, interval_start=0)
        publish(connection, job_queue("q"), "after")
        assert Receiver(connection, job_queue("q")).wait_for(1) == ["after"]


def test_deleting_a_queue_that_is_polled_is_no_failure_of_the_connection(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poller, "RETRY_SECONDS", 0.01)
    with connect(
        broker.name_server_address,
        wait_time_seconds=1.0,
        connection_loss_timeout=1e-6,  # a second failure ends the connection
    ) as connection:
        receiver = Receiver(connection, job_queue("deleted"))
        broker.wait_until(lambda: broker.requests("POP_MESSAGE"))
        job_queue("deleted")(receiver.channel).delete()
        publish(connection, job_queue("q"), "task")
        broker.fail("POP_MESSAGE", times=1)
        receiver.consumer.add_queue(job_queue("q"))
        receiver.consumer.consume()
        assert receiver.wait_for(1) == ["task"]
    assert not [one for one in caplog.records if "is closed" in one.getMessage()]


def test_publishing_reconnects(broker: TestBroker) -> None:
    with opened(broker) as connection:
        publish(connection, job_queue("q"), "before")
        connection.transport.cluster.close()
        publish(connection, job_queue("q"), "after", retry=True, retry_policy={"max_retries": 3})
    assert len(broker.messages("q")) == 2


def test_publishing_to_an_exchange_does_not_wait_until_a_broker_is_back(
    broker: TestBroker, default_timeouts: Callable[[float], None]
) -> None:
    """With unlimited retries, as those of Celery's heartbeats. They run in the worker's event loop."""
    exchange = Exchange("news", type="fanout", durable=False)
    with opened(broker) as connection:
        connection.connect()
        broker.crash()
        default_timeouts(0.5)
        with pytest.raises(TopicNotFoundError, match="no broker is registered"):
            connection.Producer(exchange=exchange).publish({"text": "hello"}, retry=True)


def test_missing_permissions_are_reported_at_once() -> None:
    with run_broker(access_keys={"worker": "secret-key"}) as broker:
        with Connection(f"rocketmq://worker:secret-key@{broker.name_server_address}") as connection:
            publish(connection, job_queue("q"), "task")
            assert Receiver(connection, job_queue("q")).wait_for(1) == ["task"]
        assert len(broker.messages("q")) == 1
        with Connection(f"rocketmq://worker:other-key@{broker.name_server_address}") as connection:
            with pytest.raises(AccessDeniedError) as raised:
                publish(connection, job_queue("p"), "task")
            assert "other-key" not in f"{raised.value}{connection.as_uri()}{connection!r}"


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trusted)
    with run_broker(tls=context) as broker:
        url = f"rocketmq://{broker.name_server_address}"
        with Connection(url, ssl={"ca_certs": str(trusted)}) as connection:
            publish(connection, job_queue("q"), "task")
            assert Receiver(connection, job_queue("q")).wait_for(1) == ["task"]
        with Connection(url, ssl=True) as connection, pytest.raises(OperationalError, match="certificate"):
            connection.ensure_connection(max_retries=1, interval_start=0)


def test_topics_are_not_created_if_that_is_disabled() -> None:
    with (
        run_broker(topics=["there"], auto_create_topic_enable=False) as broker,
        opened(broker, create_topics=False) as connection,
    ):
        publish(connection, job_queue("there"), "task")
        with pytest.raises(connection.channel_errors, match="missing"):
            publish(connection, job_queue("missing"), "task")
        assert set(broker.topics()) == {"there"}


# Priorities

TYPES_OF_5_3 = "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, FIFO, DELAY, NORMAL]"


def test_brokers_before_5_4_create_a_queue_without_priorities(broker: TestBroker) -> None:
    with opened(broker) as connection:
        broker.fail(CREATE, code=ResponseCode.SYSTEM_ERROR, remark=TYPES_OF_5_3, times=1)
        publish(connection, job_queue("q", max_priority=3), "task", priority=3)
    assert len(broker.messages("q")) == 1
    with Admin(broker.name_server_address) as admin:
        (settings,) = admin.topics.describe("q").brokers.values()
    assert (settings.write_queues, settings.attributes) == (4, {})


def test_only_the_old_brokers_of_a_cluster_create_a_queue_without_priorities() -> None:
    with run_cluster(2) as cluster, opened(cluster) as connection:
        old = cluster.fail(
            CREATE, code=ResponseCode.SYSTEM_ERROR, remark=TYPES_OF_5_3, times=1, server="broker-b"
        )
        publish(connection, job_queue("q", max_priority=3), "task", priority=3)
        assert old.count == 1
        with Admin(cluster.name_server_address) as admin:
            settings = admin.topics.describe("q").brokers
    assert {name: one.attributes for name, one in settings.items()} == {
        "broker-a": {"message.type": "PRIORITY"},
        "broker-b": {},
    }


def test_a_broker_that_fails_creates_no_queue_without_priorities(broker: TestBroker) -> None:
    with opened(broker) as connection:
        broker.fail(CREATE, code=ResponseCode.SYSTEM_BUSY, times=1)
        with pytest.raises(connection.connection_errors, match="SYSTEM_BUSY"):
            job_queue("q", max_priority=3)(connection.default_channel).declare()
        assert "q" not in broker.topics()


def test_one_of_several_brokers_that_fails_creates_no_queue_without_priorities() -> None:
    with run_cluster(2) as cluster, opened(cluster) as connection:
        cluster.fail(CREATE, code=ResponseCode.SYSTEM_ERROR, remark=TYPES_OF_5_3, times=1, server="broker-a")
        cluster.fail(CREATE, code=ResponseCode.SYSTEM_BUSY, times=1, server="broker-b")
        with pytest.raises(SomeBrokersFailedError, match="SYSTEM_BUSY"):
            job_queue("q", max_priority=3)(connection.default_channel).declare()
        assert "q" not in cluster.topics()


# Forks


FORKED = """
    import os, sys
    from tests.integrations.kombu_programs import Receiver, connect, job_queue, publish

    connection = connect(sys.argv[1])
    receiver = Receiver(connection, job_queue("q"))
    publish(connection, job_queue("q"), "parent")
    receiver.wait_for(1)
    child = os.fork()
    if not child:
        assert not connection.connected
        connection.collect()
        publish(connection, job_queue("q"), "child", retry=True)
        connection.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert receiver.wait_for(2) == ["parent", "child"]
    connection.close()
    print("good")
"""


@pytest.mark.long
def test_forked_child_opens_its_own_connection(broker: TestBroker) -> None:
    ended = run_program(FORKED, broker.name_server_address)
    assert (ended.stdout, ended.returncode) == ("good\n", 0), ended.stderr


# Overload


@pytest.mark.long
def test_a_slow_listener_holds_up_no_other(broker: TestBroker) -> None:
    exchange = Exchange("news", type="fanout", durable=False)
    with opened(broker) as connection, opened(broker) as other:
        slow = Receiver(other, Queue("slow", exchange, auto_delete=True), no_ack=True, act=keep)
        quick = Receiver(connection, Queue("quick", exchange, auto_delete=True), no_ack=True, act=keep)
        channel = connection.channel()
        for number in range(1500):
            channel.basic_publish(channel.prepare_message(str(number)), "news", "")
        assert len(quick.wait_for(1500)) == 1500
        assert len(other.transport.inbox("slow")) <= 1000
        assert [int(body) for body in slow.wait_for(1500)] == list(range(1500))
