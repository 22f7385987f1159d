"""The requests of a pop consumer, on a broker without sockets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.bodies import BatchAcks
from rocketmq_py.protocol.headers import AckMessageRequest, ChangeInvisibleTimeRequest, PopMessageRequest
from tests.broker.offline import START_MS, Answer, OfflineClient
from tests.popped import Popped, ack_together, read_popped

GROUP = "readers"


def now_ms() -> int:
    """Return the broker's time, epoch milliseconds."""
    return START_MS + int(trio.current_time() * 1000)


def pop_fields(topic: str, **changes: Any) -> dict[str, str]:
    values = {
        "consumer_group": GROUP, "topic": topic, "queue_id": -1, "max_msg_nums": 32, "invisible_time": 30_000,
        "poll_time": 0, "born_time": now_ms(), "init_mode": 0, **changes,
    }  # fmt: skip
    return PopMessageRequest(**values).to_fields()


def ask_pop(client: OfflineClient, topic: str, **changes: Any) -> Answer:
    """Send a pop that is answered at once. Returns the answer."""
    return client.ask(RequestCode.POP_MESSAGE, pop_fields(topic, **changes))


def hold_pop(client: OfflineClient, topic: str, **changes: Any) -> int:
    """Send a pop that is held while there is no message. Returns its opaque."""
    return client.send_request(RequestCode.POP_MESSAGE, pop_fields(topic, **{"poll_time": 15_000, **changes}))


def read(answer: Answer) -> list[Popped]:
    """Return the messages in an answer."""
    return read_popped(answer.fields, answer.body, "broker-a")


def pop(client: OfflineClient, topic: str, **changes: Any) -> list[Popped]:
    """Send a pop that is answered at once. Returns the messages."""
    return read(ask_pop(client, topic, **changes))


def ack(client: OfflineClient, popped: Popped) -> Answer:
    """Acknowledge a message."""
    return client.ask(RequestCode.ACK_MESSAGE, AckMessageRequest(**popped.fields(GROUP)).to_fields())


def change(client: OfflineClient, popped: Popped, seconds: float, **changes: Any) -> Answer:
    """Change the invisible time of a message to ``seconds`` from now."""
    invisible_time = int(seconds * 1000)
    header = ChangeInvisibleTimeRequest(**popped.fields(GROUP), invisible_time=invisible_time, **changes)
    return client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.to_fields())


def batch_ack(client: OfflineClient, popped: Iterable[Popped]) -> Answer:
    """Acknowledge messages that were popped together from one queue."""
    body = BatchAcks(broker_name="broker-a", acks=(ack_together(popped, GROUP),)).encode()
    return client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
