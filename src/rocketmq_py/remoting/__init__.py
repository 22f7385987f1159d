"""Connections that carry many requests at once, over trio.

One :class:`Connection` to an address, used from both sides of the wire; :class:`ConnectionPool` dials
and keeps those of a client; :func:`serve` accepts those of a server.
"""

from rocketmq_py.remoting.connection import Connection, Handler, SendHandler
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import Answer
from rocketmq_py.remoting.pool import ConnectionPool
from rocketmq_py.remoting.rpc_hooks import RpcContext, RpcHook, RpcHooks
from rocketmq_py.remoting.server import serve
from rocketmq_py.remoting.tls import TLS

__all__ = [
    "TLS",
    "Answer",
    "Connection",
    "ConnectionPool",
    "Deadlines",
    "Handler",
    "RpcContext",
    "RpcHook",
    "RpcHooks",
    "SendHandler",
    "serve",
]
