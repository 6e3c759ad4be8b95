"""Plant faults of privacy in a copy of the package, and show which tests or audits notice them.

    python -m benchmarks.mutations [--only WORDS ...] [--skip-audit] [--out FILE] [--table PAGE]

Every fault of ``benchmarks.planted_faults`` is planted alone, in a copy of the package in a
temporary directory. Its named test then runs against the copy, and so does ``flwr-fbo audit`` at
its defaults where the fault lies in what is audited. The copy without a fault must pass both. The
command exits with 1 if a fault is noticed by neither, and stops if a fault cannot be planted
because the text that it replaces has changed.

``--out`` replaces the outcomes of the chosen faults in a file, one by one. ``--table`` writes the
saved table into a page and runs nothing. A full run takes about twenty minutes; ``--skip-audit``
takes five.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.pages import filled
from benchmarks.planted_faults import FAULTS, Edit, Fault

ROOT = Path(__file__).parents[1]
SAVED = Path(__file__).parent / "results" / "mutations.json"
#: Seconds after which a test or an audit is ended; a fault may make a loop endless.
PATIENCE = 600
AUDIT = "from flwr_fbo.cli.main import main; main()"
#: Options of the audit: none, as the outcomes are those of the audit at its defaults.
AUDIT_OPTIONS: tuple[str, ...] = ()


class CannotPlantError(Exception):
    """The text that a fault replaces does not occur exactly once."""


@dataclass(frozen=True)
class Outcome:
    """Who noticed a fault: a test, or the audit (None where the audit does not see that part)."""

    fault: str
    where: str
    test: str
    test_fails: bool
    audit_fails: bool | None

    @property
    def caught(self) -> bool:
        return self.test_fails or self.audit_fails is True


# ------------------------------------------------------------------ planting


def copy_package(folder: Path) -> Path:
    """Copy the package, its tests and benchmarks into a folder, and return the folder."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("flwr_fbo", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def replaced(text: str, edit: Edit) -> str:
    """Return the text of a file with the replacement; raise unless there is one place for it."""
    count = text.count(edit.old)
    if count != 1:
        raise CannotPlantError(
            f"flwr_fbo/{edit.file}: the text of a fault must occur once, but occurs {count} times: "
            f"{edit.old!r}"
        )
    return text.replace(edit.old, edit.new)


def changed_files(fault: Fault, package: Path) -> dict[Path, str]:
    """Return the files that the fault changes, with their new text."""
    texts: dict[Path, str] = {}
    for edit in fault.edits:
        path = package / edit.file
        texts[path] = replaced(texts.get(path, path.read_text()), edit)
    return texts


@contextlib.contextmanager
def planted(fault: Fault, package: Path) -> Iterator[None]:
    """Plant a fault in a package, and take it out afterwards."""
    texts = changed_files(fault, package)
    before = {path: path.read_text() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text)
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


