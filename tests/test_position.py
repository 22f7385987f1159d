"""Positions: how they are made, checked and shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py import Position
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.position import EVERY_KIND, MAX_VALUE, OF_GROUPS, PositionKind, check_position

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW_MS = 1_700_000_000_000

numbers = st.integers(min_value=0, max_value=MAX_VALUE)
times = st.just(0) | st.integers(min_value=100_000_000_000, max_value=MAX_VALUE)
zones = st.timezones() | st.integers(min_value=-1439, max_value=1439).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
positions = st.one_of(
    st.just(Position.earliest),
    st.just(Position.latest),
    times.map(Position.time),
    st.timedeltas(min_value=timedelta(0)).map(Position.time),
    numbers.map(Position.offset),
    numbers.map(Position.last),
)


@given(st.datetimes(min_value=datetime(1970, 1, 3), timezones=zones))  # has a zone
def test_a_datetime_is_rounded_down_to_its_millisecond(time: datetime) -> None:
    position = Position.time(time)
    assert position.kind is PositionKind.TIME
    assert timedelta(0) <= time - (EPOCH + timedelta(milliseconds=position.value)) < timedelta(milliseconds=1)


@given(st.datetimes(min_value=datetime(1970, 1, 3), timezones=zones), zones)
def test_a_datetime_in_another_zone_is_the_same_position(time: datetime, zone: timezone) -> None:
    assert Position.time(time.astimezone(zone)) == Position.time(time)


@given(times)
def test_numbers_are_kept(number: int) -> None:
    assert Position.time(number).value == Position.offset(number).value == number
    assert Position.last(number).value == number
    assert len({Position.time(number), Position.offset(number), Position.last(number)}) == 3


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=15_000)))
def test_a_timedelta_counts_back_from_the_moment_of_use(ago: timedelta) -> None:
    position = check_position(Position.time(ago), "start", now_ms=NOW_MS)
    assert position == Position.time(NOW_MS - ago // timedelta(milliseconds=1))
    assert check_position(Position.time(ago), "start") == Position.time(ago)


def test_times_before_the_epoch_are_the_epoch() -> None:
    assert Position.time(datetime(1901, 1, 1, tzinfo=UTC)) == Position.time(0)
    assert check_position(Position.time(timedelta(days=40_000)), "start", now_ms=NOW_MS) == Position.time(0)


@pytest.mark.parametrize("seconds", [1, 1_700_000_000, 99_999_999_999])
def test_epoch_seconds_are_refused(seconds: int) -> None:
    with pytest.raises(ConfigurationError, match=f"time is {seconds}, which.*; multiply epoch"):
        Position.time(seconds)


@given(positions)
def test_the_repr_is_an_expression(position: Position) -> None:
    import datetime as datetime_module

    assert eval(repr(position), {"Position": Position, "datetime": datetime_module}) == position
    assert hash(position) == hash(eval(repr(position), {"Position": Position, "datetime": datetime_module}))


@given(positions)
def test_a_position_of_an_accepted_kind_is_returned_unchanged(position: Position) -> None:
    assert check_position(position, "start") is position
    if position.kind in OF_GROUPS:
        assert check_position(position, "start", OF_GROUPS) is position


@pytest.mark.parametrize("word", ["earliest", "latest", "EARLIEST", "Latest"])
def test_words_stand_for_positions(word: str) -> None:
    assert check_position(word, "start") is getattr(Position, word.lower())


@given(st.text())
def test_other_words_are_refused(word: str) -> None:
    if word.lower() not in ("earliest", "latest"):
        with pytest.raises(ConfigurationError, match=r"start is .*; it must be 'earliest', 'latest', Pos"):
            check_position(word, "start")


@given(st.frozensets(st.sampled_from(sorted(EVERY_KIND, key=str)), min_size=2), positions)
def test_an_error_names_the_accepted_kinds(kinds: frozenset[PositionKind], position: Position) -> None:
    kinds |= {PositionKind.EARLIEST, PositionKind.LATEST}
    if position.kind in kinds:
        return
    with pytest.raises(ConfigurationError) as caught:
        check_position(position, "to", kinds)
    assert str(caught.value).startswith(f"to is {position!r}; it must be 'earliest'")
    for kind in (PositionKind.OFFSET, PositionKind.LAST, PositionKind.TIME):
        expected = str(caught.value).partition("must be")[2]
        assert (f"Position.{kind.value}(" in expected) == (kind in kinds)


def test_values_of_other_types_are_refused() -> None:
    expected = "'earliest', 'latest', Position.time(...), Position.offset(...) or Position.last(...)"
    for value in (None, 5, 1.5, b"latest", datetime.now(UTC), timedelta(1)):
        with pytest.raises(ConfigurationError) as caught:
            check_position(value, "start")
        shown = "None" if value is None else type(value).__name__
        assert str(caught.value) == f"start must be {expected}, not {shown}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Position.time(datetime(2026, 1, 31)), "time is 2026-01-31 00:00:00, without a time zone"),
        (lambda: Position.time(timedelta(seconds=-1)), "time is -1000; it must be 0 or more"),
        (lambda: Position.time(-1), "time is -1; it must be 0 or more"),
        (lambda: Position.time(1.5), "time is 1.5; it must be a whole number"),  # type: ignore[arg-type]
        (lambda: Position.time("10m"), "time must be a datetime, a timedelta or epoch milliseconds, not str"),  # type: ignore[arg-type]
        (lambda: Position.offset(-1), "offset is -1; it must be 0 or more"),
        (lambda: Position.offset("1"), "offset is '1'; it must be a whole number"),  # type: ignore[arg-type]
        (lambda: Position.offset(2**63), "value is 9223372036854775808; it must be from 0 to"),
        (lambda: Position.last(-1), "count is -1; it must be 0 or more"),
        (lambda: Position.last(True), "count is True; it must be a whole number"),
        (lambda: Position("latest"), "kind must be a PositionKind, not str"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_wrong_values_are_refused(make: object, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value).startswith(message)
