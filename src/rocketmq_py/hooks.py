"""Hooks: base classes of code that runs around sends, handler calls and requests, and their arguments.

``add_hook`` of a producer or consumer adds a ProducerHook or ConsumerHook. ``add_rpc_hook`` adds an RpcHook.
"""

from rocketmq_py.consumer.group.hooks import ConsumeContext, ConsumeOperation, ConsumerHook
from rocketmq_py.producer.hooks import EndTransactionContext, ProducerHook, SendContext, SendMode
from rocketmq_py.protocol.trace import ConsumeReturnType
from rocketmq_py.remoting import RpcContext, RpcHook

__all__ = [
    "ConsumeContext",
    "ConsumeOperation",
    "ConsumeReturnType",
    "ConsumerHook",
    "EndTransactionContext",
    "ProducerHook",
    "RpcContext",
    "RpcHook",
    "SendContext",
    "SendMode",
]
