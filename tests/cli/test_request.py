"""``request`` and ``reply``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest
import trio
import trio.testing

from rocketmq_py import Client, Message
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.request import Replier
from rocketmq_py.cli.runner import CommandError
from rocketmq_py.message import ReceivedMessage
from tests.cli.conftest import Invoke, RunInThread

StartReplier: TypeAlias = Callable[..., str]


@pytest.fixture
def start_replier(run_in_thread: RunInThread, threaded_broker: str) -> StartReplier:
    """Run a replier for topic Questions in a thread. It replies with a body, or with a command's output."""

    def start(body: bytes | None, command: str | None = None) -> str:
        @asynccontextmanager
        async def opened() -> AsyncIterator[str]:
            replier = Replier(Access(address=threaded_broker), "Questions", "answerers", body, command, None)
            async with (
                Client(threaded_broker) as client,
                client.admin() as admin,
                trio.open_nursery() as nursery,
            ):
                await admin.topics.create("Questions", queues=1)
                nursery.start_soon(replier.run)
                while not any(one.members for one in (await admin.groups.list()).groups):
                    await trio.sleep(0.01)
                yield threaded_broker
                nursery.cancel_scope.cancel()

        return run_in_thread(opened)

    return start


def test_request_prints_the_reply(invoke: Invoke, start_replier: StartReplier) -> None:
    address = start_replier(b"42")
    request = ("request", "-t", "Questions", "what?", "--timeout", "30s", "-n", address)
    ended = invoke(*request)
    assert (ended.code, ended.out) == (0, b"42\n")
    assert invoke(*request, "-f", "<%s>").out == b"<42>"
    assert json.loads(invoke(*request, "-J").out)["body"] == "42"


def test_the_output_of_a_command_is_the_reply(invoke: Invoke, start_replier: StartReplier) -> None:
    address = start_replier(None, "tr a-z A-Z")
    ended = invoke("request", "-t", "Questions", "shout", "--timeout", "30s", "-n", address)
    assert (ended.code, ended.out) == (0, b"SHOUT\n")


def test_a_message_that_is_not_a_request_is_reported(
    invoke: Invoke, start_replier: StartReplier, capsys: pytest.CaptureFixture[str]
) -> None:
    address = start_replier(b"42")

    async def send() -> None:
        async with Client(address) as client, client.producer("senders") as producer:
            await producer.send(Message("Questions", b"no question"))
            async with client.admin() as admin:
                while (await admin.groups.describe("answerers")).lag:
                    await trio.sleep(0.05)

    trio.run(send)
    ended = invoke("request", "-t", "Questions", "what?", "--timeout", "30s", "-n", address)
    assert (ended.code, ended.out) == (0, b"42\n")
    assert "it is not a request" in capsys.readouterr().err


def test_request_without_a_reply_is_one_line(invoke: Invoke, threaded_broker: str) -> None:
    ended = invoke("request", "-t", "Questions", "what?", "--timeout", "100ms", "-n", threaded_broker)
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: ")


@pytest.mark.parametrize("command", ["exit 3", "true"])
async def test_a_failed_command_fails_the_handler(address: str, command: str) -> None:
    """The group then redelivers the request."""
    async with Client(address) as client:
        async with client.producer("senders") as producer:
            await producer.send(Message("Questions", b"x"))
        received: list[ReceivedMessage] = []
        async with client.lite_pull_consumer("g", consume_from="earliest") as consumer:
            consumer.subscribe("Questions")
            while not received:
                received += await consumer.poll(wait=1)
    replier = Replier(Access(address=address), "Questions", "g", None, command, None)
    with pytest.raises(CommandError, match="for request"):
        await replier._reply_to(received[0])


def test_reply_stops_after_count_replies(invoke: Invoke, threaded_broker: str) -> None:
    """``reply -c 1`` ends after one reply."""
    replies: list[bytes] = []

    async def both() -> None:
        async with Client(threaded_broker) as client, client.admin() as admin, trio.open_nursery() as nursery:
            await admin.topics.create("Questions", queues=1)

            async def ask() -> None:
                while not any(one.members for one in (await admin.groups.list()).groups):
                    await trio.sleep(0.01)
                async with client.producer("askers") as producer:
                    reply = await producer.request(Message("Questions", b"?"), timeout=30)
                    replies.append(reply.body)

            nursery.start_soon(ask)
            await Replier(Access(address=threaded_broker), "Questions", "answerers", b"42", None, 1).run()

    trio.run(both)
    assert replies == [b"42"]


def test_a_refused_request_does_not_count(
    invoke: Invoke, threaded_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``reply -c 1`` takes the next request if that which it has begun with cannot be replied to."""
    replies: list[bytes] = []
    reply_to = Replier._reply_to

    async def reply_slowly(replier: Replier, request: ReceivedMessage) -> bytes:
        if request.body == b"no request":
            await trio.testing.wait_all_tasks_blocked(0.2)  # the next request has arrived
        return await reply_to(replier, request)

    monkeypatch.setattr(Replier, "_reply_to", reply_slowly)

    async def both() -> None:
        async with Client(threaded_broker) as client, client.admin() as admin, trio.open_nursery() as nursery:
            await admin.topics.create("Questions", queues=1)

            async def ask() -> None:
                while not any(one.members for one in (await admin.groups.list()).groups):
                    await trio.sleep(0.01)
                async with client.producer("askers") as producer:
                    await producer.send(Message("Questions", b"no request"))
                    reply = await producer.request(Message("Questions", b"?"), timeout=30)
                    replies.append(reply.body)

            nursery.start_soon(ask)
            with trio.fail_after(20):
                await Replier(Access(address=threaded_broker), "Questions", "answerers", b"42", None, 1).run()

    trio.run(both)
    assert replies == [b"42"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["request", "-t", "T"], "Missing argument"),
        (["request", "-t", "T", ""], "the body is empty"),
        (["request", "-t", "T", "x", "-J", "-f", "%s"], "give -f FORMAT or --json"),
        (["request", "-t", "T", "x", "--timeout", "0"], "--timeout must be above 0"),
        (["request", "-t", "T", "x", "--timeout", "soon"], "is not a duration such as"),
        (["reply", "-t", "T", "x"], "Missing option '-G'"),
        (["reply", "-t", "T", "-G", "g"], "give BODY or -x COMMAND"),
        (["reply", "-t", "T", "-G", "g", "x", "-x", "cat"], "give BODY or -x COMMAND"),
        (["reply", "-t", "T", "-G", "g", ""], "the body is empty"),
    ],
)
def test_usage_errors(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert error in line
