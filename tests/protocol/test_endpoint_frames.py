"""Frames of Java's client 5.5.0 with the endpoint of a managed service: namespaces and signatures are equal.

``integration/capture.py`` wrote the data. The endpoint is ``http://MQ_INST_1380_BbXb.cn-hangzhou.example.com:PORT``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.codes import RequestCode
from rocketmq_py.credentials import Credentials, RequestSigner
from rocketmq_py.names import TRACE_TOPIC
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.bodies import Heartbeat
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.trace import read_records

FILE = Path(__file__).parents[1] / "data" / "frames" / "endpoint" / "java-5.5.0.jsonl"
NAMESPACE = "MQ_INST_1380_BbXb"
TOPIC, GROUP = f"{NAMESPACE}%EndpointTopic", f"{NAMESPACE}%endpoint-group"
SIGNER = RequestSigner(Credentials("the-key", "the-secret", "the-token"), "rmq-cn-1")
ADDED = {"ns", "nsd", "AccessKey", "SecurityToken", "Signature"}


def requests() -> list[Command]:
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    frames = b"".join(bytes.fromhex(line["hex"]) for line in lines if line["from"] == "client")
    return [command for command in FrameDecoder().feed(frames) if not command.is_response]


REQUESTS = requests()


def test_requests_of_many_kinds_were_captured() -> None:
    codes = {request.code for request in REQUESTS}
    assert codes == {
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT,
        RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }  # fmt: skip
    assert any(request.is_oneway for request in REQUESTS)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: str(request.code))
def test_this_client_adds_the_same_fields_and_signature(request_: Command) -> None:
    assert request_.fields.keys() >= ADDED
    bare = {name: value for name, value in request_.fields.items() if name not in ADDED}
    assert SIGNER.complete(bare, request_.body) == request_.fields


def test_topics_and_groups_have_the_namespace_of_the_endpoint() -> None:
    namespace = Namespace(NAMESPACE)
    topics = {
        request.fields[name]
        for request in REQUESTS
        for name in ("topic", "b", "originTopic")
        if name in request.fields
    }
    groups = {
        request.fields[name]
        for request in REQUESTS
        for name in ("group", "consumerGroup", "producerGroup")
        if name in request.fields
    }
    assert topics == {TOPIC, f"%RETRY%{GROUP}", TRACE_TOPIC}
    assert {namespace.wrap_topic(namespace.unwrap_topic(topic)) for topic in topics} == topics
    # Java's client registers a producer without a namespace, which sends messages back.
    assert groups == {GROUP, "CLIENT_INNER_PRODUCER"}
    heartbeats = [
        Heartbeat.decode(request.body) for request in REQUESTS if request.code == RequestCode.HEART_BEAT
    ]
    assert {one.group_name for beat in heartbeats for one in beat.producer_data_set} == groups
    for beat in heartbeats:
        for consumer in beat.consumer_data_set:
            assert namespace.wrap(consumer) == consumer


def test_messages_and_traces_name_the_instance() -> None:
    sends = [request for request in REQUESTS if request.code == RequestCode.SEND_MESSAGE_V2]
    assert {decode_properties(send.fields["i"])["INSTANCE_ID"] for send in sends} == {NAMESPACE}
    traces = [send for send in sends if send.fields["b"] == TRACE_TOPIC]
    assert all(trace.fields["a"].startswith(f"{NAMESPACE}%_INNER_TRACE_PRODUCER-") for trace in traces)
    started = [record for trace in traces for record in read_records(trace.body) if record[0] == "SubBefore"]
    assert {record[3] for record in started} == {"endpoint-group"}
