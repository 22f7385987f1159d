"""Health: the values that ``health()`` of clients, producers and consumers returns."""

from rocketmq_py.client import ClientHealth, ServerHealth
from rocketmq_py.consumer.group.health import ConsumerHealth
from rocketmq_py.producer.latency_faults import BrokerHealth
from rocketmq_py.producer.statistics import ProducerHealth

__all__ = ["BrokerHealth", "ClientHealth", "ConsumerHealth", "ProducerHealth", "ServerHealth"]
