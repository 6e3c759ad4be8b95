"""The papers' figures on data, run again: agents on a lattice do what the package's agents do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from benchmarks.reproduce import drivers, lattice, lattice_checks
from benchmarks.reproduce.__main__ import chosen, whole
from benchmarks.reproduce.dp_fts_de import ACTIVITY, LANDMINE, NO_CLIP, TABLES, Settings, de, dp, ts
from benchmarks.reproduce.lattice import Lattice, lattice_of, values_of
from benchmarks.reproduce.lattice_agents import LatticeAgents, can_join, top_of_parabola
from benchmarks.reproduce.store import Store
from flwr_fbo.core.protocol import Request
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.shared_function import shared_function_of
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks import load
from flwr_fbo.tasks.task import Partition

DRAWS = 3000
#: Coarse lattices, so that a table takes a second.
COARSE = {"landmine": ((9, 2), (8, 2)), "activity": ((5, 1), (6, 2), (7, 1))}


@pytest.fixture(autouse=True)
def coarse_lattices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice, "AXES", COARSE)
    monkeypatch.setenv("FLWR_FBO_CACHE", str(tmp_path))


def party(name: str, number: int = 3, **settings: Any) -> Any:
    shorter = {"epochs": 2} if name == "activity" else {}
    task: Any = load(name, {"scale": "linear", "generated": True, **shorter, **settings})
    task.prepare(Partition(number, 29, 0))
    return task


@pytest.mark.parametrize("name", ["landmine", "activity"])
def test_a_table_holds_the_scores_of_the_task_and_is_made_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = party(name)
    points = lattice_of(task)
    assert points is not None
    assert points.shape == tuple(count for count, _ in COARSE[name])
    values = values_of(task, points)
    for number in np.random.default_rng(0).integers(0, len(values), 15):
        params = task.space.from_unit(points.points[number])
        assert values[number] == pytest.approx(task.score(params), abs=1e-9), params
    for interpolates in (False, True):
        used = replace(points, interpolates=interpolates)
        assert used.scores(values[None], points.points[None])[0] == pytest.approx(values)
    monkeypatch.setattr(lattice, "computed", lambda *given: pytest.fail("computed again"))
    lattice._read.cache_clear()
    assert np.array_equal(values_of(party(name), points), values)  # from the file
    with pytest.raises(pytest.fail.Exception, match="computed again"):
        values_of(party(name, 4), points)  # other data


def test_a_lattice_has_the_ends_of_every_range_and_knows_its_nearest_point() -> None:
    task = party("activity")
    points = lattice_of(task)
    assert points is not None
    assert task.space.from_unit(points.points[0]) == pytest.approx(
        {"batch-size": 128, "l2": 1e-6, "learning-rate": 1e-6}
    )
    assert task.space.from_unit(points.points[-1]) == pytest.approx(
        {"batch-size": 512, "l2": 10.0, "learning-rate": 1.0}
    )
    units = np.random.default_rng(0).random((50, 3))
    for unit, found in zip(units, points.points[points.nearest(units)], strict=True):
        for d, axis in enumerate(points.axes):
            assert abs(found[d] - unit[d]) == pytest.approx(np.abs(axis - unit[d]).min())
    assert np.array_equal(points.nearest(points.points), np.arange(len(points.points)))
    assert np.array_equal(points.used(units), points.points[points.nearest(units)])
    assert replace(points, interpolates=True).used(units) is units


def test_scores_between_the_points_are_linear_along_each_parameter() -> None:
    axes = np.array([0.0, 0.1, 0.4, 1.0]), np.array([0.0, 0.7, 1.0])
    points = Lattice(axes, interpolates=True)
    tables = np.array([x * y + n for n in range(2) for x, y in points.points]).reshape(2, -1)
    units = np.random.default_rng(0).random((2, 50, 2))
    expected = units.prod(axis=2) + np.arange(2)[:, None]  # linear along each of the two
    assert points.scores(tables, units) == pytest.approx(expected)


@pytest.mark.parametrize("of", [LANDMINE, ACTIVITY])
def test_errors_of_tables_are_those_of_scipys_interpolation(of: Settings) -> None:
    settings = {**of, "agents": 2, "generated": True, "draws": 8}
    found = lattice_checks.interpolation(settings, 5)
    errors, exact, rng = [], [], np.random.default_rng(5)
    for task in lattice_checks.parties(settings):
        points = lattice_of(task)
        assert points is not None
        table = RegularGridInterpolator(points.axes, values_of(task, points).reshape(points.shape))
        units = task.space.sample(8, rng)
        true = [task.evaluate(task.space.from_unit(u), rng=rng) for u in units]
        ends = points.points.min(axis=0), points.points.max(axis=0)
        errors.append(table(np.clip(units, *ends)) - true)
        exact.append(true)
    assert found["rms"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert found["mean"] == pytest.approx(np.mean(errors))
    assert found["largest"] == pytest.approx(np.abs(errors).max())
    assert found["spread"] == pytest.approx(np.std(exact))


def test_a_parabola_has_its_top_where_its_slope_is_zero() -> None:
    def parabola(x: Any) -> Any:
        return -3.0 * (x - 0.37) ** 2 + 5.0

    x = np.array([0.2, 0.35, 0.7])
    near = [(x[i : i + 1], parabola(x[i : i + 1])) for i in range(3)]
    assert top_of_parabola(*near) == pytest.approx([0.37])
    flat = [(x[i : i + 1], np.ones(1)) for i in range(3)]
    assert top_of_parabola(*flat) == pytest.approx([0.35])


def test_only_the_form_of_dp_fts_de_has_a_lattice() -> None:
    assert lattice_of(party("landmine", scale="log")) is None
    assert lattice_of(party("activity", ranges="fts")) is None
    assert lattice_of(load("garland")) is None


def agents_of(of: Settings, count: int, points: Lattice, tables: Any, **settings: Any) -> Any:
    """Return agents of a paper's federation on some lattice."""
    run = de(of, clip=NO_CLIP).settings
    given = {"preset": "paper", **run, "agents": count, "generated": True, **settings}
    given.pop("task-seed")
    spec = RunSpec.from_mapping({**given, "seed": 1})
    plan = RunParameters(spec.task.space, count, spec.run.rounds, 1, task=spec.task)
    server: Any = spec.method.make_server(plan, spec.settings)
    assert can_join(server.settings)
    return LatticeAgents(server.setup(), points, tables, 1)


