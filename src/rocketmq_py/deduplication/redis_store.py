"""Claims and marks in Redis, or in a server that speaks its protocol."""

from __future__ import annotations

import importlib
from typing import Any

from rocketmq_py.arguments import check_text
from rocketmq_py.deduplication.handler import ClaimState
from rocketmq_py.errors import ConfigurationError

_DONE = "done:"
"""The prefix of the value of a mark. The token follows."""


class RedisStore:
    """Claims and marks in Redis, which expire there. Needs the extra ``redis``.

    Args:
        url_or_client: a URL (``redis://host:6379/0``, ``rediss://``, ``unix://``), a ``redis.Redis``, or from
            redis-py 6.1 on a ``redis.RedisCluster``. An asyncio client is refused, because the store blocks.
        prefix: the prefix of all keys.

    Raises:
        ConfigurationError: the package ``redis`` is not installed, or an argument has the wrong type.
        ValueError: the URL is malformed.
    """

    def __init__(self, url_or_client: Any, *, prefix: str = "rocketmq-deduplication:") -> None:
        try:
            redis: Any = importlib.import_module("redis")
        except ImportError as error:
            raise ConfigurationError(
                "RedisStore needs the package redis: install rocketmq-py[redis]"
            ) from error
        client = url_or_client
        if isinstance(client, str):
            client = redis.Redis.from_url(client)
        if not isinstance(client, redis.Redis | redis.RedisCluster):
            raise ConfigurationError(
                "url_or_client must be a URL or a redis.Redis, not "
                f"{type(client).__module__}.{type(client).__name__}"
            )
        if not hasattr(client, "transaction"):
            raise ConfigurationError(
                "RedisStore with a RedisCluster needs redis-py 6.1: pip install 'redis>=6.1'"
            )
        self._client = client
        self._prefix = check_text(prefix, "prefix")

    def claim(self, key: str, token: str, expires_in: float) -> ClaimState:
        """Claim a key. See DeduplicationStore."""
        name = self._prefix + key
        while not self._client.set(name, token, nx=True, px=_milliseconds(expires_in)):
            value = _text(self._client.get(name))
            if value:  # else it has just expired
                return ClaimState.DONE if value.startswith(_DONE) else ClaimState.HELD
        return ClaimState.CLAIMED

    def settle(self, key: str, token: str, expires_in: float) -> bool:
        """Mark a claimed key, or remove its claim. See DeduplicationStore."""
        name = self._prefix + key
        mark = _DONE + token

        def change(pipeline: Any) -> bool:
            value = _text(pipeline.get(name))
            pipeline.multi()
            if expires_in and value in (token, mark):
                pipeline.set(name, mark, px=_milliseconds(expires_in))
                return True
            if not expires_in and value == token:
                pipeline.delete(name)
                return True
            return False

        # Watches the key, and tries again if another client changes it before the transaction.
        return bool(self._client.transaction(change, name, value_from_callable=True))

    def close(self) -> None:
        """Close the client, also one that was passed to the store."""
        self._client.close()


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""
