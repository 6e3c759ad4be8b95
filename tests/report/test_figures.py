"""The figures of a run: what they show, by hand, and as Python's users get them."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flwr_fbo
from flwr_fbo import DPFTSDE, Categorical, Float, Int, Result, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.report import history_plots, round_plots, space_plots
from flwr_fbo.report.importance import marginals, pooled_model
from flwr_fbo.report.released import spread_points
from flwr_fbo.report.runs import read_run
from flwr_fbo.report.svg import WIDTH, Axis, Chart

PLOTS = [name for name in flwr_fbo.__all__ if name.startswith("plot_")]
#: Figures that a server of a deployment can make, which has no journals.
OF_A_SERVER = {"plot_param_importances", "plot_contour", "plot_privacy"}


@task(
    space={
        "rate": Float(1e-4, 1.0, log=True),
        "width": Int(4, 64),
        "kind": Categorical(["a", "b", "c"]),
    },
    score_range=(0.0, 1.0),
)
def train(params: Any) -> float:
    if params["width"] > 62:
        raise MemoryError("too wide")
    return float(1.0 - 0.1 * (np.log10(params["rate"]) + 2) ** 2 - 0.05 * (params["kind"] == "c"))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("figures") / "run"
    return simulate(
        train, agents=6, rounds=8, strategy=DPFTSDE(epsilon=8.0), compare=["alone", "random"],
        seed=1, run_dir=folder,
    )  # fmt: skip


@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_is_a_picture(result: Result, name: str, tmp_path: Path) -> None:
    figure = getattr(flwr_fbo, name)(result)
    saved = figure.save(tmp_path / f"{name}.svg")
    root = ET.fromstring(saved.read_text())
    assert root.tag.endswith("svg")
    assert len(list(root.iter())) > 20
    assert figure._repr_html_().startswith("<img alt=")
    assert getattr(flwr_fbo, name)(result.run_dir).svg() == figure.svg()
    with pytest.raises(SettingsError, match=r"must end in \.svg"):
        figure.save(tmp_path / "figure.png")


@pytest.mark.parametrize("name", PLOTS)
def test_a_saved_figure_says_how_to_read_it(result: Result, name: str) -> None:
    """The report has a note above each figure; a file has no page around it."""
    figure = getattr(flwr_fbo, name)(result)
    root = ET.fromstring(figure.svg())
    words = " ".join("".join(text.itertext()) for text in root.iter() if text.tag.endswith("text"))
    for chart in figure.charts:
        assert chart.note in words
    if name == "plot_contour":
        assert "Star: recommended to all. Rings: the agents' best evaluations." in words


def test_a_figure_in_a_terminal_is_its_titles(result: Result) -> None:
    text = repr(flwr_fbo.plot_privacy(result))
    assert text.startswith("<Figure: Privacy spent, Signal and noise of the releases;")
    assert len(text) < 150


def test_names_of_usual_length_are_not_cut() -> None:
    chart = Chart("bars", "", Axis(0.0, 1.0, "", []), Axis(0.0, 1.0, "", [(0.5, "learning-rate")]))
    assert ">learning-rate</text>" in chart.drawing()
    # 7 units a letter, the width in a wide font.
    assert chart.left > 7 * len("learning-rate")


@pytest.mark.parametrize("name", PLOTS)
def test_a_server_has_the_figures_of_what_was_released(
    result: Result, name: str, tmp_path: Path
) -> None:
    shutil.copytree(result.run_dir, tmp_path / "server")
    for folder in ("agents", "compare"):
        shutil.rmtree(tmp_path / "server" / folder)
    (tmp_path / "server" / "result.json").unlink()
    plot = getattr(flwr_fbo, name)
    if name in OF_A_SERVER:
        assert plot(tmp_path / "server").charts
    else:
        with pytest.raises(SettingsError, match="the run must have"):
            plot(tmp_path / "server")


class TestImportance:
    SPACE = Space({"a": Float(0.0, 1.0), "b": Float(1.0, 100.0, log=True), "c": Int(1, 3)})

    def test_of_a_sum_is_the_share_of_each_variance(self) -> None:
        found = marginals(self.SPACE, lambda u: 3.0 * u[:, 0] + u[:, 1])
        # Variances 9/12 and 1/12; 512 spread points give them to a few per cent.
        np.testing.assert_allclose(found.shares, [0.9, 0.1, 0.0], atol=0.03)
        assert found.order == [0, 1, 2]

    def test_of_an_interaction_alone_is_nothing(self) -> None:
        found = marginals(self.SPACE, lambda u: (u[:, 0] - 0.5) * (u[:, 1] - 0.5))
        assert found.shares.sum() < 0.1

    def test_of_a_constant_is_zero(self) -> None:
        assert marginals(self.SPACE, lambda u: np.ones(len(u))).shares.tolist() == [0.0, 0.0, 0.0]

    def test_the_pooled_model_finds_what_matters(self, result: Result) -> None:
        run = read_run(result.run_dir)
        assert run.space is not None
        model = pooled_model(run.space, run.histories)
        assert model is not None
        shares = marginals(run.space, model).shares
        assert shares[0] == shares.max()  # the learning rate
        assert pooled_model(run.space, [run.histories[0][:3]]) is None


class TestReleases:
    def test_a_release_of_noise_alone_has_no_signal(self, result: Result) -> None:
        """The estimate is the rest after the known noise, so it is small beside the noise."""
        from flwr_fbo.privacy.releases import Release

        released = read_run(result.run_dir).released
        assert released is not None
        rng = np.random.default_rng(0)
        shape, found = released.weights.shape, []
        for _ in range(40):
            noise = Release(rng.normal(0.0, 1.0, shape), 1.0, 0)
            signal, level = released.signal_and_noise(noise)
            found.append((signal**2, level**2))
        signals, levels = np.mean(found, axis=0)
        # Where the variation is below the noise's, the rest is cut at 0, so half of the draws are.
        assert signals < 0.5 * levels
        assert levels <= 1.0  # features have norm one

    def test_a_release_without_noise_is_all_signal(self, result: Result) -> None:
        from flwr_fbo.privacy.releases import Release

        run = read_run(result.run_dir)
        released = run.released
        assert released is not None
        clean = Release(released.weights, 0.0, 0)
        signal, noise = released.signal_and_noise(clean)
        points = released.values(spread_points(released.space))
        assert noise == 0.0
        assert signal == pytest.approx(points.std())

    def test_shades_of_the_contour_are_no_thinner_than_the_noise(self, result: Result) -> None:
        values = np.linspace(0.0, 1.0, 50)
        for deviation in (0.0, 0.1, 0.4, 3.0):
            step, shade = space_plots._levels(values, deviation)
            assert step >= deviation
            assert shade.min() >= 0
            assert shade.max() <= 7
        assert len(set(space_plots._levels(values, 3.0)[1])) == 1  # all of it is noise
        chart = space_plots.contour(read_run(result.run_dir), None, "")
        assert isinstance(chart, Chart)
        assert "the noise's deviation is" in chart.note


@pytest.mark.parametrize(
    ("shares", "title"),
    [
        ([0.6, 0.1, 0.3], "rate and kind"),
        ([0.3, 0.1, 0.6], "rate and kind"),
        ([0.1, 0.3, 0.6], "width and kind"),
    ],
)
def test_the_contour_is_of_the_parameters_that_matter_most(
    result: Result, shares: list[float], title: str
) -> None:
    """The axes keep the space's order, so that two runs side by side have the same axes."""
    run = read_run(result.run_dir)
    found = space_plots.landscape(run)
    assert found is not None
    known = replace(found, shape=replace(found.shape, shares=np.array(shares)))
    chart = space_plots.contour(run, known, "")
    assert chart is not None
    assert chart.title == title
    assert chart.x.label == title.split()[0]


