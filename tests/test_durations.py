"""Each duration may be a number of seconds or a timedelta."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import rocketmq_py
from rocketmq_py import Message, RollbackOffset, Suspend, TransactionState
from rocketmq_py.arguments import check_timeout, check_wait
from rocketmq_py.blocking import (
    Client,
    LitePullConsumer,
    PopConsumer,
    Producer,
    PushConsumer,
)
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer import OffsetRange
from rocketmq_py.consumer.lite.settings import LiteTopicConsumerSettings, LiteTopicPushConsumerSettings
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.consumer.pop.settings import PopConsumerSettings
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.deduplication import Deduplicate, SQLiteStore
from rocketmq_py.errors import ConfigurationError, InvalidMessageError, ReplyTimeoutError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.producer import LatencyFaultPolicy
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.relay.settings import RelaySettings
from rocketmq_py.remoting import TLS
from rocketmq_py.testing import run_broker

SOURCE = Path(rocketmq_py.__file__).parent
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
CONFIGS: dict[Any, dict[str, Any]] = {
    ClientSettings: {},
    ProducerSettings: {},
    PushConsumerSettings: {"group": "g"},
    LitePullConsumerSettings: {"group": "g"},
    PopConsumerSettings: {"group": "g"},
    LiteTopicConsumerSettings: {"group": "g", "parent": "T"},
    LiteTopicPushConsumerSettings: {"group": "g", "parent": "T"},
    RelaySettings: {"topic": "T", "store": "store"},
    BrokerConfig: {},
}
NO_DURATIONS = {"max_rate", "bytes_per_second", "fraction", "received_messages_size_buckets"}
ROOMS = ("admin", "aio", "blocking", "deduplication", "integrations", "producer", "relay", "testing")


def durations_of(config: Any) -> list[str]:
    fields = [field for field in attrs.fields(config) if str(field.type).startswith("float")]
    return [field.name for field in fields if field.name not in NO_DURATIONS]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_each_setting_may_be_a_timedelta(config: Any) -> None:
    names = durations_of(config)
    assert names
    for name in names:
        value = getattr(config(**CONFIGS[config]), name) or 7.0
        made = config(**CONFIGS[config], **{name: timedelta(seconds=value)})
        assert getattr(made, name) == value
        with pytest.raises(ConfigurationError, match=name):
            config(**CONFIGS[config], **{name: -MINUTE})


def test_a_negative_timedelta_is_refused_like_a_number() -> None:
    assert (check_timeout(MINUTE), check_timeout(2.0), check_timeout(None)) == (60.0, 2.0, None)
    with pytest.raises(ConfigurationError, match=r"timeout is datetime\.timedelta"):
        check_timeout(-MINUTE)
    assert (check_wait(0), check_wait(MINUTE)) == (0, 60.0)
    with pytest.raises(ConfigurationError, match="wait is -1; it must be 0 or more, in seconds"):
        check_wait(-1)
    with pytest.raises(InvalidMessageError, match=r"delay is -60\.0 seconds"):
        Message("T", b"x", delay=-MINUTE)
    for result in (Suspend, RollbackOffset):
        with pytest.raises(ConfigurationError, match=r"seconds is -60\.0"):
            result(-MINUTE)


def test_values_may_be_timedeltas() -> None:
    assert Message("T", b"x", delay=MINUTE) == Message("T", b"x", delay=60.0)
    assert (Suspend(MINUTE), RollbackOffset(MINUTE)) == (Suspend(60.0), RollbackOffset(60.0))
    policy = LatencyFaultPolicy(latencies=[SECOND], unavailable=[MINUTE], error_latency=MINUTE)
    assert policy == LatencyFaultPolicy(latencies=[1.0], unavailable=[60.0], error_latency=60.0)
    store = SQLiteStore(":memory:", timeout=SECOND)
    deduplicate = Deduplicate(store, ttl=MINUTE, claim_timeout=SECOND)
    store.close()
    assert (deduplicate.ttl, deduplicate.claim_timeout) == (60.0, 1.0)


def test_calls_take_timedeltas() -> None:
    """The trio classes check them for all APIs."""
    with run_broker(topics=["T"]) as broker, Client(broker.name_server_address) as client:
        calls_with_timedeltas(client)
        broker.wait_until(lambda: broker.messages("T"), timeout=MINUTE)


def calls_with_timedeltas(client: Client) -> None:
    message = Message("T", b"x")
    producer: Producer = client.producer("g", send_timeout=MINUTE)
    with producer:
        producer.send(message, timeout=MINUTE)
        producer.submit(message, timeout=MINUTE).result(60)
        producer.send_batch([message], timeout=MINUTE)
        with pytest.raises(ReplyTimeoutError):
            producer.request(message, timeout=timedelta(milliseconds=1))
    with Producer(client, linger=timedelta(milliseconds=1)) as batching:
        batching.submit(message, timeout=MINUTE).result(60)
    polling: LitePullConsumer = client.lite_pull_consumer("lite", consume_from="earliest")
    with polling:
        polling.subscribe("T")
        assert polling.poll(wait=MINUTE)
    popping: PopConsumer = client.pop_consumer("pop", consume_from="earliest")
    with popping:
        popping.subscribe("T")
        received = popping.receive(invisible=MINUTE, wait=SECOND)
        popping.change_invisible(received[0], MINUTE)
        with popping.holding(received[1], invisible=MINUTE):
            pass
    with client.reader() as reader:
        ranges = [OffsetRange(queue, 0, 1) for queue, (_, end) in reader.offsets("T").items() if end]
        with reader.pull(ranges, retry_timeout=MINUTE) as results:
            assert list(results)
    handled: list[ReceivedMessage] = []
    pushing: PushConsumer = client.push_consumer("push", consume_from="earliest", close_timeout=SECOND)
    with pushing:
        pushing.subscribe("T")
        run = pushing.start(handled.append)
        pushing.stop()
        run.result(60)


# Signatures


def annotated() -> Iterator[tuple[str, str, str]]:
    """Yield each parameter of a public method: where it is, its name and its annotation."""
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            for kind in ast.parse(path.read_text()).body:
                if isinstance(kind, ast.ClassDef) and not kind.name.startswith("_"):
                    for function in kind.body:
                        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                            for each in function.args.args + function.args.kwonlyargs:
                                if each.annotation is not None:
                                    where = f"{path.relative_to(SOURCE)} {kind.name}.{function.name}"
                                    yield where, each.arg, ast.unparse(each.annotation)


PUBLIC = {
    "send", "submit", "send_batch", "request", "submit_request", "reply", "poll", "receive",
    "send_in_transaction", "transaction", "holding", "change_invisible", "pull", "publish", "publish_batch",
    "nack", "get_one", "ping", "wait_for", "wait_until",
}  # fmt: skip


def test_calls_of_all_apis_are_annotated_alike() -> None:
    """``float`` alone would have type checkers refuse a timedelta."""
    internal = ("send_queue", "Call.", "handoff", "kombu", "log_handler", "producer/batch_sender")
    found = [
        (where, name, annotation)
        for where, name, annotation in annotated()
        if where.rpartition(".")[2] in PUBLIC and not any(part in where for part in internal)
    ]
    assert len([one for one in found if "Duration" in one[2]]) > 40
    assert [one for one in found if "float" in one[2].split("[")[0]] == []


# TLS


def test_true_means_the_default_tls() -> None:
    assert ClientSettings(tls=True) == ClientSettings(tls=TLS())
    assert ClientSettings(tls=False).tls is None
    wrong: Any = 1
    with pytest.raises(ConfigurationError, match="tls must be a TLS, not int"):
        ClientSettings(tls=wrong)


@pytest.mark.parametrize("linger", [None, 0.01])
@pytest.mark.parametrize("timeout", [0, timedelta(0), -1])
def test_sends_refuse_a_timeout_that_leaves_no_time(linger: float | None, timeout: float | timedelta) -> None:
    message, check = Message("T", b"x"), lambda *_: TransactionState.UNKNOWN
    with (
        run_broker(topics=["T"]) as broker,
        Client(broker.name_server_address) as client,
        client.producer("g", linger=linger) as producer,
        client.transaction_producer("t", check=check) as transactions,
    ):
        calls: list[Callable[[], object]] = [
            lambda: producer.send(message, timeout=timeout),
            lambda: producer.submit(message, timeout=timeout).result(),
            lambda: producer.send_batch([message], timeout=timeout),
            lambda: producer.request(message, timeout=timeout),
            lambda: producer.submit_request(message, timeout=timeout).result(),
            lambda: transactions.send_in_transaction(message, check, timeout=timeout),
            lambda: transactions.transaction(message, timeout=timeout).__enter__(),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError, match=r"^timeout is .*; it must be above 0, in seconds$"):
                call()
        assert producer.statistics.failed == 0
        assert not broker.messages("T")
