"""Listings are sequences of their items, with the errors of the brokers that failed in ``failures``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from rocketmq_py import admin
from rocketmq_py.admin.fan_out import Listing
from rocketmq_py.errors import ConnectError, RocketMQError

for _module in pkgutil.iter_modules(admin.__path__):
    importlib.import_module(f"{admin.__name__}.{_module.name}")
# Until the garbage collector runs, a class with slots has a twin of the same name.
LISTINGS = list({kind.__name__: kind for kind in Listing.__subclasses__()}.values())


@pytest.mark.parametrize("kind", LISTINGS, ids=lambda kind: kind.__name__)
def test_a_listing_iterates_indexes_and_has_a_length(kind: Any) -> None:
    (items, *others) = [field.name for field in attrs.fields(kind)]
    failures: dict[str, RocketMQError] = {"broker-b": ConnectError("10.0.0.2:10911", "refused")}
    rest = {"total": 3} if "total" in others else {}
    listing = kind(**{items: ("a", "b", "c"), "failures": failures, **rest})
    assert issubclass(kind, Sequence)
    assert [*listing] == ["a", "b", "c"]
    assert (len(listing), listing[0], listing[-1], listing[1:]) == (3, "a", "c", ("b", "c"))
    assert ("b" in listing, "x" in listing) == (True, False)
    assert listing.failures == failures
    assert getattr(listing, items) == ("a", "b", "c")
    assert not kind(**{items: (), "failures": failures, **rest})


def test_admin_has_ten_kinds_of_listings() -> None:
    assert len(LISTINGS) == 10
