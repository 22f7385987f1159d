"""A table of SQL filters and the messages that match them on all brokers."""

from __future__ import annotations

from collections.abc import Mapping

MESSAGES: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "five": {"a": "5"},
    "six": {"a": "6"},
    "half": {"a": "5.5"},
    "plus": {"a": "+5"},
    "minus": {"a": "-5"},
    "word": {"a": "five"},
    "quote": {"a": "it's"},
    "true": {"a": "TRUE"},
    "large": {"a": "3000000000"},
    "huge": {"a": "9223372036854775808"},
    "exponent": {"a": "5e0"},
    "hexadecimal": {"a": "0x1p3"},
    "nan": {"a": "NaN"},
    "suffix": {"a": "5f"},
    "both": {"a": "5", "b": "6"},
    "same": {"a": "x", "b": "x"},
    "only_b": {"b": "5"},
    "odd_names": {"$x": "1", "_y": "2"},
}
"""The properties of the messages that each condition is tested with, by message name."""

EVERY = frozenset(MESSAGES)
WITH_A = EVERY - {"none", "only_b", "odd_names"}

# A property that is not a number of the compared kind does not match.
CONDITIONS: list[tuple[str, str]] = [
    # Integers of 32 bits, of 64 bits, and floats
    ("a = 5", "five plus both"),
    ("a > 5", "six"),
    ("a >= 5", "five six plus both"),
    ("a < 6", "five plus minus both"),
    ("a <= 5", "five plus minus both"),
    ("a <> 5", "six minus"),
    ("a = 5l", "five plus both"),
    ("a > 2147483648", "large"),
    ("a > 2147483647", ""),
    ("a <= 9223372036854775807", "five six plus minus large both"),
    ("a = 5.0", "five plus exponent suffix both"),
    ("a > 5.0", "six half large huge hexadecimal nan"),
    ("a < 5.", "minus"),
    ("a > .5e1", "six half large huge hexadecimal nan"),
    ("a = 8.0", "hexadecimal"),
    ("5 = a", "five plus both"),
    ("5 < a", "six"),
    ("5.5 <= a", "six half large huge hexadecimal nan"),
    ("5 = 5.0", " ".join(sorted(EVERY))),
    ("2147483648 > 5", " ".join(sorted(EVERY))),
    # Signs
    ("a = -5", "minus"),
    ("a = +5", "five plus both"),
    ("a = - -5", "five plus both"),
    ("a >= -5", "five six plus minus both"),
    ("-a = 5", ""),
    ("-a IS NULL", " ".join(sorted(EVERY))),
    # Texts
    ("a = 'five'", "word"),
    ("a = 'it''s'", "quote"),
    ("a = '5'", "five both"),
    ("a <> '5'", " ".join(sorted(WITH_A - {"five", "both"}))),
    ("'5' = a", "five both"),
    ("'5' <> a", " ".join(sorted(EVERY - {"five", "both"}))),
    # Two properties: equal texts, or compared as floats
    ("a = b", "none odd_names same"),
    ("a <> b", "both " + " ".join(sorted(WITH_A - {"same", "both"}))),
    ("b > a", "both"),
    ("a >= b", ""),
    # Booleans: no property is one
    ("TRUE", " ".join(sorted(EVERY))),
    ("FALSE", ""),
    ("NULL", ""),
    ("a", ""),
    ("NOT a", " ".join(sorted(WITH_A))),
    ("a = TRUE", "true"),
    ("a <> TRUE", " ".join(sorted(WITH_A - {"true"}))),
    ("TRUE = a", ""),
    ("TRUE <> a", " ".join(sorted(EVERY - WITH_A))),
    ("5 = TRUE", ""),
    ("(a = 5) = TRUE", "five plus both"),
    # Unknown values are neither true nor false
    ("a IS NULL", "none only_b odd_names"),
    ("a IS NOT NULL", " ".join(sorted(WITH_A))),
    ("a IS NULL OR a = 5", "none only_b odd_names five plus both"),
    ("NOT (b = 5)", "both"),
    ("NOT b = 5", ""),
    ("b = 5 OR TRUE", " ".join(sorted(EVERY - {"same"}))),
    ("TRUE OR b = 5", " ".join(sorted(EVERY))),
    ("b = 5 AND TRUE", "only_b"),
    ("(b = 6 AND TRUE) IS NULL", " ".join(sorted(EVERY - {"both", "same", "only_b"}))),
    ("(b = 6 AND FALSE) IS NULL", ""),
    ("b = 6 OR c = 1", "both"),
    ("NOT (b = 6 OR c = 1)", ""),
    ("NOT (b = 6 AND c = 1)", "only_b"),
    # Operator precedence
    ("a = 6 OR a = 5 AND b = 6", "six both"),
    ("(a = 6 OR a = 5) AND b = 6", "both"),
    ("NOT a = 'x' AND b = 'x'", ""),
    ("a = 5 and not b is null or a = 6", "five plus six"),
    # BETWEEN
    ("a BETWEEN 5 AND 6", "five six plus both"),
    ("a BETWEEN 5.2 AND 7", "six"),
    ("a BETWEEN 5.2 AND 7.0", "six half"),
    ("a NOT BETWEEN 5 AND 5", "six minus"),
    ("a BETWEEN -5 AND 5", "five plus minus both"),
    ("a BETWEEN b AND b", ""),
    ("b BETWEEN a AND 6.0", "both"),
    ("5 BETWEEN 1 AND a", "five six plus both"),
    # IN
    ("a IN ('5')", "five both"),
    ("a IN ('five', 'x', 'it''s')", "word quote same"),
    ("a NOT IN ('5', '6')", " ".join(sorted(WITH_A - {"five", "six", "both"}))),
    ("a IN ('1', '2', '3', '4', '5', '6', '7')", "five six both"),
    # Names
    ("$x = 1 AND _y = 2", "odd_names"),
    ("A = 5", ""),
    ("TAGS = 'TagA'", " ".join(sorted(EVERY))),
    ("KEYS = 'key-five'", "five"),
    ("UNIQ_KEY IS NOT NULL", " ".join(sorted(EVERY))),
    # Whitespace, comments and trailing text
    ("a=5", "five plus both"),
    (" \t\n a\r\f= /* five * / ** */ 5 ", "five plus both"),
    ("-- a comment\na = 5", "five plus both"),
    ("a = 5 ) whatever follows", "five plus both"),
    ("a = 5 'so'", "five plus both"),
    # An invalid condition in a pull request matches all messages
    ("a >", " ".join(sorted(EVERY))),
    ("a > '5'", " ".join(sorted(EVERY))),
    ("aND = 5", " ".join(sorted(EVERY))),
]
"""SqlFilters and the names of the matching messages."""

