"""Codecs: encode Python values as message bodies, and decode bodies as instances of a type.

``Message.of`` encodes a value. Handlers with an annotated parameter, and ``ReceivedMessage.decode``, decode
bodies. The sender's content type travels in the property ``contentType``, as in rocketmq-spring.

- :data:`JSON` is the default. :data:`MESSAGEPACK` is smaller.
- Other formats, for example Avro or Protobuf, are objects with the methods of :class:`Codec`.

Both built-in codecs support dataclasses, attrs classes, ``msgspec.Struct``, TypedDict, NamedTuple, enums,
dates, UUID, Decimal, pydantic models, and containers of these. Classes of other kinds with fields that are
pydantic models can be encoded, but not decoded.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Protocol, cast, get_args, get_origin

import msgspec

from rocketmq_py.arguments import check_text, wrong_type
from rocketmq_py.callables import check_methods
from rocketmq_py.error_texts import one_line, shortened
from rocketmq_py.errors import ConfigurationError

__all__ = ["JSON", "MESSAGEPACK", "Codec"]

_UNSPECIFIC_TYPES = ("", "application/octet-stream")
"""Content types that do not name a format."""
_JSON_TYPES = ("application/json", "text/json")
_MESSAGEPACK_TYPES = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
_HOST_NAME_CODECS = ("idna", "punycode")
"""Codecs of Python that are no charsets. They need minutes for a body of a few megabytes."""
_MAX_CACHED = 256


class Codec(Protocol):
    """Encodes and decodes bodies of one format.

    Errors of :meth:`encode` become InvalidMessageError, those of :meth:`decode` BodyDecodeError. Methods must
    be plain functions, be thread-safe, and must not block.
    """

    @property
    def content_type(self) -> str:
        """The content type that messages carry, for example ``application/avro``."""

    def encode(self, value: Any) -> bytes:
        """Return the body for a value."""

    def decode(self, body: bytes, kind: Any) -> Any:
        """Return the value in a body.

        Args:
            body: the body.
            kind: the type that the program asked for.
        """


class _BuiltinCodec:
    """A codec of a format that msgspec implements."""

    def __init__(self, content_type: str, encode: Callable[..., bytes], decoder_class: Any) -> None:
        self._content_type = content_type
        self._encode = encode
        self._decoder_class = decoder_class

    def __repr__(self) -> str:
        return f"<codec {self._content_type}>"

    @property
    def content_type(self) -> str:
        """The content type that messages carry."""
        return self._content_type

    def encode(self, value: Any) -> bytes:
        """Return the body for a value. Raises TypeError or ValueError if the format cannot represent it."""
        return self._encode(value, enc_hook=_enc_hook)

    def decode(self, body: bytes, kind: Any) -> Any:
        """Return the value in a body. Raises ValueError if it is not a ``kind``."""
        return self.decoder(kind)(body)

    def decoder(self, kind: Any) -> Callable[[bytes], Any]:
        """Return a function that decodes bodies as instances of ``kind``."""
        if _has_pydantic(kind):
            return functools.partial(self._decode_pydantic, kind)
        decode: Callable[[bytes], Any] = self._decoder_class(Any if kind is object else kind).decode
        return decode

    def _decode_pydantic(self, kind: Any, body: bytes) -> Any:
        import pydantic

        try:
            return self._validate(_adapter(kind), body)
        except pydantic.ValidationError as error:
            raise ValueError(describe_validation_error(error)) from None

    def _validate(self, adapter: Any, body: bytes) -> Any:
        """Return the value in a body, as the TypeAdapter of pydantic decodes it."""
        raise NotImplementedError


class _JSONCodec(_BuiltinCodec):
    def encode(self, value: Any) -> bytes:
        kind: Any = type(value)
        if _is_pydantic(kind):
            body: bytes = _adapter(kind).dump_json(value, by_alias=True)
            return body
        return super().encode(value)

    def _validate(self, adapter: Any, body: bytes) -> Any:
        return adapter.validate_json(body)


class _MessagePackCodec(_BuiltinCodec):
    def _validate(self, adapter: Any, body: bytes) -> Any:
        import pydantic_core

        value = msgspec.msgpack.decode(body)
        try:
            text = pydantic_core.to_json(value)
        except pydantic_core.PydanticSerializationError:  # binary data that is not text
            return adapter.validate_python(value)
        # encode() writes dates, enums and sets as in JSON. Strict models accept these from JSON only.
        return adapter.validate_json(text)


JSON: Final = _JSONCodec("application/json", msgspec.json.encode, msgspec.json.Decoder)
"""JSON in UTF-8, the default. It also decodes bodies without a content type, and with ``text/...``."""
MESSAGEPACK: Final = _MessagePackCodec("application/msgpack", msgspec.msgpack.encode, msgspec.msgpack.Decoder)
"""MessagePack: binary, smaller and faster than JSON."""


def check_codec(codec: object) -> Codec:
    """Return ``codec`` if it has the attributes of a Codec, else raise ConfigurationError."""
    if isinstance(codec, _BuiltinCodec):
        return codec
    check_methods(codec, "codec", Codec, awaited=False)
    if not check_text(getattr(codec, "content_type", None), "codec.content_type"):
        raise ConfigurationError("codec.content_type is empty")
    return cast("Codec", codec)


class BodyDecoder:
    """Decodes bodies as instances of one type. The content type of a message chooses the format.

    ``bytes`` stands for the body itself, and ``str`` for its text unless the content type is JSON or
    MessagePack.

    Args:
        kind: the type. ``Annotated[type, codec]`` gives the codec, unless ``codec`` does.
        codec: decodes bodies with its content type, and those without a content type. None if there is none.

    Attributes:
        name: the name of the type, for errors.

    Raises:
        ConfigurationError: no built-in codec supports the type, and there is no other codec.
    """

    def __init__(self, kind: Any, codec: Codec | None = None) -> None:
        if get_origin(kind) is Annotated:
            annotated = [check_codec(part) for part in kind.__metadata__ if _is_like_codec(part)]
            codec = annotated[0] if annotated and codec is None else codec
            kind = kind.__origin__ if annotated else kind
        # list[Order] has the __qualname__ of list.
        self.name: str = getattr(kind, "__qualname__", "") if get_origin(kind) is None else ""
        self.name = self.name or str(kind)
        self._kind = kind
        self._codec = codec
        if codec is None or isinstance(codec, _BuiltinCodec):
            self._check_kind()

    def decode(self, body: bytes, content_type: str) -> Any:
        """Return the value in a body.

        Args:
            body: the body.
            content_type: the value of the property ``contentType``, or an empty string.

        Raises:
            ValueError: the body is not an instance of the type. The text is one short line.
        """
        kind, codec = self._kind, self._codec
        if kind is bytes:
            return body
        media_type, charset = _parse(content_type)
        is_unspecific = media_type in _UNSPECIFIC_TYPES
        if codec is not None and (is_unspecific or media_type == _parse(codec.content_type)[0]):
            return _call(lambda: codec.decode(body, kind))
        if media_type in _MESSAGEPACK_TYPES:
            return _call(lambda: self._messagepack_decoder(body))
        is_json = media_type in _JSON_TYPES or media_type.endswith("+json")
        is_text = is_unspecific or media_type.startswith("text/")
        if kind is str and is_text and not is_json:
            return _decode_text(body, charset)
        if is_json or is_text:
            return _call(lambda: self._json_decoder(body))
        raise ValueError(
            f"there is no codec for the content type {shortened(content_type)!r}. Annotate the parameter "
            f"with Annotated[{self.name}, codec]"
        )

    # Making a decoder raises TypeError for some types, for example a union of two dataclasses.

    @functools.cached_property
    def _json_decoder(self) -> Callable[[bytes], Any]:
        return JSON.decoder(self._kind)

    @functools.cached_property
    def _messagepack_decoder(self) -> Callable[[bytes], Any]:
        return MESSAGEPACK.decoder(self._kind)

    def _check_kind(self) -> None:
        if self._kind is object or self._kind is bytes:
            return
        try:
            if _has_pydantic(self._kind):
                _check_pydantic(self._kind)
            else:
                msgspec.json.schema(self._kind)  # fails for types that a Decoder refuses only when it decodes
        except Exception as error:
            raise ConfigurationError(
                f"bodies cannot be decoded as {self.name}: {_unsupported(error)}. Use a dataclass, an attrs, "
                f"msgspec.Struct or pydantic class, or give a codec: Annotated[{self.name}, codec]"
            ) from error


@functools.lru_cache(_MAX_CACHED)
def _cached_decoder(kind: Any, codec: Codec | None) -> BodyDecoder:
    return BodyDecoder(kind, codec)


def body_decoder(kind: Any, codec: Codec | None = None) -> BodyDecoder:
    """Return a decoder, which is cached. The arguments and errors are those of BodyDecoder."""
    if codec is not None:
        check_codec(codec)
    try:
        return _cached_decoder(kind, codec)  # type: ignore[arg-type, unused-ignore]
    except TypeError:  # an argument that cannot be hashed
        return BodyDecoder(kind, codec)


def encode_body(value: object, codec: Codec) -> bytes:
    """Return the body for a value. Raises ValueError with the reason if the codec cannot encode it."""
    check_codec(codec)
    try:
        body = codec.encode(value)
    except Exception as error:
        raise ValueError(
            f"cannot encode a value of type {type(value).__name__} as {codec.content_type}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(body, bytes):
        raise wrong_type(f"the result of {type(codec).__name__}.encode", "bytes", body)
    return body


def _unsupported(error: Exception) -> str:
    """Return the line of an error's text that says why a type is not supported."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # pydantic adds advice and a link after the reason, and msgspec advice before it.
    line = lines[0 if type(error).__module__.startswith("pydantic") else -1]
    return line.removesuffix(".")


