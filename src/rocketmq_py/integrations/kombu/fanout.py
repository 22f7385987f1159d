"""Messages of an exchange for a queue that only its process reads: every process receives each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from rocketmq_py.errors import ClosedError, RocketMQError
from rocketmq_py.integrations.kombu.cluster import ROUTING_KEY, Cluster
from rocketmq_py.integrations.kombu.deliveries import read_payload
from rocketmq_py.library_logger import LibraryLogger

logger: Final = LibraryLogger("rocketmq_py.integrations.kombu")


class ExchangeListener:
    """Reads the topic of an exchange from the moment on in which it is made.

    No consumer group is joined, so nothing is acknowledged, and nothing is left on the brokers afterwards.
    Until :meth:`start`, messages wait in a bounded buffer or on the broker.

    Args:
        cluster: where the exchange is.
        exchange: the exchange.
        wants: whether the queue is bound with a routing key.
        deliver: is called with each wanted message. It may block.
        fail: is called with the error that ends the reading.
    """

    def __init__(
        self,
        cluster: Cluster,
        exchange: str,
        *,
        wants: Callable[[str], bool],
        deliver: Callable[[dict[str, Any]], None],
        fail: Callable[[RocketMQError], None],
    ) -> None:
        self._stream = cluster.listen(exchange)
        self._exchange = exchange
        self._wants = wants
        self._deliver = deliver
        self._fail = fail
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Deliver messages from now on, in a thread of its own. Repeatable."""
        if self._thread is None:
            name = f"rocketmq-py exchange {self._exchange}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop reading. The thread ends by itself."""
        self._stream.close()

    def _run(self) -> None:
        try:
            for message in self._stream:
                if not self._wants(message.properties.get(ROUTING_KEY, "")):
                    continue
                try:
                    payload = read_payload(message)
                except ValueError:
                    logger.warning(
                        "message %s of topic=%s was not sent by kombu and is skipped",
                        message.message_id, message.topic,
                    )  # fmt: skip
                else:
                    self._deliver(payload)
        except ClosedError:
            pass
        except RocketMQError as error:
            self._fail(error)
