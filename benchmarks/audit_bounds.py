"""What the audit of default plans finds, against what they claim.

    python -m benchmarks.audit_bounds --out benchmarks/results/audit_bounds.json
    python -m benchmarks.audit_bounds --table docs/evidence/audit.md

30 agents and 20 rounds at the defaults of dp-fts-de, for epsilon 1, 4 and 8: the bounds of
``flwr-fbo audit --trials`` at 99 % confidence. A bound above the claim would refute the claim. A
small epsilon needs many trials, because the two inputs differ by little. About ten minutes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import filled, table
from flwr_fbo.methods.dp_fts_de.schedule_audit import audit_schedule
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings

SAVED = Path(__file__).parent / "results" / "audit_bounds.json"
AGENTS, ROUNDS = 30, 20
#: Epsilon, and the number of fresh trials on each of two inputs.
CLAIMS = ((1.0, 100_000), (4.0, 40_000), (8.0, 40_000))


def measured(epsilon: float, trials: int) -> dict[str, Any]:
    """Audit the default plan of this epsilon, and return what the audit shows."""
    started = time.process_time()
    result = audit_schedule(DPFTSDESettings(epsilon=epsilon), AGENTS, ROUNDS, trials)
    return {**result.to_dict(), "seconds": time.process_time() - started}


def rows_of(saved: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table of saved audits."""
    return [
        {
            "claimed epsilon": row["epsilon_claimed"],
            "releases": row["releases"],
            "z": row["noise_multiplier_claimed"],
            "trials": row["trials"],
            "epsilon at least, by the profile": row["epsilon_profile"],
            "epsilon at least, for any step": row["epsilon_lower"],
            "z at most": row["noise_multiplier_upper"],
            "verdict": "passed" if row["passed"] else "FAILED",
            "CPU seconds": round(row["seconds"]),
        }
        for row in saved
    ]


def with_table(page: str, saved: Sequence[dict[str, Any]]) -> str:
    """Return a page with the table of saved audits."""
    return filled(page, "audit bounds", table(rows_of(saved)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the audits are saved as JSON")
    parser.add_argument("--table", type=Path, help="write the saved table into this page")
    given = parser.parse_args()
    if given.table:
        given.table.write_text(with_table(given.table.read_text(), json.loads(SAVED.read_text())))
        return
    found = [measured(epsilon, trials) for epsilon, trials in CLAIMS]
    print("\n".join(table(rows_of(found))))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
