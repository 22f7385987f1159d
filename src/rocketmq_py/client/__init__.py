"""The client, which producers and consumers share: name servers, routes, heartbeats, connections.

Begin with ``client``: a Client owns the other parts. ``name_servers`` and ``discovery`` find the name
servers, ``routes`` keeps the routes of topics up to date, ``heartbeats`` announces the groups to brokers,
``broker_calls`` has the requests to brokers. ``health`` has the values for readiness probes. ``lifespan`` is
the base class of everything that is opened with ``async with``.
"""

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, ClientOptions
from rocketmq_py.client.health import ClientHealth, ServerHealth
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.routes import Route, Routes

__all__ = [
    "BrokerCalls",
    "Client",
    "ClientConfig",
    "ClientHealth",
    "ClientOptions",
    "Lifespan",
    "Route",
    "Routes",
    "ServerHealth",
]
