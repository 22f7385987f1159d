"""Message filters of consumers: by tag, and by a SQL filter on properties.

Java: ``ExpressionMessageFilter``, ``ConsumerFilterManager``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import attrs

from rocketmq_py.broker.sql92 import Condition, SqlFilterError, parse
from rocketmq_py.broker.storage.broker_message import BrokerMessage
from rocketmq_py.broker.storage.consume_queue import MessageFilter, StoredMessage
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import ALL, SQL92, TAG

_parse = lru_cache(maxsize=100)(parse)  # Fast path: a pull may carry its SQL filter, and repeats it each time


def is_tag_expression(expression_type: str | None) -> bool:
    """Return whether a subscription filters by tag, which is the default type."""
    return not expression_type or expression_type == TAG


def tag_filter(subscription: SubscriptionData) -> MessageFilter:
    """Return the message filter of a subscription by tag."""
    # With a class filter (4.x), brokers pass all messages to a filter server, which selects them.
    if subscription.class_filter_mode or subscription.sub_string == ALL:
        return None
    codes = frozenset(subscription.code_set)
    return lambda message: message.tags_code in codes


def sql_filter(condition: Condition) -> MessageFilter:
    """Return the message filter of a SQL condition."""

    def passes(message: StoredMessage) -> bool:
        properties = BrokerMessage.decode(message).properties
        # Like Java, treat properties with an empty value as missing.
        return condition.matches({name: value for name, value in properties.items() if value})

    return passes


def parse_sql_filter(expression_type: str, expression: str) -> Condition:
    """Parse the expression of a subscription that does not filter by tag.

    Raises:
        SqlFilterError: the expression type is unknown, or the expression is not a valid SQL filter.
    """
    if expression_type != SQL92:
        raise SqlFilterError(f"expression type {expression_type} is unknown; expected {TAG} or {SQL92}")
    return _parse(expression)


@attrs.frozen
class RegisteredSqlFilter:
    """The newest SQL filter of a group for a topic.

    Attributes:
        condition: the parsed filter.
        version: the version of the subscription, epoch milliseconds.
    """

    condition: Condition
    version: int


class SqlFilterTable:
    """The SQL filters of all groups, from their heartbeats. Filters of groups without members stay."""

    def __init__(self) -> None:
        self._filters: dict[tuple[str, str], RegisteredSqlFilter] = {}

    def find(self, topic: str, group: str) -> RegisteredSqlFilter | None:
        """Return a group's SQL filter for a topic, or None if the group has no valid one."""
        return self._filters.get((topic, group))

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register the SQL filters of a heartbeat that are newer than the registered ones."""
        for subscription in subscriptions:
            if not is_tag_expression(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        key = subscription.topic, group
        old = self._filters.get(key)
        if old is not None and subscription.sub_version <= old.version:
            return
        try:
            condition = parse_sql_filter(subscription.expression_type, subscription.sub_string)
        except SqlFilterError:
            # An invalid filter replaces a valid one. Pulls are then answered that there is no filter.
            self._filters.pop(key, None)
        else:
            self._filters[key] = RegisteredSqlFilter(condition, subscription.sub_version)
