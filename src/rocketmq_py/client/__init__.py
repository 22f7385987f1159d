"""What all producers and consumers of one client share: name servers, routes, heartbeats, connections."""

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, ClientOptions
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.routes import Route, Routes

__all__ = ["BrokerCalls", "Client", "ClientConfig", "ClientOptions", "Lifespan", "Route", "Routes"]
