"""Which brokers a producer goes round for a while, because they answered late or not at all."""

from __future__ import annotations

import bisect
import itertools
import logging
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Final

import attrs

from rocketmq_py.arguments import check_number, flag, positive, wrong_type
from rocketmq_py.errors import ConfigurationError

logger: Final = logging.getLogger("rocketmq_py.producer")


def _latencies(values: Iterable[float]) -> tuple[float, ...]:
    return _seconds(values, "latencies")


def _unavailable(values: Iterable[float]) -> tuple[float, ...]:
    return _seconds(values, "unavailable")


def _seconds(values: object, name: str) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise wrong_type(name, "a list of seconds", values)
    return tuple([check_number(value, f"{name}[{place}]") for place, value in enumerate(values)])


def _rising_latencies(_: object, attribute: attrs.Attribute[Any], value: tuple[float, ...]) -> None:
    if (
        not value
        or value[0] < 0
        or any(not low < high for low, high in itertools.pairwise((*value, math.inf)))
    ):
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; it must be one or more finite seconds, each above the one before"
        )


def _no_falling_times(
    policy: LatencyFaultPolicy, attribute: attrs.Attribute[Any], value: tuple[float, ...]
) -> None:
    if len(value) != len(policy.latencies):
        raise ConfigurationError(
            f"{attribute.name} has {len(value)} times for {len(policy.latencies)} latencies; each has one"
        )
    if any(not low <= high < math.inf for low, high in itertools.pairwise((0.0, *value))):
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; it must be finite seconds, 0 or more, none below the one before"
        )


@attrs.frozen(kw_only=True)
class LatencyFaultPolicy:
    """A table: how long a broker is passed over after an answer of such a latency. Java: ``MQFaultStrategy``.

    Args:
        latencies: seconds, rising: a row holds from its latency on, up to the next row's (latencyMax).
        unavailable: for each row the seconds for which the broker is passed over (notAvailableDuration).
        error_latency: seconds that a failed send counts as.
        detect: brokers that cannot be reached are probed in the background, and stay out until one of
            the probes is answered (startDetectorEnable).
        latest_decides: only the latest answer of a broker counts, so that a quick one ends its time at
            once, as in 4.x; else its longest time runs out first, as in 5.x.

    Raises:
        ConfigurationError: a field is not what is allowed.
    """

    JAVA_4: ClassVar[LatencyFaultPolicy]
    """The table of the Java client 4.x. Avoids a broker that failed for ten minutes, or until it answers."""
    JAVA_5: ClassVar[LatencyFaultPolicy]
    """The table of the Java client 5.x with its detector. Avoids a broker that failed for ten seconds, and
    until a probe reaches it."""

    latencies: tuple[float, ...] = attrs.field(converter=_latencies, validator=_rising_latencies)
    unavailable: tuple[float, ...] = attrs.field(converter=_unavailable, validator=_no_falling_times)
    error_latency: float = attrs.field(validator=positive)
    detect: bool = attrs.field(default=False, validator=flag)
    latest_decides: bool = attrs.field(default=True, validator=flag)

    def unavailable_for(self, latency: float) -> float:
        """Return the seconds to pass a broker over that took ``latency`` seconds to answer."""
        rows = bisect.bisect_right(self.latencies, latency)
        return self.unavailable[rows - 1] if rows else 0.0

    @property
    def tolerated(self) -> float:
        """The latency, in seconds, from which on a broker is passed over; infinite if there is none."""
        rows = zip(self.latencies, self.unavailable, strict=True)
        return next((latency for latency, seconds in rows if seconds > 0), math.inf)


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

_BY_NAME = {"4.x": LatencyFaultPolicy.JAVA_4, "5.x": LatencyFaultPolicy.JAVA_5}


def latency_fault_policy(value: LatencyFaultPolicy | str | bool | None) -> LatencyFaultPolicy | None:
    """Return the policy that a setting stands for (an attrs converter).

    None and False are off, True is the table of Java 4.x, "4.x" and "5.x" are those of the Java clients.
    Raises ConfigurationError for anything else.
    """
    if value is None or value is False:
        return None
    if value is True:
        return LatencyFaultPolicy.JAVA_4
    if isinstance(value, LatencyFaultPolicy):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    raise ConfigurationError(
        f"latency_faults is {value!r}; None, False, True, '4.x', '5.x' and a LatencyFaultPolicy are allowed"
    )


