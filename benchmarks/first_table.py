"""The time from ``git clone`` to the first table: ``python -m benchmarks.first_table``.

Clones this repository into an empty directory, runs the README's main command there line by line,
and prints the seconds of each, with the load of the machine. The packages come from pip's index and
cache as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commands() -> list[str]:
    """Return the lines of the README's main command."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- main command -->\n```sh\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    return found[1].strip().splitlines()


def main() -> None:
    """Measure, and print a row for each command."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        clone, began = Path(folder) / "flwr-fbo", time.monotonic()
        for line in (f"git clone -q {ROOT} {clone}", *commands()):
            started = time.monotonic()
            where = clone if clone.exists() else Path(folder)
            done = subprocess.run(["bash", "-ec", line], cwd=where, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"`{line}` must succeed, but failed:\n{done.stderr[-3000:]}")
            shown = line.replace(str(ROOT), "...").replace(str(clone), "...")
            print(f"{time.monotonic() - started:7.1f} s  {shown}", flush=True)
        if "evaluations to" not in done.stdout:
            raise SystemExit("the last command must print a table, but printed none")
        print(f"{time.monotonic() - began:7.1f} s  from git clone to the first table")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
