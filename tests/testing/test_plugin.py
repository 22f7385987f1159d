"""The pytest plugin, with plain tests and with tests on trio and asyncio."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from rocketmq_py import Message, ReceivedMessage, blocking
from rocketmq_py.testing import RealCluster, run_broker

pytestmark = pytest.mark.sockets
pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    others = [] if "asyncio" in arguments else ["-p", "no:asyncio"]
    plugins = ["-p", "rocketmq_py.pytest_plugin", "-p", "no:xdist", *others]
    return pytester.runpytest_inprocess(*plugins, *arguments)


TESTS = """
import asyncio
import pytest
import trio
from rocketmq_py import Message, Producer, aio, blocking

seen = []

@pytest.mark.parametrize("number", range(2))
def test_plain(rocketmq_broker, number):
    seen.append(rocketmq_broker)
    topic = rocketmq_broker.name("T")
    assert rocketmq_broker.messages(topic) == []
    with blocking.Producer(rocketmq_broker.name_server_address, group=rocketmq_broker.name("p")) as producer:
        producer.send(Message(topic, b"x"))
    [message] = rocketmq_broker.wait_for(topic)
    assert message.body == b"x"
    assert rocketmq_broker.committed(rocketmq_broker.name("g")) == {}
    assert seen[0] is rocketmq_broker

@pytest.mark.trio
async def test_on_trio(rocketmq_broker):
    topic = rocketmq_broker.name("T")
    async with Producer(rocketmq_broker.name_server_address, group=rocketmq_broker.name("p")) as producer:
        await producer.send(Message(topic, b"x"))
    assert len(await rocketmq_broker.wait_for_async(topic)) == 1

def test_on_asyncio(rocketmq_broker):
    async def main():
        topic, group = rocketmq_broker.name("T"), rocketmq_broker.name("p")
        async with aio.Producer(rocketmq_broker.name_server_address, group=group) as producer:
            await producer.send(Message(topic, b"x"))
        assert len(await rocketmq_broker.wait_for_async(topic)) == 1

    asyncio.run(main())

@pytest.mark.rocketmq_embedded
def test_that_no_real_cluster_runs(rocketmq_broker):
    rocketmq_broker.advance("1h")
    assert rocketmq_broker.requests() == []
"""


def test_each_test_gets_an_empty_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    run(pytester, "--strict-markers").assert_outcomes(passed=5)


def test_tests_run_on_a_real_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    with run_broker() as broker:
        address = broker.name_server_address
        run(pytester, f"--rocketmq-namesrv={address}").assert_outcomes(passed=4, skipped=1)
        topics = {request.topic or "" for request in broker.requests("SEND_MESSAGE")}
    assert len(topics) == 4
    assert all(topic.startswith("T-") for topic in topics)


def test_the_error_on_a_real_cluster_names_the_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(rocketmq_broker): rocketmq_broker.advance(1)")
    with run_broker() as broker:
        result = run(pytester, f"--rocketmq-namesrv={broker.name_server_address}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*advance needs an embedded broker, and 127.0.0.1:* is a real cluster: *"])


@pytest.mark.parametrize("name", ["advance", "broker_names", "broker_address", "crash"])
def test_a_real_cluster_refuses_each_attribute_of_an_embedded_broker(name: str) -> None:
    with run_broker() as broker, closing(RealCluster(broker.name_server_address)) as cluster:
        with pytest.raises(RuntimeError, match=f"{name} needs an embedded broker, .* is a real cluster"):
            getattr(cluster, name)
        with pytest.raises(AttributeError, match="'RealCluster' object has no attribute 'missing'"):
            cluster.missing  # noqa: B018  # the access is the test


def test_the_names_of_a_real_cluster_change_with_each_reset() -> None:
    with run_broker() as broker, closing(RealCluster(broker.name_server_address)) as cluster:
        names = []
        for _ in range(2):
            names += [cluster.name("T"), cluster.name("T")]
            cluster.reset()
    first, again, second, _ = names
    assert first == again != second
    assert second.startswith("T-")


def test_a_real_cluster_has_the_messages_and_offsets_of_an_embedded_broker() -> None:
    def fail(message: ReceivedMessage) -> None:
        raise ValueError("bad")

    with run_broker(topics={"T": 2}) as broker, closing(RealCluster(broker.name_server_address)) as cluster:
        with blocking.Producer(broker.name_server_address, group="p") as producer:
            for number in range(4):
                producer.send(Message("T", b"%d" % number))
        with blocking.PushConsumer(
            broker.name_server_address,
            group="g",
            consume_from="earliest",
            max_reconsume_times=0,
            commit_interval=0.1,
        ) as consumer:
            consumer.subscribe("T")
            consumer.start(fail)
            broker.wait_for("%DLQ%g", 4)
            broker.wait_until(lambda: {queue.topic for queue in broker.committed("g")} == {"T", "%RETRY%g"})
        for inspected in (broker, cluster):
            assert sorted(message.body for message in inspected.messages("T")) == [b"0", b"1", b"2", b"3"]
            assert len(inspected.dead_letters("g")) == 4
        assert cluster.committed("g") == broker.committed("g")


def test_a_failed_wait_on_a_real_cluster_describes_its_contents(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from rocketmq_py import Message, blocking

        def test_it(rocketmq_broker):
            topic = rocketmq_broker.name("T")
            rocketmq_broker.create_topic(topic, queues=1)
            with blocking.Producer(rocketmq_broker.name_server_address, group="p") as producer:
                producer.send(Message(topic, b"x"))
            rocketmq_broker.wait_for(topic, 2, timeout=0.01)
        """
    )
    with run_broker() as broker:
        result = run(pytester, f"--rocketmq-namesrv={broker.name_server_address}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*T-* has 1 messages, not 2, after 0.01 s", "*  T-*: 1 messages"])


