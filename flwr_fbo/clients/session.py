"""The session of a process: what started the process, and starts another one if it ends.

A message of a deployment is a process, which a SuperNode's SuperExec starts. A worker of Ray is a
process, which its raylet starts, and a worker of the engine ``processes`` is one that the host of
its pool forks. If such a process ends while the program that started it goes on,
then the work of the process is to blame, and not the machine or a person who stopped the run
(:mod:`flwr_fbo.core.evaluation`).
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

#: The process that :func:`begin_session` was called in; 0 without a call.
_begun = 0


def begin_session() -> None:
    """Let the parent of this process be what replaces the process if it ends."""
    global _begun
    _begun = os.getpid()
    session.cache_clear()


@cache
def session() -> str:
    """Return a name of this process's session; empty where nothing would replace the process.

    The name is the number of the parent process with the time of its start, as the system may use
    a number again. It is known on Linux only.
    """
    replaced = "RAY_RAYLET_PID" in os.environ or Path(sys.argv[0]).name == "flwr-clientapp"
    replaced = replaced or _begun == os.getpid()
    parent = os.getppid()
    try:
        status = Path(f"/proc/{parent}/stat").read_text() if replaced else ""
        # The name of the program, in parentheses, may hold blanks; the start is the 22nd field.
        return f"{parent}-{status.rpartition(')')[2].split()[19]}" if status else ""
    except (OSError, IndexError):
        return ""
