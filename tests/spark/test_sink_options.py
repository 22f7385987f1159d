from __future__ import annotations

import pickle

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.compression import CompressionType
from rocketmq_py.spark.options import Use
from rocketmq_py.spark.sink_options import SinkOptions

ADDRESS = {"nameServer": "127.0.0.1:9876"}


def read(use: Use = Use.WRITE, **options: str) -> SinkOptions:
    return SinkOptions.read(ADDRESS | options, use)


def test_the_least() -> None:
    options = read()
    assert (options.topic, options.producer_group, options.stamp) == (None, "SPARK_SINK", True)
    assert options.connection.name_server == "127.0.0.1:9876"


def test_all_of_them() -> None:
    options = read(
        topic="T", producerGroup="G", sendTimeout="5s", retryTimeout="2m", maxBatchBytes="128k",
        stamp="false", maxMessageBytes="8m", compression="none", compressOver="1k", jobId="job",
    )  # fmt: skip
    assert options == SinkOptions(
        connection=options.connection, topic="T", producer_group="G", send_timeout=5.0, retry_timeout=120.0,
        max_batch_bytes=128 * 1024, max_message_bytes=8 * 1024 * 1024, compression="none", compress_over=1024,
        stamp=False, job_id="job",
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.producer_options() == {
        "send_timeout": 5.0,
        "max_message_size": 8 * 1024 * 1024,
        "compression": None,
    }


def test_compression() -> None:
    compression = read(compression="LZ4", compressOver="10k").producer_options()["compression"]
    assert compression is not None
    assert (compression.kind, compression.over) == (CompressionType.LZ4, 10240)


def test_all_mistakes_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^rocketmq as a streaming sink: 6 options are wrong:") as e:
        read(
            Use.WRITE_STREAM,
            topic="a b",
            producerGrup="g",
            compression="snappy",
            sendTimeout="soon",
            maxBatchBytes="8m",
            jobId="1",
        )
    text = str(e.value)
    assert "compression is 'snappy'; allowed is none, " in text
    assert "maxBatchBytes is more than maxMessageBytes, which is 4194304" in text
    assert "producerGrup: there is no such option; did you mean producerGroup?" in text
    assert "jobId is an option of a batch sink; this is a streaming sink" in text
    assert "sendTimeout is 'soon'" in text
