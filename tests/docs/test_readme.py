"""The README: short, with a picture, a recording and commands; what is generated is up to date."""

from __future__ import annotations

import re
import tomllib
from xml.etree import ElementTree

from benchmarks import first_table, hero
from benchmarks.pages import filled
from benchmarks.suite.federations.yahpo import RPART
from benchmarks.suite.results import RESULTS, Store
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text()
SVG = "{http://www.w3.org/2000/svg}"


def test_it_has_fewer_than_600_words() -> None:
    assert len(README.split()) < 600


def test_its_badges_are_true_and_need_no_service() -> None:
    """``docs/pictures.py`` draws them from pyproject.toml, and another test draws them again."""
    (label,) = re.findall(r"!\[([^]]*)\]\(docs/images/badges\.svg\)", README)
    root = ElementTree.fromstring((ROOT / "docs" / "images" / "badges.svg").read_text())
    assert root.get("aria-label") == label
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = project["requires-python"].removeprefix(">=")
    assert label.startswith(f"version {project['version']}, python {lowest} to 3.")
    assert project["license"] in label
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
    assert "Version 2.0" in (ROOT / "LICENSE").read_text()[:200]
    assert "://" not in "".join(re.findall(r"!\[[^]]*\]\(([^)]*)\)", README))


def test_its_first_picture_is_of_the_saved_runs() -> None:
    known = hero.saved()
    assert hero.FIGURE.read_text() == hero.figure(known), "run `python -m benchmarks.hero`"
    assert filled(README, "hero", [hero.caption(known)]) == README
    assert README.index("docs/images/hero.svg") < README.index("## Try it")
    # Reported seeds only, and at least five that all methods have.
    seeds = hero.seeds_of(known)
    assert len(seeds) >= 5
    assert min(seeds) >= 7000
    for method in hero.METHODS:
        assert hero.curves(known, method).shape == (len(seeds), RPART.evaluations)
    for row in Store(RESULTS).read(RPART.name):
        if row["method"] in ("ours-8", "ours-2"):
            assert 0.99 * row["asked_epsilon"] < row["epsilon"] <= row["asked_epsilon"]
            assert row["delta"] == 1e-5


def test_reached_counts_evaluations_from_one() -> None:
    import numpy as np

    assert hero.reached(np.array([0.1, 0.4, 0.5]), 0.4) == 2
    assert hero.reached(np.array([0.1, 0.4, 0.5]), 0.6) is None


def test_the_recording_is_of_the_main_command_and_calm_where_asked() -> None:
    text = (ROOT / "docs" / "images" / "terminal.svg").read_text()
    assert ElementTree.fromstring(text).tag == f"{SVG}svg"
    (main,) = re.findall(r"<!-- main command -->\n```sh\n(.*?)```", README, re.DOTALL)
    command = main.strip().splitlines()[-1].removeprefix(".venv/bin/")
    assert f"$ {command}" in text
    assert first_table.commands()[-1].endswith(command)
    assert "evaluations to" in text  # the table at the end
    assert "prefers-reduced-motion" in text
    assert "recorded from one real run" in text


def test_a_recording_keeps_what_a_terminal_showed() -> None:
    import importlib.util

    import pytest

    pytest.importorskip("pyte", reason="the extra `docs` is not installed")
    spec = importlib.util.spec_from_file_location("record", ROOT / "scripts" / "record.py")
    assert spec is not None
    assert spec.loader is not None
    record = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record)
    frames = record.record("printf a\\x1b[31mred\\x1b[0m<b>\\n")
    drawn = record.drawn(frames, "printf")
    ElementTree.fromstring(drawn)
    assert '<tspan fill="#ff7b72">red</tspan>' in drawn
    assert "&lt;b&gt;" in drawn
    assert drawn.count(" last") == 1
    with pytest.raises(SystemExit, match="must succeed, but ended with 1"):
        record.record("false")
