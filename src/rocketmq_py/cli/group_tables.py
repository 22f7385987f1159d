"""Output of ``rocketmq-py group describe``: a group as a JSON value and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_py.cli.admin_runner import failure_texts
from rocketmq_py.cli.tables import Column, Table, format_time

if TYPE_CHECKING:
    from rocketmq_py.admin import GroupDescription


def group_value(group: GroupDescription) -> dict[str, Any]:
    """Return the description of a group as a JSON object."""
    return {
        "group": group.group,
        "lag": group.lag,
        "topics": [
            {
                "topic": topic.topic,
                "lag": topic.lag,
                "queues": [
                    {
                        "broker": one.queue.broker_name,
                        "queue": one.queue.queue_id,
                        "broker_offset": one.broker_offset,
                        "consumer_offset": one.consumer_offset,
                        "pull_offset": one.pull_offset,
                        "lag": one.lag,
                        "last_consumed_ms": one.last_consumed_ms,
                        "client_id": one.client_id,
                    }
                    for one in topic.queues
                ],
            }
            for topic in group.topics
        ],
        "members": [
            {
                "client_id": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
                "brokers": list(one.brokers),
                "subscriptions": None
                if one.subscriptions is None
                else [{"topic": own.topic, "expression": own.expression} for own in one.subscriptions],
                "queues": None if one.queues is None else len(one.queues),
                "failure": None if one.failure is None else str(one.failure),
            }
            for one in group.members
        ],
        "rate": group.rate,
        "consume_type": group.consume_type,
        "message_model": group.message_model,
        "consume_from": group.consume_from,
        "unread_queues": [
            {"topic": one.topic, "broker": one.broker_name, "queue": one.queue_id}
            for one in group.unread_queues
        ],
        "subscriptions": [
            {"topic": one.topic, "expression": one.expression, "kind": one.kind}
            for one in group.subscriptions
        ],
        "conflicts": [
            {
                "topic": one.topic,
                "expressions": [
                    {"expression": expression, "members": list(members)}
                    for expression, members in one.members.items()
                ],
            }
            for one in group.conflicts
        ],
        "settings": [
            {
                "broker": name,
                "consume_enable": one.consume_enable,
                "broadcast_enable": one.broadcast_enable,
                "orderly": one.orderly,
                "max_reconsume_times": one.max_reconsume_times,
                "retry_queues": one.retry_queues,
                "attributes": dict(one.attributes),
            }
            for name, one in group.settings.items()
        ],
        "failures": failure_texts(group.failures),
        "not_offered": failure_texts(group.not_offered),
    }


def group_tables(group: GroupDescription) -> list[Table]:
    """Return the tables of a group: lag by queue, members and subscription conflicts."""
    from rocketmq_py.admin.group_values import MEMBERS

    number = "unknown" if MEMBERS in group.not_offered else len(group.members)
    queues = Table(
        [
            Column("TOPIC"),
            Column("BROKER"),
            Column("QUEUE", right=True),
            Column("BROKER OFFSET", right=True),
            Column("CONSUMER OFFSET", right=True),
            Column("LAG", right=True),
            Column("LAST CONSUMED"),
            Column("CLIENT", wide=True),
        ],
        [
            (
                topic.topic,
                one.queue.broker_name,
                one.queue.queue_id,
                one.broker_offset,
                one.consumer_offset,
                one.lag,
                format_time(one.last_consumed_ms),
                one.client_id,
            )
            for topic in group.topics
            for one in topic.queues
        ],
        title=f"{group.group}: lag {group.lag:,}, {number} members",
    )
    members = Table(
        [
            Column("CLIENT"),
            Column("ADDRESS"),
            Column("LANGUAGE"),
            Column("VERSION"),
            Column("QUEUES", right=True),
            Column("SUBSCRIPTIONS"),
            Column("BROKERS", wide=True),
        ],
        [
            (
                one.client_id,
                one.address,
                one.language,
                one.version,
                None if one.queues is None else len(one.queues),
                [f"{own.topic}: {own.expression}" for own in one.subscriptions or ()],
                one.brokers,
            )
            for one in group.members
        ],
    )
    conflicts = Table(
        [Column("SUBSCRIPTION CONFLICT"), Column("EXPRESSION"), Column("MEMBERS")],
        [
            (one.topic, expression or "not subscribed", ids)
            for one in group.conflicts
            for expression, ids in one.members.items()
        ],
    )
    tables = [queues, members, conflicts]
    return [queues, *[table for table in tables[1:] if table.rows]]
