"""Simulation: a program and brokers in one trio run, with time, network and randomness from a seed."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar, Unpack

import attrs
import trio
import trio.testing

from rocketmq_py.arguments import Duration, check_not_negative, seconds
from rocketmq_py.broker.config import BrokerConfig, BrokerOptions, config_of
from rocketmq_py.callables import check_callable
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.names import dead_letter_topic
from rocketmq_py.shown_settings import takes_settings
from rocketmq_py.testing.cluster import Cluster, CrashData
from rocketmq_py.testing.determinism import deterministic, now_ms
from rocketmq_py.testing.network import MemoryNetwork

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911

_Result = TypeVar("_Result")


class World(Cluster):
    """The cluster of a simulation, which the simulated program gets as its argument.

    The program inspects it and injects faults as with a :class:`TestCluster`, but awaits :meth:`crash` and
    :meth:`restart`. It lets time pass with ``trio.sleep``, so there is nothing like ``advance`` or
    ``wait_for``. Clients need only :attr:`name_server_address`.

    Attributes:
        rng: a source of randomness for the program, from the simulation's seed.
        trace: adds an event of the program to the simulation's events.
    """

    def __init__(
        self,
        seed: int,
        brokers: int,
        name_servers: int,
        topics: Mapping[str, int] | Iterable[str],
        config: BrokerConfig,
        trace: EventTrace,
        nursery: trio.Nursery,
        *,
        replicas: bool = False,
    ) -> None:
        super().__init__(
            brokers,
            name_servers,
            hosts=[f"127.0.0.{number}" for number in range(1, 1 + brokers * (1 + replicas) + name_servers)],
            ports=(NAME_SERVER_PORT, BROKER_PORT),
            topics=topics,
            config=config,
            now_ms=now_ms,
            on_change=lambda: None,
            rng=random.Random(f"brokers {seed}"),
            replicas=replicas,
        )
        self.rng: Final = random.Random(f"program {seed}")
        self.trace: Final = trace.add
        self._own_nursery = nursery

    async def crash(self, server: str | None = None, *, keep: CrashData = "all") -> None:
        """Stop all brokers, or one server, at once. See :meth:`TestCluster.crash`.

        A crash that has begun is not cancelled.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.trace("crash", server, keep)
        await self._crash(server, keep)

    async def restart(self, server: str | None = None) -> None:
        """Start all brokers, or one server. See :meth:`TestCluster.restart`.

        A restart that has begun is not cancelled.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.trace("restart", server)
        await self._restart(server)

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """Return the dead letters of a group: messages that it failed to process in all retries."""
        return self.messages(dead_letter_topic(group))

    async def _run(self, program: Callable[[World], Awaitable[_Result]], timeout: float) -> _Result:
        """Start all servers, and run a program. Raises TooSlowError after ``timeout`` virtual seconds."""
        await self._start()
        with trio.move_on_after(timeout):
            running = program(self)
            if not isinstance(running, Awaitable):
                raise ConfigurationError(f"the program is {program!r}; it must be an async function")
            return await running
        raise trio.TooSlowError(f"the program did not end within {timeout:g} s of virtual time")

    def _connection_count(self) -> int:
        """Return the number of client connections."""
        return sum([process.connection_count for process in self._processes])

    def _call(self, function: Callable[[], _Result]) -> _Result:
        return function()

    @property
    def _nursery(self) -> trio.Nursery:
        return self._own_nursery


@attrs.frozen
class Simulation(Generic[_Result]):
    """The outcome of a simulation.

    Attributes:
        seed: the seed.
        value: the return value of the program.
        digest: a digest of all events. The same program and seed give the same digest.
        events: the number of events.
        seconds: the virtual time that has passed.
        lines: the events as text, if ``trace`` was set.
    """

    seed: int
    value: _Result
    digest: str
    events: int
    seconds: float
    lines: tuple[str, ...] = attrs.field(default=(), repr=False)


class EventTrace:
    """The events of a simulation, as a digest and, if ``keep_lines`` is set, as text."""

    def __init__(self, *, keep_lines: bool) -> None:
        self.count: int = 0
        self.lines: list[str] = []
        self._keep_lines = keep_lines
        self._hash = hashlib.sha256()

    def add(self, *words: object) -> None:
        """Add an event."""
        line = f"{trio.current_time():.6f} {' '.join(map(str, words))}"
        self._hash.update(line.encode())
        self.count += 1
        if self._keep_lines:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """A digest of all events."""
        return self._hash.hexdigest()[:16]


@takes_settings(BrokerConfig)
def simulate(
    program: Callable[[World], Awaitable[_Result]],
    *,
    seed: int,
    brokers: int = 1,
    name_servers: int = 1,
    replicas: bool = False,
    topics: Mapping[str, int] | Iterable[str] = (),
    latency: tuple[float, float] = (0.0, 0.002),
    split: float = 0.1,
    timeout: Duration = 86_400.0,
    trace: bool = False,
    **options: Unpack[BrokerOptions],
) -> Simulation[_Result]:
    """Run a program together with brokers, reproducibly from a seed.

    The program, its clients and the brokers run on trio in this thread, on a network in memory. Virtual time
    jumps to the next event. The order of tasks, latencies, the sizes of reads, message ids, ``random`` and
    each ``random.Random`` without a seed of its own are derived from ``seed``. Functions that would run in
    threads run in place. Simulations in several threads run one after another.

    The same program with the same seed gives the same events, also in another process, unless it depends on
    its environment: files, sockets, ``datetime.now()``, ``uuid.uuid4()``, ``secrets``, object ids, the order
    of sets of strings (``PYTHONHASHSEED``)::

        async def program(world):
            async with Producer(world.name_server_address, group="p") as producer:
                with world.lose_answers("SEND_MESSAGE", times=world.rng.randrange(1, 3)):
                    await producer.send(Message("T", b"x"))
            assert world.messages("T")

        for seed in range(1000):
            simulate(program, seed=seed)

    Args:
        program: an async function of a :class:`World`.
        seed: the seed of all randomness.
        brokers: the number of brokers.
        name_servers: the number of name servers.
        replicas: whether each broker has a replica, such as ``broker-a-1``. Consumers read from it while the
            broker is down.
        topics: topics to create, with four queues each, or as many as a mapping gives.
        latency: the minimum and maximum seconds that bytes take one way.
        split: the probability (0 to 1) that a read returns only a part of the bytes that have arrived.
        timeout: virtual seconds after which the program is cancelled. ``math.inf`` for no limit.
        trace: whether to keep the events as text.
        **options: settings of each broker.

    Returns:
        The outcome, with the return value of the program.

    Raises:
        ConfigurationError: an argument is out of its range, the program is not an async function, or a
            setting is unknown (the error suggests the nearest name) or out of its range.
        RuntimeError: trio runs in this thread already, or the program uses the asyncio or threads API.
        trio.TooSlowError: the program has not ended within ``timeout``.
        BaseException: an error of the program, with a note that contains the seed.
    """
    check_callable(program, "program", "world")
    _check_network(latency, split)
    limit = check_not_negative(seconds(timeout), "timeout")
    events = EventTrace(keep_lines=trace)
    broker_config = config_of(options)
    clock = trio.testing.MockClock(autojump_threshold=0)

    def create_world(nursery: trio.Nursery) -> World:
        return World(seed, brokers, name_servers, topics, broker_config, events, nursery, replicas=replicas)

    async def main() -> _Result:
        network = MemoryNetwork(
            random.Random(f"network {seed}"), latency=latency, split=split, on_event=events.add
        )
        trio.socket.set_custom_socket_factory(network)
        return await _run_program(program, create_world, limit)

    try:
        with deterministic(seed, clock):
            value = trio.run(main, clock=clock)
    except BaseException as error:
        error.add_note(f"simulated with seed {seed}, for {clock.current_time():.3f} s of virtual time")
        raise
    return Simulation(seed, value, events.digest, events.count, clock.current_time(), tuple(events.lines))


async def _run_program(
    program: Callable[[World], Awaitable[_Result]],
    create_world: Callable[[trio.Nursery], World],
    timeout: float,
) -> _Result:
    results: list[_Result] = []
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            world = create_world(nursery)
            results.append(await world._run(program, timeout))
        except Exception as error:  # noqa: BLE001 - raised after the nursery, which would wrap it in a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return results[0]


def _check_network(latency: tuple[float, float], split: float) -> None:
    match latency:
        case (int() | float() as lowest, int() | float() as highest) if 0 <= lowest <= highest < math.inf:
            pass
        case _:
            raise ConfigurationError(
                f"latency is {latency!r}; expected seconds (from, to), such as (0.0, 0.002)"
            )
    if not 0 <= split <= 1:
        raise ConfigurationError(f"split is {split!r}; it must be 0 to 1")
