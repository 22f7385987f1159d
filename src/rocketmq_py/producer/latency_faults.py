"""The latency-fault strategy: brokers that answered late, or failed, are avoided for a while."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Final

import attrs

from rocketmq_py.arguments import Duration, check_number, flag, positive, seconds, wrong_type
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.library_logger import LibraryLogger

logger: Final = LibraryLogger("rocketmq_py.producer")


def _latencies(values: Iterable[Duration]) -> tuple[float, ...]:
    return _seconds(values, "latencies")


def _unavailable(values: Iterable[Duration]) -> tuple[float, ...]:
    return _seconds(values, "unavailable")


def _seconds(values: object, name: str) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise wrong_type(name, "a list of seconds", values)
    return tuple([check_number(seconds(value), f"{name}[{index}]") for index, value in enumerate(values)])


def _rising_latencies(_: object, attribute: attrs.Attribute[Any], value: tuple[float, ...]) -> None:
    if (
        not value
        or value[0] < 0
        or any(not low < high for low, high in itertools.pairwise((*value, math.inf)))
    ):
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; it must be one or more finite numbers of seconds in rising order"
        )


def _one_per_latency(
    policy: LatencyFaultPolicy, attribute: attrs.Attribute[Any], value: tuple[float, ...]
) -> None:
    if len(value) != len(policy.latencies):
        raise ConfigurationError(
            f"{attribute.name} has {len(value)} entries; it must have one for each of the "
            f"{len(policy.latencies)} latencies"
        )
    if any(not low <= high < math.inf for low, high in itertools.pairwise((0.0, *value))):
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; it must be finite numbers of seconds from 0 on that do not fall"
        )


@attrs.frozen(kw_only=True)
class LatencyFaultPolicy:
    """How long a producer avoids a broker, by the latency of its last answer. Java: ``MQFaultStrategy``.

    The policy is a table. A row applies from its latency up to the latency of the next row.

    Args:
        latencies: the latency of each row in seconds, rising (latencyMax).
        unavailable: for each row, the seconds for which the broker is avoided (notAvailableDuration).
        error_latency: the latency in seconds that a failed send counts as.
        detect: probe unreachable brokers in the background, and avoid them until a probe is answered
            (startDetectorEnable).
        latest_decides: True: only the last answer of a broker counts, so a fast answer ends the avoidance,
            as in Java 4.x. False: the longest avoidance runs out first, as in Java 5.x.

    Raises:
        ConfigurationError: a field has an invalid value.
    """

    JAVA_4: ClassVar[LatencyFaultPolicy]
    """The table of the Java client 4.x. Avoids a broker that failed for ten minutes, or until it answers."""
    JAVA_5: ClassVar[LatencyFaultPolicy]
    """The table of the Java client 5.x with its detector. Avoids a broker that failed for ten seconds, and
    until a probe reaches it."""

    latencies: tuple[float, ...] = attrs.field(converter=_latencies, validator=_rising_latencies)
    unavailable: tuple[float, ...] = attrs.field(converter=_unavailable, validator=_one_per_latency)
    error_latency: float = attrs.field(converter=seconds, validator=positive)
    detect: bool = attrs.field(default=False, validator=flag)
    latest_decides: bool = attrs.field(default=True, validator=flag)


LatencyFaultPolicy.JAVA_4 = LatencyFaultPolicy(
    latencies=(0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
    unavailable=(0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
    error_latency=30.0,
)

LatencyFaultPolicy.JAVA_5 = LatencyFaultPolicy(
    latencies=(0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0),
    unavailable=(0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0),
    error_latency=10.0,
    detect=True,
    latest_decides=False,
)


def unavailable_for(policy: LatencyFaultPolicy, latency: float) -> float:
    """Return for how many seconds to avoid a broker that took ``latency`` seconds to answer."""
    rows = bisect.bisect_right(policy.latencies, latency)
    return policy.unavailable[rows - 1] if rows else 0.0


def tolerated_latency(policy: LatencyFaultPolicy) -> float:
    """Return the lowest latency in seconds for which a broker is avoided. Infinite if there is none."""
    rows = zip(policy.latencies, policy.unavailable, strict=True)
    return next((latency for latency, seconds in rows if seconds > 0), math.inf)


@attrs.frozen
class BrokerHealth:
    """A broker that answered late or failed.

    Attributes:
        broker_name: the broker.
        latency: seconds that its last answer took. A failed send counts as the policy's ``error_latency``.
        unavailable_for: seconds for which the table still avoids it. 0.0 if that time is over.
        reachable: False after a send that did not reach it, until it answers a probe or a send.
    """

    broker_name: str
    latency: float
    unavailable_for: float
    reachable: bool


@attrs.frozen
class _Fault:
    latency: float
    until: float
    reachable: bool


_NO_FAULT = _Fault(0.0, -math.inf, True)


class LatencyFaults:
    """The table of brokers that answered late or failed. Java: ``LatencyFaultToleranceImpl``.

    An entry avoids its broker for a time. When that is over and the broker is reachable, it has no effect.
    Healthy brokers have no entry.

    Args:
        policy: how long to avoid a broker.
        now: the clock, in seconds.
        rng: chooses the first of the better brokers.

    Attributes:
        tolerated: latencies below this many seconds do not count against a broker.
        all_clear: whether no broker has an entry. Answers below ``tolerated`` need not be recorded then.
    """

    def __init__(self, policy: LatencyFaultPolicy, *, now: Callable[[], float], rng: random.Random) -> None:
        self.policy = policy
        self._now = now
        self.tolerated: float = tolerated_latency(policy)
        self._faults: dict[str, _Fault] = {}
        self.all_clear: bool = True
        self._counter = itertools.count(rng.randrange(1024))

    def record(self, broker_name: str, latency: float) -> None:
        """Record that the broker answered a send after ``latency`` seconds."""
        if latency >= self.tolerated or broker_name in self._faults:
            self._note(broker_name, latency, reachable=True)

    def failed(self, broker_name: str, *, reachable: bool) -> None:
        """Record that a send to the broker failed.

        It counts as an answer after the policy's ``error_latency``. Java takes the time until the failure,
        which would rate a broker that refuses connections above a slow one.

        Args:
            broker_name: the broker.
            reachable: False if there was no connection, if it broke, or if the answer timed out. Matters only
                to a policy that detects.
        """
        self._note(broker_name, self.policy.error_latency, reachable=reachable or not self.policy.detect)

    def is_available(self, broker_name: str) -> bool:
        """Whether the broker is reachable and its time in the table is over.

        Java 5.x checks the time only, so that another send fails each time that it is over.
        """
        fault = self._faults.get(broker_name)
        return fault is None or (fault.reachable and self._now() >= fault.until)

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the last send or probe reached the broker. Always true if the policy does not detect."""
        return self._faults.get(broker_name, _NO_FAULT).reachable

    def one_of_the_better(self, broker_names: Collection[str]) -> str | None:
        """Return a broker of the better half of these, by round robin. None if no broker is reachable.

        Available brokers rank first, then those with the lower latency, then those whose time is over sooner.
        Unreachable brokers are left out. Java: ``pickOneAtLeast``, which in 4.x ranks the brokers of all
        topics, and in 5.x chooses at random.
        """
        reachable = [name for name in dict.fromkeys(broker_names) if self.is_reachable(name)]
        if not reachable:
            return None
        reachable.sort(key=self._rank)
        better = max(len(reachable) // 2, 1)
        return reachable[next(self._counter) % better]

    def unreachable(self) -> Collection[str]:
        """Return the brokers to probe."""
        return [name for name, fault in self._faults.items() if not fault.reachable]

    def reached(self, broker_name: str) -> None:
        """Record that the broker answered a probe. Its time in the table continues."""
        fault = self._faults.get(broker_name)
        if fault is not None and not fault.reachable:
            logger.info("broker is reachable again: broker=%s", broker_name)
            self._set(broker_name, attrs.evolve(fault, reachable=True))

    def forget(self, known: Collection[str]) -> None:
        """Remove the entries of all brokers except ``known``, the brokers of the current routes."""
        for name in self._faults.keys() - set(known):
            del self._faults[name]
        self.all_clear = not self._faults

    def states(self) -> Mapping[str, BrokerHealth]:
        """Return the entries by broker name. Healthy brokers have none."""
        now = self._now()
        return {
            name: BrokerHealth(name, fault.latency, max(fault.until - now, 0.0), fault.reachable)
            for name, fault in self._faults.items()
        }

    def _note(self, broker_name: str, latency: float, *, reachable: bool) -> None:
        seconds = unavailable_for(self.policy, latency)
        until = self._now() + seconds
        before = self._faults.get(broker_name, _NO_FAULT)
        if before is _NO_FAULT and seconds:
            logger.info("avoiding broker: broker=%s seconds=%g latency=%.3f", broker_name, seconds, latency)
        if not self.policy.latest_decides:
            until = max(until, before.until)
        self._set(broker_name, _Fault(latency, until, reachable))

    def _set(self, broker_name: str, fault: _Fault) -> None:
        if fault.reachable and self._now() >= fault.until:
            self._faults.pop(broker_name, None)
        else:
            self._faults[broker_name] = fault
        self.all_clear = not self._faults

    def _rank(self, broker_name: str) -> tuple[bool, float, float, str]:
        fault = self._faults.get(broker_name, _NO_FAULT)
        return not self.is_available(broker_name), fault.latency, fault.until, broker_name
