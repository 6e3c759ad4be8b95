"""The garbage collector in a simulation of many agents: it visits less, and collects as much."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from flwr_fbo.core.protocol import Request
from flwr_fbo.methods.thompson.agent import thompson_setup
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.search.regions import split_space
from flwr_fbo.simulation.garbage import FULL_EVERY, MANY_AGENTS, RareVisits
from tests.methods.thompson_harness import SQUARE, Party


class Node:
    """An object that refers to itself: only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """Begin without garbage, and leave nothing frozen."""
    gc.collect()
    yield
    assert gc.get_freeze_count() == 0


def dropped() -> weakref.ref[Node]:
    """Make an object that is garbage at once."""
    return weakref.ref(Node())


def test_what_a_round_leaves_behind_is_collected_at_its_end() -> None:
    with RareVisits().in_round(MANY_AGENTS):
        left = dropped()
    assert left() is None


def test_what_a_round_leaves_behind_is_collected_in_the_round_too() -> None:
    with RareVisits().in_round(MANY_AGENTS):
        left = dropped()
        kept = [Node() for _ in range(1000)]  # enough new objects for a visit of the youngest
        assert left() is None
    assert len(kept) == 1000


def test_older_garbage_waits_for_a_few_rounds_at_the_most() -> None:
    visits, old = RareVisits(), Node()
    left = weakref.ref(old)
    with visits.in_round(MANY_AGENTS):
        del old
        gc.collect()
        assert left() is not None  # it is not visited
    for _ in range(FULL_EVERY):
        with visits.in_round(MANY_AGENTS):
            pass
    assert left() is None


def test_an_error_leaves_nothing_frozen() -> None:
    with pytest.raises(KeyboardInterrupt), RareVisits().in_round(MANY_AGENTS):
        raise KeyboardInterrupt


def test_rounds_of_few_agents_are_left_alone() -> None:
    with RareVisits().in_round(MANY_AGENTS - 1):
        assert gc.get_freeze_count() == 0


def test_a_collector_that_somebody_else_has_set_is_left_alone() -> None:
    gc.freeze()
    try:
        with RareVisits().in_round(MANY_AGENTS):
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    gc.disable()
    try:
        with RareVisits().in_round(MANY_AGENTS):
            assert gc.get_freeze_count() == 0
    finally:
        gc.enable()


def test_an_agent_is_freed_with_its_last_reference_and_its_evaluator_is_not() -> None:
    settings = ThompsonSettings(features=20)
    setup = thompson_setup(SQUARE, settings, split_space(SQUARE, 1), np.random.default_rng(0))
    party = Party(setup)
    explore = Request("explore", 0, {"count": 2, "home": -1}, expects={"omega": (20,)})
    gc.disable()
    try:
        assert np.isfinite(party.answer(explore).arrays["omega"]).all()
        evaluator, left = party.agent._evaluator, weakref.ref(party.agent)
        del party.agent
        assert left() is None
        assert len(evaluator.history) == 2
    finally:
        gc.enable()
