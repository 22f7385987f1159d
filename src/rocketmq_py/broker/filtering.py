"""Which messages a consumer wants: by their tags, or by a SQL filter on their properties.

Java: ``ExpressionMessageFilter``, ``ConsumerFilterManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

import attrs

from rocketmq_py.broker.draft import Draft
from rocketmq_py.broker.sql92 import Condition, SqlFilterError, parse
from rocketmq_py.broker.store import StoredMessage
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import ALL, SQL92, TAG

Wanted: TypeAlias = Callable[[StoredMessage], bool] | None
"""Tells whether a message is wanted; None where all are."""

_parse = lru_cache(maxsize=100)(parse)  # a pull that brings its SQL filter brings it each time


def is_tag_expression(kind: str | None) -> bool:
    """Tell whether a subscription's expression is one of tags: nothing said means that it is."""
    return not kind or kind == TAG


def wanted_by_tags(subscription: SubscriptionData) -> Wanted:
    """Return the filter of a subscription by tags."""
    if subscription.class_filter_mode or subscription.sub_string == ALL:
        return None
    codes = frozenset(subscription.code_set)
    return lambda message: message.tags_code in codes


def wanted_by(sql_filter: Condition) -> Wanted:
    """Return what a SQL filter wants."""

    def is_wanted(message: StoredMessage) -> bool:
        properties = Draft.of(message).properties
        # Java leaves properties without a value out: they count as missing.
        return sql_filter.matches({name: value for name, value in properties.items() if value})

    return is_wanted


def sql_filter_of(kind: str, expression: str) -> Condition:
    """Return the SQL filter of a subscription that is none by tags.

    Raises:
        SqlFilterError: there is no such kind, or it is no SQL filter.
    """
    if kind != SQL92:
        raise SqlFilterError(f"there are no expressions of the kind {kind}; there are {TAG} and {SQL92}")
    return _parse(expression)


@attrs.frozen
class RegisteredSqlFilter:
    """The SQL filter of a group for a topic, in its latest version.

    Attributes:
        expression: as it was written.
        parsed: what it means.
        version: when it was made, epoch milliseconds.
    """

    expression: str
    parsed: Condition
    version: int


class SqlFilters:
    """The SQL filters of all groups, as their heartbeats brought them; those of groups that are gone too."""

    def __init__(self) -> None:
        self._sql_filters: dict[tuple[str, str], RegisteredSqlFilter] = {}

    def find(self, topic: str, group: str) -> RegisteredSqlFilter | None:
        """Return a group's SQL filter for a topic, None if it has none, or one that is wrong."""
        return self._sql_filters.get((topic, group))

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take over the SQL filters of a heartbeat, each if it is newer than what is known."""
        for subscription in subscriptions:
            if not is_tag_expression(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        place = subscription.topic, group
        old = self._sql_filters.get(place)
        if old is not None and subscription.sub_version <= old.version:
            return
        try:
            parsed = sql_filter_of(subscription.expression_type, subscription.sub_string)
        except SqlFilterError:
            # A wrong one takes the place of a right one: pulls are told that there is none.
            self._sql_filters.pop(place, None)
        else:
            version = subscription.sub_version
            self._sql_filters[place] = RegisteredSqlFilter(subscription.sub_string, parsed, version)
