"""Taskiq tasks on the embedded broker, run by Taskiq's own receiver, worker and scheduler."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import trio

pytest.importorskip("taskiq", reason="the extra taskiq is not installed")

from taskiq import Context, InMemoryBroker, SmartRetryMiddleware, TaskiqDepends, TaskiqScheduler
from taskiq.acks import AcknowledgeType
from taskiq.api import run_receiver_task
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.exceptions import SendTaskError
from taskiq.schedule_sources import LabelScheduleSource

from rocketmq_py import Client as TrioClient
from rocketmq_py import Message, MessageQueue
from rocketmq_py.blocking import Admin, Producer
from rocketmq_py.client import core_of
from rocketmq_py.client.client import member_callbacks
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.integrations.taskiq import RocketMQBroker
from rocketmq_py.metrics import MetricSource
from rocketmq_py.protocol.sends import send_fields
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG
from rocketmq_py.testing import TestBroker, run_broker
from tests.blocking.conftest import ENVIRONMENT, run_program

TOPIC, GROUP = "Tasks", "workers"
CONTEXT: Any = TaskiqDepends()
PATIENCE = 60


@pytest.fixture
def server() -> Iterator[TestBroker]:
    with run_broker(topics=[TOPIC]) as server:
        yield server


def asyncio_test(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an asyncio loop."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(function(*args, **kwargs), PATIENCE))

    return run


def broker_of(server: TestBroker, **options: Any) -> RocketMQBroker:
    broker = RocketMQBroker(server.name_server_address, topic=TOPIC, group=GROUP, **options)
    broker.with_result_backend(InmemoryResultBackend())
    return broker


@asynccontextmanager
async def working(broker: RocketMQBroker, ack_time: AcknowledgeType | None = None) -> AsyncIterator[None]:
    """Run tasks in the background."""
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker, ack_time=ack_time))
    try:
        yield
    finally:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        await broker.shutdown()


@asynccontextmanager
async def deliveries_of_a_task(server: TestBroker, *, invisible: float) -> AsyncIterator[AsyncIterator[Any]]:
    """Start a task, and listen to its deliveries."""
    broker = broker_of(server, invisible=invisible)
    await broker.startup()
    await broker.register_task(lambda: None, task_name="unused").kiq()
    deliveries = broker.listen()
    yield deliveries
    await deliveries.aclose()
    await broker.shutdown()


def acknowledged(server: TestBroker) -> int:
    return len(server.requests("ACK_MESSAGE")) + len(server.requests("BATCH_ACK_MESSAGE"))


@asyncio_test
async def test_tasks_and_results(server: TestBroker) -> None:
    broker = broker_of(server)

    @broker.task
    async def double(number: int) -> int:
        return 2 * number

    @broker.task
    def in_a_thread(number: int) -> int:
        return -number

    async with working(broker):
        tasks = [await double.kiq(number) for number in range(20)]
        results = [(await task.wait_result()).return_value for task in tasks]
        assert results == [2 * number for number in range(20)]
        assert (await (await in_a_thread.kiq(7)).wait_result()).return_value == -7
        await server.wait_until_async(lambda: acknowledged(server) == 21)
    assert {message.keys for message in server.messages(TOPIC)} >= {(task.task_id,) for task in tasks}


@asyncio_test
async def test_tasks_that_were_sent_before_the_first_worker(server: TestBroker) -> None:
    broker = broker_of(server)
    done = asyncio.Event()

    @broker.task
    async def finish() -> None:
        done.set()

    await broker.startup()
    await finish.kiq()
    await broker.shutdown()
    async with working(broker):
        await done.wait()


@pytest.mark.parametrize("label", [None, "when_executed", "when_received"])
def test_a_task_that_fails_is_acknowledged(server: TestBroker, label: str | None) -> None:
    """Taskiq stores the error as its result. Retries are the affair of its middlewares."""

    async def main() -> None:
        broker = broker_of(server)

        @broker.task(**({} if label is None else {"ack_type": label}))
        async def fail() -> None:
            raise ValueError("no")

        async with working(broker):
            result = await (await fail.kiq()).wait_result()
            assert isinstance(result.error, ValueError)
            await server.wait_until_async(lambda: acknowledged(server) == 1)

    asyncio.run(main())


@asyncio_test
async def test_manual_acknowledgements(server: TestBroker) -> None:
    broker = broker_of(server)
    runs: list[int] = []
    is_first, is_second = asyncio.Event(), asyncio.Event()

    @broker.task
    async def careful(context: Context = CONTEXT) -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            is_first.set()
            return  # without an acknowledgement
        await context.ack()
        is_second.set()

    async with working(broker, AcknowledgeType.MANUAL):
        await careful.kiq()
        await is_first.wait()
        assert acknowledged(server) == 0
        await asyncio.to_thread(server.advance, 61)
        await is_second.wait()
        await server.wait_until_async(lambda: acknowledged(server) == 1)
    assert runs == [0, 1]


def renewed(server: TestBroker, count: int) -> bool:
    return len(server.requests("CHANGE_MESSAGE_INVISIBLETIME")) >= count


@asyncio_test
async def test_a_running_task_is_kept_from_other_workers(server: TestBroker) -> None:
    broker = broker_of(server, invisible=6.0)
    release, runs = asyncio.Event(), []

    @broker.task
    async def long() -> str:
        runs.append(1)
        await release.wait()
        return "done"

    async with working(broker):
        task = await long.kiq()
        for renewals in (1, 2, 3):
            await server.wait_until_async(partial(renewed, server, renewals))
            await asyncio.to_thread(server.advance, 3)  # together more than the invisible time
        release.set()
        assert (await task.wait_result()).return_value == "done"
        await server.wait_until_async(lambda: acknowledged(server) == 1)
    assert runs == [1]
    assert not server.dead_letters(GROUP)


@asyncio_test
async def test_a_busy_broker_does_not_end_the_renewals_of_a_task(server: TestBroker) -> None:
    async with deliveries_of_a_task(server, invisible=0.3) as deliveries:
        server.fail("CHANGE_MESSAGE_INVISIBLETIME", times=1)
        delivery: Any = await anext(deliveries)
        await server.wait_until_async(lambda: len(server.requests("CHANGE_MESSAGE_INVISIBLETIME")) >= 3)
        await delivery.ack()


@asyncio_test
async def test_a_delivery_that_the_broker_refuses_is_not_renewed_again(server: TestBroker) -> None:
    async with deliveries_of_a_task(server, invisible=0.3) as deliveries:
        server.fail("CHANGE_MESSAGE_INVISIBLETIME", code=ResponseCode.NO_MESSAGE)
        first: Any = await anext(deliveries)
        second: Any = await anext(deliveries)
        third: Any = await anext(deliveries)
        assert len(server.requests("CHANGE_MESSAGE_INVISIBLETIME")) <= 3
        await third.ack()
        del first, second


@asyncio_test
async def test_a_task_that_runs_too_long_is_delivered_again(server: TestBroker) -> None:
    broker = broker_of(server, invisible=0.2, max_task_time=1e-9)
    is_second, runs = asyncio.Event(), []

    @broker.task
    async def hang() -> None:
        runs.append(1)
        if len(runs) > 1:
            is_second.set()
        await is_second.wait()

    async with working(broker):
        await hang.kiq()
        await is_second.wait()
    assert not server.requests("CHANGE_MESSAGE_INVISIBLETIME")


@asyncio_test
async def test_a_task_that_runs_at_the_end_is_named(
    server: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = MetricSource()
    member_callbacks.append(metrics.add)
    try:
        async with deliveries_of_a_task(server, invisible=5) as deliveries:
            delivery = await anext(deliveries)
    finally:
        member_callbacks.remove(metrics.add)
    (warning,) = [record for record in caplog.records if "cut off" in record.message]
    assert f"task cut off: group={GROUP} message=" in warning.message
    assert f" topic={TOPIC} broker=" in warning.message
    assert metrics.collect("cut_off") == {(("consumer_group", GROUP), ("topic", TOPIC)): 1}
    assert delivery.data


@asyncio_test
async def test_a_delivery_that_nothing_can_acknowledge_is_not_renewed(server: TestBroker) -> None:
    async with deliveries_of_a_task(server, invisible=0.2) as deliveries:
        delivery: Any = await anext(deliveries)
        await server.wait_until_async(lambda: len(server.requests("CHANGE_MESSAGE_INVISIBLETIME")) >= 1)
        del delivery
        gc.collect()
        again = await anext(deliveries)
        await again.ack()
    assert acknowledged(server) == 1


@asyncio_test
async def test_delayed_tasks(server: TestBroker) -> None:
    broker = broker_of(server)
    order: list[str] = []
    is_late = asyncio.Event()

    @broker.task(delay=60)
    async def late() -> None:
        order.append("late")
        is_late.set()

    @broker.task
    async def early() -> None:
        order.append("early")

    async with working(broker):
        await late.kiq()
        await (await early.kiq()).wait_result()
        await asyncio.to_thread(server.advance, 61)
        await is_late.wait()
    assert order == ["early", "late"]


@asyncio_test
async def test_retries_of_the_middleware_are_delayed(server: TestBroker) -> None:
    broker = broker_of(server)
    broker.add_middlewares(SmartRetryMiddleware(default_retry_count=2, default_delay=60))
    failed, succeeded = asyncio.Event(), asyncio.Event()

    @broker.task(retry_on_error=True)
    async def flaky() -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("no")
        succeeded.set()

    async with working(broker):
        await flaky.kiq()
        await failed.wait()
        await server.wait_until_async(lambda: len(server.requests("SEND_MESSAGE")) == 2)
        assert not succeeded.is_set()
        await asyncio.to_thread(server.advance, 61)
        await succeeded.wait()


@asyncio_test
async def test_scheduled_tasks(server: TestBroker) -> None:
    broker = broker_of(server)
    done = asyncio.Event()

    @broker.task(schedule=[{"time": datetime.now(UTC), "args": [7]}])
    async def scheduled(number: int) -> None:
        assert number == 7
        done.set()

    source = LabelScheduleSource(broker)
    scheduler = TaskiqScheduler(broker, [source])
    async with working(broker):
        await source.startup()
        [schedule] = await source.get_schedules()
        await scheduler.on_ready(source, schedule)
        await done.wait()


@asyncio_test
async def test_priorities(server: TestBroker) -> None:
    broker = broker_of(server)

    @broker.task(priority=3)
    async def urgent() -> None: ...

    await broker.startup()
    await urgent.kiq()
    await broker.shutdown()
    [message] = server.messages(TOPIC)
    assert message.properties["_SYS_MSG_PRIORITY_"] == "3"


@pytest.mark.parametrize(
    ("labels", "mistake"),
    [
        ({"delay": "soon"}, "the label delay is 'soon'; it must be a number"),
        ({"delay": -1}, "delay is -1.0 seconds; it must be 0 or more"),
        ({"priority": 0.5}, "the label priority is '0.5'; it must be a number"),
        ({"priority": 1, "delay": 1}, "neither a sharding key nor a delay"),
    ],
)
def test_wrong_labels(server: TestBroker, labels: dict[str, Any], mistake: str) -> None:
    async def main() -> None:
        broker = broker_of(server)
        task = broker.register_task(lambda: None, task_name="labelled", **labels)
        await broker.startup()
        with pytest.raises(SendTaskError) as caught:
            await task.kiq()
        assert mistake in str(caught.value.__cause__)
        await broker.shutdown()

    asyncio.run(main())
    assert server.messages(TOPIC) == []


@asyncio_test
async def test_tasks_wait_for_topics(server: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = RocketMQBroker(server.name_server_address, topic="NewTopic", group=GROUP, create_topic=False)
    done = asyncio.Event()

    @broker.task
    async def finish() -> None:
        done.set()

    async with working(broker):
        await server.wait_until_async(lambda: server.requests("GET_ROUTEINFO_BY_TOPIC", topic="NewTopic"))
        await finish.kiq()  # the broker creates the topic
        await done.wait()
    log_records.flush()
    assert "cannot receive tasks, retrying topic=NewTopic" in caplog.text


@asyncio_test
async def test_a_worker_starts_while_brokers_are_away(server: TestBroker) -> None:
    broker = broker_of(server, request_timeout=0.2, connect_timeout=0.2)
    done = asyncio.Event()

    @broker.task
    async def finish() -> None:
        done.set()

    await broker.startup()
    await finish.kiq()
    await broker.shutdown()
    await asyncio.to_thread(server.crash)
    async with working(broker):
        await asyncio.to_thread(server.restart)
        await done.wait()


@asyncio_test
@pytest.mark.long
async def test_tasks_are_sent_and_run_after_the_broker_was_away(server: TestBroker) -> None:
    broker = broker_of(server)
    runs, last = [], asyncio.Event()

    @broker.task
    async def note(number: int) -> None:
        runs.append(number)
        if number == 2:
            last.set()

    async with working(broker):
        await (await note.kiq(1)).wait_result()
        await asyncio.to_thread(server.crash)
        sending = asyncio.create_task(note.kiq(2))
        await asyncio.wait([sending], timeout=2)
        assert not sending.done()
        await asyncio.to_thread(server.restart)
        async with asyncio.timeout(15):  # a second for the library, the rest for a busy machine
            await sending
            await last.wait()
    assert runs == [1, 2]


@asyncio_test
async def test_a_message_that_is_not_a_task_becomes_a_dead_letter_at_once(
    server: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = broker_of(server)

    @broker.task
    async def finish() -> str:
        return "done"

    def send() -> None:
        with Producer(server.name_server_address) as producer:
            producer.send(Message(TOPIC, b"no task"))

    await asyncio.to_thread(send)
    async with working(broker):
        assert (await (await finish.kiq()).wait_result()).return_value == "done"
        await server.wait_until_async(lambda: acknowledged(server) == 2)
        await server.wait_until_async(lambda: len(server.dead_letters(GROUP)) == 1)
    [letter] = server.dead_letters(GROUP)
    assert letter.body == b"no task"
    log_records.flush()
    assert "a message is not a task, and becomes a dead letter topic=Tasks group=workers" in caplog.text


@asyncio_test
async def test_a_worker_creates_its_topic() -> None:
    with run_broker(auto_create_topic_enable=False) as server:
        broker = broker_of(server, queues_per_topic=3)

        @broker.task
        async def finish() -> str:
            return "done"

        async with working(broker):
            await server.wait_until_async(lambda: server.requests("UPDATE_AND_CREATE_TOPIC"))
            assert (await (await finish.kiq()).wait_result()).return_value == "done"
        assert await asyncio.to_thread(queues_of_topic, server) == 3


@asyncio_test
async def test_a_worker_waits_for_a_topic_that_it_must_not_create() -> None:
    with run_broker(auto_create_topic_enable=False) as server:
        broker = broker_of(server, create_topic=False)

        @broker.task
        async def finish() -> str:
            return "done"

        async with working(broker):
            await server.wait_until_async(lambda: server.requests("GET_ROUTEINFO_BY_TOPIC"))
            assert not server.requests("UPDATE_AND_CREATE_TOPIC")
            await asyncio.to_thread(server.create_topic, TOPIC)
            assert (await (await finish.kiq()).wait_result()).return_value == "done"


def queues_of_topic(server: TestBroker) -> int:
    with Admin(server.name_server_address) as admin:
        return admin.topics.describe(TOPIC).brokers["broker-a"].write_queues


async def send_corrupt_task(address: str) -> None:
    """Send a message that is flagged as compressed, and is not."""
    queue = MessageQueue(TOPIC, "broker-a", 0)
    fields = send_fields(
        Message(TOPIC, b"corrupt", keys="corrupt"), queue,
        producer_group="senders", unique_id="7F01", born_time_ms=1, system_flag=COMPRESSED_FLAG,
    )  # fmt: skip
    async with TrioClient(address) as client:
        await core_of(client).routes.get(TOPIC)
        await core_of(client).brokers.send(queue, fields, b"corrupt")


@asyncio_test
async def test_a_task_that_cannot_be_decompressed_becomes_a_dead_letter(
    server: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(trio.run, send_corrupt_task, server.name_server_address)
    async with working(broker_of(server, invisible=0.1, max_reconsume_times=1)):
        await server.wait_until_async(lambda: server.dead_letters(GROUP))
    log_records.flush()
    assert "cannot decompress a task topic=Tasks group=workers key=corrupt" in caplog.text


@asyncio_test
async def test_a_broker_that_is_not_open() -> None:
    broker = RocketMQBroker("127.0.0.1:1")
    task = broker.register_task(lambda: None, task_name="closed")
    with pytest.raises(SendTaskError) as caught:
        await task.kiq()
    assert isinstance(caught.value.__cause__, ClosedError)
    assert "await broker.startup() first" in str(caught.value.__cause__)
    with pytest.raises(ClosedError, match="startup"):
        await anext(broker.listen())
    await broker.shutdown()


@pytest.mark.parametrize(
    "options",
    [
        {"address": 5}, {"topic": "no topic!"}, {"group": ""}, {"invisible": 0}, {"invisible": "1"},
        {"max_task_time": 0}, {"max_reconsume_times": -1}, {"colour": "red"},
    ],
)  # fmt: skip
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RocketMQBroker(**options)


@asyncio_test
async def test_taskiqs_broker_for_tests_runs_the_same_tasks(server: TestBroker) -> None:
    """A program chooses the broker by its environment, as Taskiq's documentation proposes."""

    async def double(number: int) -> int:
        return 2 * number

    for broker in (InMemoryBroker(), broker_of(server)):
        task = broker.register_task(double, task_name="double", delay=0, ack_type="when_saved")
        running: Any = working(broker) if isinstance(broker, RocketMQBroker) else broker
        async with running:
            result = await (await task.kiq(7)).wait_result()
        assert result.return_value == 14


