"""Post-processing of released vectors: least variance, reuse, and what is refused."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.releases import ReleaseMemory


def test_before_the_first_release_there_is_nothing():
    memory = ReleaseMemory()
    assert memory.latest is None
    assert memory.average() is None
    assert math.isnan(memory.deviation())
    assert len(memory) == 0


def test_average_by_hand():
    memory = ReleaseMemory()
    memory.add(np.array([1.0, 0.0]), 1.0, 0)
    memory.add(np.array([4.0, 3.0]), 2.0, 2)
    np.testing.assert_allclose(memory.average(), [1.6, 0.6])  # weights 4/5 and 1/5
    assert memory.deviation() == pytest.approx(math.sqrt(0.8))
    np.testing.assert_array_equal(memory.latest, [4.0, 3.0])
    np.testing.assert_array_equal(memory.average(window=1), [4.0, 3.0])


def test_averaging_removes_noise_as_stated():
    rng = np.random.default_rng(0)
    signal, deviations = rng.normal(size=2000), [1.0, 0.5, 2.0, 1.0]
    memory = ReleaseMemory()
    for t, deviation in enumerate(deviations):
        memory.add(signal + deviation * rng.normal(size=2000), deviation, t)
    left = (memory.average() - signal).std()
    assert left == pytest.approx(memory.deviation(), rel=4 / math.sqrt(2 * 2000))
    assert memory.deviation() == pytest.approx(sum(d**-2 for d in deviations) ** -0.5)


def test_old_rounds_fade():
    memory = ReleaseMemory(half_life=2.0)
    memory.add(np.array([0.0]), 1.0, 0)
    memory.add(np.array([3.0]), 1.0, 2)
    np.testing.assert_allclose(memory.average(), [2.0])  # weights 1/3 and 2/3


def test_without_noise_only_exact_releases_count():
    memory = ReleaseMemory()
    memory.add(np.array([5.0]), 1.0, 0)
    memory.add(np.array([1.0]), 0.0, 1)
    np.testing.assert_array_equal(memory.average(), [1.0])
    assert memory.deviation() == 0.0


def test_what_is_added_is_a_copy_and_survives_a_checkpoint():
    memory, vector = ReleaseMemory(half_life=5.0), np.ones((2, 3))
    memory.add(vector, 0.5, 4)
    memory.add(2.0 * vector, 0.25, 5)
    vector[:] = 9.0
    state = memory.to_dict()
    assert [state[name].shape for name in ("vectors", "deviations", "rounds")] == [
        (2, 2, 3), (2,), (2,)
    ]  # fmt: skip
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{k: v for k, v in state.items() if k != "half_life"})
    file.seek(0)
    stored = dict(np.load(file, allow_pickle=False))
    again = ReleaseMemory.from_dict({"half_life": state["half_life"], **stored})
    for one, other in zip(again.releases, memory.releases, strict=True):
        np.testing.assert_array_equal(one.vector, other.vector)
        assert (one.deviation, one.round) == (other.deviation, other.round)
    np.testing.assert_array_equal(again.releases[0].vector, np.ones((2, 3)))
    assert (again.half_life, again.deviation(), len(again)) == (5.0, memory.deviation(), 2)
    empty = ReleaseMemory.from_dict(ReleaseMemory().to_dict())
    assert (empty.half_life, len(empty)) == (math.inf, 0)


@pytest.mark.parametrize(
    ("vector", "deviation", "round", "message"),
    [
        ([np.nan, 0.0], 1.0, 5, "`vector` must be finite"),
        ([1.0], 1.0, 5, r"must have shape \(2,\) as before, but got \(1,\)"),
        ([1.0, 1.0], -1.0, 5, "`deviation` must be finite and >= 0, but got -1.0"),
        ([1.0, 1.0], 1.0, 3, "`round` must be later than 3, but got 3"),
    ],
)
def test_bad_releases(vector, deviation, round, message):
    memory = ReleaseMemory()
    memory.add(np.zeros(2), 1.0, 3)
    with pytest.raises(PrivacyError, match=message):
        memory.add(np.array(vector), deviation, round)
    with pytest.raises(PrivacyError, match="`half_life` must be > 0, but got 0"):
        ReleaseMemory(half_life=0)
