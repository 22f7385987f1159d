"""The events of a simulation, and the checks that find violations in them."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import attrs
import trio

from rocketmq_py import MessageQueue, ReceivedMessage
from rocketmq_py.names import dead_letter_topic, retry_topic
from rocketmq_py.testing import World
from tests.simulation.plan import CONSUMERS, Group, Plan

ON_PURPOSE = "on purpose"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
MAX_FINDINGS = 10
LOCK_LIFE = 60.0
"""Seconds for which two members may process a queue after its broker has lost its locks."""


class OnPurposeError(Exception):
    """Raised by handlers at random, to have messages sent back."""

    def __init__(self) -> None:
        super().__init__(ON_PURPOSE)


@attrs.define(eq=False)
class History:
    """The actions of clients, and the violations found in them.

    Attributes:
        accepted: the message bodies that brokers have acknowledged, by topic.
        handled: the number of times that each group has handled each message.
        findings: the violations.
        lost: the message bodies lost in crashes without a flush.
        acknowledged: the number of acknowledgements of each popped message after all faults have ended.
    """

    world: World
    plan: Plan
    accepted: dict[str, set[bytes]] = attrs.field(factory=lambda: defaultdict(set))
    handled: dict[str, Counter[bytes]] = attrs.field(factory=lambda: defaultdict(Counter))
    decisions: dict[bytes, bool] = attrs.field(factory=dict)
    findings: list[str] = attrs.field(factory=list)
    lost: set[bytes] = attrs.field(factory=set)
    acknowledged: Counter[bytes] = attrs.field(factory=Counter)
    _next_ordered: dict[MessageQueue, int] = attrs.field(factory=dict)
    _in_progress: dict[MessageQueue, Counter[int]] = attrs.field(factory=lambda: defaultdict(Counter))
    _crashed_at: dict[str, float] = attrs.field(factory=dict)
    _crashes: Counter[str] = attrs.field(factory=Counter)
    _checked: dict[tuple[str, MessageQueue], int] = attrs.field(factory=dict)
    # Offsets below this one may have been assigned twice.
    _reused_offsets: dict[MessageQueue, int] = attrs.field(factory=dict)

    def add_finding(self, finding: str) -> None:
        """Record a violation."""
        self.world.trace("FINDING", finding)
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(f"after {trio.current_time():.3f} s: {finding}")

    def accept(self, topic: str, bodies: Iterable[bytes]) -> None:
        """Record messages that brokers have acknowledged."""
        self.accepted[topic].update(bodies)

    @contextmanager
    def handling(self, group: Group, member: int, message: ReceivedMessage) -> Iterator[None]:
        """Record a handler call. The message counts as handled unless the block raises."""
        queue, offset = message.queue, message.queue_offset
        self.world.trace("begin", group.name, member, queue, offset, message.body)
        if group.name == "orderly":
            self._check_order(member, queue, offset)
        try:
            yield
        finally:
            self._in_progress[queue][member] -= group.name == "orderly"
        self.world.trace("done", group.name, member, queue, offset, message.body)
        self.handled[group.name][message.body] += 1
        if group.name == "orderly":
            self._next_ordered[queue] = max(self._next_ordered.get(queue, 0), offset + 1)

    def _check_order(self, member: int, queue: MessageQueue, offset: int) -> None:
        done, in_progress = self._next_ordered.get(queue, 0), self._in_progress[queue]
        if offset > done:
            self.add_finding(f"{queue} handles offset {offset}, but offset {done} is not handled yet")
        others = [other for other, count in in_progress.items() if count and other != member]
        if others and trio.current_time() - self._crashed_at.get(queue.broker_name, -LOCK_LIFE) >= LOCK_LIFE:
            self.add_finding(f"{queue} is handled by member {member} while member {others[0]} handles it")
        in_progress[member] += 1
        if in_progress[member] > 1:
            self.add_finding(f"{queue} is handled twice at the same time by member {member}")

    # Crashes

    def record_crash(self, broker: str) -> None:
        """Record that a broker has crashed and lost its locks."""
        self._crashed_at[broker] = trio.current_time()
        self._crashes[broker] += 1

    @contextmanager
    def recording_losses(self, broker: str) -> Iterator[None]:
        """Record the messages that a broker loses inside the block. Their loss is no violation.

        Later messages reuse the lost offsets. Groups that had committed those offsets may skip them.
        """
        before = self._stored(broker)
        yield
        after = self._stored(broker)
        for queue, offset in before.keys() - after.keys():
            self.lost.add(before[queue, offset])
            self._reused_offsets[queue] = max(self._reused_offsets.get(queue, 0), offset + 1)
            self._next_ordered[queue] = max(self._next_ordered.get(queue, 0), offset + 1)
        for key in [key for key in self._checked if key[1].broker_name == broker]:
            del self._checked[key]

    def _stored(self, broker: str) -> dict[tuple[MessageQueue, int], bytes]:
        """Return the bodies of a broker's messages by queue and offset."""
        return {
            (message.queue, message.queue_offset): message.body
            for topic in self.world.topics()
            for message in self.world.messages(topic)
            if message.broker_name == broker
        }

    def may_be_skipped(self, message: ReceivedMessage) -> bool:
        """Return whether the message may have the offset of a message that a crash has lost."""
        return message.queue_offset < self._reused_offsets.get(message.queue, 0)

    def has_reused_offsets(self, queue: MessageQueue) -> bool:
        """Return whether the queue may have assigned offsets twice."""
        return queue in self._reused_offsets

    # Checks

    def missing(self) -> Mapping[str, set[bytes]]:
        """Return the acknowledged messages that each group has not handled."""
        missing = {}
        for group in self.plan.groups:
            bodies = self.accepted[group.topic] - self.handled[group.name].keys() - self.lost
            if bodies and self._reused_offsets:
                # A message that was sent back may have a reused offset in the retry topic.
                bodies -= {
                    message.body
                    for topic in (group.topic, retry_topic(group.name))
                    for message in self.world.messages(topic)
                    if self.may_be_skipped(message)
                }
            if bodies:
                missing[group.name] = bodies
        return missing

    def not_stored(self) -> Mapping[str, set[bytes]]:
        """Return the acknowledged messages that are not visible. Their transactions may still be open."""
        not_stored = {
            topic: bodies - {message.body for message in self.world.messages(topic)} - self.lost
            for topic, bodies in self.accepted.items()
        }
        return {topic: bodies for topic, bodies in not_stored.items() if bodies}

    def uncommitted(self) -> list[str]:
        """Describe the queues whose committed offsets are below their end."""
        found: list[str] = []
        if not self.plan.keeps_commits:
            return found
        for group in self.plan.groups:
            if group.pulls:
                offsets = self.world.committed(group.name)
                ends: Counter[MessageQueue] = Counter()
                for message in self.world.messages(group.topic):
                    ends[message.queue] = message.queue_offset + 1
                found += [
                    f"{group.name} has committed {offsets.get(queue, 0)} of {end} in {queue}"
                    for queue, end in ends.items()
                    if offsets.get(queue, 0) < end
                ]
        return found

    def check_offsets(self) -> None:
        """Report offsets committed past messages that were neither handled nor sent back."""
        for group in self.plan.groups:
            if group.pulls:
                self._check_offsets_of(group)

    def _check_offsets_of(self, group: Group) -> None:
        offsets = self.world.committed(group.name)
        messages: dict[MessageQueue, list[ReceivedMessage]] = defaultdict(list)
        sent_back: set[bytes] | None = None
        for queue, offset in offsets.items():
            begin = self._checked.get((group.name, queue), 0)
            if queue.topic != group.topic or offset <= begin:
                continue
            self._checked[group.name, queue] = offset
            if not messages:
                for message in self.world.messages(group.topic):
                    messages[message.queue].append(message)
            if offset > max(len(messages[queue]), self._reused_offsets.get(queue, 0)):
                self.add_finding(
                    f"{group.name} committed {offset} in {queue}, which ends at {len(messages[queue])}"
                )
            for message in messages[queue][begin:offset]:
                if message.body in self.handled[group.name] or self.may_be_skipped(message):
                    continue
                if sent_back is None:
                    elsewhere = (retry_topic(group.name), dead_letter_topic(group.name), SCHEDULE_TOPIC)
                    sent_back = self.lost | {
                        message.body for topic in elsewhere for message in self.world.messages(topic)
                    }
                if message.body not in sent_back:
                    self.add_finding(
                        f"{group.name} committed {offset} in {queue}, and {message.queue_offset} is neither "
                        "handled nor sent back"
                    )

    def check_end(self) -> None:
        """Report violations that show only when the run has ended."""
        for topic, bodies in self.not_stored().items():
            self.add_finding(f"{topic} has lost {sorted(bodies)}")
        for message in self.world.messages("transacted"):
            if not self.decisions[message.body]:
                self.add_finding(f"{message.body!r} was rolled back, and is in {message.queue}")
        plain = self.world.messages("plain")
        copies: Counter[bytes] = Counter()
        for message in plain:
            # A popped message whose invisible time has expired arrives twice. A crash forgets that a message
            # was popped, so it arrives once more for each crash.
            copies[message.body] += 1 + max(1, self._crashes[message.broker_name])
        for body, count in self.acknowledged.items():
            if count > copies[body] and body not in self.lost:
                self.add_finding(f"{body!r} was acknowledged {count} times")
        for message in plain:
            _, _, pinned = message.body.partition(b"@")
            if pinned and pinned != f"{message.broker_name}:{message.queue_id}".encode():
                self.add_finding(f"{message.body!r} is in {message.queue}")
        for name, bodies in self.missing().items():
            self.add_finding(f"group {name} has not received {sorted(bodies)}")
        for finding in self.uncommitted():
            self.add_finding(finding)
        for name in CONSUMERS:
            if dead := {message.body for message in self.world.messages(dead_letter_topic(name))}:
                self.add_finding(f"group {name} has dead letters {sorted(dead)}")


class ErrorLog(logging.Handler):
    """Reports logged errors as findings, except for OnPurposeError."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.ERROR)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        """Report the record."""
        if not (record.exc_info and isinstance(record.exc_info[1], OnPurposeError)):
            self._history.add_finding(f"logged as an error: {self.format(record)}")
