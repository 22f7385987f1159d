"""TLS on real servers: with the self-signed certificate that they generate by default, and with real ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from integration.certificates import TLS_FOR_WHO_WANTS_IT, Certificates, make_certificates
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from rocketmq_py import TLS, Client, Message, SendStatus
from rocketmq_py.client import core_of
from rocketmq_py.errors import NameServerError, TLSError
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all, until_readable
from tests.behaviours.ways import WAYS, serves
from tests.cli.command import run_cli


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_certificate_of_an_unknown_authority_is_refused_by_default(
    own_cluster: Callable[..., Cluster], version: str, unique: str
) -> None:
    real = own_cluster(version, jvm=[TLS_FOR_WHO_WANTS_IT])
    async with Client(real.name_servers, tls=TLS()) as client, client.producer("senders") as producer:
        with pytest.raises(NameServerError, match=r"no trusted authority .*TLS\(ca_file=\.\.\.\)"):
            await producer.send(Message(unique, b"x"))
        with pytest.raises(TLSError, match="certificate verify failed"):
            await core_of(client).connections.get(real.name_servers)
    async with (
        Client(real.name_servers, tls=TLS(verify=False)) as client,
        client.producer("senders", send_timeout=15) as producer,
    ):
        assert (await producer.send(Message(unique, b"x"))).status is SendStatus.SEND_OK


@attrs.frozen
class Certified:
    """A cluster with certificates that requires them of clients."""

    cluster: Cluster
    certificates: Certificates

    @property
    def ca_file(self) -> Path:
        return self.certificates.ca_file

    @property
    def own(self) -> Path:
        return self.certificates.own

    @property
    def foreign(self) -> Path:
        return self.certificates.foreign


@pytest.fixture(scope="module", params=VERSIONS)
def certified(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Certified]:
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    with start_own_cluster(request.param, files=certificates.files, jvm=certificates.jvm) as cluster:
        yield Certified(cluster, certificates)


async def test_certificates_of_both_sides(certified: Certified, unique: str) -> None:
    tls = TLS(ca_file=certified.ca_file, certificate_file=certified.own)
    async with (
        Client(certified.cluster.name_servers, tls=tls) as client,
        client.producer("senders") as producer,
    ):
        await create_topic(client, unique, queues=1)
        result = await producer.send(Message(unique, b"x" * 1_000_000))
        (received,) = await read_all(client, unique, count=1)
        assert received.message_id == result.message_id


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_of_consuming_is_encrypted(
    certified: Certified, unique: str, way: str, tmp_path: Path
) -> None:
    if not serves(certified.cluster.version, way):
        pytest.skip("brokers of 4.x do not know pop")
    tls = TLS(ca_file=certified.ca_file, certificate_file=certified.own)
    async with Client(certified.cluster.name_servers, tls=tls) as client:
        await create_topic(client, unique, queues=1)
        async with client.producer("senders") as producer:
            for size in (1, 1_000_000):
                await producer.send(Message(unique, random.Random(size).randbytes(size)))
        await until_readable(client, unique, count=2)
        received = await WAYS[way](client, unique, f"group-{unique}", 2, tmp_path)
        assert sorted(len(message.body) for message in received) == [1, 1_000_000]


async def test_commands_are_encrypted(certified: Certified, unique: str) -> None:
    address = ("-n", certified.cluster.name_servers)
    trusted = (*address, "--tls-ca", str(certified.ca_file), "--tls-cert", str(certified.own))
    for arguments, printed in (
        (("topic", "create", unique, "--queues", "1", *trusted), f"topic {unique}: created on "),
        (
            (
                "send",
                "-t",
                unique,
                "hello",
                "--tls-ca",
                str(certified.ca_file),
                "--tls-cert",
                str(certified.own),
            ),
            "",
        ),
        (("tail", "-t", unique, "-o", "earliest", "-c", "1", *trusted), "hello\n"),
        (("message", "find", unique, "no-such-key", *trusted), "STORED"),
        (("group", "list", *trusted), "GROUP"),
    ):
        ended = await run_cli(*arguments, env={"NAMESRV_ADDR": certified.cluster.name_servers})
        assert ended.code == 0, ended.err
        assert ended.out.decode().startswith(printed)
    unknown = await run_cli("topic", "list", *address, "--tls-ca", str(certified.ca_file))
    assert unknown.code == 1
    assert "client certificate" in unknown.err
    untrusted = await run_cli("topic", "list", *address, "--tls", "--tls-cert", str(certified.own))
    assert untrusted.code == 1
    assert "no trusted authority signed its certificate" in untrusted.err
    insecure = await run_cli("topic", "list", *address, "--insecure", "--tls-cert", str(certified.own))
    assert insecure.code == 0, insecure.err


@pytest.mark.parametrize("certificate", ["none", "foreign"])
async def test_a_client_without_a_trusted_certificate_gets_a_clear_error(
    certified: Certified, certificate: str
) -> None:
    file = None if certificate == "none" else certified.foreign
    tls = TLS(ca_file=certified.ca_file, certificate_file=file)
    async with Client(certified.cluster.name_servers, tls=tls) as client:
        # The first call fails on the broken connection, the second during the back-off, without connecting.
        for _ in range(2):
            with pytest.raises(NameServerError, match="client certificate") as caught:
                await core_of(client).name_servers.cluster_info()
            assert certified.cluster.name_servers in str(caught.value)


async def test_a_server_with_another_name_is_refused(certified: Certified) -> None:
    tls = TLS(ca_file=certified.ca_file, certificate_file=certified.own, server_name="other.example")
    async with Client(certified.cluster.name_servers, tls=tls) as client:
        with pytest.raises(NameServerError, match=r"is for another host name.*'other\.example'"):
            await core_of(client).name_servers.cluster_info()
