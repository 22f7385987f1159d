"""The command line as a process: throughput, output that scripts rely on, and waiting for a topic."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import trio

from rocketmq_py import Client, Message
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, until_readable

COMMAND = [sys.executable, "-m", "rocketmq_py"]
COUNT, EMBEDDED_COUNT = 100_000, 10_000
"""Lines on a real broker and on the embedded one."""

pytestmark = pytest.mark.sockets


async def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process(
        [*COMMAND, *arguments], stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
    )


async def test_tail_prints_every_line_of_send_once(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    await create_topic(client, unique, queues=4)
    count = EMBEDDED_COUNT if cluster.name == "embedded" else COUNT
    lines = b"".join(b"%d\n" % number for number in range(1, count + 1))
    sent = await run("send", "-n", cluster.address, "-t", unique, stdin=lines)
    assert sent.returncode == 0, sent.stderr
    assert b"%d" % count in sent.stderr.replace(b",", b"")
    await until_readable(client, unique, count=count)
    tailed = await run("tail", "-n", cluster.address, "-t", unique, "-o", "earliest", "-e", "-f", r"%s\n")
    assert tailed.returncode == 0, tailed.stderr
    assert sorted(map(int, tailed.stdout.split())) == list(range(1, count + 1))


@pytest.mark.parametrize("group", [False, True], ids=["reader", "group"])
async def test_tail_at_the_end_waits_for_a_topic_and_prints_its_first_message(
    cluster: ClusterUnderTest, client: Client, unique: str, group: bool
) -> None:
    arguments = ["tail", "-n", cluster.address, "-t", unique, "-o", "latest", "--wait", "-c", "1"]
    arguments += ["-G", f"group-{unique}"] if group else []
    process = await trio.lowlevel.open_process(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with trio.fail_after(PATIENCE):
            errors = b""
            while b"waiting until it is created" not in errors:
                part = await process.stderr.receive_some()
                assert part, errors
                errors += part
            await create_topic(client, unique, queues=4)
            async with client.producer("senders") as producer:
                await producer.send(Message(unique, b"first"))
            printed = b"".join([part async for part in process.stdout])
            assert (await process.wait(), printed) == (0, b"first\n")
    finally:
        process.kill()
        await process.wait()


async def test_output_that_scripts_rely_on(cluster: ClusterUnderTest, client: Client, unique: str) -> None:
    topic, group = f"Orders-{unique}", f"billing-{unique}"

    async def output_of(line: str) -> Any:
        words = line.replace("Orders", topic).replace("billing", group).split()
        completed = await run(*words, "-n", cluster.address)
        assert (completed.returncode, completed.stderr) == (0, b""), line
        return json.loads(completed.stdout) if "--json" in words else completed.stdout.decode()

    assert await output_of("topic create Orders --queues 8") == f"topic {topic}: created on broker-a\n"
    assert topic in [one["topic"] for one in await output_of("topic list --json")]
    assert [one["broker_name"] for one in await output_of("broker list --json")] == ["broker-a"]
    sent = await run("send", "-t", topic, "-n", cluster.address, "-c", "60", "x")
    assert sent.returncode == 0, sent.stderr
    await until_readable(client, topic, count=60)
    async with client.reader() as reader:
        await reader.commit(group, dict.fromkeys(await reader.offsets(topic), 0))
    described = await output_of("group describe billing --json")
    assert list(described)[:4] == ["group", "lag", "topics", "members"]
    assert (described["group"], described["lag"], described["members"]) == (group, 60, [])
    (one,) = described["topics"]
    assert (one["topic"], one["lag"], len(one["queues"])) == (topic, 60, 8)
    for target, lag in (("latest", 0), ("@0", 60), ("1", 52), ("earliest", 60)):
        resets = await output_of(f"group reset billing --topic Orders --to {target} --dry-run --yes --json")
        assert len(resets) == 8
        await output_of(f"group reset billing --topic Orders --to {target} --yes")
        assert (await output_of("group describe billing --json"))["lag"] == lag, target
    assert await output_of("topic delete Orders --yes") == f"topic {topic}: deleted on broker-a\n"
    assert topic not in [one["topic"] for one in await output_of("topic list --json")]
