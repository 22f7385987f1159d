"""A reproducible day of a shop's orders, and the expected results of the pipeline.

``produce`` sends the orders, and ``verify`` compares the results. This module is not a program.
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs

ORDERS_TOPIC, TOTALS_TOPIC = "PipelineOrders", "PipelineTotals"
PRODUCTS = Path(__file__).parent / "products.csv"
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)

ON_TIME = 30 * MINUTE
"""Maximum delay from the till to the shop's server. Orders with a longer delay are rejected."""
WATERMARK = 2 * HOUR
"""How long an hour stays open. Longer than ``ON_TIME``, because queues are not read at the same pace."""

COUNT, SEED = 20_000, 20260301
"""The number of orders of the day, and the seed that generates them."""

LATE, TOO_LATE, REPEATED, TRUNCATED = 0.10, 0.01, 0.03, 0.002
"""The fractions of orders that are late, too late, sent twice, and truncated."""


@attrs.frozen
class Order:
    """An order of one product.

    Attributes:
        placed: when the customer placed it. Totals use this time.
        received: when the shop's server received it. A till that is offline delays its orders.
    """

    id: str
    product: str
    quantity: int
    placed: datetime
    received: datetime

    @property
    def on_time(self) -> bool:
        """Whether the totals include the order."""
        return self.received - self.placed <= ON_TIME

    def body(self) -> bytes:
        """Return the message's body."""
        fields = attrs.asdict(self)
        for name in ("placed", "received"):
            fields[name] = fields[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps(fields).encode()


@attrs.frozen
class Arrival:
    """A message of the orders topic.

    Attributes:
        at: its time of arrival on that day.
        body: its body.
        order: the order, or None if the body is truncated.
    """

    at: datetime
    body: bytes
    order: Order | None


def products() -> dict[str, tuple[str, int]]:
    """Return the category and the price in cents of each product."""
    with PRODUCTS.open(newline="") as file:
        return {row["product"]: (row["category"], int(row["cents"])) for row in csv.DictReader(file)}


def arrivals(count: int = COUNT, seed: int = SEED) -> list[Arrival]:
    """Return the messages of a day, sorted by arrival."""
    rng = random.Random(seed)
    return sorted(_arrivals(count, rng), key=lambda arrival: arrival.at)


def _arrivals(count: int, rng: random.Random) -> Iterator[Arrival]:
    names = list(products())
    for number in range(count):
        placed = MIDNIGHT + DAY * ((number + rng.random()) / count)
        received = placed + _delay(rng)
        order = Order(f"order-{number}", rng.choice(names), rng.randint(1, 5), placed, received)
        body = order.body()
        if rng.random() < TRUNCATED:
            yield Arrival(received, body[: rng.randrange(1, len(body))], None)
            continue
        yield Arrival(received, body, order)
        if rng.random() < REPEATED:  # the server sent the order again after its send timed out
            yield Arrival(received + rng.uniform(0.1, 10) * MINUTE, body, order)


def _delay(rng: random.Random) -> timedelta:
    kind = rng.random()
    if kind < TOO_LATE:
        return ON_TIME + rng.uniform(1, 300) * MINUTE
    return rng.uniform(1, 20) * MINUTE if kind < TOO_LATE + LATE else rng.uniform(0.01, 0.5) * MINUTE


HourlyKey = tuple[datetime, str]
"""The start of an hour, and a category."""


@attrs.frozen
class Total:
    """The sales of one category in one hour."""

    orders: int
    cents: int


@attrs.frozen
class ExpectedResults:
    """The expected results of the pipeline.

    Attributes:
        totals: the totals of every hour and category.
        closed: the totals that no order can change any more, because the watermark has passed them.
        rejected: the rejected bodies and reasons, counted.
    """

    totals: dict[HourlyKey, Total]
    closed: dict[HourlyKey, Total]
    rejected: Counter[tuple[str, bytes]]


def expected_results(messages: list[Arrival]) -> ExpectedResults:
    """Compute the expected results of these messages, without Spark."""
    rejected = Counter(
        [
            ("unreadable" if arrival.order is None else "too late", arrival.body)
            for arrival in messages
            if arrival.order is None or not arrival.order.on_time
        ]
    )
    orders = {
        arrival.order.id: arrival.order for arrival in messages if arrival.order and arrival.order.on_time
    }
    table, counts, cents = products(), Counter[HourlyKey](), Counter[HourlyKey]()
    for order in orders.values():
        category, price = table[order.product]
        key = order.placed.replace(minute=0, second=0, microsecond=0), category
        counts[key] += 1
        cents[key] += order.quantity * price
    totals = {key: Total(counts[key], cents[key]) for key in sorted(counts)}
    watermark = max(order.placed for order in orders.values()) - WATERMARK
    closed = {key: total for key, total in totals.items() if key[0] + HOUR <= watermark}
    return ExpectedResults(totals, closed, rejected)
