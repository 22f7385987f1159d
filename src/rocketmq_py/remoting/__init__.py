"""Connections that carry many requests at once, over trio.

A :class:`Connection` multiplexes the requests of a client or of a server. :class:`ConnectionPool` opens the
connections of a client (``ClientConnection``), and :func:`serve` accepts those of a server. Start reading
in ``connection``.
"""

from rocketmq_py.remoting.connection import Connection, Handler
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import Answer
from rocketmq_py.remoting.pool import ConnectionPool
from rocketmq_py.remoting.rpc_hooks import RpcContext, RpcHook, RpcHooks
from rocketmq_py.remoting.server import serve
from rocketmq_py.remoting.socks_proxy import SocksProxy
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
    "SocksProxy",
    "serve",
]
