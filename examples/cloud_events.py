"""CloudEvents as messages: one in binary mode, one in structured mode.

    pip install "./rocketmq-py[cloudevents]"
    python examples/cloud_events.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import itertools
import sys

from cloudevents.core.v1.event import CloudEvent

from rocketmq_py.blocking import Client
from rocketmq_py.integrations.cloudevents import from_message, to_binary, to_structured

TOPIC = "CloudEvents"


def main(address: str | None) -> None:
    """Send two events, and print them as a consumer receives them."""
    attributes = {
        "type": "order.placed",
        "source": "/shop",
        "datacontenttype": "application/json",
        "partitionkey": "customer-7",
    }
    event = CloudEvent(attributes, {"order": 7})
    with Client(address) as client:
        with client.producer("examples") as producer:
            producer.send(to_binary(event, TOPIC, tags="placed"))
            producer.send(to_structured(event, TOPIC, tags="placed"))
        with (
            client.reader() as reader,
            reader.open(TOPIC, start="earliest") as messages,
        ):
            for message in itertools.islice(messages, 2):
                received = from_message(message)
                print(message.properties["CE_contenttype"], received.get_type(), repr(received.get_data()))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
