"""Property tests here run the same examples every time, and never fail for being slow."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "protocol",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("protocol")
