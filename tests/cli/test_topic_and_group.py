"""Output and exit codes of ``topic`` and ``group``."""

from __future__ import annotations

import json
import os
import pty
import signal
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from rocketmq_py import Client, Message
from rocketmq_py.admin.brokers import Brokers
from rocketmq_py.cli import main
from rocketmq_py.cli.tables import format_time
from rocketmq_py.client import core_of
from rocketmq_py.codes import ResponseCode
from rocketmq_py.testing import run_broker
from tests.cli.command import run_cli
from tests.cli.conftest import Invoke, StartCli, StartMember

CTRL_C = b"\x03"
CTRL_D = b"\x04"


async def run_json(address: str, *arguments: str) -> object:
    ended = await run_cli(*arguments, "-n", address, "--json")
    assert (ended.code, ended.err) == (0, ""), ended.err
    return json.loads(ended.out)


async def test_a_topic_is_created_altered_described_and_deleted(address: str) -> None:
    assert await run_json(address, "topic", "create", "Orders", "--queues", "4") == {
        "topic": "Orders",
        "brokers": ["broker-a"],
    }
    described = await run_json(address, "topic", "describe", "Orders")
    assert isinstance(described, dict)
    assert (described["topic"], described["message_type"], described["messages"]) == ("Orders", "NORMAL", 0)
    assert described["brokers"][0]["read_queues"] == 4
    assert [queue["queue_id"] for queue in described["queues"]] == [0, 1, 2, 3]
    altered = await run_cli("topic", "alter", "Orders", "--queues", "6", "-n", address)
    assert (altered.code, altered.out) == (0, b"topic Orders: altered on broker-a\n")
    again = await run_cli("topic", "create", "Orders", "-n", address)
    assert (again.code, again.out) == (1, b"")
    assert again.err == "rocketmq-py: topic 'Orders' exists already on broker-a\n"
    deleted = await run_cli("topic", "delete", "Orders", "--yes", "-n", address)
    assert (deleted.code, deleted.out) == (0, b"topic Orders: deleted on broker-a\n")
    gone = await run_cli("topic", "describe", "Orders", "-n", address)
    assert (gone.code, gone.out) == (1, b"")
    assert gone.err == f"rocketmq-py: topic 'Orders' does not exist (asked {address})\n"


async def test_a_table_has_a_line_per_row_and_no_colours(address: str) -> None:
    await run_json(address, "topic", "create", "Orders", "--queues", "2")
    table = await run_cli("topic", "describe", "Orders", "-n", address)
    lines = table.out.decode().splitlines()
    assert lines[0] == "Orders: NORMAL, 0 messages"
    assert lines[1].split() == [
        *("BROKER", "ADDRESS", "READ", "QUEUES", "WRITE", "QUEUES", "PERMISSION", "ORDER", "ATTRIBUTES")
    ]
    assert [line.split() for line in lines[-2:]] == [
        ["broker-a", "0", "0", "0", "0", "-"],
        ["broker-a", "1", "0", "0", "0", "-"],
    ]
    assert "\x1b" not in table.out.decode()
    assert all(line == line.rstrip() for line in lines)