# ------------------------------------------------------------------ noticing


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy of the package in a folder."""
    own = {
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, **own},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip


def fails_test(folder: Path, *names: str) -> bool:
    """Return whether one of these tests fails; raise where pytest cannot run them."""
    quiet = ("-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore")
    done = python(folder, "-m", "pytest", *quiet, *names)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run {names}: {done.stdout}{done.stderr}")
    return done.returncode == 1


def fails_audit(folder: Path) -> bool:
    """Return whether the audit at its defaults fails; raise where the audit reaches no verdict."""
    done = python(folder, "-c", AUDIT, "audit", "--json", *AUDIT_OPTIONS)
    verdict = json.loads(done.stdout) if done.stdout else {}
    if done.returncode not in (0, 1) or "passed" not in verdict:
        raise RuntimeError(f"the audit reached no verdict: {done.stdout}{done.stderr}")
    return not verdict["passed"]


def node(fault: Fault) -> str:
    """Return the test of a fault as pytest names it."""
    return f"tests/{fault.file}::{fault.test}"


def outcome(fault: Fault, folder: Path, audit: bool = True) -> Outcome:
    """Plant a fault in the copy of the package in a folder, and return who notices it."""
    with planted(fault, folder / "flwr_fbo"):
        seen = fails_audit(folder) if audit and fault.audited else None
        where = ", ".join(dict.fromkeys(edit.file for edit in fault.edits))
        return Outcome(fault.name, where, fault.test, fails_test(folder, node(fault)), seen)


def check_copy(folder: Path, faults: Sequence[Fault], audit: bool) -> None:
    """Raise unless the copy is what runs, and passes all tests and the audit without a fault."""
    found = python(folder, "-c", "import flwr_fbo; print(flwr_fbo.__file__)").stdout.strip()
    if not Path(found).is_relative_to(folder):
        raise RuntimeError(f"the copy in {folder} must be imported, but {found} is")
    if fails_test(folder, *dict.fromkeys(map(node, faults))):
        raise RuntimeError("the tests must pass without a fault, but fail")
    if audit and any(fault.audited for fault in faults) and fails_audit(folder):
        raise RuntimeError("the audit must pass without a fault, but fails")


# ------------------------------------------------------------------ the table


def lines_of(saved: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of saved outcomes as lines of Markdown."""
    audits = {True: "failed", False: "passed", None: "-"}
    seen = [row for row in saved if row["audit_fails"] is not None]
    counted = (
        f"{len(saved)} faults; the tests notice {sum(r['test_fails'] for r in saved)}, the audit "
        f"{sum(r['audit_fails'] for r in seen)} of the {len(seen)} that lie in the code that it "
        "runs."
    )
    rows = [
        f"| {row['fault']} | {'`' + row['test'] + '`' if row['test_fails'] else 'none'} "
        f"| {audits[row['audit_fails']]} |"
        for row in saved
    ]
    return [counted, "", "| fault | test that fails | `flwr-fbo audit` |", "|---|---|---|", *rows]


def with_table(page: str, saved: Sequence[dict[str, Any]]) -> str:
    """Return a page with the table of saved outcomes."""
    return filled(page, "mutations", lines_of(saved))


def save(found: Outcome, path: Path) -> None:
    """Put an outcome in the place of the one that was saved before, in the order of the faults."""
    before = json.loads(path.read_text()) if path.exists() else []
    rows = {row["fault"]: row for row in [*before, asdict(found)]}
    ordered = [rows[fault.name] for fault in FAULTS if fault.name in rows]
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def run(faults: Sequence[Fault], audit: bool, out: Path | None = None) -> list[Outcome]:
    """Plant every fault in turn, and return who notices each."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = copy_package(Path(name))
        check_copy(folder, faults, audit)
        for fault in faults:
            found.append(outcome(fault, folder, audit))
            last = found[-1]
            if out is not None:
                save(last, out)
            tells = {True: "audit failed", False: "audit passed", None: ""}[last.audit_fails]
            noticed = last.test if last.test_fails else "NO TEST"
            print(f"{last.fault:<84} {noticed}  {tells}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", nargs="*", default=[], help="faults whose name has all these words"
    )
    parser.add_argument("--skip-audit", action="store_true", help="run the tests alone")
    parser.add_argument("--out", type=Path, help="JSON file in which the outcomes are replaced")
    parser.add_argument("--table", type=Path, help="write the saved table into this page")
    given = parser.parse_args()
    if given.table:
        given.table.write_text(with_table(given.table.read_text(), json.loads(SAVED.read_text())))
        return
    chosen = [f for f in FAULTS if all(word in f.name for word in given.only)]
    if not chosen:
        parser.error(f"`--only` must be words of the name of a fault, but got {given.only}")
    found = run(chosen, not given.skip_audit, given.out)
    missed = [o.fault for o in found if not o.caught]
    print(f"{len(found)} faults, {len(missed)} not noticed", *missed, sep="\n  ")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
