"""Fixtures that the behaviours have too."""

from tests.behaviours.conftest import unique

__all__ = ["unique"]
