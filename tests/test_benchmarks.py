"""The evidence's own machinery: guards fail when something is slow, verdicts follow the rule."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import guard, scale, secure_runs, synthetic
from benchmarks.ratios import Ratio, turns
from flwr_fbo.clients import tuning_client as base
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.models import gp
from flwr_fbo.models.gp import Path as SampledPath
from flwr_fbo.search import acquisition

ROOT = Path(__file__).parents[1]


# ------------------------------------------------------------------ guards


def failed(section: Any) -> list[str]:
    return [found.name for found in section() if not found.holds]


def test_a_loop_over_agents_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = WeightedSum._add

    def one_by_one(self: Any, weights: Any, vectors: Any) -> None:
        for i in range(len(vectors)):
            whole(self, weights[:, i : i + 1], vectors[i : i + 1])

    monkeypatch.setattr(WeightedSum, "_add", one_by_one)
    assert failed(guard.server) == [
        "calls of the private sum of 8,192 vectors",
        "private sum over plain numpy",
    ]


def test_a_loop_over_candidates_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SampledPath.scan

    def one_by_one(self: Any, x: Any, regions: Any = None) -> Any:
        rows = [None if regions is None else regions[i : i + 1] for i in range(len(x))]
        return np.concatenate([whole(self, x[i : i + 1], r) for i, r in enumerate(rows)])

    monkeypatch.setattr(SampledPath, "scan", one_by_one)
    assert "calls of a query on advice" in failed(guard.agent)


def test_a_cubic_wall_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gp, "WEIGHT_SPACE_FROM", 10**9)
    assert failed(guard.agent) == ["query with 4,800 observations over 300 (cubic: 4,096)"]


def test_a_setup_that_is_read_for_every_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(OrderedDict[str, Any]):
        def __contains__(self, key: object) -> bool:
            return False

    monkeypatch.setattr(base, "_setups", Forgetful())
    # The first two: those after them send no message.
    found = failed(lambda: islice(guard.shell(), 2))
    assert found == ["calls of a message there and back, random search"]


def test_a_collector_that_visits_all_agents_again_and_again_is_noticed() -> None:
    # In a process of its own, as what else a process holds changes how often all is visited.
    code = (
        "from benchmarks import guard; from flwr_fbo.simulation import garbage\n"
        "garbage.MANY_AGENTS = 10**9\n"
        "print([found.name for found in guard.garbage() if not found.holds])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == [
        "['visits of all objects by the garbage collector, 4 rounds']"
    ]


def test_what_is_now_passes() -> None:
    assert acquisition.CANDIDATES == 1000  # the counts are for the papers' number of candidates
    assert failed(guard.search) == []
    assert failed(guard.shell) == []


# ------------------------------------------------------------------ ratios


def test_a_ratio_is_that_of_the_middle_turn() -> None:
    # One slow turn of theirs and one of ours, and a machine half as fast in the fourth.
    found = [(1.1, 1.0), (1.2, 4.0), (5.0, 1.0), (2.4, 2.0), (1.25, 1.0)]
    ratio = Ratio("x", found, "ms", 1.25)
    assert ratio.value == pytest.approx(1.2)
    assert ratio.spread == pytest.approx([0.3, 5.0])
    saved = ratio.to_dict()
    assert (saved["ours"], saved["theirs"], saved["turns"]) == (2.4, 2.0, 5)
    assert ratio.outcome == "met"
    assert Ratio("x", found, "ms", 1.19).outcome == "MISSED"
    assert Ratio("x", found, "ms").outcome == "-"


def test_sides_begin_in_turn_and_the_first_turn_is_not_counted() -> None:
    order: list[str] = []
    found = turns(lambda i: order.append(f"ours {i}"), lambda i: order.append(f"theirs {i}"), 2)
    assert order == ["ours 0", "theirs 0", "theirs 1", "ours 1", "ours 2", "theirs 2"]
    assert len(found) == 2


# ------------------------------------------------------------------ scale


def test_a_tree_of_aggregators_gives_the_flat_sum() -> None:
    (row,) = scale._hierarchy(quick=True)  # asserts equality to the last bit itself
    assert row["leaf aggregators"] == 100


# ------------------------------------------------------------------ whole runs with secure sums


def test_the_sides_of_a_pair_take_turns_in_going_first() -> None:
    order: list[str] = []
    kept: list[tuple[str, int]] = []

    def once(side: str) -> dict[str, float]:
        order.append(side)
        return {"on the clock": 2.0 if side == "secure" else 1.0, "CPU": 1.0}

    secure_runs.pairs(once, 3, lambda what, found: kept.append((what, len(found))))
    assert order == ["secure", "central", "central", "secure", "secure", "central"]
    assert kept == [(what, n) for n in (1, 2, 3) for what in ("on the clock", "CPU")]


# ------------------------------------------------------------------ the papers' synthetic functions


def test_the_regret_of_a_synthetic_run_is_read_from_its_result() -> None:
    results = [synthetic.run(synthetic.UNTOLD, 2, 3, seed) for seed in (1, 2)]
    curves = synthetic.curves_of(results)
    assert curves.shape == (2, 4)
    assert (np.diff(curves, axis=1) <= 0.0).all()
    assert (curves >= 0.0).all()
    assert (curves <= 1.0).all()
