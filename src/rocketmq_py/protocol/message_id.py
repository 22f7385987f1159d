"""The two ids of a message: the unique id that its client makes, and the offset id that its broker makes."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Protocol
from weakref import WeakSet

import attrs

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.decoding import decoder, shortened

_ADDRESS_SIZES = (4, 16)
_HEX = [f"{byte:02X}" for byte in range(256)]  # to look it up is quicker than to format it


class RandomBits(Protocol):
    """What is needed of a ``random.Random``."""

    def getrandbits(self, k: int, /) -> int:
        """Return a number of ``k`` random bits."""


class UniqueIdGenerator:
    """Makes ids that no other client makes: 32 hex digits, or 56 with an IPv6 address.

    An id is: address, process id (16 bits), salt (32), milliseconds since the month began (32), counter (16).
    Java: ``MessageClientIDSetter``, whose salt is the hash of a class loader. A process that was forked from
    this one makes ids of its own: it has another process id, and with that goes another salt.

    Args:
        address: this machine's address, packed: 4 or 16 bytes.
        process_id: tells the process id, as ``os.getpid`` does; asked anew in a process that was forked.
        now_ms: the clock, epoch milliseconds.
        random: where the salt comes from.
        time_zone: where months begin; None is the local zone, which Java's tools assume.

    Raises:
        ConfigurationError: the address has another length.
    """

    def __init__(
        self,
        address: bytes,
        *,
        process_id: Callable[[], int],
        now_ms: Callable[[], int],
        random: RandomBits,
        time_zone: tzinfo | None = None,
    ) -> None:
        if len(address) not in _ADDRESS_SIZES:
            raise ConfigurationError(f"an address for message ids has 4 or 16 bytes, not {len(address)}")
        self._address = address
        self._read_process_id = process_id
        self._now_ms = now_ms
        self._random = random
        self._time_zone = time_zone
        self._process_id: int | None = None
        self._prefix = ""
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0
        self._start_ms, self._start = -1, ""  # of the ids of one millisecond
        _all_generators.add(self)

    def next(self, now_ms: int | None = None) -> str:
        """Return a new id; ``now_ms`` is the present, where it is known already."""
        if now_ms is None:
            now_ms = self._now_ms()
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        if now_ms != self._start_ms:
            self._begin(now_ms)
        return self._start + _HEX[counter >> 8] + _HEX[counter & 0xFF]

    def take(self, count: int) -> list[str]:
        """Return new ids, in a fraction of the time that so many calls of :meth:`next` take."""
        unique_ids: list[str] = []
        # As many at once as are alike but for their last two digits. The counter starts again after 65,536
        # ids: the clock is read again long before that.
        while (left := count - len(unique_ids)) > 0:
            first = self._counter & 0xFF
            ends = _HEX[first : first + left]
            start = self.next()[:-2]
            self._counter = self._counter + len(ends) - 1 & 0xFFFF
            unique_ids += [start + end for end in ends]
        return unique_ids

    def forked(self) -> None:
        """Notice that this may be another process now."""
        self._process_id, self._start_ms = None, -1

    def _begin(self, now_ms: int) -> None:
        """Begin to make ids of another millisecond, which may be in another process or month, too."""
        if self._process_id is None:
            self._process_id = process_id = self._read_process_id()
            salt = self._random.getrandbits(32)
            self._prefix = f"{self._address.hex().upper()}{process_id & 0xFFFF:04X}{salt:08X}"
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms, self._time_zone)
        self._start_ms, self._start = now_ms, f"{self._prefix}{now_ms - self._month_start_ms:08X}"


_all_generators: WeakSet[UniqueIdGenerator] = WeakSet()


def _forked() -> None:  # pragma: no cover - it runs in the process that a fork makes
    for generator in list(_all_generators):
        generator.forked()


# To ask the system for the process id, once for every id, would take as long as to make one.
os.register_at_fork(after_in_child=_forked)


def _month_around(time_ms: int, time_zone: tzinfo | None) -> tuple[int, int]:
    """Return when the month of a time begins and when the next one does, epoch milliseconds."""
    moment = datetime.fromtimestamp(time_ms // 1000, time_zone)
    start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    if start.month == 12:
        end = start.replace(year=start.year + 1, month=1)
    else:
        end = start.replace(month=start.month + 1)
    return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000


@attrs.frozen
class OffsetMessageId:
    """What a broker's message id says. Java: ``MessageId``.

    Attributes:
        address: the broker's address: 4 or 16 bytes, then the port in 4.
        commit_log_offset: the message's place in its commit log, in bytes.
    """

    address: bytes
    commit_log_offset: int

    @property
    def broker_address(self) -> str:
        """The broker's address, ``host:port`` (``[host]:port`` for IPv6)."""
        host = ipaddress.ip_address(self.address[:-4])
        port = int.from_bytes(self.address[-4:], "big")
        return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"

    def __str__(self) -> str:
        return (self.address + self.commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()

    @classmethod
    @decoder("an offset message id")
    def parse(cls, text: str) -> OffsetMessageId:
        """Return what an id says.

        Raises:
            ConfigurationError: the text is not 32 or 56 hex digits.
        """
        data = _unhex(text, "offset message id")
        return cls(data[:-8], int.from_bytes(data[-8:], "big", signed=True))


def _unhex(text: str, what: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(text) != 2 * len(data) or len(data) - 12 not in _ADDRESS_SIZES:
        raise ConfigurationError(f"{shortened(repr(text))} is no {what}, which has 32 or 56 hex digits")
    return data
