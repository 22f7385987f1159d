"""The Airflow provider, on the embedded broker and on 5.x. Airflow has an environment of its own: ``make
airflow``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import pytest

from rocketmq_py import Message, PoppedMessage
from rocketmq_py.blocking import Admin, PopConsumer, Producer
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.airflow.provider import get_provider_info
from rocketmq_py.remoting import TLS
from rocketmq_py.testing import TestBroker, run_broker
from tests.hostname_resolver import point_to_this_host

pytest.importorskip("airflow", reason="Airflow has an environment of its own: make airflow")
PATIENCE = 120
EXAMPLE = Path(__file__).parents[2] / "examples" / "airflow_dag.py"


@attrs.frozen
class Connection:
    """The fields of an Airflow connection that the hook reads."""

    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = None
    extra_dejson: dict[str, Any] = attrs.field(factory=dict)


@pytest.fixture
def topic(address: str, unique: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of the cluster at Airflow's connection ``rocketmq_default``."""
    connection = {"conn_type": "rocketmq", "host": address}
    monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps(connection))
    create_topic(address, unique)
    return unique


def create_topic(address: str, topic: str) -> None:
    with Admin(address) as admin:
        admin.topics.create(topic, queues=2)


def send(address: str, topic: str, *bodies: bytes, tags: str = "placed") -> None:
    with Producer(address) as producer:
        for body in bodies:
            producer.send(Message(topic, body, tags=tags, keys="k1 k2", properties={"shop": "1"}))


def receive(address: str, topic: str, count: int) -> list[PoppedMessage]:
    """Receive the first messages of a topic."""
    received: list[PoppedMessage] = []
    with PopConsumer(address, group=f"readers-{topic}", consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        while len(received) < count:
            received += consumer.receive(max_messages=count - len(received))
    return received


def test_connections_become_client_arguments() -> None:
    from rocketmq_py.integrations.airflow.hook import client_arguments

    assert client_arguments(Connection()) == ("127.0.0.1:9876", {})
    assert client_arguments(Connection("mq", 7)) == ("mq:7", {})
    assert client_arguments(Connection("a;b:1", 7)) == ("a:9876;b:1", {})
    assert client_arguments(Connection(" http://mq/ ", 7)) == ("http://mq:7", {})
    assert client_arguments(Connection("https://a/;http://b:1")) == ("https://a:9876;http://b:1", {})
    assert client_arguments(Connection("http://a/nsaddr")) == ("http://a/nsaddr", {})
    with pytest.raises(ConfigurationError, match="is in lower case"):
        client_arguments(Connection("a; http://mq_inst_1_b.example"))
    extra = {"namespace": "team", "security_token": "t", "tls": True, "ca_file": "", "request_timeout": 2.0}
    address, options = client_arguments(Connection("a", None, "key", "secret", extra))
    credentials = options.pop("credentials")
    tls = options.pop("tls")
    assert (address, options) == ("a:9876", {"namespace": "team", "request_timeout": 2.0})
    assert isinstance(credentials, Credentials)
    assert credentials.security_token == "t"
    assert isinstance(tls, TLS)
    assert tls.verify
    # The URI of a connection has texts.
    assert client_arguments(Connection("a:1", extra_dejson={"tls": "false"})) == ("a:1", {})
    assert client_arguments(Connection("a:1", extra_dejson={"start_deliver_time": True})) == ("a:1", {})


@pytest.mark.parametrize("setting", [True, "true", None, False])
def test_the_hook_delays_messages_by_the_property_of_a_service(
    monkeypatch: pytest.MonkeyPatch, setting: object
) -> None:
    from rocketmq_py.integrations.airflow.hook import RocketMQHook

    with run_broker(profile="tencent-4", topics=["Later"]) as broker:
        keys = broker.client_options["credentials"]
        connection = {
            "conn_type": "rocketmq",
            "host": broker.name_server_address,
            "login": keys.access_key,
            "password": keys.secret_key,
            "extra": {"namespace": broker.client_options["namespace"], "start_deliver_time": setting},
        }
        monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps(connection))
        RocketMQHook().send([Message("Later", b"x", delay=3600)])
        assert len(broker.messages("Later")) == (0 if setting else 1)
        broker.advance("1h")
        assert len(broker.messages("Later")) == 1


