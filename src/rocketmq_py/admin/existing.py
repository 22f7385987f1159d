"""What exists, compared with what a call wants: settings of topics, groups, users and rules, and queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from rocketmq_py.admin.access_values import SUPER, AclRule, user_of
from rocketmq_py.admin.errors import AlreadyExistsError
from rocketmq_py.admin.group_values import settings_of_group
from rocketmq_py.admin.topic_values import TYPE_ATTRIBUTE, MessageType, settings_of_topic
from rocketmq_py.errors import NoQueueError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    PolicyEntryInfo,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
    UserInfo,
)
from rocketmq_py.queues import queue_name

MAX_NAMED = 10
"""Unknown queues that an error names. There may be thousands in a file."""


def require_same(kind: str, name: str, existing: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Raise AlreadyExistsError if a resource has other settings on some of the brokers that have it.

    Args:
        kind: the kind of resource, for the error.
        name: the name of the resource.
        existing: the settings by broker name.
        wanted: the values of attributes of the settings. Entries of ``attributes`` that are not wanted do not
            count: brokers may set some.
    """
    _raise_for(kind, name, {broker: _differences(found, wanted) for broker, found in existing.items()})


def topic_values(config: TopicConfig, attributes: Mapping[str, str | None]) -> Mapping[str, object]:
    """Return the settings of a topic to create, for :func:`require_same`."""
    settings = settings_of_topic(config)
    return {
        "read_queues": settings.read_queues,
        "write_queues": settings.write_queues,
        "permission": settings.permission,
        "order": settings.order,
        "attributes": {TYPE_ATTRIBUTE: MessageType.NORMAL, **attributes},
    }


def group_values(config: SubscriptionGroupConfig, attributes: Mapping[str, str]) -> Mapping[str, object]:
    """Return the settings of a group to create, for :func:`require_same`."""
    return {**attrs.asdict(settings_of_group(config)), "attributes": attributes}


def require_same_user(name: str, existing: Mapping[str, UserInfo], wanted: UserInfo) -> None:
    """Raise AlreadyExistsError if a user has other settings. The secret keys are compared, but not shown."""
    values = {"is_super": wanted.user_type == SUPER, "is_enabled": True}
    different = {}
    for broker, found in existing.items():
        different[broker] = _differences(user_of(found), values)
        if found.password is not None and found.password != wanted.password:
            different[broker].append("the secret is another one")
    _raise_for("user", name, different)


def require_same_rule(user: str, existing: Mapping[str, AclRule], wanted: PolicyEntryInfo) -> None:
    """Raise AlreadyExistsError if a user has another rule for a resource."""
    values = {
        "actions": tuple(sorted(wanted.actions)),
        "is_allowed": wanted.decision == "Allow",
        "source_ips": tuple(sorted(wanted.source_ips)),
    }
    found = {
        broker: attrs.evolve(
            rule, actions=tuple(sorted(rule.actions)), source_ips=tuple(sorted(rule.source_ips))
        )
        for broker, rule in existing.items()
    }
    require_same("rule", f"{user} on {wanted.resource}", found, values)


def _raise_for(kind: str, name: str, different: Mapping[str, list[str]]) -> None:
    """Raise an error with the differences of all brokers, if there are any."""
    brokers = [broker for broker, texts in different.items() if texts]
    if brokers:
        texts = sorted({text for texts in different.values() for text in texts})
        raise AlreadyExistsError(kind, name, brokers, texts)


def _differences(existing: object, wanted: Mapping[str, object]) -> list[str]:
    """Return in words how the attributes of existing settings differ from those wanted."""
    texts = []
    for name, value in wanted.items():
        found = getattr(existing, name)
        if isinstance(value, Mapping):
            # Brokers store no type for topics of the type NORMAL.
            default = {TYPE_ATTRIBUTE: MessageType.NORMAL}
            texts += [
                f"{key} is {actual}, not {text}"
                for key, text in value.items()
                if (actual := found.get(key, default.get(key, "not set"))) != text
            ]
        elif found != value:
            texts.append(f"{name} is {_in_words(found)}, not {_in_words(value)}")
    return texts


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) or "empty" if isinstance(value, tuple) else str(value)


def require_queues(topic: str, route: TopicRoute, queues: Iterable[MessageQueue]) -> None:
    """Raise NoQueueError if a topic does not have one of the queues, whether to write or to read."""
    counts = {
        data.broker_name: max(data.read_queue_nums, data.write_queue_nums) for data in route.queue_datas
    }
    unknown = [
        queue
        for queue in sorted(queues)
        if queue.topic != topic or not 0 <= queue.queue_id < counts.get(queue.broker_name, 0)
    ]
    if unknown:
        raise missing_queues(topic, unknown, counts)


def missing_queues(topic: str, unknown: Iterable[MessageQueue], counts: Mapping[str, int]) -> NoQueueError:
    """Return the error for queues that a topic does not have.

    Args:
        topic: the topic.
        unknown: the queues.
        counts: the number of queues that it has on each broker.
    """
    names = [
        f"{one.broker_name}/{one.queue_id}" if one.topic == topic else queue_name(one) for one in unknown
    ]
    others = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    existing = ", ".join(queue_range(name, 0, count) for name, count in sorted(counts.items()) if count)
    return NoQueueError(
        f"topic {topic!r} does not have {', '.join(names[:MAX_NAMED])}{others}; "
        f"its queues: {existing or 'none'}"
    )


def queue_range(broker_name: str, first: int, end: int) -> str:
    """Return the queues of a broker from ``first`` to the one before ``end``: ``broker-a/0 to 3``."""
    return f"{broker_name}/{first}" + (f" to {end - 1}" if end - first > 1 else "")
