"""Tests end what they start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .processes import flower

#: Starts a process in a session of its own that nobody waits for, as SuperLinks start ServerApps.
LEAVES_ONE = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(1000)"],
    start_new_session=True, stdout=subprocess.PIPE,
)
child.stdout.readline()
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_no_process_outlives_the_flower_of_a_test(tmp_path: Path) -> None:
    with flower(tmp_path) as running:
        running.start(sys.executable, "-c", LEAVES_ONE).wait(60)
        assert len(running.left()) == 1
    assert running.left() == []