@pytest.fixture(params=["interpolated", "points"])
def together(request: pytest.FixtureRequest) -> Any:
    """Two agents with twelve scores each: on landmine's space, and on activity's."""
    interpolates = request.param == "interpolated"
    of, sizes = (LANDMINE, (15, 13)) if interpolates else (ACTIVITY, (7, 5, 6))
    points = Lattice(tuple(np.linspace(0, 1, k) for k in sizes), interpolates)
    tables = np.array([np.sin(3 * points.points + n).sum(axis=1) for n in range(2)])
    agents = agents_of(of, 2, points, tables)
    agents._evaluate(np.random.default_rng(0).random((2, 12, len(sizes))))
    return agents


def samplers_of(agents: Any) -> list[ThompsonSampler]:
    """Return the package's samplers that know what the agents know."""
    found = []
    for n in range(agents.count):
        sampler = ThompsonSampler(agents.space, agents.settings, agents.shared, (1, n, 1))
        for unit, score in zip(agents.units[n], agents.scores[n], strict=True):
            sampler.tell(unit, score)
        found.append(sampler)
    return found


def test_fits_and_messages_are_those_of_the_package(together: Any) -> None:
    together._fit()
    sent = together._messages([0, 1], 4)
    for n, sampler in enumerate(samplers_of(together)):
        assert together.parameters[n] == sampler.own_model._parameters()
        assert sent[n] == pytest.approx(sampler.message(4), abs=1e-6)


def test_a_follower_goes_where_the_agent_of_the_package_goes(together: Any) -> None:
    rng = np.random.default_rng(0)
    advice = rng.standard_normal((together.regions.count, together.shared.count))
    request = Request("step", 2, {"own-probability": -1.0}, {"advice": advice}, ())
    chosen = together._step(request)
    shared = shared_function_of(advice, together.regions, together.settings)
    for n, sampler in enumerate(samplers_of(together)):
        proposal = sampler.ask(2, -1.0, shared)
        assert proposal.source == "advice"
        assert chosen[n] == pytest.approx(proposal.unit)


