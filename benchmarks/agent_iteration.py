"""What one agent's iteration costs: update, omega, and the next query, in CPU milliseconds.

    python benchmarks/agent_iteration.py [--observations 70] [--dimension 2] [--features 100]

Prints the median and spread over repetitions. Run it with OMP_NUM_THREADS=1 for one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import split_space


def cpu_ms(work: Callable[[int], object], repeats: int) -> dict[str, float]:
    work(0)
    times = []
    for i in range(1, repeats + 1):
        start = time.process_time()
        work(i)
        times.append(1e3 * (time.process_time() - start))
    low, median, high = np.percentile(times, [10, 50, 90])
    return {"median": median, "p10": low, "p90": high}


def sampler_with(
    observations: int,
    dimension: int,
    count: int,
    seed: int = 0,
    settings: ThompsonSettings | None = None,
) -> ThompsonSampler:
    """The papers' agent, or one with other settings, that was told noisy scores."""
    rng = np.random.default_rng(seed)
    space = Space({f"x{i}": Float(0.0, 1.0) for i in range(dimension)})
    settings = settings or ThompsonSettings(features=count)
    scales = settings.feature_lengthscale or feature_lengthscales(count, dimension)
    kernel = kernel_named("se", scales)
    features = RandomFeatures.draw(kernel, count, dimension, np.random.default_rng(0))
    sampler = ThompsonSampler(space, settings, features, (seed,))
    for unit in rng.random((observations, dimension)):
        sampler.tell(unit, float(np.sin(6 * unit).sum() + 0.1 * rng.standard_normal()))
    sampler.model()
    return sampler


def default_sampler(observations: int, dimension: int) -> ThompsonSampler:
    """The default agent of dp-fts-de, who was told what three others share."""
    settings = DPFTSDESettings()
    agents = [
        sampler_with(observations, dimension, settings.features, seed, settings)
        for seed in range(4)
    ]
    weights = np.mean([other.message(0) for other in agents[1:]], axis=0)
    agents[0].set_shared_function(
        SharedFunction(weights[None], split_space(agents[0].space, settings.regions))
    )
    return agents[0]


#: Spaces that people tune, by their number of dimensions: a tree, a network and boosted trees.
MIXED: dict[int, Space] = {
    5: Space({
        "cp": Float(1e-3, 1.0, log=True), "depth": Int(1, 30), "bucket": Int(1, 100),
        "split": Int(1, 100), "impute": Categorical(["mean", "median", "hist"]),
    }),
    7: Space({
        "batch": Int(16, 512, log=True), "rate": Float(1e-4, 0.1, log=True),
        "dropout": Float(0.0, 1.0), "units": Int(64, 1024, log=True),
        "momentum": Float(0.1, 0.99), "layers": Int(1, 5), "decay": Float(1e-5, 0.1),
    }),
    11: Space({
        "booster": Categorical(["gbtree", "gblinear", "dart"]), "trees": Int(3, 2000, log=True),
        "eta": Float(1e-4, 1.0, log=True), "gamma": Float(1e-5, 7.0, log=True),
        "lambda": Float(1e-4, 1e3, log=True), "alpha": Float(1e-4, 1e3, log=True),
        "sample": Float(0.1, 1.0), "depth": Int(1, 15), "child": Float(2.0, 150.0, log=True),
        "columns": Float(0.01, 1.0), "impute": Categorical(["mean", "median", "hist"]),
    }),
}  # fmt: skip


def mixed_sampler(dimension: int, observations: int, seed: int = 0) -> ThompsonSampler:
    """The default agent over a mixed space, with a shared function as its prior mean."""
    settings, space, rng = DPFTSDESettings(), MIXED[dimension], np.random.default_rng(seed)
    kernel = kernel_named("se", feature_lengthscales(settings.features, dimension))
    wide, first = space.embedding_dimension, np.random.default_rng(0)
    features = RandomFeatures.draw(kernel, settings.features, wide, first)
    sampler = ThompsonSampler(space, settings, features, (seed,))
    for unit in space.sample(observations, rng):
        sampler.tell(unit, float(-((unit - 0.4) ** 2).sum() + 0.05 * rng.standard_normal()))
    weights = 0.2 * rng.standard_normal((1, settings.features))
    sampler.set_shared_function(SharedFunction(weights, split_space(space, 1)))
    sampler.model()
    return sampler


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--observations", type=int, default=70)
    parser.add_argument("--dimension", type=int, default=2)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--regions", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    n, d, m = arguments.observations, arguments.dimension, arguments.features
    sampler, default = sampler_with(n, d, m), default_sampler(n, d)
    rng = np.random.default_rng(1)
    regions = split_space(sampler.space, arguments.regions)
    advice = SharedFunction(rng.standard_normal((arguments.regions, m)), regions)

    def iteration(i: int, own: float) -> None:
        sampler.ask(i + 1, own, advice)
        sampler.message(i + 1)

    def update(i: int) -> None:
        state = sampler.state_dict()
        again = ThompsonSampler(sampler.space, sampler.settings, sampler.features, (0,))
        again.load_state_dict(state)
        again.tell(rng.random(d), 0.0)
        again.model().information_gain()  # the factor is made when it is first needed

    def refit(i: int) -> None:
        sampler.own_model._fits.clear()
        sampler.model()

    def by_default(i: int) -> None:
        default.ask(i + 1)
        default.message(i + 1)

    figures = {
        "update (state restored, one more observation)": cpu_ms(update, arguments.repeats),
        "query on the agent's own sample, and omega": cpu_ms(
            lambda i: iteration(i, 1.0), arguments.repeats
        ),
        "query on the advice, and omega": cpu_ms(lambda i: iteration(i, 0.0), arguments.repeats),
        "query of dp-fts-de's default agent, and omega": cpu_ms(by_default, arguments.repeats),
        "fit of the model's parameters": cpu_ms(refit, arguments.repeats),
    }
    print(f"{n} observations, D = {d}, M = {m}, {arguments.repeats} repetitions; CPU ms")
    for name, figure in figures.items():
        print(f"  {name:<48} {figure['median']:7.2f}  ({figure['p10']:.2f}-{figure['p90']:.2f})")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
