"""``rocketmq-py check connection`` names the step that fails, the reason and the remedy."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from rocketmq_py.admin.connection.consoles import (
    ALIBABA_4,
    ALIBABA_5,
    HUAWEI,
    TENCENT,
    VOLCENGINE,
    console_of,
)
from rocketmq_py.broker.profiles import PROFILES
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.testing import TestBroker, run_broker, run_cluster
from tests.cli.conftest import Invoke, options_of

STEPS = [
    "address",
    "tcp",
    "tls",
    "name server",
    "signature",
    "namespace",
    "route",
    "brokers",
    "permissions",
    "message",
]
Check = Callable[..., dict[str, Any]]


@pytest.fixture
def check(invoke: Invoke) -> Check:
    """Run the command, and return its JSON with the exit code."""

    def run(address: str, *options: str) -> dict[str, Any]:
        ended = invoke("check", "connection", "-n", address, "--json", *options)
        value = json.loads(ended.out)
        assert ended.code == (0 if value["failed"] is None else 2)
        assert value["state"] == ("OK" if value["failed"] is None else "CRITICAL")
        names = [one["step"] for one in value["steps"]]
        assert names == STEPS[: len(names)]
        return {**value, "states": {one["step"]: one["state"] for one in value["steps"]}}

    return run


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker(topics=["Orders"], auto_create_topic_enable=False) as broker:
        yield broker


# Steps that succeed


@pytest.mark.parametrize("name", PROFILES)
def test_all_steps_succeed_with_the_settings_of_a_service(check: Check, name: str) -> None:
    with run_broker(profile=name, topics=["Orders"]) as broker:
        value = check(broker.name_server_address, "-t", "Orders", "-G", "g", "--send", *options_of(broker))
        assert value["failed"] is None
        tls = "ok" if PROFILES[name].untrusted_tls else "skipped"
        assert value["states"] == {**dict.fromkeys(STEPS, "ok"), "tls": tls}
        assert [one.body for one in broker.messages("Orders")] == [b"rocketmq-py check connection"]


def test_steps_that_need_a_topic_are_skipped_without_one(check: Check, broker: TestBroker) -> None:
    value = check(broker.name_server_address)
    skipped = [name for name, state in value["states"].items() if state == "skipped"]
    assert skipped == ["tls", "signature", *STEPS[6:]]
    value = check(broker.name_server_address, "-t", "Orders")
    assert [name for name, state in value["states"].items() if state == "skipped"] == ["tls", "message"]
    assert broker.messages("Orders") == []


def test_output_for_nagios_names_the_failure_first(invoke: Invoke, broker: TestBroker) -> None:
    ended = invoke("check", "connection", "-n", broker.name_server_address, "-t", "Other|%1")
    lines = ended.out.decode().splitlines()
    assert (ended.code, ended.err) == (2, "")
    assert lines[0].startswith("CRITICAL - route: topic Other/%1 does not exist at 127.0.0.1:")
    assert lines[1].split() == ["address", "ok", "name", "servers", broker.name_server_address]
    assert lines[-1].startswith("what to do: Create it with: rocketmq-py topic create")
    assert "|" not in ended.out.decode()
    ended = invoke("check", "connection", "-n", broker.name_server_address)
    assert ended.out.startswith(b"OK - no step failed, but the signature was not checked; pass --topic\n")
    ended = invoke("check", "connection", "-n", broker.name_server_address, "-t", "Orders")
    assert ended.out.startswith(b"OK - all steps succeeded\n")


def test_metrics_for_prometheus_leave_out_skipped_steps(invoke: Invoke, broker: TestBroker) -> None:
    ended = invoke("check", "connection", "-n", broker.name_server_address, "-t", "Other", "--prometheus")
    metrics = [line for line in ended.out.decode().splitlines() if not line.startswith("#")]
    assert ended.code == 2
    assert metrics == [
        f'rocketmq_connection_step_ok{{step="{name}"}} {int(name != "route")}'
        for name in ("address", "tcp", "name server", "namespace", "route")
    ]


def test_group_and_send_need_a_topic(invoke: Invoke) -> None:
    assert "need --topic" in invoke("check", "connection", "--send").err
    assert invoke("check", "connection", "-G", "g").code == 3


# Address, TCP and TLS


def test_a_host_name_without_an_address(check: Check) -> None:
    value = check("MQ_INST_1_a.nowhere.invalid:8080")
    assert value["failed"] == "address"
    assert "the host name MQ_INST_1_a.nowhere.invalid has no address" in value["reason"]


def test_addresses_of_several_instances(check: Check) -> None:
    value = check("MQ_INST_1_a.b.invalid:8080;MQ_INST_1_c.b.invalid:8080")
    assert value["failed"] == "address"
    assert "the addresses are of several instances" in value["reason"]


@pytest.mark.usefixtures("short_timeouts")
def test_a_url_that_does_not_return_addresses(check: Check, unused_address: str) -> None:
    value = check(f"http://{unused_address}/rocketmq/nsaddr")
    assert value["failed"] == "address"
    assert "did not return their addresses" in value["reason"]


def test_nothing_listens_at_the_address(check: Check, unused_address: str, broker: TestBroker) -> None:
    value = check(unused_address)
    assert value["failed"] == "tcp"
    assert "Connection refused" in value["reason"]
    assert "no firewall is in between" in value["advice"]
    value = check(f"{unused_address};{broker.name_server_address}", "-t", "Orders")
    assert value["failed"] is None
    (tcp,) = [one["text"] for one in value["steps"] if one["step"] == "tcp"]
    assert tcp.endswith(f"; not to {unused_address} (Connection refused)")


def test_tls_is_off_and_expected(check: Check) -> None:
    with run_broker(profile="huawei", topics=["Orders"]) as broker:
        value = check(broker.name_server_address, "-t", "Orders", *options_of(broker, without="tls"))
        assert value["failed"] == "tls"
        assert "expects TLS, and it is off" in value["reason"]
        assert "--insecure" in value["advice"]
        value = check(broker.name_server_address, "--tls", *options_of(broker, without="tls"))
        assert value["failed"] == "tls"
        assert "no trusted authority signed its certificate" in value["reason"]
        assert "pass --insecure" in value["advice"]


def test_tls_is_on_and_not_expected(check: Check, broker: TestBroker) -> None:
    value = check(broker.name_server_address, "--tls")
    assert value["failed"] == "tls"
    assert value["reason"] == f"{broker.name_server_address} expects no TLS, and it is on"


# The name server


def test_the_port_of_a_broker(check: Check, broker: TestBroker) -> None:
    value = check(broker.broker_address, "-t", "Orders")
    assert value["failed"] == "name server"
    assert "is no name server and no proxy" in value["reason"]
    assert "port 9876" in value["advice"]


@contextmanager
def closing_server() -> Iterator[str]:
    """Run a server that closes connections after the first bytes, as one for other protocols does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(100)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_the_port_of_another_protocol(check: Check, default_timeouts: Callable[[float], None]) -> None:
    default_timeouts(1)
    with closing_server() as address:
        value = check(address)
    assert value["failed"] == "name server"
    assert "may be for clients with gRPC or HTTP" in value["reason"]


