"""Integrations with frameworks: one module or package each, with an extra of its own.

Nothing else in this library imports them. ``kombu`` is the transport for Celery.
"""
