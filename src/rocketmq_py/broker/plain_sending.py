"""Plain messages for topics that are there, from a request's header to the answer's bytes in few steps.

Nearly all that a broker is sent is such. :class:`Sending` does the same with every other send, and would do
so with these: whatever is unusual in one is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from rocketmq_py import properties as names
from rocketmq_py.broker.draft import tags_code
from rocketmq_py.broker.sending import UNLIKE_PLAIN, UNLIKE_PLAIN_BITS
from rocketmq_py.broker.store import ConsumeQueue, MessageStore
from rocketmq_py.broker.topics import TopicTable, is_sendable
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.typed_sends import AnswerTemplate, SendCommand, answer_template
from rocketmq_py.remoting import Connection

# What messages have that have tags and keys at the most: three times as fast as to take the text apart.
_match_common = re.compile(
    "UNIQ_KEY\x01([^\x01\x02]++)\x02WAIT\x01(?:true|false)\x02"
    "(?:TAGS\x01([^\x01\x02]++)\x02)?+(?:KEYS\x01[^\x01\x02]++\x02)?+"
).fullmatch


class _Place(msgspec.Struct, frozen=True):
    """A queue that plain messages are stored in, and what answers them."""

    queue: ConsumeQueue
    answer: AnswerTemplate


class PlainSending:
    """Answers plain sends.

    Args:
        marks: what answers and messages say of the broker.
        cluster_name: what messages say, too.
        topics: the broker's topics.
        store: keeps messages.
        born_host: gives a connection's peer in packed form.
    """

    def __init__(
        self,
        marks: Mapping[str, str],
        cluster_name: str,
        topics: TopicTable,
        store: MessageStore,
        *,
        born_host: Callable[[Connection], bytes],
    ) -> None:
        self._marks = marks
        self._topics = topics
        self._store = store
        self._born_host = born_host
        added = {**marks, names.CLUSTER: cluster_name}
        self._added = names.encode_properties(added)
        self._unlike_plain = UNLIKE_PLAIN | added.keys()
        self._places: dict[str, dict[str, _Place]] = {}  # by topic, and by queue id as it is on the wire
        self._changes = topics.changes

    def take(self, connection: Connection, send: SendCommand) -> bytes | None:
        """Store a message, and return the frame that answers its sender; None for what is unusual."""
        fields = send.fields
        encoded = fields.properties
        if not encoded.endswith("\x02"):
            encoded += "\x02"  # Java leaves the last one out
        if common := _match_common(encoded):
            unique_id, tags = common.groups()
        elif read := self._unique_id_and_tags(encoded):
            unique_id, tags = read
        else:
            return None
        try:
            system_flag = int(fields.system_flag)
            flag, born_time_ms = int(fields.flag), int(fields.born_time_ms)
            int(fields.default_topic_queues)  # not needed, and yet wrong where it is no number
        except ValueError:
            return None
        if not send.body or system_flag & UNLIKE_PLAIN_BITS:
            return None
        if self._changes != self._topics.changes:
            self._places.clear()
            self._changes = self._topics.changes
        of_topic = self._places.get(fields.topic)
        place = None if of_topic is None else of_topic.get(fields.queue_id)
        if place is None:
            place = self._find(fields.topic, fields.queue_id)
            if place is None:
                return None
        try:
            stored = self._store.append(
                place.queue,
                send.body,
                (encoded + self._added).encode(),
                tags_code(tags),
                flag,
                system_flag,
                born_time_ms,
                self._born_host(connection),
            )
        except InvalidMessageError:
            return None  # nothing was stored, and why not is said in the general way
        return place.answer.frame(send.opaque, stored.commit_log_offset, stored.queue_offset, unique_id)

    def _unique_id_and_tags(self, encoded: str) -> tuple[str, str | None] | None:
        """Return what is wanted of properties; None if there is more to be done than to add the broker's."""
        properties = names.decode_properties(encoded)
        unique_id = properties.get(names.UNIQUE_KEY)
        count = len(properties)
        if (
            not unique_id
            # Written anew, they would be the same text: no name comes twice, and no piece is without a value.
            or encoded.count("\x01") != count
            or encoded.count("\x02") != count
            or "" in properties
            or "" in properties.values()
            or not self._unlike_plain.isdisjoint(properties)
        ):
            return None
        return unique_id, properties.get(names.TAGS)

    def _find(self, topic_name: str, queue_text: str) -> _Place | None:
        topic = self._topics.get(topic_name)
        if topic is None or topic.order or not is_sendable(topic_name) or topic_name.startswith(RETRY_PREFIX):
            return None
        try:
            queue_id = int(queue_text)
        except ValueError:
            return None
        if not 0 <= queue_id < max(topic.write_queue_nums, topic.read_queue_nums):
            return None
        if str(queue_id) != queue_text:
            return None  # one of many ways to write it, which are not to fill the table
        answer = answer_template(self._marks, self._store.id_prefix, queue_id)
        if answer is None:
            return None
        # Deleting a topic changes the table of topics, and then this is looked for again.
        place = _Place(self._store.queue(topic_name, queue_id), answer)
        self._places.setdefault(topic_name, {})[queue_text] = place
        return place
