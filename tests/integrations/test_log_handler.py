"""Log records as messages: batched in the background, bounded, and without blocking the program."""

from __future__ import annotations

import json
import logging
import logging.config
import math
import os
import re
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from rocketmq_py import Message
from rocketmq_py.blocking import Producer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.hooks import ProducerHook, SendContext
from rocketmq_py.integrations.log_handler import JsonFormatter, RocketMQHandler
from rocketmq_py.integrations.log_handler import shipper as shipper_module
from rocketmq_py.integrations.log_handler.shipper import OVERHEAD, Shipper
from rocketmq_py.testing import TestBroker, run_broker
from tests.blocking.conftest import run_program

TOPIC = "AppLogs"


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker(topics=[TOPIC]) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    """Wait until the threads of closed handlers have closed their producers, too."""
    yield
    for thread in threading.enumerate():
        if thread.name == "rocketmq-py log handler":
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger of the program, without other handlers."""
    log = logging.Logger("shop")
    yield log
    for handler in log.handlers:
        handler.close()


def texts(broker: TestBroker) -> list[str]:
    return sorted([message.body.decode() for message in broker.messages(TOPIC)])


def test_records_are_json_with_their_level_as_tag(broker: TestBroker, log: logging.Logger) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    log.addHandler(handler)
    try:
        raise KeyError("missing")
    except KeyError:
        log.exception("order %d failed", 7, extra={"order": 7, "at": os})
    handler.flush()
    [message] = broker.messages(TOPIC)
    record = json.loads(message.body)
    assert (message.tags, record["level"]) == ("ERROR", "ERROR")
    assert (record["logger"], record["message"], record["order"]) == ("shop", "order 7 failed", 7)
    assert (record["file"], record["function"]) == (
        __file__,
        test_records_are_json_with_their_level_as_tag.__name__,
    )
    assert record["at"] == str(os)
    assert record["exception"].endswith("KeyError: 'missing'")
    assert record["time"].endswith("+00:00")
    assert handler.dropped == 0


def test_a_formatter_of_the_user_and_any_text(broker: TestBroker, log: logging.Logger) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.log(15, "a lone surrogate \udc80 and \x01")
    log.warning("grün")
    handler.flush()
    assert texts(broker) == ["Level 15: a lone surrogate \\udc80 and \x01", "WARNING: grün"]
    assert {message.tags for message in broker.messages(TOPIC)} == {"Level_15", "WARNING"}


def test_a_configuration_by_dictionary(broker: TestBroker) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {
                "topic": {
                    "class": "rocketmq_py.integrations.log_handler.RocketMQHandler",
                    "topic": TOPIC,
                    "address": broker.name_server_address,
                    "level": "WARNING",
                }
            },
            "loggers": {"configured": {"handlers": ["topic"], "level": "DEBUG"}},
        }
    )
    log = logging.getLogger("configured")
    log.info("below the level")
    log.warning("sent")
    log.handlers[0].close()
    log.handlers.clear()
    assert [json.loads(text)["message"] for text in texts(broker)] == ["sent"]


def test_many_threads_log_and_nothing_is_lost(broker: TestBroker, log: logging.Logger) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    handler.setFormatter(logging.Formatter())
    log.addHandler(handler)

    def work() -> None:
        for number in range(500):
            log.info("%d", number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    assert handler.dropped == 0
    assert texts(broker) == sorted([str(number) for number in range(500)] * 4)


def test_its_own_library_does_not_log_to_it(broker: TestBroker) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    library = logging.getLogger("rocketmq_py")
    library.addHandler(handler)
    library.setLevel(logging.DEBUG)
    try:
        logging.getLogger("rocketmq_py.producer").error("would log again")
        handler.handle(logging.makeLogRecord({"name": "rocketmq_python", "msg": "another library"}))
        handler.close()
    finally:
        library.removeHandler(handler)
        library.setLevel(logging.NOTSET)
    assert [json.loads(text)["message"] for text in texts(broker)] == ["another library"]


def test_records_of_its_own_library_do_not_wait_for_the_handler(broker: TestBroker) -> None:
    """``logging.shutdown`` holds the handler's lock while it waits for the library's threads."""
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    record = logging.makeLogRecord({"name": "rocketmq_py.client", "msg": "reconnected"})
    thread = threading.Thread(target=handler.handle, args=[record], daemon=True)
    handler.acquire()
    try:
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    finally:
        handler.release()
        handler.close()


def test_an_argument_that_logs_does_not_recurse(broker: TestBroker, log: logging.Logger) -> None:
    class Argument:
        def __str__(self) -> str:
            log.info("formatting %s", self)
            return "argument"

    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    handler.setFormatter(logging.Formatter())
    log.addHandler(handler)
    log.info("%s", Argument())
    handler.close()
    assert texts(broker) == ["argument"]
    assert handler.dropped == 1


def test_a_record_that_cannot_be_formatted_is_dropped(
    broker: TestBroker, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    log.addHandler(handler)
    log.info("%d", "no number")
    log.info("sent")
    handler.close()
    assert handler.dropped == 1
    assert len(broker.messages(TOPIC)) == 1
    assert "--- Logging error ---" in capsys.readouterr().err


def test_records_of_a_closed_handler_are_dropped(broker: TestBroker, log: logging.Logger) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    log.addHandler(handler)
    handler.close()
    log.info("late")
    handler.flush()
    handler.close()
    assert (handler.dropped, broker.messages(TOPIC)) == (1, [])


def test_records_wait_for_brokers_that_are_away_up_to_the_bound(
    broker: TestBroker, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    bound = 100 * (OVERHEAD + 1)
    handler = RocketMQHandler(
        TOPIC, broker.name_server_address, max_in_flight_bytes=bound, send_timeout=2.0, close_timeout=30
    )
    handler.setFormatter(logging.Formatter())
    log.addHandler(handler)
    broker.crash()
    for _ in range(150):
        log.info("x")
    assert handler.dropped == 50
    broker.restart()
    handler.flush()
    log.info("y")
    handler.close()
    assert len(broker.messages(TOPIC)) >= 101  # a send whose answer was lost is sent again
    assert handler.dropped == 50
    assert f"dropped log records topic={TOPIC} dropped=50" in caplog.text


def test_closing_is_bounded_while_brokers_are_away(unused_address: str, log: logging.Logger) -> None:
    handler = RocketMQHandler(TOPIC, unused_address, close_timeout=0.05, send_timeout=0.1)
    log.addHandler(handler)
    log.info("lost")
    handler.close()
    assert handler.dropped == 1


def test_a_record_that_is_too_large_is_dropped(
    broker: TestBroker, log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address, max_message_size=1000, max_batch_bytes=1000)
    handler.setFormatter(logging.Formatter())
    log.addHandler(handler)
    log.info("x" * 1001)
    log.info("fits")
    handler.close()
    assert (texts(broker), handler.dropped) == (["fits"], 1)
    # The handler's thread sends the two records together or one by one.
    assert re.search(rf"cannot send log records topic={TOPIC} records=[12] retrying=0", caplog.text)


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        (["no topic!"], {}, "topic"),
        ([TOPIC, 5], {}, "client"),
        ([TOPIC], {"max_in_flight_bytes": 0}, "max_in_flight_bytes"),
        ([TOPIC], {"group": ""}, "group"),
        ([TOPIC], {"colour": "red"}, "colour"),
    ],
)
def test_wrong_options_are_refused(arguments: list[Any], options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        RocketMQHandler(*arguments, **options)


def test_a_formatter_is_independent_of_the_handler() -> None:
    record = logging.makeLogRecord({"msg": "hello", "stack_info": "Stack"})
    fields = json.loads(JsonFormatter().format(record))
    assert (fields["message"], fields["stack"]) == ("hello", "Stack")


@pytest.mark.parametrize("value", [float("nan"), {(1, 2): 3}, {"inner": [float("inf")]}])
def test_a_formatter_writes_values_that_json_does_not_have_as_text(value: object) -> None:
    record = logging.makeLogRecord({"msg": "hello", "value": value})
    fields = json.loads(JsonFormatter().format(record))
    assert (fields["message"], fields["value"]) == ("hello", str(value))


def test_a_value_that_json_does_not_have_leaves_the_other_fields_as_they_are() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    record = logging.makeLogRecord(
        {"msg": "hello", "lineno": 7, "ratio": float("nan"), "cycle": cycle, "order": 5, "at": os}
    )
    fields = json.loads(JsonFormatter().format(record))
    assert (fields["line"], fields["order"], fields["at"]) == (7, 5, str(os))
    assert (fields["ratio"], fields["cycle"]) == ("nan", "[[...]]")


def test_a_hook_of_a_producer_may_log_and_flush(broker: TestBroker, log: logging.Logger) -> None:
    """Hooks run in the thread that the handler's own producer needs."""
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    handler.setFormatter(logging.Formatter())
    log.addHandler(handler)

    class LoggingHook(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            log.info("sending")
            handler.flush()

    with Producer(broker.name_server_address) as producer:
        producer.add_hook(LoggingHook())
        producer.send(Message("Other", b"x"))
    handler.close()
    assert texts(broker) == ["sending"]


LOGGING_PROGRAM = """
    import atexit, logging, multiprocessing, os, sys
    from rocketmq_py.integrations.log_handler import RocketMQHandler

    address, way = sys.argv[1:]
    handler = RocketMQHandler("AppLogs", address, send_timeout=60, close_timeout=60)
    handler.setFormatter(logging.Formatter())
    log = logging.getLogger("shop")
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    def work():
        for _ in range(10):
            log.info("child")

    for _ in range(10):
        log.info("parent")
    if way == "fork":
        child = os.fork()
        if not child:
            work()
            assert handler.dropped == 0
            sys.exit()
        os.waitpid(child, 0)
    elif way == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
    for _ in range(10):
        log.info("parent")
"""


@pytest.mark.parametrize(
    ("way", "children"),
    [("alone", 0), ("fork", 10), pytest.param("multiprocessing", 10, marks=pytest.mark.long)],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_end_of_a_process_sends_its_own_records(broker: TestBroker, way: str, children: int) -> None:
    assert run_program(LOGGING_PROGRAM, broker.name_server_address, way) == ""
    assert texts(broker) == ["child"] * children + ["parent"] * 20


def test_closing_does_not_need_the_lock_of_the_logging_module(broker: TestBroker) -> None:
    """``dictConfig`` holds it while it closes the handlers of an earlier configuration."""
    program = """
        import logging, sys
        from rocketmq_py.integrations.log_handler import RocketMQHandler

        handler = RocketMQHandler("AppLogs", sys.argv[1], send_timeout=60, close_timeout=60)
        logging.getLogger("shop").addHandler(handler)
        with logging._lock:
            logging.getLogger("shop").warning("sent")
            handler.close()
            print(handler.dropped)
    """
    assert run_program(program, broker.name_server_address) == "0\n"
    assert len(broker.messages(TOPIC)) == 1


def test_an_empty_text(broker: TestBroker, log: logging.Logger) -> None:
    handler = RocketMQHandler(TOPIC, broker.name_server_address)
    handler.setFormatter(logging.Formatter())
    log.addHandler(handler)
    log.info("")
    handler.close()
    assert (texts(broker), handler.dropped) == (["\n"], 0)


@pytest.mark.parametrize("way", ["end", "close", "fork"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.long
def test_a_process_ends_in_time_while_brokers_are_away_and_says_what_is_lost(
    unused_address: str, way: str
) -> None:
    program = """
        import atexit, logging, os, sys

        # Runs after the handler has ended: it is registered first.
        atexit.register(lambda: print(handler.dropped))
        from rocketmq_py.integrations.log_handler import RocketMQHandler

        sys.stderr = sys.stdout
        handler = RocketMQHandler("AppLogs", sys.argv[1], close_timeout=0.1)
        logging.getLogger().addHandler(handler)
        for number in range(2000):
            logging.error("lost %d", number)
        if sys.argv[2] == "close":
            handler.close()
        elif sys.argv[2] == "fork":
            child = os.fork()
            if not child:
                sys.exit()
            os.waitpid(child, 0)
    """
    lines = run_program(program, unused_address, way).splitlines()
    if way == "fork":  # the child has lost nothing
        assert lines.pop(0) == "0"
    [line, count] = lines
    assert line.startswith("rocketmq_py: dropped log records topic=AppLogs dropped=2000")
    assert count == "2000"


def test_a_closed_handler_says_once_what_is_lost_and_why(
    unused_address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failed(logging.Handler):
        """Waits for the log line of the failed attempt."""

        def __init__(self) -> None:
            super().__init__()
            self.event = threading.Event()

        def emit(self, record: logging.LogRecord) -> None:
            self.event.set()

    failed = Failed()
    logging.getLogger("rocketmq_py.integrations").addHandler(failed)
    handler = RocketMQHandler(TOPIC, unused_address, send_timeout=0.1, close_timeout=0.1)
    log = logging.Logger("shop")
    log.addHandler(handler)
    try:
        log.warning("lost")
        assert failed.event.wait(60)
    finally:
        logging.getLogger("rocketmq_py.integrations").removeHandler(failed)
    handler.close()
    handler.close()
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rocketmq_py: ")]
    assert f"topic={TOPIC} dropped=1: no name server answered" in line


class Acknowledging(threading.Event):
    """An event of a shipper whose records are acknowledged one by one. Waits take their time on a clock."""

    def __init__(self, shipper: Shipper, clock: Clock, seconds: list[float]) -> None:
        super().__init__()
        self._shipper = shipper
        self._clock = clock
        self._acknowledged = [sum(seconds[: number + 1]) for number in range(len(seconds))]

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        end = self._clock.now + timeout
        while self._acknowledged and self._acknowledged[0] <= end:
            self._clock.now = self._acknowledged.pop(0)
            self._shipper._settle(Message(TOPIC, b"x"), is_dropped=False)
            if not self._acknowledged and self.is_set():
                return True
        self._clock.now = end
        return False


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("is_finished", "seconds", "latest", "ends"),
    [
        (True, [4.0] * 10, math.inf, 40.0),
        (False, [4.0] * 3, math.inf, 12.0 + 5.0),
        (False, [], math.inf, 5.0),
        (False, [4.0] * 100, 60.0, 60.0),
    ],
)
def test_waiting_goes_on_for_as_long_as_records_are_acknowledged(
    monkeypatch: pytest.MonkeyPatch, is_finished: bool, seconds: list[float], latest: float, ends: float
) -> None:
    clock = Clock()
    monkeypatch.setattr(shipper_module, "time", clock)
    shipper = Shipper(RocketMQHandler(TOPIC), partial(Producer, linger=0.005), 1 << 20)
    shipper.start()
    event = Acknowledging(shipper, clock, seconds)
    if is_finished:
        event.set()
    assert shipper.wait(event, 5.0, latest=latest) is is_finished
    assert clock.now == ends
    shipper.close(5.0)
