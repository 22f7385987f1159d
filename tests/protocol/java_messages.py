"""Stored messages that Java 5.5.0 wrote (``MessageDecoder.encode``, ``encodeMessages``)."""

from __future__ import annotations


def _head(size: str, system_flag: str, born_host: str = "0a000001", store_host: str = "0a000002") -> str:
    """Return the common start of all messages, from the size to the length of the body."""
    return (
        f"{size}daa320a73610a6860000000300000009000000000000000b0000001cbe991a14{system_flag}0000018bcfe56800"
        f"{born_host}0000c3500000018bcfe56801{store_host}00002a9f000000020000000000000004"
    )


_HELLO = "0000000568656c6c6f"
_TOPIC = "0354c3a9"
_TAGS_AND_KEYS = "000f544147530141024b455953016b3102"
_KEYS_AND_TAGS = "000f4b455953016b310254414753014102"
_KEYS_AND_TAGS_OF_4 = "000e4b455953016b3102544147530141"  # 4.9.8 omits the last separator
_V6_BORN, _V6_STORE = (f"20010db80000000000000000000000{number}" for number in ("01", "02"))
_BATCH_OF_TWO = (
    "00000031000000000000000000000005000000036f6e6500184b455953016b025741495401747275650254414753014102"
    "000000230000000000000000000000000000000374776f000a57414954017472756502"
)

PLAIN = bytes.fromhex(_head("00000072", "00000000") + _HELLO + _TOPIC + _KEYS_AND_TAGS)
PLAIN_OF_4 = bytes.fromhex(_head("00000071", "00000000") + _HELLO + _TOPIC + _KEYS_AND_TAGS_OF_4)
V6_BORN = bytes.fromhex(_head("0000007e", "00000010", _V6_BORN) + _HELLO + _TOPIC + _TAGS_AND_KEYS)
V6_BOTH = bytes.fromhex(_head("0000008a", "00000030", _V6_BORN, _V6_STORE) + _HELLO + _TOPIC + _TAGS_AND_KEYS)
LZ4 = bytes.fromhex(
    _head("0000008a", "00000101")
    + "0000001d04224d186070730e0000002f61620200ffff40506261626162"
    + "00000000"
    + _TOPIC
    + _TAGS_AND_KEYS
)
ZSTD = bytes.fromhex(
    _head("00000082", "00000201")
    + "0000001528b52ffd00584c0000106162010053aa1c16010000"
    + _TOPIC
    + _TAGS_AND_KEYS
)
ZLIB = bytes.fromhex(
    _head("0000007d", "00000301") + "00000010785e4b4c4a1c85a390ea10004e68e485" + _TOPIC + _TAGS_AND_KEYS
)
EMPTY = bytes.fromhex(_head("0000006d", "00000000") + "00000000" + _TOPIC + _TAGS_AND_KEYS)
INNER_BATCH = bytes.fromhex(
    _head("000000c1", "000000c0") + "00000054" + _BATCH_OF_TWO + _TOPIC + _TAGS_AND_KEYS
)
BATCH_BODY = bytes.fromhex(_BATCH_OF_TWO)