def test_own_paths_have_the_posterior_of_the_own_model(together: Any) -> None:
    together._fit()
    agents = np.repeat([1], DRAWS)
    paths = together.own_paths(agents, 1)
    found = together.parameters[1]
    kernel = kernel_named("se", np.array(found.lengthscales), found.variance)
    x, y = together.units[1], together.scores[1]
    process = GaussianProcess(kernel, found.noise, x, y)
    mean, variance = process.posterior(together.lattice.points)
    # Up to 210 points, twice: 5.5 standard errors are passed by chance once in some 100,000 tests.
    room = 1e-4 * np.sqrt(found.variance)  # single precision and jitter
    assert np.all(np.abs(paths.mean(axis=0) - mean) < 5.5 * np.sqrt(variance / DRAWS) + room)
    error = variance * np.sqrt(2 / DRAWS)
    assert np.all(np.abs(paths.var(axis=0) - variance) < 5.5 * error + room**2 + 1e-6)


@pytest.mark.parametrize("of", [LANDMINE, ACTIVITY])
def test_federations_on_a_lattice_begin_beside_the_starts_of_the_package(of: Settings) -> None:
    small = {"agents": 3, "rounds": 2, "generated": True}
    for run in (ts(of), dp(of, 0.5, 1.0), dp(of, 0.5, 1.0, standardise=True)):
        settings = run.with_(**small).settings
        found = drivers.federation({**settings, **TABLES[of["task"]]}, 3)
        assert (found["epsilon"] is None) == (settings["strategy"] == "local-ts")
        assert len(found["curve"]) == 3
        assert all(x >= y for x, y in zip(found["curve"], found["curve"][1:], strict=False))
        exact = drivers.Federation({**settings, "rounds": 0}, 3)
        while not exact.server.finished:
            exact.round()
        points = lattice_of(party(of["task"]))
        assert points is not None
        best = []
        for n, history in enumerate(exact.histories):
            task = drivers.prepared(exact_task(settings), of["task"], n, 3, 0)
            units = np.array([e.unit for e in history])
            used = replace(points, interpolates=of["task"] == "landmine")
            best.append(used.scores(values_of(task, points)[None], units[None]).max())
        assert found["curve"][0] == pytest.approx(1 - np.mean(best))


def exact_task(settings: Settings) -> Any:
    given = {k: v for k, v in settings.items() if k != "task-seed"}
    return RunSpec.from_mapping({"preset": "paper", **given, "seed": 3}).task


def test_methods_are_compared_with_exact_scores_and_from_tables(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert lattice_checks.compared_with_ts(store) == []
    for label, run in lattice_checks.LATTICE_CHECKS[1].rows.items():
        end = 0.2 + 0.1 * ("FTS-DE" in label) * ("tables" in label)
        for seed in lattice_checks.LATTICE_CHECKS[1].seeds_of_runs:
            store.make(run, seed, lambda run, seed, end=end: {"curve": [1.0, end], "end": end})
    lines = lattice_checks.compared_with_ts(store)
    same, apart = "+0.0000 [+0.0000, +0.0000]", "+0.1000 [+0.1000, +0.1000]"
    assert lines[2] == f"| landmine, FTS-DE | {same} | {apart} |"
    assert [line.split(" | ")[0] for line in lines[2:-1]] == [
        "| landmine, FTS-DE", "| landmine, DP-FTS-DE q=.35 z=1",
        "| activity, FTS-DE", "| activity, DP-FTS-DE q=.35 z=1",
    ]  # fmt: skip


def test_agents_that_are_not_known_are_refused() -> None:
    settings = de(LANDMINE, advice_use="prior", lattice="points").with_(agents=2, rounds=1).settings
    with pytest.raises(ValueError, match="not computed together"):
        drivers.federation(settings, 3)


def test_a_figure_can_be_run_in_the_whole_space() -> None:
    (figure,) = chosen(["dp-fts-de-3b"])
    assert figure.instead is not None
    assert all(run.settings["lattice"] for run in figure.curves.values())
    assert whole(figure).curves == figure.instead.curves
    assert whole(whole(figure)).curves == whole(figure).curves
