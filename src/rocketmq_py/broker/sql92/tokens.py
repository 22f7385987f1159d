"""A SQL filter's text, cut into its words."""

from __future__ import annotations

import enum
import re

import attrs

MAX_LENGTH = 32_768
"""Characters of a SQL filter. Java has no bound but the size of a request."""
_TAB_SIZE = 8


class SqlFilterError(Exception):
    """A text is no SQL filter; the message is what Java's broker says of it."""


class Kind(enum.IntEnum):
    """What a word is. The numbers are Java's: in their order its broker says what it expected."""

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
    TEXT = 23
    NAME = 24
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


KEYWORDS = {kind.name: kind for kind in Kind if Kind.NOT <= kind <= Kind.ENDSWITH}
SIGNS = {
    "=": Kind.EQUAL, "<>": Kind.NOT_EQUAL, ">": Kind.GREATER, ">=": Kind.GREATER_EQUAL, "<": Kind.LESS,
    "<=": Kind.LESS_EQUAL, "(": Kind.OPEN, ",": Kind.COMMA, ")": Kind.CLOSE, "+": Kind.PLUS, "-": Kind.MINUS,
}  # fmt: skip
_SHOWN = {
    Kind.END: "<EOF>",
    Kind.INTEGER: "<DECIMAL_LITERAL>",
    Kind.FLOAT: "<FLOATING_POINT_LITERAL>",
    Kind.TEXT: "<STRING_LITERAL>",
    Kind.NAME: "<ID>",
    **{kind: f'"{text}"' for text, kind in (KEYWORDS | SIGNS).items()},
}

# The longest match counts, so what begins like another and is longer comes first.
_skip = re.compile(
    r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*+/)*+",
).match
_word = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*L?)"
    r"|(?P<TEXT>'(?:''|[^'])*')"
    r"|(?P<NAME>[A-Z_$][A-Z0-9_$]*)"
    r"|(?P<sign><>|>=|<=|[=<>(,)+-])",
    re.IGNORECASE | re.ASCII,
).match


@attrs.frozen
class Token:
    """A word.

    Attributes:
        kind: what it is.
        text: as it is written.
        start: where it begins, from 0; the end is where the last character is.
    """

    kind: Kind
    text: str
    start: int

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return shown(self.kind)
        return f' {shown(self.kind)} "{_escaped(self.text)} "'


def shown(kind: Kind) -> str:
    """Return how Java's broker names a kind."""
    return _SHOWN[kind]


class Tokens:
    """The words of a SQL filter, cut off as they are asked for: Java does not see what is behind its end."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise SqlFilterError(f"the SQL filter has {len(text)} characters; {MAX_LENGTH} are allowed")
        self._text = text
        self._ahead: list[Token] = []
        self._position = 0

    def peek(self, number: int = 0) -> Token:
        """Return the next word but ``number``, or the end. Raises SqlFilterError if it is none."""
        while len(self._ahead) <= number:
            self._ahead.append(self._cut())
        return self._ahead[number]

    def take(self) -> Token:
        """Return the next word, and go on behind it. Raises SqlFilterError if it is none."""
        token = self.peek()
        del self._ahead[0]
        return token

    def place(self, position: int) -> str:
        """Return a position in Java's words."""
        line, column = self._line_and_column(position)
        return f"line {line}, column {column}"

    def _cut(self) -> Token:
        text = self._text
        blank = _skip(text, self._position)
        assert blank is not None  # it may be empty
        start = blank.end()
        if start == len(text):
            return Token(Kind.END, "", start - 1)
        word = _word(text, start)
        if word is None:
            raise self._no_word(start)
        self._position = word.end()
        group = word.lastgroup
        if group == "sign":
            return Token(SIGNS[word[0]], word[0], start)
        if group == "NAME":
            return Token(KEYWORDS.get(word[0].upper(), Kind.NAME), word[0], start)
        assert group is not None  # every alternative has a name
        return Token(Kind[group], word[0], start)

    def _no_word(self, start: int) -> SqlFilterError:
        """Return Java's ``TokenMgrError``: what was read as the beginning of a word, and where it ended."""
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
            found, after = f'"{_escaped(last)}" ({ord(last)}), ', read[:-1]
        if len(read) == 1:
            after = ""
        return SqlFilterError(
            f"org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at line {line}, column {column}."
            f'  Encountered: {found}after : "{_escaped(after)}"'
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


def _escaped(text: str) -> str:
    return "".join([_ESCAPES.get(char) or _plain(char) for char in text if char != "\0"])


def _plain(char: str) -> str:
    return char if " " <= char <= "~" else f"\\u{ord(char):04x}"