@attrs.frozen
class BrokerHealth:
    """What is held against a broker.

    Attributes:
        broker_name: the broker.
        latency: seconds that its latest answer took; a failed send counts as the policy's ``error_latency``.
        unavailable_for: seconds that it still is passed over by the table, 0.0 when they are over.
        reachable: False from a send that did not reach it until a probe or an answer shows that it is back.
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
    """The brokers that answered late or failed, and until when. Java: ``LatencyFaultToleranceImpl``.

    Brokers in good order have no entry: an answer in time costs a look-up, and Java cannot tell a broker
    without an entry from one whose time is over either.

    Args:
        policy: how long a broker is passed over.
        now: the clock, in seconds.
        rng: where the choice among the better brokers starts.

    Attributes:
        tolerated: seconds that an answer may take without being held against its broker.
        all_clear: whether nothing is held against any broker: an answer in time need not be recorded then.
    """

    def __init__(self, policy: LatencyFaultPolicy, *, now: Callable[[], float], rng: random.Random) -> None:
        self.policy = policy
        self._now = now
        self.tolerated: float = policy.tolerated
        self._faults: dict[str, _Fault] = {}
        self.all_clear: bool = True
        self._counter = itertools.count(rng.randrange(1024))

    def record(self, broker_name: str, latency: float) -> None:
        """Note that the broker answered a send after ``latency`` seconds; it can be reached."""
        if latency >= self.tolerated or broker_name in self._faults:
            self._note(broker_name, latency, reachable=True)

    def failed(self, broker_name: str, *, reachable: bool) -> None:
        """Note that a send to the broker failed: it counts as the policy's ``error_latency``.

        Java compares brokers by how long the failure took: one that refuses connections at once would be
        better than one that is slow.

        ``reachable`` is False when there was no connection, when it broke, or when no answer came in time.
        It makes a difference only to a policy that detects.
        """
        self._note(broker_name, self.policy.error_latency, reachable=reachable or not self.policy.detect)

    def is_available(self, broker_name: str) -> bool:
        """Whether nothing is held against the broker: its time is over, and it can be reached.

        Java 5.x looks at the time alone here, and so fails once more each time that it is over.
        """
        fault = self._faults.get(broker_name)
        return fault is None or (fault.reachable and self._now() >= fault.until)

    def is_reachable(self, broker_name: str) -> bool:
        """Whether sends reach the broker, as far as is known; always, if the policy does not detect."""
        return self._faults.get(broker_name, _NO_FAULT).reachable

    def one_of_the_better(self, broker_names: Collection[str]) -> str | None:
        """Return one of the better half of these brokers, another one in turn each time.

        Best is an available one, then one whose latest answer was quicker, then one whose time is over
        sooner. Those that cannot be reached are left out; None if that leaves none.
        Java: ``pickOneAtLeast`` of 4.x, which looks at the brokers of all topics; that of 5.x is random.
        """
        reachable = [name for name in dict.fromkeys(broker_names) if self.is_reachable(name)]
        if not reachable:
            return None
        reachable.sort(key=self._rank)
        better = max(len(reachable) // 2, 1)
        return reachable[next(self._counter) % better]

    def unreachable(self) -> Collection[str]:
        """Return the brokers that wait for a probe to reach them."""
        return [name for name, fault in self._faults.items() if not fault.reachable]

    def reached(self, broker_name: str) -> None:
        """Note that a probe reached the broker. The time that the table gives it runs on."""
        fault = self._faults.get(broker_name)
        if fault is not None and not fault.reachable:
            logger.info("broker %s can be reached again", broker_name)
            self._set(broker_name, attrs.evolve(fault, reachable=True))

    def forget(self, known: Collection[str]) -> None:
        """Drop what is held against brokers other than these: they are in no route any more."""
        for name in self._faults.keys() - set(known):
            del self._faults[name]
        self.all_clear = not self._faults

    def states(self) -> Mapping[str, BrokerHealth]:
        """Return what is held against which broker, by name; brokers in good order are not in it."""
        now = self._now()
        return {
            name: BrokerHealth(name, fault.latency, max(fault.until - now, 0.0), fault.reachable)
            for name, fault in self._faults.items()
        }

    def _note(self, broker_name: str, latency: float, *, reachable: bool) -> None:
        seconds = self.policy.unavailable_for(latency)
        until = self._now() + seconds
        before = self._faults.get(broker_name, _NO_FAULT)
        if before is _NO_FAULT and seconds:
            logger.info("broker %s is passed over for %g s", broker_name, seconds)
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
