"""Run the tests with Optuna on other versions of Optuna: the oldest that is supported, or any.

python scripts/optuna_versions.py                  the oldest, in an environment of its own
python scripts/optuna_versions.py 4.0.0 4.9.0      these

Needs `uv` (Flower brings it). The tests are tests/optuna and those of the strategies that use
Optuna. The whole suite runs on the newest version. Optuna's own tests of samplers are left out
where a version does not have them as classes of pytest.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tomllib
from pathlib import Path

from flower_versions import ROOT, run

TESTS = ("tests/optuna", "tests/methods/test_baselines.py", "tests/methods/test_comparators.py")
OPTIONS = ("-q", "-p", "no:cacheprovider", "-m", "not slow")
#: The oldest version whose samplers are tested by classes of pytest.
SUITE_SINCE = (4, 5)


def oldest() -> str:
    """Return the oldest version that pyproject.toml allows."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (requirement,) = extras["optuna"]
    return str(requirement).removeprefix("optuna>=") + ".0.0"


def main(versions: list[str]) -> int:
    failed = 0
    for version in versions or [oldest()]:
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            ok = attempt(version, Path(folder) / "env")
            seconds = time.monotonic() - started
        print(f"optuna {version}: {'passed' if ok else 'FAILED'} ({seconds:.0f} s)", flush=True)
        failed += not ok
    return int(failed > 0)


def attempt(version: str, env: Path) -> bool:
    """Return whether the tests pass on a version of Optuna."""
    uv, python = (sys.executable, "-m", "uv"), str(env / "bin" / "python")
    run(*uv, "venv", "-q", "--python", sys.executable, str(env))
    packages = (str(ROOT), f"optuna=={version}", "pytest>=8.2", "hypothesis", "PyXAB==0.3.0")
    run(*uv, "pip", "install", "-q", "--python", python, *packages)
    new = tuple(map(int, version.split(".")[:2])) >= SUITE_SINCE
    tests = (*TESTS, "-k", "optuna or tpe or Tpe")
    left_out = () if new else ("--ignore", "tests/optuna/test_suite.py")
    done = run(python, "-m", "pytest", *OPTIONS, *tests, *left_out, check=False)
    print(done.stdout.strip().splitlines()[-1:], flush=True)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
