"""A day of a shop's orders as they come in, the same for the same seed, and what must become of them.

Not run by itself: ``produce`` sends them, ``verify`` compares.
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
"""An order that took longer from its till to the shop's server is booked by hand."""
WATERMARK = 2 * HOUR
"""For how long an hour stays open. Longer than ``ON_TIME``: queues are not read in step to the minute."""

COUNT, SEED = 20_000, 20260301
"""How many orders a day has, and which day of all the possible ones it is."""

LATE, TOO_LATE, REPEATED, BROKEN = 0.10, 0.01, 0.03, 0.002
"""How many of the orders are late, too late, sent twice, and cut off on their way."""


@attrs.frozen
class Order:
    """An order of one product.

    Attributes:
        placed: when the customer placed it; totals are by this time.
        received: when the shop's server had it. A till without a network keeps its orders for a while.
    """

    id: str
    product: str
    quantity: int
    placed: datetime
    received: datetime

    @property
    def on_time(self) -> bool:
        """Whether it counts in the totals."""
        return self.received - self.placed <= ON_TIME

    def body(self) -> bytes:
        """Return the message's body."""
        fields = attrs.asdict(self)
        for name in ("placed", "received"):
            fields[name] = fields[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps(fields).encode()


@attrs.frozen
class Arrival:
    """A message as it comes in.

    Attributes:
        at: when, in the time of that day.
        order: None if the body is cut off, and nobody can tell what was ordered.
    """

    at: datetime
    body: bytes
    order: Order | None


def products() -> dict[str, tuple[str, int]]:
    """Return each product's category, and its price in cents."""
    with PRODUCTS.open(newline="") as file:
        return {row["product"]: (row["category"], int(row["cents"])) for row in csv.DictReader(file)}


def arrivals(count: int = COUNT, seed: int = SEED) -> list[Arrival]:
    """Return the messages of a day in the order in which they come in."""
    chance = random.Random(seed)
    return sorted(_arrivals(count, chance), key=lambda arrival: arrival.at)


def _arrivals(count: int, chance: random.Random) -> Iterator[Arrival]:
    names = list(products())
    for number in range(count):
        placed = MIDNIGHT + DAY * ((number + chance.random()) / count)
        received = placed + _delay(chance)
        order = Order(f"order-{number}", chance.choice(names), chance.randint(1, 5), placed, received)
        body = order.body()
        if chance.random() < BROKEN:
            yield Arrival(received, body[: chance.randrange(1, len(body))], None)
            continue
        yield Arrival(received, body, order)
        if chance.random() < REPEATED:  # the server did not see the answer to its send, and sent it again
            yield Arrival(received + chance.uniform(0.1, 10) * MINUTE, body, order)


def _delay(chance: random.Random) -> timedelta:
    kind = chance.random()
    if kind < TOO_LATE:
        return ON_TIME + chance.uniform(1, 300) * MINUTE
    return chance.uniform(1, 20) * MINUTE if kind < TOO_LATE + LATE else chance.uniform(0.01, 0.5) * MINUTE


Hour = tuple[datetime, str]
"""The hour's beginning, and the category."""


@attrs.frozen
class Total:
    """What was sold of one category in one hour."""

    orders: int
    cents: int


@attrs.frozen
class Truth:
    """What must become of a day's messages.

    Attributes:
        totals: of every hour and category.
        closed: those of them that no order can change any more, because the watermark has passed.
        rejected: the bodies that are set aside, each as often as it came, with the reason.
    """

    totals: dict[Hour, Total]
    closed: dict[Hour, Total]
    rejected: Counter[tuple[str, bytes]]


def truth(came: list[Arrival]) -> Truth:
    """Work out what must become of these messages, without Spark."""
    rejected = Counter(
        [
            ("unreadable" if arrival.order is None else "too late", arrival.body)
            for arrival in came
            if arrival.order is None or not arrival.order.on_time
        ]
    )
    orders = {arrival.order.id: arrival.order for arrival in came if arrival.order and arrival.order.on_time}
    table, counts, cents = products(), Counter[Hour](), Counter[Hour]()
    for order in orders.values():
        category, price = table[order.product]
        hour = order.placed.replace(minute=0, second=0, microsecond=0), category
        counts[hour] += 1
        cents[hour] += order.quantity * price
    totals = {hour: Total(counts[hour], cents[hour]) for hour in sorted(counts)}
    watermark = max(order.placed for order in orders.values()) - WATERMARK
    closed = {hour: total for hour, total in totals.items() if hour[0] + HOUR <= watermark}
    return Truth(totals, closed, rejected)