@pytest.mark.parametrize("profile", ["tencent-4", "alibaba-4"])
@pytest.mark.parametrize("form", ["fields", "URI"])
def test_the_host_of_a_service_is_enough(monkeypatch: pytest.MonkeyPatch, profile: str, form: str) -> None:
    """The host tells how the service delays, and on Alibaba Cloud 4.x the namespace, with its capitals."""
    from rocketmq_py.integrations.airflow.hook import RocketMQHook

    with run_broker(profile=profile, topics=["Later:1:DELAY"]) as broker:
        settings = broker.client_options
        keys, namespace = settings["credentials"], settings["namespace"]
        host, extra = "rocketmq-1.ap-guangzhou.public.tencenttdmq.com", {"namespace": namespace}
        if profile == "alibaba-4":
            host, extra = f"{namespace}.cn-hangzhou.mq-internal.aliyuncs.com", {}
        point_to_this_host(monkeypatch, host)
        port = int(broker.name_server_address.rpartition(":")[2])
        fields = {"conn_type": "rocketmq", "login": keys.access_key, "password": keys.secret_key}
        connection = json.dumps({**fields, "host": f"http://{host}:{port}", "extra": extra})
        if form == "URI":
            login = f"{quote(keys.access_key)}:{quote(keys.secret_key)}"
            # Airflow writes a host without a quoted "/" in lower case.
            there = quote(f"http://{host}", safe="") if profile == "alibaba-4" else host
            connection = f"rocketmq://{login}@{there}:{port}/?{urlencode(extra)}"
        monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", connection)
        RocketMQHook().send([Message("Later", b"x", delay=3600)])
        assert broker.messages("Later") == []
        broker.advance("1h")
        assert len(broker.messages("Later")) == 1


