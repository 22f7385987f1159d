"""``--watch``, ``check`` and completion."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click
import pytest
import trio
import trio.testing
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from rocketmq_py import Client, Message
from rocketmq_py.cli import main
from rocketmq_py.cli.administering import watch
from rocketmq_py.cli.check import metrics
from rocketmq_py.cli.sheet import BEFORE, Column, Form, Sheet, show
from rocketmq_py.errors import ConfigurationError, RocketMQError
from tests.cli.conftest import Invoke, MemberAside


async def lag_of_60(address: str) -> None:
    """Have group billing be 60 messages behind in topic Orders."""
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
        (["--topic", "Else"], 3, "UNKNOWN - billing: it does not consume Else | lag=0;;;0"),
    ],
)
def test_the_lag_is_checked(
    invoke: Invoke, broker_aside: str, limits: list[str], code: int, line: str
) -> None:
    trio.run(lag_of_60, broker_aside)
    ended = invoke("check", "lag", "billing", *limits, "-n", broker_aside)
    assert (ended.code, ended.out.decode(), ended.err) == (code, f"{line}\n", "")


def test_the_lag_for_prometheus_and_as_json(invoke: Invoke, broker_aside: str) -> None:
    trio.run(lag_of_60, broker_aside)
    check = ("check", "lag", "billing", "--critical", "5", "-n", broker_aside)
    metrics = invoke(*check, "-o", "prometheus")
    assert metrics.code == 2
    assert [line for line in metrics.out.decode().splitlines() if not line.startswith("#")] == [
        'rocketmq_group_lag{group="billing",topic="Orders"} 60',
        'rocketmq_group_members{group="billing"} 0',
    ]
    assert json.loads(invoke(*check, "-o", "json").out) == {
        "state": "CRITICAL",
        "group": "billing",
        "lag": 60,
        "topics": {"Orders": 60},
        "members": 0,
    }


def test_metrics_escape_names_that_a_broker_chose() -> None:
    assert metrics("g", {'a"} 1\nx{y="\\': 3}, 0).splitlines()[2] == (
        r'rocketmq_group_lag{group="g",topic="a\"} 1\nx{y=\"\\"} 3'
    )


def test_what_nobody_can_say_is_unknown(invoke: Invoke, broker_aside: str, unused_address: str) -> None:
    nobody = invoke("check", "lag", "nobody", "--critical", "1", "-n", broker_aside)
    assert (nobody.code, nobody.err) == (3, "")
    assert nobody.out.decode() == (
        f"UNKNOWN - nobody: group 'nobody' does not exist (asked {broker_aside})\n"
    )
    nowhere = invoke("check", "lag", "billing", "-n", unused_address)
    assert nowhere.code == 3
    assert nowhere.out.decode().startswith("UNKNOWN - billing: no name server answered")
    metrics = invoke("check", "lag", "billing", "-o", "prometheus", "-n", unused_address)
    assert (metrics.code, metrics.out) == (3, b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "lag"], "Missing argument"),
        (["check", "lag", "a b"], "may hold only letters"),
        (["check", "lag", "g", "--warn", "-1"], "-1 is not in the range"),
        (["check", "lag", "g", "--warn", "9", "--critical", "8"], "--warn 9 is above --critical 8"),
        (["check", "everything"], "No such command"),
    ],
)
def test_a_slip_of_the_pen_in_a_check_is_no_alarm(invoke: Invoke, arguments: list[str], words: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (3, b"")
    (line,) = ended.err.splitlines()
    assert words in line


async def test_watching_goes_on_in_spite_of_errors(
    autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    times: list[float] = []

    async def work() -> Mapping[str, RocketMQError] | None:
        times.append(trio.current_time())
        if len(times) == 2:
            raise ConfigurationError("not now")
        return {"broker-b": ConfigurationError("asleep")} if len(times) == 3 else None

    begun = trio.current_time()
    with trio.move_on_after(7):
        await watch(work, 2, lambda: None)
    assert [round(time - begun) for time in times] == [0, 2, 4, 6]
    assert capsys.readouterr().err.splitlines() == [
        "rocketmq-py: not now",
        "rocketmq-py: broker-b: asleep",
    ]


async def test_what_fails_at_once_is_not_watched() -> None:
    async def work() -> None:
        raise ConfigurationError("never")

    with pytest.raises(ConfigurationError):
        await watch(work, 2, lambda: None)


def test_what_comes_before_a_table_comes_once() -> None:
    @click.command
    def shows_twice() -> None:
        click.get_current_context().meta[BEFORE] = ["before\n"]
        for number in (1, 2):
            show(Form.TABLE, None, [Sheet([Column("N")], [(number,)])])

    assert CliRunner().invoke(shows_twice).output == "before\nN\n1\nN\n2\n"


@pytest.mark.parametrize("seconds", ["0", "soon"])
def test_no_time_to_watch(invoke: Invoke, seconds: str) -> None:
    assert invoke("topic", "list", "--watch", seconds).code == 2


def completed(*arguments: str, begun: str) -> list[str]:
    shell = ShellComplete(main, {}, "rocketmq-py", "_ROCKETMQ_PY_COMPLETE")
    return [item.value for item in shell.get_completions(list(arguments), begun)]


def test_topics_and_groups_are_completed(
    invoke: Invoke, broker_aside: str, member_aside: MemberAside, unused_address: str
) -> None:
    trio.run(lag_of_60, broker_aside)
    member_aside(broker_aside, "billing", "Orders")
    at = ("-n", broker_aside)
    assert completed("topic", "describe", *at, begun="O") == ["Orders"]
    assert completed("topic", "describe", *at, begun="x") == []
    assert completed("group", "describe", *at, begun="b") == ["billing"]
    assert completed("tail", *at, "-t", begun="Or") == ["Orders"]
    assert completed("tail", *at, "-t", "Orders", "-G", begun="") == ["billing"]
    assert completed("topic", "describe", "-n", unused_address, begun="") == []
    assert completed("topic", begun="des") == ["describe"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_a_shell(invoke: Invoke, shell: str) -> None:
    ended = invoke("completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert f"_ROCKETMQ_PY_COMPLETE={shell}_complete" in ended.out.decode()
