"""The settings of a relay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import attrs

from rocketmq_py.arguments import Duration, positive, seconds, wrong_type
from rocketmq_py.client.settings import ClientOptions
from rocketmq_py.consumer.settings import CLOSE_SECONDS
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic

StorePath: TypeAlias = str | os.PathLike[str]


def _folder(value: StorePath) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise wrong_type("store", "a path", value)
    if not os.fspath(value):
        raise ConfigurationError("store is empty; give the path of a folder, '.' for the current one")
    return Path(value)


def default_group(topic: str) -> str:
    """Return the default consumer group of the relays of a buffer topic."""
    return f"RELAY_{topic}"


@attrs.frozen(kw_only=True)
class RelaySettings:
    """The settings of a relay.

    Args:
        topic: the buffer topic. Its messages must not expire (brokers' ``fileReservedTime``) before the
            longest delay is over, because a relay reads them again after its store is lost, or when it takes
            over a queue.
        store: the folder of the messages that are not due yet. Created if it is missing. One relay at a time
            can use it.
        group: the consumer group. The relays of a group share the queues of the buffer topic. By default
            ``RELAY_`` and the topic.
        max_rate: maximum number of messages that are delivered per second, including overdue messages.
            ``math.inf`` for no limit.
        batch_size: number of messages in flight to brokers for each buffer queue.
        progress_interval: seconds between two records of progress in the buffer topic. Messages delivered
            after the last record are delivered again when a store is lost, or when another relay takes over
            the queue. So are all messages that were due after one that could not be delivered. Lower it for
            fewer repeated deliveries.
        close_timeout: seconds that closing waits for the answers of brokers to messages in flight, also after
            a cancellation. Messages without an answer are delivered again. Recording the progress and leaving
            the group take at most 3 seconds more.
    """

    topic: str = attrs.field(converter=check_topic)
    store: Path = attrs.field(converter=_folder)
    group: str = attrs.field(
        default=attrs.Factory(lambda self: default_group(self.topic), takes_self=True), converter=check_group
    )
    max_rate: float = attrs.field(default=10_000.0, validator=positive)
    batch_size: int = attrs.field(default=256, validator=positive)
    progress_interval: float = attrs.field(default=5.0, converter=seconds, validator=positive)
    close_timeout: float = attrs.field(default=CLOSE_SECONDS, converter=seconds, validator=positive)


class RelayOptions(ClientOptions, total=False):
    """Settings of a Relay, with those of ClientOptions. Made by ``make apis``.

    Defaults: group=None, max_rate=10000.0, batch_size=256, progress_interval=5.0, close_timeout=25.0.
    """

    group: str
    max_rate: float
    batch_size: int
    progress_interval: Duration
    close_timeout: Duration