def test_parallel_coordinates_are_as_wide_as_they_need(result: Result, tmp_path: Path) -> None:
    wide = space_plots.parallel(read_run(result.run_dir), None, "")
    assert wide is not None
    assert wide.width == space_plots.BROAD

    @task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
    def plane(params: Any) -> float:
        return float(params["x"])

    made = simulate(plane, agents=2, rounds=3, strategy="random", run_dir=tmp_path / "run")
    narrow = space_plots.parallel(read_run(made.run_dir), None, "")
    assert narrow is not None
    assert narrow.width == WIDTH


def test_in_one_dimension_the_star_lies_on_the_function(tmp_path: Path) -> None:
    @task(space={"x": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
    def hill(params: Any) -> float:
        return 1.0 - float(params["x"] - 0.3) ** 2

    made = simulate(hill, agents=4, rounds=4, strategy=DPFTSDE(), run_dir=tmp_path / "run")
    run = read_run(made.run_dir)
    chart = space_plots.contour(run, None, "")
    assert chart is not None
    assert run.released is not None
    assert run.space is not None
    assert made.recommended is not None
    height = run.released.values(run.space.to_unit(made.recommended)[None])[0]
    assert chart.y.low < height < chart.y.high
    (star,) = [part for part in chart.parts if 'class="star"' in part]
    centre = float(chart.py(np.array([height]))[0])
    points = np.array([[float(v) for v in p.split(",")] for p in star.split('"')[3].split()])
    assert points[:, 1].mean() == pytest.approx(centre, abs=1.5)  # pixels
    # In the slice, where the point has no score, a line marks it and no star.
    (only,) = space_plots.slices(run, None, "")
    assert not any('class="star"' in part for part in only.parts)
    assert any("recommended" in part for part in only.parts)


def test_the_history_has_a_thin_line_for_each_agent(result: Result) -> None:
    (chart,) = history_plots.history(read_run(result.run_dir), "")
    assert sum("single" in part for part in chart.parts) == 6
    assert [label for _, label in chart.legend] == ["dp-fts-de", "alone", "random"]


def test_the_bars_of_evaluations_saved_are_those_of_the_result(result: Result) -> None:
    chart = history_plots.saved(read_run(result.run_dir), "")
    assert chart is not None
    text = " ".join(chart.parts)
    for name, s in result.savings.items():
        assert f"dp-fts-de: {s.ours} evaluations" in text
        assert f"{name}: {s.theirs} evaluations" in text


def test_the_timeline_has_a_bar_for_each_evaluation(result: Result) -> None:
    run = read_run(result.run_dir)
    chart = round_plots.timeline(run, "")
    assert chart is not None
    bars = [part for part in chart.parts if part.startswith("<rect")]
    assert len(bars) == len(run.evaluations) == 6 * 10
    assert sum('class="failed"' in bar for bar in bars) == sum(e.failed for e in run.evaluations)


def test_replies_are_a_figure_only_where_some_are_lost(result: Result) -> None:
    from dataclasses import replace

    run = read_run(result.run_dir)
    assert round_plots.replies(run, "") is None
    row = {**run.rounds[0], "replied": str(int(run.rounds[0]["replied"]) - 1)}
    assert round_plots.replies(replace(run, rounds=[row, *run.rounds[1:]]), "") is not None


def test_many_parameters_say_which_slices_are_left_out(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(space_plots.MAX_SLICES + 2)]

    @task(space={name: Float(0.0, 1.0) for name in names})
    def wide(params: Any) -> float:
        return float(sum(params.values()))

    made = simulate(wide, agents=2, strategy="random", rounds=4, run_dir=tmp_path / "run")
    from flwr_fbo.report import write_report

    text = write_report([made.run_dir]).read_text()
    assert text.count("slice-") == space_plots.MAX_SLICES
    assert f"{space_plots.MAX_SLICES} most important of {len(names)} parameters" in text
