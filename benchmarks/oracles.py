"""Our epsilon against independent computations, in ten settings.

    OMP_NUM_THREADS=1 python -m benchmarks.oracles [--table docs/reference/proofs.md]

Three oracles share no code with the accountant ``pld``, which is built on dp_accounting:

=============  =================================================================================
oracle         how it bounds epsilon
=============  =================================================================================
``grid``       built in: the exact law of the loss on a grid, convolved. Every loss is rounded up
               by less than a step, so the true epsilon is in a bracket of known width
``prv``        the package prv_accountant (Gopi, Lee and Wutschitz 2021), with its own error bounds
``opendp``     the package OpenDP: zero-concentrated privacy of unsampled Gaussian releases, sums
               of Laplace releases. Upper bounds, and the same theory as our ``rdp`` and ``pure``
=============  =================================================================================

The last two need ``pip install 'flwr-fbo[oracles]'``. With both installed, the table is saved.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np
from scipy import signal, special

from benchmarks.pages import filled, table
from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.events import Event, GaussianRelease, LaplaceRelease

SAVED = Path(__file__).parent / "results" / "oracles.json"
PACKAGES = ("prv-accountant", "opendp")
#: Grid points of the composed loss, and deviations of the noise that the grid covers.
POINTS, REACH = 2**21, 7.5
#: How far our epsilon may lie above the truth, relatively; it must never lie below.
TOLERANCE = 2e-3
#: Agreement of bounds that come from the same theory, at other orders.
SAME_THEORY = 1e-2

PAPER = 200**-1.1


@dataclass(frozen=True)
class Setting:
    """A sequence of releases, whose epsilon is computed in several ways."""

    name: str
    releases: tuple[tuple[Event, int], ...]
    delta: float

    def by(self, accountant: str) -> float:
        """Return the epsilon by one of our accountants."""
        made = make_accountant(accountant)
        for event, count in self.releases:
            made.compose(event, count)
        return made.epsilon(self.delta)

    @property
    def count(self) -> int:
        """Return the number of all releases."""
        return sum(count for _, count in self.releases)


def gaussian(z: float, q: float, count: int) -> tuple[Event, int]:
    return GaussianRelease(z, q), count


SETTINGS = (
    Setting("z 1, q .15, 40 releases", (gaussian(1.0, 0.15, 40),), PAPER),
    Setting("z 1, q .25, 40 releases", (gaussian(1.0, 0.25, 40),), PAPER),
    Setting("z 1, q .5, 40 releases", (gaussian(1.0, 0.5, 40),), PAPER),
    Setting("z 1.5, q .25, 40 releases", (gaussian(1.5, 0.25, 40),), PAPER),
    Setting("z 1, q .35, 60 releases", (gaussian(1.0, 0.35, 60),), 29**-1.1),
    Setting("z 2, q .05, 200 releases", (gaussian(2.0, 0.05, 200),), 1e-6),
    Setting("z 1, q 1, 1 release", (gaussian(1.0, 1.0, 1),), 1e-5),
    Setting("z 3, q 1, 6 releases", (gaussian(3.0, 1.0, 6),), 1e-5),
    Setting(
        "z 1, q .1, 10 releases and z 4, q 1, 5 releases",
        (gaussian(1.0, 0.1, 10), gaussian(4.0, 1.0, 5)),
        1e-5,
    ),
    Setting("Laplace, epsilon .1, 30 releases", ((LaplaceRelease(0.1), 30),), 1e-6),
)


# ------------------------------------------------------------------ the built-in oracle


@dataclass(frozen=True)
class Loss:
    """The law of the privacy loss log(P/Q) of one release, under P.

    ``below`` gives P(loss <= l) at many l; the loss lies between ``least`` and ``most``, except
    for the probability that ``below(most)`` leaves out.
    """

    below: Callable[[Array], Array]
    least: float
    most: float


def losses(event: Event) -> tuple[Loss, Loss]:
    """Return the laws of the loss for a message that is removed, and for one that is added."""
    if isinstance(event, LaplaceRelease):
        law = _laplace_loss(event.epsilon)
        return law, law  # removing and adding are mirror images
    assert isinstance(event, GaussianRelease)
    z, q = event.noise_multiplier, event.sampling_rate

    def ratio(x: float) -> float:  # log of (1 - q + q e^((2x - 1) / 2z^2))
        without = math.log1p(-q) if q < 1.0 else -math.inf
        return float(np.logaddexp(without, math.log(q) + (2.0 * x - 1.0) / (2.0 * z * z)))

    def inverse(loss: Array) -> Array:
        rest = np.exp(loss) - (1.0 - q)
        with np.errstate(divide="ignore", invalid="ignore"):
            x = 0.5 + z * z * (np.log(np.maximum(rest, 0.0)) - math.log(q))
        return np.where(rest > 0.0, x, -np.inf)

    def removed(loss: Array) -> Array:  # P is the mixture, Q is without the message
        x = inverse(loss)
        return np.asarray((1.0 - q) * special.ndtr(x / z) + q * special.ndtr((x - 1.0) / z))

    def added(loss: Array) -> Array:  # P is without the message, and the loss changes its sign
        return np.asarray(special.ndtr(-inverse(-loss) / z))

    low, high = ratio(-REACH * z), ratio(1.0 + REACH * z)
    return Loss(removed, low, high), Loss(added, -high, -low)


def _laplace_loss(epsilon: float) -> Loss:
    """Return the law of the loss eps (|x - 1| - |x|) for Laplace noise x of scale 1 / eps."""

    def below(loss: Array) -> Array:
        inside = 0.5 * np.exp(-0.5 * (epsilon - loss))  # P(x >= (1 - loss / eps) / 2)
        return np.where(loss >= epsilon, 1.0, np.where(loss >= -epsilon, inside, 0.0))

    return Loss(below, -epsilon, epsilon)


def grid_bracket(setting: Setting) -> tuple[float, float]:
    """Return two numbers between which the true epsilon lies, up to the rounding of doubles."""
    pairs = [(losses(event), count) for event, count in setting.releases]
    width = sum(count * (law.most - law.least) for (law, _), count in pairs)
    step = 2.0 ** math.ceil(math.log2(width / POINTS))
    # Both directions hold, so epsilon is the larger one.
    ends = [_bracket([(pair[i], n) for pair, n in pairs], step, setting.delta) for i in (0, 1)]
    return max(low for low, _ in ends), max(high for _, high in ends)


def _bracket(laws: Sequence[tuple[Loss, int]], step: float, delta: float) -> tuple[float, float]:
    """Return the bracket of one direction."""
    masses, first, lost = np.ones(1), 0, 0.0
    for law, count in laws:
        start, stop = math.floor(law.least / step), math.ceil(law.most / step)
        edges = np.arange(start - 1, stop + 1) * step
        below = law.below(edges)
        below[0] = 0.0  # what is smaller still is rounded up to the first point
        cells = np.diff(below)  # the loss of a cell is rounded up to its upper edge
        lost += count * (1.0 - float(below[-1]))
        masses = signal.fftconvolve(masses, _power(cells, count))
        first += count * start
    points = (first + np.arange(len(masses))) * step
    rounded_up = _epsilon(points, masses, delta - lost)
    # Rounded down instead, every loss is one step smaller, and so is their sum by `count` steps.
    exact_tail = _epsilon(points, masses, delta)
    return max(0.0, exact_tail - (sum(n for _, n in laws) + 1) * step), rounded_up


def _power(cells: Array, count: int) -> Array:
    """Return the cells convolved ``count`` times with themselves."""
    size = count * (len(cells) - 1) + 1
    length = 2 ** math.ceil(math.log2(max(size, 2)))
    spectrum = np.fft.rfft(cells, length) ** count
    return np.maximum(np.fft.irfft(spectrum, length)[:size], 0.0)


def _epsilon(points: Array, masses: Array, delta: float) -> float:
    """Return the first point at which E[(1 - e^(eps - loss))+] is at most delta."""
    kept = (points >= 0.0) & (points < 700.0)
    loss, mass = points[kept], masses[kept]
    beyond = float(masses[points >= 700.0].sum())
    above = np.cumsum(mass[::-1])[::-1] + beyond
    weighted = np.cumsum((mass * np.exp(-loss))[::-1])[::-1]
    profile = above - np.exp(loss) * weighted
    return float(loss[np.flatnonzero(profile <= delta)[0]])


# ------------------------------------------------------------------ the packages


def installed(package: str) -> bool:
    """Return whether an optional package is installed."""
    return util.find_spec(package.replace("-", "_")) is not None


def prv_bracket(setting: Setting) -> tuple[float, float]:
    """Return the bounds of epsilon by prv_accountant."""
    from prv_accountant import LaplaceMechanism, PoissonSubsampledGaussianMechanism, PRVAccountant

    variables, counts = [], []
    for event, count in setting.releases:
        counts.append(count)
        if isinstance(event, LaplaceRelease):
            variables.append(LaplaceMechanism(event.epsilon))
            continue
        assert isinstance(event, GaussianRelease)
        variables.append(
            PoissonSubsampledGaussianMechanism(
                noise_multiplier=event.noise_multiplier,
                sampling_probability=event.sampling_rate,
            )
        )
    accountant = PRVAccountant(
        prvs=variables,
        max_self_compositions=counts,
        eps_error=0.002,
        delta_error=min(1e-9, setting.delta / 1000.0),
    )
    low, _, high = accountant.compute_epsilon(setting.delta, counts)
    return float(low), float(high)


def opendp_bound(setting: Setting) -> float | None:
    """Return OpenDP's upper bound of epsilon; None where releases are sampled."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    if all(isinstance(event, LaplaceRelease) for event, _ in setting.releases):
        number = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        made = [
            dp.m.make_laplace(*number, scale=1.0 / event.epsilon)
            for event, count in setting.releases
            if isinstance(event, LaplaceRelease)
            for _ in range(count)
        ]
        return float(dp.c.make_composition(made).map(1.0))
    vector = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    made = []
    for event, count in setting.releases:
        if not isinstance(event, GaussianRelease) or event.sampling_rate < 1.0:
            return None
        made += [dp.m.make_gaussian(*vector, scale=event.noise_multiplier)] * count
    composed = dp.c.make_zCDP_to_approxDP(dp.c.make_composition(made))
    return float(composed.map(1.0).epsilon(setting.delta))


