"""Errors as users should see them: Spark prints the whole traceback before an error's text."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from rocketmq_py.errors import RocketMQError

logger: Final = logging.getLogger("rocketmq_py.spark")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def plain(error: RocketMQError) -> RocketMQError:
    """Return the error without the calls it came through, which are logged at level DEBUG."""
    logger.debug("%s", error, exc_info=error)
    return error.with_traceback(None)


def plainly(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let the errors of this package leave a method that Spark calls as :func:`plain` ones."""

    @functools.wraps(method)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except RocketMQError as error:
            raise plain(error) from None

    return call
