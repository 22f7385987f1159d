"""Send a data frame as messages, and read messages into a data frame.

    pip install "./rocketmq-py[data-frames]" pandas
    python examples/data_frames.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import json
import sys

import pandas as pd

from rocketmq_py.blocking import Client
from rocketmq_py.integrations.data_frames import commit_messages, read_messages, write_messages

TOPIC = "SalesTest"
GROUP = "reports"


def main(address: str | None) -> None:
    """Send sales, and report the sales that the group has not reported yet."""
    sales = [{"shop": "12"[number % 2], "price": float(number)} for number in range(1000)]
    frame = pd.DataFrame(
        {
            "body": [json.dumps(sale) for sale in sales],
            "tags": [f"shop-{sale['shop']}" for sale in sales],
            "sharding_key": [sale["shop"] for sale in sales],
        }
    )
    with Client(address) as client:
        print(f"sent {write_messages(frame, TOPIC, client)} sales")

        messages = read_messages(TOPIC, client, group=GROUP)
        found = pd.DataFrame([json.loads(body) for body in messages.column("body").to_pylist()])
        print(f"revenue by shop: {found.groupby('shop')['price'].sum().to_dict()}")
        commit_messages(messages, GROUP, client)

        print(f"new since the last report: {read_messages(TOPIC, client, group=GROUP).num_rows}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
