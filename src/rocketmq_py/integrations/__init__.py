"""Integrations with other libraries; import the one you need."""
