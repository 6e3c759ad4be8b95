"""Reports: what is in them, and what a real browser makes of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import DPFTSDE, FTS, Categorical, FedPNE, Float, Int, simulate, task
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.parameters import Parameter
from flwr_fbo.report import write_report
from flwr_fbo.report.axes import parameter_axis
from flwr_fbo.report.importance import ranks
from flwr_fbo.report.runs import best_so_far
from flwr_fbo.report.svg import Chart, linear_axis
from flwr_fbo.runs.files import RunDirectoryError
from tests.command import flwr_fbo

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
     if (found := shutil.which(name))),
    None,
)  # fmt: skip


@task(
    space={
        "learning rate": Float(1e-5, 1e-1, log=True),
        "batch size": Int(8, 256, log=True),
        "optimiser": Categorical(["adam", "sgd with <momentum> & decay", "rmsprop"]),
    },
    metric="accuracy",
)
def train(params: Any, rng: np.random.Generator) -> float:
    if params["learning rate"] > 0.02:
        raise ArithmeticError("loss is <not> finite")
    return float(0.9 - 0.03 * abs(np.log10(params["learning rate"]) + 3) + 0.01 * rng.normal())


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    small: dict[str, Any] = {"agents": 4, "rounds": 4, "initial_points": 4, "seed": 1}
    private = DPFTSDE(epsilon=4.0)
    simulate(train, strategy=private, compare=["random"], run_dir=folder / "private", **small)
    simulate(train, strategy=FTS(), run_dir=folder / "fts", **small)
    simulate("garland", agents=4, strategy=FedPNE(budget=60), run_dir=folder / "pne")
    simulate("synthetic", run_dir=folder / "regret", points=50, **small)
    return folder


#: What every run with evaluations shows, and what its space adds.
ANY = {"score", "edf", "timeline"}
THREE = {"importances", "contour", "parallel", "slice-0", "slice-1", "slice-2"}
FIGURES = {
    "private": ANY | THREE | {"saved", "epsilon", "releases"},
    "fts": ANY | THREE,
    "pne": ANY | {"regret", "tree", "slice-0", "contour"},
    "regret": ANY | {"regret", "slice-0"},
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_plot_is_there(runs: Path, name: str, tmp_path: Path) -> None:
    text = read(write_report([runs / name], tmp_path / "r.html"))
    assert {f"r0-{f}" for f in FIGURES[name]} == set(re.findall(r'<figure id="([^"]+)"', text))
    assert "How to cite" in text
    # Nothing is fetched from anywhere, and nothing runs.
    assert not re.search(r"<script|<img|src=|url\(|@import|https?:", text)


def test_it_says_what_happened(runs: Path, tmp_path: Path) -> None:
    text = read(write_report([runs / "private"], tmp_path / "r.html"))
    assert "loss is &lt;not&gt; finite" in text
    assert "<not>" not in text
    assert "budget" in text
    assert "recommended to all" in text.lower()
    assert "All 4 agents answered in each of 5 rounds." in text
    assert "for each party, over the whole run" in text
    assert "evaluations to the same score" in text
    for setting in ("initial-points", "numpy", "dp-accounting", "dai2021dpftsde"):
        assert setting in text


def test_several_runs_are_compared(runs: Path, tmp_path: Path) -> None:
    both = [runs / "private", runs / "fts"]
    text = read(write_report(both, tmp_path / "r.html"))
    assert '<figure id="compare-0"' in text
    assert text.count("<h2>") == 3
    ids = re.findall(r'<figure id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    # Two runs stand side by side: each row holds a figure of the one beside its like.
    rows = text.split('<div class="beside">')[1:]
    assert any('id="r0-score"' in row and 'id="r1-score"' in row for row in rows)
    assert "Settings that differ" in text
    assert "<td>strategy</td><td>dp-fts-de</td><td>fts</td>" in text
    assert "private beside" in re.sub("<[^>]+>", "", text)
    three = read(write_report([*both, runs / "regret"], tmp_path / "three.html"))
    assert three.count("<h2>") == 4
    assert three.count('class="beside"') == 0


def test_a_run_that_was_interrupted_has_a_report_too(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "private", tmp_path / "half")
    (tmp_path / "half" / "result.json").unlink()
    text = read(write_report([tmp_path / "half"]))
    assert "not finished" in text
    assert '<figure id="r0-score"' in text


def test_without_the_agents_journals_it_says_so(runs: Path, tmp_path: Path) -> None:
    """A server in a deployment has none of them."""
    shutil.copytree(runs / "private", tmp_path / "server")
    shutil.rmtree(tmp_path / "server" / "agents")
    text = read(write_report([tmp_path / "server"]))
    assert "journals, which are not here" in text
    assert '<figure id="r0-epsilon"' in text


def test_a_comparison_leaves_the_report_of_its_first_run(runs: Path, tmp_path: Path) -> None:
    for name in ("fts", "private"):
        shutil.copytree(runs / name, tmp_path / name)
    both = [tmp_path / "fts", tmp_path / "private"]
    alone = write_report(both[:1])
    before = alone.read_text()
    compared = write_report(both)
    assert compared == tmp_path / "fts" / "compared.html"
    assert alone.read_text() == before
    assert "2 runs compared" in compared.read_text()


def test_the_command_names_the_file(runs: Path, tmp_path: Path) -> None:
    done = flwr_fbo("report", str(runs / "fts"), "--out", "it.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / done.stdout.strip()).exists()
    missing = flwr_fbo("report", "nowhere", cwd=tmp_path)
    assert missing.returncode == 2
    assert "config.json" in missing.stderr
    assert "Traceback" not in missing.stderr
    with pytest.raises(RunDirectoryError, match=r"config\.json"):
        write_report([tmp_path / "nowhere"])


def evaluation(score: float | None) -> Evaluation:
    return Evaluation(0, 0, {"x": 1}, [0.5], score)


def test_curves_by_hand() -> None:
    histories = [
        [evaluation(v) for v in (1.0, 3.0, 2.0)],
        [evaluation(v) for v in (None, 1.0)],
        [evaluation(5.0)],
    ]
    curve = best_so_far(histories)
    assert curve is not None
    np.testing.assert_array_equal(curve.count, [1, 2, 3])
    np.testing.assert_allclose(curve.median, [3.0, 2.0, 3.0])  # of (1, 5), (3, 1), (3)
    np.testing.assert_allclose(curve.low, [2.0, 1.5, 3.0])
    assert best_so_far([[evaluation(None)], []]) is None
    assert best_so_far([]) is None


def test_ranks_are_within_an_agent() -> None:
    found = ranks([evaluation(v) for v in (None, 0.0, 10.0, 1e9)])
    np.testing.assert_array_equal(found, [np.nan, 0.0, 0.5, 1.0])
    np.testing.assert_array_equal(ranks([evaluation(1.0)]), [0.5])
    np.testing.assert_array_equal(ranks([evaluation(v) for v in (1.0, 1.0, 2.0)]), [0.25, 0.25, 1])
    assert len(ranks([])) == 0


@pytest.mark.parametrize(
    ("parameter", "labels"),
    [
        (Float(1e-5, 1e-1, log=True), ["1e-5", "0.0001", "0.001", "0.01", "0.1"]),
        (Float(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (Float(3.0, 4.5, log=True), ["3", "4.5"]),
        (Int(8, 256, log=True), ["10", "20", "50", "100", "200"]),
        (Int(1, 6), ["1", "2", "3", "4", "5", "6"]),
        (Categorical(["a", None]), ["a", "None"]),
    ],
)
def test_marks_are_at_round_values(parameter: Parameter, labels: list[str]) -> None:
    axis = parameter_axis("p", parameter)
    assert [text for _, text in axis.ticks] == labels
    assert all(0.0 <= place <= 1.0 for place, _ in axis.ticks)


@pytest.mark.parametrize("values", [[2.0], [], [0.0, 1e-9], [-1e6, 1e6], [0.1, 0.95]])
@pytest.mark.parametrize("whole", [True, False])
def test_axes_hold_what_they_are_for(values: list[float], whole: bool) -> None:
    axis = linear_axis(np.array(values), "v", whole=whole)
    chart = Chart("n", "t", axis, axis)
    assert all(axis.low <= v <= axis.high for v in values)
    assert axis.low < axis.high
    assert len(axis.ticks) <= 12
    assert np.isfinite(chart.px(np.array([axis.low, axis.high]))).all()


# -- in a browser --------------------------------------------------------------------------

PROBE = """<script>
const outside = [], figures = [];
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg"), frame = svg.getBoundingClientRect();
  figures.push([figure.id, frame.width, frame.height, svg.querySelectorAll(
    "polyline,polygon,circle,rect").length]);
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
        box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      outside.push(figure.id + ": " + text.textContent);
  }
}
const size = parseFloat(getComputedStyle(document.querySelector("svg text")).fontSize);
const first = document.querySelector("figure svg").getBoundingClientRect();
document.title = JSON.stringify({figures, outside, ink: getComputedStyle(document.body).color,
  paper: getComputedStyle(document.body).backgroundColor, letters: size * first.width / 480,
  wider: document.documentElement.scrollWidth - document.documentElement.clientWidth});
