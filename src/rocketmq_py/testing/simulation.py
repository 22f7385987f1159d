"""Programs and brokers in one trio run, in which time, networks, scheduling and chance come from a seed."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import hashlib
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NoReturn, TypeVar
from unittest import mock

import attrs
import trio
import trio.testing

from rocketmq_py.broker import BrokerConfig
from rocketmq_py.callables import check_callable
from rocketmq_py.consumer.push.far_side import Call
from rocketmq_py.consumer.push.handler_threads import HandlerThreads, run
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.testing.cluster import Cluster, Keep
from rocketmq_py.testing.network import MemoryNetwork

START_MS = 1_700_000_000_000
"""The time of day at which a simulation begins, epoch milliseconds."""
NAME_SERVER_PORT = 9876
BROKER_PORT = 10911

_Result = TypeVar("_Result")


class World(Cluster):
    """The cluster of a simulation: what a simulated program is given.

    It can be looked at, and things go wrong with it, as with a :class:`TestCluster`; what takes time is
    awaited. Clients are given :attr:`name_server_address`, and nothing else that would be special.

    Attributes:
        broker_names: the names of its brokers.
        rng: the simulation's own source of randomness, for the program's choices.
        trace: notes something of the program's own among the events.
    """

    def __init__(
        self,
        seed: int,
        brokers: int,
        name_servers: int,
        topics: Mapping[str, int] | Iterable[str],
        config: BrokerConfig,
        trace: Trace,
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
        self.trace: Final = trace.note
        self._own_nursery = nursery

    async def crash(self, server: str | None = None, *, keep: Keep = "all") -> None:
        """Have all brokers end at once, or one server: as :meth:`TestCluster.crash`."""
        self.trace("crash", server, keep)
        await self._crash(server, keep)

    async def restart(self, server: str | None = None) -> None:
        """Start all brokers again, or one server: as :meth:`TestCluster.restart`."""
        self.trace("restart", server)
        await self._restart(server)

    def connections(self) -> int:
        """Return how many connections of clients there are."""
        return sum([process.connection_count for process in self._processes])

    async def start(self) -> None:
        """Start all servers (``simulate`` does it)."""
        await self._start()

    def _call(self, function: Callable[[], _Result]) -> _Result:
        return function()

    @property
    def _nursery(self) -> trio.Nursery:
        return self._own_nursery


@attrs.frozen
class Simulation(Generic[_Result]):
    """How a simulation went.

    Attributes:
        seed: where it came from.
        value: what the program returned.
        digest: of all events: with the same program and seed it is the same.
        events: how many there were.
        seconds: how much virtual time has passed.
        lines: the events, if they were wanted.
    """

    seed: int
    value: _Result
    digest: str
    events: int
    seconds: float
    lines: tuple[str, ...] = attrs.field(default=(), repr=False)


class Trace:
    """What happens in a simulation, as a digest, and as lines if they are wanted."""

    def __init__(self, *, keep: bool) -> None:
        self.count: int = 0
        self.lines: list[str] = []
        self._keep = keep
        self._hash = hashlib.sha256()

    def note(self, *what: object) -> None:
        """Note an event."""
        line = f"{trio.current_time():.6f} {' '.join(map(str, what))}"
        self._hash.update(line.encode())
        self.count += 1
        if self._keep:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """A digest of all that was noted."""
        return self._hash.hexdigest()[:16]


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
    timeout: float = 86_400.0,
    config: BrokerConfig | None = None,
    trace: bool = False,
    **settings: Any,
) -> Simulation[_Result]:
    """Run a program together with brokers, so that all that happens comes from ``seed``.

    It runs on trio in this thread, with its clients and the brokers, on a network in memory. Time jumps to
    where something happens next; the order of tasks, latencies, the pieces in which bytes come, ids, and
    every ``random.Random`` without a seed of its own come from ``seed``. Functions that would run in threads
    run where they are called. The same program with the same seed does the same, in another process, too,
    as long as it does nothing that depends on the outside: files, sockets, the order of sets of texts
    (``PYTHONHASHSEED``), object ids::

        async def program(world):
            async with Producer(world.name_server_address, group="p") as producer:
                with world.lose_answers("SEND_MESSAGE", times=world.rng.randrange(1, 3)):
                    await producer.send(Message("T", b"x"))
            assert world.messages("T")

        for seed in range(1000):
            simulate(program, seed=seed)

    Args:
        program: is given a :class:`World`.
        seed: where all chance comes from.
        brokers: how many there are.
        name_servers: how many there are.
        replicas: whether each broker has one, ``broker-a-1``, which is read from while the broker is down.
        topics: are there from the beginning, with four queues or as many as a mapping says.
        latency: seconds that bytes take one way: from, to.
        split: how often (0 to 1) what arrives is read in two pieces.
        timeout: seconds of its time after which the program is cancelled: nothing else would end one that
            waits for what never comes. ``math.inf`` for no limit.
        config: the brokers' settings; None for the default ones.
        trace: whether to keep the events as lines.
        settings: fields of BrokerConfig, to be changed in ``config``.

    Returns:
        How it went, with what the program returned.

    Raises:
        ConfigurationError: an argument or a setting is out of its range.
        RuntimeError: trio runs in this thread already.
        trio.TooSlowError: the program has not ended within ``timeout``.
        BaseException: what the program raises, with a note that names the seed.
    """
    check_callable(program, "program", "world")
    _check_network(latency, split)
    events = Trace(keep=trace)
    broker_config = attrs.evolve(config or BrokerConfig(), **settings)
    clock = trio.testing.MockClock(autojump_threshold=0)

    async def main() -> _Result:
        network = MemoryNetwork(
            random.Random(f"network {seed}"), latency=latency, split=split, on_event=events.note
        )
        trio.socket.set_custom_socket_factory(network)
        outcome: list[_Result] = []
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            try:
                world = World(
                    seed, brokers, name_servers, topics, broker_config, events, nursery, replicas=replicas
                )
                await world.start()
                with trio.move_on_after(timeout) as scope:
                    outcome.append(await program(world))
                if scope.cancelled_caught:
                    failure = trio.TooSlowError(f"the program has not ended within {timeout:g} s of its time")
            except Exception as error:  # noqa: BLE001 - raised when the servers have ended
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return outcome[0]

    try:
        with _all_from(seed, clock):
            value = trio.run(main, clock=clock)
    except BaseException as error:
        error.add_note(f"simulated with seed {seed}, for {clock.current_time():.3f} s of its time")
        raise
    return Simulation(seed, value, events.digest, events.count, clock.current_time(), tuple(events.lines))


def _check_network(latency: tuple[float, float], split: float) -> None:
    match latency:
        case (int() | float() as least, int() | float() as most) if 0 <= least <= most < math.inf:
            pass
        case _:
            raise ConfigurationError(
                f"latency is {latency!r}; expected seconds (from, to), such as (0.0, 0.002)"
            )
    if not 0 <= split <= 1:
        raise ConfigurationError(f"split is {split!r}; it must be 0 to 1")


@contextlib.contextmanager
def _all_from(seed: int, clock: trio.abc.Clock) -> Iterator[None]:
    """Have time and chance of this process be those of a simulation."""
    chance = random.Random(f"chance {seed}")
    before = random.getstate()

    class Seeded(random.Random):
        """Where there is no seed, one from the simulation's."""

        def __init__(self, seed: Any = None) -> None:
            super().__init__(chance.getrandbits(64) if seed is None else seed)

    def time_ns() -> int:
        return START_MS * 1_000_000 + round(clock.current_time() * 1e9)

    with contextlib.ExitStack() as stack:
        for target, stand_in in {
            "trio._core._run._r": random.Random(f"scheduling {seed}"),
            "trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING": True,
            "trio.to_thread.run_sync": _run_here,
            "rocketmq_py.consumer.push.handler_threads.HandlerThreads.begin": _handle_here,
            "rocketmq_py.client.identity._counter": itertools.count(),
            "rocketmq_py.handoff.hosted.trio_thread": _no_other_thread,
            "os.getpid": lambda: 4242,
            "random.Random": Seeded,
            "time.time": lambda: time_ns() / 1e9,
            "time.time_ns": time_ns,
            "time.monotonic": clock.current_time,
        }.items():
            stack.enter_context(mock.patch(target, stand_in))
        random.seed(chance.getrandbits(64))
        stack.callback(random.setstate, before)
        # What finalizers do must not depend on when memory is collected. What a simulation leaves is young.
        if gc.isenabled():
            gc.disable()
            stack.callback(gc.enable)
            stack.callback(gc.collect, 0)
        yield


def _no_other_thread() -> NoReturn:
    raise RuntimeError(
        "rocketmq_py.blocking runs in a thread of its own, which a simulation does not reach: "
        "simulated programs use the classes of rocketmq_py"
    )


async def _run_here(function: Callable[..., _Result], *arguments: Any, **_: Any) -> _Result:
    """Call here what would run in a thread: virtual time does not wait for threads."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


def _handle_here(threads: HandlerThreads, calls: Sequence[Call]) -> None:
    """Call a plain handler here: its threads would wait for each other, and virtual time for none of them."""

    async def handle(call: Call) -> None:  # without a checkpoint: a call that was begun ends
        run(call, threads.function, call.context or contextvars.copy_context())
        threads.take([call])

    for call in calls:
        threads.nursery.start_soon(handle, call)


def now_ms() -> int:
    """Return a simulation's time of day, epoch milliseconds."""
    return START_MS + int(trio.current_time() * 1000)
