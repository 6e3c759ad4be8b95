"""The watchdog of supernode.sh ends a SuperNode that is up and answers nothing, and no other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .processes import REPOSITORY

SCRIPT = REPOSITORY / "examples" / "deployment" / "supernode.sh"
#: A SuperNode that notes its start, and the programs below it that the test asks for.
NODE = """#!/usr/bin/env bash
echo $$ >> "$FOLDER/starts"
for program in $BELOW; do "$program" & done
for word in $SAYS; do
  echo "INFO:   [RUN 17, ROUND ${word#*-}]"
  if [ "${word%-*}" = asked ]; then echo "INFO:   Receiving: train.fbo message"; else
    echo "INFO:   Sending: train.fbo message"; echo "INFO:   Sent successfully"; fi
done
sleep 1000
"""
SLEEPER = "#!/usr/bin/env bash\nsleep 1000\n"
CASES = {
    "idle": ("flower-superexec", "", False),
    "at work": ("flower-superexec flwr-clientapp", "asked-1", False),
    "has answered": ("flower-superexec", "asked-1 answered-1", False),
    "has caught up": ("flower-superexec", "asked-1 asked-2 answered-1 answered-2", False),
    "its message's process is gone": ("flower-superexec", "asked-1", True),
    "a second message's process is gone": (
        "flower-superexec", "asked-1 answered-1 asked-2", True
    ),
    "one reply behind": (
        "flower-superexec flwr-clientapp", "asked-1 answered-0 asked-2 answered-1", True
    ),
    "no SuperExec": ("", "", True),
}  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("bash") and shutil.which("ps") and shutil.which("awk")),
        reason="the script needs bash, ps and awk",
    ),
]


def programs(folder: Path) -> Path:
    place = folder / "bin"
    place.mkdir()
    for name, text in (
        ("flower-supernode", NODE), ("flower-superexec", SLEEPER), ("flwr-clientapp", SLEEPER)
    ):  # fmt: skip
        (place / name).write_text(text)
        (place / name).chmod(0o700)
    return place


def start(folder: Path, place: Path, below: str, says: str) -> subprocess.Popen[bytes]:
    (folder / "keys").mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [str(SCRIPT), "keys", "127.0.0.1:1", "0", "1"], cwd=folder, start_new_session=True,
            stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "FOLDER": str(folder),
                 "BELOW": below, "SAYS": says, "STUCK_SECONDS": "40", "UNSIGNED_APPS": "1",
                 "COLUMNS": "40"},  # as in the shell of a narrow terminal that exports its width
        )  # fmt: skip


def test_a_useless_node_is_started_again_and_no_other(tmp_path: Path) -> None:
    place = programs(tmp_path)
    running = {}
    try:
        for case, (below, says, _) in CASES.items():
            running[case] = start(tmp_path / case, place, below, says)

        def starts(case: str) -> int:
            path = tmp_path / case / "starts"
            return len(path.read_text().splitlines()) if path.exists() else 0

        useless = [case for case, (_, _, ends) in CASES.items() if ends]
        deadline = time.monotonic() + 600.0
        while any(starts(case) < 2 for case in useless):
            assert time.monotonic() < deadline, {case: starts(case) for case in CASES}
            time.sleep(0.5)
        for case, (_, _, ends) in CASES.items():
            log = (tmp_path / case / "log").read_text()
            assert ("the SuperNode of party 0 answers nothing; ending it" in log) == ends, case
            assert ends or starts(case) == 1
    finally:
        for process in running.values():
            os.killpg(process.pid, signal.SIGKILL)  # the session that this test started
            process.wait()
