"""One question to several, side by side; what each answers is kept apart."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

import attrs

from rocketmq_py.errors import RocketMQError, SomeBrokersFailedError
from rocketmq_py.remoting.running import open_nursery

AT_ONCE = 32
"""Questions that are under way at the same time."""

Key = TypeVar("Key")
Answer = TypeVar("Answer")
Seen = TypeVar("Seen")
Item = TypeVar("Item")


@attrs.frozen
class Answers(Generic[Key, Answer]):
    """What those who were asked answered.

    Attributes:
        values: the answer of each that gave one, in the order in which they were asked.
        failures: the error of each that did not.
    """

    values: Mapping[Key, Answer]
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


async def ask_each(keys: Iterable[Key], ask: Callable[[Key], Awaitable[Answer]]) -> Answers[Key, Answer]:
    """Ask all of them, ``AT_ONCE`` at a time. A RocketMQError of one stops none of the others."""
    keys = list(dict.fromkeys(keys))
    values: dict[Key, Answer] = {}
    failures: dict[Key, RocketMQError] = {}
    left = iter(keys)

    async def ask_in_turn() -> None:
        for key in left:
            try:
                values[key] = await ask(key)
            except RocketMQError as error:
                failures[key] = error

    async with open_nursery() as nursery:
        for _ in range(min(AT_ONCE, len(keys))):
            nursery.start_soon(ask_in_turn)
    return Answers(
        {key: values[key] for key in keys if key in values},
        {key: failures[key] for key in keys if key in failures},
    )


async def have_each_do(
    keys: Iterable[str], do: Callable[[str], Awaitable[Answer]], what: str
) -> Mapping[str, Answer]:
    """Have each of them do something; return what they answered.

    Raises:
        SomeBrokersFailedError: not all did it, of several. Of one alone its own error is raised.
    """
    answers = await ask_each(keys, do)
    return complete(answers, what)


async def have_each_go_on(
    seen: Answers[str, Seen], do: Callable[[str, Seen], Awaitable[Answer]], what: str
) -> Mapping[str, Answer]:
    """Have each that answered a question do something with its answer; return what they answered then.

    Those that did not answer the question are among the failures. Raises as :func:`have_each_do`.
    """
    done = await ask_each(seen.values, lambda key: do(key, seen.values[key]))
    return complete(Answers(done.values, {**seen.failures, **done.failures}), what)


def complete(answers: Answers[str, Answer], what: str) -> Mapping[str, Answer]:
    """Return the values if nobody failed; else raise as :func:`have_each_do` does."""
    if not answers.failures:
        return answers.values
    if not answers.values and len(answers.failures) == 1:
        (error,) = answers.failures.values()
        raise error
    raise SomeBrokersFailedError(what, answers.values, answers.failures)
