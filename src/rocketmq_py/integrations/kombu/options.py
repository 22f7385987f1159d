"""The settings of a connection: its URL, ``ssl`` and ``transport_options``."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

import attrs
from kombu import Connection

from rocketmq_py.arguments import flag, not_negative, positive, seconds
from rocketmq_py.client.settings import ClientOptions
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.remoting.tls import TLS

DEFAULT_PORT: Final = 9876
MAX_NAME_LENGTH: Final = 90
"""A queue or exchange with a longer name has its name cut, so that prefixes and namespaces fit."""
_LOWERED_INSTANCE: Final = re.compile(r"(^|,)mq_inst_\w+_\w+\.", re.ASCII)
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9_-]")


def _prefix(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or _NOT_IN_TOPICS.search(value):
        raise ConfigurationError(
            f"transport_options: {attribute.name} is {value!r}; letters, digits, '-' and '_' are allowed"
        )


def _client_options(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"transport_options: {attribute.name} must be a dict, not {type(value).__name__}"
        )


@attrs.frozen(kw_only=True)
class TransportOptions:
    """``transport_options`` of a kombu connection. Celery: ``broker_transport_options``.

    Args:
        visibility_timeout: seconds until a message that is neither acknowledged nor rejected is delivered
            again, to any worker.
        topic_prefix: precedes the name of every topic.
        group_prefix: precedes the topic in the name of its consumer group.
        create_topics: whether missing topics and groups are created. If False, create them yourself.
        queues_per_topic: message queues on each broker of a topic that is created.
        wait_time_seconds: how long a broker holds a request for messages while there are none (long
            polling). Closing a connection takes up to this time. Only brokers 5.x.
        polling_interval: seconds between two rounds of requests while several consumed queues are empty.
        max_delay: the longest delay, in seconds, of one message for brokers 5.x. It must not exceed their
            timerMaxDelaySec, three days by default. A task with a later ETA is delayed several times.
        start_deliver_time: send the ETA of a task also as ``__STARTDELIVERTIME``, by which some managed
            services deliver. None: if the URL is of such a service.
        max_reconsume_times: deliveries after the first one. A message that is not acknowledged then goes to
            the dead-letter topic of the group.
        connection_loss_timeout: seconds that brokers may be unreachable before the connection counts as
            lost, which makes Celery open another one. This is noticed when a connection breaks, or when a
            request has waited for the client's ``request_timeout`` (3 s).
        client_options: further settings of a Client, such as ``{"request_timeout": 5.0}``.

    Raises:
        ConfigurationError: a value is not allowed.
    """

    visibility_timeout: float = attrs.field(default=1800.0, converter=seconds, validator=positive)
    topic_prefix: str = attrs.field(default="", validator=_prefix)
    group_prefix: str = attrs.field(default="kombu-", validator=_prefix)
    create_topics: bool = attrs.field(default=True, validator=flag)
    queues_per_topic: int = attrs.field(default=8, validator=positive)
    wait_time_seconds: float = attrs.field(default=1.0, converter=seconds, validator=positive)
    polling_interval: float = attrs.field(default=0.2, converter=seconds, validator=positive)
    max_delay: float = attrs.field(default=2 * 86_400.0, converter=seconds, validator=positive)
    start_deliver_time: bool | None = attrs.field(default=None, validator=attrs.validators.optional(flag))
    max_reconsume_times: int = attrs.field(default=16, validator=not_negative)
    connection_loss_timeout: float = attrs.field(default=10.0, converter=seconds, validator=not_negative)
    client_options: Mapping[str, Any] = attrs.field(factory=dict, validator=_client_options)

    @classmethod
    def of(cls, transport_options: Mapping[str, Any]) -> TransportOptions:
        """Return the options in a connection's ``transport_options``, which also has kombu's own."""
        names = {field.name for field in attrs.fields(cls)}
        return cls(**{name: value for name, value in transport_options.items() if name in names})

    def topic_of_queue(self, queue: str) -> str:
        """Return the topic of a kombu queue."""
        return check_topic(self.topic_prefix + _plain(queue), f"the topic of queue {queue!r}")

    def topic_of_exchange(self, exchange: str) -> str:
        """Return the topic of an exchange, for messages that every listener receives."""
        name = _plain(exchange) if exchange else "default"
        return check_topic(f"{self.topic_prefix}kombu-exchange-{name}", f"the topic of exchange {exchange!r}")

    def group_of_queue(self, queue: str) -> str:
        """Return the consumer group of a kombu queue."""
        return check_group(self.group_prefix + self.topic_of_queue(queue), f"the group of queue {queue!r}")


def _plain(name: str) -> str:
    """Return a name for use in topics: it is unchanged, or has a digest so that no two names collide."""
    plain = _NOT_IN_TOPICS.sub("-", name)
    if plain == name and len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: MAX_NAME_LENGTH - len(digest) - 1]}-{digest}"


def address_of(connection: Connection) -> str | None:
    """Return the name servers in a connection's URL. None for a URL without a host: see ``Client``.

    ``rocketmq://a,b:9876`` names two name servers of one cluster. Clusters to fail over to are separate URLs.
    ``rocketmq://key:secret@http://host:8080`` has the endpoint of a console, whose scheme has no effect.
    """
    if not connection.hostname:
        return None
    if _has_endpoint(connection):
        endpoint, _ = _endpoint_and_namespace(connection)
        hosts = endpoint.split(",")
        return ";".join(host if ":" in host else f"{host}:{DEFAULT_PORT}" for host in hosts)
    port = connection.port or DEFAULT_PORT
    hosts = connection.hostname.split(",")
    return ";".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)


def _has_endpoint(connection: Connection) -> bool:
    """Return whether the URL has another one in it. Its scheme is then kombu's host, the rest the path."""
    return connection.hostname in ("http", "https") and (connection.virtual_host or "").startswith("/")


