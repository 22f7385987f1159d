"""What users are told of the queues that a consumer gets, and of those that it loses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

from rocketmq_py.client.user_calls import outcome_of
from rocketmq_py.message import MessageQueue

logger: Final = logging.getLogger("rocketmq_py.consumer")


class AssignmentListener:
    """Hears which queues a consumer is assigned and which are revoked; override what is of interest.

    ::

        class Totals(AssignmentListener):
            async def on_assigned(self, queues):
                self.totals |= await load(queues)

            async def on_revoked(self, queues):
                await save({queue: self.totals.pop(queue) for queue in queues})

    Either method may be plain, and is quick then, or async, and is awaited; meanwhile the consumer changes no
    other queues. What it raises is logged, and the change goes on. A push consumer also tells of its group's
    retry topic; not of what it pops (AllocateByBroker), which belongs to nobody. Kafka:
    ``ConsumerRebalanceListener``; Java: ``MessageQueueListener``, which hears of it afterwards.
    """

    def on_assigned(self, queues: list[MessageQueue]) -> Awaitable[object] | None:
        """Make ready for queues of a topic, before the first message of them is pulled.

        They are the consumer's already: it may pause them, or seek where to begin. A cancellation means that
        the consumer closes; :meth:`on_revoked` follows.
        """

    def on_revoked(self, queues: list[MessageQueue]) -> Awaitable[object] | None:
        """Finish with queues that the consumer loses, or that it has when it closes.

        Nothing more of them is pulled or handed out; handlers that are running go on. When this returns the
        offsets are committed, and then other members may lock the queues: until then the consumer may commit
        them itself. At the end, when queues of several topics may come, this has half of the time that
        ``close_timeout`` leaves, and is cancelled then; and if it is cancelled before, as the consumer closes
        meanwhile, it is called once more with the same queues.
        """


class HasQueue(Protocol):
    """What a member has for a queue."""

    @property
    def queue(self) -> MessageQueue:
        """The queue."""


async def tell(
    listen: Callable[[list[MessageQueue]], object], group: str, parts: Collection[HasQueue]
) -> None:
    """Call a method of a listener for the queues of these, if there are any; log what it raises."""
    queues = sorted(part.queue for part in parts)
    if not queues:
        return
    try:
        await outcome_of((listen(queues),))
    except Exception:
        logger.exception("group %s: %s failed", group, getattr(listen, "__name__", "a listener"))
