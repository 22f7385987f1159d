"""A relay whose disk is full after some messages. Prints its committed offset and the size of its store."""

from __future__ import annotations

import resource
import sys

import trio

from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.errors import StoreError
from rocketmq_py.relay import Relay, wait_in
from rocketmq_py.relay.store import Store

FILE_BYTES = 512 * 1024


async def main() -> None:
    address, unique, folder = sys.argv[1:]
    buffer, topic = f"B-{unique}", f"T-{unique}"
    async with Client(address) as client:
        info = await core_of(client).name_servers.cluster_info()
        (brokers,) = info.broker_addr_table.values()
        await core_of(client).brokers.create_topic(brokers.broker_addrs[0], buffer, queues=1)
        async with client.producer("senders") as producer:
            for _ in range(200):
                message = Message(topic, b"x" * 8192)
                await producer.send(wait_in(buffer, message, core_of(client).now_ms() + 3_600_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, resource.RLIM_INFINITY))
        try:
            async with Relay(client, topic=buffer, store=folder) as relay:
                await relay.run()
        except StoreError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (queue,) = (await core_of(client).routes.get(buffer)).read_queues
        committed = await core_of(client).brokers.committed_offset(f"RELAY_{buffer}", queue, zero_if_new=True)
        with Store(folder) as store:
            queue_store = store.open_queue(queue)
            print(committed, queue_store.next_offset or 0, len(list(queue_store.messages())))
        # The relay continues when there is space again.
        async with Relay(client, topic=buffer, store=folder) as relay:
            while (
                await core_of(client).brokers.committed_offset(f"RELAY_{buffer}", queue, zero_if_new=True)
                != 200
            ):
                await trio.sleep(0.05)
        with Store(folder) as store:
            print(len(list(store.open_queue(queue).messages())))


if __name__ == "__main__":
    trio.run(main)
