"""Run the quick part of the suite on other Pythons, with the lowest and the newest dependencies.

python scripts/versions.py --python 3.12 --python 3.13 --dependencies newest
python scripts/versions.py --python 3.11 --dependencies lowest

Needs `uv` (Flower brings it). Each combination gets an environment of its own in a temporary
folder: a wheel is built and installed with the `dev` extra, and the tests of a fresh clone are
run against its dependencies. What came out last is in CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESOLUTIONS = {"newest": "highest", "lowest": "lowest-direct"}
SUITES = ("tests/core", "tests/runs", "tests/privacy", "tests/flower")
SHOWN = ("flwr", "numpy", "scipy", "scikit-learn", "dp-accounting")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", action="append", help="version or path; this one if unset")
    parser.add_argument("--dependencies", action="append", choices=RESOLUTIONS)
    parser.add_argument("tests", nargs="*", default=list(SUITES))
    asked = parser.parse_args()
    print("| Python | dependencies | outcome |\n| --- | --- | --- |", flush=True)
    failed = 0
    chosen = asked.dependencies or list(RESOLUTIONS)
    for python, dependencies in itertools.product(asked.python or [version], chosen):
        with tempfile.TemporaryDirectory() as folder:
            ok, row = attempt(python, dependencies, asked.tests, Path(folder))
        failed += not ok
        print(row, flush=True)
    sys.exit(bool(failed))


def attempt(python: str, dependencies: str, tests: list[str], folder: Path) -> tuple[bool, str]:
    """Whether the tests pass, and a row of the table."""
    clone, env = folder / "clone", folder / "env"
    run("git", "clone", "-q", str(ROOT), str(clone))
    run("uv", "venv", "-q", "--python", python, str(env))
    install = (
        "uv",
        "pip",
        "install",
        "-q",
        "--python",
        str(env),
        "--reinstall-package",
        "flwr-fbo",
    )
    done = run(*install, "--resolution", RESOLUTIONS[dependencies], f"{clone}[dev]", check=False)
    if done.returncode:
        return False, f"| {python} | {dependencies} | not installable: {last(done.stderr)} |"
    program = str(env / "bin" / "python")
    started = time.monotonic()
    options = ("-q", "-n", "2", "-m", "not slow", "-p", "no:cacheprovider")
    done = run(program, "-m", "pytest", *options, *tests, cwd=clone, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
    minutes = (time.monotonic() - started) / 60
    full = run(program, "-c", "import platform; print(platform.python_version())").stdout.strip()
    versions = ", ".join(f"{name} {version(env, name)}" for name in SHOWN)
    return not done.returncode, (
        f"| {full} | {dependencies}: {versions} | {last(done.stdout)} ({minutes:.0f} min) |"
    )


def version(env: Path, package: str) -> str:
    shown = run("uv", "pip", "show", "--python", str(env), package, check=False).stdout
    return next((line.split()[1] for line in shown.splitlines() if line.startswith("Version")), "?")


def last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].strip(" =")


def run(
    *command: str, cwd: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done


if __name__ == "__main__":
    main()
