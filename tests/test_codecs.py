"""Codecs, and the encoding and decoding of bodies."""

from __future__ import annotations

import datetime
import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rocketmq_py import Message, ReceivedMessage
from rocketmq_py.codecs import JSON, MESSAGEPACK, Codec
from rocketmq_py.errors import BodyDecodeError, ConfigurationError, InvalidMessageError
from rocketmq_py.properties import NO_PROPERTIES, encode_properties
from tests.consumer.received import received


class Kind(enum.Enum):
    CASH = "cash"


@dataclass
class AsDataclass:
    number: int
    at: datetime.datetime
    kind: Kind = Kind.CASH


@attrs.frozen
class AsAttrs:
    number: int = attrs.field(validator=attrs.validators.gt(0))
    name: str = "x"


class AsStruct(msgspec.Struct):
    number: int


class AsTuple(NamedTuple):
    number: int


class AsModel(pydantic.BaseModel):
    number: int
    secret: str = pydantic.Field(alias="theSecret", default="")


@pydantic_dataclass
class AsPydanticDataclass:
    number: int


class AsStrictModel(pydantic.BaseModel, strict=True):
    at: datetime.datetime
    kind: Kind
    tags: set[str]
    names: dict[int, str]
    data: bytes = b""


class AsDict(TypedDict):
    number: int


NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
VALUES: list[tuple[Any, Any]] = [
    (AsDataclass(1, NOW), AsDataclass),
    (AsAttrs(1, "é"), AsAttrs),
    (AsStruct(1), AsStruct),
    (AsTuple(1), AsTuple),
    (AsModel(number=1, theSecret="s"), AsModel),
    (AsStrictModel(at=NOW, kind=Kind.CASH, tags={"a"}, names={1: "b"}, data=b"c"), AsStrictModel),
    (AsPydanticDataclass(1), AsPydanticDataclass),
    ({"number": 1}, AsDict),
    ([AsModel(number=1), AsModel(number=2)], list[AsModel]),
    ([AsStruct(1)], list[AsStruct]),
    ({"a": AsAttrs(2)}, dict[str, AsAttrs]),
    (AsStruct(1), AsStruct | None),
    (None, AsModel | None),
    ("text", str),
    (1.5, float),
    ({"a": [1, None]}, dict),
    ([1], Any),
    ([1], object),
]


def as_received(message: Message) -> ReceivedMessage:
    return attrs.evolve(
        received(0, message.body), encoded_properties=encode_properties(message.properties).encode()
    )


def with_content_type(body: bytes, content_type: str) -> ReceivedMessage:
    return as_received(
        Message("T", body, properties={"contentType": content_type} if content_type else NO_PROPERTIES)
    )


class Reversed:
    """A codec of a format that no built-in codec knows."""

    content_type = "application/reversed"

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()[::-1]

    def decode(self, body: bytes, kind: Any) -> Any:
        return kind(json.loads(body[::-1]))


REVERSED: Codec = Reversed()


@pytest.mark.parametrize("codec", [JSON, MESSAGEPACK], ids=repr)
@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[str(kind) for _, kind in VALUES])
def test_decoding_returns_the_encoded_value(codec: Codec, value: object, kind: Any) -> None:
    message = Message.of("T", value, codec=codec)
    assert message.properties == {"contentType": codec.content_type}
    assert as_received(message).decode(kind) == value


def test_of_accepts_the_arguments_of_a_message() -> None:
    message = Message.of("T", {"a": 1}, "tag", ["k"], {"p": "q"}, sharding_key="s", flag=3)
    expected = Message(
        "T", b'{"a":1}', "tag", "k", {"p": "q", "contentType": "application/json"}, sharding_key="s", flag=3
    )
    assert message == expected


