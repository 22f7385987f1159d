"""The assigned queues of a member, with a scripted broker."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_py import Client, Position
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.offset_commits import RemoteOffsetStore, StartingOffsets
from rocketmq_py.consumer.pull.assigned_queues import AssignedQueues
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.queue_puller import PullFlag
from rocketmq_py.consumer.settings import FlowLimits, PushConsumerSettings
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting import Connection
from tests.consumer.received import stored
from tests.scripted import scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 0)
SETTINGS = PushConsumerSettings(group="g")


class Recorder:
    """An owner of assigned queues that records each delivery."""

    def __init__(self) -> None:
        self.delivered: list[ProcessQueue] = []

    def flow_limits(self, queues: int) -> FlowLimits:
        return SETTINGS.flow_limits(queues)

    def new_lock(self, queue: MessageQueue) -> None:
        pass

    def deliver(self, process_queue: ProcessQueue) -> None:
        self.delivered.append(process_queue)

    def discard(self, process_queue: ProcessQueue) -> None:
        pass


@pytest.mark.parametrize("end", ["leaving", "revoked"])
async def test_pending_pull_does_not_overwrite_the_last_commit(
    jumping_clock: trio.testing.MockClock, end: str
) -> None:
    """Brokers process pulls and commits in different threads, in any order."""
    committing: list[tuple[int, float]] = []
    committed: list[tuple[int, float]] = []

    def answer(connection: Connection, request: Command) -> None:
        fields = request.fields
        if request.code == RequestCode.PULL_MESSAGE:
            offset = int(fields["queueOffset"])
            if int(fields["sysFlag"]) & PullFlag.COMMIT:
                committing.append((int(fields["commitOffset"]), trio.current_time()))
            if offset == 5:
                answer = {
                    "nextBeginOffset": "9",
                    "minOffset": "0",
                    "maxOffset": "9",
                    "suggestWhichBrokerId": "0",
                }
                body = b"".join(map(stored, range(5, 9)))
                connection.respond(request, ResponseCode.SUCCESS, answer, body)
        elif request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            committed.append((int(fields["commitOffset"]), trio.current_time()))
            connection.respond(request, ResponseCode.SUCCESS)
        else:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": "5"})

    async with (
        scripted_cluster(answer, queues=1) as cluster,
        Client(cluster.address) as client,
        trio.open_nursery() as nursery,
    ):
        await core_of(client).routes.get("T")
        offsets = RemoteOffsetStore(core_of(client), "g")
        recorder = Recorder()
        queues = AssignedQueues(
            core_of(client),
            SETTINGS,
            {"T": make_subscription("T", version_ms=0)},
            offsets,
            recorder,
            starts=StartingOffsets(core_of(client), offsets, Position.earliest),
        )
        queues.open(nursery)
        await queues.assign("T", [QUEUE])
        while len(committing) < 2:
            await trio.sleep(0.001)
        (process_queue,) = recorder.delivered
        process_queue.remove_all(process_queue.take_batch(4))
        if end == "leaving":
            await queues.leave()
        else:
            await queues.assign("T", [])
        nursery.cancel_scope.cancel()
    ((offset, at),) = committed
    assert (offset, committing[-1][0]) == (9, 5)
    assert at - committing[-1][1] >= 0.1
