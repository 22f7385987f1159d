"""An embedded name server and broker, for tests, demos and development: no Java, no disk, no waiting."""

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.embedded import EmbeddedBroker

__all__ = ["BrokerConfig", "EmbeddedBroker"]