@pytest.mark.parametrize(
    ("content_type", "kind", "body", "value"),
    [
        ("", AsStruct, b'{"number":1}', AsStruct(1)),
        ("text/plain;charset=UTF-8", AsStruct, b'{"number":1}', AsStruct(1)),
        ("Application/JSON; charset=utf-8", AsStruct, b'{"number":1}', AsStruct(1)),
        ("application/octet-stream", AsStruct, b'{"number":1}', AsStruct(1)),
        ("application/cloudevents+json", dict, b"{}", {}),
        ("application/x-msgpack", AsStruct, b"\x81\xa6number\x01", AsStruct(1)),
        ("application/json", str, b'"quoted"', "quoted"),
        ("", str, b'"not unquoted"', '"not unquoted"'),
        ("text/plain;charset=GBK", str, "中".encode("gbk"), "中"),
        ("application/pdf", bytes, b"%PDF", b"%PDF"),
        ("application/reversed", Annotated[dict, REVERSED], b'}1:"a"{'[::-1][::-1], {"a": 1}),
        ("", Annotated[dict, REVERSED], b'}1:"a"{', {"a": 1}),
        ("application/json", Annotated[dict, REVERSED], b'{"a":1}', {"a": 1}),
    ],
)
def test_content_type_chooses_the_codec(content_type: str, kind: Any, body: bytes, value: object) -> None:
    assert with_content_type(body, content_type).decode(kind) == value


def test_decode_accepts_a_codec() -> None:
    message = as_received(Message.of("T", {"a": 1}, codec=REVERSED))
    assert message.content_type == "application/reversed"
    assert message.decode(dict, REVERSED) == {"a": 1}


def test_the_parameters_of_a_codec_may_have_other_names() -> None:
    class Renaming:
        content_type = "application/renamed"

        def encode(self, data: Any) -> bytes:
            return b"body"

        def decode(self, data: bytes, target: Any) -> Any:
            return target(body=data)

    codec: Any = Renaming()
    assert as_received(Message.of("T", {}, codec=codec)).decode(dict, codec) == {"body": b"body"}


@pytest.mark.parametrize("charset", ["punycode", "-Punycode", "idna"])
def test_codecs_of_host_names_are_no_charsets(charset: str) -> None:
    # Decoding takes quadratic time: minutes for a body of a few megabytes.
    message = with_content_type(b"body", f"text/plain; charset={charset}")
    with pytest.raises(BodyDecodeError, match=f"the charset '{charset.lower()}' is unknown"):
        message.decode(str)


class Unhashable(Reversed):
    __hash__ = None  # type: ignore[assignment]


def test_codec_need_not_be_hashable() -> None:
    codec = Unhashable()
    assert as_received(Message.of("T", {}, codec=codec)).decode(dict, codec) == {}


@pytest.mark.parametrize(
    ("content_type", "kind", "body", "reason"),
    [
        ("", AsStruct, b'{"number":"secret"}', "Expected `int`, got `str` - at `$.number`"),
        ("", AsStruct, b"\x00", "JSON is malformed"),
        ("", AsAttrs, b'{"number":-1}', "must be > 0"),
        ("", AsModel, b'{"number":"secret"}', "unable to parse string as an integer - at `number`"),
        ("application/msgpack", AsModel, b"\xc1", "MessagePack data is malformed"),
        ("application/pdf", AsStruct, b"%PDF", "no codec for the content type 'application/pdf'"),
        ("", Annotated[dict, REVERSED], b"secret", "Expecting value"),
        ("text/plain;charset=nonsense", str, b"x", "the charset 'nonsense' is unknown"),
        ("text/plain;charset=utf\0", str, b"x", "the charset 'utf\\x00' is unknown"),
        ("text/plain;charset=undefined", str, b"x", "the charset 'undefined' is unknown"),
        ("", str, b"\xff", "it is not valid 'utf-8'"),
    ],
)
def test_undecodable_body_raises_the_reason(content_type: str, kind: Any, body: bytes, reason: str) -> None:
    message = with_content_type(body, content_type)
    with pytest.raises(BodyDecodeError, match=r"message .* of topic 'T' cannot be decoded as") as info:
        message.decode(kind)
    assert reason in info.value.reason
    assert "secret" not in str(info.value)
    assert info.value.message_id == message.message_id


@dataclass
class Failing:
    number: int

    def __post_init__(self) -> None:
        raise KeyError(self.number)


def test_error_of_the_class_is_a_decode_error() -> None:
    with pytest.raises(BodyDecodeError, match="KeyError"):
        received(0, b'{"number":1}').decode(Failing)


class Silent:
    content_type = "application/silent"

    def encode(self, value: Any) -> bytes:
        return b""

    def decode(self, body: bytes, kind: Any) -> Any:
        raise ValueError


