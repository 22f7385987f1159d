"""Code that runs in Spark's Python processes: pickling to workers, log output, short tracebacks.

Spark pickles classes by reference, so a worker whose Python lacks this package fails with a bare
ModuleNotFoundError. This module and ``data_source`` are pickled by value instead. Their code arrives in
every worker and can name the interpreter that lacks the package.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from pyspark import cloudpickle

from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.spark.connection_advice import connection_advice

LOG_LEVEL_VARIABLE = "ROCKETMQ_LOG_LEVEL"
"""Environment variable with the log level of these processes. Default: INFO, one line per batch."""

logger: Final = LibraryLogger("rocketmq_py.spark")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def pickle_by_value(module: str) -> None:
    """Pickle the functions and classes of a module as code instead of by reference."""
    cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]


class WorkerPicklable:
    """Mixin for the readers and writers that Spark pickles to its workers.

    Unpickling without this package installed raises a ModuleNotFoundError that names the interpreter.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_in_worker, (pickle.dumps((type(self), self._pickled_attributes())),)

    def _pickled_attributes(self) -> dict[str, Any]:
        """Return the attributes that a copy has. Override to leave out sockets, threads and caches."""
        return self.__dict__


def unpickle_in_worker(pickled: bytes) -> Any:
    """Restore a :class:`WorkerPicklable` and set up logging in its process.

    Raises ModuleNotFoundError with installation advice if the package is missing.
    """
    try:
        kind, attributes = pickle.loads(pickled)  # noqa: S301 - from the same driver as this function
    except ModuleNotFoundError as error:
        raise missing_module_error(error) from None
    log_to_stderr()
    restored = kind.__new__(kind)
    restored.__dict__.update(attributes)
    return restored


def missing_module_error(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error with the interpreter's path and advice on installation added."""
    return ModuleNotFoundError(
        f"{error}: the format rocketmq needs it in the Python that runs Spark's workers, which is "
        f"{sys.executable}, {sys.version.split()[0]}. Install rocketmq-py[spark] there, or set "
        "PYSPARK_PYTHON or spark.pyspark.python to a Python that has it",
        name=error.name,
    )


def log_to_stderr() -> None:
    """Send the logs of ``rocketmq_py`` to stderr, unless the process has configured logging for them.

    Spark configures no logging in the Python processes that it starts, and collects their stderr.
    """
    package_logger = logging.getLogger("rocketmq_py")
    if package_logger.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    package_logger.addHandler(handler)
    level = logging.getLevelName(os.environ.get(LOG_LEVEL_VARIABLE, "INFO").upper())
    package_logger.setLevel(level if isinstance(level, int) else logging.INFO)


def without_traceback(error: RocketMQError) -> RocketMQError:
    """Return the error without its traceback, which is logged at level DEBUG, and with advice added.

    Spark prints the traceback above the error's text, and users would have to search for the text.
    """
    logger.debug("%s", error, exc_info=error)
    advice = connection_advice(error)
    if advice and advice not in str(error):
        error.args = (f"{error}. {advice}",)
    return error.with_traceback(None)


def hides_tracebacks(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a method that Spark calls, so that it raises RocketMQErrors :func:`without_traceback`."""

    @functools.wraps(method)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except RocketMQError as error:
            raise without_traceback(error) from None

    return call


pickle_by_value(__name__)