# Signature and rights


@pytest.mark.parametrize("name", PROFILES)
def test_missing_keys(check: Check, name: str) -> None:
    with run_broker(profile=name, topics=["Orders"]) as broker:
        value = check(broker.name_server_address, "-t", "Orders", *options_of(broker, without="keys"))
    assert value["failed"] == "signature"
    assert "Pass --access-key and --secret-key. They are a user name" in value["advice"]


@pytest.mark.parametrize("name", PROFILES)
def test_wrong_keys(check: Check, name: str) -> None:
    with run_broker(profile=name, topics=["Orders"]) as broker:
        keys = ["--access-key", "other", "--secret-key", "other"]
        value = check(broker.name_server_address, "-t", "Orders", *options_of(broker, without="keys"), *keys)
    if PROFILES[name].hides_routes:
        assert value["failed"] == "route"
        assert "the address or the keys are those of another instance" in value["advice"]
    else:
        assert value["failed"] == "signature"
        assert "Compare the keys with the console's" in value["advice"]


def test_keys_that_only_brokers_check(check: Check) -> None:
    with run_broker(topics=["Orders"], access_keys={"me": "secret"}) as broker:
        value = check(broker.name_server_address, "-t", "Orders")
        assert value["failed"] == "signature"
        assert "Pass --access-key" in value["advice"]
        assert value["states"]["brokers"] == "ok"
        value = check(broker.name_server_address, "-t", "Orders", "--access-key", "me", "--secret-key", "x")
        assert value["failed"] == "signature"
        assert "Compare the keys" in value["advice"]