SILENT: Codec = Silent()


def test_reason_of_an_undecodable_body_is_one_line_of_bounded_length() -> None:
    class Quoting(Silent):
        def decode(self, body: bytes, kind: Any) -> Any:
            raise ValueError("in\n" + body.decode())

    flood = b"x" * 1_000_000
    for message, kind, reason in (
        (received(0, b""), Annotated[int, SILENT], "no reason given"),
        (received(0, b"line\n2"), Annotated[int, Quoting()], "in line 2"),
        (received(0, b'"' + flood + b'"'), Kind, "Invalid enum value 'xxx"),
        (with_content_type(b"x", "a/" + "x" * 20_000), Kind, "there is no codec for the content type 'a/xxx"),
        (with_content_type(b"\xff", "text/;charset=utf\n" + "-" * 9000 + "8"), str, "it is not valid 'utf"),
    ):
        with pytest.raises(BodyDecodeError) as info:
            message.decode(kind)
        assert info.value.reason.startswith(reason)
        assert len(info.value.reason) < 600
        assert "\n" not in info.value.reason


@dataclass
class Other:
    name: str


@pytest.mark.parametrize("content_type", ["application/json", "application/msgpack"])
def test_type_that_only_the_given_codec_supports_is_a_decode_error(content_type: str) -> None:
    kind: Any = Annotated[AsDataclass | Other, REVERSED]
    with pytest.raises(BodyDecodeError, match="Type unions may not contain more than one dataclass"):
        with_content_type(b"{}", content_type).decode(kind)


def test_models_decode_binary_fields_of_messagepack() -> None:
    class WithData(pydantic.BaseModel):
        data: bytes

    body = msgspec.msgpack.encode({"data": b"\xff"})
    assert with_content_type(body, "application/msgpack").decode(WithData).data == b"\xff"


def test_corrupt_body_cannot_be_decoded() -> None:
    with pytest.raises(BodyDecodeError, match="bad zlib"):
        received(0, b"{}", corruption="bad zlib").decode(dict)


class Opaque:
    pass


@dataclass
class WithOpaque:
    value: Opaque


@pytest.mark.parametrize("kind", [Opaque, list[Opaque], WithOpaque, 5])
def test_unsupported_type_is_refused_with_advice(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"bodies cannot be decoded as .* Use a dataclass, .* codec"):
        received(0, b"{}").decode(kind)


def test_unsupported_type_beside_a_model_is_refused_with_pydantics_reason() -> None:
    with pytest.raises(ConfigurationError, match=r"Unable to generate pydantic-core schema for .*Opaque"):
        received(0, b"{}").decode(dict[str, Opaque | AsModel])


def test_model_with_an_undefined_annotation_is_refused() -> None:
    class Incomplete(pydantic.BaseModel):
        part: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match="is not fully defined; you should define"):
        received(0, b"{}").decode(Incomplete)


class SilentSchema:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise NotImplementedError


def test_type_whose_error_has_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be decoded as .*: NotImplementedError\. Use"):
        received(0, b"{}").decode(dict[str, SilentSchema | AsModel])


def test_value_that_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="cannot encode a value of type Opaque as application/json"):
        Message.of("T", Opaque())


def test_content_type_in_the_properties_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="the codec sets the property 'contentType'"):
        Message.of("T", 1, properties={"contentType": "text/plain"})


class WithoutContentType:
    def encode(self, value: Any) -> bytes:
        return b""

    def decode(self, body: bytes, kind: Any) -> Any:
        return None


class EncodesText(Reversed):
    def encode(self, value: Any) -> Any:
        return "text"


class Empty(Reversed):
    content_type = ""


class DecodesAsync(Reversed):
    async def decode(self, body: bytes, kind: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("codec", "reason"),
    [
        (DecodesAsync(), "codec.decode must be a plain function, not an async one"),
        ("json", "codec must be an object with the methods of Codec, not str"),
        (Reversed, "not the class Reversed"),
        (WithoutContentType(), "codec.content_type must be a str, not None"),
        (Empty(), "codec.content_type is empty"),
        (EncodesText(), "the result of EncodesText.encode must be bytes, not str"),
    ],
)
def test_wrong_codec_is_refused(codec: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Message.of("T", 1, codec=codec)
