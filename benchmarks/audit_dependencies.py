"""Known vulnerabilities of everything that an installation of flwr-fbo brings.

    python benchmarks/audit_dependencies.py [EXTRA ...] [--pip-audit COMMAND]

Hands the installed versions to `pip-audit` (`pip install pip-audit`, in an environment of its
own where it shall not mix with this one), which asks the Python advisory database. Exits with

- 0 where every version was checked and none has a known vulnerability,
- 1 where one has,
- 3 where anything could not be checked: no pip-audit, no network, or an index without
  advisories. `pip-audit` itself calls that "no known vulnerabilities". A version that is known
  to be vulnerable is asked about first, to see that the database answers at all.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from licences import needed

#: A version with published advisories.
CANARY = "jinja2==2.10"
SOUND, VULNERABLE, UNCHECKED = 0, 1, 3


class CannotCheckError(Exception):
    """The database did not answer."""


def ask(pip_audit: str, requirements: list[str]) -> list[dict[str, Any]]:
    """What pip-audit says of each requirement."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("\n".join(requirements) + "\n")
        command = [pip_audit, "-r", str(listed), "--no-deps", "--disable-pip", "--format", "json",
                   "--progress-spinner", "off", "--timeout", "20"]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
            raise CannotCheckError(f"pip-audit gave no answer ({type(error).__name__})") from None
    return found


def audit(pip_audit: str, requirements: list[str]) -> tuple[int, list[str]]:
    """The exit code, and the lines to print."""
    try:
        (canary,) = ask(pip_audit, [CANARY])
        if not canary.get("vulns"):
            raise CannotCheckError(f"the database knows nothing against {CANARY}")
        found = ask(pip_audit, requirements)
    except CannotCheckError as error:
        return UNCHECKED, [f"COULD NOT BE CHECKED: {error}"]
    bad = [
        f"VULNERABLE: {d['name']} {d['version']}: {v['id']}, mended in "
        f"{', '.join(v.get('fix_versions') or ['no version yet'])}"
        for d in found
        for v in d.get("vulns", [])
    ]
    skipped = [d["name"] for d in found if "vulns" not in d]
    missing = len(requirements) - len(found)
    if skipped or missing:
        bad.append(f"COULD NOT BE CHECKED: {missing + len(skipped)}: {', '.join(skipped)}")
    if any(line.startswith("VULNERABLE") for line in bad):
        return VULNERABLE, bad
    if bad:
        return UNCHECKED, bad
    return SOUND, [f"{len(found)} distributions, no known vulnerability"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--pip-audit", default="pip-audit", help="where it is")
    arguments = parser.parse_args()
    installed = needed("flwr-fbo", set(arguments.extras))
    others = [f"{name}=={d.version}" for name, d in sorted(installed.items()) if name != "flwr-fbo"]
    if shutil.which(arguments.pip_audit) is None:
        code, lines = UNCHECKED, ["COULD NOT BE CHECKED: pip-audit is not installed"]
    else:
        code, lines = audit(arguments.pip_audit, others)
    print("\n".join(lines))
    sys.exit(code)


if __name__ == "__main__":
    main()
