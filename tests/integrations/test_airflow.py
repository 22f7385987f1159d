"""The Airflow provider. Airflow needs an environment of its own: ``make airflow``."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketmq_py import Message
from rocketmq_py.blocking import Producer
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.airflow.provider import get_provider_info
from rocketmq_py.testing import TestBroker, run_broker

pytest.importorskip("airflow", reason="Airflow has an environment of its own: make airflow")
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
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestBroker]:
    """A broker at Airflow's connection ``rocketmq_default``."""
    with run_broker() as broker:
        connection = {"conn_type": "rocketmq", "host": broker.name_server_address}
        monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps(connection))
        yield broker


def send(broker: TestBroker, *bodies: bytes) -> None:
    with Producer(broker.name_server_address) as producer:
        for body in bodies:
            producer.send(Message("Orders", body, tags="placed", keys="k1 k2", properties={"shop": "1"}))


def test_connections_become_client_arguments() -> None:
    from rocketmq_py.integrations.airflow.hook import client_arguments

    assert client_arguments(Connection()) == ("127.0.0.1:9876", {})
    assert client_arguments(Connection("mq", 7)) == ("mq:7", {})
    assert client_arguments(Connection("a;b:1", 7)) == ("a:9876;b:1", {})
    extra = {"namespace": "team", "security_token": "t", "tls": True, "ca_file": "", "request_timeout": 2.0}
    address, options = client_arguments(Connection("a", None, "key", "secret", extra))
    credentials = options.pop("credentials")
    tls = options.pop("tls")
    assert (address, options) == ("a:9876", {"namespace": "team", "request_timeout": 2.0})
    assert isinstance(credentials, Credentials)
    assert credentials.security_token == "t"
    assert tls is not None
    assert tls.verify


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


def test_the_hook_tests_its_connection(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketmq_py.integrations.airflow.hook import RocketMQHook

    assert RocketMQHook().test_connection() == (True, "1 brokers answered")
    monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", '{"conn_type": "rocketmq", "extra": {"colour": 1}}')
    works, reason = RocketMQHook().test_connection()
    assert not works
    assert "colour" in reason


def test_the_operator_sends_each_body(broker: TestBroker) -> None:
    from rocketmq_py.integrations.airflow.operators import RocketMQSendOperator

    operator = RocketMQSendOperator(
        task_id="send", topic="Orders", bodies=["ä", "b"], tags="placed", keys="k", properties={"shop": "1"}
    )
    ids = operator.execute({})
    stored = {message.message_id: message for message in broker.messages("Orders")}
    assert [stored[one].body.decode() for one in ids] == ["ä", "b"]
    assert {(one.tags, one.properties["shop"]) for one in stored.values()} == {("placed", "1")}


def test_the_sensor_pokes_until_a_message_arrives(broker: TestBroker) -> None:
    from rocketmq_py.integrations.airflow.sensors import RocketMQMessageSensor

    send(broker)
    with Producer(broker.name_server_address) as producer:
        producer.send(Message("Orders", b"other", tags="cancelled"))
    sensor = RocketMQMessageSensor(task_id="wait", topic="Orders", group="g", tags="placed", timeout=60)
    assert not sensor.poke({}).is_done
    send(broker, b"\xff\xfe")
    found = sensor.poke({})
    assert found.is_done
    assert found.xcom_value["body_base64"] == "//4="
    assert found.xcom_value["keys"] == ["k1", "k2"]
    assert json.loads(json.dumps(found.xcom_value)) == found.xcom_value


def test_a_deferrable_sensor_defers_to_the_trigger(broker: TestBroker) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from rocketmq_py.integrations.airflow.sensors import RocketMQMessageSensor
    from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

    sensor = RocketMQMessageSensor(task_id="wait", topic="Orders", group="g", deferrable=True, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert path == "rocketmq_py.integrations.airflow.trigger.RocketMQMessageTrigger"
    assert arguments["once"]
    trigger = RocketMQMessageTrigger(**arguments)
    send(broker, b"1", b"2")

    async def fired() -> list[dict[str, Any]]:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(asyncio.wait_for(fired(), 60))
    assert sensor.execute_complete({}, event) is event
    assert event["body"] in ("1", "2")


def test_a_trigger_fires_for_each_message_and_redelivers_one_whose_event_was_not_taken(
    broker: TestBroker,
) -> None:
    from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

    send(broker, b"1", b"2", b"3")

    async def take(count: int) -> list[str]:
        trigger = RocketMQMessageTrigger("Orders", "g", invisible=1.0)
        bodies: list[str] = []
        events = trigger.run()
        while len(bodies) < count:
            bodies.append((await anext(events)).payload["body"])
        await events.aclose()  # as when the triggerer is stopped: the last event was not taken
        return bodies

    first = asyncio.run(asyncio.wait_for(take(2), 60))
    rest = asyncio.run(asyncio.wait_for(take(2), 60))
    assert sorted({*first, *rest}) == ["1", "2", "3"]
    assert first[0] not in rest


def test_message_queue_triggers_find_the_provider() -> None:
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    from rocketmq_py.integrations.airflow.queues import RocketMQMessageQueueProvider
    from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

    trigger = MessageQueueTrigger(scheme="rocketmq", topic="Orders", group="g")
    assert isinstance(trigger.trigger, RocketMQMessageTrigger)
    provider = RocketMQMessageQueueProvider()
    assert provider.queue_matches("rocketmq://mine/Orders")
    assert provider.trigger_kwargs("rocketmq://mine/Orders", group="g") == {
        "rocketmq_conn_id": "mine",
        "topic": "Orders",
    }
    with pytest.raises(ConfigurationError, match="it must be rocketmq://CONNECTION_ID/TOPIC"):
        provider.trigger_kwargs("rocketmq://mine")


def test_the_example_runs_in_a_dag_run(broker: TestBroker, tmp_path: Path) -> None:
    """Airflow runs the whole DAG: it sends, defers, resumes after the trigger, and bills the order."""
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
