"""Fan-out: the same request to several brokers or name servers at once. Results and errors stay apart."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

import attrs

from rocketmq_py.admin.errors import SomeBrokersFailedError
from rocketmq_py.errors import RocketMQError
from rocketmq_py.notebooks import html_table
from rocketmq_py.remoting.nurseries import open_nursery

MAX_CONCURRENT = 32
"""Requests that are in flight at the same time."""

Key = TypeVar("Key")
Value = TypeVar("Value")
Queried = TypeVar("Queried")
Item = TypeVar("Item")


@attrs.frozen
class PartialResults(Generic[Key, Value]):
    """The results of several requests, of which some may have failed.

    Attributes:
        values: the results of the requests that succeeded, in the order of the requests.
        failures: the errors of the others.
    """

    values: Mapping[Key, Value]
    failures: Mapping[Key, RocketMQError]


class Listing(Sequence[Item], Generic[Item]):
    """A sequence of items that brokers returned, with the errors of the brokers that failed.

    Attributes:
        failures: the errors, by the broker's name.
    """

    __slots__ = ()

    failures: Mapping[str, RocketMQError]

    @property
    @abstractmethod
    def _items(self) -> tuple[Item, ...]:
        """The items."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self._items[index]

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return html_table(self._items, self.failures)


async def query_each(
    keys: Iterable[Key], query: Callable[[Key], Awaitable[Value]]
) -> PartialResults[Key, Value]:
    """Run ``query`` for each key, at most ``MAX_CONCURRENT`` at the same time.

    A RocketMQError of one query goes to ``failures`` and does not affect the others.
    """
    keys = list(dict.fromkeys(keys))
    values: dict[Key, Value] = {}
    failures: dict[Key, RocketMQError] = {}
    remaining = iter(keys)

    async def query_remaining() -> None:
        for key in remaining:
            try:
                values[key] = await query(key)
            except RocketMQError as error:
                failures[key] = error

    async with open_nursery() as nursery:
        for _ in range(min(MAX_CONCURRENT, len(keys))):
            nursery.start_soon(query_remaining)
    return PartialResults(
        {key: values[key] for key in keys if key in values},
        {key: failures[key] for key in keys if key in failures},
    )


async def change_each(
    names: Iterable[str], change: Callable[[str], Awaitable[Value]], action: str
) -> Mapping[str, Value]:
    """Run ``change`` for each broker or name server and return the results.

    Args:
        names: the brokers or name servers.
        change: sends the request to one of them.
        action: the change in words, for the error: ``deleting topic 'Orders'``.

    Raises:
        SomeBrokersFailedError: the change failed on some of several. With a single one its own error is
            raised.
    """
    return require_all(await query_each(names, change), action)


async def change_each_queried(
    queried: PartialResults[str, Queried], change: Callable[[str, Queried], Awaitable[Value]], action: str
) -> Mapping[str, Value]:
    """Run ``change`` with the result of an earlier query, for each broker where that query succeeded.

    Brokers where it failed count as failures of the change. Raises as :func:`change_each` does.
    """
    changed = await query_each(queried.values, lambda name: change(name, queried.values[name]))
    return require_all(PartialResults(changed.values, {**queried.failures, **changed.failures}), action)


def require_all(results: PartialResults[str, Value], action: str) -> Mapping[str, Value]:
    """Return the values if there are no failures. Otherwise raise as :func:`change_each` does."""
    if not results.failures:
        return results.values
    if not results.values and len(results.failures) == 1:
        (error,) = results.failures.values()
        raise error
    raise SomeBrokersFailedError(action, results.values, results.failures)
