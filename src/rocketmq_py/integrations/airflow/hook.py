"""The hook: clients and producers for a connection of Airflow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

from rocketmq_py.address import split_endpoints, without_scheme
from rocketmq_py.blocking import Client
from rocketmq_py.client.discovery import is_url
from rocketmq_py.client.settings import ClientOptions
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.remoting import TLS

try:
    from airflow.sdk import BaseHook
except ImportError:
    raise ConfigurationError(
        "the Airflow provider needs Airflow 3.1 or newer: install rocketmq-py[airflow]"
    ) from None

__all__ = ["RocketMQHook"]

DEFAULT_PORT = 9876
START_DELIVER_TIME = "start_deliver_time"
_INSTANCE_IN_LOWER_CASE = re.compile(r"(https?://)?mq_inst_\w+_\w+\.", re.ASCII)


class RocketMQHook(BaseHook):  # type: ignore[misc]  # Airflow is in an environment of its own
    """Opens clients for a connection of the type ``rocketmq``.

    The connection's host is a name server, or several as ``host:port;host:port``. Its login and password are
    the access key and the secret key. Its extra has ``namespace``, ``security_token``, ``tls`` and
    ``ca_file``, and may have further settings of a Client, such as ``request_timeout``. With
    ``start_deliver_time``, ``send`` sends delivery times also as ``__STARTDELIVERTIME``, by which some
    managed services deliver.

    Args:
        rocketmq_conn_id: the id of the connection.
    """

    conn_name_attr = "rocketmq_conn_id"
    default_conn_name = "rocketmq_default"
    conn_type = "rocketmq"
    hook_name = "Apache RocketMQ"

    def __init__(self, rocketmq_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.rocketmq_conn_id = rocketmq_conn_id

    def get_conn(self) -> Client:
        """Return a ``rocketmq_py.blocking.Client``. Use it in a ``with`` block.

        Raises ConfigurationError if the connection has an invalid value or an unknown field.
        """
        address, options = client_arguments(self.get_connection(self.rocketmq_conn_id))
        return Client(address, **options)

    def send(self, messages: Iterable[Message], *, group: str = "airflow") -> list[SendResult]:
        """Send messages, and return their results. The messages before one that failed are stored.

        Args:
            messages: the messages.
            group: the producer group.

        Raises the errors of ``rocketmq_py.blocking.Producer.send``.
        """
        start_time = _flag(self.get_connection(self.rocketmq_conn_id).extra_dejson.get(START_DELIVER_TIME))
        with (
            self.get_conn() as client,
            client.producer(group, start_deliver_time=start_time) as producer,
        ):
            return [producer.send(message) for message in messages]

    def test_connection(self) -> tuple[bool, str]:
        """Ask the name servers for their brokers. Return whether they answered, and a text."""
        try:
            with self.get_conn() as client, client.admin() as admin:
                brokers = admin.brokers.list()
        except RocketMQError as error:
            return False, str(error)
        return True, f"{len(brokers)} brokers answered"


def _flag(value: Any) -> Any:
    """Return a flag of a connection's extra. In the URI of a connection it is a text."""
    flags = {"true": True, "false": False, "": None}
    return flags.get(value.lower(), value) if isinstance(value, str) else value


def _check_instance(host: str) -> None:
    """Raise ConfigurationError for a host whose namespace has lost its capitals."""
    if any(_INSTANCE_IN_LOWER_CASE.match(one) for one in split_endpoints(host)):
        raise ConfigurationError(
            f"the host {host} is in lower case, so its namespace MQ_INST_… is not known: Airflow changes the "
            "host in the URI of a connection. Quote the endpoint with its scheme "
            "(rocketmq://KEY:SECRET@http%3A%2F%2FMQ_INST_….aliyuncs.com:8080), write the connection as JSON, "
            "or set namespace in its extra"
        )


def client_arguments(connection: Any) -> tuple[str, ClientOptions]:
    """Return the address and the options of a client for a connection. Raises ConfigurationError."""
    extra: dict[str, Any] = dict(connection.extra_dejson)
    extra.pop(START_DELIVER_TIME, None)  # of producers
    token, ca_file, tls = (extra.pop(name, None) for name in ("security_token", "ca_file", "tls"))
    given = {name: value for name, value in extra.items() if value not in (None, "")}
    options = cast(ClientOptions, given)  # Client checks it
    if connection.login:
        options["credentials"] = Credentials(connection.login, connection.password or "", token or None)
    if _flag(tls) or ca_file:
        options["tls"] = TLS(ca_file=ca_file or None)
    host = connection.host or "127.0.0.1"
    if "namespace" not in extra:
        _check_instance(host)
    if is_url(host):
        return host, options
    if ";" not in host and connection.port:
        host = f"{host.strip().rstrip('/')}:{connection.port}"
    servers = [
        one if ":" in without_scheme(one) else f"{one.rstrip('/')}:{DEFAULT_PORT}"
        for one in split_endpoints(host)
    ]
    return ";".join(servers), options
