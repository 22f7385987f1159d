"""The headers of one queue's pulls: what runs for every few messages, in few steps.

As with sends, there are two ways to the same bytes: ext fields, which can be signed, shown to hooks and
written in either serialization; and a template, in which only what differs from one pull to the next is left
open.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.codes import LANGUAGE_PYTHON, RequestCode
from rocketmq_py.protocol import json_header
from rocketmq_py.protocol.command import VERSION, pack_lengths

_OPEN_FIELDS = {"queueOffset": b'"%d"', "sysFlag": b'"%d"', "commitOffset": b'"%d"'}


class PullForm:
    """What the headers of pulls have in common.

    Args:
        fields: the ext fields of a ``headers.PullMessageRequest``, with anything in those that differ.
    """

    __slots__ = ("_fields", "_header")

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = dict(fields)
        open_fields = {**fields, **{name: f"\x00{name}" for name in _OPEN_FIELDS}}
        self._header = json_header.template(
            RequestCode.PULL_MESSAGE, LANGUAGE_PYTHON, VERSION, open_fields, _OPEN_FIELDS
        )

    def fields(self, offset: int, system_flag: int, commit: int) -> dict[str, str]:
        """Return the ext fields of a pull.

        Args:
            offset: the first message wanted.
            system_flag: bits of ``PullFlag``.
            commit: the offset that is committed by the way, if the flag says so.
        """
        fields = self._fields.copy()
        fields["queueOffset"] = str(offset)
        fields["sysFlag"] = str(system_flag)
        fields["commitOffset"] = str(commit)
        return fields

    def frame(self, opaque: int, offset: int, system_flag: int, commit: int) -> bytes | None:
        """Return a pull's whole frame with a JSON header; None for names out of the common."""
        if self._header is None:
            return None
        header = self._header % (offset, system_flag, commit, opaque)
        return pack_lengths(4 + len(header), len(header)) + header
