"""What ``rocketmq-py group describe`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_py.cli.sheet import Column, Sheet, at

if TYPE_CHECKING:
    from rocketmq_py.admin import GroupDescription


def group_value(group: GroupDescription) -> dict[str, Any]:
    """Return a group's description as JSON has it."""
    from rocketmq_py.cli.administering import told

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
                "retries": one.retries,
                "retry_queues": one.retry_queues,
                "attributes": dict(one.attributes),
            }
            for name, one in group.settings.items()
        ],
        "failures": told(group.failures),
    }


def group_sheets(group: GroupDescription) -> list[Sheet]:
    """Return the tables that show a group's description."""
    queues = Sheet(
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
                at(one.last_consumed_ms),
                one.client_id,
            )
            for topic in group.topics
            for one in topic.queues
        ],
        title=f"{group.group}: lag {group.lag:,}, {len(group.members)} members",
    )
    members = Sheet(
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
    conflicts = Sheet(
        [Column("SUBSCRIBED DIFFERENTLY"), Column("EXPRESSION"), Column("MEMBERS")],
        [
            (one.topic, expression or "not subscribed", ids)
            for one in group.conflicts
            for expression, ids in one.members.items()
        ],
    )
    sheets = [queues, members, conflicts]
    return [queues, *[sheet for sheet in sheets[1:] if sheet.rows]]
