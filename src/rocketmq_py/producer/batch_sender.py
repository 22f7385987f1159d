"""Sends the lists of ``Producer.send_batch`` in as few requests as possible, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_py.arguments import Duration
from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import BatchError, RocketMQError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.batch import BatchResults, EncodedBatch, split_batch
from rocketmq_py.producer.destinations import Destination, selector_of_batch
from rocketmq_py.producer.final_message import final_list
from rocketmq_py.producer.hooks import SendContext
from rocketmq_py.producer.pipeline import Pipeline
from rocketmq_py.producer.request_builder import RequestBuilder
from rocketmq_py.producer.settings import ProducerSettings


class BatchSender:
    """Sends lists of messages for a producer.

    Args:
        client: provides the ids of messages.
        config: the producer's settings.
        builder: builds the requests.
        pipeline: sends the requests.
    """

    def __init__(
        self, client: ClientCore, config: ProducerSettings, builder: RequestBuilder, pipeline: Pipeline
    ) -> None:
        self._client = client
        self._config = config
        self._builder = builder
        self._pipeline = pipeline

    async def send(
        self,
        messages: Sequence[Message],
        queue: Destination | None,
        timeout: Duration | None,
        context: SendContext | None = None,
    ) -> Sequence[SendResult]:
        """Send a list and return the result of each message; see :meth:`Producer.send_batch`."""
        batches = self._split(final_list(messages, queue))
        if queue is None:
            queue = selector_of_batch(messages)
        results: Sequence[SendResult] = ()
        for batch in batches:
            send = self._builder.build_batch(batch, queue, timeout, self._config.retries, context)
            try:
                more = BatchResults(await self._pipeline.deliver(send), batch.unique_ids)
            except RocketMQError as error:
                if not results:
                    raise
                raise BatchError(results, len(messages), error) from error
            results = [*results, *more] if results else more
            if context is not None:
                context.results = results  # a later part may fail
        return results

    def _split(self, messages: Sequence[Message]) -> list[EncodedBatch]:
        return split_batch(
            messages, max_size=self._config.max_message_size, new_unique_ids=self._client.unique_ids.take
        )
