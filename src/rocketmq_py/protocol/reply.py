"""Replies to request messages, as brokers push them to the requesting client.

Java: ``ClientRemotingProcessor``.
"""

from __future__ import annotations

import zlib

from rocketmq_py.address import normal_address, pack_address
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.property_names import ARRIVE_TIME
from rocketmq_py.protocol.decode_errors import decoder
from rocketmq_py.protocol.headers import PushReplyMessageRequest
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG, decompress_body

_UNKNOWN_ADDRESS = bytes(8)


@decoder("a reply")
def reply_message(header: PushReplyMessageRequest, body: bytes, arrived_ms: int) -> ReceivedMessage:
    """Return the reply in a broker's PUSH_REPLY_MESSAGE_TO_CLIENT.

    Its offsets are 0: the broker does not store it, or does not report its position.

    Args:
        header: the header of the broker's request.
        body: the body of the broker's request.
        arrived_ms: the current time, epoch milliseconds.
    """
    size, system_flag, corruption = len(body), header.sys_flag, None
    crc = zlib.crc32(body) & 0x7FFFFFFF
    if system_flag & COMPRESSED_FLAG:
        body, system_flag, corruption = decompress_body(body, system_flag)
    properties = (header.properties or "").removesuffix("\x02")
    separator = "\x02" if properties else ""
    return ReceivedMessage(
        topic=header.topic,
        body=body,
        broker_name="",
        queue_id=header.queue_id,
        queue_offset=0,
        commit_log_offset=0,
        flag=header.flag,
        system_flag=system_flag,
        born_time_ms=header.born_timestamp,
        born_address=_pack(header.born_host),
        store_time_ms=header.store_timestamp,
        store_address=_pack(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body_crc=crc,
        store_size=size,
        encoded_properties=f"{properties}{separator}{ARRIVE_TIME}\x01{arrived_ms}\x02".encode(),
        corruption=corruption,
    )


def _pack(address: str) -> bytes:
    """Return an address as stored messages encode it, or zeros if it is not a numeric address."""
    try:
        return pack_address(normal_address(address))
    except ConfigurationError:
        return _UNKNOWN_ADDRESS
