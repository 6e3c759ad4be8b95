"""Run a private deployment on other versions of Flower: the oldest that is supported, or any.

python scripts/flower_versions.py                    the oldest, in an environment of its own
python scripts/flower_versions.py 1.29.0 1.38.0      these

Needs `uv` (Flower brings it). The test is `test_in_a_deployment` of tests/flower/test_flwr_run.py:
a SuperLink, two SuperNodes and `flwr run` on loopback. The whole suite runs on the newest version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flwr_fbo.flower_versions import OLDEST

ROOT = Path(__file__).resolve().parents[1]
TEST = "tests/flower/test_flwr_run.py::test_in_a_deployment"
#: Warnings of older versions of Flower about themselves are not ours to mend.
OPTIONS = ("-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning")


def main(versions: list[str]) -> int:
    failed = 0
    for version in versions or [OLDEST]:
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            ok = attempt(version, Path(folder) / "env")
            seconds = time.monotonic() - started
        print(f"flwr {version}: {'passed' if ok else 'FAILED'} ({seconds:.0f} s)", flush=True)
        failed += not ok
    return int(failed > 0)


def attempt(version: str, env: Path) -> bool:
    """Return whether the deployment works on a version of Flower."""
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "-q", "--python", sys.executable, str(env))
    packages = (str(ROOT), f"flwr=={version}", "pytest>=8.2", "hypothesis")
    run(*uv, "pip", "install", "-q", "--python", str(env), *packages)
    done = run(str(env / "bin" / "python"), "-m", "pytest", *OPTIONS, TEST, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
    return done.returncode == 0


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