CONDITIONS_OF_5: list[tuple[str, str]] = [
    ("a CONTAINS 'i'", "word quote"),
    ("a NOT CONTAINS 'i'", " ".join(sorted(WITH_A - {"word", "quote"}))),
    ("a contains ''", ""),
    ("a NOT CONTAINS ''", ""),
    ("a STARTSWITH '5'", "five half exponent suffix both"),
    ("a NOT STARTSWITH '5'", " ".join(sorted(WITH_A - {"five", "half", "exponent", "suffix", "both"}))),
    ("a ENDSWITH '''s'", "quote"),
    ("a NOT ENDSWITH '5'", " ".join(sorted(WITH_A - {"five", "half", "plus", "minus", "both"}))),
    ("5 CONTAINS '5'", ""),
    ("NOT (b CONTAINS '5')", " ".join(sorted(EVERY - {"only_b"}))),
    ("a CONTAINS 'i' AND a ENDSWITH 'e'", "word"),
    # The left operand is not evaluated, so it does not matter that "five" is not a number.
    ("NOT ((a > 0) CONTAINS '')", " ".join(sorted(EVERY))),
]
"""Conditions that 4.x does not support."""

_PARSE_ERROR = "org.apache.rocketmq.filter.parser.ParseException: "
_TOKEN_ERROR = "org.apache.rocketmq.filter.parser.TokenMgrError: "
_RUNTIME = "java.lang.RuntimeException: "
_OPERAND_EXPECTED = """Was expecting one of:
    "NOT" ...
    "TRUE" ...
    "FALSE" ...
    "NULL" ...
    <DECIMAL_LITERAL> ...
    <FLOATING_POINT_LITERAL> ...
    <STRING_LITERAL> ...
    <ID> ...
    "(" ...
    "-" ...
    "+" ...
    """