def _endpoint_and_namespace(connection: Connection) -> tuple[str, str]:
    """Return the endpoint in a URL, with its capitals, which kombu keeps in paths, and the path behind it."""
    endpoint, _, namespace = connection.virtual_host.strip("/").partition("/")
    return endpoint, namespace


def client_options_of(connection: Connection, options: TransportOptions) -> ClientOptions:
    """Return the options of the client: user and password of the URL, its path as namespace, and ``ssl``.

    Raises:
        ConfigurationError: there is a user without a password, ``ssl`` is neither a bool nor a dict, or the
            host contains a namespace.
    """
    found: ClientOptions = {}
    if connection.userid or connection.password:
        if not (connection.userid and connection.password):
            raise ConfigurationError(
                "the broker URL needs both keys or none: rocketmq://ACCESS_KEY:SECRET_KEY@host:9876"
            )
        found["credentials"] = Credentials(connection.userid, connection.password)
    namespace = (connection.virtual_host or "").strip("/")
    if _has_endpoint(connection):
        _, namespace = _endpoint_and_namespace(connection)
    if namespace:
        found["namespace"] = namespace
    if (tls := _tls_of(connection.ssl)) is not None:
        found["tls"] = tls
    if connection.connect_timeout:
        found["connect_timeout"] = float(connection.connect_timeout)
    found.update(options.client_options)  # type: ignore[typeddict-item]  # Client checks names and values
    if "namespace" not in found and _LOWERED_INSTANCE.search(connection.hostname or ""):
        raise ConfigurationError(
            "kombu has changed the host of the broker URL to lower case, and the namespace in it; "
            "give the endpoint with its scheme: rocketmq://KEY:SECRET@http://MQ_INST_...:8080, or the "
            "namespace as path: rocketmq://KEY:SECRET@host:8080/MQ_INST_..."
        )
    return found


def _tls_of(settings: object) -> TLS | None:
    """Return the TLS settings for kombu's ``ssl``, a dict of :func:`ssl.wrap_socket`'s old arguments."""
    if not settings:
        return None
    if settings is True:
        return TLS()
    if not isinstance(settings, Mapping):
        raise ConfigurationError(f"ssl must be True or a dict, not {type(settings).__name__}")
    known = {"ca_certs", "certfile", "keyfile", "cert_reqs", "server_hostname"}
    if unknown := sorted(set(settings) - known):
        raise ConfigurationError(f"ssl has no {', '.join(unknown)}; it may have {', '.join(sorted(known))}")
    return TLS(
        ca_file=settings.get("ca_certs"),
        certificate_file=settings.get("certfile"),
        key_file=settings.get("keyfile"),
        server_name=settings.get("server_hostname"),
        verify=settings.get("cert_reqs", ssl.CERT_REQUIRED) != ssl.CERT_NONE,
    )
