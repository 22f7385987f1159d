"""Annotations that inject FastStream's context into handlers.

::

    from rocketmq_py.integrations.faststream.annotations import RocketMQMessage

    @broker.subscriber("Orders", group="billing")
    async def bill(order: Order, message: RocketMQMessage) -> None: ...
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from faststream import Context

from rocketmq_py.integrations.faststream import broker, messages

__all__ = ["RocketMQBroker", "RocketMQMessage"]

RocketMQMessage: TypeAlias = Annotated[messages.RocketMQMessage, Context("message")]
"""The message that the handler processes."""
RocketMQBroker: TypeAlias = Annotated[broker.RocketMQBroker, Context("broker")]
"""The broker of the handler."""