</script>"""


def in_browser(page: Path, *options: str) -> tuple[dict[str, Any], str]:
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync",
        f"--user-data-dir={page.parent / 'profile'}", "--enable-logging=stderr", *options,
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert found, done.stderr
    return json.loads(found[1].replace("&amp;", "&")), done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium binary on PATH")
@pytest.mark.parametrize("width", [1200, 500])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_all_of_it(runs: Path, tmp_path: Path, width: int, dark: bool) -> None:
    page = write_report([runs / name for name in FIGURES], tmp_path / "report.html")
    page.write_text(read(page).replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    night = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0") if dark else ()
    found, log = in_browser(page, f"--window-size={width},2000", *night)
    assert "CONSOLE" not in log, log
    expected = {f"r{i}-{f}" for i, name in enumerate(FIGURES) for f in FIGURES[name]}
    assert expected <= {name for name, *_ in found["figures"]}
    for name, wide, high, shapes in found["figures"]:
        assert wide > 250, name
        assert high > 100, name
        assert shapes > 0, name
    assert found["outside"] == []
    assert found["wider"] <= 0  # nothing to scroll sideways
    assert found["letters"] > 9  # pixels
    light = [int(v) for v in re.findall(r"\d+", found["paper"])][:3]
    assert (sum(light) < 200) == dark