async def test_group_describe_and_reset(address: str) -> None:
    async with Client(address) as client:
        async with client.admin() as admin:
            await admin.topics.create("Orders", queues=4)
        queues = (await core_of(client).routes.get("Orders")).write_queues
        async with client.producer("senders") as producer:
            for number in range(60):
                await producer.send(Message("Orders", b"x"), queue=queues[number % 4])
        async with client.reader() as reader:
            await reader.commit("billing", dict.fromkeys(queues, 0))
    described = await run_json(address, "group", "describe", "billing")
    assert isinstance(described, dict)
    assert (described["group"], described["lag"], described["members"]) == ("billing", 60, [])
    (topic,) = described["topics"]
    assert (topic["topic"], topic["lag"], len(topic["queues"])) == ("Orders", 60, 4)
    assert {queue["lag"] for queue in topic["queues"]} == {15}

    reset = ("group", "reset", "billing", "--topic", "Orders")
    moves = await run_json(address, *reset, "--to", "latest", "--dry-run")
    assert isinstance(moves, list)
    assert [(move["queue_id"], move["before"], move["after"]) for move in moves] == [
        (number, 0, 15) for number in range(4)
    ]
    refused = await run_cli(*reset, "--to", "latest", "-n", address)
    assert (refused.code, refused.out) == (2, b"")
    assert "confirm with --yes" in refused.err
    for place, lag in (("latest", 0), ("earliest", 60), ("5", 40), ("@0", 60)):
        await run_json(address, *reset, "--to", place, "--yes")
        described = await run_json(address, "group", "describe", "billing")
        assert isinstance(described, dict)
        assert described["lag"] == lag, place
    await run_json(address, "group", "reset", "billing", "--to", "latest", "--yes")
    line = b'{"broker_name": "broker-a", "queue_id": 2, "queue_offset": 7, "after": 1}\n'
    ended = await run_cli(*reset, "--file", "-", "--yes", "-n", address, stdin=line)
    assert ended.code == 0, ended.err
    described = await run_json(address, "group", "describe", "billing")
    assert isinstance(described, dict)
    assert described["lag"] == 8
    unknown = line.replace(b"2", b"77", 1)
    refused = await run_cli(*reset, "--file", "-", "--yes", "-n", address, stdin=line + unknown)
    assert (refused.code, refused.out) == (1, b"")
    text = "topic 'Orders' does not have broker-a/77; its queues: broker-a/0 to 3"
    assert refused.err == f"rocketmq-py: {text}\n"


async def test_a_group_may_have_any_number_of_retries_that_admin_allows(address: str) -> None:
    for command in ("create", "alter"):
        await run_json(
            address, "group", command, "billing", "--max-reconsume-times", "-1", "--retry-queues", "0"
        )
        described = await run_json(address, "group", "describe", "billing")
        assert isinstance(described, dict)
        assert described["settings"][0]["max_reconsume_times"] == -1
        await run_json(address, "group", "alter", "billing", "--max-reconsume-times", "16")


async def test_group_describe_shows_settings_that_differ_from_the_defaults(address: str) -> None:
    await run_json(address, "topic", "create", "Orders")
    await run_json(address, "group", "create", "billing")
    described = await run_cli("group", "describe", "billing", "-n", address)
    assert described.out.startswith(b"billing: lag 0, 0 members\n")
    assert b"SETTINGS" not in described.out
    await run_json(
        *(address, "group", "alter", "billing", "--no-consume"),
        *("--max-reconsume-times", "3", "--attribute", "priority.factor=2"),
    )
    lines = (await run_cli("group", "describe", "billing", "-n", address)).out.decode().splitlines()
    assert lines[0] == "billing: lag 0, 0 members, consumption is switched off"
    assert lines[-2].split("  ")[0] == "SETTINGS ON"
    assert lines[-1].split() == ["broker-a", "no", "yes", "no", "3", "1", "priority.factor=2"]


async def test_attributes_of_a_group_are_set_and_removed(address: str) -> None:
    async def attributes() -> object:
        described = await run_json(address, "group", "describe", "billing")
        assert isinstance(described, dict)
        return described["settings"][0]["attributes"]

    settings = ("-a", "priority.factor=50", "-a", "lite.sub.client.quota=9")
    await run_json(address, "group", "create", "billing", *settings)
    assert await attributes() == {"priority.factor": "50", "lite.sub.client.quota": "9"}
    changes = ("-a", "priority.factor=60", "--remove-attribute", "lite.sub.client.quota")
    altered = await run_cli("group", "alter", "billing", *changes, "-n", address)
    assert (altered.code, altered.out) == (0, b"group billing: altered on broker-a\n")
    assert await attributes() == {"priority.factor": "60"}


async def test_jsonl_prints_a_line_per_item(address: str) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Orders", queues=2)
        async with client.reader() as reader:
            queues = (await core_of(client).routes.get("Orders")).read_queues
            await reader.commit("billing", dict.fromkeys(queues, 0))
    ended = await run_cli(
        *("group", "reset", "billing", "--to", "latest", "--dry-run", "--jsonl", "-n", address)
    )
    assert [json.loads(line)["queue_id"] for line in ended.lines] == [0, 1]


@pytest.mark.usefixtures("short_timeouts")
def test_a_cluster_that_is_down_is_one_line(invoke: Invoke, unused_address: str) -> None:
    ended = invoke("topic", "list", "-n", unused_address)
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: no name server answered")


