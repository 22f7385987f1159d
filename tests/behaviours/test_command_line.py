from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import trio

from rocketmq_py import Client
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import until_readable

COMMAND = [sys.executable, "-m", "rocketmq_py"]
COUNT, COUNT_HERE = 100_000, 10_000
"""Lines, on a real broker and on the embedded one."""

pytestmark = pytest.mark.sockets


async def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process(
        [*COMMAND, *arguments], stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
    )


async def test_many_lines_go_out_and_come_back_each_once(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    await create_topic(client, unique, queues=4)
    count = COUNT_HERE if cluster.name == "embedded" else COUNT
    lines = b"".join(b"%d\n" % number for number in range(1, count + 1))
    sent = await run("send", "-n", cluster.address, "-t", unique, stdin=lines)
    assert sent.returncode == 0, sent.stderr
    assert b"%d" % count in sent.stderr.replace(b",", b"")
    await until_readable(client, unique, count=count)
    tailed = await run("tail", "-n", cluster.address, "-t", unique, "-o", "beginning", "-e", "-f", r"%s\n")
    assert tailed.returncode == 0, tailed.stderr
    assert sorted(map(int, tailed.stdout.split())) == list(range(1, count + 1))


async def test_the_words_that_scripts_rely_on(cluster: ClusterUnderTest, client: Client, unique: str) -> None:
    topic, group = f"Orders-{unique}", f"billing-{unique}"

    async def told(line: str) -> Any:
        words = line.replace("Orders", topic).replace("billing", group).split()
        ended = await run(*words, "-n", cluster.address)
        assert (ended.returncode, ended.stderr) == (0, b""), line
        return json.loads(ended.stdout) if "json" in words else ended.stdout.decode()

    assert await told("topic create Orders --queues 8") == f"topic {topic}: created on broker-a\n"
    assert topic in [one["topic"] for one in await told("topic list -o json")]
    assert [one["broker"] for one in await told("broker list -o json")] == ["broker-a"]
    sent = await run("send", "-t", topic, "-n", cluster.address, "-c", "60", "x")
    assert sent.returncode == 0, sent.stderr
    await until_readable(client, topic, count=60)
    async with client.reader() as reader:
        await reader.commit(group, dict.fromkeys(await reader.offsets(topic), 0))
    described = await told("group describe billing -o json")
    assert list(described)[:4] == ["group", "lag", "topics", "members"]
    assert (described["group"], described["lag"], described["members"]) == (group, 60, [])
    (one,) = described["topics"]
    assert (one["topic"], one["lag"], len(one["queues"])) == (topic, 60, 8)
    for place, lag in (("latest", 0), ("@0", 60), ("1", 52), ("earliest", 60)):
        moves = await told(f"group reset billing --topic Orders --to {place} --dry-run --yes -o json")
        assert len(moves) == 8
        await told(f"group reset billing --topic Orders --to {place} --yes")
        assert (await told("group describe billing -o json"))["lag"] == lag, place
    assert await told("topic delete Orders --yes") == f"topic {topic}: deleted on broker-a\n"
    assert topic not in [one["topic"] for one in await told("topic list -o json")]
