"""``tail`` of several topics and time ranges, to files and commands, and reports of a group's lag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client, Message, Position, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.file_names import compile_name
from rocketmq_py.cli.runner import CommandError
from rocketmq_py.cli.tail_loop import Tail, report_lag
from rocketmq_py.client import core_of
from rocketmq_py.testing import World, simulate
from tests.cli.command import Ended
from tests.cli.conftest import Invoke

TOPICS = ("order-new", "order-old", "Payments")


async def prepare(address: str) -> list[int]:
    """Create three topics with two messages each. Return the store time of each message."""
    times = []
    async with Client(address) as client:
        async with client.admin() as admin:
            for topic in TOPICS:
                await admin.topics.create(topic, queues=1)
        async with client.producer("senders") as producer, client.reader() as reader:
            for number in (1, 2):
                for topic in TOPICS:
                    result = await producer.send(Message(topic, b"%d" % number, tags="a/b", keys="k1 k2"))
                    found = [one async for one in reader.range(result.queue, result.queue_offset)]
                    times.append(found[0].store_time_ms)
                await trio.sleep(0.01)  # the second messages get later store times
    return times


def test_several_topics_and_patterns(invoke_with_files: Callable[..., Ended], threaded_broker: str) -> None:
    trio.run(prepare, threaded_broker)
    tail = ("tail", "-n", threaded_broker, "-o", "earliest", "-e", "-f", r"%t %s\n")
    for topics, wanted in (
        (["-t", "order-*"], TOPICS[:2]),
        (["-t", "Pay????s", "-t", "order-new", "-t", "order-n*"], ("order-new", "Payments")),
        (["-t", "*"], TOPICS),
    ):
        ended = invoke_with_files(*tail, *topics)
        assert (ended.code, ended.err) == (0, "")
        lines = [f"{topic} {number}".encode() for topic in wanted for number in (1, 2)]
        assert sorted(ended.lines) == sorted(lines)
    some = invoke_with_files(*tail, "-t", "*", "-c", "4")
    assert (some.code, len(some.lines)) == (0, 4)


def test_a_range_of_times(invoke: Invoke, threaded_broker: str, tmp_path: Path) -> None:
    times = trio.run(prepare, threaded_broker)
    tail = ("tail", "-n", threaded_broker, "-t", "*", "--to", str(tmp_path / "{topic}"))
    assert invoke(*tail, "--since", f"@{times[0]}", "--until", f"@{times[2] + 1}").code == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(TOPICS, "1\n")
    assert invoke(*tail, "-o", f"@{times[3]}", "--until", f"@{times[-1] + 1}").code == 0
    assert {path.read_text() for path in tmp_path.iterdir()} == {"1\n2\n"}


def test_file_names_contain_attributes_of_messages(
    invoke: Invoke, threaded_broker: str, tmp_path: Path
) -> None:
    trio.run(prepare, threaded_broker)
    name = str(tmp_path / "{topic}" / "{broker}-{queue}-{tags}-{key}.txt")
    ended = invoke("tail", "-t", "Payments", "-o", "earliest", "-e", "--to", name, "-n", threaded_broker)
    assert (ended.code, ended.out) == (0, b"")
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert path.relative_to(tmp_path) == Path("Payments/broker-a-0-a%2Fb-k1.txt")
    assert path.read_text() == "1\n2\n"


def test_an_unwritable_file_is_one_line(invoke: Invoke, threaded_broker: str, tmp_path: Path) -> None:
    trio.run(prepare, threaded_broker)
    (tmp_path / "file").write_text("in the way")
    for name in (tmp_path, tmp_path / "file" / "{topic}"):
        ended = invoke(
            "tail", "-t", "Payments", "-o", "earliest", "-e", "--to", str(name), "-n", threaded_broker
        )
        assert ended.code == 1
        assert ended.err.startswith(f"rocketmq-py: cannot write {str(name).replace('{topic}', 'Payments')}: ")


def test_a_command_for_each_message(invoke: Invoke, threaded_broker: str, tmp_path: Path) -> None:
    trio.run(prepare, threaded_broker)
    output = tmp_path / "output"
    command = (
        f'echo "$(cat) $ROCKETMQ_MESSAGE_TOPIC $ROCKETMQ_MESSAGE_TAGS $ROCKETMQ_MESSAGE_KEYS" >> {output}'
    )
    tail = ("tail", "-t", "Payments", "-n", threaded_broker)
    ended = invoke(*tail, "-o", "earliest", "-e", "-x", command)
    assert (ended.code, ended.out, ended.err) == (0, b"", "")
    assert output.read_text() == "1 Payments a/b k1 k2\n2 Payments a/b k1 k2\n"
    failed = invoke(*tail, "-o", "earliest", "-e", "-x", f"cat >> {output}; exit 3")
    assert failed.code == 1
    assert failed.err.startswith("rocketmq-py: the command failed with exit code 3 for message ")
    assert output.read_text().endswith("2 Payments a/b k1 k2\n1\n")


def test_a_group_runs_a_command_for_each_message(
    invoke: Invoke, threaded_broker: str, tmp_path: Path
) -> None:
    trio.run(prepare, threaded_broker)
    ended = invoke(
        *("tail", "-t", "order-*", "-G", "shell", "-o", "earliest", "-c", "4", "-n", threaded_broker),
        *("-x", f"cat >> {tmp_path}/$ROCKETMQ_MESSAGE_TOPIC"),
    )
    assert ended.code == 0, ended.err
    assert {path.name for path in tmp_path.iterdir()} == set(TOPICS[:2])
    assert all(sorted(path.read_text().split()) == ["1", "2"] for path in tmp_path.iterdir())


@pytest.mark.usefixtures("jumping_clock")
class ListSink:
    """Records the bodies of messages, after ``failures`` calls that fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.printed: list[bytes] = []

    async def put(self, _: ReceivedMessage, parts: Sequence[bytes]) -> None:
        if self.failures:
            self.failures -= 1
            raise CommandError("the command failed")
        self.printed += parts

    put_now = put

    async def flush(self) -> None:
        pass


