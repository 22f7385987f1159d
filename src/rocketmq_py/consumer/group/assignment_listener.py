"""Listeners for the queues that a consumer is assigned and loses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from rocketmq_py.client.user_functions import call_user_function, users_traceback
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.remoting.nurseries import is_failure

logger: Final = LibraryLogger("rocketmq_py.consumer")


class AssignmentListener:
    """Called when queues are assigned to a consumer or revoked from it. Override the methods that you need.

    ::

        class Totals(AssignmentListener):
            async def on_assigned(self, queues):
                self.totals |= await load(queues)

            async def on_revoked(self, queues):
                await save({queue: self.totals.pop(queue) for queue in queues})

    Methods are async, or plain, which run in a worker thread and may block. The consumer changes no other
    queues until the method has ended. Exceptions are logged, and the change goes on. A push consumer also
    calls its listener for the group's retry topic. It does not for queues that it pops (AllocateByBroker),
    which are shared by all members. Kafka: ``ConsumerRebalanceListener``. Java: ``MessageQueueListener``,
    which is called after the change.
    """

    def on_assigned(self, queues: list[MessageQueue]) -> Awaitable[object] | None:
        """Prepare for newly assigned queues of a topic, before their first message is pulled.

        The queues already belong to the consumer, which may pause or seek them. A cancellation means that the
        consumer is closing. :meth:`on_revoked` is called afterwards. A thread cannot be cancelled, and is
        not waited for.
        """

    def on_revoked(self, queues: list[MessageQueue]) -> Awaitable[object] | None:
        """Finish with queues that are revoked, or that the consumer has when it closes.

        No more messages of the queues are pulled or delivered, but handlers may still be running. The offsets
        are committed when this method has returned, and only then can other members lock the queues. The
        consumer may commit offsets itself until then.

        When the consumer closes, the queues may be of several topics. The method is then cancelled after half
        of the rest of ``close_timeout``. If the consumer closes during a call, that call is cancelled and the
        method is called once more with the same queues.
        """


async def notify_listener(
    listen: Callable[[list[MessageQueue]], object], group: str, queues: Iterable[MessageQueue]
) -> None:
    """Call a method of a listener with the queues, unless there are none. Log its failures."""
    queues = sorted(queues)
    if not queues:
        return
    try:
        await call_user_function(listen, queues, abandon_on_cancel=True)
    except BaseException as error:
        if not is_failure(error):
            raise
        method = getattr(listen, "__name__", "unknown")
        logger.error(
            "assignment listener failed: group=%s method=%s", group, method, exc_info=users_traceback(error)
        )
