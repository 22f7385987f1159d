"""Programs that a new user writes from the page "Managed services" connect to each profile.

The page names the command that starts the imitation, the meaning of its output, and how to send messages of
each type.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import trio

from rocketmq_py.broker.profiles import PROFILES
from tests.cli.conftest import StartCli

PAGE = (Path(__file__).parents[2] / "docs" / "managed-services.md").read_text()
SECTION = PAGE.partition("\n## Without an account\n")[2].partition("\n## ")[0]
PROGRAM = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SERVER = re.findall(r"^rocketmq-py server --profile tencent-4 -t orders$", SECTION, re.MULTILINE)
TOPICS = re.findall(r"`-t (\w+(?::[A-Z]+)?)`", SECTION)
NEEDS_START_DELIVER_TIME = re.search(r"For `([\w-]+)`\s+and `([\w-]+)`, delayed messages also need", SECTION)

OF_ALL_TYPES = """
from rocketmq_py import Credentials, Message, TLS, TransactionState
from rocketmq_py.blocking import Client

received = {}

def check(message):
    return TransactionState.COMMIT

with Client(%(client)s) as client:
    with client.producer("GID_orders"%(producer)s) as producer:
        producer.send(Message("orders", b"order"))
        producer.send(Message("steps", b"placed", sharding_key="order-7"))
        producer.send(Message("steps", b"paid", sharding_key="order-7"))
        producer.send(Message("reminders", b"reminder", delay=1))
    with client.transaction_producer("GID_orders", check, topics=["payments"]) as producer:
        with producer.transaction(Message("payments", b"payment")):
            pass
    with client.push_consumer("GID_all", consume_from="earliest", orderly=True) as consumer:
        for topic in ("orders", "steps", "reminders", "payments"):
            consumer.subscribe(topic)

        def handle(message):
            received.setdefault(message.topic, []).append(message.body.decode())
            if sum(map(len, received.values())) == 6:
                consumer.stop()

        consumer.run(handle)
"""
EXPECTED = {
    "orders": ["first order", "order"],
    "steps": ["placed", "paid"],
    "reminders": ["reminder"],
    "payments": ["payment"],
}


def arguments_of_client(options: list[str]) -> str:
    """Return the arguments of Client for the options that the server prints, as the page explains these."""
    values: dict[str, str] = {}
    for index, word in enumerate(options):
        if word.startswith("--"):
            values[word] = options[index + 1] if index + 1 < len(options) else ""
    keys = f"credentials=Credentials({values.pop('--access-key')!r}, {values.pop('--secret-key')!r})"
    arguments = [keys]
    explained = dict(re.findall(r"`(--[\w-]+)` is\s+`([^`]+)`", SECTION))
    assert values.keys() <= explained.keys()
    for option, value in values.items():
        meaning = explained[option]
        arguments.append(f"{meaning}{value!r}" if meaning.endswith("=") else meaning)
    return ", ".join(arguments)


def test_the_page_has_the_command_and_the_topics() -> None:
    assert SERVER
    assert TOPICS == ["orders", "steps:FIFO", "reminders:DELAY", "payments:TRANSACTION"]
    assert NEEDS_START_DELIVER_TIME


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.long
async def test_programs_with_what_the_server_prints(
    start_cli: StartCli, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        *shlex.split(SERVER[0].replace("tencent-4", profile))[1:],
        "--namesrv-port",
        "0",
        "--port",
        "0",
    ]
    server = await start_cli(*command, *[word for topic in TOPICS[1:] for word in ("-t", topic)])
    text = ""
    while text.count("\n") < 2:
        text += (await server.stdout.receive_some()).decode()
    found = re.search(r"^ready: name server (\S+),.*options of clients: (.*)\n", text, re.DOTALL)
    assert found
    client = f'"{found[1]}", {arguments_of_client(shlex.split(found[2]))}'

    program, shown = PROGRAM[0]
    for given, replaced in (
        ("import Credentials, ", "import TLS, Credentials, "),
        ('    "127.0.0.1:9876",\n', f"    {client},\n"),
        (re.findall(r'    credentials=Credentials\("the access key".*\n', program)[0], ""),
    ):
        assert given in program
        program = program.replace(given, replaced)
    await trio.to_thread.run_sync(exec, program, {})
    assert capsys.readouterr().out == shown

    assert NEEDS_START_DELIVER_TIME
    own_delays = profile in NEEDS_START_DELIVER_TIME.groups()
    producer = ", start_deliver_time=True" if own_delays else ""
    names: dict[str, object] = {}
    text = OF_ALL_TYPES % {"client": client, "producer": producer}
    await trio.to_thread.run_sync(exec, text, names)
    received = names["received"]
    assert isinstance(received, dict)
    assert {
        topic: bodies if topic == "steps" else sorted(bodies) for topic, bodies in received.items()
    } == EXPECTED
