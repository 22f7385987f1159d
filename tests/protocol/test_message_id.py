from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.message_id import OffsetMessageId, UniqueIdGenerator
from tests.protocol.strategies import int64

ADDRESS = bytes((10, 0, 0, 1))


def milliseconds(text: str, zone: tzinfo = UTC) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


class World:
    """A clock and a process id that a test sets."""

    def __init__(self, now_ms: int = milliseconds("2024-02-10")) -> None:
        self.now_ms = now_ms
        self.process_id = 0x12345

    def generator(self, address: bytes = ADDRESS, zone: tzinfo = UTC, seed: int = 1) -> UniqueIdGenerator:
        return UniqueIdGenerator(
            address,
            process_id=lambda: self.process_id,
            now_ms=lambda: self.now_ms,
            random=Random(seed),
            time_zone=zone,
        )


def test_parts_of_an_id() -> None:
    salt = Random(1).getrandbits(32)
    world = World(milliseconds("2024-02-01") + 0x1234)
    assert world.generator().next() == f"0A0000012345{salt:08X}000012340000"


def test_ids_count_up_and_begin_again() -> None:
    generator = World().generator()
    ids = [generator.next() for _ in range(65_537)]
    assert [ids[number][-4:] for number in (0, 1, 255, 65_535, 65_536)] == [
        "0000",
        "0001",
        "00FF",
        "FFFF",
        "0000",
    ]
    assert len(set(ids[:65_536])) == 65_536


def test_ids_generated_together_equal_single_ones() -> None:
    world = World()
    generator, same = world.generator(), world.generator()
    taken = [generator.next(), *generator.take(5_000), *generator.take(62_000), generator.next()]
    assert taken == [same.next() for _ in range(67_002)]
    assert generator.take(0) == []


def test_clock_is_read_again_while_many_ids_are_generated() -> None:
    def now_ms() -> int:
        world.now_ms += 1
        return world.now_ms

    world = World()
    generator = UniqueIdGenerator(ADDRESS, process_id=lambda: 1, now_ms=now_ms, random=Random(1))
    assert len(set(generator.take(200_000))) == 200_000


def test_ipv6_makes_a_longer_id() -> None:
    unique_id = World().generator(bytes(range(16))).next()
    assert len(unique_id) == 56
    assert unique_id.startswith("000102030405060708090A0B0C0D0E0F2345")


@pytest.mark.parametrize("size", [0, 3, 8, 20])
def test_other_addresses_are_refused(size: int) -> None:
    with pytest.raises(ConfigurationError, match=f"not {size}"):
        World().generator(bytes(size))


def test_a_fork_does_not_repeat_the_first() -> None:
    world = World()
    generator = world.generator()
    first = generator.next()
    world.process_id += 0x10000  # the 16 bits in the id stay the same
    second = generator.next()
    assert first[:12] == second[:12]
    assert first[12:20] != second[12:20]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_generator_notices_that_it_is_in_a_forked_process() -> None:
    generator = UniqueIdGenerator(ADDRESS, process_id=os.getpid, now_ms=lambda: 0, random=Random(1))
    before = generator.next()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, generator.next().encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    in_child = os.read(reading, 100).decode()
    os.close(reading)
    here = generator.next()
    assert in_child[-4:] == here[-4:] == "0001"
    assert here[:20] == before[:20] != in_child[:20]
    assert in_child[12:20] != here[12:20], "the salt, too"


def test_time_begins_with_each_month() -> None:
    world = World(milliseconds("2024-02-29 23:59:59"))
    generator = world.generator()
    assert generator.next()[20:28] == f"{29 * 86_400_000 - 1000:08X}"
    world.now_ms += 1000
    assert generator.next()[20:28] == "00000000"
    world.now_ms -= 1  # the clock is set back
    assert generator.next()[20:28] == f"{29 * 86_400_000 - 1:08X}"


def test_december_ends_with_the_year() -> None:
    world = World(milliseconds("2024-12-31 23:59:59"))
    generator = world.generator()
    assert generator.next()[20:28] == f"{31 * 86_400_000 - 1000:08X}"
    world.now_ms += 1000
    assert generator.next()[20:28] == "00000000"


def test_months_begin_in_the_time_zone() -> None:
    zone = timezone(timedelta(hours=8))
    world = World(milliseconds("2024-03-01", zone=zone))
    assert world.generator(zone=zone).next()[20:28] == "00000000"
    assert world.generator(zone=UTC).next()[20:28] != "00000000"


@pytest.mark.parametrize("text", ["", "xyz", "0A", "0A" * 15 + "0", "G" * 32, "0A" * 17, " " + "0A" * 16])
def test_invalid_ids_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="32 or 56 hex digits"):
        OffsetMessageId.parse(text)


def test_java_offset_message_id() -> None:
    parsed = OffsetMessageId.parse("0A00000200002A9F0000001CBE991A14")
    assert (parsed.broker_address, parsed.commit_log_offset) == ("10.0.0.2:10911", 123456789012)


def test_java_offset_message_id_of_ipv6() -> None:
    text = "20010DB800000000000000000000000200002A9F0000001CBE991A14"
    parsed = OffsetMessageId.parse(text)
    assert (parsed.broker_address, parsed.commit_log_offset) == ("[2001:db8::2]:10911", 123456789012)
    assert str(parsed) == text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0A00000200002A9F0000001CBE991A14", "10.0.0.2:10911"),
        ("0000000000000000000000000000000100002A9F0000001CBE991A14", "[::1]:10911"),
        ("FE80000000000000000000000000000100002A9F0000001CBE991A14", "[fe80::1%eth0]:10911"),
    ],
)
def test_id_has_the_address_of_its_broker(text: str, address: str) -> None:
    parsed = OffsetMessageId.parse(text)
    assert parsed.is_of(address)
    assert not parsed.is_of(address.replace("10911", "10912"))
    for other in ("10.0.0.3:10911", "[::2]:10911", "broker-a:10911", "nonsense"):
        assert not parsed.is_of(other)


@given(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20), int64)
def test_offset_message_id_round_trip(address: bytes, offset: int) -> None:
    message_id = OffsetMessageId(address, offset)
    assert OffsetMessageId.parse(str(message_id)) == message_id


def test_an_id_has_the_port_of_its_broker_under_any_host() -> None:
    message_id = OffsetMessageId.parse("7F00000100002A9F0000000000000000")
    assert message_id.has_port_of("broker.example:10911")
    assert not message_id.has_port_of("broker.example:10912")
    assert not message_id.has_port_of("not an address")
