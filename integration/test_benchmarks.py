"""The benchmark command: it runs, and its ratios compare measurements of the same round."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.benchmarks import brokers, report
from integration.benchmarks.bench import Results, Run
from integration.benchmarks.peers import all_peers, go
from integration.benchmarks.peers.environment import interpreter
from integration.benchmarks.programs.floor import Answers
from integration.benchmarks.run import BROKER_SETTINGS, parse, run
from integration.clusters.cluster import Cluster
from integration.clusters.embedded import embedded_cluster
from integration.clusters.plugin import StartCluster
from integration.clusters.provider import external_name, start_cluster
from integration.go.peer import program
from rocketmq_py.protocol.command import Command, encode_response

QUICK = ("--rounds", "1", "--scale", "0.002", "--sizes", "128")


def a_run(client: str, round_: int, *, rate: float = 1.0, p50_us: float | None = None) -> Run:
    return Run(
        workload="pipelined" if p50_us is None else "latency", size=128, client=client, round=round_,
        count=100, rate=rate, client_us=20.0, server_us=None, p50_us=p50_us, p99_us=None, peak_bytes=None,
    )  # fmt: skip


def cells(table: str, label: str) -> list[str]:
    """Return the cells of the only row of a client."""
    (line,) = (line for line in table.splitlines() if f"| {label} |" in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_medians_of_ratios_within_rounds() -> None:
    rates = {"java": (100.0, 1000.0, 10.0), "go": (50.0, 4000.0, 40.0), "ours-trio": (200.0, 1000.0, 40.0)}
    runs = [a_run(name, number, rate=rate) for name in rates for number, rate in enumerate(rates[name])]
    plan = parse(["--workloads", "pipelined", "--sizes", "128"]).plan
    table = report.table(plan, Results(runs=runs))
    # Relative to Java: 2, 1 and 4. Relative to the better of both: 2, 0.25 and 1.
    assert cells(table, "rocketmq-py")[3:6] == ["200", "2.00", "1.00"]
    # Go relative to Java is 0.5, 4 and 4.
    assert cells(table, "Go")[3:6] == ["50", "4.00", "1.00"]


def test_lower_latencies_are_better() -> None:
    runs = [a_run("java", 1, p50_us=300.0), a_run("go", 1, p50_us=200.0)]
    runs.append(a_run("ours-trio", 1, p50_us=100.0))
    table = report.table(parse(["--workloads", "latency"]).plan, Results(runs=runs))
    assert cells(table, "rocketmq-py")[4:6] == ["3.00", "2.00"]


def test_a_round_in_which_a_peer_failed_has_no_ratio_to_it() -> None:
    runs = [a_run("java", 1, rate=10), a_run("ours-trio", 1, rate=20), a_run("ours-trio", 2, rate=1000)]
    plan = parse(["--workloads", "pipelined", "--sizes", "128"]).plan
    table = report.table(plan, Results(runs=runs, skipped={"go": "go is not on the PATH"}, failures=["Java"]))
    assert cells(table, "rocketmq-py")[4] == "2.00"
    assert "Not measured: go: go is not on the PATH" in table
    assert "Failed: Java" in table


def test_interfaces_are_compared_with_trio_and_the_bare_hand_off_of_the_same_round() -> None:
    rates = {"ours-trio": (100.0, 200.0), "ours-aio": (50.0, 200.0), "floor-aio": (200.0, 400.0)}
    runs = [a_run(name, number, rate=rate) for name in rates for number, rate in enumerate(rates[name])]
    words = ["--workloads", "pipelined", "--sizes", "128", "--clients", "ours-trio,ours-aio,ours-uvloop"]
    (_, _, line) = report.interfaces_table(parse(words).plan, Results(runs=runs)).splitlines()
    # In the rounds 0.5 and 1 times as fast as trio, and without a client 2 times in each.
    assert line == "| pipelined, 256 in flight, 128 bytes | 1.00 / 0.75 (1.00 / 2.00) | - |"


def test_interfaces_table_needs_trio_and_another_interface() -> None:
    for clients in ("java,ours-trio", "ours-aio,ours-blocking"):
        assert not report.interfaces_table(parse(["--clients", clients]).plan, Results())


@pytest.mark.parametrize(
    "words",
    [
        ("--workloads", "awaited,x"),
        ("--clients", "C"),
        ("--rounds", "0"),
        ("--scale", "0"),
        ("--plot", "a.x"),
    ],
)
def test_invalid_arguments_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert "error: " in capsys.readouterr().err


@pytest.fixture(scope="module")
def cluster(real_cluster: StartCluster, real_name: str) -> Iterator[Cluster]:
    """A cluster with the settings of the benchmark. Without one the tests are skipped."""
    shared = real_cluster(real_name)
    if shared.name == external_name():
        yield shared
    else:
        with start_cluster(real_name, settings=BROKER_SETTINGS) as own:
            yield own


@pytest.mark.usefixtures("java_and_maven")
def test_it_measures_java_and_this_project(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs" / "all.json"
    some = ("--clients", "java,ours-trio,ours-batching", "--workloads", "batches", "--json", str(file))
    results = run(cluster, parse([*QUICK, *some]))
    assert not results.failures
    assert not results.skipped
    assert {each.client for each in results.runs} == {"java", "ours-trio", "ours-batching"}
    assert all(each.rate > 0 and each.client_us > 0 for each in results.runs)
    assert [each["rate"] for each in json.loads(file.read_text())["runs"]] == [
        each.rate for each in results.runs
    ]
    table = capsys.readouterr().out
    assert cells(table, "Java")[4] == "1.00"
    assert float(cells(table, "rocketmq-py, linger")[4]) > 0
    results = run(cluster, parse([*QUICK, "--clients", "ours-trio"]))
    assert not results.failures
    assert {each.workload for each in results.runs} == all_peers()["ours-trio"].workloads


@pytest.mark.parametrize("client", ["ours-blocking", "ours-thread", "ours-aio"])
def test_it_measures_the_asyncio_and_threads_apis(cluster: Cluster, client: str) -> None:
    results = run(cluster, parse([*QUICK, "--clients", client]))
    assert not results.failures
    assert {each.workload for each in results.runs} == all_peers()[client].workloads


@pytest.mark.parametrize("client", ["floor", "floor-trio", "floor-aio", "floor-threads"])
def test_the_floors_are_rows(cluster: Cluster, client: str) -> None:
    results = run(cluster, parse([*QUICK, "--clients", client]))
    assert not results.failures
    assert {each.workload for each in results.runs} == all_peers()[client].workloads


def test_it_compares_the_embedded_broker_with_a_real_one(cluster: Cluster) -> None:
    with embedded_cluster() as embedded:
        # With fewer messages a broker may finish before the kernel counts a tick, a hundredth of a second.
        pairs = brokers.measure(embedded, cluster, brokers.planned(rounds=1, scale=0.1))
    assert [len(of_work) for of_work in pairs] == [1] * len(brokers.WORKS)
    assert all(run.server_us and run.rate > 0 for of_work in pairs for pair in of_work for run in pair)
    assert len(brokers.table(pairs).splitlines()) == 2 + len(brokers.WORKS)


def test_answers_are_counted_however_they_are_split() -> None:
    request = Command(10, 1)
    frames = encode_response(request, 0) + encode_response(request, 0)
    answers = Answers()
    assert [answers.count(bytes([byte])) for byte in frames].count(1) == 2
    assert Answers().count(frames) == 2
    with pytest.raises(ValueError, match="answered"):
        Answers().count(encode_response(request, 1))


@pytest.mark.skipif(
    not program(go.PROGRAM).exists(), reason="the Go program is not built: `make bench` does that"
)
def test_it_measures_go(cluster: Cluster) -> None:
    results = run(cluster, parse([*QUICK, "--clients", "go"]))
    assert not results.failures
    assert {each.workload for each in results.runs} == go.GO.workloads


@pytest.mark.parametrize(
    ("client", "line", "workload"), [("official", "5.", "pipelined"), ("pyrocketmq", "4.", "callers")]
)
def test_it_measures_other_python_clients(cluster: Cluster, client: str, line: str, workload: str) -> None:
    words = ["--clients", client, "--workloads", workload]
    is_its_line = cluster.version.startswith(line)
    if is_its_line and not interpreter(client).exists():
        command = " ".join(["python -m integration.benchmarks.run --version", cluster.version, *words])
        pytest.skip(f"{client} is not installed: `{command}` does that")
    results = run(cluster, parse([*QUICK, *words]))
    assert not results.failures
    assert [each.workload for each in results.runs] == ([workload] if is_its_line else [])
    assert list(results.skipped) == ([] if is_its_line else [client])


def test_it_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: `make bench` does that")
    from integration.benchmarks.plot import write_plot

    file = tmp_path / "new" / "plot.svg"
    plan = parse(["--workloads", "pipelined", "--sizes", "128"]).plan
    write_plot(file, plan, Results(runs=[a_run("java", 1, rate=1234.0), a_run("go", 1)]), "a title")
    assert file.read_text().startswith("<?xml")
