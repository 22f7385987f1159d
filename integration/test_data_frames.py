"""Tables of messages in polars and DuckDB, which are installed in a separate environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from integration.environments import ROOT, environment
from rocketmq_py.testing import run_broker

PROGRAM = """
import sys
from datetime import UTC, datetime

import duckdb
import polars

from rocketmq_py.integrations.data_frames import read_messages, write_messages

address = sys.argv[1]
frame = polars.DataFrame(
    {
        "body": [b"1", b"2", b"3"],
        "tags": polars.Series(["a", "b", None], dtype=polars.Categorical),
        "keys": [["k1", "k2"], [], None],
        "properties": [[{"key": "p", "value": "1"}], [], None],
        "deliver_at": [None, datetime(2020, 1, 1, tzinfo=UTC), None],
    }
)
assert write_messages(frame, "FromPolars", address) == 3
messages = read_messages("FromPolars", address)
assert write_messages(polars.from_arrow(messages), "AgainFromPolars", address) == 3

relation = duckdb.sql("SELECT body, tags, keys, properties FROM messages WHERE tags IS NOT NULL")
assert write_messages(relation, "FromDuckDB", address) == 2

for topic in ("FromPolars", "AgainFromPolars", "FromDuckDB"):
    messages = read_messages(topic, address)
    query = "SELECT decode(body), tags, keys, properties['p'] FROM messages ORDER BY body"
    print(topic, duckdb.sql(query).fetchall())
    print(topic, polars.from_arrow(messages).sort("body").select("body", "tags", "keys").rows())
"""
ROWS = [("1", "a", ["k1", "k2"], "1"), ("2", "b", [], None), ("3", None, [], None)]
COUNTS = {"FromPolars": 3, "AgainFromPolars": 3, "FromDuckDB": 2}


def test_polars_and_duckdb(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    try:
        python = environment("data-frames", sys.executable, ["duckdb", "polars"])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"polars and DuckDB cannot be installed here: {error}")
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n")
    with run_broker(topics=dict.fromkeys(COUNTS, 1)) as broker:
        ended = subprocess.run(
            [python, "-c", PROGRAM, broker.name_server_address],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    expected = []
    for topic, count in COUNTS.items():
        rows = ROWS[:count]
        expected += [f"{topic} {rows}", f"{topic} {[(row[0].encode(), *row[1:3]) for row in rows]}"]
    assert ended.stdout.splitlines() == expected