@pytest.mark.long
def test_the_worker_of_the_command_line(server: TestBroker, tmp_path: Path) -> None:
    """Worker processes run tasks, and end well on SIGTERM."""
    environment = {**ENVIRONMENT, "NAMESRV_ADDR": server.name_server_address}
    examples = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], examples])
    command = [sys.executable, "-m", "taskiq", "worker", "--workers", "2", "examples.taskiq_tasks:broker"]
    log = tmp_path / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as worker,
    ):
        try:
            kick = [sys.executable, "-m", "examples.taskiq_tasks", "10"]
            assert subprocess.check_output(kick, env=environment, text=True) == "10 orders are on their way\n"
            server.wait_until(lambda: acknowledged(server) >= 11, timeout=PATIENCE)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE)
    text = log.read_text()
    assert sum(f"order {number} is billed" in text for number in range(10)) == 10, text
    assert "all orders are billed" in text
    assert "Traceback" not in text


@pytest.mark.long
def test_a_worker_waits_at_sigterm_for_its_running_task(server: TestBroker, tmp_path: Path) -> None:
    program = """
        import asyncio, os
        from rocketmq_py.integrations.taskiq import RocketMQBroker

        broker = RocketMQBroker(os.environ["NAMESRV_ADDR"], topic="Tasks", group="workers")

        @broker.task(task_name="slow")
        async def slow() -> None:
            print("begins", flush=True)
            await asyncio.sleep(3)
            print("ends", flush=True)
    """
    (tmp_path / "slow_tasks.py").write_text(dedent(program))
    environment = {**ENVIRONMENT, "NAMESRV_ADDR": server.name_server_address}
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(tmp_path)])
    command = [sys.executable, "-m", "taskiq", "worker", "--workers", "1", "slow_tasks:broker"]

    @asyncio_test
    async def send() -> None:
        broker = broker_of(server)
        await broker.startup()
        await broker.register_task(lambda: None, task_name="slow").kiq()
        await broker.shutdown()

    send()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "begins\n"
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.stdout.read() == "ends\n"
        worker.wait(PATIENCE)
    assert acknowledged(server) == 1


def test_the_extra_is_named_where_it_is_missing() -> None:
    program = """
        import sys
        sys.modules["taskiq"] = None
        from rocketmq_py.errors import ConfigurationError
        try:
            import rocketmq_py.integrations.taskiq
        except ConfigurationError as error:
            print(error)
    """
    assert "install rocketmq-py[taskiq]" in run_program(program)
