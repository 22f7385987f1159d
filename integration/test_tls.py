"""TLS on real servers: they make a certificate of their own, which nobody vouches for, at every start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from rocketmq_py import TLS, Client, Message, SendStatus
from rocketmq_py.errors import NameServerError


@pytest.fixture(params=VERSIONS)
def real(request: pytest.FixtureRequest, real_cluster: Callable[[str], Cluster]) -> Cluster:
    return real_cluster(request.param)


async def test_a_certificate_that_nobody_vouches_for_is_refused_unless_told_otherwise(
    real: Cluster, unique: str
) -> None:
    async with Client(real.name_servers, tls=TLS()) as client, client.producer("senders") as producer:
        with pytest.raises(NameServerError, match="certificate verify failed"):
            await producer.send(Message(unique, b"x"))
    async with (
        Client(real.name_servers, tls=TLS(verify=False)) as client,
        client.producer("senders", send_timeout=15) as producer,
    ):
        assert (await producer.send(Message(unique, b"x"))).status is SendStatus.SEND_OK
