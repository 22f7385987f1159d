"""Random changes of a table, as the messages of Canal and of Debezium, and the rows that result."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import attrs

Row: TypeAlias = dict[str, Any]
KEYS = 12
"""Few, so that most changes concern rows that have been changed before."""
FIRST_TIME = 1_700_000_000_000


@attrs.frozen
class Sent:
    """A message.

    Attributes:
        queue: the number of its queue.
        body: its body.
    """

    queue: int
    body: bytes


@attrs.define
class Database:
    """A table ``orders`` that changes at random.

    Args:
        seed: the seed of all random choices.
        queues: the number of queues, to which the key of a row assigns its messages.
        same_time: whether all changes happen at the same time, as in the same second of MySQL's log.
    """

    seed: int
    queues: int
    same_time: bool = False
    rows: dict[int, Row] = attrs.field(factory=dict)
    others: int = 0
    """The number of messages sent that are no changes of rows."""
    _rng: random.Random = attrs.field(init=False)
    _time: int = FIRST_TIME

    def __attrs_post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def canal(self, statements: int) -> list[Sent]:
        """Change the table by statements, and return Canal's messages."""
        return self._send([self._canal_statement() for _ in range(statements)])

    def debezium(self, statements: int) -> list[Sent]:
        """Change the table by statements, and return Debezium's messages."""
        return self._send([list(self._debezium_statement()) for _ in range(statements)])

    def _send(self, statements: Sequence[Sequence[Sent]]) -> list[Sent]:
        """Send statements in portions. Some queues get a part of their portion, and then all of it again."""
        sent = []
        rest = list(statements)
        while rest:
            size = self._rng.randint(1, 5)
            portion = [message for statement in rest[:size] for message in statement]
            del rest[:size]
            for queue in range(self.queues):
                of_queue = [message for message in portion if message.queue == queue]
                if self._rng.random() < 0.3:
                    sent += of_queue[: self._rng.randint(0, len(of_queue))]
                sent += of_queue
        return sent

    # Statements

    def _canal_statement(self) -> list[Sent]:
        """Change up to three rows. Rows of one queue are in one message."""
        if self._rng.random() < 0.05:
            self.others += 1
            return [
                Sent(0, self._canal_body("ALTER", isDdl=True, sql=f"ALTER TABLE orders -- {self.others}"))
            ]
        kind = self._rng.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
        data: dict[int, list[Row]] = {}
        old: dict[int, list[Row]] = {}
        self._pass_time()
        for before, after in self._changes(kind, self._rng.randint(1, 3)):
            image = after or before or {}
            queue = self._queue(image["id"])
            data.setdefault(queue, []).append(_text(image))
            changed = {} if kind != "UPDATE" or before is None else before.items() - image.items()
            old.setdefault(queue, []).append(_text(dict(changed)))
        return [
            Sent(queue, self._canal_body(kind, data=rows, old=old[queue] if kind == "UPDATE" else None))
            for queue, rows in data.items()
        ]

    def _canal_body(self, kind: str, **fields: Any) -> bytes:
        message = {
            "id": 1, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": False, "type": kind,
            "es": self._time, "ts": self._time + 7, "sql": "", "data": None, "old": None,
        }  # fmt: skip
        return json.dumps({**message, **fields}).encode()

    def _debezium_statement(self) -> Iterator[Sent]:
        kind = self._rng.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
        self._pass_time()
        for before, after in self._changes(kind, 1):
            if before and after and before["id"] != after["id"]:
                yield self._debezium_message("d", before, None)
                yield self._debezium_message("c", None, after)
            else:
                yield self._debezium_message({"INSERT": "c", "UPDATE": "u"}.get(kind, "d"), before, after)

    def _debezium_message(self, op: str, before: Row | None, after: Row | None) -> Sent:
        source = {"db": "shop", "table": "orders", "ts_ms": self._time}
        event = {"before": before, "after": after, "op": op, "source": source}
        wrapped = {"schema": {"type": "struct"}, "payload": event} if self._rng.random() < 0.5 else event
        return Sent(self._queue((after or before or {})["id"]), json.dumps(wrapped).encode())

    def _changes(self, kind: str, count: int) -> Iterator[tuple[Row | None, Row | None]]:
        """Change up to ``count`` different rows. Return each one as it was before and after."""
        free = [key for key in range(KEYS) if key not in self.rows]
        keys = free if kind == "INSERT" else sorted(self.rows)
        for key in self._rng.sample(keys, min(count, len(keys))):
            before = self.rows.pop(key, None)
            after = None if kind == "DELETE" else self._new_row(before, key)
            if before and after and free and self._rng.random() < 0.3:
                after["id"] = free.pop()
            if after:
                self.rows[after["id"]] = after
            yield before, after

    def _new_row(self, before: Row | None, key: int) -> Row:
        customer = self._rng.choice(["Ann", "李", None])
        row = {"id": key, "customer": customer, "cents": self._rng.randrange(10**12), "status": "new"}
        return row if before is None else {**before, "cents": row["cents"], "status": "changed"}

    def _pass_time(self) -> None:
        self._time += 0 if self.same_time else 1000

    def _queue(self, key: int) -> int:
        return key % self.queues


def _text(row: Row) -> Row:
    """Return a row with all values as text, as Canal sends it."""
    return {name: None if value is None else str(value) for name, value in row.items()}
