"""What all producers and consumers of one client share: name servers, routes, heartbeats, connections."""

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.config import ClientConfig, ClientOptions
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.routes import Route, Routes

__all__ = ["BrokerCalls", "ClientConfig", "ClientInstance", "ClientOptions", "Lifespan", "Route", "Routes"]
