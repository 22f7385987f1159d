"""The workloads: the rows of the table."""

from __future__ import annotations

import enum

import attrs


class Source(enum.Enum):
    """The topic of a workload. Topics have four queues by default."""

    SHARED = enum.auto()
    """One topic shared by all workloads that only send."""
    BACKLOG = enum.auto()
    """A topic filled beforehand, consumed from its beginning each time."""
    FRESH = enum.auto()
    """A new empty topic for each run."""
    MANY = enum.auto()
    """Many topics of eight queues with one message each, consumed from the beginning each time."""


class Figure(enum.Enum):
    """The figure by which a workload compares clients. The value is its label."""

    RATE = "messages/s"
    P50 = "p50 µs"
    P99 = "p99 µs"
    PEAK = "peak MiB"

    @property
    def less_is_better(self) -> bool:
        """Whether the smaller figure wins."""
        return self is not Figure.RATE


@attrs.frozen(kw_only=True)
class Workload:
    """A workload.

    Attributes:
        name: its name on the command line.
        title: its title in the table.
        mode: the mode of the clients' programs.
        count: number of messages per run, or of topics with ``Source.MANY``. See ``Plan.count``.
        sizes: default body sizes in bytes.
        source: the topic to send to or consume from.
        figure: the figure that compares clients.
        list: maximum messages per handler call.
    """

    name: str
    title: str
    mode: str
    count: int
    sizes: tuple[int, ...] = (128,)
    source: Source = Source.SHARED
    figure: Figure = Figure.RATE
    list: int = 1


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="awaited", title="awaited, one caller", mode="awaited", count=10_000),
        Workload(name="callers", title="awaited, 16 callers", mode="callers", count=20_000),
        Workload(
            name="pipelined",
            title="pipelined, 256 in flight",
            mode="pipelined",
            count=100_000,
            sizes=(128, 1024),
        ),
        Workload(name="batches", title="batches of 100", mode="batches", count=200_000, sizes=(128, 1024)),
        Workload(
            name="consume",
            title="push consumer, a message a call",
            mode="consume",
            count=200_000,
            source=Source.BACKLOG,
        ),
        Workload(
            name="lists",
            title="push consumer, up to 32 a call",
            mode="consume",
            count=200_000,
            source=Source.BACKLOG,
            list=32,
        ),
        Workload(
            name="latency",
            title="send to handler, one at a time",
            mode="latency",
            count=2_000,
            source=Source.FRESH,
            figure=Figure.P50,
        ),
        Workload(
            name="lag",
            title="a timer during 20,000 sends/s",
            mode="lag",
            count=100_000,
            figure=Figure.P99,
        ),
        Workload(
            name="memory",
            title="consumer of 1,000 topics of 8 queues",
            mode="memory",
            count=1_000,
            source=Source.MANY,
            figure=Figure.PEAK,
        ),
    )
}
"""All workloads by name."""
