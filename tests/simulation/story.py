"""What happened in a simulation, and what of it must not have."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import attrs
import trio

from rocketmq_py import MessageQueue, ReceivedMessage
from rocketmq_py.testing import World

ON_PURPOSE = "on purpose"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
MOST_FINDINGS = 10


class OnPurposeError(Exception):
    """What a handler raises now and then."""

    def __init__(self) -> None:
        super().__init__(ON_PURPOSE)


@attrs.frozen
class Group:
    """A consumer group of a story: its name is that of the way in which its members consume."""

    name: str
    topic: str
    members: int

    @property
    def pulls(self) -> bool:
        """Whether it commits offsets up to which everything is done with."""
        return self.name != "pop"


@attrs.define(eq=False)
class Story:
    """What clients have done, and what was found wrong with it."""

    world: World
    groups: tuple[Group, ...]
    accepted: dict[str, set[bytes]] = attrs.field(factory=lambda: defaultdict(set))
    handled: dict[str, Counter[bytes]] = attrs.field(factory=lambda: defaultdict(Counter))
    in_order: dict[MessageQueue, int] = attrs.field(factory=dict)
    decisions: dict[bytes, bool] = attrs.field(factory=dict)
    findings: list[str] = attrs.field(factory=list)
    checked: dict[tuple[str, MessageQueue], int] = attrs.field(factory=dict)

    def find(self, what: str) -> None:
        """Note something that must not have happened."""
        self.world.trace("FINDING", what)
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(f"after {trio.current_time():.3f} s: {what}")

    def accept(self, topic: str, bodies: Iterable[bytes]) -> None:
        """Note messages that brokers have acknowledged."""
        self.accepted[topic].update(bodies)

    def begin(self, group: Group, message: ReceivedMessage) -> None:
        """Note that a message is about to be handled."""
        self.world.trace("begin", group.name, message.queue, message.queue_offset, message.body)
        if group.name == "orderly":
            done = self.in_order.get(message.queue, 0)
            if message.queue_offset > done:
                self.find(
                    f"{message.queue} handles offset {message.queue_offset}, and {done} is not done with"
                )

    def done(self, group: Group, message: ReceivedMessage) -> None:
        """Note that a message was handled."""
        self.world.trace("done", group.name, message.queue, message.queue_offset, message.body)
        self.handled[group.name][message.body] += 1
        if group.name == "orderly":
            self.in_order[message.queue] = max(self.in_order.get(message.queue, 0), message.queue_offset + 1)

    def missing(self) -> Mapping[str, set[bytes]]:
        """Return what was acknowledged and each group has not handled."""
        missing = {
            group.name: self.accepted[group.topic] - self.handled[group.name].keys() for group in self.groups
        }
        return {name: bodies for name, bodies in missing.items() if bodies}

    def check_offsets(self) -> None:
        """Find offsets that were committed past what was handled, or given back."""
        for group in self.groups:
            if group.pulls:
                self._check_offsets_of(group)

    def _check_offsets_of(self, group: Group) -> None:
        offsets = self.world.offsets(group.name)
        messages: dict[MessageQueue, list[ReceivedMessage]] = defaultdict(list)
        given_back: set[bytes] | None = None
        for queue, offset in offsets.items():
            begin = self.checked.get((group.name, queue), 0)
            if queue.topic != group.topic or offset <= begin:
                continue
            self.checked[group.name, queue] = offset
            if not messages:
                for message in self.world.messages(group.topic):
                    messages[message.queue].append(message)
            if offset > len(messages[queue]):
                self.find(f"{group.name} committed {offset} in {queue}, which ends at {len(messages[queue])}")
            for message in messages[queue][begin:offset]:
                if message.body in self.handled[group.name]:
                    continue
                if given_back is None:
                    elsewhere = (f"%RETRY%{group.name}", f"%DLQ%{group.name}", SCHEDULE_TOPIC)
                    given_back = {
                        message.body for topic in elsewhere for message in self.world.messages(topic)
                    }
                if message.body not in given_back:
                    self.find(
                        f"{group.name} committed {offset} in {queue}, and {message.queue_offset} is neither "
                        "handled nor given back"
                    )

    def check_end(self) -> None:
        """Find what is wrong when all is over."""
        for topic, bodies in self.accepted.items():
            stored = {message.body for message in self.world.messages(topic)}
            if lost := bodies - stored:
                self.find(f"{topic} has lost {sorted(lost)}")
            for body in stored & self.decisions.keys():
                if not self.decisions[body]:
                    self.find(f"{body!r} was rolled back, and is in {topic}")
        for name, bodies in self.missing().items():
            self.find(f"group {name} has not got {sorted(bodies)}")


class ErrorLog(logging.Handler):
    """Notes what is logged as an error, but for failures of handlers that are on purpose."""

    def __init__(self, story: Story) -> None:
        super().__init__(logging.ERROR)
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        if not (record.exc_info and isinstance(record.exc_info[1], OnPurposeError)):
            self._story.find(f"logged as an error: {self.format(record)}")
