"""A ``logging.Handler`` that sends log records to a topic, and never blocks the program that logs.

::

    handler = RocketMQHandler("AppLogs", "127.0.0.1:9876")
    logging.getLogger().addHandler(handler)

:class:`RocketMQHandler` formats a record in the thread that logs, and queues it. The ``Shipper`` sends the
queued records in a thread of its own.
"""

from rocketmq_py.integrations.log_handler.handler import JsonFormatter, RocketMQHandler

__all__ = ["JsonFormatter", "RocketMQHandler"]