def test_settings_and_factories(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from rocketmq_py import Message, blocking

        @pytest.fixture(scope="session")
        def rocketmq_broker_settings():
            return {"broker_name": "mine", "topics": {"T": 2}}

        @pytest.fixture(scope="session")
        def rocketmq_cluster_settings():
            return {"brokers": 3}

        def test_settings(rocketmq_broker):
            assert rocketmq_broker.broker_names == ("mine",)

        def test_a_cluster(rocketmq_cluster):
            assert len(rocketmq_cluster.broker_names) == 3
            assert len(rocketmq_cluster.name_server_address.split(";")) == 2

        def test_factories(rocketmq_broker_factory, rocketmq_cluster_factory):
            one, two = rocketmq_broker_factory(broker_name="one"), rocketmq_broker_factory(broker_name="two")
            assert one.broker_names + two.broker_names == ("one", "two")
            assert len(rocketmq_cluster_factory(3).broker_names) == 3
        """
    )
    run(pytester).assert_outcomes(passed=3)


@pytest.mark.skipif(
    importlib.util.find_spec("pytest_asyncio") is None, reason="pytest-asyncio is not installed"
)
def test_with_pytest_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from rocketmq_py import Message, aio

        @pytest.mark.asyncio
        async def test_it(rocketmq_broker):
            async with aio.Producer(rocketmq_broker.name_server_address, group="p") as producer:
                await producer.send(Message("T", b"x"))
            assert len(await rocketmq_broker.wait_for_async("T")) == 1
        """
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    run(pytester, "-p", "asyncio").assert_outcomes(passed=1)


@pytest.mark.skipif(not importlib.util.find_spec("anyio"), reason="anyio is not installed")
def test_with_anyio_on_asyncio_and_trio(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from rocketmq_py import Message, Producer, aio

        @pytest.fixture(params=["asyncio", "trio"])
        def anyio_backend(request):
            return request.param

        @pytest.mark.anyio
        async def test_it(rocketmq_broker, anyio_backend):
            producer_of = {"asyncio": aio.Producer, "trio": Producer}[anyio_backend]
            async with producer_of(rocketmq_broker.name_server_address, group="p") as producer:
                await producer.send(Message("T", b"x"))
            assert len(await rocketmq_broker.wait_for_async("T")) == 1
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_a_clock_that_does_not_wait_for_the_brokers_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        import trio
        import trio.testing
        from rocketmq_py import Message, Producer
        from rocketmq_py.broker import EmbeddedBroker

        @pytest.fixture
        def program(rocketmq_broker):
            return rocketmq_broker.name_server_address

        @pytest.mark.trio
        async def test_brokers_in_a_thread(program, autojump_clock):
            async with Producer(program, group="p") as producer:
                await producer.send(Message("T", b"x"))

        @pytest.mark.trio
        async def test_a_broker_in_the_test(autojump_clock):
            async with EmbeddedBroker() as broker:
                async with Producer(broker.name_server_address, group="p") as producer:
                    await producer.send(Message("T", b"x"))
                await trio.sleep(3600)
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*autojump_clock does not wait for the thread of rocketmq_broker: *EmbeddedBroker*simulate*"]
    )


def test_the_plugin_loads_nothing_until_it_is_used(pytester: pytest.Pytester) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert list(project["entry-points"]["pytest11"].values()) == ["rocketmq_py.pytest_plugin"]
    program = "import sys, rocketmq_py.pytest_plugin; print('trio' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "False\n"
