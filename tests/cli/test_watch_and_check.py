"""``--watch``, ``check``, and completion through click."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest
import trio
import trio.testing
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from rocketmq_py import Client, Message
from rocketmq_py.cli import completion, main
from rocketmq_py.cli.admin_runner import watch
from rocketmq_py.cli.check_metrics import lag_metrics
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import NEXT_PREFIX, OutputFormat, Table, print_result
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.testing import run_broker, run_cluster
from tests.cli.conftest import Invoke, StartMember


async def make_lag_of_60(address: str) -> None:
    """Create group billing with a lag of 60 in topic Orders."""
    async with Client(address) as client:
        async with client.admin() as admin:
            await admin.topics.create("Orders", queues=4)
        async with client.producer("senders") as producer:
            for _ in range(60):
                await producer.send(Message("Orders", b"x"))
        async with client.reader() as reader:
            await reader.commit("billing", dict.fromkeys(await reader.offsets("Orders"), 0))


@pytest.mark.parametrize(
    ("limits", "code", "line"),
    [
        ([], 0, "OK - billing: lag 60, 0 members | lag=60;;;0"),
        (["--warn", "61"], 0, "OK - billing: lag 60, 0 members | lag=60;61;;0"),
        (["--warn", "60"], 1, "WARNING - billing: lag 60, 0 members | lag=60;60;;0"),
        (["--warn", "9", "--critical", "60"], 2, "CRITICAL - billing: lag 60, 0 members | lag=60;9;60;0"),
        (["--topic", "Orders"], 0, "OK - billing: lag 60 in Orders, 0 members | lag=60;;;0"),
        (["--topic", "Else"], 3, "UNKNOWN - billing: the group does not consume Else | lag=0;;;0"),
    ],
)
def test_check_lag_compares_with_limits(
    invoke: Invoke, threaded_broker: str, limits: list[str], code: int, line: str
) -> None:
    trio.run(make_lag_of_60, threaded_broker)
    ended = invoke("check", "lag", "billing", *limits, "-n", threaded_broker)
    assert (ended.code, ended.out.decode(), ended.err) == (code, f"{line}\n", "")


def test_nagios_does_not_take_the_name_of_a_group_for_metrics(invoke: Invoke, threaded_broker: str) -> None:
    ended = invoke("check", "lag", "team|billing", "-n", threaded_broker)
    assert ended.code == 3
    assert ended.out.startswith(b"UNKNOWN - team/billing: group 'team/billing' does not exist")
    assert b"|" not in ended.out


def test_check_lag_prints_prometheus_metrics_and_json(invoke: Invoke, threaded_broker: str) -> None:
    trio.run(make_lag_of_60, threaded_broker)
    check = ("check", "lag", "billing", "--critical", "5", "-n", threaded_broker)
    metrics = invoke(*check, "--prometheus")
    assert metrics.code == 2
    assert [line for line in metrics.out.decode().splitlines() if not line.startswith("#")] == [
        'rocketmq_group_lag{group="billing",topic="Orders"} 60',
        'rocketmq_group_members{group="billing"} 0',
    ]
    assert json.loads(invoke(*check, "--json").out) == {
        "state": "CRITICAL",
        "group": "billing",
        "lag": 60,
        "topics": {"Orders": 60},
        "members": 0,
    }


def test_metrics_escape_names() -> None:
    assert lag_metrics("g", {'a"} 1\nx{y="\\': 3}, 0).splitlines()[2] == (
        r'rocketmq_group_lag{group="g",topic="a\"} 1\nx{y=\"\\"} 3'
    )


def test_an_unknown_group_or_cluster_is_unknown(
    invoke: Invoke, threaded_broker: str, unused_address: str, default_timeouts: Callable[[float], None]
) -> None:
    missing = invoke("check", "lag", "missing", "--critical", "1", "-n", threaded_broker)
    assert (missing.code, missing.err) == (3, "")
    assert missing.out.decode() == (
        f"UNKNOWN - missing: group 'missing' does not exist (asked {threaded_broker})\n"
    )
    default_timeouts(0.2)
    down = invoke("check", "lag", "billing", "-n", unused_address)
    assert down.code == 3
    assert down.out.decode().startswith("UNKNOWN - billing: no name server answered")
    metrics = invoke("check", "lag", "billing", "--prometheus", "-n", unused_address)
    assert (metrics.code, metrics.out) == (3, b"")


def test_check_health_is_ok_if_all_servers_answer(invoke: Invoke, threaded_broker: str) -> None:
    ended = invoke("check", "health", "-n", threaded_broker)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.decode() == (
        "OK - 1 of 1 name servers answer and 1 of 1 brokers answer | name_servers=1;;;0;1 brokers=1;;;0;1\n"
    )
    printed = json.loads(invoke("check", "health", "--json", "-n", threaded_broker).out)
    assert (printed["state"], printed["reasons"]) == ("OK", [])
    assert [(one["role"], one["up"], one["error"]) for one in printed["servers"]] == [
        ("name server", True, None),
        ("broker", True, None),
    ]
    metrics = invoke("check", "health", "--prometheus", "-n", threaded_broker)
    assert f'rocketmq_server_up{{role="name server",address="{threaded_broker}"}} 1\n' in metrics.out.decode()


def test_check_health_warns_of_some_servers_that_do_not_answer(
    invoke: Invoke, threaded_broker: str, unused_address: str, default_timeouts: Callable[[float], None]
) -> None:
    default_timeouts(3.0)
    ended = invoke("check", "health", "-n", f"{threaded_broker};{unused_address}")
    assert ended.code == 1
    assert ended.out.decode().startswith(
        f"WARNING - 1 of 2 name servers answer and 1 of 1 brokers answer; name server {unused_address}: "
    )


def test_check_health_checks_what_a_service_offers(invoke: Invoke) -> None:
    with run_broker() as service:
        address = service.name_server_address
        for request in ("GET_NAMESRV_CONFIG", "GET_BROKER_RUNTIME_INFO"):
            service.fail(request, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        ended = invoke("check", "health", "-n", address)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith(b"OK - 1 of 1 name servers answer and 1 of 1 brokers answer |")
        service.fail("GET_BROKER_CLUSTER_INFO", code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        ended = invoke("check", "health", "-n", address)
        reason = (
            f"brokers cannot be listed: {address} (version 5.5.0) does not offer information about the "
            "cluster (GET_BROKER_CLUSTER_INFO, 106)"
        )
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.decode().startswith(f"OK - 1 of 1 name servers answer; {reason} |")
        printed = json.loads(invoke("check", "health", "--json", "-n", address).out)
        assert (printed["state"], printed["reasons"]) == ("OK", [reason])
        assert [one["address"] for one in printed["servers"]] == [address]


def test_check_health_lists_name_servers_that_do_not_answer(
    invoke: Invoke, unused_address: str, default_timeouts: Callable[[float], None]
) -> None:
    default_timeouts(0.2)
    other = "127.0.0.1:1"
    check = ("check", "health", "-n", f"{unused_address};{other}")
    ended = invoke(*check)
    assert (ended.code, ended.err) == (2, "")
    text = "CRITICAL - 0 of 2 name servers answer and 0 of 0 brokers answer; name server "
    assert ended.out.decode().startswith(text)
    assert ended.out.decode().endswith("; no name server answered | name_servers=0;;;0;2 brokers=0;;;0;0\n")
    expecting = invoke(*check, "--brokers", "2").out.decode()
    assert "; no name server answered | name_servers=0" in expecting
    assert "name servers know" not in expecting
    printed = json.loads(invoke(*check, "--json").out)
    assert (printed["state"], len(printed["reasons"])) == ("CRITICAL", 3)
    servers = {one["address"]: (one["role"], one["up"]) for one in printed["servers"]}
    assert servers == dict.fromkeys((unused_address, other), ("name server", False))
    metrics = invoke(*check, "--prometheus")
    assert (metrics.code, metrics.err) == (2, "rocketmq-py: no name server answered\n")
    for address in servers:
        assert f'rocketmq_server_up{{role="name server",address="{address}"}} 0\n' in metrics.out.decode()


def test_check_health_is_critical_with_fewer_brokers_than_expected(
    invoke: Invoke, threaded_broker: str
) -> None:
    assert invoke("check", "health", "--brokers", "1", "-n", threaded_broker).code == 0
    ended = invoke("check", "health", "--brokers", "2", "-n", threaded_broker)
    assert (ended.code, ended.out.decode()) == (
        2,
        "CRITICAL - 1 of 1 name servers answer and 1 of 2 brokers answer; name servers know 1 brokers, and 2 "
        "are expected | name_servers=1;;;0;1 brokers=1;;;0;2\n",
    )


def test_check_health_is_critical_without_a_registered_broker(
    invoke: Invoke, default_timeouts: Callable[[float], None]
) -> None:
    default_timeouts(2.0)
    with run_cluster(brokers=1) as cluster:
        cluster.crash("broker-a")
        ended = invoke("check", "health", "-n", cluster.name_server_address)
    assert ended.code == 2
    assert ended.out.startswith(
        b"CRITICAL - 1 of 1 name servers answer and 0 of 0 brokers answer; no broker is registered at the "
    )


def test_check_health_counts_a_server_that_denies_access(invoke: Invoke) -> None:
    with run_broker(access_keys={"me": "secret"}) as broker:
        ended = invoke("check", "health", "-n", broker.name_server_address)
    assert (ended.code, ended.out.split(b" |")[0]) == (
        0,
        b"OK - 1 of 1 name servers answer and 1 of 1 brokers answer",
    )


def test_check_health_counts_a_name_server_that_denies_access(invoke: Invoke) -> None:
    remark = "AclException: No accessKey is configured"
    with run_broker() as broker:
        for request in ("GET_BROKER_CLUSTER_INFO", "GET_NAMESRV_CONFIG"):
            broker.fail(request, code=ResponseCode.SYSTEM_ERROR, remark=remark)
        ended = invoke("check", "health", "-n", broker.name_server_address)
    start = f"OK - 1 of 1 name servers answer; brokers cannot be listed: {broker.name_server_address} denies"
    assert (ended.code, ended.out.decode()[: len(start)]) == (0, start)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["check", "lag"], "Missing argument"),
        (["check", "lag", "a b"], "may hold only letters"),
        (["check", "lag", "g", "--warn", "-1"], "-1 is not in the range"),
        (["check", "lag", "g", "--warn", "9", "--critical", "8"], "--warn 9 is above --critical 8"),
        (["check", "everything"], "No such command"),
        (["check", "--bogus"], "No such option"),
        (
            ["check", "--warn", "5", "lag", "g"],
            "check COMMAND --warn …",
        ),
        (["check", "health", "--tls-ca", "missing.pem"], "does not exist"),
    ],
)
def test_usage_errors_of_checks_exit_with_3(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (3, b"")
    (line,) = ended.err.splitlines()
    assert error in line


def test_a_check_without_a_command_prints_its_help(invoke: Invoke) -> None:
    ended = invoke("check")
    assert ended.code != 2  # CRITICAL
    assert "Usage: " in ended.out.decode() + ended.err


@pytest.mark.parametrize("command", [["health"], ["lag", "billing"]])
def test_a_check_that_cannot_run_is_unknown(
    invoke: Invoke, threaded_broker: str, tmp_path: Path, command: list[str]
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("no certificate")
    for option in (["--proxy", "foo"], ["--tls-ca", str(ca)]):
        check = ["check", *command, "-n", threaded_broker, *option]
        ended = invoke(*check)
        assert (ended.code, ended.err) == (3, "")
        assert ended.out.decode().startswith("UNKNOWN - ")
        printed = json.loads(invoke(*check, "--json").out)
        assert printed["state"] == "UNKNOWN"
        assert printed.get("reason") or printed.get("reasons")
        metrics = invoke(*check, "--prometheus")
        assert (metrics.code, metrics.out) == (3, b"")
        assert metrics.err


def test_check_lag_says_why_the_lag_is_incomplete(invoke: Invoke, threaded_broker: str) -> None:
    trio.run(make_lag_of_60, threaded_broker)
    check = ("check", "lag", "billing", "--topic", "Else", "-n", threaded_broker)
    reason = "the group does not consume Else"
    assert json.loads(invoke(*check, "--json").out) == {
        "state": "UNKNOWN",
        "group": "billing",
        "lag": 0,
        "topics": {},
        "members": 0,
        "reason": reason,
    }
    metrics = invoke(*check, "--prometheus")
    assert (metrics.code, metrics.err) == (3, f"rocketmq-py: {reason}\n")


async def test_watch_continues_after_errors(
    autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    times: list[float] = []

    async def work() -> Mapping[str, RocketMQError] | None:
        times.append(trio.current_time())
        if len(times) == 2:
            raise ConfigurationError("not now")
        return {"broker-b": ConfigurationError("asleep")} if len(times) == 3 else None

    started = trio.current_time()
    with trio.move_on_after(7):
        await watch(work, 2, lambda: None)
    assert [round(time - started) for time in times] == [0, 2, 4, 6]
    assert capsys.readouterr().err.splitlines() == [
        "rocketmq-py: not now",
        "rocketmq-py: broker-b: asleep",
    ]


async def test_watch_raises_an_error_of_the_first_run() -> None:
    async def work() -> None:
        raise ConfigurationError("never")

    with pytest.raises(ConfigurationError):
        await watch(work, 2, lambda: None)


def test_the_prefix_is_printed_once() -> None:
    @click.command
    def shows_twice() -> None:
        click.get_current_context().meta[NEXT_PREFIX] = ["before\n"]
        for number in (1, 2):
            print_result(OutputFormat.TABLE, None, [Table([Column("N")], [(number,)])])

    assert CliRunner().invoke(shows_twice).output == "before\nN\n1\nN\n2\n"


@pytest.mark.parametrize("seconds", ["0", "soon"])
def test_an_invalid_watch_interval_is_a_usage_error(invoke: Invoke, seconds: str) -> None:
    assert invoke("topic", "list", "--watch", seconds).code == 2


def completed(*arguments: str, prefix: str) -> list[str]:
    shell = ShellComplete(main, {}, "rocketmq-py", "_ROCKETMQ_PY_COMPLETE")
    return [item.value for item in shell.get_completions(list(arguments), prefix)]


def test_topics_and_groups_are_completed(
    invoke: Invoke,
    threaded_broker: str,
    threaded_member: StartMember,
    unused_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completion, "TIMEOUT", 60.0)
    trio.run(make_lag_of_60, threaded_broker)
    threaded_member(threaded_broker, "billing", "Orders")
    at = ("-n", threaded_broker)
    assert completed("topic", "describe", *at, prefix="O") == ["Orders"]
    assert completed("topic", "describe", *at, prefix="x") == []
    assert completed("group", "describe", *at, prefix="b") == ["billing"]
    assert completed("tail", *at, "-t", prefix="Or") == ["Orders"]
    assert completed("tail", *at, "-t", "Orders", "-G", prefix="") == ["billing"]
    assert completed("topic", "describe", *at, "--namespace", "tenant-1", prefix="O") == []
    assert completed("topic", prefix="des") == ["describe"]
    monkeypatch.setattr(completion, "TIMEOUT", 0.2)
    assert completed("topic", "describe", "-n", unused_address, prefix="") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script(invoke: Invoke, shell: str) -> None:
    ended = invoke("completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert f"_ROCKETMQ_PY_COMPLETE={shell}_complete" in ended.out.decode()
