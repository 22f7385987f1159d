"""The states of a send."""

from __future__ import annotations

import pytest

from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.encoded_request import EncodedRequest
from rocketmq_py.producer.send import Send
from rocketmq_py.producer.send_states import NEXT_STATES, SendState
from rocketmq_py.protocol.sends import SendRequestBuilder

BUILDER = SendRequestBuilder(310, "g", "T")
REQUEST = EncodedRequest(BUILDER, (Message("T", b"body"),), "T", "id", "", b"body", 1, 0, 4)


def send(*, is_large: bool = False) -> Send:
    return Send(REQUEST, 3.0, None, 2, None, is_large=is_large)


def test_each_state_is_reached_and_each_but_the_last_may_end() -> None:
    assert set(NEXT_STATES) == set(SendState)
    reached, todo = set[SendState](), [SendState.COMPRESSING]
    while todo:
        state = todo.pop()
        reached.add(state)
        todo += NEXT_STATES[state] - reached
    assert reached == set(SendState)
    assert all(
        (SendState.DONE in following) != (state is SendState.DONE) for state, following in NEXT_STATES.items()
    )


@pytest.mark.parametrize("state", SendState)
@pytest.mark.parametrize("following", SendState)
def test_a_send_goes_only_to_the_next_states_of_the_table(state: SendState, following: SendState) -> None:
    one = send()
    one.state = state
    if following in NEXT_STATES[state]:
        one.enter(following)
        assert one.state is following
    else:
        with pytest.raises(AssertionError, match=f"{state.value!r}> to .*{following.value!r}"):
            one.enter(following)
        assert one.state is state


def test_a_large_body_is_compressed_first() -> None:
    assert send().state is SendState.READY
    assert send(is_large=True).state is SendState.COMPRESSING


def test_a_send_has_no_queue_and_no_broker_before_its_first_attempt() -> None:
    one = send()
    assert (one.queue, one.address) == (None, "")
    one.start_attempt(1.0)
    assert (one.queue, one.address) == (None, "")


def test_a_compressed_request_is_a_copy() -> None:
    compressed = REQUEST.compressed(b"b", 1)
    assert (compressed.body, compressed.system_flag) == (b"b", 5)
    assert compressed.fields(MessageQueue("T", "broker-a", 2))["f"] == "5"
    assert (REQUEST.body, REQUEST.system_flag) == (b"body", 4)
