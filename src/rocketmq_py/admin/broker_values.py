"""What there is to know about brokers."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketmq_py.admin.asking import Listing
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.bodies import MASTER_ID


@attrs.frozen(kw_only=True)
class BrokerStatus:
    """How a broker is doing. Java: ``brokerStatus`` and ``clusterList``.

    Attributes:
        name: the broker's name, which a master and its replicas share.
        cluster: the cluster that it belongs to.
        broker_id: 0 for a master; replicas have others.
        address: ``host:port``.
        version: such as ``5.5.0``.
        started_ms: when it started, epoch milliseconds; None where it does not tell.
        put_rate: messages stored a second, in the last 10 s.
        get_rate: messages handed out a second, in the last 10 s.
        put_today: messages stored since midnight.
        get_today: messages handed out since midnight.
        disk_ratio: how full the disk of the messages is, from 0 to 1; None where it does not tell.
        send_queue: sends that wait in the broker.
        send_wait_ms: how long the first of them has waited, milliseconds.
        pull_queue: pulls that wait in the broker.
        pull_wait_ms: how long the first of them has waited, milliseconds.
        details: all that it tells, under Java's names.
    """

    name: str
    cluster: str
    broker_id: int
    address: str
    version: str
    started_ms: int | None
    put_rate: float
    get_rate: float
    put_today: int
    get_today: int
    disk_ratio: float | None
    send_queue: int
    send_wait_ms: int
    pull_queue: int
    pull_wait_ms: int
    details: Mapping[str, str] = attrs.field(repr=False)

    @property
    def is_master(self) -> bool:
        """Whether it is a master."""
        return self.broker_id == MASTER_ID

    @classmethod
    def of(
        cls, name: str, cluster: str, broker_id: int, address: str, details: Mapping[str, str]
    ) -> BrokerStatus:
        """Return the status that a broker's answer to GET_BROKER_RUNTIME_INFO holds."""
        started_ms = _first(details, "bootTimestamp")
        disk_ratio = _first(details, "commitLogDiskRatio")
        return cls(
            name=name,
            cluster=cluster,
            broker_id=broker_id,
            address=address,
            version=details.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".") or "unknown",
            started_ms=None if started_ms is None else int(started_ms),
            put_rate=_first(details, "putTps") or 0.0,
            # 4.x has a slip of the pen there.
            get_rate=_first(details, "getTransferredTps") or _first(details, "getTransferedTps") or 0.0,
            put_today=_since(details, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
            get_today=_since(details, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
            disk_ratio=None if disk_ratio is None or disk_ratio < 0 else disk_ratio,
            send_queue=int(_first(details, "sendThreadPoolQueueSize") or 0),
            send_wait_ms=int(_first(details, "sendThreadPoolQueueHeadWaitTimeMills") or 0),
            pull_queue=int(_first(details, "pullThreadPoolQueueSize") or 0),
            pull_wait_ms=int(_first(details, "pullThreadPoolQueueHeadWaitTimeMills") or 0),
            details=details,
        )


def _first(details: Mapping[str, str], name: str) -> float | None:
    """Return the first number of a text such as ``0.5 0.4 0.1``: of the last 10 s, minute and 10 minutes."""
    words = details.get(name, "").split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def _since(details: Mapping[str, str], now: str, morning: str) -> int:
    return int((_first(details, now) or 0) - (_first(details, morning) or 0))


@attrs.frozen(kw_only=True)
class BrokerListing(Listing[BrokerStatus]):
    """All brokers.

    Attributes:
        brokers: those that answered, by cluster, name and id.
        failures: the error of each that did not, by its address.
    """

    brokers: tuple[BrokerStatus, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[BrokerStatus, ...]:
        return self.brokers
