"""LDP-BO measured: regret, epsilon, heavy tails, confidence, speed.

    FLWR_FBO_DATA=... python benchmarks/ldp_bo.py [SECTION ...] [--quick] [--json FILE]

Every figure is a mean over ten trials (trial n: function, noise and learner seeded with n) and
the standard deviation over them. Regret is printed as a share of what uniform play costs on
average, so that 1 means that nothing was learnt. Learners are driven directly, with noise from a
seeded generator: **not private**, but the same law as the agents'. Synthetic figures need no
data; ``light`` and ``stocks`` need the directory with the originals.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import kebab
from flwr_fbo.core.space import Categorical, Space
from flwr_fbo.methods.ldp.learner import Learner, UpperConfidence
from flwr_fbo.methods.ldp.learners import make_learner
from flwr_fbo.methods.ldp.problem import problem_presets, range_presets
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.method import load_attribute
from flwr_fbo.methods.registry import find_method
from flwr_fbo.tasks.papers.ldp_synthetic import LDPSyntheticSettings, LDPSyntheticTask
from flwr_fbo.tasks.task import Partition

PRIVATE = ("ldp-ata", "ldp-tgp", "ldp-moma", "gp-ucb", "uniform")
OPEN = ("ata", "tgp", "moma", "gp-ucb", "uniform")
Noise = Callable[[int, int, np.random.Generator], Array]


@dataclass(frozen=True)
class Bandit:
    """A problem as a trial plays it. ``noise(arm, count, rng)`` draws noise of rewards."""

    space: Space
    mean: Array
    covariance: Array
    noise: Noise
    presets: dict[str, Any]


def synthetic(trial: int, **values: Any) -> Bandit:
    task = LDPSyntheticTask(LDPSyntheticSettings(**values))
    task.prepare(Partition(0, 1, trial))
    problem = task.problem
    presets = {**problem_presets(problem), "norm": problem.norm}
    noise: Noise = lambda arm, count, rng: task.draw_noise(count, rng)  # noqa: E731
    return Bandit(task.space, problem.mean, problem.covariance, noise, presets)


def real(name: str, centred: bool = False) -> Bandit:
    """Light or stocks, in units of the largest mean (raw, B + R is 1,780 or 440)."""
    from flwr_fbo.tasks.papers.data import bandits

    directory = os.environ["FLWR_FBO_DATA"]
    raw = (
        bandits.light_problem(bandits.load_light_sensors(directory))
        if name == "light"
        else bandits.stock_problem(bandits.load_stocks(directory))
    )
    problem = raw.normalised()
    arms = Space({"arm": Categorical(tuple(range(len(problem.mean))))})
    presets = dict(problem_presets(problem))
    if centred:  # the owner knows the range of what is measured
        rewards = problem.mean + problem.noise
        presets = {**range_presets(float(rewards.min()), float(rewards.max()))}

    def noise(arm: int, count: int, rng: np.random.Generator) -> Array:
        return np.asarray(problem.noise[rng.integers(len(problem.noise), size=count), arm])

    return Bandit(arms, problem.mean, problem.covariance, noise, presets)


def learner_class(name: str) -> type[Learner]:
    found: type[Learner] = load_attribute(find_method(name).options["learner"])
    return found


def play(
    bandit: Bandit, name: str, trial: int, plays: int, **values: Any
) -> tuple[Array, Learner, float]:
    """One trial: regret by play, the learner at the end, seconds."""
    given = {"budget": plays, **values}
    named = {kebab(key): value for key, value in given.items()}
    settings = LDPSettings.from_mapping(named, bandit.presets)
    learner = make_learner(learner_class(name), bandit.space, settings, trial, bandit.covariance)
    rng = np.random.default_rng([trial, 99])
    gaps = bandit.mean.max() - bandit.mean
    regret = np.zeros(plays)
    start, t = time.perf_counter(), 0
    while t < plays:
        points = learner.suggest()
        count = len(points)
        arm = int(learner.domain.keys(points[:1])[0])
        rewards = received(bandit, arm, count, settings, learner, rng)
        regret[t : t + count] = gaps[arm]
        if t + count <= plays:
            learner.update(points, rewards)
        t += count
    return regret, learner, time.perf_counter() - start


def received(
    bandit: Bandit,
    arm: int,
    count: int,
    settings: LDPSettings,
    learner: Learner,
    rng: np.random.Generator,
) -> Array:
    raw = bandit.mean[arm] + bandit.noise(arm, count, rng) - settings.reward_offset
    if settings.epsilon_per_answer is None:
        return raw
    clipped = np.clip(raw, -settings.clip, settings.clip)
    return np.asarray(clipped + rng.laplace(0.0, learner.model.scale, count))


@dataclass
class Bench:
    """What was asked for, and every figure measured so far."""

    trials: int
    scale: float
    results: list[dict[str, Any]]

    def plays(self, full: int) -> int:
        return max(200, int(full * self.scale))

    def shares(
        self, make: Callable[[int], Bandit], name: str, plays: int, **values: Any
    ) -> tuple[Array, float]:
        """Regret as a share of uniform play's at a tenth, half and all of the plays: (n, 3)."""
        marks = [plays // 10, plays // 2, plays]
        rows, seconds = [], 0.0
        for trial in range(self.trials):
            bandit = make(trial)
            regret, _, spent = play(bandit, name, trial, plays, **values)
            uniform = bandit.mean.max() - bandit.mean.mean()
            rows.append([regret[:m].sum() / (m * uniform) for m in marks])
            seconds += spent
        return np.array(rows), seconds / self.trials

    def table(
        self,
        title: str,
        make: Callable[[int], Bandit],
        names: tuple[str, ...],
        plays: int,
        **values: Any,
    ) -> None:
        extras = " ".join(f"{k}={v}" for k, v in values.items())
        print(f"\n{title}: T={plays} {extras}, {self.trials} trials")
        print(f"{'':10}{'T/10':>15}{'T/2':>15}{'T':>15}{'worst':>8}{'s':>7}")
        for name in names:
            shares, seconds = self.shares(make, name, plays, **values)
            mean, sd = shares.mean(axis=0), shares.std(axis=0, ddof=1)
            cells = "".join(f"{m:8.3f} +-{s:5.3f}" for m, s in zip(mean, sd, strict=True))
            print(f"{name:10}{cells}{shares[:, -1].max():8.3f}{seconds:7.2f}", flush=True)
            record = {"table": title, "learner": name, "plays": plays, **values}
            record |= {"share": shares.tolist(), "seconds": seconds}
            self.results.append(record)


def section_private(bench: Bench) -> None:
    """Fig. 2 (a) to (c): LDP, T = 20,000, epsilon = 1."""
    plays = bench.plays(20_000)
    for kernel in ("se", "matern52"):
        make = lambda n, k=kernel: synthetic(n, function_kernel=k)  # noqa: E731
        bench.table(f"synthetic {kernel}", make, PRIVATE, plays, epsilon_per_answer=1.0)
    for name in _real():
        bench.table(
            f"{name}, units of B", lambda n, d=name: real(d), PRIVATE, plays, epsilon_per_answer=1.0
        )
        bench.table(
            f"{name}, centred",
            lambda n, d=name: real(d, True),
            PRIVATE,
            plays,
            epsilon_per_answer=1.0,
        )


def section_theory(bench: Bench) -> None:
    """The same with the theorems' constants."""
    plays = bench.plays(20_000)
    make = lambda n: synthetic(n)  # noqa: E731
    bench.table("theory", make, PRIVATE, plays, epsilon_per_answer=1.0, constants="theory")
    bench.table(
        "theory, little privacy", make, PRIVATE, plays, epsilon_per_answer=10.0, constants="theory"
    )


def section_epsilon(bench: Bench) -> None:
    """Regret against epsilon: the theorems and the lower bound say 1/epsilon."""
    for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
        make = lambda n: synthetic(n)  # noqa: E731
        bench.table("epsilon", make, PRIVATE[:3], bench.plays(20_000), epsilon_per_answer=epsilon)


def section_heavy(bench: Bench) -> None:
    """Fig. 2 (d) to (f): not private, heavy tails."""
    plays = bench.plays(2_000)
    for kernel in ("se", "matern52"):
        make = lambda n, k=kernel: synthetic(n, function_kernel=k, noise_law="student-t")  # noqa: E731
        bench.table(f"Student-t, 3 d.o.f., {kernel}", make, OPEN, plays)
    for name in _real():
        bench.table(f"{name}, units of B", lambda n, d=name: real(d), OPEN, plays)


def section_tails(bench: Bench) -> None:
    """Is GP-UCB without truncation worse? Paired on many functions, ever heavier tails."""
    plays, trials = bench.plays(2_000), range(1000, 1000 + 8 * bench.trials)
    for degrees in (3.0, 1.5, 1.1):
        print(f"\nStudent-t, {degrees} d.o.f., told c = 3: T={plays}, {len(trials)} trials")
        print(f"{'':10}{'share':>8}{'s.e.':>8}{'median':>8}{'worst':>8}   less than gp-ucb (s.e.)")
        plain = _tail_shares("gp-ucb", degrees, plays, trials)
        for name in OPEN[:-1]:
            shares = _tail_shares(name, degrees, plays, trials)
            gain, root = plain - shares, len(trials) ** 0.5
            print(
                f"{name:10}{shares.mean():8.3f}{shares.std(ddof=1) / root:8.3f}"
                f"{np.median(shares):8.3f}{shares.max():8.3f}"
                f"{gain.mean():10.3f} ({gain.std(ddof=1) / root:.3f})",
                flush=True,
            )
            record = {"table": "tails", "degrees": degrees, "learner": name}
            bench.results.append({**record, "plays": plays, "share": shares.tolist()})


def _tail_shares(name: str, degrees: float, plays: int, trials: range) -> Array:
    shares = []
    for trial in trials:
        bandit = _heavier(trial, degrees)
        regret, _, _ = play(bandit, name, trial, plays)
        shares.append(regret.mean() / (bandit.mean.max() - bandit.mean.mean()))
    return np.array(shares)


def _heavier(trial: int, degrees: float) -> Bandit:
    """Noise with heavier tails than the learner is told (c = 3)."""
    bandit = synthetic(trial, noise_law="student-t")
    noise: Noise = lambda arm, count, rng: rng.standard_t(degrees, count)  # noqa: E731
    return Bandit(bandit.space, bandit.mean, bandit.covariance, noise, bandit.presets)


def section_moma(bench: Bench) -> None:
    """Plays per epoch: the theorem's k leaves few epochs."""
    plays = bench.plays(20_000)
    for epoch in (3, 5, 9, 31, 101, 351):
        make = lambda n: synthetic(n)  # noqa: E731
        bench.table("epoch", make, ("ldp-moma",), plays, epsilon_per_answer=1.0, epoch=epoch)


def section_confidence(bench: Bench) -> None:
    """The share of arms and steps at which |f - mu| <= beta sigma."""
    plays = max(600, bench.plays(2_000))
    print(f"\nconfidence: share of arms and steps, T={plays} epsilon=1, {bench.trials} trials")
    for preset in ("theory", "practical"):
        for name in (*PRIVATE[:3], "gp-ucb"):
            shares = [_coverage(name, trial, plays, preset) for trial in range(bench.trials)]
            mean, worst = float(np.mean(shares)), min(shares)
            print(f"{preset:10}{name:10}{mean:10.5f}  worst trial {worst:.5f}", flush=True)
            bench.results.append(
                {"table": "confidence", "preset": preset, "learner": name, "share": shares}
            )


def _coverage(name: str, trial: int, plays: int, preset: str) -> float:
    bandit = synthetic(trial)
    values = {"budget": plays, "epsilon_per_answer": 1.0, "constants": preset}
    settings = LDPSettings.from_mapping({kebab(k): v for k, v in values.items()}, bandit.presets)
    learner = make_learner(learner_class(name), bandit.space, settings, trial, bandit.covariance)
    assert isinstance(learner, UpperConfidence)
    rng = np.random.default_rng([trial, 99])
    inside = []
    for _ in range(plays // learner.plays):
        middle, width = learner.confidence()
        inside.append(np.mean(np.abs(bandit.mean - middle) <= width))
        points = learner.suggest()
        arm = int(learner.domain.keys(points[:1])[0])
        learner.update(points, received(bandit, arm, len(points), settings, learner, rng))
    return float(np.mean(inside))


def section_speed(bench: Bench) -> None:
    """T = 20,000 plays on 100 arms; and whether a play costs more late than early."""
    plays = bench.plays(20_000)
    print(f"\nspeed: T={plays}, 100 arms, seconds for all plays and per play")
    cases: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in PRIVATE]
    cases += [(n, {"embedding": "nystrom"}) for n in ("ldp-ata", "ldp-moma")]
    for name, values in cases:
        halves = []
        for count in (plays // 2, plays):
            _, learner, seconds = play(
                synthetic(0), name, 0, count, epsilon_per_answer=1.0, **values
            )
            halves.append(seconds)
        late = (halves[1] - halves[0]) / halves[0]
        label = f"{name} {' '.join(values.values())}"
        print(
            f"{label:20}{halves[1]:8.2f} s {1e6 * halves[1] / plays:8.1f} us"
            f"   second half / first {late:5.2f}   kept {len(getattr(learner, 'rewards', []))}",
            flush=True,
        )
        bench.results.append({"table": "speed", "learner": label, "seconds": halves})


def _real() -> Iterator[str]:
    if "FLWR_FBO_DATA" not in os.environ:
        print("\nlight and stocks are left out: FLWR_FBO_DATA is not set")
        return
    yield from ("light", "stocks")


SECTIONS = {
    name.removeprefix("section_"): function
    for name, function in list(globals().items())
    if name.startswith("section_")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], default=[])
    parser.add_argument("--quick", action="store_true", help="a tenth of the plays, 3 trials")
    parser.add_argument("--json", type=Path, help="where to save every figure")
    given = parser.parse_args()
    bench = Bench(3 if given.quick else 10, 0.1 if given.quick else 1.0, [])
    for name in given.sections or SECTIONS:
        SECTIONS[name](bench)
    if given.json:
        given.json.write_text(json.dumps(bench.results))


if __name__ == "__main__":
    main()
