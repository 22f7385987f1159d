"""Many tasks at once, against one scripted broker: as threads of one process, and as separate processes.

Spark runs a Python process per task slot. Threads with clients of their own stand for these processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import attrs
import pyarrow as pa
import pytest
import trio

from rocketmq_py.blocking import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import OffsetRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.spark import connections, source_task
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.piece_sender import WriteSummary
from rocketmq_py.spark.sink import row_writer
from rocketmq_py.spark.sink_options import SinkOptions
from rocketmq_py.spark.source_task import read_ranges
from rocketmq_py.spark.stamps import TaskIdentity
from tests.scripted import scripted_cluster
from tests.spark.stored_messages import stored

TASKS = 64
END = 3
"""Each queue has messages with the offsets from 0 to 2."""
SHORTEST_PAUSE = 0.02
"""Seconds after which a request counts as sent after a pause."""

pytestmark = pytest.mark.sockets


@attrs.define(eq=False)
class PulledBroker:
    """A broker whose queues have END messages. It answers the first pulls of each queue as busy.

    Attributes:
        busy: the number of busy answers left, by queue id.
        pulls: the times of the pulls, by queue id.
    """

    busy: dict[str, int] = attrs.field(factory=dict)
    pulls: dict[str, list[float]] = attrs.field(factory=dict)

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code != RequestCode.PULL_MESSAGE:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": str(END)})
            return
        queue_id, offset = request.fields["queueId"], int(request.fields["queueOffset"])
        self.pulls.setdefault(queue_id, []).append(trio.current_time())
        if self.busy.get(queue_id, 0):
            self.busy[queue_id] -= 1
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark="too many pulls")
            return
        fields = {
            "nextBeginOffset": str(END),
            "minOffset": "0",
            "maxOffset": str(END),
            "suggestWhichBrokerId": "0",
        }
        body = b"".join([stored(number, queue_id=int(queue_id)) for number in range(offset, END)])
        connection.respond(request, ResponseCode.SUCCESS, fields, body)


def pauses(times: Sequence[float]) -> list[float]:
    """Return the times between requests that are long enough to be a pause."""
    return [later - earlier for earlier, later in pairwise(times) if later - earlier >= SHORTEST_PAUSE]


async def in_threads(task: Callable[[int], None]) -> None:
    """Run ``task`` with the numbers of all tasks at once."""
    limiter = trio.CapacityLimiter(TASKS)
    async with trio.open_nursery() as nursery:
        for number in range(TASKS):
            nursery.start_soon(partial(trio.to_thread.run_sync, task, number, limiter=limiter))


@pytest.mark.parametrize(
    ("clients", "has_own_clients"), [(1, False), (TASKS, True)], ids=["threads", "processes"]
)
async def test_tasks_have_one_connection_per_process_and_back_off_from_a_busy_broker(
    monkeypatch: pytest.MonkeyPatch, clients: int, has_own_clients: bool
) -> None:
    broker = PulledBroker(busy={str(number): 2 for number in range(TASKS)})
    rows: list[int] = []
    async with scripted_cluster(broker, queues=TASKS) as cluster:
        connection = ConnectionOptions(name_server=cluster.address)
        server = cluster.brokers["broker-a"]
        local = threading.local()
        if has_own_clients:
            monkeypatch.setattr(source_task, "client_for", lambda _: local.client)

        def read(number: int) -> None:
            offset_range = OffsetRange(MessageQueue("T", "broker-a", number), 0, END)
            with Client(cluster.address) as local.client:
                rows.append(sum(batch.num_rows for batch in read_ranges(connection, [offset_range])))

        await in_threads(read)
        await trio.to_thread.run_sync(connections.close_all)
        assert rows == [END] * TASKS
        assert len(server.connections) == clients
        for times in broker.pulls.values():
            assert len(pauses(times)) >= 2, "one after each busy answer"


async def test_tasks_that_write_have_one_connection_and_back_off_from_a_busy_broker() -> None:
    sends: dict[bytes, list[float]] = {}

    def broker(connection: Connection, request: Command) -> None:
        if request.code != RequestCode.SEND_BATCH_MESSAGE:
            connection.respond(request, ResponseCode.SUCCESS)
            return
        times = sends.setdefault(bytes(request.body), [])
        times.append(trio.current_time())
        if len(times) <= 2:
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark="too many sends")
            return
        connection.respond(
            request, ResponseCode.SUCCESS, {"msgId": "0", "queueId": request.fields["e"], "queueOffset": "0"}
        )

    summaries: list[WriteSummary] = []
    async with scripted_cluster(broker) as cluster:
        options = SinkOptions(connection=ConnectionOptions(name_server=cluster.address), topic="T")
        batch = pa.record_batch([pa.array([b"one", b"two"])], ["body"])

        def write(number: int) -> None:
            writer = row_writer({"body": 0}, options, TaskIdentity("query", 0, number))
            summaries.append(writer.write([batch]))

        await in_threads(write)
        await trio.to_thread.run_sync(connections.close_all)
        assert [summary.rows for summary in summaries] == [2] * TASKS
        assert len(cluster.brokers["broker-a"].connections) == 1
        assert len(sends) == TASKS, "rows that are sent again have the same bytes"
        for times in sends.values():
            assert len(pauses(times)) >= 1
