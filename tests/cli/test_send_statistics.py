from __future__ import annotations

import io

from rocketmq_py.cli.console import progress_line
from rocketmq_py.cli.send_statistics import SendStatistics
from rocketmq_py.errors import Delivery, InvalidMessageError, RequestTimeoutError, RocketMQError
from rocketmq_py.message import MessageQueue, SendResult, SendStatus
from rocketmq_py.producer import PendingSend
from rocketmq_py.remoting.answer_errors import broker_error

OK = SendResult(SendStatus.SEND_OK, "7F01", "0A", MessageQueue("T", "broker-a", 3), 42)
SLAVE = SendResult(SendStatus.SLAVE_NOT_AVAILABLE, "7F02", "0B", MessageQueue("T", "broker-a", 3), 43)


def done(outcome: SendResult | RocketMQError) -> PendingSend:
    pending = PendingSend()
    if isinstance(outcome, RocketMQError):
        pending._fail(outcome)
    else:
        pending._succeed(outcome)
    return pending


def statistics_of(
    *outcomes: SendResult | RocketMQError, verbose: bool = False
) -> tuple[SendStatistics, io.StringIO]:
    stream = io.StringIO()
    statistics = SendStatistics(verbose=verbose, stream=stream)
    for outcome in outcomes:
        statistics.record(done(outcome))
    return statistics, stream


def test_the_summary_contains_the_rate() -> None:
    statistics, stream = statistics_of(*[OK] * 300)
    statistics.report(2.0)
    assert stream.getvalue() == "300 messages sent in 2.00 s (150/s)\n"


def test_summaries_of_few_messages() -> None:
    statistics, stream = statistics_of(OK)
    statistics.report(0.0, empty=1)
    assert stream.getvalue() == "1 message sent in 0.00 s\n1 empty line skipped\n"
    statistics, stream = statistics_of()
    statistics.report(1.0, empty=2)
    assert stream.getvalue() == "0 messages sent in 1.00 s\n2 empty lines skipped\n"


def test_failures_are_reported_by_reason() -> None:
    statistics, stream = statistics_of(
        OK,
        broker_error(2, "busy for 207 ms", "b:1"),
        broker_error(2, "busy for 208 ms", "b:1"),
        InvalidMessageError("too large"),
        *[RequestTimeoutError("b:1", 3.0, Delivery.UNKNOWN)] * 3,
        RequestTimeoutError("b:1", 3.0, Delivery.NOT_SENT),
    )
    statistics.report(1.0)
    assert (statistics.sent, statistics.failed) == (1, 7)
    assert stream.getvalue().splitlines() == [
        "1 message sent in 1.00 s",
        "rocketmq-py: 7 of 8 messages failed:",
        "  3 possibly stored: no answer from b:1 within 3 s",
        "  2 refused: b:1 answered SYSTEM_BUSY (2): busy for 207 ms",
        "  1 not sent: too large",
        "  1 not sent: no answer from b:1 within 3 s",
    ]


def test_different_faults_of_invalid_messages_are_not_merged() -> None:
    faults = [InvalidMessageError(f"line {number}: fault") for number in range(1, 31)]
    statistics, stream = statistics_of(*faults)
    statistics.report_failures()
    head, others, *lines = stream.getvalue().splitlines()
    assert head == "rocketmq-py: 30 of 30 messages failed:"
    assert others == "  20 not sent: other invalid messages, such as: line 11: fault"
    assert lines == [f"  1 not sent: line {number}: fault" for number in range(1, 11)]


def test_verbose_prints_each_result() -> None:
    statistics, stream = statistics_of(OK, SLAVE, InvalidMessageError("too large"), verbose=True)
    statistics.report(1.0)
    assert stream.getvalue().splitlines() == [
        "SEND_OK 7F01 broker=broker-a queue=3 offset=42",
        "SLAVE_NOT_AVAILABLE 7F02 broker=broker-a queue=3 offset=43",
        "FAILED (not sent) too large",
        "1 message stored with status SLAVE_NOT_AVAILABLE",
        "rocketmq-py: 1 of 3 messages failed:",
        "  1 not sent: too large",
    ]


def test_progress_lines() -> None:
    assert progress_line(0, 0.0, None) == "0 sent"
    assert progress_line(3000, 2.0, None) == "3000 sent, 1500/s"
    assert progress_line(0, 1.0, 0.0) == "[------------------------------]   0%  0 sent, 0/s"
    assert progress_line(3000, 2.0, 0.5) == "[###############---------------]  50%  3000 sent, 1500/s"
    assert progress_line(6000, 4.0, 1.0) == "[##############################] 100%  6000 sent, 1500/s"