def tail_to(sink: ListSink, world: World, position: Position, *, count: int) -> Tail:
    """Return the job that prints ``count`` messages of Orders to ``sink``."""
    return Tail(
        Access(address=world.name_server_address),
        ("Orders",),
        "*",
        position,
        lambda message: [message.body],
        count,
        sink=lambda _: sink,
    )


def test_a_group_stops_after_count_messages_if_some_are_redelivered() -> None:
    sink = ListSink(failures=1)

    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.producer("senders") as producer:
            for body in (b"1", b"2"):
                await producer.send(Message("Orders", body))
        await tail_to(sink, world, Position.earliest, count=2).as_member("shell")

    simulate(program, seed=1, topics={"Orders": 1})
    assert sorted(sink.printed) == [b"1", b"2"]


def test_a_group_starts_at_the_end_while_a_broker_is_down() -> None:
    sink = ListSink()

    async def program(world: World) -> None:
        async with (
            Client(world.name_server_address) as client,
            client.producer("senders") as producer,
            trio.open_nursery() as nursery,
        ):
            queues = (await core_of(client).routes.get("Orders")).write_queues
            (queue,) = (queue for queue in queues if queue.broker_name == "broker-a")
            world.partition(world.name_server_address, "broker-b")
            await world.crash("broker-b")
            nursery.start_soon(tail_to(sink, world, Position.latest, count=1).as_member, "shell")
            await trio.sleep(60)
            await producer.send(Message("Orders", b"1"), queue=queue)

    simulate(program, seed=1, brokers=2, topics={"Orders": 1})
    assert sink.printed == [b"1"]


@pytest.mark.usefixtures("jumping_clock")
async def test_the_lag_of_a_group_is_reported_periodically(capsys: pytest.CaptureFixture[str]) -> None:
    async with EmbeddedBroker() as broker:
        await prepare(broker.name_server_address)
        async with Client(broker.name_server_address) as client:
            async with client.reader() as reader:
                await reader.commit("shell", dict.fromkeys(await reader.offsets("Payments"), 0))
            with trio.move_on_after(25):
                await report_lag(client, "shell", 10)
            with trio.move_on_after(15):
                await report_lag(client, "missing", 10)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == second == "rocketmq-py: group 'shell': lag 2, 0 members"
    assert third.startswith("rocketmq-py: group 'missing': group 'missing' does not exist")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "Missing option '-t'"),
        (["-t", "a b*"], "may hold only letters"),
        (["-t", "T", "--to", "{offset}"], "placeholder {offset} is not supported; supported: {topic} "),
        (["-t", "T", "--to", ""], "it is empty"),
        (["-t", "T", "--to", "f", "-x", "cat"], "give --to or -x, not both"),
        (["-t", "T", "--lag", "1"], "--lag needs -G"),
        (["-t", "T", "-o", "@1700000000009", "--until", "@1700000000008"], "--until is before the start"),
        (["-t", "T", "--since", "@1700000000009", "--until", "@1700000000008"], "is before the start"),
        (["-t", "T", "-o", "@1700000000000..@1700000000008"], "is none of earliest"),
        (["-t", "T", "--until", f"@{2**53}"], "--until must be a time in the past"),
        (["-t", "T", "-G", "g", "--until", "@1700000000000"], "--until cannot be used with -G"),
    ],
)
def test_usage_errors(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke("tail", *arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert error in line


@pytest.mark.parametrize(
    ("tag", "name"),
    [("red", "red"), ("../x", "%2E.%2Fx"), ("..", "%2E."), (".", "%2E"), ("", "_"), ("a\0b", "a%00b")],
)
def test_messages_cannot_choose_their_folder(tag: str, name: str) -> None:
    class Tagged:
        tags = tag
        message_id = "7F"

    assert compile_name("dir/{tags}")(Tagged()) == f"dir/{name}"  # type: ignore[arg-type]
