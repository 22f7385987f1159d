"""``Admin`` reports the same figures for a cluster of two brokers as ``mqadmin``, on the embedded broker
too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio

from integration.clusters.plugin import SETTINGS, start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.figures import (
    BROKER,
    FIGURES,
    OF_5,
    OTHER_BROKER,
    broker_address,
    of_group_settings,
    of_route,
    rows,
)
from integration.mqadmin import mqadmin_all
from integration.scene import COUNT, FAILING, LAGGING, SENDERS, TOPIC, Scene, scene
from rocketmq_py.admin import GroupNotFoundError, Permission, TraceKind
from rocketmq_py.client import core_of
from rocketmq_py.errors import (
    TopicNotFoundError,
)
from rocketmq_py.names import TRACE_TOPIC
from rocketmq_py.testing import run_cluster

pytestmark = pytest.mark.usefixtures("java_and_maven")

EMBEDDED = "embedded"
MADE, LATER = "Made", "Later"


@contextmanager
def two_brokers(name: str) -> Iterator[tuple[str, str]]:
    """Start a cluster. Return the version of its brokers and the address of its name server."""
    if name == EMBEDDED:
        delays = SETTINGS["messageDelayLevel"]
        with run_cluster(2, topics={TRACE_TOPIC: 1}, message_delay_level=delays) as cluster:
            yield "5.5.0", cluster.name_server_address
    else:
        settings = {**SETTINGS, "traceTopicEnable": "true"}
        with start_own_cluster(name, brokers=2, settings=settings) as cluster:
            yield name, cluster.name_servers


@attrs.frozen
class Compared:
    """The figures printed by mqadmin and those returned by ``Admin``.

    Attributes:
        outputs: the output of mqadmin, by test.
        values: the values returned by Admin at the same time.
        changes: both views after one of the two tools changed the cluster.
    """

    outputs: Mapping[str, str]
    values: Mapping[str, Any]
    changes: Mapping[str, tuple[Any, Any]]


async def compare(version: str, address: str) -> Compared:
    """Set up the scene, and read its figures with both tools."""
    async with scene(version, address) as there:
        first = there.sent[0]
        names = {
            "broker": await broker_address(there),
            "of_topic": "" if version.startswith("4.") else f"-t {TOPIC} ",
            "offset_id": first.offset_message_id,
            "unique_id": first.message_id,
            "queue_broker": first.queue.broker_name,
            "queue_id": first.queue.queue_id,
        }
        figures = FIGURES if version.startswith("4.") else {**FIGURES, **OF_5}
        # Delivered counts come first in the output, so Admin reads them last.
        values = {name: await ask(there) for name, (_, _, ask) in reversed([*figures.items()])}
        commands = [command.format(**names) for command, _, _ in figures.values()]
        outputs = dict(zip(figures, await mqadmin_all(version, address, commands), strict=True))
        return Compared(outputs, values, await change(version, address, there))


async def change(version: str, address: str, there: Scene) -> dict[str, tuple[Any, Any]]:
    """Change the cluster with one tool and read the change with the other, in both directions."""
    admin, broker = there.admin, await broker_address(there)
    found: dict[str, tuple[Any, Any]] = {}
    await mqadmin_all(
        version, address,
        [
            f"updateTopic -c DefaultCluster -t {MADE} -r 3 -w 2 -p 4",
            f"updateSubGroup -c DefaultCluster -g {MADE} -r 5",
            f"wipeWritePerm -b {OTHER_BROKER} -n {address}",
            f"updateBrokerConfig -b {broker} -k shortPollingTimeMills -v 777",
            f"updateNamesrvConfig -n {address} -k orderMessageEnable -v true",
            f"cloneGroupOffset -s {LAGGING} -d {MADE} -t {TOPIC} -o true",
        ],
    )  # fmt: skip
    made = (await admin.topics.describe(MADE)).brokers
    found["updateTopic"] = (
        {name: (one.read_queues, one.write_queues, one.permission) for name, one in made.items()},
        dict.fromkeys((BROKER, OTHER_BROKER), (3, 2, Permission.READ)),
    )
    group = await admin.groups.describe(MADE)
    found["updateSubGroup"] = ([one.max_reconsume_times for one in group.settings.values()], [5, 5])
    found["cloneGroupOffset"] = ([(one.topic, one.lag) for one in group.topics], [(TOPIC, COUNT - 16)])
    found["wipeWritePerm"] = (
        {one.broker_name for one in (await core_of(admin).routes.refresh(TOPIC)).write_queues},
        {BROKER},
    )
    found["updateBrokerConfig"] = ((await admin.brokers.settings(BROKER))["shortPollingTimeMills"], "777")
    settings = (await admin.name_servers.settings()).values[address]
    found["updateNamesrvConfig"] = (settings["orderMessageEnable"], "true")

    await admin.brokers.add_write_permission(OTHER_BROKER)
    await admin.topics.alter(MADE, queues=5, permission=Permission.READ_WRITE)
    await admin.topics.create(LATER, queues=2)
    await admin.offsets.reset(LAGGING, TOPIC, "earliest")
    await admin.groups.alter(MADE, max_reconsume_times=7)
    route, progress, config, status, *_ = await mqadmin_all(
        version, address,
        [
            f"topicRoute -t {MADE}", f"consumerProgress -g {LAGGING}", f"getConsumerConfig -g {MADE}",
            f"topicStatus -t {LATER}", f"resetOffsetByTime -g {MADE} -t {TOPIC} -s -1 -f true",
            f"deleteTopic -c DefaultCluster -t {LATER}",
            f"deleteSubGroup -c DefaultCluster -g {LAGGING} -r true",
        ],
    )  # fmt: skip
    found["topics.alter"] = (
        {name: one[1:] for name, one in of_route(route).items()},
        {name: [5, 5, Permission.READ_WRITE] for name in (BROKER, OTHER_BROKER)},
    )
    found["offsets.reset"] = ("Diff Total: 40" in progress, True)
    found["groups.alter"] = ([one[2] for one in of_group_settings(config)], ["7", "7"])
    found["topics.create"] = (len([line for line in rows(status) if line[0].startswith("broker-")]), 4)
    found["resetOffsetByTime"] = ((await admin.groups.describe(MADE)).lag, 0)
    found["deleteTopic"] = (await error_of(admin.topics.describe(LATER)), TopicNotFoundError)
    found["deleteSubGroup"] = ((await error_of(admin.groups.describe(LAGGING))), GroupNotFoundError)
    return found


async def error_of(call: Awaitable[Any]) -> type[Exception] | None:
    try:
        await call
    except (TopicNotFoundError, GroupNotFoundError) as error:
        return type(error)
    return None


@functools.cache
def compared_on(name: str) -> Compared:
    """Compare both tools on a cluster, once per test run."""
    with two_brokers(name) as (version, address):
        return trio.run(compare, version, address)


@pytest.fixture(scope="module", params=[*VERSIONS, EMBEDDED])
def both(request: pytest.FixtureRequest) -> Compared:
    return compared_on(request.param)


@pytest.mark.parametrize("name", [*FIGURES, *OF_5])
def test_the_figures_match_mqadmin(both: Compared, name: str) -> None:
    if name not in both.outputs:
        pytest.skip("mqadmin 4.9.7 has no such command")
    _, read, _ = {**FIGURES, **OF_5}[name]
    assert read(both.outputs[name]) == both.values[name], both.outputs[name]


def test_admin_and_mqadmin_see_each_others_changes(both: Compared) -> None:
    assert {name: got for name, (got, _) in both.changes.items()} == {
        name: expected for name, (_, expected) in both.changes.items()
    }


def test_the_scene_has_something_to_show(both: Compared) -> None:
    """Two languages, dead letters, a lag on each broker, the trace of a sent and consumed message."""
    (clients, *_) = both.values["consumerConnection"]
    assert {language for _, language, _ in clients} == {"JAVA", "PYTHON"}
    assert len(both.values["printMsg"]) == 2
    assert {line[1] for line in both.values["consumerProgress -g"]} == {BROKER, OTHER_BROKER}
    assert {line[5] for line in both.values["consumerProgress -g"]} == {"3"}
    assert [line[:2] for line in both.values["queryMsgTraceById"]] == [
        [TraceKind.CONSUMED, FAILING], [TraceKind.SENT, SENDERS],
    ]  # fmt: skip


SHAPES = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME"), (r"\S+@\S+", "CLIENT"), (r"\b[0-9A-F]{32}\b", "ID"),
    (r"/?\d+\.\d+\.\d+\.\d+(:\d+)?", "HOST"), (r"\d+ms\b|\d+\.\d+", "NUMBER"), (r"\d{4,}", "NUMBER"),
)  # fmt: skip
"""Patterns of values specific to one cluster, and their placeholders."""
ALIKE = (
    "topicRoute", "topicStatus", "brokerConsumeStats", "consumerProgress -g", "consumerProgress -s",
    "consumerProgress -g, of retries", "consumerConnection", "consumerStatus", "producerConnection",
    "queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset", "printMsg", "printMsgByQueue",
    "queryMsgTraceById", "getConsumerConfig",
)  # fmt: skip
"""The figures whose output has the same shape on each cluster."""


def shape(output: str) -> list[str]:
    """Return the sorted lines of an output, with placeholders for values specific to one cluster."""
    for pattern, stand_in in SHAPES:
        output = re.sub(pattern, stand_in, output)
    return sorted(" ".join(line.split()) for line in output.splitlines())


@pytest.mark.parametrize("name", ALIKE)
def test_mqadmin_output_is_the_same_for_embedded_and_real_brokers(name: str) -> None:
    embedded, real = (compared_on(cluster).outputs[name] for cluster in (EMBEDDED, "5.5.0"))
    assert shape(embedded) == shape(real)
