"""The client, which producers and consumers share: name servers, routes, heartbeats, connections.

Begin with ``core``, which owns the other parts. ``client`` has the public Client with such a core, and the
base class of producers and consumers, which share one. ``name_servers`` and ``discovery`` find the name
servers, ``routes`` keeps the routes of topics up to date, ``heartbeats`` announces the groups to brokers,
``broker_calls`` has the requests to brokers. ``health`` has the values for readiness probes. ``lifespan`` is
the base class of everything that is opened with ``async with``.
"""

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.client import Client, core_of
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.health import ClientHealth, ServerHealth
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.routes import Route, Routes
from rocketmq_py.client.settings import ClientOptions

__all__ = [
    "BrokerCalls",
    "Client",
    "ClientCore",
    "ClientHealth",
    "ClientOptions",
    "Lifespan",
    "Route",
    "Routes",
    "ServerHealth",
    "core_of",
]