def test_a_signature_that_no_broker_has_checked_is_not_ok(check: Check) -> None:
    with run_broker(access_keys={"me": "secret"}, auto_create_topic_enable=False) as broker:
        keys = ["--access-key", "me", "--secret-key", "x"]
        for topic, reason in ((["-t", "Missing"], "the topic was not found"), ([], "pass --topic")):
            value = check(broker.name_server_address, *topic, *keys)
            (step,) = [one for one in value["steps"] if one["step"] == "signature"]
            assert (step["state"], step["text"].startswith("not checked")) == ("skipped", True)
            assert step["text"].endswith(reason)


def deny(broker: TestBroker, request: str) -> None:
    remark = "User:me has no permission to access Topic:Orders from 127.0.0.1, no matched policies."
    broker.fail(request, code=ResponseCode.NO_PERMISSION, remark=remark)


def test_a_group_without_the_right_to_read(check: Check, broker: TestBroker) -> None:
    deny(broker, "QUERY_CONSUMER_OFFSET")
    value = check(broker.name_server_address, "-t", "Orders", "-G", "billing")
    assert value["failed"] == "permissions"
    assert "the rights PUB and SUB" in value["advice"]


def test_users_who_may_only_publish(check: Check, broker: TestBroker) -> None:
    deny(broker, "GET_MAX_OFFSET")
    value = check(broker.name_server_address, "-t", "Orders", "--send")
    assert value["failed"] is None
    assert (value["states"]["permissions"], value["states"]["message"]) == ("skipped", "ok")


def test_users_who_may_not_publish(check: Check, broker: TestBroker) -> None:
    deny(broker, "SEND_MESSAGE")
    value = check(broker.name_server_address, "-t", "Orders", "--send")
    assert value["failed"] == "permissions"
    assert "the rights PUB and SUB" in value["advice"]


def test_a_missing_group(check: Check) -> None:
    profile = attrs.evolve(PROFILES["alibaba-4"], hides_routes=None)
    with run_broker(profile=profile, topics=["Orders"]) as broker:
        broker.fail(
            "QUERY_CONSUMER_OFFSET",
            code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            remark="subscription group not exist",
        )
        value = check(broker.name_server_address, "-t", "Orders", "-G", "g", *options_of(broker))
    assert value["failed"] == "permissions"
    assert "%g does not exist: subscription group not exist" in value["reason"]


def test_other_errors_of_brokers(check: Check, broker: TestBroker) -> None:
    broker.fail("GET_MAX_OFFSET", code=ResponseCode.SYSTEM_ERROR, remark="out of order")
    value = check(broker.name_server_address, "-t", "Orders")
    assert value["failed"] == "permissions"
    assert "out of order" in value["reason"]


# Namespace and route: the causes of "No route info of this topic"


def test_a_topic_that_does_not_exist(check: Check, broker: TestBroker) -> None:
    value = check(broker.name_server_address, "-t", "Ordrs")
    assert value["failed"] == "route"
    assert "where the brokers broker-a are registered" in value["reason"]
    assert "Similar topics exist: Orders" in value["advice"]


def test_the_topics_are_listed_once(check: Check, broker: TestBroker) -> None:
    broker.create_topic("tenant%Ordrs2")
    assert check(broker.name_server_address, "-t", "Ordrs")["failed"] == "route"
    assert len(broker.requests("GET_ALL_TOPIC_LIST_FROM_NAMESERVER")) == 1


@pytest.mark.parametrize("name", ["alibaba-4", "tencent-4"])
def test_a_missing_namespace_on_a_service(check: Check, name: str) -> None:
    with run_broker(profile=name, topics=["Orders"]) as broker:
        value = check(broker.name_server_address, "-t", "Orders", *options_of(broker, without="namespace"))
        assert value["failed"] == "route"
        assert ": pass --namespace" in value["advice"]
        full_name = PROFILES[name].full_name("Orders")
        value = check(broker.name_server_address, "-t", full_name, *options_of(broker, without="namespace"))
        assert value["failed"] is None


def test_a_missing_or_wrong_instance_of_a_serverless_service(invoke: Invoke) -> None:
    with run_broker(profile="alibaba-5-serverless", topics=["Orders"]) as broker:
        there = ["-n", broker.name_server_address, *options_of(broker, without="namespace_v2")]
        for options in ([], ["--namespace-v2", "other"]):
            ended = invoke("check", "connection", "-t", "Orders", *there, *options)
            assert ended.code == 2
            first, *_, last = ended.out.decode().splitlines()
            assert first.startswith("CRITICAL - namespace: 127.0.0.1:")
            assert "do not name the instance rmq-cn-test1234" in first
            assert last.startswith("what to do: Pass --namespace-v2 with the ID of the instance")


