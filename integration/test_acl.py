"""Brokers that check access: 4.x with an account file (ACL 1.0), 5.x with users and policies (ACL 2.0)."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from integration.access import ADMIN, SETTINGS_OF_5, SETTINGS_OF_PROXIES
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import SETTINGS, start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.clusters.proxy import Proxy
from integration.java.peer import client_for, java_peer, run_java_async
from rocketmq_py import Client, Credentials, Delivery, Message, ReceivedMessage
from rocketmq_py.address import split_address
from rocketmq_py.client import core_of
from rocketmq_py.credentials import signature
from rocketmq_py.errors import AccessDeniedError, MessageRefusedError
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.selectors import SelectByHash
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all, until_readable
from tests.behaviours.ways import WAYS, serves
from tests.cli.command import Ended, run_cli
from tests.hostname_resolver import Resolver

USER = Credentials("the-user", "user-secret-1234")
ALLOWED_TOPIC, ALLOWED_GROUP = "AllowedTopic", "AllowedGroup"
PATIENCE = 60

ACCOUNTS_OF_4 = f"""
accounts:
  - accessKey: {ADMIN.access_key}
    secretKey: {ADMIN.secret_key}
    admin: true
  - accessKey: {USER.access_key}
    secretKey: {USER.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - {ALLOWED_TOPIC}=PUB|SUB
    groupPerms:
      - {ALLOWED_GROUP}=SUB
"""

AUTH_CREATE_USER, AUTH_CREATE_ACL = 3001, 3006


@pytest.fixture(scope="module", params=VERSIONS)
def guarded(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    version = request.param
    if version.startswith("4."):
        options: dict[str, Any] = {
            "settings": {**SETTINGS, "aclEnable": "true"},
            "files": {"conf/plain_acl.yml": ACCOUNTS_OF_4},
        }
    else:
        options = {"settings": {**SETTINGS, **SETTINGS_OF_5}}
    with start_own_cluster(version, **options) as cluster:
        trio.run(_set_up, cluster)
        yield cluster


async def _set_up(cluster: Cluster) -> None:
    async with Client(cluster.name_servers, credentials=ADMIN) as client:
        await create_topic(client, ALLOWED_TOPIC, queues=1)
        if cluster.version.startswith("4."):
            return
        user = {"username": USER.access_key, "password": USER.secret_key, "userType": "Normal"}
        entries = [
            {"resource": f"Topic:{ALLOWED_TOPIC}", "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
            {"resource": f"Group:{ALLOWED_GROUP}", "actions": ["Sub"], "decision": "Allow"},
        ]
        subject = f"User:{USER.access_key}"
        policies = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
        for code, fields, body in (
            (AUTH_CREATE_USER, {"username": USER.access_key}, user),
            (AUTH_CREATE_ACL, {"subject": subject}, policies),
        ):
            for address in cluster.brokers.values():
                answer = await core_of(client).connections.request(
                    address, code, fields, json.dumps(body).encode(), timeout=5
                )
                assert answer.code == 0, answer.remark


@pytest.fixture
async def admin(guarded: Cluster) -> AsyncIterator[Client]:
    async with Client(guarded.name_servers, credentials=ADMIN) as client:
        yield client


@pytest.fixture
async def topic(admin: Client, unique: str) -> str:
    await create_topic(admin, unique, queues=2)
    return unique


@pytest.mark.parametrize("token", [None, "a-token"])
async def test_the_right_credentials_send_and_read(guarded: Cluster, topic: str, token: str | None) -> None:
    credentials = Credentials(ADMIN.access_key, ADMIN.secret_key, token)
    message = Message(topic, "Grüße".encode(), tags="A", keys="k", properties={"colour": "grün 😀"})
    async with (
        Client(guarded.name_servers, credentials=credentials) as client,
        client.producer("senders") as producer,
    ):
        sent = [await producer.send(message), await (await producer.submit(message))]
        await producer.send_oneway(message)
        received = await read_all(client, topic, count=3)
    assert {one.message_id for one in received} > {one.message_id for one in sent}
    assert {one.body for one in received} == {message.body}


async def test_messages_are_found_by_their_ids_and_keys(admin: Client, topic: str) -> None:
    async with admin.producer("senders") as producer, admin.admin() as operator:
        sent = await producer.send(Message(topic, b"x", keys="k"))
        with trio.fail_after(PATIENCE):
            while not (by_key := (await operator.messages.find(topic, "k")).messages):
                await trio.sleep(0.1)  # brokers make their index in the background
        by_id = await operator.messages.get(sent.message_id, topic=topic)
    assert by_id is not None
    assert [message.message_id for message in (*by_key, by_id)] == [sent.message_id] * 2


async def test_a_group_consumes_retries_and_commits(guarded: Cluster, admin: Client, unique: str) -> None:
    body = unique.encode()
    handled: list[ReceivedMessage] = []
    done = trio.Event()

    async def fail_first(message: ReceivedMessage) -> None:
        if message.body != body:
            return  # belongs to another test
        handled.append(message)
        if not message.reconsume_times:
            raise ValueError("the first time fails")
        done.set()

    async with (
        Client(guarded.name_servers, credentials=USER) as client,
        client.push_consumer(ALLOWED_GROUP, consume_from="earliest", rebalance_interval=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(ALLOWED_TOPIC)
        nursery.start_soon(consumer.run, fail_first)
        async with client.producer("senders") as producer:
            result = await producer.send(Message(ALLOWED_TOPIC, body))
        with trio.fail_after(PATIENCE):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert [(one.body, one.reconsume_times) for one in handled] == [(body, 0), (body, 1)]
    await core_of(admin).routes.get(ALLOWED_TOPIC)
    assert (
        await core_of(admin).brokers.committed_offset(ALLOWED_GROUP, result.queue) == result.queue_offset + 1
    )


async def test_rules_for_a_prefix_admit_a_user_to_one_namespace(
    guarded: Cluster, admin: Client, unique: str
) -> None:
    if guarded.version.startswith("4."):
        pytest.skip("brokers of 4.x have no rules with prefixes")
    credentials = Credentials(f"{unique}-user", "tenant-secret")
    redelivered: list[bytes] = []

    async def fail_first(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise ValueError("the first time fails")
        redelivered.append(message.body)
        consumer.stop()

    async with admin.admin() as operator:
        for namespace in (unique, f"other-{unique}"):
            await operator.topics.create(f"{namespace}%Orders", queues=1)
        await operator.access.create_user(credentials.access_key, credentials.secret_key)
        await operator.access.put_rule(credentials.access_key, f"Topic:{unique}%*", ["Pub", "Sub"])
        await operator.access.put_rule(credentials.access_key, f"Group:{unique}%*", ["Sub"])
    async with Client(guarded.name_servers, credentials=credentials, namespace=unique) as client:
        async with client.producer("senders") as producer:
            await producer.send(Message("Orders", b"x"))
        async with client.push_consumer("billing", consume_from="earliest", rebalance_interval=1) as consumer:
            consumer.subscribe("Orders")
            with trio.fail_after(PATIENCE):
                await consumer.run(fail_first)
    assert redelivered == [b"x"]
    async with (
        Client(guarded.name_servers, credentials=credentials, namespace=f"other-{unique}") as client,
        client.producer("senders") as producer,
    ):
        with pytest.raises(AccessDeniedError):
            await producer.send(Message("Orders", b"x"))


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_of_consuming_signs_its_requests(
    guarded: Cluster, admin: Client, topic: str, unique: str, way: str, tmp_path: Path
) -> None:
    if not serves(guarded.version, way):
        pytest.skip("brokers of 4.x do not know pop")
    async with admin.producer("senders") as producer:
        await producer.send(Message(topic, b"x"))
    await until_readable(admin, topic, count=1)
    (received,) = await WAYS[way](admin, topic, f"group-{unique}", 1, tmp_path)
    assert received.body == b"x"


@pytest.fixture(scope="module")
def guarded_proxy(guarded: Cluster) -> Iterator[Proxy]:
    """A proxy that checks access, in front of brokers that do."""
    if guarded.version.startswith("4."):
        pytest.skip("proxies work with brokers from 5.0 on")
    with Proxy(guarded, SETTINGS_OF_PROXIES) as proxy:
        yield proxy


async def test_a_proxy_checks_signatures_of_clients_with_both_namespaces(
    guarded_proxy: Proxy, admin: Client, unique: str
) -> None:
    namespace = "MQ_INST_1380_BbXb"
    await create_topic(admin, f"{namespace}%{unique}", queues=1)
    host, port = split_address(guarded_proxy.remoting_address)
    Resolver.install().addresses[f"{namespace}.example.com"] = [host]
    endpoint = f"http://{namespace}.example.com:{port}/"
    credentials = Credentials(ADMIN.access_key, ADMIN.secret_key, "a-token")
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)
        consumer.stop()

    async with Client(endpoint, credentials=credentials, namespace_v2="rmq-cn-1") as client:
        async with client.producer("senders", trace=True) as producer:
            await producer.send(Message(unique, b"x"))
        async with client.push_consumer(unique, consume_from="earliest") as consumer:
            consumer.subscribe(unique)
            with trio.fail_after(PATIENCE):
                await consumer.run(handle)
    assert [message.topic for message in received] == [unique]
    for denied in (None, Credentials(ADMIN.access_key, "wrong-secret")):
        async with Client(endpoint, credentials=denied) as client, client.producer("senders") as producer:
            with pytest.raises(AccessDeniedError, match=r"username cannot be null|signature failed"):
                await producer.send(Message(unique, b"x"))


@pytest.fixture(scope="module")
def guarded_typed_proxy(guarded: Cluster) -> Iterator[Proxy]:
    """A proxy as services of 5.x have it: it checks access, and the types of messages."""
    if guarded.version.startswith("4."):
        pytest.skip("proxies work with brokers from 5.0 on")
    with Proxy(guarded, {**SETTINGS_OF_PROXIES, "enableTopicMessageTypeCheck": True}) as proxy:
        yield proxy


async def test_a_proxy_with_types_and_access_control_works_with_the_settings_of_a_service(
    guarded_typed_proxy: Proxy, admin: Client, unique: str
) -> None:
    normal, fifo, delayed = topics = [f"{unique}-{kind}" for kind in ("normal", "fifo", "delay")]
    async with admin.admin() as operator:
        for topic, kind in zip(topics, ("NORMAL", "FIFO", "DELAY"), strict=True):
            await operator.topics.create(topic, queues=1, message_type=kind)
    received: dict[str, list[bytes]] = {topic: [] for topic in topics}
    expected = {normal: [b"normal"], fifo: [b"1", b"2"], delayed: [b"later"]}

    async def handle(message: ReceivedMessage) -> None:
        received[message.topic].append(message.body)
        if received == expected:
            consumer.stop()

    async with Client(guarded_typed_proxy.remoting_address, credentials=ADMIN) as client:
        async with client.producer("senders", trace=True, start_deliver_time=True) as producer:
            await producer.send(Message(normal, b"normal"))
            await producer.send(Message(fifo, b"1", sharding_key="key"))
            await producer.send(Message(fifo, b"2"), queue=SelectByHash("key"))
            await producer.send(Message(delayed, b"later", delay=1))
            for topic, words in ((fifo, "sharding_key="), (delayed, "delay_level=")):
                with pytest.raises(MessageRefusedError, match=words):
                    await producer.send(Message(topic, b"untyped"))
            with pytest.raises(MessageRefusedError, match="sharding_key="):
                await producer.send(Message(fifo, b"untyped"), queue=lambda queues, _: queues[0])
        async with client.push_consumer(unique, consume_from="earliest", rebalance_interval=1) as consumer:
            for topic in topics:
                consumer.subscribe(topic)
            with trio.fail_after(PATIENCE):
                await consumer.run(handle)
    assert received == expected


WRONG = Credentials(ADMIN.access_key, "wrong-secret")


async def check_connection(
    address: str, *options: str, credentials: Credentials | None = None
) -> dict[str, Any]:
    keys: tuple[str, ...] = ()
    if credentials is not None:
        keys = ("--access-key", credentials.access_key, "--secret-key", credentials.secret_key)
    ended = await run_cli("check", "connection", "-n", address, "--json", *options, *keys)
    result: dict[str, Any] = json.loads(ended.out)
    assert ended.code == (0 if result["failed"] is None else 2)
    return result


async def test_check_connection_tells_keys_from_rights(guarded: Cluster, topic: str) -> None:
    servers = guarded.name_servers
    allowed = ("-t", ALLOWED_TOPIC, "-G", ALLOWED_GROUP, "--send")
    result = await check_connection(servers, *allowed, credentials=USER)
    assert result["failed"] is None, result
    for denied, advice in ((None, "Pass --access-key"), (WRONG, "Compare the keys")):
        result = await check_connection(servers, *allowed, credentials=denied)
        assert result["failed"] == "signature", result
        assert advice in result["advice"]
    result = await check_connection(servers, "-t", topic, "-G", ALLOWED_GROUP, "--send", credentials=USER)
    assert result["failed"] == "permissions", result
    assert "the rights PUB and SUB" in result["advice"]


async def test_check_connection_through_a_proxy_that_checks_access(guarded_proxy: Proxy, topic: str) -> None:
    proxy = guarded_proxy.remoting_address
    result = await check_connection(proxy, "-t", topic, "-G", "any", "--send", credentials=ADMIN)
    assert result["failed"] is None, result
    for denied, advice in ((None, "Pass --access-key"), (WRONG, "Compare the keys")):
        result = await check_connection(proxy, "-t", topic, credentials=denied)
        assert result["failed"] == "signature", result
        assert advice in result["advice"]
    result = await check_connection(proxy, "-t", "Missing", credentials=ADMIN)
    assert result["failed"] == "route", result
    result = await check_connection(guarded_proxy.address, "-t", topic, credentials=ADMIN)
    assert result["failed"] == "name server", result
    assert "gRPC" in result["reason"]


DENIED = {
    "a wrong secret": (Credentials(ADMIN.access_key, "wrong-secret"), "signature failed"),
    "an unknown key": (
        Credentials("nobody", "wrong-secret"),
        r"No acl config for nobody|nobody is not found",
    ),
    "no credentials": (None, r"No accessKey is configured|username cannot be null"),
}


@pytest.mark.parametrize(("credentials", "words"), DENIED.values(), ids=list(DENIED))
async def test_denied_access_raises_one_clear_error(
    guarded: Cluster,
    topic: str,
    credentials: Credentials | None,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (address,) = guarded.brokers.values()
    caplog.set_level(logging.DEBUG)
    async with Client(guarded.name_servers, credentials=credentials) as client:
        async with client.producer("senders", retries=5) as producer:
            with pytest.raises(
                AccessDeniedError, match=f"(?i){address} denies access: .*({words})"
            ) as caught:
                await producer.send(Message(topic, b"x"))
            pending = await producer.submit(Message(topic, b"x"))
            with pytest.raises(AccessDeniedError):
                await pending
        async with client.reader() as reader:
            with pytest.raises(AccessDeniedError):
                await reader.offsets(topic)
    error = caught.value
    assert error.delivery is Delivery.REFUSED
    assert not error.retriable
    assert not getattr(error, "__notes__", ()), "it was tried once"
    assert "\n" not in str(error)
    shown = f"{error}{error!r}{error.remark}{client.settings}{caplog.text}"
    assert "wrong-secret" not in shown
    assert ADMIN.secret_key not in shown


async def test_insufficient_permissions_raise_the_same_error(guarded: Cluster, topic: str) -> None:
    async with (
        Client(guarded.name_servers, credentials=USER) as client,
        client.producer("senders") as producer,
    ):
        assert await producer.send(Message(ALLOWED_TOPIC, b"allowed"))
        with pytest.raises(AccessDeniedError, match=topic) as caught:
            await producer.send(Message(topic, b"not allowed"))
        assert caught.value.delivery is Delivery.REFUSED


async def test_a_denied_group_logs_the_error_and_keeps_trying(
    guarded: Cluster, topic: str, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        Client(guarded.name_servers, credentials=Credentials(ADMIN.access_key, "wrong-secret")) as client,
        client.push_consumer(unique, rebalance_interval=0.2) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, print)
        with trio.fail_after(PATIENCE):
            while caplog.text.count("member lookup failed, retrying: ") < 2:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert "denies access: " in caplog.text
    assert "wrong-secret" not in caplog.text


async def test_a_push_consumer_logs_a_topic_that_it_may_not_read(
    guarded: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        Client(guarded.name_servers, credentials=USER) as client,
        client.push_consumer(ALLOWED_GROUP, rebalance_interval=0.2) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, print)
        with trio.fail_after(PATIENCE):
            while not denials(caplog, topic):
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert_is_clear(denials(caplog, topic)[0])


async def test_a_lite_pull_consumer_logs_a_topic_that_it_may_not_read(
    guarded: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        Client(guarded.name_servers, credentials=USER) as client,
        client.lite_pull_consumer(ALLOWED_GROUP, consume_from="earliest") as consumer,
    ):
        await consumer.assign(await consumer.queues(topic))
        with trio.fail_after(PATIENCE):
            while not denials(caplog, topic):
                assert await consumer.poll(wait=0.2) == []
    assert_is_clear(denials(caplog, topic)[0])


async def test_a_pop_consumer_that_may_not_read_a_topic_gets_the_error(guarded: Cluster, topic: str) -> None:
    if not serves(guarded.version, "pop"):
        pytest.skip("brokers of 4.x do not know pop")
    async with (
        Client(guarded.name_servers, credentials=USER) as client,
        client.pop_consumer(ALLOWED_GROUP) as consumer,
    ):
        consumer.subscribe(topic)
        with pytest.raises(AccessDeniedError) as caught:
            await consumer.receive(wait=1)
    assert_is_clear(str(caught.value))


async def run(cluster: Cluster, *arguments: str, credentials: Credentials | None = ADMIN) -> Ended:
    """Run a command with credentials from the environment."""
    keys = (
        {}
        if credentials is None
        else {"ROCKETMQ_ACCESS_KEY": credentials.access_key, "ROCKETMQ_SECRET_KEY": credentials.secret_key}
    )
    return await run_cli(*arguments, env={"NAMESRV_ADDR": cluster.name_servers, **keys})


async def asked(cluster: Cluster, *arguments: str) -> Any:
    ended = await run(cluster, *arguments, "--json")
    assert (ended.code, ended.err) == (0, ""), ended.err
    return json.loads(ended.out)


async def test_commands_have_access(guarded: Cluster, topic: str, unique: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{ADMIN.secret_key}\n")
    named = ("--access-key", ADMIN.access_key, "--secret-key", f"@{secret}")
    described = await run(guarded, "topic", "describe", topic, *named, credentials=None)
    assert (described.code, described.err) == (0, "")
    sent = await run(guarded, "send", "-t", topic, "hello", *named, credentials=None)
    assert sent.code == 0, sent.err
    tailed = await run(guarded, "tail", "-t", topic, "-o", "earliest", "-c", "1", *named, credentials=None)
    assert (tailed.code, tailed.out) == (0, b"hello\n")
    assert (await asked(guarded, "group", "create", f"group-{unique}"))["group"] == f"group-{unique}"
    assert unique in str(await asked(guarded, "group", "list"))
    for credentials, words in (
        (None, "denies access"),
        (Credentials(ADMIN.access_key, "wrong-secret"), "denies access"),
    ):
        for arguments in (
            ("send", "-t", topic, "x"),
            ("topic", "describe", topic),
            ("group", "describe", unique),
        ):
            ended = await run(guarded, *arguments, credentials=credentials)
            assert ended.code == 1, arguments
            assert words in ended.err
            assert "wrong-secret" not in ended.err


async def test_commands_manage_users_and_permissions(guarded: Cluster, topic: str, tmp_path: Path) -> None:
    if guarded.version.startswith("4."):
        for arguments in (("user", "list"), ("list",)):
            ended = await run(guarded, "acl", *arguments)
            assert ended.code == 1
            assert "(version 4.9.7) does not support users and access rules (ACL 2.0)" in ended.err
        (one,) = await asked(guarded, "acl", "version")
        assert (one["broker_name"], one["changes"]) == (*guarded.brokers, 0)
        return
    secret = tmp_path / "secret"
    secret.write_text("the secret of carol")
    carol = Credentials("carol", "the secret of carol")
    brokers = list(guarded.brokers)
    acl = ("acl", "user")
    await asked(guarded, *acl, "create", "carol", "--password", f"@{secret}")
    assert await asked(guarded, *acl, "list", "carol") == [
        {"name": "carol", "is_super": False, "is_enabled": True, "brokers": brokers}
    ]
    listed = await run(guarded, *acl, "list", "--wide")
    assert ADMIN.access_key in listed.out.decode()
    assert ADMIN.secret_key not in listed.out.decode()
    send = ("send", "-t", topic, "x")
    assert (await run(guarded, *send, credentials=carol)).code == 1
    await asked(guarded, "acl", "allow", "carol", f"Topic:{topic}", "pub", "get")
    assert (await run(guarded, *send, credentials=carol)).code == 0
    assert await asked(guarded, "acl", "list", "--user", "carol") == [
        {
            "user": "carol",
            "resource": f"Topic:{topic}",
            "is_allowed": True,
            "actions": ["Pub", "Get"],
            "source_ips": [],
            "is_default": False,
            "brokers": brokers,
        }
    ]
    await asked(guarded, "acl", "deny", "carol", f"Topic:{topic}", "pub")
    assert (await run(guarded, *send, credentials=carol)).code == 1
    (rule,) = await asked(guarded, "acl", "list", "--user", "carol")
    assert (rule["is_allowed"], rule["actions"]) == (False, ["Pub"])
    await asked(guarded, "acl", "delete", "carol", f"Topic:{topic}", "--yes")
    assert await asked(guarded, "acl", "list", "--user", "carol") == []
    await asked(guarded, *acl, "alter", "carol", "--disable", "--super")
    (user,) = await asked(guarded, *acl, "list", "carol")
    assert (user["is_super"], user["is_enabled"]) == (True, False)
    again = await run(guarded, *acl, "create", "carol", "--password", f"@{secret}")
    assert again.code == 1
    assert "user 'carol' exists already on broker-a" in again.err
    await asked(guarded, *acl, "delete", "carol", "--yes")
    assert await asked(guarded, *acl, "list", "carol") == []
    version = await run(guarded, "acl", "version")
    assert version.code == 1
    assert "GET_BROKER_CLUSTER_ACL_INFO" in version.err


def denials(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    """Return the log lines about a topic that may not be read."""
    return [message for message in caplog.messages if "denies access" in message and topic in message]


def assert_is_clear(text: str) -> None:
    assert "denies access: " in text
    assert "\n" not in text
    assert USER.secret_key not in text


async def test_java_and_python_read_each_others_messages(guarded: Cluster, admin: Client, topic: str) -> None:
    java = client_for(guarded.version)
    access = [
        "--namesrv", guarded.name_servers, "--topic", topic,
        "--access-key", ADMIN.access_key, "--secret-key", ADMIN.secret_key,
    ]  # fmt: skip
    await run_java_async(java, "Send", *access, "--body", "from Java")
    async with admin.producer("senders") as producer:
        await producer.send(Message(topic, b"from here"))
    await read_all(admin, topic, count=2)
    received = await run_java_async(java, "Receive", *access, "--count", "2")
    assert {base64.b64decode(one["body"]) for one in received} == {b"from Java", b"from here"}


async def test_java_group_consumes_messages_sent_by_python(
    guarded: Cluster, admin: Client, topic: str, unique: str
) -> None:
    async with java_peer(
        client_for(guarded.version), "Consume",
        "--namesrv", guarded.name_servers, "--topic", topic, "--group", f"group-{unique}",
        "--access-key", ADMIN.access_key, "--secret-key", ADMIN.secret_key,
    ) as peer:  # fmt: skip
        with trio.fail_after(PATIENCE):
            await peer.ready()
            async with admin.producer("senders") as producer:
                await producer.send(Message(topic, b"from here"))
            assert base64.b64decode((await peer.next_line())["body"]) == b"from here"


@pytest.mark.usefixtures("java_and_maven")
@pytest.mark.parametrize("version", VERSIONS)
async def test_java_and_python_sign_requests_alike(version: str) -> None:
    fields = {
        "b": "TopicTest",
        "i": "TAGS\x01A\x02colour\x01grün 😀\x02",
        "a": "",
        "Z": "capital",
        "10": "ten",
    }
    body = bytes(range(256))
    (signed,) = await run_java_async(
        client_for(version), "Sign",
        "--access-key", ADMIN.access_key, "--secret-key", ADMIN.secret_key, "--security-token", "token",
        "--body-base64", base64.b64encode(body).decode(),
        *[word for name, value in fields.items() for word in (f"--field.{name}", value)],
    )  # fmt: skip
    (command,) = FrameDecoder().feed(base64.b64decode(signed["frame"]))
    assert {**command.fields, **fields} == command.fields
    assert signature(ADMIN.secret_key, command.fields, body) == command.fields["Signature"]
