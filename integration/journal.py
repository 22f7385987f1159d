"""A journal written by all members of a group, checked against RocketMQ's delivery guarantees.

A member owns a queue for a stint, which starts when it acquires the queue. The stint begins at the
group's committed offset. Each pull commits the offset that is safe by then. When a queue is
acquired, its committed offset is therefore behind the highest delivered offset by at most the
number of messages that a member may buffer per queue: :data:`BEHIND`. Messages before the committed
offset are never delivered again. Messages that the previous owner still delivers before it learns
of the rebalance may be delivered twice. Within one stint no message is delivered twice.

A killed broker loses the offsets that it has not flushed to disk. Until the members have committed
their progress again, stints begin at the offset on its disk.

Orderly groups guarantee more: the whole group handles one message of a queue at a time, each stint
has no gap, and a message is handled only after all earlier ones were handled at least once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import attrs

from integration.journaling_program import HELD, PULLED

Queue = tuple[str, int]
"""A broker's name and a queue's number."""

BEHIND = HELD + 1 + PULLED
"""The maximum distance from a queue's committed offset to its highest delivered one, see above. A queue is
pulled while its first and last buffered messages are at most ``HELD`` offsets apart."""


@attrs.define
class Stint:
    """A period in which a member owns a queue.

    Attributes:
        member: the name of the member.
        floor: the first message that may be delivered.
        delivered: the messages delivered so far.
        last: the latest of them; None before the first.
        may_begin_again: whether the queue's broker was killed since. It may have lost the queue's lock then,
            and the member may have acquired the lock again.
    """

    member: str
    floor: int
    delivered: set[int] = attrs.field(factory=set)
    last: int | None = None
    may_begin_again: bool = False


@attrs.define
class History:
    """The history of one queue.

    Attributes:
        stints: the latest stint of each member.
        owner: the member that acquired the queue last.
        handed_out: the offset after the highest one delivered so far.
        handled: the offset after the highest one handled so far.
        in_progress: the messages being handled, and the member that handles each.
        times: how often each message was handled.
    """

    stints: dict[str, Stint] = attrs.field(factory=dict)
    owner: str = ""
    handed_out: int = 0
    handled: int = 0
    in_progress: set[tuple[str, int]] = attrs.field(factory=set)
    times: Counter[int] = attrs.field(factory=Counter)


class Journal:
    """Reads the file that members append to, and checks each line.

    Args:
        path: the file, which is created.
        orderly: whether the group consumes in order.

    Attributes:
        path: see above.
        bodies: the numbers in the bodies of all messages that were handled.
        queues: the history of each queue.
        allowed: how many repeated deliveries the guarantees have permitted so far.
    """

    def __init__(self, path: Path, *, orderly: bool) -> None:
        self.path = path
        self.bodies: set[int] = set()
        self.queues: defaultdict[Queue, History] = defaultdict(History)
        self.allowed = 0
        self.orderly = orderly
        self._forgotten: dict[str, Mapping[int, int]] = {}
        path.touch()
        self._file = path.open()
        self._rest = ""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def mark(self, sign: str, name: str) -> None:
        """Record that a member (``x``) or a broker (``X``) was killed, or that a broker has recovered
        (``R``).
        """
        with self.path.open("a") as file:
            file.write(f"{sign} {name} - 0 0 0\n")

    def remember(self, broker: str, offsets: Mapping[int, int]) -> None:
        """Record the offsets found on the disk of a killed broker, by queue number."""
        self._forgotten[broker] = offsets

    def read(self) -> None:
        """Read and check the lines written since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in lines:
            sign, name, broker, queue_id, offset, body = line.split(" ")
            if broker == "-":
                self._note_mark(sign, name)
                continue
            queue = broker, int(queue_id)
            if sign == "+":
                self._taken_up(queue, name)
            elif sign == "(":
                self._begun(queue, name, int(offset))
            elif sign == ")":
                self._handled(queue, name, int(offset), int(body))

    @property
    def repeats(self) -> int:
        """The number of repeated deliveries."""
        return sum(sum(history.times.values()) - len(history.times) for history in self.queues.values())

    @property
    def owners(self) -> Counter[str]:
        """The number of queues that each member acquired last."""
        return Counter(history.owner for history in self.queues.values())

    def _note_mark(self, sign: str, name: str) -> None:
        for (broker, queue_id), history in self.queues.items():
            if sign == "x":
                history.in_progress = {call for call in history.in_progress if call[0] != name}
            elif sign == "X" and broker == name:
                for stint in history.stints.values():
                    stint.may_begin_again = self.orderly
                    self._lower(stint, (broker, queue_id))
        if sign == "R":
            del self._forgotten[name]

    def _lower(self, stint: Stint, queue: Queue) -> None:
        """Lower the floor of a stint to the offset on the disk of its broker."""
        floor = min(stint.floor, self._forgotten[queue[0]].get(queue[1], 0))
        self.allowed += self.queues[queue].handed_out - floor
        stint.floor = floor

    def _taken_up(self, queue: Queue, member: str) -> None:
        history = self.queues[queue]
        floor = max(history.handed_out - BEHIND, 0)
        self.allowed += history.handed_out - floor
        stint = history.stints[member] = Stint(member, floor)
        history.owner = member
        if queue[0] in self._forgotten:
            self._lower(stint, queue)

    def _begun(self, queue: Queue, member: str, offset: int) -> None:
        history = self.queues[queue]
        stint, where = history.stints[member], f"{queue}: {member} begins {offset}"
        assert offset >= stint.floor, f"{where}, and the group was further: nothing before {stint.floor}"
        if offset in stint.delivered:
            assert stint.may_begin_again, f"{where} again"
            stint.may_begin_again = False
            stint.delivered.clear()
            stint.last = None
        if self.orderly:
            assert offset <= history.handled, f"{where}, and {history.handled} was not handled yet"
            assert stint.last in (None, offset - 1), f"{where} after {stint.last}"
            assert not history.in_progress, f"{where} during {history.in_progress}"
        stint.delivered.add(offset)
        stint.last = offset
        history.in_progress.add((member, offset))
        history.handed_out = max(history.handed_out, offset + 1)
        if history.owner != member:
            self.allowed += 1

    def _handled(self, queue: Queue, member: str, offset: int, body: int) -> None:
        history = self.queues[queue]
        history.in_progress.discard((member, offset))
        history.times[offset] += 1
        history.handled = max(history.handled, offset + 1)
        self.bodies.add(body)
