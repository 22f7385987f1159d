"""The Java programs behave as the tests that use them expect."""

from __future__ import annotations

import base64
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from integration.clusters.plugin import StartCluster
from integration.java.peer import client_for, java_peer, run_java, run_java_async
from integration.peers import PeerError

ROOT = Path(__file__).resolve().parents[1]
RUN_ELSEWHERE = """
import sys, trio
from integration.java.peer import java_peer
async def main():
    arguments = ("--namesrv", sys.argv[1], "--topic", "TBW102", "--group", "run-elsewhere")
    async with java_peer("4.9.8", "Consume", *arguments) as peer:
        await peer.ready()
        print("ready", flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


def test_one_program_receives_messages_of_another(real_cluster: StartCluster, real_name: str) -> None:
    cluster = real_cluster(real_name)
    client, topic = client_for(cluster.version), f"java-{uuid.uuid4().hex}"
    address = ("--namesrv", cluster.name_servers, "--topic", topic)
    content = ("--body", "grün {i}", "--tags", "TagA", "--keys", "key-{i}", "--property.colour", "blau")
    sent = run_java(client, "Send", *address, *content, "--count", "2")
    received = run_java(client, "Receive", *address, "--count", "2")
    received.sort(key=lambda message: str(message["keys"]))
    assert [message["msgId"] for message in received] == [result["msgId"] for result in sent]
    assert [message["offsetMsgId"] for message in received] == [result["offsetMsgId"] for result in sent]
    assert [base64.b64decode(message["body"]).decode() for message in received] == ["grün 0", "grün 1"]
    assert received[1]["keys"] == "key-1"
    assert received[0]["tags"] == "TagA"
    assert received[0]["properties"]["colour"] == "blau"


async def test_a_group_member_fails_each_message_once(real_cluster: StartCluster, real_name: str) -> None:
    cluster = real_cluster(real_name)
    client, topic = client_for(cluster.version), f"java-{uuid.uuid4().hex}"
    address = ("--namesrv", cluster.name_servers, "--topic", topic)
    await run_java_async(client, "Send", *address, "--body", "again")
    async with java_peer(client, "Consume", *address, "--group", topic, "--fail-first") as member:
        await member.ready()
        first, second = await member.next_line(), await member.next_line()
        await member.leave()
    assert first["msgId"] == second["msgId"]
    assert [first["reconsumeTimes"], second["reconsumeTimes"]] == [0, 1]


@pytest.mark.usefixtures("java_and_maven")
def test_a_failed_program_reports_the_cause() -> None:
    with pytest.raises(PeerError, match="no mode nonsense"):
        run_java("4.9.8", "Benchmark", "--mode", "nonsense")


def test_a_program_ends_with_the_process_that_started_it(real_cluster: StartCluster, real_name: str) -> None:
    name_servers = real_cluster(real_name).name_servers
    command = [sys.executable, "-c", RUN_ELSEWHERE, name_servers]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        run.kill()
        # The program inherits this standard error, which reaches its end once both have ended.
        run.communicate(timeout=30)
