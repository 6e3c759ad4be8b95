"""What many agents compute at once is what each computes alone, to the last bit."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.core.space import Categorical, Float, Int, Parameter, Space
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson import together
from flwr_fbo.methods.thompson.own_model import incumbents_together, models_together
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.methods.thompson.together import prepare_points, prepare_vectors
from flwr_fbo.models.features import RandomFeatures, feature_lengthscales
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import split_space

ROUND = 5
Team = list[ThompsonSampler]


def team(
    agents: int,
    scores: int,
    dimension: int = 2,
    *,
    regions: int = 1,
    shared: bool = True,
    seed: int = 0,
    space: Space | None = None,
    lengthscale: float | None = None,
    **given: Any,
) -> Team:
    """Agents of dp-fts-de with equally many scores each, who were told one shared function."""
    s = DPFTSDESettings(**{"features": 60, **given})
    space = space or Space({f"x{i}": Float(0, 1) for i in range(dimension)})
    kernel = kernel_named("se", feature_lengthscales(s.features, space.dimension))
    rng = np.random.default_rng([seed, 1])
    drawn = RandomFeatures.draw(kernel, s.features, space.embedding_dimension, rng)
    weights, scale = 0.2 * rng.standard_normal((regions, s.features)), None
    if s.scale is not None:
        scale = (0.2, 1.3)
    function = SharedFunction(weights, split_space(space, regions), scale, lengthscale)
    samplers = []
    for agent in range(agents):
        own = RandomFeatures(drawn.frequencies, drawn.phases)
        sampler = ThompsonSampler(space, s, own, (seed, agent))
        sampler.set_shared_function(function if shared else None)
        for unit in space.sample(scores, rng):
            # Noise of all sizes, so that some models need double precision and others do not.
            noise = 10.0 ** -rng.integers(0, 5) * rng.standard_normal()
            sampler.tell(unit, float(np.sin(6 * unit + agent).sum() + noise))
        samplers.append(sampler)
    return samplers


def points(samplers: Team) -> list[list[float]]:
    return [sampler.ask(ROUND).unit.tolist() for sampler in samplers]


def prepared(samplers: Team) -> list[bool]:
    return [bool(sampler._prepared_points) for sampler in samplers]


@given(
    st.integers(2, 9),
    st.integers(1, 26),
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(0, 2**16),
    st.fixed_dictionaries({
        "kernel": st.sampled_from(["matern52", "matern32", "se"]),
        "noise": st.sampled_from([None, 1e-6, 0.3]),
        "lengthscale": st.sampled_from([None, 0.01]),
        "standardise": st.booleans(),
        "cut_low_scores": st.booleans(),
        "refit_every": st.sampled_from([0, 3, 7]),
        "features": st.sampled_from([5, 60, 200]),
        "reward_low": st.sampled_from([None, -3.0]),
        "reward_high": st.just(3.0),
    }),
    st.sampled_from([None, 0.05]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_points_and_vectors_are_those_of_each_agent_alone(
    agents: int,
    scores: int,
    dimension: int,
    regions: int,
    seed: int,
    given: dict[str, Any],
    learned: float | None,
) -> None:
    if given["reward_low"] is None:
        given["reward_high"] = None
    some = {"regions": regions, "seed": seed, "lengthscale": learned, **given}
    made = [team(agents, scores, dimension, **some) for _ in range(2)]
    prepare_points(made[0], ROUND)
    assert all(prepared(made[0]))
    assert points(made[0]) == points(made[1])
    fits = [[sampler.own_model._fits for sampler in samplers] for samplers in made]
    assert fits[0] == fits[1]
    prepare_vectors(made[0])
    for together_, alone in zip(*made, strict=True):
        assert (together_._prepared_mean is not None) == (scores < given["features"])
        assert np.array_equal(together_.message(ROUND), alone.message(ROUND))


def test_without_a_shared_function_agents_are_computed_together_too() -> None:
    made = [team(6, 8, shared=False) for _ in range(2)]
    prepare_points(made[0], ROUND)
    assert all(prepared(made[0]))
    assert points(made[0]) == points(made[1])


@pytest.mark.parametrize("scores", [4, 11])
def test_what_one_agent_has_changes_no_other_agent(scores: int) -> None:
    # Another agent in the place of number 2: other points, other scores, another seed.
    first, second = team(7, scores), team(7, scores)
    second[2] = team(7, scores, seed=99)[4]
    second[2].set_shared_function(second[0].own_model.shared_function)
    for samplers in (first, second):
        prepare_points(samplers, ROUND)
        assert all(prepared(samplers))
    found = points(first), points(second)
    assert found[0][2] != found[1][2]
    assert found[0][:2] + found[0][3:] == found[1][:2] + found[1][3:]
    for samplers in (first, second):
        prepare_vectors(samplers)
    vectors = [[sampler.message(ROUND).tolist() for sampler in samplers]
               for samplers in (first, second)]  # fmt: skip
    assert vectors[0][2] != vectors[1][2]
    assert vectors[0][:2] + vectors[0][3:] == vectors[1][:2] + vectors[1][3:]


def test_the_order_of_the_agents_does_not_matter() -> None:
    first, second = team(8, 9), team(8, 9)
    prepare_points(first, ROUND)
    prepare_points(second[::-1], ROUND)
    assert points(first) == points(second)


def test_models_that_need_double_precision_and_others_are_scanned_apart() -> None:
    made = [team(6, 12) for _ in range(2)]
    for samplers in made:
        for agent in (1, 4):  # a recorded fit with hardly any noise
            fit = {"lengthscales": (0.05, 0.05), "variance": 1.0, "noise": 1e-6}
            samplers[agent].remember_fit(12, fit)
    model = models_together([sampler.own_model for sampler in made[0]])
    assert np.flatnonzero(~model.single_precision_suffices).tolist() == [1, 4]
    x = np.random.default_rng(0).random((6, 40, 2))
    scanned = model.scan_posterior(x)
    for agent, sampler in enumerate(made[1]):
        alone = sampler.own_model.process_with_prior_mean().scan_posterior(x[agent])
        assert np.array_equal(scanned[0][agent], alone[0])
        assert np.array_equal(scanned[1][agent], alone[1])
    prepare_points(made[0], ROUND)
    assert points(made[0]) == points(made[1])


def spaces() -> dict[str, dict[str, Parameter]]:
    x = Float(0, 1)
    return {
        "three dimensions": {"x": x, "y": x, "z": x},
        "an integer": {"x": x, "n": Int(1, 9)},
        "a category": {"x": x, "k": Categorical(["a", "b"])},
        "six, mixed": {"x": x, "y": x, "z": x, "n": Int(1, 9), "k": Categorical(["a", "b", "c"]),
                       "u": x},
    }  # fmt: skip


@pytest.mark.parametrize("name", spaces())
@pytest.mark.parametrize(("scores", "regions"), [(6, 1), (9, 2), (54, 1)])
def test_in_other_spaces_fits_and_vectors_are_made_together_and_points_alone(
    name: str, scores: int, regions: int
) -> None:
    made = [team(5, scores, space=Space(spaces()[name]), regions=regions) for _ in range(2)]
    prepare_points(made[0], ROUND)
    prepare_vectors(made[0])
    assert not any(prepared(made[0]))
    assert all(len(sampler.own_model._fits) == 1 for sampler in made[0])
    assert points(made[0]) == points(made[1])
    for together_, alone in zip(*made, strict=True):
        assert together_.own_model._fits == alone.own_model._fits
        assert together_._prepared_mean is not None
        assert np.array_equal(together_.message(ROUND), alone.message(ROUND))


def test_a_finite_space_is_left_to_each_agent() -> None:
    grid = np.random.default_rng(0).random((30, 2))
    samplers = team(3, 6, space=Space({"x": Float(0, 1), "y": Float(0, 1)}, grid))
    prepare_points(samplers, ROUND)
    assert not any(prepared(samplers))
    assert all(unit in grid.tolist() for unit in points(samplers))


@pytest.mark.parametrize(
    "given",
    [{"acquisition": "thompson"}, {"advice_use": "query"}],
)
def test_agents_that_draw_are_left_to_themselves(given: dict[str, Any]) -> None:
    samplers = team(3, 6, **given)
    prepare_points(samplers, ROUND)
    assert not any(prepared(samplers))


def test_agents_in_an_unusual_state_compute_alone_and_the_others_together() -> None:
    made = [team(9, 6) for _ in range(2)]
    for samplers in made:
        samplers[1].tell(np.array([0.4, 0.4]), None)  # a failure
        samplers[3].tell(np.array([0.3, 0.2]), 0.5)  # one more score, and nobody has as many
        samplers[5].set_shared_function(None)
    prepare_points(made[0], ROUND)
    assert [n for n, is_ in enumerate(prepared(made[0])) if not is_] == [1, 3, 5]
    assert points(made[0]) == points(made[1])


def test_a_flat_agent_and_one_that_spreads_its_points_compute_alone() -> None:
    flat = team(3, 6, shared=False)
    for sampler in flat:
        sampler.own_model._observed = [0.5] * 6
    prepare_points(flat, ROUND)
    assert not any(prepared(flat))
    few = team(3, 3, shared=False)  # of 5 `spread_points`
    prepare_points(few, ROUND)
    assert not any(prepared(few))


def test_a_prepared_point_is_for_its_round_and_for_what_was_known() -> None:
    kept, alone = team(2, 6), team(2, 6)[0]
    prepare_points(kept, ROUND)
    assert kept[0].ask(ROUND + 1).unit.tolist() == alone.ask(ROUND + 1).unit.tolist()
    prepare_points(kept, ROUND)
    pending = [np.array([0.5, 0.5])]
    assert (kept[0].ask(ROUND, pending=pending).unit.tolist()
            == alone.ask(ROUND, pending=pending).unit.tolist())  # fmt: skip
    prepare_points(kept, ROUND)
    prepare_vectors(kept)
    for sampler in (kept[0], alone):
        sampler.tell(np.array([0.2, 0.9]), 3.0)
    assert kept[0].ask(ROUND).unit.tolist() == alone.ask(ROUND).unit.tolist()
    assert np.array_equal(kept[0].message(ROUND), alone.message(ROUND))


@pytest.mark.parametrize("dimension", [2, 3])
def test_fits_are_reported_when_the_agent_asks_and_once(dimension: int) -> None:
    samplers, seen = team(3, 6, dimension), []
    samplers[1].own_model._on_fit = lambda count, found: seen.append((count, found))
    prepare_points(samplers, ROUND)
    assert not seen
    samplers[1].ask(ROUND)
    samplers[1].ask(ROUND)
    assert seen == [(6, samplers[1].own_model._fits[6])]


def test_after_an_error_each_agent_computes_alone() -> None:
    samplers, alone = team(4, 6), team(4, 6)
    broken = mock.Mock(side_effect=np.linalg.LinAlgError("not positive definite"))
    with mock.patch.object(together, "argmax_together", broken):
        prepare_points(samplers, ROUND)
    assert broken.called
    assert not any(prepared(samplers))
    assert points(samplers) == points(alone)


@given(st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=2, max_size=6))
def test_the_best_points_are_those_of_each_alone_also_where_scores_are_equal(
    scores: list[list[int]],
) -> None:
    samplers = team(len(scores), 0)
    rng = np.random.default_rng(0)
    for sampler, own in zip(samplers, scores, strict=True):
        for score in own:
            sampler.tell(rng.random(2), float(score))
    models = [sampler.own_model for sampler in samplers]
    for model, best in zip(models, incumbents_together(models), strict=True):
        np.testing.assert_array_equal(best, model.incumbents())