def _call(decode: Callable[[], Any]) -> Any:
    """Call a function that decodes. Any error, also of a codec or class of the program, becomes a ValueError.

    Texts of errors may quote values of any length.
    """
    try:
        return decode()
    except MemoryError:
        raise
    except ValueError as error:
        raise ValueError(one_line(str(error))) from error
    except Exception as error:
        raise ValueError(one_line(f"{type(error).__name__}: {error}")) from error


def _decode_text(body: bytes, charset: str) -> str:
    try:
        if charset != "utf-8" and codecs.lookup(charset).name in _HOST_NAME_CODECS:
            raise LookupError(charset)
        return body.decode(charset)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not valid {shortened(charset)!r}") from error
    except (LookupError, ValueError) as error:  # ValueError: the charset contains NUL
        raise ValueError(f"the charset {shortened(charset)!r} is unknown") from error


def _parse(content_type: str) -> tuple[str, str]:
    """Return the media type in lower case, and the charset, by default UTF-8."""
    media_type, *parameters = [part.strip() for part in content_type.lower().split(";")]
    charsets = [part.partition("=")[2].strip(" \"'") for part in parameters if part.startswith("charset=")]
    return media_type, charsets[0] if charsets else "utf-8"


def _is_like_codec(value: object) -> bool:
    return hasattr(value, "content_type") and not isinstance(value, type)


