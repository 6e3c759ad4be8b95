"""The epidemic of equation 51: conservation, limits that are known, and where the optimum lies."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from flwr_fbo.tasks import Partition, load
from flwr_fbo.tasks.papers.data.seir import Country, Disease
from flwr_fbo.tasks.papers.data.sources import DataError
from flwr_fbo.tasks.papers.vaccine import effectiveness, epidemic

LAND = Country("Somewhere", 1e7)


def test_effectiveness_by_hand() -> None:
    assert effectiveness(1.0) == 1.0
    assert effectiveness(0.75) == 0.75
    assert effectiveness(0.5) == effectiveness(0.2) == effectiveness(0.0) == 0.0


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1), st.floats(2, 9), st.booleans())
def test_nobody_appears_or_vanishes(dosage: float, magnitude: float, lockdown: bool) -> None:
    course = epidemic(Country("c", 10**magnitude), dosage, lockdown=lockdown)
    # The solver's relative tolerance is 1e-8 a step, over some hundred steps.
    assert course.state.sum() == pytest.approx(1.0, abs=1e-5)
    assert course.state.min() > -1e-6
    assert 0.0 <= course.ever_infected <= 1.0


def test_without_vaccine_the_final_size_equation_holds() -> None:
    """z = 1 - exp(-R0 z) for an epidemic that runs its course (Kermack and McKendrick)."""
    disease = Disease(days=2000)
    ratio = disease.beta / disease.gamma
    size = brentq(lambda z: 1 - np.exp(-ratio * z) - z, 0.1, 1.0)
    assert epidemic(LAND, 0.3, disease).ever_infected == pytest.approx(size, abs=1e-4)


def test_without_infection_everyone_is_vaccinated_at_the_rate_of_the_supply() -> None:
    """beta so small that nobody falls ill: S falls by alpha V a day until V exceeds S."""
    disease = Disease(beta=1e-12, days=100)
    course = epidemic(LAND, 1.0, disease, supply=0.005)
    assert course.state[0] == pytest.approx(1 - 100 * 0.005, abs=1e-5)
    long = epidemic(LAND, 1.0, Disease(beta=1e-12, days=2000), supply=0.005)
    assert long.state[0] >= 0.0
    assert long.state[3] == pytest.approx(1.0, abs=1e-2)


def test_the_best_dosage_is_where_effect_times_volume_is_largest() -> None:
    """(1 - 4 (1 - x)^2) / x has its maximum at x = sqrt(3) / 2."""
    dosages = np.linspace(0, 1, 201)
    spared = [1 - epidemic(LAND, float(x)).ever_infected for x in dosages]
    assert dosages[int(np.argmax(spared))] == pytest.approx(np.sqrt(3) / 2, abs=0.005)
    assert spared[0] < 0.01 < 0.3 < max(spared)
    assert len({round(s, 6) for s in spared[:101]}) == 1  # half a dose or less does nothing


def test_larger_countries_have_longer_to_vaccinate() -> None:
    shares = [epidemic(Country("c", 10.0**k), 0.866).ever_infected for k in (4, 6, 8)]
    assert shares == sorted(shares, reverse=True)


def test_the_last_day_hardly_depends_on_the_dosage() -> None:
    """Why the score is the share ever infected, not the share infectious on the last day."""
    ends = [epidemic(LAND, x).infectious for x in (0.3, 0.866, 1.0)]
    assert max(ends) - min(ends) < 0.02
    ever = [epidemic(LAND, x).ever_infected for x in (0.3, 0.866, 1.0)]
    assert max(ever) - min(ever) > 0.3


def test_lockdowns_leave_no_epidemic() -> None:
    assert epidemic(LAND, 0.3, lockdown=True).ever_infected < 0.01


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"`dosage` must be in \[0, 1\], but got 1.5"):
        epidemic(LAND, 1.5)
    with pytest.raises(DataError, match="`beta` must be positive and finite, but got -1"):
        Disease(beta=-1)


@pytest.mark.skipif(
    not os.environ.get("FLWR_FBO_DATA"), reason="FLWR_FBO_DATA does not name the real data"
)
def test_agents_are_different_countries() -> None:
    names = set()
    for i in range(20):
        task = load("vaccine")
        task.prepare(Partition(i, 20))
        names.add(task.country.name)  # type: ignore[attr-defined]
    assert len(names) == 20
