"""The options of the sink."""

from __future__ import annotations

import pickle

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.compression import CompressionType
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.sink_options import SinkOptions

ADDRESS = {"nameServer": "127.0.0.1:9876"}


def parse(role: Role = Role.BATCH_SINK, **options: str) -> SinkOptions:
    return SinkOptions.parse(ADDRESS | options, role)


def test_defaults() -> None:
    options = parse()
    assert (options.topic, options.producer_group, options.stamp) == (None, "SPARK_SINK", True)
    assert options.connection.name_server == "127.0.0.1:9876"


def test_all_options() -> None:
    options = parse(
        topic="T", producerGroup="G", sendTimeout="5s", retryTimeout="2m", maxBatchBytes="128k",
        stamp="false", maxMessageSize="8m", compression="none", compressOver="1k", jobId="job",
        startDeliverTime="true",
    )  # fmt: skip
    assert options == SinkOptions(
        connection=options.connection, topic="T", producer_group="G", send_timeout=5.0, retry_timeout=120.0,
        max_batch_bytes=128 * 1024, max_message_size=8 * 1024 * 1024, compression="none", compress_over=1024,
        stamp=False, job_id="job", start_deliver_time=True,
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.producer_options() == {
        "send_timeout": 5.0,
        "max_message_size": 8 * 1024 * 1024,
        "compression": None,
        "start_deliver_time": True,
    }


def test_requests_are_no_larger_than_the_largest_body() -> None:
    assert parse().max_batch_bytes == 64 * 1024
    assert parse(maxMessageSize="10k").max_batch_bytes == 10 * 1024
    assert parse(maxMessageSize="10k", maxBatchBytes="1k").max_batch_bytes == 1024


def test_dead_letters() -> None:
    assert parse(onError="FAIL").dead_letter_topic is None
    assert parse(onError="deadLetter", deadLetterTopic="Dead").dead_letter_topic == "Dead"


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"onError": "ignore"}, "onError: invalid value 'ignore'; allowed: fail or deadLetter"),
        ({"onError": "deadLetter"}, "onError is deadLetter, which needs deadLetterTopic"),
        ({"deadLetterTopic": "D"}, "deadLetterTopic needs onError deadLetter"),
        ({"onError": "fail", "deadLetterTopic": "D"}, "deadLetterTopic needs onError deadLetter"),
        ({"onError": "deadLetter", "deadLetterTopic": "T", "topic": "T"}, "which is also the topic"),
    ],
)
def test_mistakes_of_dead_letters(options: dict[str, str], mistake: str) -> None:
    with pytest.raises(ConfigurationError, match="1 invalid option") as raised:
        parse(Role.STREAM_SINK, **options)
    assert mistake in str(raised.value)


def test_compression() -> None:
    compression = parse(compression="LZ4", compressOver="10k").producer_options()["compression"]
    assert compression is not None
    assert (compression.kind, compression.over) == (CompressionType.LZ4, 10240)


def test_all_mistakes_are_listed() -> None:
    with pytest.raises(ConfigurationError, match=r"^rocketmq streaming sink: 6 invalid options:") as raised:
        parse(
            Role.STREAM_SINK,
            topic="a b",
            producerGrup="g",
            compression="snappy",
            sendTimeout="soon",
            maxBatchBytes="8m",
            jobId="1",
        )
    text = str(raised.value)
    assert "compression: invalid value 'snappy'; allowed: none, " in text
    assert "maxBatchBytes is 8388608, which is above maxMessageSize, 4194304" in text
    assert "producerGrup: unknown option; did you mean producerGroup?" in text
    assert "jobId is an option of a batch sink; this is a streaming sink" in text
    assert "sendTimeout: invalid value 'soon'" in text
