from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.command import encode_request
from rocketmq_py.protocol.headers import PullMessageRequest, PullRequestBuilder
from tests.protocol.strategies import int32, int64, text


def fields_of(group: str = "G", topic: str = "T", expression: str = "*", broker: str = "b") -> dict[str, str]:
    return PullMessageRequest(
        consumer_group=group,
        topic=topic,
        queue_id=3,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=1,
        subscription=expression,
        expression_type="TAG",
        broker_name=broker,
    ).to_fields()


@given(text, text, text, text, st.integers(0, 2**31 - 1), int64, int32, int64)
def test_the_template_writes_what_the_fields_would(
    group: str,
    topic: str,
    expression: str,
    broker: str,
    opaque: int,
    offset: int,
    system_flag: int,
    commit: int,
) -> None:
    form = PullRequestBuilder(fields_of(group, topic, expression, broker))
    fields = form.fields(offset, system_flag, commit)
    read = PullMessageRequest.from_fields(fields)
    assert (read.queue_offset, read.sys_flag, read.commit_offset) == (offset, system_flag, commit)
    frame = form.frame(opaque, offset, system_flag, commit)
    assert frame is None or frame == encode_request(RequestCode.PULL_MESSAGE, opaque, fields)


@pytest.mark.parametrize("name", ["%", "%d %b %%", '"\\u0000f"', "查询"])
def test_the_template_takes_every_name_as_it_is(name: str) -> None:
    form = PullRequestBuilder(fields_of(group=name, expression=name))
    assert form.frame(5, 1, 2, 3) == encode_request(RequestCode.PULL_MESSAGE, 5, form.fields(1, 2, 3))


def test_names_out_of_the_common_have_no_template() -> None:
    assert PullRequestBuilder(fields_of(topic="\x00sysFlag")).frame(5, 1, 2, 3) is None
