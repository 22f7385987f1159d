"""Lite topics with the official Python client, which speaks gRPC to a proxy.

    python -m integration.official_lite consume --endpoints HOST:PORT --topic T --group G --lite-topics a,b
    python -m integration.official_lite send --endpoints HOST:PORT --topic T --lite-topics a,b --count 3

``consume`` runs until SIGTERM. It prints ``{"ready": …}``, and a line of JSON for each message. ``send``
sends the bodies 0, 1, … to each lite topic. Both run in the environment of
``integration.benchmarks.programs.official``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    LiteTopicPushConsumer,
    Message,
    MessageListener,
    Producer,
)


class PrintingListener(MessageListener):  # type: ignore[misc]  # the client is in an environment of its own
    """Prints the messages, and acknowledges them."""

    def consume(self, message: Message) -> ConsumeResult:
        """Print a message. Called by several threads."""
        report(lite_topic=message.lite_topic, body=message.body.decode())
        return ConsumeResult.SUCCESS


def report(**values: str) -> None:
    """Print a line with one call, so that lines of several threads do not mix."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def consume(chosen: argparse.Namespace) -> None:
    """Consume the lite topics until SIGTERM."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    consumer = LiteTopicPushConsumer(configuration(chosen), chosen.group, chosen.topic, PrintingListener())
    consumer.startup()
    for lite_topic in chosen.lite_topics:
        consumer.subscribe_lite(lite_topic)
    # subscribe_lite() of 5.1.2 subscribes to each character of the name instead of the name. The complete
    # subscription, which the client repeats every 30 seconds, corrects that.
    consumer.subscribe_lite_all()
    report(ready=consumer.client_id)
    stopped.wait()
    consumer.shutdown()


def send(chosen: argparse.Namespace) -> None:
    """Send messages to each lite topic."""
    producer = Producer(configuration(chosen), [chosen.topic])
    producer.startup()
    for number in range(chosen.count):
        for lite_topic in chosen.lite_topics:
            message = Message()
            message.topic = chosen.topic
            message.lite_topic = lite_topic
            message.body = b"%d" % number
            producer.send(message)
    producer.shutdown()


def configuration(chosen: argparse.Namespace) -> ClientConfiguration:
    """Return the configuration of a client of the proxy."""
    return ClientConfiguration(chosen.endpoints, Credentials(), request_timeout=30)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["consume", "send"])
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group")
    parser.add_argument("--lite-topics", required=True, type=lambda text: text.split(","))
    parser.add_argument("--count", type=int, default=1)
    chosen = parser.parse_args()
    {"consume": consume, "send": send}[chosen.action](chosen)


if __name__ == "__main__":
    main()
