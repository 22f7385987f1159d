"""A relay's settings."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from rocketmq_py.arguments import positive, wrong_type
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.names import check_group, check_topic


def _folder(value: str | os.PathLike[str]) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise wrong_type("store", "a path", value)
    return Path(value)


@attrs.frozen(kw_only=True)
class RelayConfig:
    """How a relay works.

    Args:
        topic: the buffer topic: what waits goes there first. Its messages must not expire (brokers'
            ``fileReservedTime``) before the longest delay is over: a store that is lost, and a relay that
            takes a queue over, read them again.
        store: the folder of the messages that wait; made if it is missing. One relay at a time has it.
        group: the consumer group; relays in the same group share out the buffer topic's queues. None is
            ``RELAY_`` and the topic.
        max_rate: messages a second that are delivered at the most, also of those that are overdue.
        batch_size: messages that are under way to brokers at once, for each buffer queue.
        retry_interval: seconds between two tries to send to a topic that could not be sent to.
        progress_interval: seconds between two records, in the buffer topic, of how far its queues are
            delivered. What was delivered after the last one comes again when a store is lost, or when
            another relay takes the queue over.
        close_timeout: seconds that closing may take.
    """

    topic: str = attrs.field(converter=check_topic)
    store: Path = attrs.field(converter=_folder)
    group: str = attrs.field(
        default=attrs.Factory(lambda self: f"RELAY_{self.topic}", takes_self=True), converter=check_group
    )
    max_rate: float = attrs.field(default=10_000.0, validator=positive)
    batch_size: int = attrs.field(default=256, validator=positive)
    retry_interval: float = attrs.field(default=5.0, validator=positive)
    progress_interval: float = attrs.field(default=5.0, validator=positive)
    close_timeout: float = attrs.field(default=5.0, validator=positive)


class RelayOptions(ClientOptions, total=False):
    """The fields of RelayConfig but ``topic`` and ``store``, and those of ClientConfig."""

    group: str
    max_rate: float
    batch_size: int
    retry_interval: float
    progress_interval: float
    close_timeout: float


StorePath = str | os.PathLike[str]
