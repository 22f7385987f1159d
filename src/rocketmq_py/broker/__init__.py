"""An embedded name server and broker in memory, for tests, demos and development.

``EmbeddedBroker`` runs a ``NameServer`` and a ``Broker`` on real sockets. The ``Broker`` has a ``Dispatcher``
that passes each request to its processor, such as ``SendProcessor`` and ``PullProcessor``. The processors
share one ``BrokerState``: the topics, groups, offsets and the ``MessageStore``. Start reading in ``broker``,
and continue with the processor of a request: modules are named after the requests that they answer
(``pull_requests``).
"""

from rocketmq_py.broker.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
