"""AsyncAPI documents with the bindings of RocketMQ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from faststream.specification import AsyncAPI, Specification
from faststream.specification.asyncapi.utils import clear_key
from faststream.specification.asyncapi.v2_6_0.schema.bindings import ChannelBinding as ChannelBinding26
from faststream.specification.asyncapi.v3_0_0.schema.bindings import ChannelBinding

from rocketmq_py.integrations.faststream.publisher import RocketMQPublisherSpecification
from rocketmq_py.integrations.faststream.subscriber import RocketMQSubscriberSpecification

BINDING: Final = "x-rocketmq"
"""The key of the bindings. AsyncAPI has no name for RocketMQ, and allows extensions that begin with x-."""


class RocketMQAsyncAPI(AsyncAPI):
    """FastStream's AsyncAPI, with bindings of RocketMQ for the channels of RocketMQ brokers.

    ::

        app = FastStream(broker, specification=RocketMQAsyncAPI(title="Shop"))

    The binding ``x-rocketmq`` of a channel has the topic, the group, the tags or the SQL filter, and whether
    the subscriber is ``orderly``, ``broadcasting`` or takes batches. FastStream's own AsyncAPI documents the
    same channels without bindings, because its bindings are a fixed list.

    Arguments are those of FastStream's AsyncAPI.
    """

    def to_specification(self) -> Specification:
        """Return the document."""
        document: Any = super().to_specification()
        kind = ChannelBinding26 if document.asyncapi.startswith("2.") else ChannelBinding
        for key, binding in self._bindings():
            channel = document.channels.get(clear_key(key))
            if channel is not None:
                channel.bindings = kind.model_validate({BINDING: binding})
        return document  # type: ignore[no-any-return]

    def _bindings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the key and the binding of each channel of a RocketMQ broker."""
        for broker in self.brokers:
            for subscriber in broker.subscribers:
                if isinstance(subscriber.specification, RocketMQSubscriberSpecification):
                    yield from subscriber.specification.bindings.items()
            for publisher in broker.publishers:
                if isinstance(publisher.specification, RocketMQPublisherSpecification):
                    yield publisher.specification.name, publisher.specification.binding
