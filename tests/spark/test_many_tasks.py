"""Many tasks at once in one process, against one scripted broker."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import attrs
import pytest
import trio

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import OffsetRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.spark import connections
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.source_task import read_ranges
from tests.scripted import scripted_cluster
from tests.spark.stored_messages import stored

TASKS = 64
END = 3
"""Each queue has messages with the offsets from 0 to 2."""

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


async def test_tasks_share_one_connection_and_back_off_from_a_busy_broker() -> None:
    broker = PulledBroker(busy={str(number): 2 for number in range(TASKS)})
    rows: list[int] = []
    async with scripted_cluster(broker, queues=TASKS) as cluster:
        connection = ConnectionOptions(name_server=cluster.address)
        server = cluster.brokers["broker-a"]

        def read(number: int) -> None:
            offset_range = OffsetRange(MessageQueue("T", "broker-a", number), 0, END)
            rows.append(sum(batch.num_rows for batch in read_ranges(connection, [offset_range])))

        limiter = trio.CapacityLimiter(TASKS)
        async with trio.open_nursery() as nursery:
            for number in range(TASKS):
                nursery.start_soon(partial(trio.to_thread.run_sync, read, number, limiter=limiter))
        await trio.to_thread.run_sync(connections.close_all)
        assert rows == [END] * TASKS
        assert len(server.connections) == 1
        for times in broker.pulls.values():
            pauses = [later - earlier for earlier, later in pairwise(times)]
            assert len([pause for pause in pauses if pause >= 0.02]) >= 2, "one after each busy answer"