async def test_an_unknown_group_is_one_line(address: str) -> None:
    ended = await run_cli("group", "describe", "missing", "-n", address)
    assert (ended.code, ended.out) == (1, b"")
    assert ended.err == f"rocketmq-py: group 'missing' does not exist (asked {address})\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["topic", "create", "a b"], "may hold only letters"),
        (["topic", "create", "T", "--queues", "0"], "0 is not in the range"),
        (["topic", "alter", "T"], "nothing to change"),
        (["group", "alter", "g"], "nothing to change"),
        (["group", "alter", "g", "-a", "priority.factor"], "'priority.factor' is not NAME=VALUE"),
        (["group", "reset", "g", "--topic", "T"], "give one of --to and --file"),
        (["group", "reset", "g", "--to", "latest", "--file", "-"], "give one of --to and --file"),
        (
            ["group", "reset", "g", "--to", "yesterday"],
            "none of earliest, latest, N (an offset), -N (the last N",
        ),
        (["group", "reset", "g", "--to", "-0"], "none of earliest, latest, N (an offset), -N (the last N"),
        (["topic", "delete", "T"], "confirm with --yes"),
        (["group", "delete", "g"], "confirm with --yes"),
        (["broker", "config", "b", "a=1"], "confirm with --yes"),
        (["broker", "config", "b", "a"], "'a' is not NAME=VALUE"),
        (["topic", "list", "--json", "--wide"], "give one of --json, --jsonl and --wide"),
        (["topic", "list", "--access-key", "k"], "--secret-key is missing"),
        (["topic", "list", "--secret-key", "@/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_usage_errors(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert error in line


async def answered(start_cli: StartCli, answer: bytes, *arguments: str) -> tuple[int, bytes, bytes]:
    """Run a command that asks on a terminal. Return its exit code, stdout and stderr."""
    terminal, other_end = pty.openpty()
    process = await start_cli(*arguments, instead={0: other_end})
    os.close(other_end)
    async with trio.lowlevel.FdStream(terminal) as keyboard:
        asked = b""
        while b"[y/N]:" not in asked:
            part = await process.stderr.receive_some()
            assert part, asked
            asked += part
        if answer != CTRL_C:
            await keyboard.send_all(answer)
            code = await process.wait()
        while answer == CTRL_C:
            # Python does not notice a signal immediately before it reads.
            process.send_signal(signal.SIGINT)
            with trio.move_on_after(10):
                code = await process.wait()
                break
    asked += b"".join([part async for part in process.stderr])
    return code, b"".join([part async for part in process.stdout]), asked


async def test_delete_asks_for_confirmation_on_a_terminal(address: str, start_cli: StartCli) -> None:
    await run_json(address, "topic", "create", "Orders", "--queues", "1")
    question = b"Delete topic Orders and all its messages? [y/N]: "
    cancelled = b"rocketmq-py: cancelled; nothing was changed\n"
    for answer, code, said in (
        (b"\n", 1, cancelled),
        (b"n\n", 1, cancelled),
        (CTRL_D, 1, b"\n" + cancelled),
        (CTRL_C, 130, b"\n"),
        (b"y\n", 0, b""),
    ):
        ended, done, asked = await answered(start_cli, answer, "topic", "delete", "Orders", "-n", address)
        assert (ended, asked) == (code, question + said), answer
        assert done == (b"" if code else b"topic Orders: deleted on broker-a\n")


async def test_fewer_read_queues_need_a_confirmation(address: str, start_cli: StartCli) -> None:
    await run_json(address, "topic", "create", "Orders", "--queues", "4")
    alter = ("topic", "alter", "Orders", "-n", address)
    for answer, code, queues in ((b"n\n", 1, 4), (CTRL_C, 130, 4), (b"y\n", 0, 3)):
        ended, _, asked = await answered(start_cli, answer, *alter, "--queues", "3")
        assert ended == code
        assert b"from reading broker-a/3, and the messages in there" in asked
        described = await run_json(address, "topic", "describe", "Orders")
        assert isinstance(described, dict)
        assert [one["read_queues"] for one in described["brokers"]] == [queues]


def test_a_deletion_of_a_group_warns_of_members_online(
    invoke: Invoke, threaded_broker: str, threaded_member: StartMember
) -> None:
    at = ("-n", threaded_broker)
    assert invoke("topic", "create", "Orders", *at).code == 0
    assert invoke("group", "create", "billing", *at).code == 0
    assert invoke("group", "delete", "billing", "--yes", *at).err == ""
    threaded_member(threaded_broker, "billing", "Orders")
    ended = invoke("group", "delete", "billing", "--yes", *at)
    assert (ended.code, ended.out) == (0, b"group billing: deleted on broker-a\n")
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: 1 member is online in group billing: brokers that create")


@pytest.mark.parametrize("request_name", ["GET_CONSUME_STATS", "GET_CONSUMER_CONNECTION_LIST"])
def test_a_deletion_of_a_group_does_not_need_its_members(invoke: Invoke, request_name: str) -> None:
    with run_broker() as broker:
        at = ("-n", broker.name_server_address)
        assert invoke("group", "create", "billing", *at).code == 0
        with broker.fail(request_name, code=ResponseCode.NO_PERMISSION):
            ended = invoke("group", "delete", "billing", "--yes", *at)
    assert (ended.code, ended.out, ended.err) == (0, b"group billing: deleted on broker-a\n", "")


def test_more_read_queues_need_no_statistics_of_brokers(invoke: Invoke) -> None:
    with run_broker(topics=["Orders"]) as broker:
        broker.fail("GET_TOPIC_STATS_INFO", code=ResponseCode.NO_PERMISSION)
        ended = invoke("topic", "alter", "Orders", "--queues", "9", "-n", broker.name_server_address)
    assert (ended.code, ended.out, ended.err) == (0, b"topic Orders: altered on broker-a\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "not json\n",
        '{"broker_name": "b", "queue_id": -1, "queue_offset": 0}\n',
        '{"queue_id": 1}\n',
        '{"broker": "b", "queue": 1, "offset": 0}\n',
    ],
)
def test_invalid_lines_of_an_offsets_file_are_usage_errors(tmp_path: Path, text: str) -> None:
    file = tmp_path / "offsets.jsonl"
    file.write_text(f'{{"broker_name": "b", "queue_id": 1, "queue_offset": 0}}\n\n{text}')
    result = CliRunner().invoke(main, ["group", "reset", "g", "--topic", "T", "--file", str(file), "--yes"])
    assert result.exit_code == 2
    assert "line 3 of the offsets" in result.stderr


def test_queues_that_no_consumer_reads_are_warned_of(
    invoke: Invoke, threaded_broker: str, threaded_member: StartMember
) -> None:
    warning = (
        "rocketmq-py: topic Orders has 8 write queues and 4 read queues on broker-a: consumers do not read "
        "the messages in queues 4 to 7. To take queues away, reduce the write queues, wait until the "
        "messages are consumed, then reduce the read queues\n"
    )
    at = ("-n", threaded_broker)
    topic = ("topic", "create", "Orders", "--queues", "4")
    assert invoke(*topic, "--write-queues", "8", *at).err == warning
    threaded_member(threaded_broker, "billing", "Orders")
    for command in (("topic", "describe", "Orders"), ("group", "describe", "billing")):
        described = invoke(*command, "--json", *at)
        assert (described.code, described.err) == (0, warning)
        unread = json.loads(described.out)["unread_queues"]
        assert [(one["broker_name"], one["queue_id"]) for one in unread] == [
            ("broker-a", n) for n in range(4, 8)
        ]
        assert invoke(*command, *at).err == warning
    alter = ("topic", "alter", "Orders", *at)
    assert invoke(*alter, "--order").err == warning
    assert invoke(*alter, "--write-queues", "5").err == warning.replace("8 write", "5 write").replace(
        "queues 4 to 7", "queue 4"
    )
    refused = invoke(*alter, "--read-queues", "1")
    assert (refused.code, refused.out) == (2, b"")
    assert "from reading broker-a/1 to 3, and the messages in there (to lose none, lower" in refused.err
    assert "confirm with --yes, since standard input is not a terminal" in refused.err
    assert invoke(*alter, "--queues", "3", "--broker", "broker-a").code == 2
    assert invoke(*alter, "--read-queues", "4").code == 0
    assert invoke(*alter, "--queues", "3", "--yes").code == 0
    assert invoke(*alter, "--write-queues", "1").code == 0
    assert invoke(*alter, "--write-queues", "8", "--permission", "r").err == ""
    assert invoke("topic", "describe", "Orders", *at).err == ""
    assert invoke(*alter, "--queues", "8", "--permission", "RW").err == ""
    assert invoke("group", "describe", "billing", *at).err == ""


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_create_can_be_repeated(invoke: Invoke, threaded_broker: str, kind: str) -> None:
    option = {"topic": ("--queues", "3"), "group": ("--max-reconsume-times", "3")}[kind]
    create = (kind, "create", "Orders", "--if-not-exists", "-n", threaded_broker)
    for text in (f"{kind} Orders: created on broker-a", f"{kind} Orders: exists already with these settings"):
        ended = invoke(*create, *option)
        assert (ended.code, ended.out.decode(), ended.err) == (0, f"{text}\n", "")
    as_json = invoke(*create, *option, "--json")
    assert json.loads(as_json.out) == {kind: "Orders", "brokers": []}
    ended = invoke(*create)
    assert (ended.code, ended.out) == (1, b"")
    assert "exists already on broker-a with other settings: " in ended.err


def test_topics_of_a_broker_that_denies_access_have_unknown_settings(invoke: Invoke) -> None:
    with run_broker(topics=["Orders"], access_keys={"me": "secret"}) as broker:
        at = ("-n", broker.name_server_address)
        listed = invoke("topic", "list", *at)
        assert (listed.code, listed.out.decode().splitlines()[1].split()) == (1, ["Orders", *"----"])
        assert "denies access" in listed.err
        (value,) = json.loads(invoke("topic", "list", "--json", *at).out)
    unknown = {"message_type": None, "read_queues": None, "write_queues": None}
    assert value == {"topic": "Orders", **unknown, "permissions": [], "brokers": []}


def test_broker_describe_shows_times(invoke: Invoke, threaded_broker: str) -> None:
    at = ("-n", threaded_broker)
    value = json.loads(invoke("broker", "describe", "broker-a", "--json", *at).out)
    lines = invoke("broker", "describe", "broker-a", *at).out.decode().splitlines()
    shown = dict([line.split(maxsplit=1) for line in lines])
    assert shown["broker"] == "broker-a"
    assert shown["role"] == "master"
    assert shown["started"] == shown["bootTimestamp"] == format_time(value["started_ms"])
    assert shown["earliestMessageTimeStamp"] == "-"


def test_a_broker_is_taken_out_of_service_and_back(invoke: Invoke, threaded_broker: str) -> None:
    at = ("-n", threaded_broker)
    assert invoke("topic", "create", "Orders", *at).code == 0
    wiped = invoke("broker", "wipe-write-permission", "broker-a", *at)
    assert (wiped.code, wiped.err) == (0, "")
    title, head, row = wiped.out.decode().splitlines()
    assert (title, head) == ("broker broker-a: write permission wiped", "NAME SERVER      TOPICS")
    address, count = row.split()
    assert (address, int(count) > 0) == (threaded_broker, True)
    described = invoke("topic", "describe", "Orders", *at).out.decode().splitlines()[2]
    assert "  RW (in the route: R)  " in described
    value = json.loads(invoke("topic", "describe", "Orders", "--json", *at).out)["brokers"][0]
    assert (value["permission"], value["permission_in_route"]) == ("RW", "R")
    (broker,) = json.loads(invoke("broker", "list", "--json", *at).out)
    added = json.loads(invoke("broker", "add-write-permission", broker["address"], "--json", *at).out)
    assert added == {"broker_name": "broker-a", "name_servers": [{"address": address, "topics": int(count)}]}
    assert "  RW  " in invoke("topic", "describe", "Orders", *at).out.decode().splitlines()[2]


@pytest.mark.parametrize("form", ["wide", "json"])
def test_broker_config_does_not_show_passwords(
    invoke: Invoke, threaded_broker: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    async def settings(*_: object) -> dict[str, str]:
        credentials = '{"accessKey": "inner", "secretKey": "hunter2"}'
        user = '{"username": "admin", "password": "hunter2"}'
        return {
            "initAuthenticationUser": user,
            "innerClientAuthenticationCredentials": credentials,
            "brokerId": "0",
        }

    monkeypatch.setattr(Brokers, "settings", settings)
    ended = invoke("broker", "config", "broker-a", f"--{form}", "-n", threaded_broker)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(b"(not shown)") == 2
    assert b"brokerId" in ended.out
    assert b"hunter2" not in ended.out