# pydantic, which is imported only for its own models


def _parts(kind: Any) -> Iterator[Any]:
    """Yield a type and, at every depth, its type arguments: ``list[Order]``, then ``Order``."""
    yield kind
    for part in get_args(kind):
        yield from _parts(part)


def _has_pydantic(kind: Any) -> bool:
    return any(_is_pydantic(part) for part in _parts(kind))


def _is_pydantic(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


@functools.lru_cache(_MAX_CACHED)
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind)


def _check_pydantic(kind: Any) -> None:
    """Raise pydantic's error if it cannot decode the type."""
    import pydantic

    with contextlib.suppress(pydantic.ValidationError):
        _adapter(kind).validate_json(b"")  # fails if an annotation has an undefined name


def _enc_hook(value: Any) -> Any:
    """Return a pydantic model as plain values. msgspec calls it with values of types it does not know."""
    kind: Any = type(value)
    if _is_pydantic(kind):
        return _adapter(kind).dump_python(value, mode="json", by_alias=True)
    raise TypeError(f"values of type {type(value).__name__} are not supported")


def describe_validation_error(error: Any) -> str:
    """Describe a ValidationError of pydantic without its input values, which may be secrets.

    Texts of the model's own validators may still contain them. Other errors are described by their text.
    """
    if not hasattr(error, "errors"):
        return str(error)
    return "; ".join(
        f"{one['msg']} - at `{'.'.join(str(part) for part in one['loc']) or '$'}`" for one in error.errors()
    )
