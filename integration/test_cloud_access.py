"""TLS, access control and types of messages together, as on services of 5.x."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
import trio

from integration.access import ADMIN, SETTINGS_OF_5, SETTINGS_OF_PROXIES
from integration.certificates import make_certificates
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import SETTINGS, start_own_cluster
from integration.clusters.proxy import Proxy
from integration.java.peer import QUICK, client_for, run_java_async
from integration.peers import PeerError
from rocketmq_py import TLS, Client, Credentials, Message, ReceivedMessage, TransactionState
from rocketmq_py.admin import MessageType
from rocketmq_py.errors import AccessDeniedError, MessageRefusedError, NameServerError

PATIENCE = 60
VERSION = "5.5.0"
TYPES = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)


@attrs.frozen
class Service:
    """Brokers with TLS and access control, and a proxy that compares types, too.

    Attributes:
        cluster: the brokers.
        proxy: the proxy.
        tls: the settings of clients of the brokers.
        proxy_tls: the settings of clients of the proxy, which asks them for no certificate.
    """

    cluster: Cluster
    proxy: Proxy
    tls: TLS
    proxy_tls: TLS


@pytest.fixture(scope="module", params=[VERSION])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("certificates")
    certificates = make_certificates(folder)
    for name in ("server.pem", "server.key"):
        (folder / name).write_text(certificates.files[f"conf/{name}"])
    files_of_tls = {"tlsCertPath": str(folder / "server.pem"), "tlsKeyPath": str(folder / "server.key")}
    with (
        start_own_cluster(
            request.param,
            settings={**SETTINGS, **SETTINGS_OF_5},
            files=certificates.files,
            jvm=certificates.jvm,
        ) as cluster,
        Proxy(
            cluster,
            {
                **SETTINGS_OF_PROXIES,
                **files_of_tls,
                "tlsTestModeEnable": False,
                "enableTopicMessageTypeCheck": True,
            },
        ) as proxy,
    ):
        ca_file = certificates.ca_file
        own = TLS(ca_file=ca_file, certificate_file=certificates.own)
        yield Service(cluster, proxy, own, TLS(ca_file=ca_file))


@pytest.fixture
async def topics(service: Service, unique: str) -> dict[MessageType, str]:
    """A topic of each type, made by an operator with TLS and keys."""
    topics = {kind: f"{unique}-{kind.value}" for kind in TYPES}
    client = Client(service.cluster.name_servers, tls=service.tls, credentials=ADMIN)
    async with client, client.admin() as admin:
        for kind, topic in topics.items():
            await admin.topics.create(topic, queues=1, message_type=kind)
    return topics


def message(topic: str, kind: MessageType) -> Message:
    """Return a message that is not in a transaction."""
    if kind is MessageType.FIFO:
        return Message(topic, b"FIFO", sharding_key="key")
    if kind is MessageType.DELAY:
        return Message(topic, b"DELAY", delay=1)
    return Message(topic, b"NORMAL")


async def receive(client: Client, group: str, expected: dict[str, bytes]) -> None:
    """Consume until the message of each topic is received. Fails for other messages."""
    received: dict[str, bytes] = {}

    async def handle(one: ReceivedMessage) -> None:
        received[one.topic] = one.body
        if len(received) == len(expected):
            consumer.stop()

    async with client.push_consumer(group, consume_from="earliest", rebalance_interval=1) as consumer:
        for topic in expected:
            consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert received == expected


async def test_messages_of_each_type_go_through_the_proxy_and_others_are_refused(
    service: Service, topics: dict[MessageType, str], unique: str
) -> None:
    address, tls = service.proxy.remoting_address, service.proxy_tls
    async with Client(address, tls=tls, credentials=ADMIN) as client:
        async with client.producer("senders", trace=True) as producer:
            for kind in TYPES[:3]:
                await producer.send(message(topics[kind], kind))
                for other in set(TYPES) - {kind}:
                    with pytest.raises(MessageRefusedError, match="; send it") as caught:
                        await producer.send(message(topics[other], kind))
                    mismatch = f"its type is {kind.name}, and that of its topic {other.name}; send it"
                    assert mismatch in str(caught.value)
        async with client.transaction_producer(unique, lambda _: TransactionState.COMMIT) as transactions:
            half = Message(topics[MessageType.TRANSACTION], b"TRANSACTION")
            async with transactions.transaction(half) as transaction:
                transaction.state = TransactionState.COMMIT
            with pytest.raises(MessageRefusedError, match=r"its type is TRANSACTION, .* topic NORMAL"):
                async with transactions.transaction(Message(topics[MessageType.NORMAL], b"x")):
                    pass
            await receive(client, f"group-{unique}", {topics[kind]: kind.name.encode() for kind in TYPES})


async def test_javas_client_is_refused_alike(service: Service, topics: dict[MessageType, str]) -> None:
    jvm = (*QUICK, "-Dtls.enable=true")
    there = ["--namesrv", service.proxy.remoting_address, "--body", "x"]
    keys = ["--access-key", ADMIN.access_key, "--secret-key", ADMIN.secret_key]

    async def send(kind: MessageType, *options: str) -> None:
        await run_java_async(client_for(VERSION), "Send", *there, "--topic", topics[kind], *options, jvm=jvm)

    await send(MessageType.NORMAL, *keys)
    await send(MessageType.DELAY, *keys, "--delay-level", "1")
    with pytest.raises(PeerError, match="the expected type is FIFO, but actual type is NORMAL"):
        await send(MessageType.FIFO, *keys)
    # Java shows only that it has no route.
    with pytest.raises(PeerError, match="No route info of this topic"):
        await send(MessageType.NORMAL)


@pytest.mark.parametrize("through", ["proxy", "brokers"])
async def test_a_client_needs_both_the_certificate_and_the_keys(
    service: Service, topics: dict[MessageType, str], unique: str, through: str
) -> None:
    if through == "proxy":
        address, tls, without_authority = service.proxy.remoting_address, service.proxy_tls, TLS()
    else:
        address, tls = service.cluster.name_servers, service.tls
        without_authority = TLS(certificate_file=tls.certificate_file)
    topic = topics[MessageType.NORMAL]
    async with Client(address, tls=tls, credentials=ADMIN) as client:
        async with client.producer("senders") as producer:
            await producer.send(Message(topic, b"x"))
        await receive(client, f"group-{unique}", {topic: b"x"})
    for credentials, words in (
        (None, "username cannot be null"),
        (Credentials(ADMIN.access_key, "wrong-secret"), "signature failed"),
    ):
        async with (
            Client(address, tls=tls, credentials=credentials) as client,
            client.producer("senders") as producer,
        ):
            with pytest.raises(AccessDeniedError, match=words):
                await producer.send(Message(topic, b"x"))
    async with (
        Client(address, tls=without_authority, credentials=ADMIN) as client,
        client.producer("senders") as producer,
    ):
        with pytest.raises(NameServerError, match="no trusted authority signed its certificate"):
            await producer.send(Message(topic, b"x"))
