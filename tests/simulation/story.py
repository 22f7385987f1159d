"""What happened in a simulation, and what of it must not have."""

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
MOST_FINDINGS = 10
LOCK_LIFE = 60.0
"""Seconds: two may have a queue for so long after its broker has lost its locks."""


class OnPurposeError(Exception):
    """What a handler raises now and then."""

    def __init__(self) -> None:
        super().__init__(ON_PURPOSE)


@attrs.define(eq=False)
class Story:
    """What clients have done, and what was found wrong with it.

    Attributes:
        accepted: what brokers have acknowledged, by topic.
        handled: how often each group has handled each message.
        findings: what must not have happened.
        lost: what crashes without a flush have lost.
        acknowledged: how often what was popped was acknowledged, once nothing went wrong any more.
    """

    world: World
    plan: Plan
    accepted: dict[str, set[bytes]] = attrs.field(factory=lambda: defaultdict(set))
    handled: dict[str, Counter[bytes]] = attrs.field(factory=lambda: defaultdict(Counter))
    decisions: dict[bytes, bool] = attrs.field(factory=dict)
    findings: list[str] = attrs.field(factory=list)
    lost: set[bytes] = attrs.field(factory=set)
    acknowledged: Counter[bytes] = attrs.field(factory=Counter)
    _in_order: dict[MessageQueue, int] = attrs.field(factory=dict)
    _in_hand: dict[MessageQueue, Counter[int]] = attrs.field(factory=lambda: defaultdict(Counter))
    _crashed_at: dict[str, float] = attrs.field(factory=dict)
    _crashes: Counter[str] = attrs.field(factory=Counter)
    _checked: dict[tuple[str, MessageQueue], int] = attrs.field(factory=dict)
    _again: dict[MessageQueue, int] = attrs.field(factory=dict)  # offsets before it were given twice

    def find(self, what: str) -> None:
        """Note something that must not have happened."""
        self.world.trace("FINDING", what)
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(f"after {trio.current_time():.3f} s: {what}")

    def accept(self, topic: str, bodies: Iterable[bytes]) -> None:
        """Note messages that brokers have acknowledged."""
        self.accepted[topic].update(bodies)

    @contextmanager
    def handling(self, group: Group, member: int, message: ReceivedMessage) -> Iterator[None]:
        """Note that a member handles a message; it is done with when this ends without an exception."""
        queue, offset = message.queue, message.queue_offset
        self.world.trace("begin", group.name, member, queue, offset, message.body)
        if group.name == "orderly":
            self._look_at_order(member, queue, offset)
        try:
            yield
        finally:
            self._in_hand[queue][member] -= group.name == "orderly"
        self.world.trace("done", group.name, member, queue, offset, message.body)
        self.handled[group.name][message.body] += 1
        if group.name == "orderly":
            self._in_order[queue] = max(self._in_order.get(queue, 0), offset + 1)

    def _look_at_order(self, member: int, queue: MessageQueue, offset: int) -> None:
        done, in_hand = self._in_order.get(queue, 0), self._in_hand[queue]
        if offset > done:
            self.find(f"{queue} handles offset {offset}, and {done} is not done with")
        others = [other for other, count in in_hand.items() if count and other != member]
        if others and trio.current_time() - self._crashed_at.get(queue.broker_name, -LOCK_LIFE) >= LOCK_LIFE:
            self.find(f"{queue} is handled by member {member} while member {others[0]} handles it")
        in_hand[member] += 1
        if in_hand[member] > 1:
            self.find(f"{queue} is handled twice at the same time by member {member}")

    # Crashes

    def crashed(self, broker: str) -> None:
        """Note that a broker has lost its locks."""
        self._crashed_at[broker] = trio.current_time()
        self._crashes[broker] += 1

    @contextmanager
    def losing(self, broker: str) -> Iterator[None]:
        """Count what a broker loses inside this: that is not held against anybody.

        Nor is it that groups pass over what gets the offsets of what was lost: they had been there before.
        """
        before = self._stored(broker)
        yield
        after = self._stored(broker)
        for message in before.keys() - after.keys():
            body, queue = before[message]
            self.lost.add(body)
            self._again[queue] = max(self._again.get(queue, 0), message[2] + 1)
            self._in_order[queue] = max(self._in_order.get(queue, 0), message[2] + 1)
        for place in [place for place in self._checked if place[1].broker_name == broker]:
            del self._checked[place]

    def _stored(self, broker: str) -> dict[tuple[str, int, int], tuple[bytes, MessageQueue]]:
        return {
            (message.topic, message.queue_id, message.queue_offset): (message.body, message.queue)
            for topic in self.world.topics()
            for message in self.world.messages(topic)
            if message.broker_name == broker
        }

    def may_be_passed_over(self, message: ReceivedMessage) -> bool:
        """Tell whether a message has an offset that another one had before a crash."""
        return message.queue_offset < self._again.get(message.queue, 0)

    def is_said_twice(self, queue: MessageQueue) -> bool:
        """Tell whether offsets of a queue were given twice."""
        return queue in self._again

    # Looking

    def missing(self) -> Mapping[str, set[bytes]]:
        """Return what was acknowledged and each group has not handled."""
        missing = {}
        for group in self.plan.groups:
            bodies = self.accepted[group.topic] - self.handled[group.name].keys() - self.lost
            if bodies and self._again:
                # What was sent back may have got such an offset in the retry topic as well.
                bodies -= {
                    message.body
                    for topic in (group.topic, retry_topic(group.name))
                    for message in self.world.messages(topic)
                    if self.may_be_passed_over(message)
                }
            if bodies:
                missing[group.name] = bodies
        return missing

    def unstored(self) -> Mapping[str, set[bytes]]:
        """Return what was acknowledged and is not there (yet: it may be that its transaction is open)."""
        unstored = {
            topic: bodies - {message.body for message in self.world.messages(topic)} - self.lost
            for topic, bodies in self.accepted.items()
        }
        return {topic: bodies for topic, bodies in unstored.items() if bodies}

    def behind(self) -> list[str]:
        """Return what groups have not committed of what they have handled."""
        found: list[str] = []
        if not self.plan.keeps_commits:
            return found
        for group in self.plan.groups:
            if group.pulls:
                offsets = self.world.offsets(group.name)
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
        """Find offsets that were committed past what was handled, or given back."""
        for group in self.plan.groups:
            if group.pulls:
                self._check_offsets_of(group)

    def _check_offsets_of(self, group: Group) -> None:
        offsets = self.world.offsets(group.name)
        messages: dict[MessageQueue, list[ReceivedMessage]] = defaultdict(list)
        given_back: set[bytes] | None = None
        for queue, offset in offsets.items():
            begin = self._checked.get((group.name, queue), 0)
            if queue.topic != group.topic or offset <= begin:
                continue
            self._checked[group.name, queue] = offset
            if not messages:
                for message in self.world.messages(group.topic):
                    messages[message.queue].append(message)
            if offset > max(len(messages[queue]), self._again.get(queue, 0)):
                self.find(f"{group.name} committed {offset} in {queue}, which ends at {len(messages[queue])}")
            for message in messages[queue][begin:offset]:
                if message.body in self.handled[group.name] or self.may_be_passed_over(message):
                    continue
                if given_back is None:
                    elsewhere = (retry_topic(group.name), dead_letter_topic(group.name), SCHEDULE_TOPIC)
                    given_back = self.lost | {
                        message.body for topic in elsewhere for message in self.world.messages(topic)
                    }
                if message.body not in given_back:
                    self.find(
                        f"{group.name} committed {offset} in {queue}, and {message.queue_offset} is neither "
                        "handled nor given back"
                    )

    def check_end(self) -> None:
        """Find what is wrong when all is over."""
        for topic, bodies in self.unstored().items():
            self.find(f"{topic} has lost {sorted(bodies)}")
        for message in self.world.messages("transacted"):
            if not self.decisions[message.body]:
                self.find(f"{message.body!r} was rolled back, and is in {message.queue}")
        plain = self.world.messages("plain")
        copies: Counter[bytes] = Counter()
        for message in plain:
            # What was popped before, and whose time was over, comes twice; what was popped before each of
            # several crashes, which have forgotten that, once for each of them.
            copies[message.body] += 1 + max(1, self._crashes[message.broker_name])
        for body, count in self.acknowledged.items():
            if count > copies[body] and body not in self.lost:
                self.find(f"{body!r} was acknowledged {count} times")
        for message in plain:
            _, _, pinned = message.body.partition(b"@")
            if pinned and pinned != f"{message.broker_name}:{message.queue_id}".encode():
                self.find(f"{message.body!r} is in {message.queue}")
        for name, bodies in self.missing().items():
            self.find(f"group {name} has not got {sorted(bodies)}")
        for what in self.behind():
            self.find(what)
        for name in CONSUMERS:
            if dead := {message.body for message in self.world.messages(dead_letter_topic(name))}:
                self.find(f"group {name} has given up {sorted(dead)}")


class ErrorLog(logging.Handler):
    """Notes what is logged as an error, but for failures of handlers that are on purpose."""

    def __init__(self, story: Story) -> None:
        super().__init__(logging.ERROR)
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        if not (record.exc_info and isinstance(record.exc_info[1], OnPurposeError)):
            self._story.find(f"logged as an error: {self.format(record)}")
