"""Tokenizer of SQL filters (Java: the token manager of ``SelectorParser``)."""

from __future__ import annotations

import enum
import re

import attrs

MAX_LENGTH = 32_768
"""Characters allowed in a SQL filter. Java has no limit other than the size of a request."""
_TAB_SIZE = 8


class SqlFilterError(Exception):
    """The text is not a valid SQL filter. Java's broker has the same error message."""


class TokenKind(enum.IntEnum):
    """The kind of a token. The numbers are Java's: its error messages list expected tokens in this order."""

    END = 0
    NOT = 8
    AND = 9
    OR = 10
    BETWEEN = 11
    IN = 12
    TRUE = 13
    FALSE = 14
    NULL = 15
    IS = 16
    CONTAINS = 17
    STARTSWITH = 18
    ENDSWITH = 19
    INTEGER = 20
    FLOAT = 21
    STRING = 23
    IDENTIFIER = 24
    EQUAL = 25
    NOT_EQUAL = 26
    GREATER = 27
    GREATER_EQUAL = 28
    LESS = 29
    LESS_EQUAL = 30
    OPEN = 31
    COMMA = 32
    CLOSE = 33
    PLUS = 34
    MINUS = 35


_KEYWORDS = {kind.name: kind for kind in TokenKind if TokenKind.NOT <= kind <= TokenKind.ENDSWITH}
_SYMBOLS = {
    "=": TokenKind.EQUAL,
    "<>": TokenKind.NOT_EQUAL,
    ">": TokenKind.GREATER,
    ">=": TokenKind.GREATER_EQUAL,
    "<": TokenKind.LESS,
    "<=": TokenKind.LESS_EQUAL,
    "(": TokenKind.OPEN,
    ",": TokenKind.COMMA,
    ")": TokenKind.CLOSE,
    "+": TokenKind.PLUS,
    "-": TokenKind.MINUS,
}
_JAVA_NAMES = {
    TokenKind.END: "<EOF>",
    TokenKind.INTEGER: "<DECIMAL_LITERAL>",
    TokenKind.FLOAT: "<FLOATING_POINT_LITERAL>",
    TokenKind.STRING: "<STRING_LITERAL>",
    TokenKind.IDENTIFIER: "<ID>",
    **{kind: f'"{text}"' for text, kind in (_KEYWORDS | _SYMBOLS).items()},
}

_skip_blanks_and_comments = re.compile(
    r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*+/)*+",
).match
# The longest match wins, so alternatives that share a beginning are ordered by length, longest first.
_match_token = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*L?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<IDENTIFIER>[A-Z_$][A-Z0-9_$]*)"
    r"|(?P<symbol><>|>=|<=|[=<>(,)+-])",
    re.IGNORECASE | re.ASCII,
).match


@attrs.frozen
class Token:
    """A token of a SQL filter.

    Attributes:
        kind: its kind.
        text: its source text.
        start: its position in the filter, from 0. The END token is at the last character.
    """

    kind: TokenKind
    text: str
    start: int

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return java_name(self.kind)
        return f' {java_name(self.kind)} "{_escape(self.text)} "'


def java_name(kind: TokenKind) -> str:
    """Return the name of a token kind in Java's error messages."""
    return _JAVA_NAMES[kind]


class Tokenizer:
    """Splits a SQL filter into tokens, on demand: Java does not read past the end of a complete filter."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise SqlFilterError(f"the SQL filter has {len(text)} characters; {MAX_LENGTH} are allowed")
        self._text = text
        self._lookahead: list[Token] = []
        self._position = 0

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token, or the one ``ahead`` tokens later, without consuming it.

        Raises SqlFilterError if the text there is not a token.
        """
        while len(self._lookahead) <= ahead:
            self._lookahead.append(self._scan())
        return self._lookahead[ahead]

    def take(self) -> Token:
        """Consume and return the next token. Raises SqlFilterError if the text there is not a token."""
        token = self.peek()
        del self._lookahead[0]
        return token

    def describe_position(self, position: int) -> str:
        """Return the line and column of a position, in Java's words."""
        line, column = self._line_and_column(position)
        return f"line {line}, column {column}"

    def _scan(self) -> Token:
        text = self._text
        skipped = _skip_blanks_and_comments(text, self._position)
        assert skipped is not None  # the pattern matches an empty string
        start = skipped.end()
        if start == len(text):
            return Token(TokenKind.END, "", start - 1)
        match = _match_token(text, start)
        if match is None:
            raise self._lexical_error(start)
        self._position = match.end()
        group = match.lastgroup
        if group == "symbol":
            return Token(_SYMBOLS[match[0]], match[0], start)
        if group == "IDENTIFIER":
            return Token(_KEYWORDS.get(match[0].upper(), TokenKind.IDENTIFIER), match[0], start)
        assert group is not None  # every alternative is a named group
        return Token(TokenKind[group], match[0], start)

    def _lexical_error(self, start: int) -> SqlFilterError:
        """Return Java's ``TokenMgrError`` for text at ``start`` that does not begin a token."""
        text = self._text
        if text[start] == "'" or text.startswith("/*", start):
            end = len(text)
        else:
            end = min(len(text), start + (2 if text[start] in "./" else 1))
        last = text[end - 1]
        line, column = self._line_and_column(end - 1)
        read = text[start:end]
        if end == len(text):
            found, after = "<EOF> ", read
            line, column = (line + 1, 0) if last in "\n\r" else (line, column + 1)
        else:
            found, after = f'"{_escape(last)}" ({ord(last)}), ', read[:-1]
        if len(read) == 1:
            after = ""
        return SqlFilterError(
            f"org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at line {line}, column {column}."
            f'  Encountered: {found}after : "{_escape(after)}"'
        )

    def _line_and_column(self, position: int) -> tuple[int, int]:
        line, column = (1 if self._text else 0), 0
        before = ""
        for char in self._text[: position + 1]:
            if before == "\n" or (before == "\r" and char != "\n"):
                line, column = line + 1, 0
            column += 1
            if char == "\t":
                column += _TAB_SIZE - 1 - (column - 1) % _TAB_SIZE
            before = char
        return line, column


_ESCAPES = {
    "\0": "", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "'": "\\'",
    "\\": "\\\\",
}  # fmt: skip


def _escape(text: str) -> str:
    return "".join([_ESCAPES.get(char) or _escape_non_ascii(char) for char in text if char != "\0"])


def _escape_non_ascii(char: str) -> str:
    return char if " " <= char <= "~" else f"\\u{ord(char):04x}"
