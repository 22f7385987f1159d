"""The settings and the connection of a broker, its default logger, and FastStream's security classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from faststream._internal.configs import BrokerConfig
from faststream._internal.logger import DefaultLoggerStorage
from faststream._internal.logger.logging import get_broker_logger
from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext

from rocketmq_py.aio import Client, Producer
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ClosedError
from rocketmq_py.integrations.faststream.producing import RocketMQProducer
from rocketmq_py.remoting import TLS

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo

MESSAGE_ID_WIDTH: Final = 32
"""The columns of message ids in log lines."""


@dataclass(kw_only=True)
class RocketMQBrokerConfig(BrokerConfig):
    """The settings that subscribers and publishers share, and the connection once it is open."""

    _client: Client | None = None

    @property
    def client(self) -> Client:
        """The open client. Raises ClosedError before ``broker.start()``."""
        if self._client is None:
            raise ClosedError("this FastStream broker is not connected; await broker.start() first")
        return self._client

    def connect(self, client: Client, producer: Producer) -> None:
        """Use an open connection from now on."""
        self._client = client
        assert isinstance(self.producer, RocketMQProducer)
        self.producer.connect(producer, self.fd_config._serializer, self.broker_codec)

    def disconnect(self) -> None:
        """Forget the connection."""
        self._client = None
        if isinstance(self.producer, RocketMQProducer):
            self.producer.disconnect()


class LoggerStorage(DefaultLoggerStorage):
    """Makes the default logger, whose lines have the topic and the group of each message."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 4, "group": 0}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make the columns wide enough for a subscriber."""
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """Return the logger ``faststream.access.rocketmq``."""
        existing = self._get_logger_ref()
        if existing is not None:
            return existing
        columns = [f"%({name})-{width}s | " for name, width in self._widths.items() if width]
        logger = get_broker_logger(
            name="rocketmq",
            default_context={"topic": "", "group": ""},
            message_id_ln=MESSAGE_ID_WIDTH,
            fmt="".join(
                (
                    "%(asctime)s %(levelname)-8s - ",
                    *columns,
                    f"%(message_id)-{MESSAGE_ID_WIDTH}s - %(message)s",
                )
            ),
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(logger)
        return logger


def client_options(security: BaseSecurity | None) -> dict[str, Any]:
    """Return the settings of a Client for one of FastStream's security classes.

    Raises:
        SetupError: RocketMQ does not have this kind of security.
    """
    if security is None:
        return {}
    if security.ssl_context is not None:
        raise SetupError("ssl_context is not supported; pass RocketMQBroker(tls=TLS(ca_file=...)) instead")
    options: dict[str, Any] = {"tls": TLS()} if security.use_ssl else {}
    if isinstance(security, SASLPlaintext):
        return options | {"credentials": Credentials(security.username, security.password)}
    if type(security) is not BaseSecurity:
        raise SetupError(
            f"{type(security).__name__} is not supported; RocketMQ has an access key and a secret key: pass "
            "SASLPlaintext(access_key, secret_key)"
        )
    return options
