"""Integrations with other libraries: import the one you need. Nothing else in this library imports them."""
