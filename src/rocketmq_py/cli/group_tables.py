"""Output of ``rocketmq-py group describe``: a group as a JSON value and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rocketmq_py.cli.admin_runner import failure_texts
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import (
    MESSAGE_QUEUES,
    Field,
    Listing,
    Table,
    attribute_cells,
    format_time,
)

if TYPE_CHECKING:
    from rocketmq_py.admin import GroupDescription

QUEUES: Final = Listing(
    Field("broker_name", "BROKER", "queue.broker_name"),
    Field("queue_id", "QUEUE", "queue.queue_id", right=True),
    Field("max_offset", "MAX OFFSET", right=True),
    Field("committed", "COMMITTED", right=True),
    Field("pull_offset"),
    Field("lag", "LAG", right=True),
    Field("last_consumed_ms", "LAST CONSUMED", cell=format_time),
    Field("client_id", "CLIENT", wide=True, whole=True),
)
SUBSCRIPTIONS: Final = Listing(Field("topic"), Field("expression"), Field("kind"))
_OWN_SUBSCRIPTIONS = Listing(Field("topic"), Field("expression"))
MEMBERS: Final = Listing(
    Field("client_id", "CLIENT", whole=True),
    Field("address", "ADDRESS"),
    Field("language", "LANGUAGE"),
    Field("version", "VERSION"),
    Field(
        "queues",
        "QUEUES",
        lambda one: None if one.queues is None else MESSAGE_QUEUES.values(one.queues),
        cell=lambda queues: None if queues is None else len(queues),
        right=True,
    ),
    Field(
        "subscriptions",
        get=lambda one: None if one.subscriptions is None else _OWN_SUBSCRIPTIONS.values(one.subscriptions),
    ),
    Field(
        None,
        "SUBSCRIPTIONS",
        lambda one: [f"{own.topic}: {own.expression}" for own in one.subscriptions or ()],
    ),
    Field("brokers", "BROKERS", wide=True),
    Field("failure", get=lambda one: None if one.failure is None else str(one.failure)),
)
SETTINGS: Final = Listing(
    Field("consume_enable", "CONSUME"),
    Field("broadcast_enable", "BROADCAST"),
    Field("orderly", "ORDERLY"),
    Field("max_reconsume_times", "MAX RECONSUME TIMES", right=True),
    Field("retry_queues", "RETRY QUEUES", right=True),
    Field("attributes", "ATTRIBUTES", lambda one: dict(one.attributes), cell=attribute_cells),
)


def group_value(group: GroupDescription) -> dict[str, Any]:
    """Return the description of a group as a JSON object."""
    return {
        "group": group.group,
        "lag": group.lag,
        "topics": [
            {"topic": topic.topic, "lag": topic.lag, "queues": QUEUES.values(topic.queues)}
            for topic in group.topics
        ],
        "members": MEMBERS.values(group.members),
        "rate": group.rate,
        "consume_type": group.consume_type,
        "message_model": group.message_model,
        "consume_from": group.consume_from,
        "unread_queues": MESSAGE_QUEUES.values(group.unread_queues),
        "subscriptions": SUBSCRIPTIONS.values(group.subscriptions),
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
        "settings": [{"broker_name": name, **SETTINGS.value(one)} for name, one in group.settings.items()],
        "failures": failure_texts(group.failures),
        "not_offered": failure_texts(group.not_offered),
    }


def group_tables(group: GroupDescription) -> list[Table]:
    """Return the tables of a group: lag by queue, settings, members and subscription conflicts.

    Settings are shown of the brokers where they differ from the defaults.
    """
    from rocketmq_py.admin import group_values

    number = "unknown" if group_values.MEMBERS in group.not_offered else len(group.members)
    queues = QUEUES.table_by(
        "TOPIC",
        [(topic.topic, topic.queues) for topic in group.topics],
        title=f"{group.group}: lag {group.lag:,}, {number} members{_switched_off(group)}",
    )
    changed = {name: one for name, one in group.settings.items() if one != group_values.GroupSettings()}
    settings = SETTINGS.table_by("SETTINGS ON", [(name, [one]) for name, one in changed.items()])
    conflicts = Table(
        [Column("SUBSCRIPTION CONFLICT"), Column("EXPRESSION"), Column("MEMBERS")],
        [
            (one.topic, expression or "not subscribed", ids)
            for one in group.conflicts
            for expression, ids in one.members.items()
        ],
    )
    others = (settings, MEMBERS.table(group.members), conflicts)
    return [queues, *[table for table in others if table.rows]]


def _switched_off(group: GroupDescription) -> str:
    """Return the end of a title that says where the group may not consume. Empty if it may everywhere."""
    off = [name for name, one in group.settings.items() if not one.consume_enable]
    if not off:
        return ""
    where = "" if len(off) == len(group.settings) else f" on {', '.join(off)}"
    return f", consumption is switched off{where}"
