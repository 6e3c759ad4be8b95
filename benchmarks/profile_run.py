"""Where the time of a run goes: seconds by part, with the objective's own beside them.

    OMP_NUM_THREADS=1 python -m benchmarks.profile_run [--task digits] [--agents 10] [--set K=V]

The run is the default one (`flwr-fbo run TASK`) in this process under cProfile. A part's seconds
are those spent in its functions and whatever they call, and no part is within another. cProfile
slows small functions down, so shares are what to read.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import logging
import pstats
import tempfile
from pathlib import Path
from typing import Any

from flwr_fbo.simulation.simulate import simulate_run

#: Part -> functions (file's end, name). The first that is on the stack counts.
PARTS: dict[str, tuple[tuple[str, str], ...]] = {
    "objective (the task's own)": (("core/evaluation.py", "_score"),),
    "task: load and divide the data": (("tasks/data_task.py", "prepare"),),
    "model: fit of its parameters": (("core/hyperparameters.py", "fit"),),
    "model: sample of a function": (("core/gp.py", "sample_path"),),
    "query: maximise it": (("core/acquisition.py", "argmax"),),
    "message": (("methods/thompson/sampler.py", "message"),),
    "privacy: plan the noise": (("methods/dp_fts_de/server.py", "_plan_privacy"),),
    "privacy: epsilon so far": (
        ("privacy/budget.py", "spent"), ("privacy/budget.py", "would_exceed"),
        ("privacy/budget.py", "report"), ("privacy/accountants.py", "epsilon_by_accountant"),
    ),
    "server: sum and noise": (("methods/dp_fts_de/aggregation.py", "draw_release"),),
    "files: journals, checkpoint, ledger": (
        ("journal.py", "append"), ("journal.py", "read"), ("rundir.py", "save"),
        ("privacy/ledger.py", "charge"), ("rundir.py", "_append"),
    ),
    "recommendation": (("methods/thompson/recommendation.py", "recommend"),),
}  # fmt: skip


def parts(stats: pstats.Stats) -> tuple[float, dict[str, float]]:
    """Total seconds, and those of each part (functions of a part do not call each other's)."""
    total = float(stats.total_tt)  # type: ignore[attr-defined]
    found = dict.fromkeys(PARTS, 0.0)
    for (path, _, name), entry in stats.stats.items():  # type: ignore[attr-defined]
        for part, functions in PARTS.items():
            if any(path.endswith("flwr_fbo/" + end) and name == n for end, n in functions):
                found[part] += entry[3]
    return total, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--task", default="digits")
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=[], help="further settings, KEY=VALUE")
    parser.add_argument("--top", type=int, default=0, help="also print so many functions")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    settings: dict[str, Any] = dict(pair.split("=", 1) for pair in given.set)
    settings |= {"task": given.task, "agents": given.agents}
    settings.setdefault("epsilon", 5.0)
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        profile.enable()
        simulate_run(settings, "inline", Path(folder) / "run")
        profile.disable()
    stats = pstats.Stats(profile)
    total, found = parts(stats)
    found["everything else (Flower's messages, our shell)"] = total - sum(found.values())
    if given.json:
        print(json.dumps({"settings": settings, "seconds": total, "parts": found}))
        return
    print(f"{settings}: {total:.2f} s under cProfile")
    for part, seconds in sorted(found.items(), key=lambda kv: -kv[1]):
        print(f"  {part:<50}{seconds:7.2f} s{100 * seconds / total:7.1f} %")
    if given.top:
        stats.sort_stats("tottime").print_stats(given.top)


if __name__ == "__main__":
    main()
