"""Fixtures that the tests of integrations share."""

from __future__ import annotations

from tests.blocking.conftest import unused_address

__all__ = ["unused_address"]
