"""Signatures, compared with frames that Java clients signed (from ``integration/java/src/Sign.java``)."""

from __future__ import annotations

import base64

import pytest

from rocketmq_py.credentials import Credentials, signature, signed
from rocketmq_py.errors import ConfigurationError, InvalidMessageError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.frames import FrameDecoder

SECRET = "12345678-Grüße"
OF_JAVA = {
    "5.5.0, JSON": (
        "AAABVgAAAUF7ImNvZGUiOjMxMCwiZXh0RmllbGRzIjp7IkIiOiJ1cHBlciIsIkFjY2Vzc0tleSI6InJvY2tldG1xLWtleSIsImEi"
        "OiJvcmRlcnMiLCJiIjoiVG9waWNUZXN0IiwiZSI6IjMiLCJpIjoiVEFHU1x1MDAwMUFcdTAwMDJLRVlTXHUwMDAxayAxXHUwMDAy"
        "Y29sb3VyXHUwMDAxZ3LDvG4g5L2g5aW9IPCfmIBcdTAwMDIiLCJuIjoiYnJva2VyLWEiLCJTaWduYXR1cmUiOiJJYjZWK0xOeWZm"
        "UVVFRjRtNE43M0t5MUFRUU09In0sImZsYWciOjAsImxhbmd1YWdlIjoiSkFWQSIsIm9wYXF1ZSI6MCwic2VyaWFsaXplVHlwZUN1"
        "cnJlbnRSUEMiOiJKU09OIiwidmVyc2lvbiI6MH1HcsO8w59lLCDkvaDlpb0gAA=="
    ),
    "4.9.8, ROCKETMQ, with a token": (
        "AAAA+gEAAOUBNgAAAAAAAAAAAAAAAAAAAAAAANAADVNlY3VyaXR5VG9rZW4AAAAHYS10b2tlbgABYQAAAAZvcmRlcnMAAWIAAAAJ"
        "VG9waWNUZXN0AAFCAAAABXVwcGVyAAFlAAAAATMACVNpZ25hdHVyZQAAABw3bnFRMzBWR3IrUm5LcC9jSVJWOUJpVGpCNlU9AAFp"
        "AAAAKVRBR1MBQQJLRVlTAWsgMQJjb2xvdXIBZ3LDvG4g5L2g5aW9IPCfmIACAAlBY2Nlc3NLZXkAAAAMcm9ja2V0bXEta2V5AAFu"
        "AAAACGJyb2tlci1hR3LDvMOfZSwg5L2g5aW9IAA="
    ),
    "5.5.0, JSON, without fields and body": (
        "AAAAtgAAALJ7ImNvZGUiOjM0LCJleHRGaWVsZHMiOnsiQWNjZXNzS2V5Ijoicm9ja2V0bXEta2V5IiwiU2lnbmF0dXJlIjoiRGIx"
        "cWh1ZW9icU9mRld1SnFndWNUY2syd0hJPSJ9LCJmbGFnIjowLCJsYW5ndWFnZSI6IkpBVkEiLCJvcGFxdWUiOjAsInNlcmlhbGl6"
        "ZVR5cGVDdXJyZW50UlBDIjoiSlNPTiIsInZlcnNpb24iOjB9"
    ),
}


@pytest.fixture(params=OF_JAVA.values(), ids=list(OF_JAVA))
def signed_by_java(request: pytest.FixtureRequest) -> Command:
    (command,) = FrameDecoder().feed(base64.b64decode(request.param))
    return command


def test_the_signature_is_that_of_java(signed_by_java: Command) -> None:
    fields = signed_by_java.fields
    assert signature(SECRET, fields, signed_by_java.body) == fields["Signature"]


def test_signing_adds_the_fields_of_java(signed_by_java: Command) -> None:
    added = {"AccessKey", "SecurityToken", "Signature"}
    fields = {name: value for name, value in signed_by_java.fields.items() if name not in added}
    before = dict(fields)
    credentials = Credentials("rocketmq-key", SECRET, signed_by_java.fields.get("SecurityToken"))
    assert signed(fields, signed_by_java.body, credentials) == signed_by_java.fields
    assert fields == before, "the fields of a request may be used for another try"


def test_signing_again_replaces_a_signature() -> None:
    credentials = Credentials("key", "secret")
    once = signed({"topic": "T", "queueId": "1"}, b"body", credentials)
    assert signed({**once, "queueId": "2"}, b"body", credentials) == signed(
        {"topic": "T", "queueId": "2"}, b"body", credentials
    )


@pytest.mark.parametrize(
    "changed", [{"topic": "U", "queueId": "1"}, {"queueId": "1"}, {"topic": "T", "queueId": "1", "x": "y"}]
)
def test_the_signature_is_of_all_fields_and_the_body(changed: dict[str, str]) -> None:
    original = signature("secret", {"topic": "T", "queueId": "1"}, b"body")
    assert signature("secret", changed, b"body") != original
    assert signature("secret", {"topic": "T", "queueId": "1"}, b"another") != original
    assert signature("another", {"topic": "T", "queueId": "1"}, b"body") != original


@pytest.mark.parametrize("secret", ["secret", "secret-\ud800"])
def test_error_of_unsignable_text_shows_no_secret(secret: str) -> None:
    with pytest.raises(InvalidMessageError, match="cannot be signed: surrogates not allowed") as caught:
        signature(secret, {"properties": "half a pair: \ud800"}, b"")
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["access_key", "secret_key", "security_token"])
def test_credentials_that_cannot_be_encoded_are_refused_without_showing_them(name: str) -> None:
    arguments = {"access_key": "key", "secret_key": "hunter2", name: "hunter2\ud800"}
    with pytest.raises(ConfigurationError, match=f"{name} has a character that cannot be encoded") as caught:
        Credentials(**arguments)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "hunter2" not in str(caught.value)


def test_credentials_show_no_secret() -> None:
    credentials = Credentials("the-key", "the-secret", "the-token")
    for text in (repr(credentials), str(credentials), f"{credentials}"):
        assert "the-key" in text
        assert "the-secret" not in text
        assert "the-token" not in text


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("", "the-secret"), "access_key"),
        (("key", " "), "secret_key"),
        (("key", b"the-secret"), "secret_key"),
        (("key", "the-secret", ""), "security_token"),
    ],
)
def test_credentials_that_are_incomplete_say_which_part_without_showing_it(
    arguments: tuple[str, ...], name: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a text that is not empty") as caught:
        Credentials(*arguments)
    assert "the-secret" not in str(caught.value)
