"""The loggers of the library behave as those of the logging module, but take none of its locks."""

from __future__ import annotations

import itertools
import logging
import threading
from logging.handlers import BufferingHandler

import pytest

from rocketmq_py.library_logger import LibraryLogger

NAME = "rocketmq_py.tests"
LEVELS = (logging.NOTSET, logging.DEBUG, logging.INFO, 25, logging.ERROR, 99)


@pytest.fixture
def standard() -> logging.Logger:
    logger = logging.getLogger(NAME)
    logger.setLevel(logging.DEBUG)
    return logger


def test_levels_are_those_of_the_standard_logger(
    standard: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = LibraryLogger(NAME)
    for own, everywhere, is_disabled in itertools.product(LEVELS, LEVELS, (False, True)):
        standard.setLevel(own)
        monkeypatch.setattr(standard.manager, "disable", everywhere)
        monkeypatch.setattr(standard, "disabled", is_disabled)
        standard.manager._clear_cache()  # type: ignore[attr-defined]
        for level in LEVELS:
            assert logger.isEnabledFor(level) == standard.isEnabledFor(level)


def test_records_are_those_of_the_standard_logger(
    standard: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    logger = LibraryLogger(NAME)
    error = ValueError("bad")
    for one in (logger, standard):
        one.debug("debug %d", 1)
        one.warning("with an error", exc_info=error)
        one.log(25, "own level %s", "x")
        try:
            raise error
        except ValueError:
            one.exception("failed")
            one.error("failed: %s", "y", exc_info=True)
    ours, theirs = caplog.records[:5], caplog.records[5:]
    assert [record.getMessage() for record in ours] == [record.getMessage() for record in theirs]
    for record, other in zip(ours, theirs, strict=True):
        for name in (
            "name",
            "levelno",
            "levelname",
            "pathname",
            "lineno",
            "funcName",
            "threadName",
        ):
            assert getattr(record, name) == getattr(other, name), name
        assert (record.exc_info or ())[:2] == (other.exc_info or ())[:2]


def test_a_level_that_is_off_makes_no_record(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger(NAME).setLevel(logging.ERROR)
    LibraryLogger(NAME).warning("not %s", "logged")
    assert not caplog.records


def test_the_lock_of_the_logging_module_is_not_waited_for(standard: logging.Logger) -> None:
    logger = LibraryLogger(NAME)
    handler = BufferingHandler(capacity=10)
    standard.addHandler(handler)
    standard.setLevel(logging.INFO)  # the standard logger forgets which levels are on
    with logging._lock:  # type: ignore[attr-defined]
        thread = threading.Thread(target=logger.info, args=["hello"], daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    standard.removeHandler(handler)
    assert [record.getMessage() for record in handler.buffer] == ["hello"]
