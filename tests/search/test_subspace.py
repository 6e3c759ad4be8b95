"""Parts of a space: what they hold, and that a search of a part searches the whole's surface."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.core.space import Categorical, Float, Int, Space, SpaceError
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import Path
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import Regions
from flwr_fbo.search.subspace import SubSpace, _Lifted, is_part

WHOLE = Space(
    {
        "x": Float(0.0, 10.0),
        "rate": Float(1e-4, 1.0, log=True),
        "n": Int(0, 12),
        "m": Int(1, 64, log=True),
        "kind": Categorical(["a", "b", "c"]),
    }
)
FREE = {
    "rate": Float(1e-3, 0.5, log=True),
    "n": Int(2, 10, step=2),
    "m": Int(3, 17, log=True),
    "kind": Categorical(["c", "a"]),
}
FIXED = WHOLE.to_unit({"x": 2.5, "rate": 1e-4, "n": 0, "m": 1, "kind": "b"})
PART = SubSpace(WHOLE, FREE, FIXED)


def surface(regions: int = 1) -> Path:
    rng = np.random.default_rng(3)
    features = RandomFeatures.draw(kernel_named("se", 0.4), 50, WHOLE.embedding_dimension, rng)
    return Path(features, rng.standard_normal((regions, 50)))


@given(st.integers(0, 2**32 - 1))
def test_a_point_of_the_part_has_the_same_values_in_the_whole(seed: int) -> None:
    units = PART.own.sample(5, np.random.default_rng(seed))
    lifted = PART.lift(units)
    for unit, point in zip(units, lifted, strict=True):
        values = PART.own.from_unit(unit)
        there = WHOLE.from_unit(point)
        assert there["x"] == pytest.approx(2.5)
        assert there["rate"] == pytest.approx(values["rate"], rel=1e-12)
        assert all(there[name] == values[name] for name in ("n", "m", "kind"))
    np.testing.assert_allclose(PART.restrict(lifted), PART.own.snap(units), atol=1e-12)


def test_the_linear_map_embeds_points_of_the_part_as_the_whole_does() -> None:
    units = PART.own.sample(50, np.random.default_rng(1))
    lifted, regions = _Lifted(surface(), None, *PART._linear_map).lift(PART.own.embed(units))
    assert regions is None
    np.testing.assert_allclose(lifted, WHOLE.embed(PART.lift(units)), atol=1e-12)


def test_gradients_are_those_of_the_lifted_surface() -> None:
    lifted = _Lifted(surface(), None, *PART._linear_map)
    x = PART.own.embed(PART.own.sample(4, np.random.default_rng(2)))
    value, gradient = lifted.value_and_gradient(x)
    np.testing.assert_allclose(value, lifted.value(x))
    step = 1e-6
    for column in range(x.shape[1]):
        ahead, behind = x.copy(), x.copy()
        ahead[:, column] += step
        behind[:, column] -= step
        slope = (lifted.value(ahead) - lifted.value(behind)) / (2 * step)
        np.testing.assert_allclose(gradient[:, column], slope, atol=1e-6)


@pytest.mark.parametrize("regions", [None, Regions((1, 2, 2, 1, 1)), Regions((2, 1, 1, 3, 3))])
def test_a_search_finds_a_point_of_the_part_as_good_as_any(regions: Regions | None) -> None:
    path = surface(1 if regions is None else regions.count)
    found = PART.argmax(
        path, np.random.default_rng(0), regions, WHOLE.sample(3, np.random.default_rng(9))
    )
    values = WHOLE.from_unit(found)
    assert values["x"] == pytest.approx(2.5)
    assert values["n"] in range(2, 11, 2)
    assert values["kind"] in ("a", "c")
    many = PART.lift(PART.own.sample(20_000, np.random.default_rng(4)))
    place = None if regions is None else regions.locate(many)
    here = None if regions is None else regions.locate(found[None, :])
    best = path.value(WHOLE.embed(many), place).max()
    assert path.value(WHOLE.embed(found[None, :]), here)[0] >= best - 0.02


def test_what_is_a_part() -> None:
    assert is_part(Int(2, 10, step=4), Int(0, 12, step=2))
    assert not is_part(Int(1, 9, step=4), Int(0, 12, step=2))  # off the grid
    assert not is_part(Int(0, 12), Int(0, 12, step=2))
    assert not is_part(Float(0.0, 11.0), WHOLE.parameters["x"])
    assert not is_part(Float(1e-3, 1.0), WHOLE.parameters["rate"])  # not on a log scale
    assert not is_part(Float(0.0, 10.0), WHOLE.parameters["n"])
    assert is_part(Categorical(["b"]), WHOLE.parameters["kind"])
    assert not is_part(Categorical(["b", "z"]), WHOLE.parameters["kind"])
    assert not is_part(Categorical([1]), Categorical([True, 2]))


def test_what_is_not_a_part_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"parameter 'x' must lie in Float\(low=0.0, high=10.0"):
        SubSpace(WHOLE, {"x": Float(0.0, 11.0)}, FIXED)
    finite = Space({"x": Float(0.0, 1.0)}, np.array([[0.5]]))
    with pytest.raises(SpaceError, match="without explicit points"):
        SubSpace(finite, {"x": Float(0.0, 1.0)}, np.array([0.5]))
