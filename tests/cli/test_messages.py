"""Output and exit codes of ``message``, ``dlq`` and ``client``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from rocketmq_py import Client, Message, ReceivedMessage, SendResult
from rocketmq_py.codes import ResponseCode
from rocketmq_py.testing import run_broker
from tests.cli.conftest import Invoke, StartMember


async def send(address: str, topic: str, *messages: Message) -> list[SendResult]:
    async with Client(address) as client:
        async with client.admin() as admin:
            await admin.topics.create(topic, queues=1)
        async with client.producer("senders", trace=True) as producer:
            return [await producer.send(message) for message in messages]


async def fail(message: ReceivedMessage) -> None:
    raise ValueError("never")


async def decoding(order: dict[str, int]) -> None:
    """A handler whose consumer decodes the body."""


async def make_dead_letters(
    address: str, topic: str, group: str, count: int, handler: Callable[[Any], Awaitable[None]] = fail
) -> None:
    """Let a group fail on all messages of a topic until they are dead letters."""

    async with (
        Client(address) as client,
        client.push_consumer(group, consume_from="earliest", max_reconsume_times=0) as consumer,
        client.admin() as admin,
        trio.open_nursery() as nursery,
    ):
        await admin.groups.create(group)
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handler)
        while (await admin.dead_letters.list(group)).total < count:
            await trio.sleep(0.02)
        consumer.stop()


def run_json(invoke: Invoke, address: str, *arguments: str) -> Any:
    ended = invoke(*arguments, "-n", address, "--json")
    assert (ended.code, ended.err) == (0, ""), ended.err
    return json.loads(ended.out)


def test_get_and_find_by_ids_offset_and_key(invoke: Invoke, threaded_broker: str) -> None:
    address = threaded_broker
    message = Message("Orders", "grüß".encode(), "A", "order-1", {"colour": "green"})
    (sent,) = trio.run(send, address, "Orders", message)
    place = ("--broker", "broker-a", "--queue", "0", "--offset", "0")
    for how in ((sent.message_id, "-t", "Orders"), (sent.offset_message_id,), ("-t", "Orders", *place)):
        found = run_json(invoke, address, "message", "get", *how)
        assert (found["message_id"], found["offset_message_id"]) == (sent.message_id, sent.offset_message_id)
        assert (found["body"], found["tags"], found["keys"]) == ("grüß", "A", ["order-1"])
        assert (found["user_properties"], found["broker_name"]) == ({"colour": "green"}, "broker-a")
        assert found["system_properties"]["KEYS"] == "order-1"
    (by_key,) = run_json(invoke, address, "message", "find", "Orders", "order-1")
    assert by_key["message_id"] == sent.message_id
    assert len(run_json(invoke, address, "message", "find", "Orders", "order-1", "--since", "5m")) == 1
    assert run_json(invoke, address, "message", "find", "Orders", "order-1", "--until", "5m") == []
    raw = invoke("message", "get", sent.offset_message_id, "--raw", "-n", address)
    assert (raw.code, raw.out) == (0, "grüß".encode())
    table = invoke("message", "get", sent.offset_message_id, "-n", address).out.decode()
    assert [line.split(maxsplit=1) for line in table.splitlines()][1] == ["topic", "Orders"]
    assert "colour=green" in table
    (_, row) = invoke("message", "find", "Orders", "order-1", "-n", address).out.decode().splitlines()
    assert row.split()[2:] == [sent.message_id, "broker-a", "0", "0", "A", "order-1", "grüß"]


def test_missing_messages_and_clients_are_one_line(invoke: Invoke, threaded_broker: str) -> None:
    assert invoke("group", "create", "billing", "-n", threaded_broker).code == 0
    (sent,) = trio.run(send, threaded_broker, "Orders", Message("Orders", b"x"))
    place = ("-t", "Orders", "--broker", "broker-a", "--queue", "0", "--offset", "9")
    for arguments, error in (
        (["message", "get", "0000", "-t", "Orders"], "message 0000 does not exist in topic 'Orders'"),
        (["message", "get", "0000"], "has 32 or 56 hex digits"),
        (["message", "get", sent.message_id], "is the message id of a client, not an offset_message_id"),
        (["message", "get", "7F00000100002A9F0000000000000000"], "which is not a broker of this cluster"),
        (
            ["message", "get", "-t", "Orders", "--broker", "zz", "--queue", "0", "--offset", "0"],
            "broker 'zz' does not exist; brokers: broker-a",
        ),
        (
            ["message", "get", "-t", "Orders", "--broker", "broker-a", "--queue", "99", "--offset", "0"],
            "topic 'Orders' does not have broker-a/99; its queues: broker-a/0",
        ),
        (["send", "-t", "Orders", "--queue", "zz/0", "x"], "broker 'zz' does not exist; brokers: broker-a"),
        (["message", "trace", "0000", "--trace-topic", "None"], "tracing is off: topic 'None' does not"),
        (
            ["client", "list", "-G", "nope"],
            "no client of group 'nope' is online, and no consumer group has this name",
        ),
        (["message", "get", *place], "queue Orders/broker-a/0 has no message at offset 9"),
        (["message", "find", "Nothing", "k"], "topic 'Nothing' does not exist"),
        (["message", "tracks", "0000", "-t", "Orders"], "message 0000 does not exist"),
        (["message", "consume", sent.offset_message_id, "g", "c"], "not online"),
        (["client", "describe", "missing"], "client 'missing' is not online"),
        (["dlq", "list", "missing"], "group 'missing' does not exist"),
        (["dlq", "resend", "missing", "--all", "--yes"], "group 'missing' does not exist"),
        (["dlq", "resend", "billing", "0000", "--yes"], "0000 is not among the newest 0 dead letters"),
    ):
        ended = invoke(*arguments, "-n", threaded_broker)
        assert (ended.code, ended.out) == (1, b""), arguments
        (line,) = ended.err.splitlines()
        assert line.startswith("rocketmq-py: ")
        assert error in line


def test_tracks_and_trace_of_a_message(invoke: Invoke, threaded_broker: str) -> None:
    (sent,) = trio.run(send, threaded_broker, "Orders", Message("Orders", b"x"))
    invoke("group", "create", "billing", "-n", threaded_broker)
    invoke("group", "reset", "billing", "--topic", "Orders", "--to", "latest", "--yes", "-n", threaded_broker)
    assert run_json(invoke, threaded_broker, "message", "tracks", sent.offset_message_id) == [
        {
            "group": "billing",
            "track_type": "NOT_ONLINE",
            "is_past": True,
            "committed": 1,
            "failure": None,
        }
    ]
    (event,) = run_json(invoke, threaded_broker, "message", "trace", sent.message_id)
    assert (event["kind"], event["group"], event["success"]) == ("SENT", "senders", True)
    table = invoke("message", "trace", sent.message_id, "-n", threaded_broker).out.decode().splitlines()
    assert table[0].split() == [
        "TIME",
        "KIND",
        "GROUP",
        "CLIENT",
        "MS",
        "SUCCESS",
        "RECONSUME",
        "TIMES",
        "DETAIL",
    ]
    assert table[1].split()[2:4] == ["SENT", "senders"]


def test_list_and_resend_dead_letters(invoke: Invoke, threaded_broker: str) -> None:
    address = threaded_broker
    first, second = trio.run(send, address, "Orders", Message("Orders", b"1"), Message("Orders", b"2"))
    trio.run(make_dead_letters, address, "Orders", "billing", 2)
    letters = run_json(invoke, address, "dlq", "list", "billing")
    assert sorted((one["message_id"], one["origin_topic"], one["body"]) for one in letters) == sorted(
        [(first.message_id, "Orders", "1"), (second.message_id, "Orders", "2")]
    )
    title = invoke("dlq", "list", "billing", "-c", "1", "-n", address).out.decode().splitlines()[0]
    assert title == "billing: 2 dead letters, 1 shown"
    resend = ("dlq", "resend", "billing")
    assert len(run_json(invoke, address, *resend, "--all", "--dry-run")) == 2
    again = run_json(invoke, address, *resend, first.message_id, "--yes")
    assert again == [{"message_id": first.message_id, "topic": "%RETRY%billing"}]
    assert run_json(invoke, address, "topic", "describe", "Orders")["messages"] == 2
    letters = run_json(invoke, address, "dlq", "list", "billing")
    assert {one["message_id"] for one in letters if one["resent_ms"]} == {first.message_id}
    rows = invoke("dlq", "list", "billing", "-n", address).out.decode().splitlines()[1:]
    assert rows[0].split()[-1] == "RESENT"
    assert sorted(row.split()[-1] == "-" for row in rows[1:]) == [False, True]

    rest = invoke(*resend, "--all", "--yes", "--json", "-n", address)
    assert (rest.code, [one["message_id"] for one in json.loads(rest.out)]) == (0, [second.message_id])
    skipped = "rocketmq-py: skipped 1 that were sent again before; --again sends them once more\n"
    assert rest.err == skipped
    dry = invoke(*resend, first.message_id, "--dry-run", "--json", "-n", address)
    assert (dry.code, json.loads(dry.out), dry.err) == (0, [], skipped)
    to_topic = run_json(invoke, address, *resend, "--all", "--to-topic", "--again", "--yes")
    assert [one["topic"] for one in to_topic] == ["Orders", "Orders"]
    assert run_json(invoke, address, "topic", "describe", "Orders")["messages"] == 4


def test_errors_name_the_letters_that_may_have_been_sent_again(invoke: Invoke) -> None:
    with run_broker() as broker:
        address = broker.name_server_address
        (sent,) = trio.run(send, address, "Orders", Message("Orders", b"1"))
        trio.run(make_dead_letters, address, "Orders", "billing", 1)
        with broker.fail("QUERY_MESSAGE", code=ResponseCode.SYSTEM_ERROR):
            listed = invoke("dlq", "list", "billing", "-n", address)
            resent = invoke("dlq", "resend", "billing", "--all", "--yes", "-n", address)
    assert (listed.code, resent.code) == (1, 1)
    assert listed.out.decode().splitlines()[-1].split()[-1] == "unknown"
    assert f"cannot tell whether {sent.message_id} was sent again: " in listed.err
    assert f"{sent.message_id} was not sent: " in resent.err


def test_dead_letters_are_listed_with_the_reason(invoke: Invoke, threaded_broker: str) -> None:
    """Only a consumer that moves a message there without retries states a reason."""
    address = threaded_broker
    trio.run(send, address, "Orders", Message("Orders", b"not JSON"))
    trio.run(make_dead_letters, address, "Orders", "typed", 1, decoding)
    trio.run(make_dead_letters, address, "Orders", "untyped", 1)
    (letter,) = run_json(invoke, address, "dlq", "list", "typed")
    reason = letter["reason"]
    assert reason.startswith("its body cannot be decoded as dict")
    (_, columns, row) = invoke("dlq", "list", "typed", "-n", address).out.decode().splitlines()
    assert columns.split()[-3:] == ["BODY", "REASON", "RESENT"]
    assert row.removesuffix("-").rstrip().endswith(reason)
    (letter,) = run_json(invoke, address, "dlq", "list", "untyped")
    assert letter["reason"] is None
    dry_run = ("dlq", "resend", "typed", "--all", "--dry-run", "-n", address)
    assert reason in invoke(*dry_run).out.decode()


def test_list_and_describe_clients(
    invoke: Invoke, threaded_broker: str, threaded_member: StartMember
) -> None:
    trio.run(send, threaded_broker, "Orders")
    client_id = threaded_member(threaded_broker, "billing", "Orders")
    (only,) = run_json(invoke, threaded_broker, "client", "list")
    assert (only["client_id"], only["consumer_groups"]) == (client_id, ["billing"])
    assert (only["language"], only["brokers"]) == ("PYTHON", ["broker-a"])
    assert invoke("group", "create", "others", "-n", threaded_broker).code == 0
    assert run_json(invoke, threaded_broker, "client", "list", "-G", "others") == []
    described = run_json(invoke, threaded_broker, "client", "describe", client_id)
    (member,) = described["members"]
    assert (member["group"], member["subscriptions"][0]["topic"]) == ("billing", "Orders")
    with_stack = invoke("client", "describe", client_id, "--stack", "-n", threaded_broker).out.decode()
    assert "\nbilling:\ntask " in with_stack


def test_consume_calls_the_handler_of_a_member(
    invoke: Invoke, threaded_broker: str, threaded_member: StartMember
) -> None:
    good, bad = trio.run(
        send, threaded_broker, "Orders", Message("Orders", b"good"), Message("Orders", b"bad")
    )
    client_id = threaded_member(threaded_broker, "billing", "Orders")
    consume = ("message", "consume")
    done = invoke(*consume, good.offset_message_id, "billing", client_id, "--json", "-n", threaded_broker)
    assert (json.loads(done.out)["result"], done.code) == ("CR_SUCCESS", 0)
    failed = invoke(*consume, bad.offset_message_id, "billing", client_id, "-n", threaded_broker)
    assert failed.code == 1
    assert "CR_THROW_EXCEPTION" in failed.out.decode()
    # The member runs in this process, and its log lines come first.
    assert failed.err.splitlines()[-1].startswith(f"rocketmq-py: the handler of {client_id} failed: ")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["message", "get"], "give an ID, or -t, --broker, --queue and --offset"),
        (["message", "get", "X", "--queue", "1"], "give an ID, or --broker"),
        (["message", "get", "-t", "T", "--queue", "1"], "give an ID, or -t, --broker"),
        (["message", "find", "T", "k", "--since", "yesterday"], "none of 2026-01-31T08:00"),
        (["message", "find", "T", "k", "-c", "0"], "0 is not in the range"),
        (["message", "trace"], "Missing argument"),
        (["dlq", "list", "a b"], "may hold only letters"),
        (["dlq", "resend", "g"], "give ids of dead letters, or --all"),
        (["dlq", "resend", "g", "X", "--all"], "give ids of dead letters, or --all"),
        (["dlq", "resend", "g", "--all"], "confirm with --yes"),
        (["client", "list", "-G", "a b"], "may hold only letters"),
    ],
)
def test_usage_errors(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert error in line
