"""Messages by key and by unique id (Java: ``IndexService``)."""

from __future__ import annotations

from collections import defaultdict

from rocketmq_py import properties as names
from rocketmq_py.broker.storage.broker_message import TRANSACTION_BITS, BrokerMessage
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.protocol.stored_message import TRANSACTION_ROLLBACK


class KeyIndex:
    """Finds messages by their keys.

    Sending costs nothing for it: what was stored since the last question is indexed with the next one.

    Attributes:
        last_indexed: the newest message in the index, None if there is none.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._next_place = 0
        self._first_place = 0
        self._truncations = 0
        self.last_indexed: StoredMessage | None = None

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int, count: int) -> list[StoredMessage]:
        """Return the newest ``count`` messages with this key or unique id, oldest first.

        Args:
            topic: where to look.
            key: the key, or the unique id.
            begin_ms: the first store time, epoch milliseconds.
            end_ms: the last store time, epoch milliseconds.
            count: how many at the most.
        """
        self._catch_up()
        log = self._store.log
        found: list[StoredMessage] = []
        for place in reversed(self._places.get((topic, key), ())):
            if place < log.start or len(found) >= count:
                break
            message = log[place]
            if begin_ms <= message.store_time_ms <= end_ms:
                found.append(message)
        found.reverse()
        return found

    def _catch_up(self) -> None:
        log, store = self._store.log, self._store
        if log.start - self._first_place > log.end - log.start or store.truncations != self._truncations:
            # More is gone than is left: begin anew rather than look for what to take out.
            self._places.clear()
            self._truncations = store.truncations
            self._next_place = self._first_place = log.start
        for place in range(max(self._next_place, log.start), log.end):
            self._add(log[place], place)
        self._next_place = log.end

    def _add(self, stored: StoredMessage, place: int) -> None:
        message = BrokerMessage.decode(stored)
        if message.system_flag & TRANSACTION_BITS == TRANSACTION_ROLLBACK:
            return
        self.last_indexed = stored
        for key in _keys_of(message):
            self._places[stored.topic, key].append(place)


def _keys_of(message: BrokerMessage) -> set[str]:
    keys = set(message.properties.get(names.KEYS, "").split(names.KEY_SEPARATOR)) - {""}
    unique_id = message.properties.get(names.UNIQUE_KEY)
    if unique_id:
        keys.add(unique_id)
    return keys
