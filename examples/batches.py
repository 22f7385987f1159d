"""Send many messages in few requests: as explicit lists, or batched automatically.

    python examples/batches.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Message, Producer

TOPIC = "BatchTest"


async def main(address: str | None) -> None:
    """Send a list, then submit single messages that the producer batches."""
    async with Producer(address, group="examples") as producer:
        messages = [Message(TOPIC, b"in a list %d" % number) for number in range(100)]
        results = await producer.send_batch(messages)  # a long list is split into several requests
        print(f"a list: {len(results)} messages from offset {results[0].queue_offset} on")

    async with Producer(address, group="examples", linger=0.005) as batching:
        pending = [await batching.submit(Message(TOPIC, b"by itself %d" % number)) for number in range(1000)]
        results = [await one for one in pending]
        print(
            f"by themselves: {len({result.message_id for result in results})} messages, each with its result"
        )


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
