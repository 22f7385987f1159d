"""Send log records as messages in the background, and read them by level.

    python examples/log_records.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import json
import logging
import sys

from rocketmq_py.blocking import Reader
from rocketmq_py.integrations.log_handler import RocketMQHandler

TOPIC = "AppLogs"


def main(address: str | None) -> None:
    """Log some records, then read the error among them."""
    handler = RocketMQHandler(TOPIC, address)
    log = logging.getLogger("shop")
    log.setLevel(logging.INFO)
    log.addHandler(handler)

    for number in range(10):
        log.info("order %d placed", number, extra={"order": number})
    log.error("order %d was refused", 10, extra={"order": 10})
    handler.flush()  # the interpreter's exit flushes as well
    print(f"dropped: {handler.dropped}")

    with (
        Reader(address) as reader,
        reader.open(TOPIC, "ERROR", start="earliest") as errors,
    ):
        record = json.loads(next(errors).body)
        print(f"{record['level']} of {record['logger']}: {record['message']} (order {record['order']})")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