@pytest.mark.parametrize(
    ("host", "options", "advice"),
    [
        ("rmq-cn-1.cn-hangzhou.rmq.aliyuncs.com", [], "instance ID over the Internet: pass --namespace-v2."),
        ("rmq-cn-1.cn-hangzhou.rmq.aliyuncs.com", ["--namespace-v2", "rmq-cn-1"], ""),
        ("rocketmq-1.rocketmq.gz.public.tencenttdmq.com", [], "Clusters of 5.x have none: pass --namespace."),
    ],
)
def test_the_advice_names_the_option_for_the_namespace_of_the_service(
    check: Check, monkeypatch: pytest.MonkeyPatch, host: str, options: list[str], advice: str
) -> None:
    with run_broker(profile="alibaba-5", topics=["Orders"]) as broker:
        port = broker.name_server_address.rpartition(":")[2]
        monkeypatch.setattr(
            "rocketmq_py.admin.connection.walk.console_of", lambda _: console_of(f"{host}:{port}")
        )
        monkeypatch.setattr(
            "rocketmq_py.admin.connection.servers.console_of", lambda _: console_of(f"{host}:{port}")
        )
        value = check(broker.name_server_address, "-t", "Missing", *options_of(broker), *options)
        assert value["failed"] == "route"
        assert advice in value["advice"]
        assert ("pass --namespace" in value["advice"]) == bool(advice)
        wrong = ["--access-key", "other", "--secret-key", "other", *options]
        value = check(broker.name_server_address, *wrong)
        assert value["failed"] == "signature"
        assert ("pass --namespace-v2" in value["advice"]) == ("pass --namespace-v2" in advice)


def test_a_missing_or_wrong_namespace_where_topics_are_listed(check: Check, broker: TestBroker) -> None:
    broker.create_topic("tenant%Bills")
    value = check(broker.name_server_address, "-t", "Bills")
    assert value["failed"] == "namespace"
    assert value["reason"] == "topic Bills does not exist, but tenant%Bills does"
    assert value["advice"].startswith("Pass --namespace 'tenant' and the topic Bills.")
    value = check(broker.name_server_address, "-t", "Bills", "--namespace", "other")
    assert value["advice"].startswith("Pass --namespace 'tenant' and the topic Bills.")
    value = check(broker.name_server_address, "-t", "Orders", "--namespace", "other")
    assert value["advice"].startswith("Pass --namespace '' to use names unchanged")
    value = check(broker.name_server_address, "-t", "other%Bills", "--namespace", "tenant")
    assert value["advice"].startswith("Pass the name without a namespace: Bills")
    assert check(broker.name_server_address, "-t", "Bills", "--namespace", "tenant")["failed"] is None


def test_name_servers_of_different_clusters(check: Check, broker: TestBroker) -> None:
    with run_broker() as other:
        addresses = f"{broker.name_server_address};{other.name_server_address}"
        value = check(addresses, "-t", "Orders")
    assert value["failed"] == "route"
    assert f"but not at {other.name_server_address}" in value["reason"]
    assert "Pass the name servers of one cluster" in value["advice"]


def test_a_name_server_without_brokers(check: Check) -> None:
    with run_cluster(1, topics=["Orders"]) as cluster:
        cluster.crash("broker-a")
        value = check(cluster.name_server_address, "-t", "Orders")
    assert value["failed"] == "route"
    assert "no broker is registered there" in value["reason"]
    assert "namesrvAddr" in value["advice"]


def test_a_topic_whose_brokers_are_down(check: Check) -> None:
    with run_cluster(2) as cluster:
        cluster.change_topic("Orders", queues=1, server="broker-b")
        cluster.crash("broker-b")
        value = check(cluster.name_server_address, "-t", "Orders")
        assert value["failed"] == "route"
        assert "or the brokers of the topic are down" in value["advice"]
    with run_cluster(1, topics=["Orders"], replicas=True) as cluster:
        cluster.crash("broker-a")
        value = check(cluster.name_server_address, "-t", "Orders")
        assert value["failed"] == "route"
        assert value["reason"].endswith("can be written to: no master is up")
        assert check(cluster.name_server_address, "-t", "Orders", "-G", "g")["failed"] is None