# ------------------------------------------------------------------ the comparison


@dataclass(frozen=True)
class Comparison:
    """The epsilon of one setting, by our accountants and by every oracle that is installed."""

    setting: Setting
    pld: float
    theory: float  # by rdp, or by pure for Laplace releases
    grid: tuple[float, float]
    prv: tuple[float, float] | None = None
    opendp: float | None = None

    @classmethod
    def of(cls, setting: Setting) -> Comparison:
        """Compute everything."""
        laplace = all(isinstance(event, LaplaceRelease) for event, _ in setting.releases)
        return cls(
            setting,
            setting.by("pld"),
            setting.by("pure" if laplace else "rdp"),
            grid_bracket(setting),
            prv_bracket(setting) if installed("prv-accountant") else None,
            opendp_bound(setting) if installed("opendp") else None,
        )

    @property
    def faults(self) -> list[str]:
        """Return the names of the oracles that contradict us."""
        brackets = {"grid": self.grid, "prv": self.prv}
        found = [name for name, ends in brackets.items() if ends and not self._within(*ends)]
        if self.opendp is not None:
            apart = abs(self.opendp - self.theory) > SAME_THEORY * self.theory
            found += ["opendp"] if apart or self.opendp < self.pld * (1.0 - 1e-9) else []
        return found

    def _within(self, low: float, high: float) -> bool:
        return low <= self.pld <= high * (1.0 + TOLERANCE)

    def row(self) -> dict[str, Any]:
        """Return the comparison as a row of the table."""
        s = self.setting
        return {
            "releases": s.name,
            "delta": f"{s.delta:.3g}",
            "ours (`pld`)": f"{self.pld:.4f}",
            "grid": "{:.4f} to {:.4f}".format(*self.grid),
            "prv_accountant": None if self.prv is None else "{:.4f} to {:.4f}".format(*self.prv),
            "ours (`rdp`, `pure`)": f"{self.theory:.4f}",
            "OpenDP": None if self.opendp is None else f"{self.opendp:.4f}",
            "outcome": "agree" if not self.faults else f"NOT: {', '.join(self.faults)}",
        }


def page(text: str, saved: dict[str, Any]) -> str:
    """Return a page with the saved table."""
    return filled(text, "oracles", table(saved["rows"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--table", type=Path, help="a page to write the saved table to")
    arguments = parser.parse_args()
    rows = []
    for setting in SETTINGS:
        rows.append(Comparison.of(setting).row())
        print(json.dumps(rows[-1]))
    missing = [package for package in PACKAGES if not installed(package)]
    if missing:
        print(f"not saved: {', '.join(missing)} not installed (pip install 'flwr-fbo[oracles]')")
    else:
        versions = {name: metadata.version(name) for name in (*PACKAGES, "dp-accounting")}
        SAVED.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")
    if arguments.table is not None:
        text = arguments.table.read_text()
        arguments.table.write_text(page(text, json.loads(SAVED.read_text())))
    if any(row["outcome"] != "agree" for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