@pytest.mark.parametrize("host", ["MQ_INST_1380_BbXb.example.com", "http://MQ_INST_1380_BbXb.example.com"])
def test_a_uri_without_the_capitals_of_the_namespace_is_refused(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    from rocketmq_py.integrations.airflow.hook import RocketMQHook

    uri = f"rocketmq://{host}:8080/"
    monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", uri)
    with pytest.raises(ConfigurationError, match=r"mq_inst_1380_bbxb.*http%3A%2F%2FMQ_INST_…"):
        RocketMQHook().get_conn()
    monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", f"{uri}?namespace=MQ_INST_1380_BbXb")
    assert RocketMQHook().get_conn().settings.namespace == "MQ_INST_1380_BbXb"


def test_an_endpoint_of_the_http_product_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketmq_py.integrations.airflow.hook import RocketMQHook

    for host in ("http://1380.mqrest.cn-hangzhou.aliyuncs.com", "1380.mqrest.cn-hangzhou.aliyuncs.com"):
        connection = json.dumps({"conn_type": "rocketmq", "host": host})
        monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", connection)
        with pytest.raises(ConfigurationError, match="use the TCP endpoint of the instance"):
            RocketMQHook().get_conn()


def test_the_provider_describes_existing_modules_and_classes() -> None:
    from airflow.providers_manager import ProvidersManager
    from airflow.sdk.module_loading import import_string

    manager = ProvidersManager()
    found = manager.providers["rocketmq-py"].data
    assert found == {**found, **get_provider_info()}
    (form,) = found["connection-types"]
    hook = import_string(form["hook-class-name"])
    assert (hook.conn_type, hook.hook_name) == (form["connection-type"], form["hook-name"])
    assert "rocketmq_py.integrations.airflow.queues.RocketMQMessageQueueProvider" in manager.queue_class_names


def test_the_hook_tests_its_connection(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketmq_py.integrations.airflow.hook import RocketMQHook

    works, answer = RocketMQHook().test_connection()
    assert works
    assert answer.endswith(" brokers answered")
    monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", '{"conn_type": "rocketmq", "extra": {"colour": 1}}')
    works, reason = RocketMQHook().test_connection()
    assert not works
    assert "colour" in reason


def test_the_hook_sends_messages(address: str, topic: str) -> None:
    from rocketmq_py.integrations.airflow.hook import RocketMQHook

    results = RocketMQHook().send([Message(topic, b"a"), Message(topic, b"b")])
    stored = {message.message_id: message.body for message in receive(address, topic, 2)}
    assert stored == dict(zip([result.message_id for result in results], [b"a", b"b"], strict=True))


def test_the_operator_sends_each_body(address: str, topic: str) -> None:
    from rocketmq_py.integrations.airflow.operators import RocketMQSendOperator

    operator = RocketMQSendOperator(
        task_id="send", topic=topic, bodies=["ä", "b"], tags="placed", keys="k", properties={"shop": "1"}
    )
    ids = operator.execute({})
    stored = {message.message_id: message for message in receive(address, topic, 2)}
    assert [stored[one].body.decode() for one in ids] == ["ä", "b"]
    assert {(one.tags, one.properties["shop"]) for one in stored.values()} == {("placed", "1")}


def test_the_sensor_pokes_until_a_message_arrives(address: str, topic: str) -> None:
    from rocketmq_py.integrations.airflow.sensors import RocketMQMessageSensor

    send(address, topic, b"other", tags="cancelled")
    sensor = RocketMQMessageSensor(
        task_id="wait", topic=topic, group=f"sensors-{topic}", tags="placed", timeout=60, poke_interval=0.1
    )
    assert not sensor.poke({}).is_done
    send(address, topic, b"\xff\xfe")
    found = sensor.execute({})
    assert found["body_base64"] == "//4="
    assert found["keys"] == ["k1", "k2"]
    assert json.loads(json.dumps(found)) == found


def test_a_deferrable_sensor_defers_to_the_trigger(address: str, topic: str) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from rocketmq_py.integrations.airflow.sensors import RocketMQMessageSensor
    from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

    group = f"sensors-{topic}"
    sensor = RocketMQMessageSensor(task_id="wait", topic=topic, group=group, deferrable=True, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert path == "rocketmq_py.integrations.airflow.trigger.RocketMQMessageTrigger"
    assert arguments["once"]
    trigger = RocketMQMessageTrigger(**arguments)
    send(address, topic, b"1", b"2")

    async def fired() -> list[dict[str, Any]]:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(asyncio.wait_for(fired(), PATIENCE))
    assert sensor.execute_complete({}, event) is event
    assert event["body"] in ("1", "2")


def test_a_trigger_fires_for_each_message_and_redelivers_one_whose_event_was_not_taken(
    address: str, topic: str
) -> None:
    from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

    send(address, topic, b"1", b"2", b"3")

    async def take(count: int) -> list[str]:
        trigger = RocketMQMessageTrigger(topic, f"triggers-{topic}", invisible=3.0)
        bodies: list[str] = []
        events = trigger.run()
        while len(bodies) < count:
            bodies.append((await anext(events)).payload["body"])
        await events.aclose()  # as when the triggerer is stopped: the last event was not taken
        return bodies

    first = asyncio.run(asyncio.wait_for(take(2), PATIENCE))
    rest = asyncio.run(asyncio.wait_for(take(2), PATIENCE))
    assert sorted({*first, *rest}) == ["1", "2", "3"]
    assert first[0] not in rest


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestBroker]:
    """A broker with the topic Orders, at Airflow's connection ``rocketmq_default``."""
    from rocketmq_py.integrations.airflow import trigger

    monkeypatch.setattr(trigger, "RETRY_SECONDS", 0.01)
    with run_broker(topics=["Orders"]) as broker:
        connection = {"conn_type": "rocketmq", "host": broker.name_server_address}
        monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps(connection))
        yield broker


async def take_events(count: int, **options: Any) -> list[str]:
    """Return the bodies of a trigger's events."""
    from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

    events = RocketMQMessageTrigger("Orders", "triggers", **options).run()
    bodies = [(await anext(events)).payload["body"] for _ in range(count)]
    await events.aclose()
    return bodies


def test_a_trigger_retries_acknowledgements(broker: TestBroker) -> None:
    send(broker.name_server_address, "Orders", b"1", b"2")
    fault = broker.fail("ACK_MESSAGE", times=2)
    bodies = asyncio.run(asyncio.wait_for(take_events(2), PATIENCE))
    assert sorted(bodies) == ["1", "2"]
    assert fault.count == 2
    assert len(broker.requests("ACK_MESSAGE")) == 3


def test_a_trigger_fires_again_for_a_message_that_it_could_not_acknowledge(broker: TestBroker) -> None:
    send(broker.name_server_address, "Orders", b"1")
    broker.fail("ACK_MESSAGE")
    assert asyncio.run(asyncio.wait_for(take_events(2, invisible=1.0), PATIENCE)) == ["1", "1"]


def test_message_queue_triggers_find_the_provider(address: str, topic: str) -> None:
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    from rocketmq_py.integrations.airflow.queues import RocketMQMessageQueueProvider
    from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

    trigger = MessageQueueTrigger(scheme="rocketmq", topic=topic, group=f"triggers-{topic}")
    assert isinstance(trigger.trigger, RocketMQMessageTrigger)
    send(address, topic, b"1")

    async def fired() -> str:
        events = trigger.run()
        event = await anext(events)
        await events.aclose()
        return str(event.payload["body"])

    assert asyncio.run(asyncio.wait_for(fired(), PATIENCE)) == "1"
    provider = RocketMQMessageQueueProvider()
    assert provider.queue_matches("rocketmq://mine/Orders")
    assert provider.trigger_kwargs("rocketmq://mine/Orders", group="g") == {
        "rocketmq_conn_id": "mine",
        "topic": "Orders",
    }
    with pytest.raises(ConfigurationError, match="it must be rocketmq://CONNECTION_ID/TOPIC"):
        provider.trigger_kwargs("rocketmq://mine")


def test_the_example_runs_in_a_dag_run(address: str, topic: str, tmp_path: Path) -> None:
    """Airflow runs the whole DAG: it sends, defers, resumes after the trigger, and bills the order."""
    create_topic(address, "Orders")
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / EXAMPLE.name).write_text(EXAMPLE.read_text())
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    for arguments in (["db", "migrate"], ["dags", "test", "send_and_wait"]):
        ended = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    assert "billed: order 7" in ended.stdout
