"""What all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines that run tests are shared and slow at times: time limits would fail at random.
settings.register_profile(
    "flwr-fbo", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("flwr-fbo")