FAULTS: list[tuple[str, str]] = [
    ("a >", f'{_PARSE_ERROR}Encountered "<EOF>" at line 1, column 3.\n{_OPERAND_EXPECTED}'),
    ("a > ", f'{_PARSE_ERROR}Encountered "<EOF>" at line 1, column 4.\n{_OPERAND_EXPECTED}'),
    ("a\n  = > 5", f'{_PARSE_ERROR}Encountered " ">" "> "" at line 2, column 5.\n{_OPERAND_EXPECTED}'),
    ("\ta = AND", f'{_PARSE_ERROR}Encountered " "AND" "AND "" at line 1, column 13.\n{_OPERAND_EXPECTED}'),
    (
        "a BETWEEN 1 5",
        f'{_PARSE_ERROR}Encountered " <DECIMAL_LITERAL> "5 "" at line 1, column 13.\n'
        'Was expecting:\n    "AND" ...\n    ',
    ),
    (
        "a IN (5)",
        f'{_PARSE_ERROR}Encountered " <DECIMAL_LITERAL> "5 "" at line 1, column 7.\n'
        "Was expecting:\n    <STRING_LITERAL> ...\n    ",
    ),
    (
        "a IN ('5' '6')",
        f'{_PARSE_ERROR}Encountered " <STRING_LITERAL> "\\\'6\\\' "" at line 1, column 11.\n'
        'Was expecting one of:\n    "," ...\n    ")" ...\n    ',
    ),
    (
        "a IS 5",
        f'{_PARSE_ERROR}Encountered " <DECIMAL_LITERAL> "5 "" at line 1, column 6.\n'
        'Was expecting one of:\n    "NOT" ...\n    "NULL" ...\n    ',
    ),
    ("a = 5 OR 7", f"{_PARSE_ERROR}Expression will not result in a boolean value: 7"),
    ("'a'", f"{_PARSE_ERROR}Expression will not result in a boolean value: 'a'"),
    ("a > 'x'", f"{_RUNTIME}Value ''x'' cannot be compared."),
    ("(a > 1) > 2", f"{_RUNTIME}Value '(a > 1)' cannot be compared."),
    ("a = NULL", f"{_RUNTIME}'NULL' cannot be compared."),
    ("TRUE = 'x'", f"{_RUNTIME}'TRUE' cannot be compared with ''x''"),
    ("5 IN ('5')", f"{_RUNTIME}Expected a property for In expression, got: 5"),
    (
        "a BETWEEN 6 AND 5.5",
        f"{_RUNTIME}Illegal values of between, left value(6) must less than or equal to right value(5.5)",
    ),
    ("a BETWEEN NULL AND 5", f"{_RUNTIME}Illegal values of between, values can not be null!"),
    ("a = 0.0", f"{_RUNTIME}0.0 is less than 4.9E-324"),
    ("a = 1e400", f"{_RUNTIME}1e400 is greater than 1.7976931348623157E308"),
    ("a = 9223372036854775808", 'java.lang.NumberFormatException: For input string: "9223372036854775808"'),
    ("a # 5", f'{_TOKEN_ERROR}Lexical error at line 1, column 3.  Encountered: "#" (35), after : ""'),
    ("a = 'x", f'{_TOKEN_ERROR}Lexical error at line 1, column 7.  Encountered: <EOF> after : "\\\'x"'),
    ("a = .x", f'{_TOKEN_ERROR}Lexical error at line 1, column 7.  Encountered: <EOF> after : ".x"'),
]
"""Invalid conditions and the brokers' error remarks, equal in 4.x and 5.x."""
