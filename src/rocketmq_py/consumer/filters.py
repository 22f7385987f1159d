"""What users of a reader write to get only some messages of a topic."""

from __future__ import annotations

from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import SQL92, subscribe


def subscription_of(topic: str, tags: str, sql: str | None, *, version_ms: int) -> SubscriptionData:
    """Return a subscription to the messages of some tags or, if ``sql`` is given, to those it is true of.

    Raises:
        ConfigurationError: ``tags`` names no tag, or ``sql`` is empty.
    """
    if sql is None:
        return subscribe(topic, tags, version_ms=version_ms)
    return subscribe(topic, sql, version_ms=version_ms, kind=SQL92)
