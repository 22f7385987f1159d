"""The provider of real clusters: they start, follow commands, and leave no process or file behind."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from integration.clusters import containers, local, probe, provider
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.folders import remove_abandoned_folders
from integration.clusters.layout import Node
from integration.clusters.local import start_local_cluster
from integration.clusters.plugin import StartCluster
from integration.clusters.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
STARTED_ELSEWHERE = """
from integration.clusters.local import start_local_cluster
cluster = start_local_cluster("4.9.7")
print(cluster.name_servers, *cluster.brokers.values(), cluster.nodes.folder, flush=True)
input()
"""
WHAT_IS_LEFT_OF = """
import sys
from integration.clusters import ports
from integration.clusters.cluster import ClusterStartError
some = map(int, sys.argv[1:])
ports._candidates = lambda: some
try:
    while True:
        print(*ports.free_ports(1))
except ClusterStartError:
    pass
"""


def test_a_cluster_is_started_once_a_run(real_cluster: StartCluster, real_name: str) -> None:
    cluster = real_cluster(real_name)
    assert cluster.name == real_name
    assert probe.brokers_known_by(cluster.name_servers) == cluster.brokers
    assert real_cluster(real_name) is cluster


def test_settings_reach_the_broker(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster("4.9.7", settings={"flushDiskType": "SYNC_FLUSH"})
    (address,) = cluster.brokers.values()
    settings = probe.broker_settings(address)
    assert settings["flushDiskType"] == "SYNC_FLUSH"
    assert settings["mappedFileSizeCommitLog"] == str(64 << 20)


def test_brokers_are_killed_frozen_and_restarted(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster("4.9.7", brokers=2)
    first, second = cluster.brokers.values()
    assert list(cluster.brokers) == ["broker-a", "broker-b"]

    cluster.kill("broker-a")
    assert cluster.stored("broker-a", "abort") == "", "the marker of a broker that did not shut down cleanly"
    assert not probe.broker_serves(first)
    seen = probe.seen(Node("broker-a", 0, first), cluster.name_servers)
    assert seen.startswith(f"the name server at {cluster.name_servers} knows ")
    assert f"; the broker at {first} does not answer: " in seen
    assert probe.broker_serves(second)
    assert probe.wait_until(lambda: list(probe.brokers_known_by(cluster.name_servers)) == ["broker-b"], 30)
    cluster.restart("broker-a")
    assert probe.brokers_known_by(cluster.name_servers) == cluster.brokers

    cluster.freeze("broker-b")
    assert not probe.broker_serves(second)
    cluster.resume("broker-b")
    assert probe.broker_serves(second)

    cluster.kill("broker-b", gently=True)
    with pytest.raises(FileNotFoundError):
        cluster.stored("broker-b", "abort")
    assert "broker-b" not in probe.brokers_known_by(cluster.name_servers)


def test_a_broker_registers_on_request(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster("5.5.0")
    (address,) = cluster.brokers.values()
    probe.ask_to_register(address, "4", timeout=30)
    assert probe.broker_settings(address)["brokerPermission"] == "4"
    assert probe.is_registered(Node("broker-a", 0, address), cluster.name_servers)


def test_stopping_twice_does_nothing_more(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster("4.9.7")
    (address,) = cluster.brokers.values()
    cluster.stop()
    cluster.stop()
    assert not probe.broker_serves(address)
    assert not probe.name_server_serves(cluster.name_servers)


@pytest.mark.usefixtures("java_and_maven")
def test_a_broker_that_ends_at_once_is_an_error_with_its_log() -> None:
    with pytest.raises(ClusterStartError, match=r"broker-a of RocketMQ 4.9.7 has ended:\n(.*\n)*.*illegal"):
        start_local_cluster("4.9.7", settings={"namesrvAddr": "nonsense"})


# Only Linux ends a child process when its parent is killed.
@pytest.mark.usefixtures("java_and_maven")
@pytest.mark.parametrize("number", [signal.SIGINT, *([signal.SIGKILL] if sys.platform == "linux" else [])])
def test_nothing_outlives_the_process_that_started_it(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTED_ELSEWHERE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
    ) as run:
        assert run.stdout is not None
        name_server, broker, folder = run.stdout.readline().split()
        assert probe.broker_serves(broker)
        run.send_signal(number)
    assert probe.wait_until(lambda: not probe.broker_serves(broker), 10)
    assert probe.wait_until(lambda: not probe.name_server_serves(name_server), 10)
    remove_abandoned_folders()
    assert not os.path.exists(folder)


def test_the_folder_of_a_running_cluster_is_not_removed(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster("4.9.7")
    remove_abandoned_folders()
    cluster.restart("broker-a")


def test_the_ports_of_a_stopped_cluster_stay_reserved() -> None:
    ours = set(free_ports(3))
    # Not all ports: other processes start clusters at the same time.
    near = sorted({str(port + 4 * step) for port in ours for step in range(-20, 20)})
    run = subprocess.run(
        [sys.executable, "-c", WHAT_IS_LEFT_OF, *near],
        check=True,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    others = {int(port) for port in run.stdout.split()}
    assert len(others) > 20
    assert not ours & others


@pytest.mark.usefixtures("java_and_maven")
def test_a_broker_gets_another_port_if_its_port_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        offers = [[*free_ports(1), taken.getsockname()[1]], free_ports(2)]
        monkeypatch.setattr(local, "free_ports", lambda _count: offers.pop(0))
        with start_local_cluster("4.9.7") as cluster:
            assert not offers
            assert probe.broker_serves(cluster.brokers["broker-a"])


@pytest.mark.usefixtures("java_and_maven")
def test_a_machine_without_ipv6_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_ipv6(_: socket.AddressFamily) -> NoReturn:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", without_ipv6)
    with pytest.raises(ClusterUnavailableError, match=r"cannot listen on ::1 .*: this machine has no IPv6"):
        start_local_cluster("4.9.7", host="::1")


def test_without_docker_and_java_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_CLUSTERS", raising=False)
    monkeypatch.setattr(containers, "engine_answers", lambda: False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterUnavailableError, match="no Docker engine answers; java is not on the PATH"):
        provider.start_cluster("5.5.0")


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("containers", "no Docker engine answers; ROCKETMQ_CLUSTERS=containers"),
        ("maven", "ROCKETMQ_CLUSTERS=maven; java is not on the PATH"),
        ("docker", "ROCKETMQ_CLUSTERS=docker: it is containers, maven, or not set"),
    ],
)
def test_a_forced_provider_is_the_only_one_tried(
    monkeypatch: pytest.MonkeyPatch, way: str, reason: str
) -> None:
    monkeypatch.setenv("ROCKETMQ_CLUSTERS", way)
    monkeypatch.setattr(containers, "engine_answers", lambda: False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterUnavailableError, match=reason):
        provider.start_cluster("5.5.0")


def test_an_unreachable_name_server_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV", "127.0.0.1:1")
    assert provider.external_name() == "external"
    with pytest.raises(ClusterUnavailableError, match=r"no name server at ROCKETMQ_NAMESRV \(127.0.0.1:1\)"):
        provider.external_cluster()


def test_a_cluster_in_the_environment_is_used_as_it_is(
    own_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = own_cluster("4.9.7")
    monkeypatch.setenv("ROCKETMQ_NAMESRV", running.name_servers)
    monkeypatch.setenv("ROCKETMQ_VERSION", "4.9.7")
    cluster = provider.external_cluster()
    assert (cluster.name, cluster.version, cluster.origin) == ("4.9.7", "4.9.7", "environment")
    assert cluster.brokers == running.brokers
    with pytest.raises(ClusterUnavailableError, match="broker-a is not ours to stop"):
        cluster.kill("broker-a")
    cluster.stop()
    assert probe.broker_serves(running.brokers["broker-a"])
