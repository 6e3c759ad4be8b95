"""A run that is killed at any step, or whose disk fails, is resumed without loss."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow(200),
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
    cases, failed = map(int, re.findall(r"^(\d+) cases, (\d+) failed", done.stdout, re.M)[0])
    assert cases > 80
    assert failed == 0


@pytest.mark.parametrize(
    ("engine", "only"),
    [("inline", ""), ("processes", ""), ("ray", "SIGKILL"), ("deployment", "SIGKILL")],
)
def test_an_evaluation_that_ends_its_process_fails_and_nothing_else(engine: str, only: str) -> None:
    if engine == "ray" and find_spec("ray") is None:
        pytest.skip("needs Ray")
    script = REPOSITORY / "benchmarks" / "evaluation_faults.py"
    done = subprocess.run(
        [sys.executable, str(script), "--engines", engine, "--only", only],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "FLWR_TELEMETRY_ENABLED": "0"},
        timeout=3600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| {engine} |" in done.stdout
