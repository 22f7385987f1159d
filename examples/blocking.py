"""Send and read with the threads API, without trio.

    python examples/blocking.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876. ``rocketmq-py server`` starts one there if you have none.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from rocketmq_py import Message, OffsetRange, RocketMQError
from rocketmq_py.blocking import Client

TOPIC = "BlockingTest"


def main(address: str | None) -> None:
    """Send in three ways, partly from several threads, and read all messages."""
    with Client(address) as client:
        producer = client.producer("examples")

        # Awaited: returns when a broker has stored the message. Any number of threads may send.
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda number: producer.send(Message(TOPIC, b"%d" % number)), range(100)))
        print(f"awaited: {len(results)} messages of 4 threads")

        # Pipelined: returns as soon as the message is queued for sending. The result is a standard Future.
        futures = [producer.submit(Message(TOPIC, b"pipelined")) for _ in range(100)]
        print(f"pipelined: {len({future.result().message_id for future in futures})} results")

        # Many at once, with a result or an error for each: the fastest way.
        outcomes = client.producer("examples", linger=0.005).send_all(
            Message(TOPIC, b"many") for _ in range(1000)
        )
        failed = [outcome for outcome in outcomes if isinstance(outcome, RocketMQError)]
        print(f"many at once: {len(outcomes)} outcomes, {len(failed)} of them errors")
        if failed:
            print(f"the first error: {failed[0]}")

        # Read without joining a group: single messages, or undecoded chunks as the brokers store them.
        reader = client.reader()
        offsets = reader.offsets(TOPIC)
        read = sum(1 for queue in offsets for _ in reader.range(queue))
        spans = [OffsetRange(queue, first, end) for queue, (first, end) in offsets.items()]
        size = sum(len(chunk.body) for chunk in reader.pull(spans))
        print(f"read: {read} messages; {'all' if size else 'none'} of them undecoded as well")
    # Leaving the block has closed the client, its producers and its reader.


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
