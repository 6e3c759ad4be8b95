"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests are shared and slow at times: time limits would fail at random.
settings.register_profile(
    "flwr-fbo", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("flwr-fbo")


@pytest.fixture(autouse=True)
def _home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the runs and budgets of the user who runs the tests."""
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path / "home-of-runs"))
