"""Build wheel and sdist, look into them, and run the wheel in a fresh environment.

python scripts/package.py       (needs `build`, of the extra `dev`, and `uv`, which Flower brings)

Run by `.ci/run`. The wheel is installed without extras, away from the source tree: what the
command line and a simulation in process need must be among its own dependencies.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What a distribution holds of the repository besides files at its top.
FOLDERS = ("flwr_fbo", "tests", "docs", "examples", "benchmarks", "scripts")
TEXTS = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "CITATION.cff",
    "LICENSE",
)  # fmt: skip
#: Largest file that can still be source text.
MOST_BYTES = 200_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        wheel, sdist = build(there / "dist")
        check_wheel(wheel)
        check_sdist(sdist)
        try_wheel(wheel, there)
    print(f"{wheel.name} and {sdist.name} are whole, and the wheel runs by itself")


def build(target: Path) -> tuple[Path, Path]:
    """The wheel, built from the sdist, and the sdist."""
    run(sys.executable, "-m", "build", "-o", str(target), str(ROOT))
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, sdist


def tracked(*paths: str) -> set[str]:
    """Files under version control."""
    listed = run("git", "-C", str(ROOT), "ls-files", *paths)
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


def check_wheel(path: Path) -> None:
    """The package's own files, its type marker and its licence; no tests and no data."""
    with zipfile.ZipFile(path) as wheel:
        sizes = {m.filename: m.file_size for m in wheel.infolist()}
        metadata = next(name for name in sizes if name.endswith(".dist-info/METADATA"))
        text = wheel.read(metadata).decode()
    names = {name for name in sizes if ".dist-info/" not in name}
    same("the wheel", names, tracked("flwr_fbo"))
    require("flwr_fbo/py.typed" in names, "the wheel has no flwr_fbo/py.typed")
    require(any(name.endswith("licenses/LICENSE") for name in sizes), "the wheel has no LICENSE")
    large = [name for name, size in sizes.items() if size > MOST_BYTES]
    require(not large, f"files of the wheel are too large for source text: {large}")
    for line in ("Requires-Python: >=3.11", "License-Expression: Apache-2.0", "# flwr-fbo"):
        require(line in text.splitlines(), f"the wheel's metadata lack the line {line!r}")


def check_sdist(path: Path) -> None:
    """All that is needed to build, test and document, as it is under version control."""
    with tarfile.open(path) as sdist:
        names = {m.name.partition("/")[2] for m in sdist.getmembers() if m.isfile()}
    same(
        "the sdist", names - {"PKG-INFO", ".gitignore"}, tracked(*FOLDERS, *TEXTS, "pyproject.toml")
    )


def try_wheel(wheel: Path, there: Path) -> None:
    """Install it where nothing else is, and do what a newcomer does first."""
    environment, elsewhere = there / "env", there / "elsewhere"
    elsewhere.mkdir()
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "-q", "--python", sys.executable, str(environment))
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    run(*uv, "pip", "install", "-q", "--python", str(programs / "python"), str(wheel))
    where = run(str(programs / "python"), "-c", "import flwr_fbo; print(flwr_fbo)", cwd=elsewhere)
    require(str(environment) in where, f"another flwr_fbo was imported: {where}")
    command = str(programs / "flwr-fbo")
    first = ("run", "digits", "--agents", "3", "--rounds", "2", "--epsilon", "5")
    quick = ("--engine", "inline", "--compare", "random", "--json", "--set", "initial-points=2")
    result = json.loads(run(command, *first, *quick, cwd=elsewhere))
    made = result["history"]["evaluations"]
    require(made == [2, 3, 4], f"the quickstart made {made}")
    require(0 < result["epsilon"] <= 5, f"the quickstart spent epsilon {result['epsilon']}")
    report = run(command, "report", result["run_dir"], cwd=elsewhere).strip()
    require("<svg" in (elsewhere / report).read_text(), "the report has no plots")
    run(command, "new", "app", cwd=elsewhere)
    page = (ROOT / "docs" / "tutorials" / "own-model.md").read_text()
    (own,) = re.findall(r"```python\n(# mine.py.*?)```", page, re.DOTALL)
    (elsewhere / "mine.py").write_text(own)
    run(command, "run", "mine:tuned", "--agents", "2", "--rounds", "1", *quick, cwd=elsewhere)
    run(command, "tasks", cwd=elsewhere)


def run(*command: str, cwd: Path | None = None) -> str:
    """What a command prints; all of it is shown if it fails."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "FLWR_FBO_DATA")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    require(not done.returncode, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def same(what: str, found: set[str], expected: set[str]) -> None:
    missing, surplus = sorted(expected - found), sorted(found - expected)
    require(not missing, f"{what} lacks {missing}")
    require(not surplus, f"{what} has files that are not under version control: {surplus}")


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(otherwise)


if __name__ == "__main__":
    main()
