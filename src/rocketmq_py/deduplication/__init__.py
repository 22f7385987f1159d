"""Idempotent handling: a message that is delivered again is not handled again.

RocketMQ delivers each message at least once. :class:`Deduplicate` wraps a handler, claims each message in a
store before the call, and marks it done afterwards::

    deduplicate = Deduplicate(SQLiteStore("handled.sqlite"))
    await consumer.run(deduplicate(handle))

Begin with ``handler``. Stores are ``sqlite_store``, ``redis_store`` (extra ``redis``), or any object with the
two methods of :class:`DeduplicationStore`.
"""

from rocketmq_py.deduplication.handler import ClaimLostError, ClaimState, Deduplicate, DeduplicationStore
from rocketmq_py.deduplication.redis_store import RedisStore
from rocketmq_py.deduplication.sqlite_store import SQLiteStore

__all__ = [
    "ClaimLostError",
    "ClaimState",
    "Deduplicate",
    "DeduplicationStore",
    "RedisStore",
    "SQLiteStore",
]
