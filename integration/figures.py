"""The figures that ``mqadmin`` prints for the scene: how to parse them, and how to get the same
from ``Admin``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from integration.scene import COUNT, FAILING, LAGGING, MIXED, SENDERS, TOPIC, Scene
from rocketmq_py import Admin
from rocketmq_py.admin import GroupDescription, TraceKind
from rocketmq_py.admin.topic_values import permission_of_bits
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import TopicRoute

BROKER, OTHER_BROKER = "broker-a", "broker-b"


def rows(output: str) -> list[list[str]]:
    """Split the lines of a table into words."""
    return [line.split() for line in output.splitlines() if line.strip() and not line.startswith("#")]


def pairs(output: str, separator: str = ":") -> dict[str, str]:
    """Parse lines such as ``Queue ID:   0`` into names and values."""
    parted = [line.partition(separator) for line in output.splitlines()]
    return {name.strip(): value.strip() for name, found, value in parted if found}


def moment(time_ms: int | None, *, millis: bool = False) -> str:
    """Format a time as mqadmin does."""
    if time_ms is None:
        return "N/A"
    shown = datetime.fromtimestamp(time_ms // 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{shown},{time_ms % 1000:03}" if millis else shown


def java_version(version: str) -> str:
    """Format a version as mqadmin does."""
    return f"V{version.replace('.', '_')}"


def of_message(output: str) -> list[str]:
    """Return the figures shown for one message."""
    said = pairs(output)
    names = ("Topic", "Tags", "Keys", "Queue ID", "Queue Offset", "CommitLog Offset", "Reconsume Times",
             "Born Timestamp", "Store Timestamp", "Born Host", "Store Host")  # fmt: skip
    tracks = re.findall(r"MessageTrack \[consumerGroup=(\w+), trackType=(\w+)", output)
    return [said[name] for name in names] + sorted(map("=".join, tracks))


async def message_figures(admin: Admin, message: ReceivedMessage | None) -> list[str]:
    """Return the same figures for a message that Admin found."""
    assert message is not None
    tracks = (await admin.messages.tracks(message)).tracks
    return [
        message.topic, f"[{message.tags}]", f"[{' '.join(message.keys)}]", str(message.queue_id),
        str(message.queue_offset), str(message.commit_log_offset), str(message.reconsume_times),
        moment(message.born_time_ms, millis=True), moment(message.store_time_ms, millis=True),
        message.born_host, message.store_host,
        *sorted(f"{track.group}={track.track_type}" for track in tracks),
    ]  # fmt: skip


def of_progress(output: str) -> list[list[str]]:
    """Return topic, broker, queue, offsets, lag and time of each line of consumerProgress, sorted."""
    lines = [line for line in rows(output) if len(line) > 6 and line[2].isdigit()]
    times = [" ".join(line[-2:]) if line[-1] != "N/A" else "N/A" for line in lines]
    return sorted([*line[:6], time] for line, time in zip(lines, times, strict=True))


def progress_figures(group: GroupDescription) -> list[list[str]]:
    """Return the same figures for a group that Admin described."""
    return sorted(
        [of.topic, one.queue.broker_name, str(one.queue.queue_id), str(one.max_offset),
         str(one.committed), str(one.lag), moment(one.last_consumed_ms)]
        for of in group.topics for one in of.queues
    )  # fmt: skip


def of_route(output: str) -> dict[str, list[Any]]:
    route = TopicRoute.decode(output.encode())
    addresses = {one.broker_name: one.broker_addrs[0] for one in route.broker_datas}
    return {
        one.broker_name: [
            addresses[one.broker_name],
            one.read_queue_nums,
            one.write_queue_nums,
            permission_of_bits(one.perm),
        ]
        for one in route.queue_datas
    }


async def route_figures(scene: Scene) -> dict[str, list[Any]]:
    described = await scene.admin.topics.describe(TOPIC)
    return {
        name: [described.addresses[name], one.read_queues, one.write_queues, one.permission]
        for name, one in described.brokers.items()
    }


def of_trace(output: str) -> list[list[str]]:
    """Return kind, group, client, time, cost and outcome."""
    kinds = {"Pub": TraceKind.SENT, "Sub": TraceKind.CONSUMED}
    lines = [line for line in rows(output) if line[0] in kinds]
    return sorted([kinds[line[0]], *line[1:3], f"{line[3]} {line[4]}", *line[5:]] for line in lines)


async def trace_figures(scene: Scene) -> list[list[str]]:
    events = (await scene.admin.messages.trace(scene.sent[0].message_id)).events
    return sorted(
        [one.kind, one.group, one.client_address.partition(":")[0], moment(one.time_ms), f"{one.cost_ms}ms",
         "success" if one.success else "failed"]
        for one in events
    )  # fmt: skip


async def broker_address(scene: Scene) -> str:
    return (await scene.admin.brokers.describe(BROKER)).address


STEADY = ("brokerVersionDesc", "bootTimestamp", "commitLogMaxOffset", "commitLogMinOffset",
          "earliestMessageTimeStamp", "msgPutTotalTodayNow", "putMessageTimesTotal")  # fmt: skip

Read: TypeAlias = Callable[[str], Any]
Ask: TypeAlias = Callable[[Scene], Awaitable[Any]]


async def topics(scene: Scene) -> list[str]:
    return sorted(topic.topic for topic in (await scene.admin.topics.list(system=True)).topics)


async def groups_of_topic(scene: Scene) -> list[list[str]]:
    (cluster,) = {one.cluster for one in (await scene.admin.brokers.list()).brokers}
    names = [group.group for group in (await scene.admin.groups.list()).groups]
    described = [await scene.admin.groups.describe(name) for name in names]
    consuming = [one.group for one in described if TOPIC in [topic.topic for topic in one.topics]]
    return sorted([cluster, TOPIC, group] for group in consuming)


async def queues(scene: Scene) -> list[list[str]]:
    return [
        [one.queue.broker_name, str(one.queue.queue_id), str(one.min_offset), str(one.max_offset),
         *moment(one.last_message_ms, millis=True).split()]
        for one in (await scene.admin.topics.describe(TOPIC)).queues
    ]  # fmt: skip


async def brokers(scene: Scene) -> list[list[str]]:
    return [
        [one.cluster, one.broker_name, str(one.broker_id), one.address, java_version(one.version)]
        for one in (await scene.admin.brokers.list()).brokers
    ]


async def counts_of_today(scene: Scene) -> list[list[str]]:
    listed = (await scene.admin.brokers.list()).brokers
    return [[one.cluster, one.broker_name, str(one.put_today), str(one.get_today)] for one in listed]


async def steady_details(scene: Scene) -> dict[str, str]:
    details = (await scene.admin.brokers.describe(BROKER)).details
    return {name: details[name] for name in STEADY if name in details}


async def lag_on_broker(scene: Scene) -> list[list[str]]:
    described = [await scene.admin.groups.describe(group) for group in (LAGGING, MIXED, FAILING)]
    return sorted(
        [TOPIC, of.group, one.queue.broker_name, str(one.queue.queue_id), str(one.max_offset),
         str(one.committed), str(one.lag)]
        for of in described for topic in of.topics if topic.topic == TOPIC
        for one in topic.queues if one.queue.broker_name == BROKER
    )  # fmt: skip


async def groups(scene: Scene) -> list[list[str]]:
    listed = (await scene.admin.groups.list()).groups
    return sorted([one.group, str(one.members), str(one.lag)] for one in listed)


async def progress_of_lagging(scene: Scene) -> list[list[str]]:
    return progress_figures(await scene.admin.groups.describe(LAGGING))


async def progress_of_failing(scene: Scene) -> list[list[str]]:
    return progress_figures(await scene.admin.groups.describe(FAILING))


async def owners(scene: Scene) -> list[list[str]]:
    described = await scene.admin.groups.describe(MIXED)
    return sorted(
        [one.queue.broker_name, str(one.queue.queue_id), (one.client_id or "").partition("@")[0]]
        for topic in described.topics if topic.topic == TOPIC for one in topic.queues
    )  # fmt: skip


async def members(scene: Scene) -> list[Any]:
    described = await scene.admin.groups.describe(MIXED)
    clients = [[one.client_id, one.language, java_version(one.version)] for one in described.members]
    return [
        sorted(clients),
        [[one.topic, one.expression] for one in described.subscriptions],
        described.consume_type, described.message_model, described.consume_from,
    ]  # fmt: skip


def of_connections(output: str) -> list[Any]:
    lines, said = rows(output), pairs(output)
    clients = sorted([line[0], *line[2:]] for line in lines if "@" in line[0])
    return [
        clients, [line for line in lines if line[0] == TOPIC],
        said["ConsumeType"], said["MessageModel"], said["ConsumeFromWhere"],
    ]  # fmt: skip


async def agreement(scene: Scene) -> tuple[list[str], bool]:
    described = await scene.admin.groups.describe(MIXED)
    return sorted(one.client_id for one in described.members), not described.conflicts


async def producers(scene: Scene) -> list[list[str]]:
    return [
        [one.client_id, one.language, java_version(one.version)]
        for one in (await scene.admin.clients.list()).clients
        if SENDERS in one.producer_groups
    ]


def of_producers(output: str) -> list[tuple[str, str]]:
    """Return groups and their producers, without mqadmin's own clients, whose names contain their start
    time.
    """
    found = re.findall(r"group \((\S+)\) instance : clientId=([^,]+),", output)
    return sorted(one for one in found if not re.search(r"@\d{13}\b", one[1]))


async def producers_of_broker(scene: Scene) -> list[tuple[str, str]]:
    listed = (await scene.admin.clients.list()).clients
    return sorted((group, one.client_id) for one in listed for group in one.producer_groups)


async def message(scene: Scene) -> list[str]:
    found = await scene.admin.messages.get(scene.sent[0].offset_message_id)
    return await message_figures(scene.admin, found)


async def message_at_offset(scene: Scene) -> list[str]:
    return await message_figures(scene.admin, await scene.admin.messages.at(scene.sent[0].queue, 1))


async def messages_with_key(scene: Scene) -> list[list[str]]:
    found = (await scene.admin.messages.find(TOPIC, "order-7")).messages
    return [[one.message_id, str(one.queue_id), str(one.queue_offset)] for one in found]


async def dead_letters(scene: Scene) -> list[str]:
    listed = await scene.admin.dead_letters.list(FAILING)
    assert len(listed.letters) == listed.total == 2
    return sorted(one.message.message_id for one in listed.letters)


async def messages_of_queue(scene: Scene) -> list[str]:
    found = [
        await scene.admin.messages.at(MessageQueue(TOPIC, BROKER, 0), offset) for offset in range(COUNT // 8)
    ]
    return sorted(one.message_id for one in found if one is not None)


async def lag_of_topic(scene: Scene) -> list[list[str]]:
    described = [await scene.admin.groups.describe(group) for group in (LAGGING, MIXED, FAILING)]
    return sorted(
        [TOPIC, of.group, str(topic.lag)] for of in described for topic in of.topics if topic.topic == TOPIC
    )


async def broker_settings(scene: Scene) -> Mapping[str, str]:
    return await scene.admin.brokers.settings(BROKER)


async def name_server_settings(scene: Scene) -> Mapping[str, str]:
    (settings,) = (await scene.admin.name_servers.settings()).values.values()
    return settings


async def group_settings(scene: Scene) -> list[list[str]]:
    described = await scene.admin.groups.describe(LAGGING)
    return [
        [str(one.consume_enable).lower(), str(one.broadcast_enable).lower(), str(one.max_reconsume_times)]
        for one in described.settings.values()
    ]


def of_group_settings(output: str) -> list[list[str]]:
    words = ("consumeEnable", "consumeBroadcastEnable", "retryMaxTimes")
    parts = re.split(r"(?m)^=+.*$", output)[1:]
    return [[pairs(part, "=")[word] for word in words] for part in parts]


def message_ids(output: str) -> list[str]:
    return sorted(re.findall(r"MSGID: (\w+)", output))


FIGURES: Mapping[str, tuple[str, Read, Ask]] = {
    "clusterList -m": (
        "clusterList -m", lambda out: [[*line[:2], *line[4:]] for line in rows(out)], counts_of_today
    ),
    "clusterList": ("clusterList", lambda out: [line[:5] for line in rows(out)], brokers),
    "brokerStatus": (
        "brokerStatus -b {broker}",
        lambda out: {name: value for name, value in pairs(out).items() if name in STEADY},
        steady_details,
    ),
    "topicList": ("topicList", lambda out: sorted(line[0] for line in rows(out)), topics),
    "topicList -c": (
        "topicList -c", lambda out: sorted(line for line in rows(out) if line[1] == TOPIC), groups_of_topic
    ),
    "topicRoute": (f"topicRoute -t {TOPIC}", of_route, route_figures),
    "topicStatus": (
        f"topicStatus -t {TOPIC}", lambda out: [line for line in rows(out) if len(line) == 6], queues
    ),
    "brokerConsumeStats": (
        "brokerConsumeStats -b {broker}",
        lambda out: sorted(line[:7] for line in rows(out) if line[0] == TOPIC), lag_on_broker,
    ),
    "consumerProgress": (
        "consumerProgress", lambda out: sorted([line[0], line[1], line[-1]] for line in rows(out)), groups
    ),
    "consumerProgress -g": (f"consumerProgress -g {LAGGING}", of_progress, progress_of_lagging),
    "consumerProgress -g, of retries": (f"consumerProgress -g {FAILING}", of_progress, progress_of_failing),
    "consumerProgress -s": (
        f"consumerProgress -g {MIXED} -s true",
        lambda out: sorted([line[1], line[2], line[5]] for line in rows(out) if line[0] == TOPIC), owners,
    ),
    "consumerConnection": (f"consumerConnection -g {MIXED}", of_connections, members),
    "consumerStatus": (
        f"consumerStatus -g {MIXED}",
        lambda out: (
            sorted(line[1] for line in rows(out) if len(line) == 4 and "@" in line[1]),
            "Same subscription" in out,
        ),
        agreement,
    ),
    "producerConnection": (
        f"producerConnection -g {SENDERS} -t {TOPIC}",
        lambda out: [[line[1], *line[3:]] for line in rows(out)], producers,
    ),
    "queryMsgById": ("queryMsgById {of_topic}-i {offset_id}", of_message, message),
    "queryMsgByUniqueKey": (f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}}", of_message, message),
    "queryMsgByOffset": (
        f"queryMsgByOffset -t {TOPIC} -b {{queue_broker}} -i {{queue_id}} -o 1", of_message, message_at_offset
    ),
    "queryMsgByKey": (
        f"queryMsgByKey -t {TOPIC} -k order-7",
        lambda out: [line[:3] for line in rows(out)], messages_with_key,
    ),
    "printMsg": (f"printMsg -t %DLQ%{FAILING}", message_ids, dead_letters),
    "printMsgByQueue": (
        f"printMsgByQueue -t {TOPIC} -a {BROKER} -i 0 -p true -d true", message_ids, messages_of_queue
    ),
    "queryMsgTraceById": ("queryMsgTraceById -i {unique_id}", of_trace, trace_figures),
    "statsAll": (
        f"statsAll -t {TOPIC}", lambda out: sorted(line[:3] for line in rows(out)), lag_of_topic
    ),
    "getBrokerConfig": (
        "getBrokerConfig -b {broker}", lambda out: pairs(out, " = "), broker_settings
    ),
    "getNamesrvConfig": ("getNamesrvConfig", lambda out: pairs(out, " = "), name_server_settings),
    "getConsumerConfig": (f"getConsumerConfig -g {LAGGING}", of_group_settings, group_settings),
}  # fmt: skip
"""By test name: a command, the parser of its output, and the function that gets the same from Admin."""
OF_5 = {
    "producer": (
        "producer -b {broker}",
        of_producers,
        producers_of_broker,
    ),
}