def test_a_topic_that_is_read_only(check: Check, broker: TestBroker) -> None:
    broker.change_topic("Orders", writable=False)
    value = check(broker.name_server_address, "-t", "Orders")
    assert value["failed"] == "route"
    assert value["reason"].endswith("exists, but none of its queues may be written to")
    assert check(broker.name_server_address, "-t", "Orders", "-G", "g")["failed"] is None
    broker.change_topic("Orders", writable=True, readable=False)
    assert check(broker.name_server_address, "-t", "Orders")["failed"] is None
    value = check(broker.name_server_address, "-t", "Orders", "-G", "g")
    assert value["reason"].endswith("may be read")


def test_a_broker_that_cannot_be_reached(check: Check, unused_address: str) -> None:
    with run_broker(topics=["Orders"]) as broker:
        (process,) = broker._brokers
        name_server = broker._name_servers[0].name_server
        broker._call(lambda: name_server.register(process.config, unused_address, ()))
        value = check(broker.name_server_address, "-t", "Orders")
    assert value["failed"] == "brokers"
    assert f"{unused_address} (Connection refused)" in value["reason"]
    assert "announces an address of another network" in value["advice"]


# The message


def test_a_message_of_another_type(check: Check) -> None:
    with run_broker(profile="alibaba-5", topics=["Orders:1:FIFO"]) as broker:
        value = check(broker.name_server_address, "-t", "Orders", "--send", *options_of(broker))
    assert value["failed"] == "message"
    assert "with sharding_key=" in value["reason"]
    assert value["advice"].startswith("The connection works.")


# The words of the consoles


@pytest.mark.parametrize(
    ("address", "console"),
    [
        ("http://MQ_INST_1_a.cn-hangzhou.mq-internal.aliyuncs.com:8080", ALIBABA_4),
        ("MQ_INST_1_a.mq-internet-access.mq-internet.aliyuncs.com:80", ALIBABA_4),
        ("rmq-cn-1.cn-hangzhou.rmq.aliyuncs.com:8080", ALIBABA_5),
        ("rocketmq-1.rocketmq.ap-gz.public.tencenttdmq.com:9876", TENCENT),
        ("10.0.0.1:8100;10.0.0.2:8100", HUAWEI),
        ("MQ_INST_1_a.rocketmq.ivolces.com:9876", VOLCENGINE),
    ],
)
def test_the_address_tells_the_console(address: str, console: object) -> None:
    assert console_of(address) is console
    assert "topic create" in console_of("127.0.0.1:9876").topics


@pytest.mark.parametrize(
    ("address", "network", "keys"),
    [
        (
            "http://MQ_INST_1_a.cn-hangzhou.mq-internal.aliyuncs.com:8080",
            "use the Internet endpoint",
            "the AccessKey ID and AccessKey secret",
        ),
        ("rmq-cn-1.cn-hangzhou.rmq.aliyuncs.com:8080", "whitelist", "the user name and password of the inst"),
        ("rocketmq-1.rocketmq.gz.public.tencenttdmq.com:9876", "IP rules", "the token of the role (eyJ...)"),
        ("10.0.0.1:8100", "8100 (8200 outside the VPC), and 10100 to 10199", "a user of the instance"),
        ("rocketmq-1.rocketmq.ivolces.com:9876", "Private addresses", "SecretKey of the instance"),
    ],
)
def test_failing_steps_use_the_words_of_the_console(
    check: Check, unused_address: str, monkeypatch: pytest.MonkeyPatch, address: str, network: str, keys: str
) -> None:
    for module in ("walk", "servers"):
        monkeypatch.setattr(
            f"rocketmq_py.admin.connection.{module}.console_of", lambda _: console_of(address)
        )
    value = check(unused_address)
    assert (value["failed"], network in value["advice"]) == ("tcp", True), value
    with run_broker(topics=["Orders"], access_keys={"me": "secret"}) as broker:
        value = check(broker.name_server_address, "-t", "Orders")
        assert (value["failed"], keys in value["advice"]) == ("signature", True), value
        value = check(broker.name_server_address, "-t", "Missing")
        assert (value["failed"], "in the console" in value["advice"]) == ("route", True), value


def test_a_proxy_server_looks_up_names(check: Check) -> None:
    value = check("name-server.invalid:9876", "--proxy", "socks5://127.0.0.1:1")
    assert value["failed"] == "tcp"


def test_requests_of_operators_are_not_needed(check: Check, broker: TestBroker) -> None:
    for code in (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER):
        broker.fail(code, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, server=broker.name_server_address)
    value = check(broker.name_server_address, "-t", "Missing")
    assert value["failed"] == "signature"
    assert "some services hide topics" in value["reason"]
