"""The consumer of lite topics that calls a handler."""

from __future__ import annotations

from typing import Unpack

from rocketmq_py.client.client import Client
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer.group.membership import LEAVE_SECONDS
from rocketmq_py.consumer.lite.base import BaseLiteTopicConsumer
from rocketmq_py.consumer.lite.session import LiteSession
from rocketmq_py.consumer.lite.settings import LiteTopicPushConsumerOptions, LiteTopicPushConsumerSettings
from rocketmq_py.consumer.push.base_push_consumer import BasePushConsumer
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.shown_settings import takes_settings


@takes_settings(LiteTopicPushConsumerSettings, ClientSettings)
class LiteTopicPushConsumer(BasePushConsumer[LiteSession], BaseLiteTopicConsumer):
    """Calls a handler with the messages of lite topics. Java: ``LitePushConsumer`` of the gRPC client.

    ::

        async with LiteTopicPushConsumer("127.0.0.1:9876", group="agents", parent="Sessions") as consumer:
            await consumer.subscribe_lite("session-42")
            await consumer.run(handle)  # async def handle(message); raise = handle again

    The messages of each lite topic are handled one after the other, those of different lite topics at once.
    Each message is delivered to one member of the group that subscribes to its lite topic, at least once. A
    failed message is handled again in place. Requires brokers from 5.5.0 on, with ``enableLmq`` and
    ``enableMultiDispatch``.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share, which may have one consumer of lite topics.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        parent: the parent topic, of type LITE. Java: ``bindTopic``.
        **options: the settings of a LiteTopicPushConsumer, and those of a Client unless one is shared.

    Entering raises:
        ConfigurationError: the shared client has another consumer of lite topics.

    Raises:
        ConfigurationError: an option is unknown, given twice, or out of range, or ``group`` is missing.
    """

    _settings: LiteTopicPushConsumerSettings

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        parent: str,
        **options: Unpack[LiteTopicPushConsumerOptions],
    ) -> None:
        super().__init__(
            LiteTopicPushConsumerSettings, client, group=group, options={**options, "parent": parent}
        )
        self._close_timeout: float = self._settings.close_timeout + LEAVE_SECONDS  # of closing as a whole

    @property
    def settings(self) -> LiteTopicPushConsumerSettings:
        """The settings."""
        return self._settings

    async def run(self, handle: Handler) -> None:
        """Join the group and call ``handle`` with its messages, until :meth:`stop` or until cancelled.

        Up to ``concurrency`` calls run at the same time, for different lite topics. Failures of brokers and
        name servers are logged and retried.

        Args:
            handle: called with a ReceivedMessage, or with a list of messages of one lite topic if
                ``batch_size`` is set. If its parameter is annotated with another type, it is called with the
                decoded body, or a list of bodies, as by PushConsumer. The reason why a body cannot be decoded
                is in the log only. An async function runs as a task, any other callable in a worker
                thread. Returning None acknowledges the messages. Raising an Exception is logged, and the
                messages are handled again after ``suspend_current_queue``. After ``max_reconsume_times``
                failures they become dead letters. Returning ``Suspend(seconds)`` has the broker redeliver all
                messages of the lite topic that are not acknowledged, after that time and to any member. It
                does not count as a failure. Any other result does. Any other exception (SystemExit,
                KeyboardInterrupt) ends the run, and the messages are redelivered.

        Raises:
            ClosedError: the consumer is not open.
            ConfigurationError: ``handle`` has the wrong parameters; the consumer is running already; another
                consumer of this client is in the group.

        When cancelled, running handlers are cancelled, or abandoned if they run in threads, and their
        messages are redelivered. A warning names each of them. Acknowledgements are sent and the group is
        left before this returns, which takes at most 3 seconds. The consumer may be run again afterwards.
        """
        self._check_open()
        self._check_not_running()
        handle = prepare_handler(handle, self._settings)
        await self._run_session(
            lambda: LiteSession(
                self._client, self._settings, self._membership, self._requests, self._subscriber,
                self._parent_subscription, handle, hooks=self._hooks, counters=self._counters,
            )
        )  # fmt: skip

    def _reasons_not_to_consume(self) -> list[str]:
        return self._reasons_not_running()
