"""What privacy costs in time: noise, accounting, finding z, a charge, an audit.

    OMP_NUM_THREADS=1 python -m benchmarks.privacy_costs [--only noise charge] [--folder DIR]

Median milliseconds of CPU, and the range between the 10th and the 90th percentile of repetitions;
a charge is wall-clock, since it waits for the disk (that of `--folder`). About a minute in all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import noise
from flwr_fbo.privacy.accountants import PldAccountant
from flwr_fbo.privacy.audit import Claim, ReleaseStep, audit, standard_release
from flwr_fbo.privacy.calibration import noise_multiplier_for, paper_delta
from flwr_fbo.privacy.entropy import Entropy, poisson_sample, system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.privacy.mechanisms import RESOLUTION, GaussianSum, clip_rows

AGENTS, ROUNDS, RATE = 200, 40, 0.25
DELTA = paper_delta(AGENTS)
#: As in the suite's audits: agents, numbers in a message, its bound.
AUDITED, DIMENSION, CLIP = 12, 6, 3.0
NOTHING = np.zeros(DIMENSION, dtype=np.int64)


def times(work: Callable[[int], Any], repeat: int, clock: Callable[[], float]) -> str:
    """Median and range of milliseconds; the first turn, which fills caches of code, is left out."""
    found = []
    for turn in range(repeat + 1):
        start = clock()
        work(turn)
        found.append(1e3 * (clock() - start))
    low, middle, high = np.quantile(found[1:], [0.1, 0.5, 0.9])
    return f"{middle:10.3g} ms   {low:.3g} to {high:.3g}"


def draw(count: int, steps: float = 1.5) -> None:
    """So many coordinates of Gaussian noise; the lattice has 1 to 2 times 2^28 steps to it."""
    noise.draw_rounded(noise.GAUSSIAN, steps * 2.0**RESOLUTION, count, system_entropy())


def measure_noise(folder: Path) -> Iterator[tuple[str, str]]:
    """Drawing it, and how often double precision does not decide."""
    for count, repeat in ((400, 200), (100_000, 15)):
        label = f"noise of {count:,} coordinates"
        yield label, times(lambda _, n=count: draw(n), repeat, time.process_time)
    for steps in (1.0, 2.0):
        found = settled(steps) / 1000
        label = f"settled in arbitrary precision, 2^{RESOLUTION + steps - 1:.0f} steps"
        yield label, f"{found:10.3g} of a thousand draws"


def settled(steps: float) -> int:
    """How many of a million draws double precision leaves open."""
    count, settle = 0, noise._decide

    def counting(*given: Any) -> int:
        nonlocal count
        count += 1
        return settle(*given)

    noise._decide = counting
    try:
        draw(1_000_000, steps)
    finally:
        noise._decide = settle
    return count


def measure_epsilon(folder: Path) -> Iterator[tuple[str, str]]:
    """One more round after some, by pld: alike, or each with a noise of its own."""
    for label, spread in (("alike", 0.0), ("all different", 1e-3)):
        view = PldAccountant()

        def another(turn: int, view: Any = view, spread: float = spread) -> None:
            view.compose(GaussianRelease(1.0 + spread * turn, RATE))
            view.epsilon(DELTA)

        yield f"epsilon after one more round, {label}", times(another, ROUNDS, time.process_time)


def measure_multiplier(folder: Path) -> Iterator[tuple[str, str]]:
    """The noise multiplier for an epsilon, by pld; every turn another epsilon."""
    schedules = {
        "one sampling rate": [RATE] * ROUNDS,
        "four sampling rates": [0.1, 0.2, 0.4, 0.8] * (ROUNDS // 4),
        "sixty sampling rates": [0.1 + 0.01 * i for i in range(60)],
    }
    for label, rates in schedules.items():

        def find(turn: int, rates: list[float] = rates) -> None:
            noise_multiplier_for(4.0 + 0.01 * turn, DELTA, rates)

        repeat = 1 if len(set(rates)) > 10 else 5
        yield f"z for an epsilon, {label}", times(find, repeat, time.process_time)


def measure_charge(folder: Path) -> Iterator[tuple[str, str]]:
    """A line of the ledger, forced to the disk; and the part of it that is computing."""
    event = GaussianRelease(1.0, RATE)
    with (
        tempfile.TemporaryDirectory(dir=folder) as inside,
        Ledger.create(Path(inside) / "ledger.jsonl", {"run": 1}) as ledger,
    ):
        yield "a charge", times(lambda _: ledger.charge(event), 100, time.perf_counter)
        yield "of it computing", times(lambda _: ledger.charge(event), 100, time.process_time)


def faulty(clip: bool, twice: bool, rate: float) -> ReleaseStep:
    """A step without the clip, or whose noise is drawn once and used again."""
    mechanism = GaussianSum(CLIP, 1.0)
    kept: list[Array] = []

    def release(messages: Array, entropy: Entropy) -> Array:
        chosen = messages[poisson_sample(len(messages), rate, entropy)]
        if clip and len(chosen):
            chosen = clip_rows(chosen, CLIP)
        again = bool(kept)
        drawn = kept.pop() if again else mechanism.release(NOTHING, entropy)
        if twice and not again:
            kept.append(drawn)
        return np.asarray(chosen.sum(axis=0)) + drawn

    return release


def measure_audit(folder: Path) -> Iterator[tuple[str, str]]:
    """The table of the audit: what is right passes, three faults do not."""
    for rate in (1.0, RATE):
        steps = {
            "as it should be": standard_release(CLIP, 1.0, rate),
            "noise half as large": standard_release(CLIP, 0.5, rate),
            "clip missing": faulty(clip=False, twice=False, rate=rate),
            "noise used twice": faulty(clip=True, twice=True, rate=rate),
        }
        for label, step in steps.items():
            start = time.process_time()
            claim = Claim(1.0, rate, DELTA, AUDITED, DIMENSION, CLIP)
            found = audit(step, claim)
            cells = (
                f"claimed {found.epsilon_claimed:.3f}  observed >= {found.epsilon_lower:.3f}  "
                f"z <= {found.noise_multiplier_upper:.3f}  "
                f"{'passed' if found.passed else 'failed'}  {time.process_time() - start:.1f} s"
            )
            yield f"audit, q = {rate:g}: {label}", cells


PARTS: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "noise": measure_noise, "epsilon": measure_epsilon, "multiplier": measure_multiplier,
    "charge": measure_charge, "audit": measure_audit,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, default=None, help="where a ledger is charged")
    given = parser.parse_args()
    for name in given.only:
        for label, found in PARTS[name](given.folder):
            print(f"{label:<44}{found}", flush=True)


if __name__ == "__main__":
    main()
