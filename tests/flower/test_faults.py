"""A run that is killed at any step, or whose disk fails, is resumed without loss."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the faults are injected into forks"),
]


def test_every_step_of_the_protocol_can_be_the_last() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "benchmarks" / "faults.py"), "--quick"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "FLWR_TELEMETRY_ENABLED": "0"},
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("all ")]
    cases, failed = map(int, line.split()[1:])
    assert cases > 40
    assert failed == 0
