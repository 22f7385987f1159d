"""The collector for prometheus-client, its example and its dashboard."""

from __future__ import annotations

import gc
import json
import re
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rocketmq_py import Client as TrioClient
from rocketmq_py import Message, Producer
from rocketmq_py.blocking import Client
from rocketmq_py.client import core_of
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.prometheus import RocketMQCollector
from rocketmq_py.telemetry import TelemetryMetrics
from rocketmq_py.testing import run_broker
from tests.programs import ENVIRONMENT

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.name_server_address


def families(registry: CollectorRegistry) -> dict[str, str]:
    """Return the type of each metric that a scrape has."""
    text = generate_latest(registry).decode()
    return {one.name: one.type for one in text_string_to_metric_families(text)}


@pytest.mark.parametrize("names", ["rocketmq", "semconv"])
def test_opentelemetry_exports_the_same_metrics(name_server: str, names: str) -> None:
    own, through_opentelemetry = CollectorRegistry(), CollectorRegistry()
    reader = PrometheusMetricReader(disable_target_info=True, registry=through_opentelemetry)
    provider = MeterProvider(metric_readers=[reader])
    with (
        Client(name_server) as client,
        client.producer("shop") as producer,
        client.lite_pull_consumer("lite", consume_from="earliest") as consumer,
    ):
        own.register(RocketMQCollector(producer, consumer, names=names))
        TelemetryMetrics(producer, consumer, meter_provider=provider, names=names)
        producer.send(Message("T", b"1"))
        consumer.subscribe("T")
        while not consumer.poll():
            pass
        found = families(own)
        assert found == {**families(through_opentelemetry)}
        assert "rocketmq_client_connections" in found
        send = (
            "rocketmq_send_cost_time"
            if names == "rocketmq"
            else "messaging_client_operation_duration_seconds"
        )
        assert found[send] == "histogram"
    provider.shutdown()


def test_a_scrape_has_the_values_of_the_members(name_server: str) -> None:
    registry = CollectorRegistry()
    collector = RocketMQCollector()
    registry.register(collector)
    assert families(registry) == {}
    with Client(name_server) as client, client.producer("shop") as producer:
        collector.add(producer)
        producer.send_batch([Message("Batches", b"1")] * 3)
        labels = {"topic": "Batches", "invocation_status": "success"}
        assert registry.get_sample_value("rocketmq_send_cost_time_count", labels) == 1
        assert registry.get_sample_value("rocketmq_send_cost_time_bucket", {**labels, "le": "+Inf"}) == 1
        group = {"producer_group": "shop"}
        assert registry.get_sample_value("rocketmq_client_sent_messages_total", group) == 3


def test_counters_do_not_fall_when_a_producer_or_its_client_ends() -> None:
    registry = CollectorRegistry()
    collector = RocketMQCollector()
    registry.register(collector)
    labels = {"producer_group": "shop"}
    for sent in (3, 4):
        producer = Producer(TrioClient("127.0.0.1:1"), group="shop")
        collector.add(producer)
        producer._sender.counters.sent += sent
    for _ in range(2):
        assert registry.get_sample_value("rocketmq_client_sent_messages_total", labels) == 7
        gc.collect()
    del producer
    gc.collect()
    assert registry.get_sample_value("rocketmq_client_sent_messages_total", labels) == 7


@pytest.mark.parametrize("names", ["rocketmq", "semconv"])
def test_a_restart_makes_no_new_series(name_server: str, names: str) -> None:
    """The id of a client is another one at each start."""
    series = []
    for _ in range(2):
        registry = CollectorRegistry()
        collector = RocketMQCollector(names=names)
        registry.register(collector)
        with (
            Client(name_server) as client,
            client.producer("shop") as producer,
            client.lite_pull_consumer("billing", consume_from="earliest") as consumer,
        ):
            collector.add(producer)
            collector.add(consumer)
            producer.send(Message("T", b"1"))
            consumer.subscribe("T")
            while not consumer.poll(wait=1):
                pass
            samples = [sample for family in registry.collect() for sample in family.samples]
        series.append({(sample.name, *sample.labels.items()) for sample in samples})
    assert series[0] == series[1]


def test_connections_count_once_for_all_members_of_a_client(name_server: str) -> None:
    registry = CollectorRegistry()
    with Client(name_server) as client, Client(name_server) as other:
        producers = [client.producer("shop"), client.producer("shop"), other.producer("shop")]
        registry.register(RocketMQCollector(*producers))
        with producers[0], producers[1], producers[2]:
            for producer in producers:
                producer.send(Message("T", b"1"))
            clients = (client._target, other._target)
            opened = [len(core_of(each).connections.open_connections()) for each in clients]
            assert registry.get_sample_value("rocketmq_client_connections") == sum(opened)
            assert all(opened)


def test_other_objects_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="a producer or consumer of rocketmq_py, not int"):
        RocketMQCollector(1)


def test_each_query_of_the_dashboard_names_exported_metrics() -> None:
    exported = set()
    for family in RocketMQCollector().describe():
        suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
        exported |= {f"{family.name}{suffix}" for suffix in suffixes[family.type]}
    dashboard = json.loads((EXAMPLES / "metrics_dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    for query in queries:
        names = set(re.findall(r"\brocketmq_\w+", query))
        assert names, query
        assert names <= exported, query
        assert query.count("(") == query.count(")"), query
    shown = {name.removesuffix("_bucket") for query in queries for name in re.findall(r"rocketmq_\w+", query)}
    official = [
        "send_cost_time",
        "delivery_latency",
        "await_time",
        "process_time",
        "consumer_cached_messages",
    ]
    assert {f"rocketmq_{name}" for name in official} <= shown


def test_the_example_serves_the_metrics_of_the_dashboard(name_server: str) -> None:
    command = [sys.executable, str(EXAMPLES / "metrics.py"), name_server, "0"]
    with Popen(command, stdout=PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        text = ""
        while "rocketmq_process_time_count" not in text:
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read().decode()
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert 'rocketmq_send_cost_time_bucket{invocation_status="' in text
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for panel in json.loads((EXAMPLES / "metrics_dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            [name] = re.findall(r"\brocketmq_\w+", target["expr"])
            [grouping] = re.findall(r"\bby \(([\w, ]+)\)", target["expr"])
            grouped = set(grouping.split(", "))
            # Prometheus itself adds the instance.
            assert grouped - {"instance"} <= labels.get(name, set()), target["expr"]
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped, target[
                "legendFormat"
            ]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads((EXAMPLES / "metrics_dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = []
    for place in (panel["gridPos"] for panel in panels):
        assert place["x"] + place["w"] <= 24, "Grafana has 24 columns"
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells += [(column, row) for column in columns for row in rows]
    assert len(cells) == len(set(cells))
