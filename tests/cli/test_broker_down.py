"""Commands with one of three brokers down: results of the others, its error, and exit code 1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import trio

from rocketmq_py import Client, Message, blocking
from rocketmq_py.client import core_of
from rocketmq_py.testing import run_cluster
from tests.cli.conftest import Invoke

UP, DOWN = ["broker-a", "broker-c"], "broker-b"
GROUP, TOPIC, DEAD = "billing", "Orders", "%DLQ%billing"


async def prepare(address: str) -> None:
    """Store a message and a dead letter on each broker, and reset a group to before them."""
    async with (
        Client(address) as client,
        client.admin() as admin,
        client.producer("senders", retries=0) as producer,
    ):
        await admin.groups.create(GROUP)
        for topic in (TOPIC, DEAD):
            for queue in (await core_of(client).routes.get(topic)).write_queues:
                await producer.send(Message(topic, b"x", keys="k"), queue=queue)
        await admin.offsets.reset(GROUP, TOPIC, "earliest")


@pytest.fixture(scope="module")
def cluster_with_a_broker_down() -> Iterator[str]:
    """The name server of a cluster with a crashed broker that it still lists."""
    with run_cluster(brokers=3, topics={TOPIC: 1, DEAD: 1}) as cluster:
        trio.run(prepare, cluster.name_server_address)
        with blocking.Producer(cluster.name_server_address, group="asking") as producer:
            for _ in range(3):
                producer.send(Message(TOPIC, b"y"))
            cluster.partition(cluster.name_server_address, DOWN)
            cluster.crash(DOWN)
            yield cluster.name_server_address


@pytest.fixture(autouse=True)
def short_default_timeouts(default_timeouts: Callable[[float], None]) -> None:
    """Do not wait for long for the broker that is down."""
    default_timeouts(1.0)


WAITING = pytest.mark.long
"""For commands that `make check` leaves out, because each waits a second for the broker that is down. The
others show that commands print what :class:`Admin` returns. All operations are tested in tests/admin.
"""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("topic list", UP),
        (f"dlq list {GROUP}", [GROUP]),
        pytest.param(f"topic describe {TOPIC}", UP, marks=WAITING),
        pytest.param("topic create New --queues 2", UP, marks=WAITING),
        pytest.param(f"topic alter {TOPIC} --queues 3", UP, marks=WAITING),
        pytest.param("group list", UP, marks=WAITING),
        pytest.param(f"group describe {GROUP}", UP, marks=WAITING),
        pytest.param("group create new", UP, marks=WAITING),
        pytest.param(f"group alter {GROUP} --max-reconsume-times 3", UP, marks=WAITING),
        pytest.param(f"group reset {GROUP} --to latest --dry-run", UP, marks=WAITING),
        pytest.param(f"group reset {GROUP} --topic {TOPIC} --to latest --yes", UP, marks=WAITING),
        pytest.param(f"group reset {GROUP} --to earliest --yes", UP, marks=WAITING),
        pytest.param(f"group clone {GROUP} {GROUP} --yes", UP, marks=WAITING),
        pytest.param("broker list", UP, marks=WAITING),
        pytest.param("client list", ["asking", *UP], marks=WAITING),
        pytest.param(f"message find {TOPIC} k", ["k", *UP], marks=WAITING),
        pytest.param(f"dlq resend {GROUP} --all --dry-run", [GROUP], marks=WAITING),
        pytest.param("top --once --interval 0.1", [TOPIC, GROUP], marks=WAITING),
    ],
)
@pytest.mark.parametrize("form", ["json", pytest.param("wide", marks=WAITING)])
def test_results_of_the_other_brokers_are_printed(
    invoke: Invoke, cluster_with_a_broker_down: str, command: str, words: list[str], form: str
) -> None:
    if form == "wide" and command.startswith(("topic create", "group create")):
        command = command.replace("ew", "ewer")
    ended = invoke(*command.split(), f"--{form}", "-n", cluster_with_a_broker_down)
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: ")
    assert DOWN in line or "cannot connect to 127.0.0.1:" in line
    text = ended.out.decode()
    if form == "json":
        value = json.loads(text)
        if isinstance(value, dict):
            value.pop("failures", None)
        text = json.dumps(value)
    assert [word for word in words if word in text] == words


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        pytest.param(f"message find {TOPIC} k", 2, marks=WAITING),
        (f"dlq list {GROUP}", 2),
        pytest.param("client list", 1, marks=WAITING),
    ],
)
def test_results_contain_the_items_of_the_other_brokers(
    invoke: Invoke, cluster_with_a_broker_down: str, command: str, counts: int
) -> None:
    ended = invoke(*command.split(), "--json", "-n", cluster_with_a_broker_down)
    assert len(json.loads(ended.out)) == counts


def test_a_check_with_a_failed_broker_is_unknown(invoke: Invoke, cluster_with_a_broker_down: str) -> None:
    ended = invoke(
        "check", "lag", GROUP, "--warn", "100", "--critical", "200", "-n", cluster_with_a_broker_down
    )
    assert ended.code == 3
    assert ended.out.decode().startswith("UNKNOWN - billing: lag ")
    assert f"no answer from {DOWN} (cannot connect to" in ended.out.decode()


@pytest.mark.parametrize(("limit", "code"), [pytest.param("100", 3, marks=WAITING), ("0", 2)])
def test_a_check_with_a_failed_broker_says_that_the_lag_is_incomplete(
    invoke: Invoke, cluster_with_a_broker_down: str, limit: str, code: int
) -> None:
    check = ("check", "lag", GROUP, "--critical", limit, "-n", cluster_with_a_broker_down)
    reason = f"no answer from {DOWN} (cannot connect to"
    ended = invoke(*check)
    assert (ended.code, ended.err) == (code, "")
    assert reason in ended.out.decode()
    ended = invoke(*check, "--prometheus")
    assert ended.code == code
    assert ended.err.startswith(f"rocketmq-py: {reason}")
    ended = invoke(*check, "--json")
    assert (ended.code, ended.err) == (code, "")
    assert json.loads(ended.out)["reason"].startswith(reason)


@pytest.mark.parametrize("kind", [pytest.param("topic", marks=WAITING), "group"])
def test_a_partly_failed_deletion_names_the_brokers(
    invoke: Invoke, cluster_with_a_broker_down: str, kind: str
) -> None:
    name = f"temporary-{kind}"
    assert invoke(kind, "create", name, "-n", cluster_with_a_broker_down).code == 1
    # The topic is not on the crashed broker. The group is looked for on all brokers that are listed.
    ended = invoke(kind, "delete", name, "--yes", "-n", cluster_with_a_broker_down)
    if kind == "topic":
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.decode() == f"topic {name}: deleted on broker-a, broker-c\n"
        ended = invoke(kind, "delete", TOPIC, "--yes", "-n", cluster_with_a_broker_down)
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert f"failed on 1 of 3: {DOWN}: cannot connect to" in line
    assert line.endswith("it is done on broker-a, broker-c")
