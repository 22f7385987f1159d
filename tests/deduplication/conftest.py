from __future__ import annotations

import importlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_py.deduplication import DeduplicationStore, RedisStore, SQLiteStore


@pytest.fixture
def redis_client(tmp_path: Path) -> Iterator[Any]:
    """A client of a redis-server, or of an imitation if none is on the PATH."""
    redis: Any = pytest.importorskip("redis")
    if shutil.which("redis-server") is None:
        fakeredis: Any = importlib.import_module("fakeredis")
        yield fakeredis.FakeRedis()
        return
    socket = tmp_path / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if "Ready to accept connections" in line or "ready to accept connections" in line:
                break
        client = redis.Redis(unix_socket_path=str(socket))
        yield client
        client.close()
        server.terminate()
        server.stdout.read()


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeduplicationStore]:
    if request.param == "sqlite":
        sqlite = SQLiteStore(tmp_path / "handled.sqlite")
        yield sqlite
        sqlite.close()
    else:
        yield RedisStore(request.getfixturevalue("redis_client"))
